#include "log/internal/log_parse.h"

#include <algorithm>
#include <cstring>

#include "log/entry.h"
#include "log/log_layout.h"
#include "log/log_types.h"

namespace pmstore::log::internal {

using Kind = ParsedEntry::Kind;

ParsedEntry parse_log_entry(std::span<const std::byte> bytes, uint64_t lsn,
                            const ParseBounds& bounds) {
  ParsedEntry result;
  if (!is_boundary(lsn, bounds.data_bytes) || lsn >= bounds.tail_lsn) return result;
  const uint64_t left = bounds.data_bytes - lsn % bounds.data_bytes;
  const uint64_t most = std::min(left, bounds.tail_lsn - lsn);
  if (most < sizeof(EntryHeader)) return result;
  EntryHeader header;
  if (bytes.size() < sizeof header) {
    result.kind = Kind::kPartial;
    result.needed_bytes = sizeof header;
    return result;
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  const bool pad = header.magic == kPadMagic;
  if ((!pad && header.magic != kEntryMagic) || header.lsn != lsn || header.reserved != 0 ||
      header.incarnation == 0) {
    return result;
  }
  const uint64_t whole = entry_bytes(header);
  if (whole > most || !is_boundary(lsn + whole, bounds.data_bytes)) return result;
  if (pad) {
    if (header.padding_bytes != 0 || header.sequence != 0) return result;
    if (header.crc != entry_crc(header, {}, bounds.salt)) return result;
    result.kind = Kind::kPad;
    result.next_lsn = lsn + whole;
    return result;
  }
  if (header.payload_bytes <= sizeof(LogEntryPrefix) ||
      header.payload_bytes > sizeof(LogEntryPrefix) + kMaxEntryBytes || header.sequence == 0) {
    return result;
  }
  const uint64_t covered = sizeof header + header.payload_bytes;
  if (bytes.size() < covered) {
    result.kind = Kind::kPartial;
    result.needed_bytes = covered;
    return result;
  }
  const auto payload = bytes.subspan(sizeof header, header.payload_bytes);
  if (header.crc != entry_crc(header, payload, bounds.salt)) return result;
  result.kind = Kind::kEntry;
  result.next_lsn = lsn + whole;
  result.index = header.sequence;
  result.incarnation = header.incarnation;
  result.payload = payload.subspan(sizeof(LogEntryPrefix));
  return result;
}

bool begins_like_entry(std::span<const std::byte> bytes, uint64_t lsn) {
  EntryHeader header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header.lsn == lsn && (header.magic == kEntryMagic || header.magic == kPadMagic);
}

}  // namespace pmstore::log::internal
