// Of Ring: its owner's appends.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/checksum.h"
#include "log/ring.h"

namespace pmstore::log {
namespace {

constexpr size_t kHeadBytes = persist::kLineBytes;  // of an entry, which are written last
// Entries up to this size are laid out and written at once; larger ones are summed while they are
// stored.
constexpr size_t kSmallBytes = 512;
// Up to this size a sum word by word is as quick as any.
constexpr size_t kFrameBytes = 192;
static_assert(kSmallBytes >= kHeadBytes + persist::kLineBytes + UINT8_MAX);
static_assert(sizeof(EntryHeader) + Ring::kMaxPrefixBytes <= kHeadBytes);

}  // namespace

std::byte* Ring::place_of(const PlannedEntry& plan) const {
  return memory_->at(data_offset() + plan.at);
}

Result<PlannedEntry> Ring::plan(uint64_t payload_bytes) const {
  check_writable();
  return plan_entry(position_, payload_bytes, false, rules_);
}

void Ring::write_pad(const PlannedEntry& plan) {
  if (plan.pad_bytes == 0) return;
  std::byte pad[kMaxPadWriteBytes];
  memory_->write(data_at(plan.pad_lsn), pad, seal_pad(pad, plan, position_));
}

uint64_t Ring::move_tail(const PlannedEntry& plan) {
  PMSTORE_CHECK(plan.lsn == position_.tail_lsn + plan.pad_bytes,
                "a walk would stop in front of the entry");
  position_.tail_lsn = plan.next_lsn();
  check_position();
  phase_ = Phase::kWritable;
  return plan.lsn;
}

// Summed while it is stored; the first line, with the checksum, goes last.
void Ring::write_in_parts(const PlannedEntry& plan, uint64_t sequence,
                          std::span<const std::byte> prefix, std::span<const std::byte> payload) {
  PMSTORE_CHECK(plan.bytes > kSmallBytes, "the first and the last line would be the same");
  std::byte* const to = place_of(plan);
  EntryHeader header = entry_header(plan, position_, prefix.size() + payload.size(), sequence);
  uint32_t sum = entry_crc(header, prefix, position_.salt);

  alignas(persist::kLineBytes) std::byte head[kHeadBytes];
  const size_t begun = sizeof header + prefix.size();
  std::copy(prefix.begin(), prefix.end(), head + sizeof header);
  std::copy_n(payload.begin(), kHeadBytes - begun, head + begun);
  sum = base::crc32c({head + begun, kHeadBytes - begun}, sum);
  payload = payload.subspan(kHeadBytes - begun);

  // What is summed must be what is stored, even while somebody writes where the payload lies.
  std::byte* at = to + kHeadBytes;
  const size_t lines = persist::round_down(payload.size() - 1, persist::kLineBytes);
  sum = memory_->write_part_summed(at, payload.data(), lines, plan.bytes, sum);
  payload = payload.subspan(lines);
  at += lines;

  alignas(persist::kLineBytes) std::byte last[kSmallBytes];  // at least a byte, and the padding
  const size_t left = plan.bytes - static_cast<size_t>(at - to);
  PMSTORE_CHECK(payload.size() <= left && left <= sizeof last, "the rest fits in its buffer");
  std::copy(payload.begin(), payload.end(), last);
  std::fill(last + payload.size(), last + left, std::byte{0});
  sum = base::crc32c({last, payload.size()}, sum);
  memory_->write_part(at, last, left, plan.bytes);

  header.crc = sum;
  std::memcpy(head, &header, sizeof header);
  memory_->write_part(to, head, kHeadBytes, plan.bytes);
}

Result<uint64_t> Ring::append(uint64_t sequence, std::span<const std::byte> payload,
                              std::span<const std::byte> prefix) {
  if (const auto lsn = append_if_room(sequence, payload, prefix)) return *lsn;
  return plan(prefix.size() + payload.size()).error();
}

// An entry of few lines goes from the caller's bytes right to its place, a word at a time.
bool Ring::write_as_frame(const PlannedEntry& plan, uint64_t sequence,
                          std::span<const std::byte> prefix, std::span<const std::byte> payload) {
  constexpr size_t kHeaderWords = sizeof(EntryHeader) / sizeof(uint64_t);
  if (plan.bytes > kFrameBytes || prefix.size() != sizeof(uint64_t)) return false;
  const EntryHeader header =
      entry_header(plan, position_, prefix.size() + payload.size(), sequence);
  std::array<uint64_t, kHeaderWords + 1> head;
  std::memcpy(head.data(), &header, sizeof header);
  std::memcpy(&head[kHeaderWords], prefix.data(), sizeof(uint64_t));
  return memory_->write_frame(place_of(plan), head, payload, plan.bytes, position_.salt);
}

std::optional<uint64_t> Ring::append_if_room(uint64_t sequence, std::span<const std::byte> payload,
                                             std::span<const std::byte> prefix) {
  check_writable();
  PMSTORE_CHECK(prefix.size() <= kMaxPrefixBytes, "it is in the first line");
  const uint64_t payload_bytes = prefix.size() + payload.size();
  const auto placed = place_entry(position_, payload_bytes, false, rules_);
  if (!placed) return std::nullopt;
  const PlannedEntry& planned = *placed;
  if (planned.pad_bytes > 0) [[unlikely]]
    write_pad(planned);
  if (planned.bytes > kSmallBytes) {
    write_in_parts(planned, sequence, prefix, payload);
    return move_tail(planned);
  }
  if (write_as_frame(planned, sequence, prefix, payload)) return move_tail(planned);
  alignas(persist::kLineBytes) std::byte entry[kSmallBytes];
  std::copy(prefix.begin(), prefix.end(), entry + sizeof(EntryHeader));
  std::copy(payload.begin(), payload.end(), entry + sizeof(EntryHeader) + prefix.size());
  seal_entry(entry, planned, position_, payload_bytes, sequence);
  memory_->write_fresh_part(place_of(planned), entry, planned.bytes);
  return move_tail(planned);
}

Result<uint64_t> Ring::append_in(uint64_t sequence, std::span<std::byte> scratch,
                                 uint64_t payload_bytes) {
  PMSTORE_TRY(const PlannedEntry planned, plan(payload_bytes));
  seal_entry(scratch, planned, position_, payload_bytes, sequence);
  write_pad(planned);
  memory_->write(data_at(planned.lsn), scratch.data(), planned.bytes);
  return move_tail(planned);
}

}  // namespace pmstore::log
