#include "tools/tune/advise_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace pmstore::tools {
namespace {

MicroPoint nvm_write(uint32_t payload, MicroSide side = MicroSide::kOneSided) {
  MicroPoint point;
  point.medium = MicroMedium::kNvm;
  point.side = side;
  point.payload_bytes = payload;
  return point;
}

double limit(const MachineLimits& limits, const MicroPoint& point, const std::string& name) {
  for (const RateLimit& one : rate_limits(limits, point)) {
    if (one.name == name) return one.per_s;
  }
  return 0;
}

class ModelLimits : public testing::Test {
 protected:
  const model::Parameters parameters_ = *model::named_parameters("optane-cx5");
  const MachineLimits limits_ = model_limits(parameters_);
};

TEST_F(ModelLimits, AreThoseOfItsParameters) {
  const MicroPoint bulk = nvm_write(2048);
  EXPECT_NEAR(limit(limits_, bulk, "link"), 12.5e9 / (2048 + 98), 1);
  EXPECT_NEAR(limit(limits_, bulk, "RNIC"), 1e9 / 22.2, 1);
  EXPECT_NEAR(limit(limits_, bulk, "media of 6 DIMMs"), 6e9 / 115.4 / 8, 1);
  EXPECT_EQ(rate_limits(limits_, bulk).front().name, "link");
}

TEST_F(ModelLimits, OfSmallWritesAreTheRnicsAndAWholeMediaLine) {
  MicroPoint small = nvm_write(16);
  EXPECT_EQ(rate_limits(limits_, small).front().name, "RNIC");
  // Padded to 64 bytes; without H5 to H7 not.
  EXPECT_NEAR(limit(limits_, small, "RNIC"), 1e9 / 22.2, 1);
  small.rules = persist::Rules::none();
  EXPECT_NEAR(limit(limits_, small, "RNIC"), 1e9 / 16.7, 1);
  EXPECT_NEAR(limit(limits_, small, "media of 6 DIMMs"), 6e9 / 115.4, 1);
  small.pattern = MicroPattern::kSequential;
  EXPECT_NEAR(limit(limits_, small, "media of 6 DIMMs"), 6e9 / 115.4 * 16, 1);
}

TEST_F(ModelLimits, DependOnTheKindOfRequest) {
  EXPECT_NEAR(limit(limits_, nvm_write(64, MicroSide::kTwoSided), "RNIC"), 1e9 / 18.5, 1);
  MicroPoint one = nvm_write(256, MicroSide::kTwoSided);
  one.single_dimm = true;
  EXPECT_NEAR(limit(limits_, one, "media of 1 DIMM"), 1e9 / 115.4, 1);
  MicroPoint atomic = nvm_write(8);
  atomic.op = MicroOp::kAtomic;
  EXPECT_NEAR(limit(limits_, atomic, "RNIC's atomics"), 1e9 / 41.7, 1);
  MicroPoint dram = nvm_write(2048);
  dram.medium = MicroMedium::kDram;
  EXPECT_EQ(limit(limits_, dram, "media of 6 DIMMs"), 0);
}

TEST(HostLimits, LinkRatesAreRead) {
  EXPECT_DOUBLE_EQ(parse_link_rate("100 Gb/sec (4X EDR)"), 12.5);
  EXPECT_DOUBLE_EQ(parse_link_rate("2.5 Gb/sec (1X SDR)"), 0.3125);
  for (const char* text : {"", "fast", "100", "100 Mb/sec", "-1 Gb/sec"}) {
    EXPECT_EQ(parse_link_rate(text), 0) << text;
  }
}

class HostLimitsOfARecordedMachine : public testing::Test {
 protected:
  HostLimitsOfARecordedMachine() {
    std::string name = testing::TempDir() + "pmstore-limits.XXXXXX";
    folder_ = mkdtemp(name.data());
    port("mlx5_0", "100 Gb/sec (4X EDR)", "4: ACTIVE");
    port("mlx5_1", "200 Gb/sec (4X HDR)", "1: DOWN");
    region_.interleaved_dimms = 6;
    region_.namespaces.push_back({"namespace0.0", "devdax", "/dev/dax0.0", 1 << 30, 2 << 20});
  }
  ~HostLimitsOfARecordedMachine() override { std::filesystem::remove_all(folder_); }
  void port(const std::string& device, const std::string& rate, const std::string& state,
            int number = 1) {
    const std::string path =
        folder_ + "/sys/class/infiniband/" + device + "/ports/" + std::to_string(number);
    std::filesystem::create_directories(path);
    std::ofstream(path + "/rate") << rate << "\n";
    std::ofstream(path + "/state") << state << "\n";
  }
  std::string folder_;
  persist::NvmRegion region_;
};

TEST_F(HostLimitsOfARecordedMachine, TakeEveryPortOfADevice) {
  port("mlx5_0", "200 Gb/sec (4X HDR)", "4: ACTIVE", 2);
  const auto machine = ddio::recorded_machine(folder_);
  ASSERT_TRUE(machine);
  EXPECT_DOUBLE_EQ(host_limits(**machine, true, {}, "").link_bytes_per_ns, 25);
}

TEST_F(HostLimitsOfARecordedMachine, AreTheFastestPortInUseAndTheDimmsOfThePool) {
  const auto machine = ddio::recorded_machine(folder_);
  ASSERT_TRUE(machine);
  const MachineLimits whole = host_limits(**machine, true, {region_}, "/dev/dax0.0");
  EXPECT_DOUBLE_EQ(whole.link_bytes_per_ns, 12.5);
  EXPECT_EQ(whole.dimms, 6);
  const MachineLimits none = host_limits(**machine, false, {region_}, "/tmp/pool");
  EXPECT_EQ(none.dimms, 0);
  EXPECT_TRUE(rate_limits(none, nvm_write(2048)).empty());
}

}  // namespace
}  // namespace pmstore::tools
