#include "tools/bench/fs_factors.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tools/bench/bench_options.h"
#include "tools/bench/micro_words.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {
namespace {

constexpr uint64_t kPayloads[] = {1u << 10, 4u << 10, 16u << 10, 64u << 10, 256u << 10, 1u << 20};
constexpr persist::Rule kRules[] = {persist::Rule::kH1, persist::Rule::kH3, persist::Rule::kH4,
                                    persist::Rule::kH5, persist::Rule::kH6, persist::Rule::kH7,
                                    persist::Rule::kH8, persist::Rule::kH9};
constexpr persist::WriteStrategy kStrategies[] = {
    persist::WriteStrategy::kNaive, persist::WriteStrategy::kOutstanding,
    persist::WriteStrategy::kDoorbell, persist::WriteStrategy::kFlush,
    persist::WriteStrategy::kTwoSided};
// Of each worker, at least: what comes before the first operation must not show.
constexpr uint64_t kLeastOperations = 20;
constexpr uint64_t kBlocksOfWorker = 4;
constexpr uint64_t kLeastFileBytes = 64 << 10;       // smaller ones can be without extents
constexpr uint64_t kMostBytes = uint64_t{64} << 20;  // of a case, where that is enough operations

// What is the same for all payloads: a case for each of them.
void add(std::vector<FsFactorRow>& rows, const std::string& operation, const std::string& variant,
         bool is_strategy) {
  for (const uint64_t payload : kPayloads) {
    rows.push_back({operation, variant, is_strategy, payload, {}, {}});
  }
}

std::vector<FsFactorRow> cases() {
  std::vector<FsFactorRow> rows;
  for (const char* const operation : {"write", "read"}) {
    add(rows, operation, "all", false);
    for (const persist::Rule rule : kRules) {
      // How a write becomes durable is nothing to a read.
      if (rule == persist::Rule::kH9 && operation == std::string("read")) continue;
      add(rows, operation, "-" + persist::rule_name(rule), false);
    }
  }
  for (const persist::WriteStrategy strategy : kStrategies) {
    add(rows, "write", std::string(persist::strategy_name(strategy)), true);
  }
  return rows;
}

FsLoadOptions options_of(const FsLoadOptions& base, const FsFactorRow& row) {
  FsLoadOptions options = base;
  options.mode = FsLoadMode::kData;
  options.payload_bytes = row.payload_bytes;
  options.read_share = row.operation == "read" ? 1 : 0;
  options.files = base.workers();
  options.file_bytes = std::max(kBlocksOfWorker * row.payload_bytes, kLeastFileBytes);
  options.ops = std::max(kLeastOperations * base.workers(),
                         std::min(base.ops, kMostBytes / row.payload_bytes));
  if (row.is_strategy) {
    options.strategy = *persist::parse_strategy(row.variant);
  } else if (row.variant != "all") {
    options.model.rules = "all," + row.variant;
    // Without H9 two posts.
    if (row.variant == "-h9") options.strategy = persist::WriteStrategy::kOutstanding;
  }
  return options;
}

// "write, by strategy" and its rows.
struct Panel {
  std::string title;
  std::vector<const FsFactorRow*> rows;
};

std::vector<Panel> panels_of(const std::vector<FsFactorRow>& rows) {
  std::vector<Panel> panels;
  for (const FsFactorRow& row : rows) {
    const std::string title =
        fmt::format("{}s, {}", row.operation, row.is_strategy ? "by strategy" : "by rule");
    const auto same = [&](const Panel& panel) { return panel.title == title; };
    auto panel = std::find_if(panels.begin(), panels.end(), same);
    if (panel == panels.end()) panel = panels.insert(panel, Panel{title, {}});
    panel->rows.push_back(&row);
  }
  return panels;
}

PlotPanel drawn(const Panel& panel, const std::string& y_label, bool rate) {
  PlotPanel made;
  made.title = panel.title;
  made.x_label = "payload (bytes)";
  made.y_label = y_label;
  for (const uint64_t payload : kPayloads) {
    made.ticks.emplace_back(static_cast<double>(payload), short_bytes(payload));
  }
  for (const FsFactorRow* const row : panel.rows) {
    if (made.series.empty() || made.series.back().name != row->variant) {
      PlotSeries series;
      series.name = row->variant;
      series.colour = made.series.size();
      made.series.push_back(std::move(series));
    }
    if (!row->refused.empty()) continue;
    made.series.back().x.push_back(static_cast<double>(row->payload_bytes));
    made.series.back().y.push_back(rate ? row->rate_per_s() / 1000 : row->gbit_per_s());
  }
  std::erase_if(made.series, [](const PlotSeries& series) { return series.x.empty(); });
  return made;
}

}  // namespace

