#include "tests/crash/explorer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "model/crash_recorder.h"

namespace pmstore::crash {
namespace {

using model::CrashImage;
using model::CrashRecorder;
using model::CrashStates;
using model::Trace;

constexpr unsigned kMostDepth = 2;

void watch(CrashImage& image, const std::vector<persist::Memory*>& memories) {
  for (persist::Memory* const memory : memories) image.watch(*memory);
}

}  // namespace

Explorer::Explorer(const ExplorerOptions& options) : options_(options), random_(options.seed) {
  PMSTORE_CHECK(options_.share < options_.shares, "another share would explore nothing");
  contents_.reserve(1 << 16);
  tried_.reserve(1 << 16);
}

std::string Explorer::current() const {
  if (run_ == nullptr) return "none";
  StateId id{run_->scenario(), run_->seed(), cuts_};
  if (showing_ != nullptr) {
    id.cuts.push_back({showing_->events_done(), false, showing_->choice()});
  }
  return id.text();
}

bool Explorer::found(std::string what) {
  report_.findings.push_back({current(), std::move(what)});
  return report_.findings.size() < options_.most_failures;
}

const std::vector<uint64_t>& Explorer::right(const Level& level) const {
  return level.answers.at(level.states.marks());
}

bool Explorer::explore(const RecordedRun& run, const Trace& trace) {
  run_ = &run;
  ++report_.runs;
  Answers answers;
  for (size_t marks = 0; marks <= run.marks(); ++marks) {
    const auto allowed = run.allowed(marks);
    answers.emplace_back(allowed.begin(), allowed.end());
  }
  spread_deaths(run, trace.events.size());
  CrashStates states(trace);
  states.step_to(std::min(options_.first_event, trace.events.size()));
  const bool go_on = explore_level({states, trace.events.size(), answers, 0,
                                    std::min(run.most_exhaustive(), options_.per_point),
                                    std::min(run.samples(), options_.most_samples)});
  run_ = nullptr;
  return go_on;
}

bool Explorer::explore_level(const Level& level) {
  do {
    if (!in_share(level)) continue;
    if (!explore_point(level)) return false;
    if (level.depth == 0 && dies_here(level) && !process_dies(level)) return false;
  } while (level.states.step());
  return true;
}

// What follows a cut or a death belongs to the same share.
bool Explorer::in_share(const Level& level) const {
  if (level.depth > 0) return true;
  return level.states.events_done() / kSharedEvents % options_.shares == options_.share;
}

// A run that takes long has deaths at some events only, other runs of its scenario at others.
void Explorer::spread_deaths(const RecordedRun& run, size_t events) {
  death_every_ = run.death_every();
  death_turn_ = run.seed();
  if (options_.most_deaths) {
    death_every_ = events / std::max<uint64_t>(*options_.most_deaths, 1) + 1;
    death_turn_ = options_.draw;
  }
  PMSTORE_CHECK(death_every_ > 0, "some events have a death before them");
}

bool Explorer::dies_here(const Level& level) const {
  const uint64_t turn = level.states.events_done() + death_turn_;
  return options_.process_deaths && turn % death_every_ == 0;
}

// A content is tried once for each set of right answers.
bool Explorer::is_new(const Level& level) {
  ++report_.explored;
  const uint64_t content = level.states.image_hash();
  report_.distinct += contents_.insert(content).second ? 1 : 0;
  uint64_t key = content;
  for (const uint64_t answer : right(level)) key = base::mix64(key ^ answer);
  return tried_.insert(key).second;
}

bool Explorer::explore_point(const Level& level) {
  ++report_.points;
  // Lived through again only when all images of this moment have been shown.
  std::vector<std::pair<Cut, Second>> seconds;
  const auto check = [&](CrashImage& image) {
    showing_ = &level.states;
    const uint64_t every = options_.inner_every << (level.depth * 3);
    const bool again = level.depth < kMostDepth && level.states.image_hash() % every == 0;
    Second second;
    const uint64_t least = level.states.marks() > 0 ? level.start_number : 0;
    auto wrong = try_image(image, right(level), least, again ? &second : nullptr);
    if (wrong && !found(std::move(*wrong))) return false;
    if (again && !wrong) {
      second.hash = level.states.image_hash();
      seconds.emplace_back(Cut{level.states.events_done(), false, level.states.choice()},
                           std::move(second));
    }
    return true;
  };
  const bool go_on = level.states.visit(level.per_point, level.samples, random_, check,
                                        [&] { return is_new(level); });
  showing_ = nullptr;
  if (!go_on) return false;
  for (auto& [cut, second] : seconds) {
    ++report_.second_runs;
    cuts_.push_back(std::move(cut));
    CrashStates states(second.trace, second.hash);
    const uint64_t inner = std::min(run_->inner_samples(), options_.per_inner_point);
    const bool more = explore_level({states, second.trace.events.size(), second.answers,
                                     level.depth + 1, inner, inner, second.start_number});
    cuts_.pop_back();
    if (!more) return false;
  }
  return true;
}

// The next process sees all stores; only the durable ones survive the power cut that follows.
bool Explorer::process_dies(const Level& level) {
  ++report_.process_deaths;
  Second second;
  std::optional<std::string> wrong;
  cuts_.push_back({level.states.events_done(), true, {}});
  level.states.show(level.states.all(), [&](CrashImage& image) {
    wrong = try_image(image, right(level), 0, &second);
    return true;
  });
  bool go_on = !wrong || found("after the death of the process: " + *wrong);
  if (go_on && !wrong) {
    // Until the restart has reported what it found, every content that was allowed before is
    // allowed.
    second.answers.front() = right(level);
    CrashStates states = level.states;
    states.process_dies();
    states.follow(second.trace);
    const uint64_t inner = std::min(run_->inner_samples(), options_.per_inner_point);
    go_on = explore_level({states, second.trace.events.size(), second.answers, level.depth + 1,
                           inner, inner, second.start_number});
  }
  cuts_.pop_back();
  return go_on;
}

// Starts on the image and gives the error, if any. If `second` is given, records the start and the
// work after it there.
std::optional<std::string> Explorer::try_image(CrashImage& image,
                                               const std::vector<uint64_t>& right, uint64_t least,
                                               Second* second) {
  ++report_.recovered;
  auto process = run_->restart(image.bytes());
  if (!process) return "start: " + process.error().to_string();
  const std::vector<persist::Memory*> memories = (*process)->memories();
  watch(image, memories);
  std::optional<CrashRecorder> recorder;
  if (second != nullptr && memories.size() == 1) recorder.emplace(*memories.front(), &image);
  if (second != nullptr && memories.size() > 1) recorder.emplace(memories, image.bytes(), &image);
  const auto found = (*process)->recover();
  if (!found) return "recovery: " + found.error().to_string();
  if (std::find(right.begin(), right.end(), *found) == right.end()) {
    std::string wanted;
    for (const uint64_t digest : right) wanted += "; expected " + run_->text(digest);
    return "found " + run_->text(*found) + wanted;
  }
  const uint64_t start_number = (*process)->start_number();
  // 0: it keeps none (yet). What opened the pool is not recorded, so an extent that the start
  // before has made durable by that may be gone here.
  if (least != 0 && start_number != 0 && start_number <= least && *found != kNothing) {
    return fmt::format("a start has the number {}, and one had {} before", start_number, least);
  }
  if (recorder) recorder->mark();
  const auto worked = (*process)->work();
  if (!worked) return "work after recovery: " + worked.error().to_string();
  if (recorder) {
    recorder->mark();
    second->trace = recorder->take();
    second->start_number = start_number;
    // An empty memory is no promise.
    const auto kept = *found == kNothing ? right : std::vector<uint64_t>{*found};
    second->answers = {kept, kept, {*worked}};
    second->answers[1].push_back(*worked);
  }
  process->reset();
  auto again = run_->restart(image.bytes());
  if (!again) return "second start: " + again.error().to_string();
  watch(image, (*again)->memories());
  const auto reread = (*again)->recover();
  if (!reread) return "second recovery: " + reread.error().to_string();
  if (*reread != *worked) {
    return "the work after recovery is not found again: " + run_->text(*reread);
  }
  if (start_number != 0 && (*again)->start_number() <= start_number) {
    return fmt::format("two starts have the number {}", start_number);
  }
  return std::nullopt;
}

Result<std::optional<std::string>> Explorer::replay(const RecordedRun& run, const Trace& trace,
                                                    const StateId& id, std::string& narrative) {
  run_ = &run;
  const auto no_such = [&](const std::string& why) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{} is no state: {}", id.text(), why));
  };
  Answers answers;
  for (size_t marks = 0; marks <= run.marks(); ++marks) {
    const auto allowed = run.allowed(marks);
    answers.emplace_back(allowed.begin(), allowed.end());
  }
  std::vector<std::unique_ptr<Trace>> traces;  // of the restarts
  auto states = std::make_unique<CrashStates>(trace);
  const Trace* events = &trace;
  std::optional<std::string> wrong;
  uint64_t started = 0;  // the number of the restart
  for (size_t i = 0; i < id.cuts.size(); ++i) {
    const Cut& cut = id.cuts[i];
    if (cut.event > events->events.size()) return no_such("there are fewer events");
    states->step_to(cut.event);
    const auto choice = cut.process_only ? states->all() : cut.choice;
    if (!states->is_valid(choice)) {
      return no_such(fmt::format("{} lines are in doubt there", states->lines_in_doubt()));
    }
    const auto& right = answers.at(states->marks());
    narrative += fmt::format("{} {}, after {} acknowledgements, {} lines in doubt, kept {}\n",
                             cut.process_only ? "the process dies before" : "power cut before",
                             events->describe(cut.event), states->marks(), states->lines_in_doubt(),
                             fmt::join(choice, " "));
    Second second;
    const uint64_t least = states->marks() > 0 ? started : 0;
    states->show(choice, [&](CrashImage& image) {
      wrong = try_image(image, right, least, &second);
      return true;
    });
    narrative += wrong ? "  " + *wrong + "\n"
                       : fmt::format("  found {}\n", run.text(second.answers.at(0).front()));
    if (wrong || i + 1 == id.cuts.size()) break;
    if (cut.process_only) second.answers.front() = right;
    answers = second.answers;
    started = second.start_number;
    traces.push_back(std::make_unique<Trace>(std::move(second.trace)));
    events = traces.back().get();
    if (cut.process_only) {
      states->process_dies();
      states->follow(*events);
    } else {
      states = std::make_unique<CrashStates>(*events);
    }
  }
  return wrong;
}

}  // namespace pmstore::crash
