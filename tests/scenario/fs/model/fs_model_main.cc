// Random operations of two programs on a namespace, compared with a reference file system.
//
// usage: fs_model_test [--operations N] [--seed FIRST] [--length N]
//
// Sequences of `length` operations, one seed each, until N operations are done. A sequence that
// fails is shrunk and printed, and the exit status is 1.
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/scenario/fs/model/model_run.h"
#include "tests/unit/persist/scratch.h"

int main(int argc, char** argv) {
  using namespace pmstore::fs::model;
  uint64_t operations = 3000;
  uint64_t seed = 1;
  uint64_t length = 1500;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (name == "--operations") {
      operations = value;
    } else if (name == "--seed") {
      seed = value;
    } else if (name == "--length" && value > 0) {
      length = value;
    } else {
      fmt::print(stderr, "fs_model_test: no such option: {}\n", name);
      return 2;
    }
  }
  const pmstore::persist::Scratch scratch;
  const std::string pool = scratch.path("pool");
  RunCounts counts;
  while (counts.operations < operations) {
    const auto sequence = random_sequence(seed, length);
    const auto difference = run_sequence(sequence, pool, counts);
    if (difference) {
      fmt::print("seed {}, operation {}: {}\n{}\nshrinking\n", seed, difference->at,
                 sequence[difference->at].to_string(), difference->what);
      const auto shortest = shrink(sequence, pool);
      for (const Operation& operation : shortest) fmt::print("  {}\n", operation.to_string());
      RunCounts again;
      const auto last = run_sequence(shortest, pool, again);
      fmt::print("{}\n", last ? last->what : "it does not fail any more");
      return 1;
    }
    ++seed;
  }
  fmt::print(
      "{} operations, {} without an error; {} crashes, {} within a call, of which {} "
      "happened; 0 differences\n",
      counts.operations, counts.succeeded, counts.crashes, counts.interrupted, counts.happened);
  return 0;
}
