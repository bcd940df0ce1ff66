// The same seed gives the same run, to the last request, on every host and in every build. Golden:
// a change of one of these figures is a change of the model or of the code under test that sends
// other requests. Say why in the commit.
#include <gtest/gtest.h>

#include "tests/sim/modelled_micro.h"

namespace pmstore::sim {
namespace {

using persist::Rule;
using persist::Rules;

MicroFigures figures(tools::MicroSide side, uint64_t seed) {
  MicroMachine machine{*model::named_parameters("optane-cx5"), 2};
  machine.seed = seed;
  tools::MicroPoint point;
  point.side = side;
  point.medium = tools::MicroMedium::kNvm;
  point.payload_bytes = 48;
  point.rules = Rules::none().with(Rule::kH1);
  point.range_bytes = kMicroRangeBytes;
  point.clients = 4;
  point.server_threads = 2;
  point.seed = seed;
  point.warmup_ns = 50'000;
  point.measured_ns = 200'000;
  return run_modelled(machine, point);
}

TEST(ModelDeterminism, OneSidedFiguresAreGolden) {
  const MicroFigures f = figures(tools::MicroSide::kOneSided, 1);
  EXPECT_EQ(f.operations, 5494u);
  EXPECT_EQ(f.dimms.read_requests, 8975u);
  EXPECT_EQ(f.dimms.media_reads, 6389u);
  EXPECT_NEAR(f.mean_ns, 2336.2049, 0.001);
}

TEST(ModelDeterminism, TwoSidedFiguresAreGolden) {
  const MicroFigures f = figures(tools::MicroSide::kTwoSided, 1);
  EXPECT_EQ(f.operations, 1021u);
  EXPECT_EQ(f.dimms.read_requests, 1716u);
  EXPECT_EQ(f.dimms.media_reads, 1218u);
  EXPECT_NEAR(f.mean_ns, 12529.2066, 0.001);
}

TEST(ModelDeterminism, AnotherSeedIsAnotherRun) {
  EXPECT_NE(figures(tools::MicroSide::kOneSided, 1).dimms.read_requests,
            figures(tools::MicroSide::kOneSided, 2).dimms.read_requests);
}

}  // namespace
}  // namespace pmstore::sim
