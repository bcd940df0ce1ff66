#include "tools/bench/micro_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/bench/bench_options.h"
#include "tools/cli/revision.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {

using persist::Rule;

namespace {

nlohmann::ordered_json point_json(const MicroPoint& point) {
  nlohmann::ordered_json json = {{"op", op_name(point.op)},
                                 {"side", side_name(point.side)},
                                 {"medium", medium_name(micro_medium(point))},
                                 {"pattern", pattern_name(point.pattern)},
                                 {"persistent", point.persistent},
                                 {"payload_bytes", point.payload_bytes},
                                 {"request_bytes", micro_bytes(point)},
                                 {"range_bytes", point.range_bytes},
                                 {"single_dimm", point.single_dimm},
                                 {"clients", point.clients},
                                 {"connections", point.connections},
                                 {"window", point.window},
                                 {"batch", point.batch},
                                 {"server_threads", point.server_threads},
                                 {"rules", persist::rules_text(point.rules)},
                                 {"seed", point.seed}};
  if (point.ddio) json["ddio"] = *point.ddio ? "on" : "off";
  if (point.domain) json["assumed_domain"] = persist::domain_name(*point.domain);
  return json;
}

// As many digits as tell something.
std::string short_number(double value) {
  if (value != 0 && value < 0.01) return fmt::format("{:.2g}", value);
  return fmt::format("{:.2f}", value);
}

std::string machine_text(const nlohmann::ordered_json& machine, const char* key) {
  return machine.contains(key) ? short_number(machine[key].get<double>()) : "-";
}

std::string percent(double rate, double base) {
  return base > 0 ? fmt::format("{:+.0f}%", (rate / base - 1) * 100) : "-";
}

// The columns that a modelled machine adds.
constexpr struct {
  const char* key;
  const char* head;
} kMachineColumns[] = {{"nvm_reads_per_op", "nvm reads"},
                       {"media_writes_per_op", "media writes"},
                       {"write_amplification", "amplification"}};

class Table {
 public:
  Table(const std::vector<MicroRow>& rows, bool relative)
      : relative_(relative),
        machine_(std::any_of(rows.begin(), rows.end(), [](const MicroRow& row) {
          return row.result && !row.result->machine.empty();
        })) {
    std::vector<std::string> head = {"", "M/s", "Gbit/s"};
    if (relative_) head.insert(head.end(), {"to first", "to last"});
    head.insert(head.end(), {"p50 us", "p99 us", "p999 us", "doorbells", "round trips"});
    if (machine_) {
      for (const auto& column : kMachineColumns) head.push_back(column.head);
    }
    columns_ = head.size();
    table_.row(std::move(head));
  }

  void add(const MicroRow& row);
  std::string text() const;

