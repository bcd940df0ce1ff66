#include "tools/bench/micro_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "tools/bench/bench_options.h"
#include "tools/bench/micro_words.h"

namespace pmstore::tools {
namespace {

// Rows that are drawn together, and what they are called.
struct Group {
  std::string name;
  std::vector<const MicroRow*> rows;
};
using Groups = std::vector<Group>;
using Figure = std::function<double(const MicroRow&)>;

constexpr double kNoFigure = std::numeric_limits<double>::quiet_NaN();

Groups grouped(const std::vector<const MicroRow*>& rows,
               const std::function<std::string(const MicroCase&)>& name_of) {
  Groups groups;
  for (const MicroRow* const row : rows) {
    std::string name = name_of(row->measured);
    const auto known = std::find_if(groups.begin(), groups.end(),
                                    [&](const Group& group) { return group.name == name; });
    Group& group = known == groups.end() ? groups.emplace_back(Group{std::move(name), {}}) : *known;
    group.rows.push_back(row);
  }
  return groups;
}

double latency_us(const MicroRow& row, double quantile) {
  return static_cast<double>(row.result->tally.latency_ns.quantile(quantile)) / 1000;
}

// The unit in which the fastest of these rows has few digits.
struct RateUnit {
  double per_s;
  const char* label;
};

RateUnit unit_for(const std::vector<const MicroRow*>& rows) {
  double most = 0;
  for (const MicroRow* const row : rows) {
    if (row->result) most = std::max(most, row->result->tally.rate_per_s());
  }
  if (most >= 1e6) return {1e6, "rate (million requests/s)"};
  if (most >= 1e3) return {1e3, "rate (thousand requests/s)"};
  return {1, "rate (requests/s)"};
}

// "limit: NVM media or link", those that are the lowest for some of the rows.
std::string limit_name(const std::vector<const MicroRow*>& rows) {
  std::vector<std::string_view> names;
  for (const MicroRow* const row : rows) {
    const std::string_view of = row->limit->of;
    if (std::find(names.begin(), names.end(), of) == names.end()) names.push_back(of);
  }
  return fmt::format("limit: {}", fmt::join(names, " or "));
}

bool all_limited(const std::vector<const MicroRow*>& rows) {
  return std::all_of(rows.begin(), rows.end(), [](const MicroRow* row) { return !!row->limit; });
}

PlotSeries bars_series(const Group& group, std::string name, const Figure& figure) {
  PlotSeries series;
  series.name = std::move(name);
  for (const MicroRow* const row : group.rows) {
    series.y.push_back(row->result ? figure(*row) : kNoFigure);
  }
  return series;
}

PlotPanel bars_panel(const Group& group, std::string y_label) {
  PlotPanel panel;
  panel.title = group.name;
  panel.y_label = std::move(y_label);
  for (const MicroRow* const row : group.rows) {
    const MicroCase& measured = row->measured;
    panel.labels.push_back(measured.label.empty() ? measured.x : measured.label);
  }
  return panel;
}

void add_bars(Plot& plot, const Group& group, bool latency) {
  const RateUnit unit = unit_for(group.rows);
  PlotPanel rates = bars_panel(group, unit.label);
  const bool limited = all_limited(group.rows);
  rates.series.push_back(bars_series(group, limited ? "measured" : "", [&](const MicroRow& row) {
    return row.result->tally.rate_per_s() / unit.per_s;
  }));
  if (limited) {
    PlotSeries limit;
    limit.name = limit_name(group.rows);
    limit.style = PlotStyle::kLimit;
    for (const MicroRow* const row : group.rows) limit.y.push_back(row->limit->per_s / unit.per_s);
    rates.series.push_back(std::move(limit));
  }
  plot.panels.push_back(std::move(rates));
  if (!latency) return;
  PlotPanel latencies = bars_panel(group, "latency (us)");
  latencies.series.push_back(
      bars_series(group, "p50", [](const MicroRow& row) { return latency_us(row, 0.5); }));
  latencies.series.push_back(
      bars_series(group, "p99", [](const MicroRow& row) { return latency_us(row, 0.99); }));
  for (PlotSeries& series : latencies.series) series.colour = 2;
  latencies.series[1].style = PlotStyle::kDashed;
  plot.panels.push_back(std::move(latencies));
}

// All curves of one payload.
class Curves {
 public:
  Curves(const Group& payload, const std::vector<MicroAxis>& axes, bool payload_in_title)
      : rows_(payload.rows), title_(payload.name), axis_(axes.back()) {
    curves_ = grouped(payload.rows, [&](const MicroCase& measured) {
      std::string name;
      for (size_t i = 0; i + 1 < axes.size(); ++i) {
        if (payload_in_title && axes[i].name == "payload") continue;
        if (!name.empty()) name += ", ";
        name += parameter_words(axes[i].name, measured.point);
      }
      return name;
    });
  }

