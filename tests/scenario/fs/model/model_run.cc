#include "tests/scenario/fs/model/model_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "tests/scenario/fs/model/clients_side.h"
#include "tests/scenario/fs/model/namespace_side.h"
#include "tests/scenario/fs/model/reference_fs.h"

namespace pmstore::fs::model {
namespace {

constexpr size_t kCompareEvery = 200;

std::string shown(const Outcome& outcome) {
  return outcome.error != 0
             ? errno_name(outcome.error)
             : fmt::format("'{}' ({} bytes)", outcome.text.substr(0, 200), outcome.text.size());
}

// The first lines that differ.
std::string first_difference(const std::string& expected, const std::string& found) {
  size_t line = 0;
  const size_t most = std::min(expected.size(), found.size());
  for (size_t i = 0; i < most && expected[i] == found[i]; ++i) {
    if (expected[i] == '\n') line = i + 1;
  }
  const auto rest = [line](const std::string& text) {
    return line < text.size() ? text.substr(line, text.find('\n', line) - line) : "(the end)";
  };
  return fmt::format("expected {}\n   found {}", rest(expected), rest(found));
}

std::unique_ptr<Side> make_side(Setting setting, const std::string& pool_path) {
  if (setting.clients) return std::make_unique<ClientsSide>(setting);
  return std::make_unique<NamespaceSide>(pool_path);
}

// A call that was sent again to a server that has forgotten its client finds what its first try may
// have done, and takes it for that (docs/files-service.md): what it finds here was there before.
bool is_taken_for_done(const Operation& operation, const Outcome& expected, const Outcome& found) {
  if (found.error != 0) return false;
  switch (operation.kind) {
    case Kind::kUnlink:
    case Kind::kRemoveDirectory:
    case Kind::kRename: return expected.error == ENOENT;
    case Kind::kLink:
    case Kind::kMakeSymlink: return expected.error == EEXIST;
    default: return false;
  }
}

class Run {
 public:
  Run(Setting setting, const std::string& pool_path, RunCounts& counts)
      : setting_(setting),
        real_(make_side(setting, pool_path)),
        reference_(setting.clients),
        counts_(counts) {}

  // What is wrong; empty: nothing.
  std::string step(Operation operation) {
    ++now_;
    // A write in place may be there in parts, behind a death of its program.
    const bool as_a_whole = operation.kind != Kind::kWrite || (setting_.clients && setting_.atomic);
    if (!as_a_whole && (!setting_.clients || operation.interrupt % 2 == 1)) operation.interrupt = 0;
    ++counts_.operations;
    if (operation.kind == Kind::kCompare) return compare();
    if (operation.kind == Kind::kCrash) {
      ++counts_.crashes;
      real_->crash(operation);
      reference_.apply(operation, now_);
      return compare();
    }
    if (operation.interrupt != 0) return interrupted(operation);
    const Outcome found = *real_->apply(operation, now_);
    return compare_outcomes(operation, found);
  }
  std::string compare() {
    const std::string wrong = real_->check();
    if (!wrong.empty()) return "check: " + wrong;
    const std::string expected = reference_.dump();
    const std::string found = real_->dump();
    return expected == found ? std::string() : first_difference(expected, found);
  }
  std::string finish() {
    std::string what = compare();
    return what.empty() ? real_->finish() : what;
  }

 private:
  std::string compare_outcomes(const Operation& operation, const Outcome& found) {
    // The reference has no bound on space.
    if (found.error == ENOSPC) {
      ++counts_.without_space;
      return {};
    }
    const Outcome expected = reference_.apply(operation, now_);
    if (expected.error == 0) ++counts_.succeeded;
    if (expected == found) return {};
    return different(expected, found);
  }
  static std::string different(const Outcome& expected, const Outcome& found) {
    return fmt::format("expected {}\n   found {}", shown(expected), shown(found));
  }

