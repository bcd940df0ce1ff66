#include "tests/crash/ring_content.h"

#include <fmt/format.h>

#include "base/checksum.h"
#include "base/random.h"

namespace pmstore::crash {
namespace {

constexpr uint64_t kWorkSequence = 1 << 20;
constexpr uint64_t kDamagedRing = 1;

}  // namespace

void RingContent::append(uint64_t sequence, std::span<const std::byte> payload) {
  entries.push_back({sequence, base::checksum64(payload, sequence), payload.size()});
}

uint64_t RingContent::digest() const {
  if (!ring) return kNothing;
  if (damaged) return kDamagedRing;
  uint64_t hash = base::mix64(owner ^ base::mix64(expired_below_sequence));
  for (const Entry& entry : entries) hash = base::mix64(hash ^ entry.checksum) + entry.sequence;
  return hash;
}

std::string RingContent::text() const {
  if (!ring) return "no ring";
  if (damaged) return "a damaged ring";
  std::string text = fmt::format("owner {}, expired below {}", owner, expired_below_sequence);
  text += entries.empty() ? ", no entries" : ", entries";
  for (const Entry& entry : entries) text += fmt::format(" {}({})", entry.sequence, entry.bytes);
  return text;
}

std::vector<std::byte> ring_payload(uint64_t sequence, size_t bytes) {
  std::vector<std::byte> payload(bytes);
  for (size_t i = 0; i < bytes; ++i) payload[i] = static_cast<std::byte>(sequence * 7 + i % 251);
  return payload;
}

Result<RingContent> read_ring(persist::Memory& memory, std::optional<log::Ring>& ring) {
  auto opened = log::Ring::open(memory, 0, kRingBytes, kRingSalt);
  if (!opened) {
    if (opened.code() == ErrorCode::kBadPool) return RingContent{};
    return opened.error();
  }
  ring.emplace(std::move(*opened));
  RingContent content;
  content.ring = true;
  content.owner = ring->owner();
  content.expired_below_sequence = ring->expired_below_sequence();
  const Status walked = ring->walk(
      [&](const log::EntryView& entry) { content.append(entry.sequence, entry.payload); });
  if (!walked && walked.code() != ErrorCode::kBadPool) return walked.error();
  content.damaged = !walked;
  return content;
}

Result<uint64_t> RestartedRing::recover() {
  PMSTORE_TRY(content_, read_ring(memory_, ring_));
  if (ring_ && !content_.damaged) {
    PMSTORE_TRY_STATUS(ring_->make_walked_durable());
  }
  return content_.digest();
}

Result<uint64_t> RestartedRing::work() {
  if (content_.damaged) return content_.digest();
  if (!ring_) {
    PMSTORE_TRY(log::Ring made, log::Ring::format(memory_, 0, kRingBytes, kRingSalt));
    ring_.emplace(std::move(made));
    content_ = RingContent{};
    content_.ring = true;
    return content_.digest();
  }
  PMSTORE_TRY_STATUS(ring_->take_over(ring_->owner()));
  const auto payload = ring_payload(kWorkSequence, kRingWorkBytes);
  const auto lsn = ring_->append(kWorkSequence, payload);
  if (!lsn && lsn.code() != ErrorCode::kBackPressure) return lsn.error();
  if (lsn) content_.append(kWorkSequence, payload);
  PMSTORE_TRY([[maybe_unused]] auto durable, memory_.drain());
  return content_.digest();
}

}  // namespace pmstore::crash
