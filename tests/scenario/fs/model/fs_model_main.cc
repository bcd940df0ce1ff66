// Random operations of two programs on a file system, compared with a reference file system.
//
// usage: fs_model_test [--through namespace|clients] [--operations N] [--seed FIRST] [--length N]
//                      [--keep FOLDER]
//        fs_model_test --replay FOLDER
//
// Sequences of `length` operations, one seed each, until N operations are done. A sequence that
// fails is shrunk, printed, and written to FOLDER (default: kept-sequences here), and the exit
// status is 1. --replay runs the sequences in FOLDER, which have failed once. `namespace` is the
// Namespace alone; `clients` are two FileSystem clients over a fabric, whose settings (sync,
// atomic writes, how writes become durable) change from seed to seed.
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/scenario/fs/model/kept_sequences.h"
#include "tests/scenario/fs/model/model_run.h"
#include "tests/unit/persist/scratch.h"

namespace pmstore::fs::model {
namespace {

struct Arguments {
  bool clients = false;
  uint64_t operations = 3000;
  uint64_t seed = 1;
  uint64_t length = 1500;
  std::string keep = "kept-sequences";
  std::string replay;
};

std::optional<Arguments> parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string_view text = i + 1 < argc ? argv[i + 1] : "";
    const uint64_t value = std::strtoull(std::string(text).c_str(), nullptr, 10);
    if (name == "--operations" && value > 0) {
      arguments.operations = value;
    } else if (name == "--seed" && value > 0) {
      arguments.seed = value;
    } else if (name == "--length" && value > 0) {
      arguments.length = value;
    } else if (name == "--through" && (text == "clients" || text == "namespace")) {
      arguments.clients = text == "clients";
    } else if (name == "--keep" && !text.empty()) {
      arguments.keep = text;
    } else if (name == "--replay" && !text.empty()) {
      arguments.replay = text;
    } else {
      fmt::print(stderr, "fs_model_test: {} {}: no such option; see the head of its source\n", name,
                 text);
      return std::nullopt;
    }
  }
  return arguments;
}

void print(const RunCounts& counts) {
  fmt::print(
      "{} operations, {} without an error; {} crashes, {} within a call, of which {} "
      "happened; {} calls lived on, {} of them in doubt; {} without space; 0 differences\n",
      counts.operations, counts.succeeded, counts.crashes, counts.interrupted, counts.happened,
      counts.survived, counts.in_doubt, counts.without_space);
}

int replay(const std::string& folder, const std::string& pool) {
  const auto kept = kept_in(folder);
  if (!kept) return 2;
  RunCounts counts;
  int status = 0;
  for (const KeptSequence& sequence : *kept) {
    const auto difference = run_sequence(sequence.operations, sequence.setting, pool, counts);
    if (!difference) continue;
    fmt::print("{}, operation {}: {}\n{}\n", sequence.name, difference->at + 1,
               sequence.operations[difference->at].to_string(), difference->what);
    status = 1;
  }
  if (status == 0) print(counts);
  return status;
}

int shrink_and_keep(const std::vector<Operation>& sequence, Setting setting, uint64_t seed,
                    const std::string& pool, const std::string& folder) {
  const auto shortest = shrink(sequence, setting, pool);
  fmt::print("{}\n", setting.to_string());
  for (const Operation& operation : shortest) fmt::print("  {}\n", operation.to_string());
  RunCounts again;
  const auto last = run_sequence(shortest, setting, pool, again);
  fmt::print("{}\n", last ? last->what : "it does not fail any more");
  const std::string name = fmt::format("{}-{}", setting.clients ? "clients" : "namespace", seed);
  const std::string path = keep(folder, {name, setting, shortest});
  fmt::print("{}\n", path.empty() ? "it cannot be written to " + folder : "kept: " + path);
  return 1;
}

int run_model(const Arguments& arguments, const std::string& pool) {
  RunCounts counts;
  for (uint64_t seed = arguments.seed; counts.operations < arguments.operations; ++seed) {
    const Setting setting = Setting::of_seed(arguments.clients, seed);
    const auto sequence = random_sequence(seed, arguments.length);
    const auto difference = run_sequence(sequence, setting, pool, counts);
    if (!difference) continue;
    fmt::print("seed {}, operation {}: {}\n{}\nshrinking\n", seed, difference->at,
               sequence[difference->at].to_string(), difference->what);
    return shrink_and_keep(sequence, setting, seed, pool, arguments.keep);
  }
  print(counts);
  return 0;
}

}  // namespace
}  // namespace pmstore::fs::model

int main(int argc, char** argv) {
  using namespace pmstore::fs::model;
  const auto arguments = parse(argc, argv);
  if (!arguments) return 2;
  const pmstore::persist::Scratch scratch;
  const std::string pool = scratch.path("pool");
  return arguments->replay.empty() ? run_model(*arguments, pool) : replay(arguments->replay, pool);
}
