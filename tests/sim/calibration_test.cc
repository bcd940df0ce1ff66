// The calibration table of docs/model.md: what was published of remote writes to Optane memory, and
// what the model says, all from one set of parameters. Rows say whether a parameter was fitted to
// them. Everything runs through the fabric provider, RPC and the workload of `pmstore bench micro`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/sim/modelled_micro.h"

namespace pmstore::sim {
namespace {

using persist::Rule;
using persist::Rules;
using tools::MicroMedium;
using tools::MicroOp;
using tools::MicroPoint;
using tools::MicroSide;

constexpr double kMostError = 0.10;
constexpr uint64_t kUs = 1000;

enum class Origin : uint8_t { kFitted, kPredicted };

struct Row {
  std::string name;
  std::string unit;
  Origin origin;
  double published;
  double model;
  double error() const { return model / published - 1; }
};

MicroFigures run(const MicroPoint& point) {
  const MicroMachine machine{*model::named_parameters("optane-cx5")};
  return run_modelled(machine, point);
}

MicroPoint one_sided(uint32_t payload_bytes, Rules rules) {
  MicroPoint point;
  point.payload_bytes = payload_bytes;
  point.medium = MicroMedium::kNvm;
  point.rules = rules;
  point.range_bytes = kMicroRangeBytes;
  point.clients = 48;
  point.window = 16;
  point.server_threads = 24;
  // With DDIO, its ways have to fill up: about 98,000 lines.
  point.warmup_ns = rules.has(Rule::kH3) ? 200 * kUs : 5000 * kUs;
  point.measured_ns = 1000 * kUs;
  return point;
}

MicroPoint two_sided(uint32_t payload_bytes, Rules rules) {
  MicroPoint point = one_sided(payload_bytes, rules);
  point.side = MicroSide::kTwoSided;
  return point;
}

MicroPoint on_dram(MicroPoint point) {
  point.medium = MicroMedium::kDram;
  return point;
}

// Transfers of 32 KiB, aligned.
MicroPoint bulk(Rules rules) {
  MicroPoint point = one_sided(32768, rules.with(Rule::kH5));
  point.clients = 16;
  point.window = 4;
  point.warmup_ns = 5000 * kUs;
  point.measured_ns = 8000 * kUs;
  return point;
}

MicroPoint echo(Rules rules) {
  MicroPoint point = two_sided(16, rules);
  point.op = MicroOp::kEcho;
  point.medium = MicroMedium::kDram;
  point.warmup_ns = 200 * kUs;
  return point;
}

class Calibration : public ::testing::Test {
 protected:
  static const std::vector<Row>& rows() {
    static const std::vector<Row> all = measure();
    return all;
  }

