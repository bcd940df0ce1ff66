// Redo records as earlier releases wrote them in clients' rings. Only a conversion reads them:
// today a ring has records as the shard log has them (pmstore/layout/shard_record.h).
//
//   redo  = EarlierRedoHeader, participants * uint64 pool, writes * write
//   write = EarlierRedoWrite, record image (as it lies in its slot), zero padding to 8
// The ring entry's sequence is the transaction's. Entries may be put in place in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "pmstore/layout/record.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/types.h"

namespace pmstore {

struct EarlierRedoHeader {
  uint64_t client;        // the low bits of TxId::client
  uint32_t participants;  // servers that hold writes of this transaction, this one included; 1
  uint32_t writes;
};
static_assert(sizeof(EarlierRedoHeader) == 16);

struct EarlierRedoWrite {
  uint64_t slot;
  uint32_t image_bytes;
  uint32_t zero;
};
static_assert(sizeof(EarlierRedoWrite) == 16);

constexpr size_t earlier_redo_write_bytes(uint64_t image_bytes) {
  return sizeof(EarlierRedoWrite) + (image_bytes + 7) / 8 * 8;
}
// With its one participant.
inline constexpr size_t kEarlierRedoHeaderBytes = sizeof(EarlierRedoHeader) + sizeof(uint64_t);

// EarlierRedoReader: walks such a record. Every length and checksum is checked.
class EarlierRedoReader {
 public:
  // nullopt unless all of `payload` is one well-formed redo record of the pool with this identity:
  // then next() never meets a flaw.
  static std::optional<EarlierRedoReader> open_whole(std::span<const std::byte> payload,
                                                     uint64_t pool);
  // The next write; nullopt at the end, and where the record is malformed, which malformed() tells.
  std::optional<LoggedWrite> next();
  bool malformed() const { return malformed_; }

 private:
  std::span<const std::byte> rest_;
  uint32_t left_ = 0;
  bool malformed_ = false;
};

}  // namespace pmstore
