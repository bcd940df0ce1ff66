// Explorer: cuts the power at every event of a recorded run, in every way that the memory allows,
// starts again on the memory that is left, and asks the oracle of the run. docs/crash.md describes
// the states.
//
// At each event: all combinations of surviving stores when there are at most `per_point`; when
// there are more but not so many subsets of lines, all of these and a sample of the others; else a
// sample (model/crash_states.h). Each content of the memory is tried once per right answer. For a
// part of the states the start and the work after it are recorded and cut as well. Before every
// event the process alone may die, and the power may fail during its restart. Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/random.h"
#include "model/crash_states.h"
#include "tests/crash/recorded_run.h"
#include "tests/crash/state_id.h"

namespace pmstore::crash {

struct ExplorerOptions {
  uint64_t seed = 1;                   // of the samples
  uint64_t per_point = 1 << 10;        // combinations at each event
  uint64_t per_inner_point = 12;       // the same in a second run
  uint64_t inner_every = 256;          // of so many contents, one is lived through again
  uint64_t most_samples = UINT64_MAX;  // at an event, whatever the run says
  bool process_deaths = true;
  // Instead of those that the run says: so many deaths, evenly spread over its events; which ones,
  // the number `draw` says.
  std::optional<uint64_t> most_deaths;
  uint64_t draw = 0;
  size_t most_failures = 10;
  size_t first_event = 0;  // power cuts before it are skipped
  // Power cuts and deaths at one of so many shares of a run's events only. A share is every so
  // many'th piece of kSharedEvents: states of neighbouring events are mostly the same.
  uint64_t share = 0, shares = 1;
};

inline constexpr uint64_t kSharedEvents = 4;

struct Finding {
  std::string id;
  std::string what;
};

struct ExplorerReport {
  uint64_t runs = 0;
  uint64_t points = 0;     // events at which the power was cut
  uint64_t explored = 0;   // states visited
  uint64_t distinct = 0;   // different contents of the memory among them
  uint64_t recovered = 0;  // starts on them
  uint64_t second_runs = 0;
  uint64_t process_deaths = 0;
  std::vector<Finding> findings;
};

class Explorer {
 public:
  explicit Explorer(const ExplorerOptions& options);

  // Explores one whole run; `trace` is the trace of the run or a mutant of it. False: there are
  // enough findings.
  bool explore(const RecordedRun& run, const model::Trace& trace);
  bool explore(const RecordedRun& run) { return explore(run, run.trace()); }

  // Makes the state `id` of this run once more. Gives the error of this state, or nothing;
  // `narrative` describes each step. InvalidArgument: there is no such state.
  Result<std::optional<std::string>> replay(const RecordedRun& run, const model::Trace& trace,
                                            const StateId& id, std::string& narrative);

  const ExplorerReport& report() const { return report_; }
  // The state that is being tried; for a handler of signals.
  std::string current() const;

 private:
  // The contents that may be found after so many marks of a trace.
  using Answers = std::vector<std::vector<uint64_t>>;
  // One run, or what a restart did.
  struct Level {
    model::CrashStates& states;
    size_t events;
    const Answers& answers;
    unsigned depth;
    uint64_t per_point;
    uint64_t samples;
    uint64_t start_number = 0;  // of the restart, known behind its first mark
  };
  struct Second {
    model::Trace trace;
    Answers answers;
    uint64_t hash = 0;          // of what it began with
    uint64_t start_number = 0;  // its own; those after it are higher
  };

  bool explore_level(const Level& level);
  bool in_share(const Level& level) const;
  bool explore_point(const Level& level);
  void spread_deaths(const RecordedRun& run, size_t events);
  bool dies_here(const Level& level) const;
  bool process_dies(const Level& level);
  bool is_new(const Level& level);
  bool found(std::string what);
  // `least`: the number that a start must be above.
  std::optional<std::string> try_image(model::CrashImage& image, const std::vector<uint64_t>& right,
                                       uint64_t least, Second* second);
  const std::vector<uint64_t>& right(const Level& level) const;

  ExplorerOptions options_;
  ExplorerReport report_;
  Random random_;
  const RecordedRun* run_ = nullptr;
  // Before one of so many events of the run the process dies: where the event's number and the turn
  // together are a multiple.
  uint64_t death_every_ = 1, death_turn_ = 0;
  std::vector<Cut> cuts_;                        // before the level that is explored
  const model::CrashStates* showing_ = nullptr;  // whose image is tried
  std::unordered_set<uint64_t> contents_;        // of the memory
  std::unordered_set<uint64_t> tried_;           // with their right answers
};

}  // namespace pmstore::crash
