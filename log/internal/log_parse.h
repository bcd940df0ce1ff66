// Takes one entry of a log out of bytes that were READ. Pure; any thread. Nothing is believed that
// the checksum or the bounds do not cover.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pmstore::log::internal {

struct ParseBounds {
  uint64_t data_bytes;  // of the log's data area
  uint64_t tail_lsn;    // every entry ends at or before it
  uint32_t salt;
};

struct ParsedEntry {
  enum class Kind : uint8_t {
    kEntry,
    kPad,      // go on at next_lsn
    kPartial,  // more bytes are needed to say; never more than there are up to the tail
    kInvalid,
  };
  Kind kind = Kind::kInvalid;
  uint64_t next_lsn = 0;
  uint64_t needed_bytes = 0;  // kPartial: from lsn on
  uint64_t index = 0;
  uint32_t incarnation = 0;
  std::span<const std::byte> payload;  // the user's; in `bytes`
};

// The entry at `lsn`, whose bytes, or the first of them, are `bytes`.
ParsedEntry parse_log_entry(std::span<const std::byte> bytes, uint64_t lsn,
                            const ParseBounds& bounds);

// Could an entry of a log begin so? Cheap; what can pass it by chance still has a checksum.
bool begins_like_entry(std::span<const std::byte> bytes, uint64_t lsn);

}  // namespace pmstore::log::internal