 private:
  const bool relative_;
  const bool machine_;
  size_t columns_;
  TextTable table_{1};
  struct Note {
    std::string why;
    std::string rows;
  };
  std::vector<Note> notes_;  // about rows without a result
  std::string group_;
  double first_rate_ = 0;
  double last_rate_ = 0;
};

void Table::add(const MicroRow& row) {
  if (!row.result) {
    std::vector<std::string> cells(columns_, "-");
    cells[0] = row.measured.name;
    table_.row(std::move(cells));
    // Many rows may share a reason.
    const auto known = std::find_if(notes_.begin(), notes_.end(),
                                    [&](const Note& note) { return note.why == row.refused; });
    if (known == notes_.end()) {
      notes_.push_back({row.refused, row.measured.name});
    } else {
      known->rows += ", " + row.measured.name;
    }
    return;
  }
  const MicroTally& tally = row.result->tally;
  const double rate = tally.rate_per_s();
  if (row.measured.group != group_) {
    group_ = row.measured.group;
    first_rate_ = last_rate_ = 0;
  }
  const auto per_op = [&](uint64_t total) {
    const auto ops = static_cast<double>(tally.latency_ns.count());
    return ops > 0 ? fmt::format("{:.2f}", static_cast<double>(total) / ops) : "-";
  };
  std::vector<std::string> cells = {row.measured.name, fmt::format("{:.3f}", rate / 1e6),
                                    fmt::format("{:.2f}", gbit_per_s(row))};
  if (relative_) {
    cells.push_back(percent(rate, first_rate_));
    cells.push_back(percent(rate, last_rate_));
  }
  for (const double q : {0.5, 0.99, 0.999}) cells.push_back(us_text(tally.latency_ns.quantile(q)));
  cells.push_back(per_op(tally.counters.doorbells));
  cells.push_back(per_op(tally.counters.round_trips));
  if (machine_) {
    for (const auto& column : kMachineColumns) {
      cells.push_back(machine_text(row.result->machine, column.key));
    }
  }
  table_.row(std::move(cells));
  if (first_rate_ == 0) first_rate_ = rate;
  last_rate_ = rate;
}

std::string Table::text() const {
  std::string text = table_.text();
  for (const Note& note : notes_) {
    text += fmt::format("not measured: {}\n  {}\n", note.rows, note.why);
  }
  return text;
}

std::string fixed_text(persist::Rules fixed) {
  std::string names;
  for (unsigned i = 1; i <= persist::kRules; ++i) {
    const Rule rule = static_cast<Rule>(i);
    if (!fixed.has(rule)) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", persist::rule_name(rule));
  }
  return names;
}

}  // namespace

double gbit_per_s(const MicroRow& row) {
  return row.result->tally.rate_per_s() * row.measured.point.payload_bytes * 8 / 1e9;
}

nlohmann::ordered_json row_json(const MicroRow& row) {
  if (!row.result) {
    nlohmann::ordered_json json = {{"name", row.measured.name}, {"refused", row.refused}};
    json["parameters"] = point_json(row.measured.point);
    return json;
  }
  const MicroTally& tally = row.result->tally;
  const uint64_t ops = tally.latency_ns.count();
  nlohmann::ordered_json json =
      result_json(row.measured.name, tally.latency_ns, std::max(tally.seconds(), 1e-9));
  json["errors"] = 0;
  json["seconds"] = tally.seconds();
  json["gbit_per_s"] = gbit_per_s(row);
  json["parameters"] = point_json(row.measured.point);
  if (row.measured.point.op != MicroOp::kEcho) {
    json["domain"] = persist::domain_name(tally.server.domain);
    json["landing"] = persist::landing_name(tally.server.landing);
  }
  if (row.measured.point.persistent) json["strategy"] = persist::strategy_name(tally.strategy);
  json["counters"] = counters_json(tally.counters, ops);
  if (!row.result->machine.empty()) json["machine"] = row.result->machine;
  return json;
}

std::string rows_text(const std::vector<MicroRow>& rows, bool relative) {
  Table table(rows, relative);
  for (const MicroRow& row : rows) table.add(row);
  return table.text();
}

nlohmann::ordered_json report_json(std::string_view bench, const MicroPlace& place,
                                   nlohmann::ordered_json more, const std::vector<MicroRow>& rows) {
  nlohmann::ordered_json config = place.config();
  nlohmann::ordered_json fixed = nlohmann::ordered_json::array();
  for (unsigned i = 1; i <= persist::kRules; ++i) {
    const Rule rule = static_cast<Rule>(i);
    if (place.fixed_rules().has(rule)) fixed.push_back(persist::rule_name(rule));
  }
  config["fixed_rules"] = std::move(fixed);
  config.update(more);
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const MicroRow& row : rows) results.push_back(row_json(row));
  return {{"bench", bench},
          {"revision", kRevision},
          {"config", std::move(config)},
          {"results", std::move(results)}};
}

std::string place_text(const MicroPlace& place) {
  std::string text = place.name();
  if (const std::string fixed = fixed_text(place.fixed_rules()); !fixed.empty()) {
    text += fmt::format("; {} as the machine is", fixed);
  }
  return text + fmt::format("; revision {}", kRevision);
}

}  // namespace pmstore::tools
