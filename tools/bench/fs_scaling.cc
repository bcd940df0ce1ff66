#include "tools/bench/fs_scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tools/bench/bench_options.h"
#include "tools/bench/micro_words.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {
namespace {

constexpr uint32_t kServerCounts[] = {1, 2, 4, 8};
constexpr uint64_t kStripedPayloads[] = {64u << 10, 256u << 10, 1u << 20};
constexpr const char* kOperations[] = {"write", "read"};
// Of each worker, at least: what comes before the first operation must not show.
constexpr uint64_t kFewestOperations = 20;
// So that each file lies at all servers.
constexpr uint64_t kStripedFileBytes = 4u << 20;
constexpr uint64_t kMostMoved = uint64_t{256} << 20;  // of a case, where that is enough

FsLoadOptions options_for(const FsLoadOptions& base, const FsScalingRow& row) {
  FsLoadOptions options = base;
  options.mode = FsLoadMode::kData;
  options.payload_bytes = row.payload_bytes;
  options.read_share = row.operation == "read" ? 1 : 0;
  options.files = base.workers();
  options.file_bytes = kStripedFileBytes;
  options.ops = std::max(kFewestOperations * base.workers(),
                         std::min(base.ops, kMostMoved / row.payload_bytes));
  options.model.data_servers = row.data_servers;
  options.model.hosts = row.data_servers + base.threads;
  return options;
}

const FsScalingRow& row_of(const std::vector<FsScalingRow>& rows, std::string_view operation,
                           uint32_t servers, uint64_t payload) {
  return *std::find_if(rows.begin(), rows.end(), [&](const FsScalingRow& row) {
    return row.operation == operation && row.data_servers == servers &&
           row.payload_bytes == payload;
  });
}

}  // namespace

double FsScalingRow::rate_per_s() const {
  for (const FsLoadPhase& phase : result.phases) {
    if (phase.latency_ns.count() == 0) continue;
    return static_cast<double>(phase.latency_ns.count()) / phase.seconds;
  }
  return 0;
}

double FsScalingRow::gbit_per_s() const {
  return rate_per_s() * static_cast<double>(payload_bytes) * 8 / 1e9;
}

Result<std::vector<FsScalingRow>> run_fs_scaling(const FsLoadOptions& base) {
  std::vector<FsScalingRow> rows;
  for (const char* const operation : kOperations) {
    for (const uint64_t payload : kStripedPayloads) {
      for (const uint32_t servers : kServerCounts) {
        FsScalingRow row{operation, servers, payload, {}};
        PMSTORE_TRY(row.result, run_fs_load(options_for(base, row)));
        if (!row.result.audit.ok()) {
          return make_error(ErrorCode::kIo, fmt::format("{} over {} data servers: {}", operation,
                                                        servers, row.result.audit.first_problem));
        }
        if (row.result.interrupted) {
          return make_error(ErrorCode::kIo, "interrupted: there is no result; run it again");
        }
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

nlohmann::ordered_json fs_scaling_json(const std::vector<FsScalingRow>& rows) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const FsScalingRow& row : rows) {
    nlohmann::ordered_json object = {{"operation", row.operation},
                                     {"data_servers", row.data_servers},
                                     {"payload_bytes", row.payload_bytes},
                                     {"gbit_per_s", row.gbit_per_s()}};
    for (const FsLoadPhase& phase : row.result.phases) {
      const uint64_t count = phase.latency_ns.count();
      if (count == 0) continue;
      object.update(result_json(phase.name, phase.latency_ns, phase.seconds));
      object["counters"] = counters_json(phase.counters, count);
    }
    array.push_back(std::move(object));
  }
  return array;
}

std::string fs_scaling_text(const std::vector<FsScalingRow>& rows) {
  TextTable table(1);
  std::vector<std::string> line = {"Gbit/s, by data servers"};
  for (const uint32_t servers : kServerCounts) line.push_back(std::to_string(servers));
  table.row(line);
  for (const char* const operation : kOperations) {
    for (const uint64_t payload : kStripedPayloads) {
      line = {fmt::format("{} {}", operation, short_bytes(payload))};
      for (const uint32_t servers : kServerCounts) {
        const FsScalingRow& row = row_of(rows, operation, servers, payload);
        line.push_back(fmt::format("{:.1f}", row.gbit_per_s()));
      }
      table.row(line);
    }
  }
  return table.text();
}

Plot fs_scaling_picture(const std::vector<FsScalingRow>& rows, const std::string& title) {
  Plot plot;
  plot.title = title;
  plot.columns = 2;
  for (const char* const operation : kOperations) {
    PlotPanel panel;
    panel.title = fmt::format("{}s, striped", operation);
    panel.x_label = "data servers";
    panel.y_label = "payload moved (Gbit/s)";
    for (const uint32_t servers : kServerCounts) {
      panel.ticks.emplace_back(servers, std::to_string(servers));
    }
    for (const uint64_t payload : kStripedPayloads) {
      PlotSeries series;
      series.name = short_bytes(payload);
      series.colour = panel.series.size();
      for (const uint32_t servers : kServerCounts) {
        series.x.push_back(servers);
        series.y.push_back(row_of(rows, operation, servers, payload).gbit_per_s());
      }
      panel.series.push_back(std::move(series));
    }
    plot.panels.push_back(std::move(panel));
  }
  return plot;
}

}  // namespace pmstore::tools
