#include "tools/bench/log_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "log/log_layout.h"
#include "log/ring_layout.h"

namespace pmstore::tools {
namespace {

constexpr size_t kPatternOffsets = 4096;
constexpr uint64_t kEntryOverhead = sizeof(log::EntryHeader) + sizeof(log::LogEntryPrefix);

}  // namespace

LogPayloads::LogPayloads(size_t bytes, uint64_t seed)
    : bytes_(bytes), pattern_(bytes + kPatternOffsets) {
  base::Random random(base::mix64(seed));
  for (std::byte& byte : pattern_) byte = static_cast<std::byte>(random.next());
}

const std::byte* LogPayloads::rest_of(uint64_t tag) const {
  return pattern_.data() + base::mix64(tag) % kPatternOffsets;
}

void LogPayloads::fill(std::span<std::byte> payload, uint64_t tag) const {
  std::memcpy(payload.data(), &tag, kLogTagBytes);
  std::memcpy(payload.data() + kLogTagBytes, rest_of(tag), bytes_ - kLogTagBytes);
}

bool LogPayloads::is(std::span<const std::byte> payload, uint64_t tag) const {
  return payload.size() == bytes_ && std::memcmp(payload.data(), &tag, kLogTagBytes) == 0 &&
         std::memcmp(payload.data() + kLogTagBytes, rest_of(tag), bytes_ - kLogTagBytes) == 0;
}

LogAuditResult& LogAuditResult::operator+=(const LogAuditResult& other) {
  acknowledged += other.acknowledged;
  read += other.read;
  unacknowledged += other.unacknowledged;
  missing += other.missing;
  changed += other.changed;
  out_of_order += other.out_of_order;
  payload_bytes += other.payload_bytes;
  header_bytes += other.header_bytes;
  padding_bytes += other.padding_bytes;
  if (first_problem.empty()) first_problem = other.first_problem;
  return *this;
}

void LogAudit::problem(const std::string& text) {
  if (result_.first_problem.empty()) result_.first_problem = text;
}

void LogAudit::expect(uint64_t index, uint64_t tag) {
  ++result_.acknowledged;
  if (index < first_index_) {
    ++result_.out_of_order;
    return problem(fmt::format("entry {} was acknowledged after a later one was read", index));
  }
  const size_t at = index - first_index_;
  if (at >= expected_.size()) expected_.resize(std::max(at + 1, 2 * expected_.size()), 0);
  if (expected_[at] != 0) {
    ++result_.out_of_order;
    return problem(fmt::format("index {} was acknowledged twice", index));
  }
  expected_[at] = tag;
}

void LogAudit::see(const log::LogEntry& entry) {
  ++result_.read;
  if (entry.index != next_index_) {
    ++result_.out_of_order;
    problem(fmt::format("entry {} was read where {} was next", entry.index, next_index_));
  }
  next_index_ = entry.index + 1;
  const uint64_t pad = next_lsn_ <= entry.lsn ? entry.lsn - next_lsn_ : 0;
  next_lsn_ = entry.next_lsn;
  result_.payload_bytes += entry.payload.size();
  result_.header_bytes += kEntryOverhead;
  result_.padding_bytes +=
      pad + (entry.next_lsn - entry.lsn) - kEntryOverhead - entry.payload.size();
  const size_t at = entry.index - first_index_;
  const uint64_t tag = at < expected_.size() ? expected_[at] : 0;
  if (tag == 0) {
    ++result_.unacknowledged;
    return;
  }
  expected_[at] = 0;
  if (payloads_.is(entry.payload, tag)) return;
  ++result_.changed;
  problem(
      fmt::format("entry {} at lsn {} has other bytes than were appended", entry.index, entry.lsn));
}

LogAuditResult LogAudit::finish() {
  for (size_t at = 0; at < expected_.size(); ++at) {
    if (expected_[at] == 0) continue;
    ++result_.missing;
    problem(fmt::format("entry {} was acknowledged and is not there", first_index_ + at));
  }
  expected_.clear();
  return result_;
}

}  // namespace pmstore::tools
