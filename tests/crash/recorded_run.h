// RecordedRun: one run of a scenario, recorded, with its oracle: what may be found after a power
// cut. Restarted: a process that starts on what a power cut has left.
//
// What is found is compared as a digest: a number that stands for the whole content (ring: owner,
// entries with their payloads, and so on). The explorer (explorer.h) knows nothing else of it.
// Threads: one. A RecordedRun is the same for the same seed, on every host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/random.h"
#include "base/result.h"
#include "model/crash_trace.h"
#include "persist/memory.h"

namespace pmstore::crash {

// The digest of a memory in which nothing was made yet. A start that finds it has lost no promise.
inline constexpr uint64_t kNothing = 0;

class Restarted {
 public:
  virtual ~Restarted() = default;
  // Its persistent memory; of several machines, each one's part of it.
  virtual std::vector<persist::Memory*> memories() = 0;
  // Starts after a crash; the first call. The content that it found is durable on return. An error
  // is a finding: recovery must work in every state of these runs.
  virtual Result<uint64_t> recover() = 0;
  // After recover(): a number that every start raises, durably; 0: it has none.
  virtual uint64_t start_number() const { return 0; }
  // Goes on working. Gives the digest of what must be found from then on.
  virtual Result<uint64_t> work() = 0;
};

class RecordedRun {
 public:
  explicit RecordedRun(std::string scenario, uint64_t seed)
      : scenario_(std::move(scenario)), seed_(seed) {}
  virtual ~RecordedRun() = default;
  RecordedRun(const RecordedRun&) = delete;
  RecordedRun& operator=(const RecordedRun&) = delete;

  const std::string& scenario() const { return scenario_; }
  uint64_t seed() const { return seed_; }
  const model::Trace& trace() const { return trace_; }
  // The contents that a start may find after a power cut behind so many marks.
  std::span<const uint64_t> allowed(size_t marks) const { return allowed_.at(marks); }
  size_t marks() const { return allowed_.size() - 1; }
  // For people.
  std::string text(uint64_t digest) const {
    const auto found = texts_.find(digest);
    return found == texts_.end() ? "a content that there never was" : found->second;
  }
  // Images at an event where they are too many for all.
  virtual uint64_t samples() const { return 512; }
  // More combinations than so many are too many.
  virtual uint64_t most_exhaustive() const { return UINT64_MAX; }
  // Images at an event of a second run.
  virtual uint64_t inner_samples() const { return UINT64_MAX; }
  // Before one of so many events the explorer lets the process alone die.
  virtual uint64_t death_every() const { return 1; }
  // A process opens this memory, which is borrowed; it stores nothing yet.
  virtual Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const = 0;

 protected:
  // The script calls this while it records: the contents that a power cut may leave from here to
  // the next mark.
  void allow(std::vector<uint64_t> digests) { allowed_.push_back(std::move(digests)); }
  void describe(uint64_t digest, std::string text) { texts_.try_emplace(digest, std::move(text)); }

  model::Trace trace_;

 private:
  std::string scenario_;
  uint64_t seed_;
  std::vector<std::vector<uint64_t>> allowed_;  // by marks
  std::unordered_map<uint64_t, std::string> texts_;
};

struct Scenario {
  std::string name;
  std::string about;  // one line
  std::function<std::unique_ptr<RecordedRun>(uint64_t seed)> make;
  bool for_mutants = true;  // false: takes too long for crash_mutants
  // Whether crash_mutants also tries a death of the process before each event.
  bool deaths_for_mutants = true;
};
const std::vector<Scenario>& scenarios();
// nullptr: there is none.
const Scenario* find_scenario(const std::string& name);

}  // namespace pmstore::crash