double FsFactorRow::rate_per_s() const {
  for (const FsLoadPhase& phase : result.phases) {
    if (phase.latency_ns.count() == 0) continue;
    return static_cast<double>(phase.latency_ns.count()) / phase.seconds;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

double FsFactorRow::gbit_per_s() const {
  return rate_per_s() * static_cast<double>(payload_bytes) * 8 / 1e9;
}

Result<std::vector<FsFactorRow>> run_fs_factors(const FsLoadOptions& base) {
  std::vector<FsFactorRow> rows = cases();
  for (FsFactorRow& row : rows) {
    auto result = run_fs_load(options_of(base, row));
    if (!result && result.code() == ErrorCode::kUnsupported) {
      row.refused = result.error().to_string();
      continue;
    }
    if (!result) return std::move(result.error());
    if (!result->audit.ok()) {
      return make_error(ErrorCode::kIo, fmt::format("{} {}: {}", row.operation, row.variant,
                                                    result->audit.first_problem));
    }
    row.result = std::move(*result);
    if (row.result.interrupted) {
      return make_error(ErrorCode::kIo, "interrupted: there is no result; run it again");
    }
  }
  return rows;
}

nlohmann::ordered_json fs_factors_json(const std::vector<FsFactorRow>& rows) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const FsFactorRow& row : rows) {
    nlohmann::ordered_json object = {{"operation", row.operation},
                                     {"rules", row.is_strategy ? "all" : "all," + row.variant},
                                     {"strategy", nullptr},
                                     {"payload_bytes", row.payload_bytes}};
    if (row.variant == "all") object["rules"] = "all";
    if (row.is_strategy) object["strategy"] = row.variant;
    if (!row.refused.empty()) {
      object["refused"] = row.refused;
      array.push_back(std::move(object));
      continue;
    }
    object["gbit_per_s"] = row.gbit_per_s();
    for (const FsLoadPhase& phase : row.result.phases) {
      const uint64_t count = phase.latency_ns.count();
      if (count == 0) continue;
      object.update(result_json(phase.name, phase.latency_ns, phase.seconds));
      object["counters"] = counters_json(phase.counters, count);
    }
    object["model_counters"] = row.result.model_counters;
    array.push_back(std::move(object));
  }
  return array;
}

std::string fs_factors_text(const std::vector<FsFactorRow>& rows) {
  std::string text;
  for (const Panel& panel : panels_of(rows)) {
    TextTable table(1);
    std::vector<std::string> line = {panel.title + ", Gbit/s"};
    for (const uint64_t payload : kPayloads) line.push_back(short_bytes(payload));
    table.row(line);
    for (size_t i = 0; i < panel.rows.size(); i += std::size(kPayloads)) {
      line = {panel.rows[i]->variant};
      for (size_t j = 0; j < std::size(kPayloads); ++j) {
        const FsFactorRow& row = *panel.rows[i + j];
        line.push_back(row.refused.empty() ? fmt::format("{:.2f}", row.gbit_per_s()) : "refused");
      }
      table.row(line);
    }
    text += table.text() + "\n";
  }
  for (const FsFactorRow& row : rows) {
    if (row.refused.empty() || row.payload_bytes != kPayloads[0]) continue;
    text += fmt::format("{}: {}\n", row.variant, row.refused);
  }
  return text;
}

Plot fs_factors_picture(const std::vector<FsFactorRow>& rows, const std::string& title) {
  Plot plot;
  plot.title = title;
  plot.columns = 2;
  for (const Panel& panel : panels_of(rows)) {
    plot.panels.push_back(drawn(panel, "payload moved (Gbit/s)", false));
    plot.panels.push_back(drawn(panel, "rate (thousand a second)", true));
  }
  return plot;
}

}  // namespace pmstore::tools
