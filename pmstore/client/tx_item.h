// TxItem: what one transaction has read of one key, and what it wants to write there.
//
// The writes of an item are kept as what they demand of the record (`need`) and what they leave
// behind (`leave`), so any sequence of put, insert and erase of one key is one write at commit.
// Threads: the executor's.
#pragma once

#include <cstdint>

#include "pmstore/layout/bucket_layout.h"
#include "pmstore/layout/record_layout.h"
#include "pmstore/types.h"

namespace pmstore::internal {

struct TxItem {
  enum class Seen : uint8_t {
    kNo,
    kFound,    // read at `slot`, `version`
    kAbsent,   // read as not there, by `bucket`, `bucket_version`
    kLocated,  // found for the commit's own use: nothing that was read depends on it
  };
  enum class Need : uint8_t { kAnything, kPresent, kAbsent };
  enum class Leave : uint8_t { kAsItIs, kValue, kNothing };

  KeyHash hash;
  uint32_t key_offset;    // in the ItemSet's bytes
  uint32_t value_offset;  // in the ItemSet's bytes
  uint32_t value_bytes;
  TableId table;
  uint16_t participant = 0;  // of its transaction: the shard that holds the key
  uint16_t key_bytes;
  Seen seen = Seen::kNo;
  Need need = Need::kAnything;
  Leave leave = Leave::kAsItIs;
  uint8_t size_class = 0;
  bool reserved = false;  // discipline rnic: `slot` was reserved for this write
  SlotOffset slot{};
  uint64_t version = 0;
  uint64_t bucket = 0;
  uint64_t bucket_version = 0;
  // Discipline rnic, a move: the slot that the record leaves, and its version there.
  SlotOffset old_slot{};
  uint64_t old_version = 0;
  bool moved = false;
  // Discipline rnic, read as absent and not inserted: the server validates it. (A leaf; or a bucket
  // that this client cannot READ.)
  bool absent_by_call = false;

  bool writes() const { return leave != Leave::kAsItIs; }
  bool was_read() const { return seen == Seen::kFound || seen == Seen::kAbsent; }
  // Of a found item: the slot and the version that the read saw. A move does not change them.
  SlotOffset read_slot() const { return moved ? old_slot : slot; }
  uint64_t read_version() const { return moved ? old_version : version; }
  // Of the record that a write leaves behind; without a value it is a tombstone.
  uint64_t record_size() const {
    return record_bytes(key_bytes, leave == Leave::kValue ? value_bytes : 0);
  }
};

}  // namespace pmstore::internal