  PlotPanel rates() const {
    const RateUnit unit = unit_for(rows_);
    PlotPanel made = panel(unit.label);
    add(made, [&](const MicroRow& row) { return row.result->tally.rate_per_s() / unit.per_s; });
    add_limits(made, [&](const MicroRow& row) { return row.limit->per_s / unit.per_s; });
    return made;
  }
  PlotPanel bandwidths() const {
    PlotPanel made = panel("payload moved (Gbit/s)");
    add(made, gbit_per_s);
    add_limits(made, [](const MicroRow& row) {
      return row.limit->per_s * row.measured.point.payload_bytes * 8 / 1e9;
    });
    return made;
  }
  PlotPanel latencies() const {
    PlotPanel made = panel("latency (us)");
    add(made, [](const MicroRow& row) { return latency_us(row, 0.5); });
    const size_t curves = made.series.size();
    add(made, [](const MicroRow& row) { return latency_us(row, 0.99); });
    for (size_t i = 0; i < made.series.size(); ++i) {
      PlotSeries& series = made.series[i];
      if (i >= curves) series.style = PlotStyle::kDashed;
      series.name +=
          fmt::format("{}{}", series.name.empty() ? "" : ", ", i < curves ? "p50" : "p99");
    }
    return made;
  }

 private:
  PlotPanel panel(std::string y_label) const {
    PlotPanel panel;
    panel.title = title_;
    panel.x_label = parameter_axis(axis_.name);
    panel.y_label = std::move(y_label);
    const bool bytes = axis_.name == "payload" || axis_.name == "range";
    for (const std::string& value : axis_.values) {
      const uint64_t number = *parse_bytes(value);
      panel.ticks.emplace_back(number, bytes ? short_bytes(number) : std::to_string(number));
    }
    std::sort(panel.ticks.begin(), panel.ticks.end());
    return panel;
  }
  static PlotSeries curve(const Group& group, const Figure& figure) {
    std::vector<std::pair<double, double>> points;
    for (const MicroRow* const row : group.rows) {
      if (!row->result) continue;
      points.emplace_back(static_cast<double>(*parse_bytes(row->measured.x)), figure(*row));
    }
    std::sort(points.begin(), points.end());
    PlotSeries series;
    series.name = group.name;
    for (const auto& [x, y] : points) {
      series.x.push_back(x);
      series.y.push_back(y);
    }
    return series;
  }
  void add(PlotPanel& panel, const Figure& figure) const {
    for (size_t i = 0; i < curves_.size(); ++i) {
      panel.series.push_back(curve(curves_[i], figure));
      panel.series.back().colour = i;
    }
  }
  // One line when the limit is the same for all curves, else one in the colour of each.
  void add_limits(PlotPanel& panel, const Figure& figure) const {
    if (!all_limited(rows_)) return;
    const size_t before = panel.series.size();
    for (size_t i = 0; i < curves_.size(); ++i) {
      PlotSeries limit = curve(curves_[i], figure);
      limit.name = limit_name(curves_[i].rows) + (limit.name.empty() ? "" : ", ") + limit.name;
      limit.style = PlotStyle::kLimit;
      limit.colour = i;
      panel.series.push_back(std::move(limit));
    }
    const auto first = panel.series.begin() + static_cast<std::ptrdiff_t>(before);
    const bool same = std::all_of(first, panel.series.end(), [&](const PlotSeries& limit) {
      return limit.x == first->x && limit.y == first->y;
    });
    if (!same) return;
    first->name = limit_name(rows_);
    first->colour = kPlotBlack;
    panel.series.erase(first + 1, panel.series.end());
    if (panel.series[0].name.empty()) panel.series[0].name = "measured";
  }

  const std::vector<const MicroRow*>& rows_;
  const std::string& title_;
  const MicroAxis& axis_;
  Groups curves_;
};

void add_curves(Plot& plot, const std::vector<const MicroRow*>& rows,
                const std::vector<MicroAxis>& axes, bool latency) {
  const bool by_payload = std::any_of(axes.begin(), axes.end() - 1,
                                      [](const MicroAxis& axis) { return axis.name == "payload"; });
  const Groups payloads = grouped(rows, [&](const MicroCase& measured) {
    return by_payload ? "payload of " + parameter_words("payload", measured.point) : std::string();
  });
  for (const Group& payload : payloads) {
    const Curves curves(payload, axes, by_payload);
    plot.panels.push_back(curves.rates());
    if (axes.back().name == "payload") plot.panels.push_back(curves.bandwidths());
    if (latency) plot.panels.push_back(curves.latencies());
  }
}

}  // namespace

Plot picture_of(const std::vector<MicroRow>& rows, const std::vector<MicroAxis>& axes,
                const std::string& title, bool latency) {
  std::vector<const MicroRow*> all;
  for (const MicroRow& row : rows) all.push_back(&row);
  Plot plot;
  plot.title = title;
  if (axes.empty()) {
    const auto group_of = [](const MicroCase& measured) { return measured.group; };
    for (const Group& group : grouped(all, group_of)) add_bars(plot, group, latency);
  } else {
    add_curves(plot, all, axes, latency);
  }
  const bool pairs = latency && (axes.empty() || axes.back().name != "payload");
  plot.columns = pairs || plot.panels.size() == 4 ? 2 : 3;
  return plot;
}

Status check_picture(const std::vector<MicroCase>& cases, const std::vector<MicroAxis>& axes,
                     const PictureOptions& options) {
  PMSTORE_TRY_STATUS(check_plot(options.path));
  std::vector<MicroRow> rows;
  for (const MicroCase& each : cases) rows.push_back({each, {}, {}, {}});
  return check_plot_size(picture_of(rows, axes, "", options.latency));
}

}  // namespace pmstore::tools
