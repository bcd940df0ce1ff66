// Yardstick: what a remote persistent write costs through the library: persist/'s RemoteWriter on
// the verbs provider, into an extent of a pool on device DAX. The same options and the same lines
// as the bare program verbs_persist.cc, which tests/testbed/persist_scenarios compares it with.
//
// Initiator and target are one process, on a connection of the device to itself.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fabric/device.h"
#include "persist/pool.h"
#include "persist/remote_writer.h"

namespace pmstore::persist {
namespace {

struct Options {
  std::string dax;
  uint32_t bytes = 64;
  uint32_t ops = 1000;
  uint32_t warmup = 100;
  uint32_t window = 1024;
  std::string strategy = "all";
};

[[noreturn]] void fail(const std::string& what) {
  fmt::print(stderr, "library_persist_yardstick: {}\n", what);
  std::exit(1);
}

template <typename T>
T must(Result<T> result) {
  if (!result) fail(result.error().to_string());
  return std::move(*result);
}

struct Timed {
  WriteStrategy strategy;
  std::unique_ptr<RemoteWriter> writer;
  std::vector<double> us;
};

// In turns, so that a slow moment of the machine is not charged to one strategy.
Task<void> measure(const Options& options, std::vector<Timed>& all, std::span<std::byte> source,
                   const fabric::MemoryRegion& source_region, const std::byte* target) {
  for (uint32_t i = 0; i < options.warmup + options.ops; ++i) {
    for (Timed& timed : all) {
      source[0] = static_cast<std::byte>(i + static_cast<uint32_t>(timed.strategy));
      const uint64_t offset = uint64_t{i % options.window} * options.bytes;
      const auto begin = std::chrono::steady_clock::now();
      const RemotePiece pieces[] = {{{source.data(), options.bytes, &source_region}, offset}};
      const std::span<const RemotePiece> whole(pieces);
      Result<Persisted> durable = co_await timed.writer->write(whole);
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - begin;
      if (!durable) fail(durable.error().to_string());
      const volatile std::byte& landed = target[offset];
      if (landed != source[0]) fail("target memory: a write that completed is not there");
      if (i >= options.warmup) timed.us.push_back(took.count());
    }
  }
}

double percentile(const std::vector<double>& sorted, double fraction) {
  return sorted[static_cast<size_t>(fraction * static_cast<double>(sorted.size() - 1) + 0.5)];
}

void run(const Options& options) {
  base::RealClock clock;
  base::Executor executor(clock);
  auto pool = must(Pool::create(options.dax, 0, {}, true));
  const Extent extent =
      must(pool->allocate_extent(ExtentKind::kRecords, uint64_t{options.window} * options.bytes));
  auto device = must(fabric::open_device(fabric::Scheme::kVerbs, executor));
  auto target =
      must(device->register_memory(pool->memory().mapping().subspan(extent.offset, extent.bytes),
                                   fabric::Access::kRemoteRead | fabric::Access::kRemoteWrite));
  std::vector<std::byte> source(options.bytes, std::byte{0x5a});
  auto source_region = must(device->register_memory(source, fabric::Access::kLocal));
  auto connection = must(executor.run(device->loopback()));
  const PersistCapability server{pool->memory().domain(), WriteLanding::kLastLevelCache, false};

  std::vector<Timed> all;
  for (auto strategy :
       {WriteStrategy::kNaive, WriteStrategy::kOutstanding, WriteStrategy::kDoorbell}) {
    if (options.strategy != "all" && options.strategy != strategy_name(strategy)) continue;
    auto writer = must(RemoteWriter::create(*device, *connection, nullptr, target->remote(), server,
                                            {.strategy = strategy}));
    all.push_back({strategy, std::move(writer), {}});
  }
  executor.run(measure(options, all, source, *source_region, pool->memory().at(extent.offset)));
  for (Timed& timed : all) {
    std::sort(timed.us.begin(), timed.us.end());
    fmt::print("{{\"strategy\": \"{}\", \"p50_us\": {:.2f}, \"p99_us\": {:.2f}, \"ops\": {}}}\n",
               strategy_name(timed.strategy), percentile(timed.us, 0.50),
               percentile(timed.us, 0.99), options.ops);
  }
}

}  // namespace
}  // namespace pmstore::persist

int main(int argc, char** argv) {
  pmstore::persist::Options options;
  CLI::App app(
      "Measures remote persistent writes through the library, over one loopback connection, and\n"
      "prints one JSON object per strategy. Overwrites the device with a new pool.\n"
      "example: library_persist_yardstick --dax /dev/dax0.0 --ops 1000");
  app.add_option("--dax", options.dax, "target memory, a device DAX")
      ->envname("PMSTORE_DAX")
      ->required();
  app.add_option("--bytes", options.bytes, "bytes per write")->check(CLI::Range(1, 1 << 20));
  app.add_option("--ops", options.ops, "operations measured per strategy")
      ->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "operations before that");
  app.add_option("--window", options.window, "slots that the writes go round")
      ->check(CLI::PositiveNumber);
  app.add_option("--strategy", options.strategy, "naive, outstanding, doorbell or all")
      ->check(CLI::IsMember({"naive", "outstanding", "doorbell", "all"}));
  CLI11_PARSE(app, argc, argv);
  pmstore::persist::run(options);
  return 0;
}
