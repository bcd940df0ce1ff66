#include "tests/scenario/fs/model/model_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

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

class Run {
 public:
  Run(const std::string& pool_path, RunCounts& counts) : real_(pool_path), counts_(counts) {}

  // What is wrong; empty: nothing.
  std::string step(const Operation& operation) {
    ++now_;
    ++counts_.operations;
    if (operation.kind == Kind::kCompare) return compare();
    if (operation.kind == Kind::kCrash) {
      ++counts_.crashes;
      real_.restart(operation.flag);
      reference_.apply(operation, now_);
      return compare();
    }
    if (operation.interrupt != 0) return interrupted(operation);
    const Outcome found = *real_.apply(operation, now_);
    return compare_outcomes(operation, found);
  }
  std::string compare() {
    const std::string wrong = real_.check();
    if (!wrong.empty()) return "check: " + wrong;
    const std::string expected = reference_.dump();
    const std::string found = real_.dump();
    return expected == found ? std::string() : first_difference(expected, found);
  }

 private:
  std::string compare_outcomes(const Operation& operation, const Outcome& found) {
    // The reference has no bound on space.
    if (found.error == ENOSPC) return {};
    const Outcome expected = reference_.apply(operation, now_);
    if (expected.error == 0) ++counts_.succeeded;
    if (expected == found) return {};
    return fmt::format("expected {}\n   found {}", shown(expected), shown(found));
  }

  // The call has happened as a whole or not at all.
  std::string interrupted(const Operation& operation) {
    ReferenceFs before = reference_.clone();
    const std::optional<Outcome> found = real_.apply(operation, now_);
    if (found) {
      // It was faster.
      return compare_outcomes(operation, *found);
    }
    ++counts_.crashes;
    ++counts_.interrupted;
    real_.restart(true);
    before.close_all();
    reference_.apply(operation, now_);
    reference_.close_all();
    const std::string wrong = real_.check();
    if (!wrong.empty()) return "check behind an interrupted call: " + wrong;
    const std::string state = real_.dump();
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

  NamespaceSide real_;
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

std::optional<Difference> run_sequence(const std::vector<Operation>& sequence,
                                       const std::string& pool_path, RunCounts& counts) {
  Run run(pool_path, counts);
  for (size_t i = 0; i < sequence.size(); ++i) {
    std::string what = run.step(sequence[i]);
    if (what.empty() && (i + 1) % kCompareEvery == 0) what = run.compare();
    if (!what.empty()) return Difference{i, std::move(what)};
  }
  std::string what = run.compare();
  if (!what.empty()) return Difference{sequence.size() - 1, std::move(what)};
  return std::nullopt;
}

std::vector<Operation> shrink(std::vector<Operation> sequence, const std::string& pool_path) {
  RunCounts ignored;
  const auto failing_part = [&](const std::vector<Operation>& part) {
    return !part.empty() ? run_sequence(part, pool_path, ignored) : std::nullopt;
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
