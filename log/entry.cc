#include "log/entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/checksum.h"

namespace pmstore::log {
namespace {

constexpr size_t kCrcBytes = sizeof(EntryHeader::crc);
constexpr uint64_t kMaxEntryPayload = uint64_t{1} << 30;

}  // namespace

uint64_t max_payload_bytes(uint64_t data_bytes) {
  // Worst case: the tail lies one byte too far for alignment gap (< 2 units) and entry, so that pad
  // and entry together take just under gap + 2 * entry, which must not be more than the data area.
  const uint64_t half = persist::round_down(data_bytes / 2, persist::kXpLineBytes);
  const uint64_t overhead = persist::kXpLineBytes + sizeof(EntryHeader);
  return half <= overhead ? 0 : std::min(half - overhead, kMaxEntryPayload);
}

Result<PlannedEntry> plan_entry(const RingPosition& position, uint64_t payload_bytes,
                                bool one_sided, const persist::PaddingRules& rules) {
  if (payload_bytes > max_payload_bytes(position.data_bytes)) [[unlikely]] {
    return make_error(
        ErrorCode::kTooLarge,
        fmt::format(
            "an entry of {} bytes is over the {} that a ring of {} bytes takes: use smaller "
            "entries or a larger ring",
            payload_bytes, max_payload_bytes(position.data_bytes), position.data_bytes));
  }
  const uint64_t used = sizeof(EntryHeader) + payload_bytes;
  const uint64_t unit = persist::padding_unit(used, one_sided, rules);
  const uint64_t tail = position.tail_lsn % position.data_bytes;
  const uint64_t left = position.data_bytes - tail;
  uint64_t bytes = persist::round_up_to_power(used, unit);
  uint64_t gap = persist::round_up_to_power(tail, unit) - tail;
  // A gap must have room for a pad entry's header. (Only after entries that were written without
  // padding rules can it be too small.)
  if (gap > 0 && gap < sizeof(EntryHeader)) gap += unit;
  if (gap + bytes > left) gap = left;
  // So must what is left behind the entry; else the entry takes it too.
  const uint64_t behind = gap == left ? position.data_bytes - bytes : left - gap - bytes;
  if (behind < sizeof(EntryHeader)) bytes += behind;
  if (gap + bytes > position.free_bytes()) [[unlikely]]
    return make_error(ErrorCode::kBackPressure);
  return PlannedEntry{position.tail_lsn, gap, position.tail_lsn + gap, bytes};
}

uint32_t entry_crc(const EntryHeader& header, std::span<const std::byte> payload, uint32_t salt) {
  const auto bytes = std::as_bytes(std::span(&header, 1)).subspan(kCrcBytes);
  return base::crc32c(payload, base::crc32c(bytes, salt));
}

EntryHeader entry_header(const PlannedEntry& plan, const RingPosition& position,
                         uint64_t payload_bytes, uint64_t sequence) {
  const uint64_t used = sizeof(EntryHeader) + payload_bytes;
  PMSTORE_CHECK(plan.bytes >= used && plan.bytes - used <= UINT8_MAX,
                "the plan is for another payload");
  EntryHeader header{};
  header.magic = kEntryMagic;
  header.padding_bytes = static_cast<uint8_t>(plan.bytes - used);
  header.lsn = plan.lsn;
  header.payload_bytes = static_cast<uint32_t>(payload_bytes);
  header.incarnation = position.incarnation;
  header.sequence = sequence;
  return header;
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
