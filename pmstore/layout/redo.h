// Redo records: the payload of a ring entry, all writes of one transaction on one server.
//
//   redo  = RedoHeader, participants * uint64 pool, writes * write
//   write = RedoWrite, record image (as it lies in its slot), zero padding to 8
// The ring entry's sequence is the transaction's. To apply a write is to copy its image into its
// slot if the image's version is above the slot's. So replay is idempotent, and entries may be
// replayed in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "pmstore/layout/record.h"
#include "pmstore/types.h"

namespace pmstore {

struct RedoHeader {
  uint64_t client;        // the low bits of TxId::client
  uint32_t participants;  // servers that hold writes of this transaction, this one included
  uint32_t writes;
};
static_assert(sizeof(RedoHeader) == 16);

struct RedoWrite {
  uint64_t slot;
  uint32_t image_bytes;
  uint32_t zero;
};
static_assert(sizeof(RedoWrite) == 16);

constexpr size_t redo_write_bytes(uint64_t image_bytes) {
  return sizeof(RedoWrite) + (image_bytes + 7) / 8 * 8;
}
constexpr size_t redo_header_bytes(size_t participants) {
  return sizeof(RedoHeader) + participants * sizeof(uint64_t);
}

// RedoBuilder: builds a redo record in a caller's buffer, which must have room for all writes (see
// redo_*_bytes() above; CHECKed).
class RedoBuilder {
 public:
  RedoBuilder(std::span<std::byte> room, uint64_t client, uint64_t pool);
  // Lays out the record in place and gives its image, 8-aligned in the buffer.
  std::span<const std::byte> add(SlotOffset slot, TableId table, uint64_t version,
                                 RecordState state, std::string_view key, std::string_view value);
  // The whole payload.
  std::span<const std::byte> finish();

 private:
  std::span<std::byte> room_;
  size_t used_;
  uint32_t writes_ = 0;
};

// RedoReader: walks a redo record that a client sent or that was read back from a ring. Every
// length and checksum is checked.
class RedoReader {
 public:
  // nullopt when `payload` is not a redo record of one participant, `pool`.
  static std::optional<RedoReader> open(std::span<const std::byte> payload, uint64_t pool);
  uint64_t client() const { return header_.client; }
  uint32_t writes() const { return header_.writes; }
  struct Write {
    SlotOffset slot;
    std::span<const std::byte> image;
    RecordView record;
  };
  // The next write; nullopt at the end, and where the record is malformed, which malformed() tells.
  std::optional<Write> next();
  bool malformed() const { return malformed_; }

 private:
  RedoHeader header_;
  std::span<const std::byte> rest_;
  uint32_t left_ = 0;
  bool malformed_ = false;
};

// Is all of `payload` one well-formed redo record of this pool?
bool is_whole_redo(std::span<const std::byte> payload, uint64_t pool);

}  // namespace pmstore