  // The call has happened as a whole or not at all.
  std::string interrupted(const Operation& operation) {
    ReferenceFs before = reference_.clone();
    const std::optional<Outcome> found = real_->apply(operation, now_);
    if (found) {
      // It was faster.
      if (!real_->crashed_within()) return compare_outcomes(operation, *found);
      ++counts_.survived;
      if (found->error == EIO) return in_doubt(operation, std::move(before));
      const Outcome expected = reference_.apply(operation, now_);
      if (found->error != ENOSPC && expected != *found &&
          !is_taken_for_done(operation, expected, *found)) {
        return different(expected, *found);
      }
      if (found->error == ENOSPC) reference_ = std::move(before);
      return compare();
    }
    ++counts_.crashes;
    ++counts_.interrupted;
    real_->restart();
    before.close_all();
    reference_.apply(operation, now_);
    reference_.close_all();
    return either(std::move(before));
  }

  // The server died, its client lives on and cannot know whether the call has happened.
  std::string in_doubt(const Operation& operation, ReferenceFs before) {
    ++counts_.in_doubt;
    reference_.apply(operation, now_);
    if (operation.kind == Kind::kMakeFile || operation.kind == Kind::kOpen) {
      before.close_slot(operation.slot);
      reference_.close_slot(operation.slot);
    }
    return either(std::move(before));
  }

  // All of the call, or nothing of it.
  std::string either(ReferenceFs before) {
    const std::string wrong = real_->check();
    if (!wrong.empty()) return "check behind an interrupted call: " + wrong;
    const std::string state = real_->dump();
    if (state == reference_.dump()) {
      ++counts_.happened;
      return {};
    }
    const std::string not_happened = before.dump();
    if (state == not_happened) {
      reference_ = std::move(before);
      return {};
    }
    return "half of an interrupted call:\n" + first_difference(not_happened, state);
  }

  const Setting setting_;
  std::unique_ptr<Side> real_;
  ReferenceFs reference_;
  RunCounts& counts_;
  uint64_t now_ = 0;
};

}  // namespace

std::vector<Operation> random_sequence(uint64_t seed, size_t length) {
  base::Random random(seed);
  std::vector<Operation> sequence;
  sequence.reserve(length);
  for (size_t i = 0; i < length; ++i) sequence.push_back(random_operation(random));
  return sequence;
}

std::optional<Difference> run_sequence(const std::vector<Operation>& sequence, Setting setting,
                                       const std::string& pool_path, RunCounts& counts) {
  Run run(setting, pool_path, counts);
  for (size_t i = 0; i < sequence.size(); ++i) {
    std::string what = run.step(sequence[i]);
    if (what.empty() && (i + 1) % kCompareEvery == 0) what = run.compare();
    if (!what.empty()) return Difference{i, std::move(what)};
  }
  std::string what = run.finish();
  if (!what.empty()) return Difference{sequence.size() - 1, std::move(what)};
  return std::nullopt;
}

std::vector<Operation> shrink(std::vector<Operation> sequence, Setting setting,
                              const std::string& pool_path) {
  RunCounts ignored;
  const auto failing_part = [&](const std::vector<Operation>& part) {
    return !part.empty() ? run_sequence(part, setting, pool_path, ignored) : std::nullopt;
  };
  if (const auto difference = failing_part(sequence)) sequence.resize(difference->at + 1);
  for (size_t piece = std::max<size_t>(1, sequence.size() / 2); piece > 0; piece /= 2) {
    for (size_t at = 0; at < sequence.size();) {
      std::vector<Operation> without = sequence;
      const size_t end = std::min(at + piece, sequence.size());
      without.erase(without.begin() + static_cast<ptrdiff_t>(at),
                    without.begin() + static_cast<ptrdiff_t>(end));
      if (const auto difference = failing_part(without)) {
        without.resize(difference->at + 1);
        sequence = std::move(without);
      } else {
        at += piece;
      }
    }
  }
  return sequence;
}

}  // namespace pmstore::fs::model
