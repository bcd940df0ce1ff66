// LogAudit: checks that a log holds every acknowledged entry. Payloads are made for this check:
// each names its position in its writer's stream, and the position determines the rest of the
// payload.
//
// Threads: one. Plain memory: 8 bytes for each entry that is expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "log/log_reader.h"

namespace pmstore::tools {

// Never 0. `stream`: a writer, below 2^23; `number` counts its entries, below 2^40.
constexpr uint64_t log_tag(uint64_t stream, uint64_t number) { return (stream + 1) << 40 | number; }
inline constexpr size_t kLogTagBytes = sizeof(uint64_t);

// The bytes of every payload of one run.
class LogPayloads {
 public:
  // All of `bytes`, at least kLogTagBytes.
  LogPayloads(size_t bytes, uint64_t seed);

  size_t bytes() const { return bytes_; }
  void fill(std::span<std::byte> payload, uint64_t tag) const;
  bool is(std::span<const std::byte> payload, uint64_t tag) const;

 private:
  const std::byte* rest_of(uint64_t tag) const;
  size_t bytes_;
  std::vector<std::byte> pattern_;
};

struct LogAuditResult {
  uint64_t acknowledged = 0;
  uint64_t read = 0;
  uint64_t unacknowledged = 0;  // there, though no append said so: it had failed or was cut short
  uint64_t missing = 0;         // acknowledged, and not there
  uint64_t changed = 0;         // there, with other bytes
  uint64_t out_of_order = 0;    // with another index than the one before it asks for
  // The bytes that the entries read take in the log.
  uint64_t payload_bytes = 0;
  uint64_t header_bytes = 0;
  uint64_t padding_bytes = 0;  // behind payloads, and pads between entries
  std::string first_problem;

  bool ok() const { return missing + changed + out_of_order == 0; }
  LogAuditResult& operator+=(const LogAuditResult& other);
};

// Of one log, from an entry on: expect() what was acknowledged, see() what a reader gives, one
// after the other, finish().
class LogAudit {
 public:
  // `first_index`: of the next entry that is read.
  LogAudit(const LogPayloads& payloads, uint64_t first_index)
      : payloads_(payloads), first_index_(first_index), next_index_(first_index) {}

  void expect(uint64_t index, uint64_t tag);
  void see(const log::LogEntry& entry);
  // Counts the expected entries that were not seen.
  LogAuditResult finish();
  uint64_t next_index() const { return next_index_; }

 private:
  void problem(const std::string& text);
  const LogPayloads& payloads_;
  uint64_t first_index_;
  uint64_t next_index_;
  uint64_t next_lsn_ = UINT64_MAX;
  std::vector<uint64_t> expected_;  // tags from first_index_ on; 0: none
  LogAuditResult result_;
};

}  // namespace pmstore::tools
