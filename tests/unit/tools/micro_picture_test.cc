#include "tools/bench/micro_picture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tools/bench/micro_limit.h"
#include "tools/bench/micro_words.h"

namespace pmstore::tools {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

// `ops` requests of `ns` each in one second.
MicroResult result_of(uint64_t ops, uint64_t ns) {
  MicroResult result;
  for (uint64_t i = 0; i < ops; ++i) result.tally.latency_ns.record(ns);
  result.tally.begin_ns = 0;
  result.tally.end_ns = kSecond;
  return result;
}

std::vector<MicroRow> rows_of(const std::vector<MicroCase>& cases) {
  std::vector<MicroRow> rows;
  for (const MicroCase& each : cases) {
    rows.push_back({each, result_of(2000, 1000), {}, MicroLimit{5000, "link"}});
  }
  return rows;
}

TEST(MicroPicture, FactorsHaveAPanelForEachGroupWithNamedSteps) {
  const std::vector<MicroRow> rows = rows_of(factor_cases({}, persist::Rules::none()));
  const Plot plot = picture_of(rows, {}, "factors", false);
  ASSERT_EQ(plot.panels.size(), 3u);
  EXPECT_EQ(plot.panels[0].title, "one-sided 16 B");
  EXPECT_EQ(plot.panels[1].title, "one-sided 2048 B");
  EXPECT_EQ(plot.panels[0].labels.size(), 5u);
  EXPECT_EQ(plot.panels[0].labels[1], "+ h1: near socket");
  EXPECT_EQ(plot.panels[2].labels[2], "+ h7: 64-byte units, streamed");
  EXPECT_EQ(plot.panels[0].y_label, "rate (thousand requests/s)");
  EXPECT_EQ(plot.panels[0].series[0].y, (std::vector<double>{2, 2, 2, 2, 2}));
  ASSERT_EQ(plot.panels[0].series.size(), 2u);
  EXPECT_EQ(plot.panels[0].series[1].name, "limit: link");
  EXPECT_EQ(plot.panels[0].series[1].y[0], 5);
}

TEST(MicroPicture, LatenciesAreBesideRatesWhenAskedFor) {
  const std::vector<MicroRow> rows = rows_of(factor_cases({}, persist::Rules::none()));
  const Plot plot = picture_of(rows, {}, "factors", true);
  ASSERT_EQ(plot.panels.size(), 6u);
  EXPECT_EQ(plot.columns, 2u);
  EXPECT_EQ(plot.panels[1].y_label, "latency (us)");
  EXPECT_EQ(plot.panels[1].series[0].name, "p50");
  EXPECT_EQ(plot.panels[1].series[1].name, "p99");
  EXPECT_NEAR(plot.panels[1].series[0].y[0], 1, 0.05);
}

TEST(MicroPicture, LegendsAreWords) {
  const std::vector<MicroAxis> axes = {*parse_axis("side=one,two"), *parse_axis("rules=none;all"),
                                       *parse_axis("payload=2048,8")};
  const Plot plot = picture_of(rows_of(*expand({}, axes)), axes, "curves", true);
  ASSERT_EQ(plot.panels.size(), 3u) << "rates, bits, latencies";
  const PlotPanel& rates = plot.panels[0];
  EXPECT_EQ(rates.x_label, "payload (bytes; K = 1,024)");
  EXPECT_EQ(rates.series[0].name, "one-sided, no rules");
  EXPECT_EQ(rates.series[3].name, "two-sided, all rules");
  EXPECT_EQ(rates.series[0].x, (std::vector<double>{8, 2048})) << "ascending";
  EXPECT_EQ(rates.ticks[1].second, "2K");
  ASSERT_EQ(rates.series.size(), 5u) << "one limit for all: they have the same";
  EXPECT_EQ(rates.series[4].style, PlotStyle::kLimit);
  EXPECT_EQ(plot.panels[1].y_label, "payload moved (Gbit/s)");
  EXPECT_EQ(plot.panels[2].series[0].name, "one-sided, no rules, p50");
}

TEST(MicroPicture, EachPayloadHasAPanel) {
  const std::vector<MicroAxis> axes = {*parse_axis("payload=16,2048"), *parse_axis("window=1,2")};
  const Plot plot = picture_of(rows_of(*expand({}, axes)), axes, "curves", false);
  ASSERT_EQ(plot.panels.size(), 2u);
  EXPECT_EQ(plot.panels[0].title, "payload of 16 B");
  EXPECT_EQ(plot.panels[1].title, "payload of 2048 B");
  EXPECT_EQ(plot.panels[0].series[0].name, "measured");
}

TEST(MicroPicture, WhereNoLimitIsKnownNoneIsDrawn) {
  std::vector<MicroRow> rows = rows_of(factor_cases({}, persist::Rules::none()));
  for (MicroRow& row : rows) row.limit.reset();
  rows[1].result.reset();
  const Plot plot = picture_of(rows, {}, "factors", false);
  ASSERT_EQ(plot.panels[0].series.size(), 1u);
  EXPECT_TRUE(std::isnan(plot.panels[0].series[0].y[1])) << "refused";
}

TEST(MicroPicture, TooManyPanelsAreRefusedBeforeTheMeasurement) {
  std::vector<MicroCase> cases;
  for (int i = 0; i < 100; ++i) {
    MicroCase one;
    one.group = std::to_string(i);
    cases.push_back(one);
  }
  const Status checked = check_picture(cases, {}, {"x.svg", false});
  ASSERT_FALSE(checked);
  if (checked.code() == ErrorCode::kNotFound) GTEST_SKIP() << "gnuplot is not installed";
  EXPECT_EQ(checked.code(), ErrorCode::kInvalidArgument);
}

TEST(MicroPicture, ParametersInWords) {
  MicroPoint point;
  for (const auto& [parameter, value, words] :
       {std::tuple{"side", "two", "two-sided"}, std::tuple{"op", "read", "read"},
        std::tuple{"medium", "nvm", "NVM"}, std::tuple{"clients", "1", "1 client"},
        std::tuple{"window", "8", "8 outstanding"},
        std::tuple{"strategy", "two_sided", "two-sided"},
        std::tuple{"rules", "none,+h1", "rules none,+h1"}, std::tuple{"ddio", "off", "DDIO off"},
        std::tuple{"single-dimm", "on", "one DIMM"}, std::tuple{"range", "1G", "1GB range"}}) {
    ASSERT_TRUE(set_parameter(point, parameter, value)) << parameter;
    EXPECT_EQ(parameter_words(parameter, point), words);
  }
}

TEST(MicroLimit, TheLinkOrTheMediaWhicheverIsLower) {
  const model::Parameters machine = *model::named_parameters("optane-cx5");
  MicroPoint point;
  point.medium = MicroMedium::kNvm;
  point.range_bytes = uint64_t{4} << 30;
  point.payload_bytes = 16;
  const MicroLimit small = *modelled_limit(machine, point);
  EXPECT_EQ(small.of, "NVM media");
  EXPECT_NEAR(small.per_s / 1e6, 52, 0.1) << "published";
  point.payload_bytes = 2048;
  const MicroLimit large = *modelled_limit(machine, point);
  EXPECT_EQ(large.of, "link");
  EXPECT_NEAR(large.per_s * 2048 * 8 / 1e9, 95.4, 0.1) << "100 Gb/s, without headers";
  point.payload_bytes = 16;
  point.single_dimm = true;
  EXPECT_NEAR(modelled_limit(machine, point)->per_s, small.per_s / 6, 1);
  point.single_dimm = false;
  point.range_bytes = 32u << 20;
  EXPECT_EQ(modelled_limit(machine, point)->of, "link") << "the cache may hold all of it";
  point.range_bytes = uint64_t{4} << 30;
  point.medium = MicroMedium::kDram;
  EXPECT_EQ(modelled_limit(machine, point)->of, "link");
}

}  // namespace
}  // namespace pmstore::tools
