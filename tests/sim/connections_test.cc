// What many connections cost: the published experiments on the RNIC's cache. They do not fit
// together (page sizes, registered memory, payloads and hosts differ, and capacity alone explains
// none of the drops), so each has a set of parameters of its own, fitted to it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "tests/sim/modelled_micro.h"

namespace pmstore::sim {
namespace {

using tools::MicroOp;
using tools::MicroPoint;

constexpr uint64_t kUs = 1000;

MicroMachine machine_with(const std::string& toml, uint32_t client_hosts) {
  MicroMachine machine{*model::named_parameters("optane-cx5"), client_hosts};
  const Status status = model::override_parameters_text(machine.parameters, toml, "experiment");
  PMSTORE_CHECK(status, "the experiment's parameters are known");
  return machine;
}

MicroPoint reads(uint32_t bytes, uint32_t connections, uint32_t window) {
  MicroPoint point;
  point.op = MicroOp::kRead;
  point.payload_bytes = bytes;
  point.range_bytes = kMicroRangeBytes;
  point.clients = connections;
  point.window = window;
  return point;
}

struct Generation {
  const char* name;
  double published_loss;
  double cache_bytes;
  double misses_at_once;
};

// One pair of hosts, 64 B READs anywhere in 20 GB of 2 MiB pages: as many pages of 4 GiB.
double loss_of(const Generation& generation) {
  const MicroMachine machine = machine_with(
      fmt::format("[rnic]\npage_bytes = 419430\ncache_bytes = {}\nmisses_at_once = {}\n",
                  generation.cache_bytes, generation.misses_at_once),
      1);
  const auto rate = [&](uint32_t connections) {
    MicroPoint point = reads(64, connections, 16);
    point.warmup_ns = 6000 * kUs;  // the slowest touch every page
    point.measured_ns = 600 * kUs;
    return run_modelled(machine, point).rate_m;
  };
  const double few = rate(8);
  const double many = rate(64);
  fmt::print("{}: 8 connections {:.1f} M/s, 64: {:.1f} M/s, lost {:.0f}% (published {:.0f}%)\n",
             generation.name, few, many, 100 * (1 - many / few), 100 * generation.published_loss);
  return 1 - many / few;
}

TEST(Connections, EachGenerationLosesWhatWasPublishedFrom8To64) {
  for (const Generation& generation :
       {Generation{"CX3", 0.83, 160'000, 1}, Generation{"CX4", 0.42, 120'000, 7},
        Generation{"CX5", 0.32, 130'000, 8}}) {
    EXPECT_NEAR(loss_of(generation), generation.published_loss, 0.1) << generation.name;
  }
}

TEST(Connections, SmallReadsPeakBetween176And704QueuePairsAndThenDrop) {
  const MicroMachine machine = machine_with("[rnic]\ncache_bytes = 400000\n", 11);
  std::map<uint32_t, double> rate;
  for (const uint32_t queue_pairs : {22u, 88u, 176u, 352u, 704u, 1408u}) {
    MicroPoint point = reads(16, queue_pairs, 1);
    point.warmup_ns = 300 * kUs;
    point.measured_ns = 300 * kUs;
    rate[queue_pairs] = run_modelled(machine, point).rate_m;
    fmt::print("{} queue pairs: {:.1f} M/s\n", queue_pairs, rate[queue_pairs]);
  }
  const double peak = std::max({rate[176], rate[352], rate[704]});
  EXPECT_GT(peak, rate[22]);
  EXPECT_GE(peak, rate[88]);
  EXPECT_GT(rate[704], 0.9 * peak);
  EXPECT_LT(rate[1408], 0.6 * peak);
}

}  // namespace
}  // namespace pmstore::sim