 private:
  static std::vector<Row> measure();
  static void add_one_sided(std::vector<Row>& rows);
  static void add_two_sided(std::vector<Row>& rows);
  static void add_bulk(std::vector<Row>& rows);
};

void Calibration::add_one_sided(std::vector<Row>& rows) {
  const Rules none = Rules::none();
  const Rules h1 = none.with(Rule::kH1);
  const Rules h3 = h1.with(Rule::kH3);
  const auto rate = [&](const char* name, Origin origin, double published, const MicroPoint& p) {
    rows.push_back({name, "M/s", origin, published, run(p).rate_m});
  };
  rate("one-sided 16 B, nothing applied", Origin::kFitted, 15, one_sided(16, none));
  rate("  + H1", Origin::kFitted, 30, one_sided(16, h1));
  rate("  + H3", Origin::kPredicted, 31, one_sided(16, h3));
  rate("  + H5", Origin::kPredicted, 34, one_sided(16, h3.with(Rule::kH5)));
  rate("  + H6 instead of H5", Origin::kFitted, 45, one_sided(16, h3.with(Rule::kH6)));
  const double dram_before = run(on_dram(one_sided(16, h3))).rate_m;
  const double dram_after = run(on_dram(one_sided(16, h3.with(Rule::kH6)))).rate_m;
  rows.push_back({"one-sided 16 B to DRAM, after H6 / before", "", Origin::kFitted, 0.75,
                  dram_after / dram_before});
  rate("one-sided 256 B to DRAM", Origin::kPredicted, 37, on_dram(one_sided(256, h3)));
  rows.push_back({"one-sided 2,048 B, nothing applied", "Gb/s", Origin::kPredicted, 38,
                  run(one_sided(2048, none)).gb_s});
}

void Calibration::add_two_sided(std::vector<Row>& rows) {
  const Rules none = Rules::none();
  const Rules h1 = none.with(Rule::kH1);
  // Stores fill the whole cache before the first line is written back: 540,000 lines.
  MicroPoint far = two_sided(2048, none);
  far.window = 4;
  far.warmup_ns = 45'000 * kUs;
  far.measured_ns = 4000 * kUs;
  MicroPoint near = two_sided(2048, h1);
  near.window = 4;
  near.warmup_ns = 30'000 * kUs;
  near.measured_ns = 3000 * kUs;
  rows.push_back({"two-sided 2,048 B, H1 / nothing", "", Origin::kPredicted, 2.375,
                  run(near).gb_s / run(far).gb_s});
  MicroPoint stores = two_sided(16, h1);
  stores.window = 8;
  stores.warmup_ns = 30'000 * kUs;
  const MicroFigures before = run(stores);
  MicroPoint streams = two_sided(16, h1.with(Rule::kH7));
  streams.warmup_ns = 300 * kUs;
  const MicroFigures after = run(streams);
  rows.push_back({"two-sided 16 B, before H7", "M/s", Origin::kPredicted, 19, before.rate_m});
  rows.push_back({"two-sided 16 B, after H7", "M/s", Origin::kPredicted, 35, after.rate_m});
  rows.push_back({"NVM reads per write, two-sided with stores", "", Origin::kPredicted, 1.0,
                  before.reads_per_write_request()});
  EXPECT_EQ(after.dimms.read_requests, 0u);
  rows.push_back(
      {"two-sided peak rate, DDIO on", "M/s", Origin::kFitted, 54, run(echo(h1)).rate_m});
  rows.push_back({"two-sided peak rate, DDIO off", "M/s", Origin::kFitted, 23,
                  run(echo(h1.with(Rule::kH3))).rate_m});
}

void Calibration::add_bulk(std::vector<Row>& rows) {
  const Rules h1 = Rules::none().with(Rule::kH1);
  const MicroFigures on = run(bulk(h1));
  const MicroFigures off = run(bulk(h1.with(Rule::kH3)));
  rows.push_back({"bulk one-sided, DDIO on", "Gb/s", Origin::kPredicted, 42, on.gb_s});
  rows.push_back({"bulk one-sided, DDIO off", "Gb/s", Origin::kPredicted, 100, off.gb_s});
  rows.push_back(
      {"  write amplification, DDIO on", "", Origin::kFitted, 2, on.dimms.write_amplification()});
  rows.push_back({"  write amplification, DDIO off", "", Origin::kPredicted, 1,
                  off.dimms.write_amplification()});
  EXPECT_EQ(on.dimms.read_requests, 0u);
  EXPECT_EQ(off.dimms.read_requests, 0u);
}

std::vector<Row> Calibration::measure() {
  std::vector<Row> rows;
  add_one_sided(rows);
  add_two_sided(rows);
  add_bulk(rows);
  return rows;
}

TEST_F(Calibration, EveryRowIsWithinTenPercent) {
  fmt::print("{:<46} {:>10} {:>10} {:>7}  {}\n", "row", "published", "model", "error", "origin");
  for (const Row& row : rows()) {
    fmt::print("{:<46} {:>10} {:>10} {:>+6.1f}%  {}\n", row.name,
               fmt::format("{} {}", row.published, row.unit),
               fmt::format("{:.2f} {}", row.model, row.unit), row.error() * 100,
               row.origin == Origin::kFitted ? "fitted" : "predicted");
    EXPECT_LE(std::abs(row.error()), kMostError) << row.name;
  }
}

TEST_F(Calibration, AThirdOfTheRowsWereFittedToNothing) {
  size_t predicted = 0;
  for (const Row& row : rows()) predicted += row.origin == Origin::kPredicted;
  EXPECT_GE(3 * predicted, rows().size());
}

}  // namespace
}  // namespace pmstore::sim
