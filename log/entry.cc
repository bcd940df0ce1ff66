#include "log/entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checksum.h"

namespace pmstore::log {
namespace {

constexpr size_t kCrcBytes = sizeof(EntryHeader::crc);

}  // namespace

Result<PlannedEntry> plan_entry(const RingPosition& position, uint64_t payload_bytes,
                                bool one_sided, const persist::PaddingRules& rules) {
  if (const auto placed = place_entry(position, payload_bytes, one_sided, rules)) return *placed;
  if (payload_bytes <= max_payload_bytes(position.data_bytes)) {
    RingPosition empty = position;
    empty.start_lsn = position.tail_lsn;
    if (place_entry(empty, payload_bytes, one_sided, rules)) {
      return make_error(ErrorCode::kBackPressure);
    }
    return make_error(
        ErrorCode::kFull,
        fmt::format("the ring has used up its LSNs, which end at {}: copy what it has "
                    "into a new one",
                    kMaxLsn));
  }
  return make_error(
      ErrorCode::kTooLarge,
      fmt::format("an entry of {} bytes is over the {} that a ring of {} bytes takes: use smaller "
                  "entries or a larger ring",
                  payload_bytes, max_payload_bytes(position.data_bytes), position.data_bytes));
}

uint32_t entry_crc(const EntryHeader& header, std::span<const std::byte> payload, uint32_t salt) {
  const auto bytes = std::as_bytes(std::span(&header, 1)).subspan(kCrcBytes);
  return base::crc32c(payload, base::crc32c(bytes, salt));
}

void seal_entry(std::span<std::byte> buffer, const PlannedEntry& plan, const RingPosition& position,
                uint64_t payload_bytes, uint64_t sequence) {
  PMSTORE_CHECK(buffer.size() >= plan.bytes, "the buffer takes the planned entry");
  EntryHeader header = entry_header(plan, position, payload_bytes, sequence);
  const uint64_t used = sizeof(EntryHeader) + payload_bytes;
  std::memcpy(buffer.data(), &header, sizeof header);
  std::memset(buffer.data() + used, 0, header.padding_bytes);
  header.crc = base::crc32c(buffer.subspan(kCrcBytes, used - kCrcBytes), position.salt);
  std::memcpy(buffer.data(), &header.crc, kCrcBytes);
}

uint64_t seal_pad(std::span<std::byte, kMaxPadWriteBytes> buffer, const PlannedEntry& plan,
                  const RingPosition& position) {
  PMSTORE_CHECK(plan.pad_bytes >= sizeof(EntryHeader), "there is no pad entry to write");
  PMSTORE_CHECK(plan.pad_lsn + plan.pad_bytes == plan.lsn,
                "a pad that does not end at its entry hides the entry");
  EntryHeader header{};
  header.magic = kPadMagic;
  header.lsn = plan.pad_lsn;
  header.payload_bytes = static_cast<uint32_t>(plan.pad_bytes - sizeof(EntryHeader));
  header.incarnation = position.incarnation;
  header.crc = entry_crc(header, {}, position.salt);
  std::memset(buffer.data(), 0, buffer.size());
  std::memcpy(buffer.data(), &header, sizeof header);
  return std::min(plan.pad_bytes, kMaxPadWriteBytes);
}

}  // namespace pmstore::log
