// The language of gnuplot: a grid of panels as a script, with the figures in it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "tools/bench/plot.h"

namespace pmstore::tools {
namespace {

// Of a panel, in pixels.
constexpr size_t kPanelWidth = 560;
constexpr size_t kPanelHeight = 440;
constexpr size_t kTitleHeight = 50;
// Of the labels below bars.
constexpr size_t kCharacterWidth = 9;
constexpr size_t kAxesWidth = 460;
// Ticks closer than this share of the axis would touch each other.
constexpr double kClosestTicks = 0.055;
// Smaller ranges are drawn on linear axes.
constexpr double kLogarithmicX = 8;
constexpr double kLogarithmicY = 50;
// A limit that is further above the measured values is left out of the picture.
constexpr double kMostAbove = 2;
// Can be told apart by most colour-blind people.
constexpr std::string_view kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                         "#e69f00", "#56b4e9", "#6a3d9a", "#8c6d31"};

// In gnuplot's single quotes, a quote is written twice; nothing else is special.
std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    out += c;
    if (c == '\'') out += c;
  }
  return out + "'";
}

// In its double quotes, backslashes and quotes are special.
std::string in_double_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// At blanks, into lines of at most `width` where words allow it.
std::string wrapped(std::string_view text, size_t width) {
  std::string out;
  size_t line = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line > 0) {
      const bool fits = line + 1 + word.size() <= width;
      out += fits ? ' ' : '\n';
      line = fits ? line + 1 : 0;
    }
    out += word;
    line += word.size();
  }
  return out;
}

struct Bounds {
  double least = INFINITY;
  double most = -INFINITY;
  void add(double value) {
    if (std::isnan(value)) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  bool spans(double factor) const { return least > 0 && most / least >= factor; }
};

Bounds bounds_y(const PlotPanel& panel, bool of_limits) {
  Bounds bounds;
  for (const PlotSeries& series : panel.series) {
    if ((series.style == PlotStyle::kLimit) != of_limits) continue;
    for (const double y : series.y) bounds.add(y);
  }
  return bounds;
}

// A limit is drawn if the measured values still have enough of the picture.
double top_of(const PlotPanel& panel) {
  const double measured = bounds_y(panel, false).most;
  const double limit = bounds_y(panel, true).most;
  if (!(measured > 0)) return 1;
  return (limit <= kMostAbove * measured ? std::max(measured, limit) : measured) * 1.15;
}

std::string data_block(const std::string& name, const PlotPanel& panel, const PlotSeries& series) {
  std::string data = fmt::format("{} << EOD\n", name);
  for (size_t i = 0; i < series.y.size(); ++i) {
    const double x = panel.labels.empty() ? series.x[i] : static_cast<double>(i);
    const std::string y =
        std::isnan(series.y[i]) ? std::string("NaN") : fmt::format("{:.9g}", series.y[i]);
    data += fmt::format("{:.9g} {}\n", x, y);
  }
  return data + "EOD\n";
}

std::string title_of(const PlotSeries& series) {
  return series.name.empty() ? "notitle" : "title " + in_quotes(series.name);
}

// A line that is wholly above the picture needs a word.
std::string title_of_limit(const PlotSeries& series, double top) {
  PlotSeries named = series;
  const bool above =
      std::all_of(series.y.begin(), series.y.end(), [&](double y) { return y > top; });
  if (above && !series.y.empty()) {
    const double least = *std::min_element(series.y.begin(), series.y.end());
    named.name +=
        fmt::format(" ({}, above this picture)",
                    least < 1000 ? fmt::format("{:.3g}", least) : fmt::format("{:.0f}", least));
  }
  return title_of(named);
}

std::string_view colour_of(const PlotSeries& series) {
  if (series.colour == kPlotBlack) return "#000000";
  return kColours[series.colour % std::size(kColours)];
}

std::string bars_range_and_labels(const PlotPanel& panel) {
  const size_t count = panel.labels.size();
  std::string text =
      fmt::format("unset logscale\nset yrange [0:{:.9g}]\nset xrange [-0.6:{:.9g}]\n",
                  top_of(panel), static_cast<double>(count) - 0.4);
  const size_t width = std::max<size_t>(1, kAxesWidth / (count * kCharacterWidth));
  text += "set xtics scale 0 (";
  std::ptrdiff_t most_lines = 1;
  for (size_t i = 0; i < count; ++i) {
    const std::string label = wrapped(panel.labels[i], width);
    most_lines = std::max(most_lines, 1 + std::count(label.begin(), label.end(), '\n'));
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", in_double_quotes(label), i);
  }
  text += fmt::format(")\nset bmargin {}\n", most_lines + 2);
  return text + "set grid noxtics ytics\n";
}

// Bars of several series stand side by side; their figures are above them.
std::string bars_commands(const PlotPanel& panel, const std::vector<std::string>& blocks) {
  const auto beside =
      std::count_if(panel.series.begin(), panel.series.end(),
                    [](const PlotSeries& series) { return series.style != PlotStyle::kLimit; });
  const double width = 0.76 / static_cast<double>(std::max<std::ptrdiff_t>(beside, 1));
  std::vector<std::string> bars, limits, figures;
  for (size_t i = 0; i < panel.series.size(); ++i) {
    const PlotSeries& series = panel.series[i];
    if (series.style == PlotStyle::kLimit) {
      limits.push_back(
          fmt::format("{} using ($1-0.5):2:(1):(0) with vectors nohead lw 2 lc rgb "
                      "'#000000' {}",
                      blocks[i], title_of_limit(series, top_of(panel))));
      continue;
    }
    const double at = (static_cast<double>(bars.size()) + 0.5) * width - 0.38;
    const std::string fill = series.style == PlotStyle::kDashed ? "fs solid 0.35" : "fs solid 0.85";
    bars.push_back(fmt::format("{} using ($1+{:.4g}):2:({:.4g}) with boxes {} lc rgb '{}' {}",
                               blocks[i], at, width * 0.96, fill, colour_of(series),
                               title_of(series)));
    figures.push_back(
        fmt::format("{} using ($1+{:.4g}):2:(sprintf('%.3g', $2)) with labels boxed offset 0,0.7 "
                    "font ',9' notitle",
                    blocks[i], at));
    if (bars.size() > 1) continue;
    figures.push_back(fmt::format(
        "{} using 1:(valid(2) ? NaN : 0):('refused') with labels offset 0,0.7 font ',9' "
        "notitle",
        blocks[i]));
  }
  bars.insert(bars.end(), limits.begin(), limits.end());
  bars.insert(bars.end(), figures.begin(), figures.end());
  return fmt::format("plot {}\n", fmt::join(bars, ", \\\n  "));
}

std::string curves_ranges(const PlotPanel& panel) {
  Bounds x;
  for (const PlotSeries& series : panel.series) {
    for (const double value : series.x) x.add(value);
  }
  const Bounds y = bounds_y(panel, false);
  const bool log_x = x.spans(kLogarithmicX);
  const bool log_y = y.spans(kLogarithmicY);
  std::string text = "unset logscale\n";
  if (log_x) text += "set logscale x 2\n";
  if (log_y) text += "set logscale y 10\n";
  const double margin = log_x ? std::pow(x.most / x.least, 0.04) : 1;
  const double linear = x.most > x.least ? (x.most - x.least) * 0.04 : x.most * 0.04;
  const double left = log_x ? x.least / margin : x.least - linear;
  const double right = log_x ? x.most * margin : x.most + linear;
  if (right > left) text += fmt::format("set xrange [{:.9g}:{:.9g}]\n", left, right);
  text += log_y ? fmt::format("set yrange [{:.9g}:{:.9g}]\n", y.least / 1.5, top_of(panel) * 1.3)
                : fmt::format("set yrange [0:{:.9g}]\n", top_of(panel));
  const auto along = [&](double value) {
    return log_x ? std::log(value / left) / std::log(right / left)
                 : (value - left) / (right - left);
  };
  text += "set xtics scale 0.5 (";
  double last = -INFINITY;
  for (const auto& [value, name] : panel.ticks) {
    if (right > left && along(value) - last < kClosestTicks) continue;
    text += fmt::format("{}{} {:.9g}", std::isinf(last) ? "" : ", ", in_double_quotes(name), value);
    last = right > left ? along(value) : INFINITY;
  }
  return text + ")\nset bmargin 4\nset grid xtics ytics\n";
}

std::string curves_commands(const PlotPanel& panel, const std::vector<std::string>& blocks) {
  std::vector<std::string> curves;
  for (size_t i = 0; i < panel.series.size(); ++i) {
    const PlotSeries& series = panel.series[i];
    switch (series.style) {
      case PlotStyle::kLimit:
        curves.push_back(fmt::format("{} using 1:2 with lines lw 2 dt 2 lc rgb '{}' {}", blocks[i],
                                     colour_of(series), title_of_limit(series, top_of(panel))));
        break;
      case PlotStyle::kDashed:
      case PlotStyle::kSolid:
        curves.push_back(fmt::format(
            "{} using 1:2 with linespoints lw 2 {} pt {} ps 0.8 lc rgb '{}' {}", blocks[i],
            series.style == PlotStyle::kSolid ? "dt 1" : "dt 3",
            series.style == PlotStyle::kSolid ? 7 : 6, colour_of(series), title_of(series)));
        break;
    }
  }
  return fmt::format("plot {}\n", fmt::join(curves, ", \\\n  "));
}

std::string panel_script(const PlotPanel& panel, size_t index) {
  std::string text;
  std::vector<std::string> blocks;
  for (size_t i = 0; i < panel.series.size(); ++i) {
    blocks.push_back(fmt::format("$p{}_{}", index, i));
    text += data_block(blocks.back(), panel, panel.series[i]);
  }
  text += fmt::format("set title {}\nset xlabel {}\nset ylabel {}\n", in_quotes(panel.title),
                      in_quotes(panel.x_label), in_quotes(panel.y_label));
  const bool bars = !panel.labels.empty();
  text += bars ? bars_range_and_labels(panel) : curves_ranges(panel);
  return text + (bars ? bars_commands(panel, blocks) : curves_commands(panel, blocks));
}

}  // namespace

std::string gnuplot_script(const Plot& plot, const std::string& path) {
  const size_t columns = std::clamp<size_t>(plot.panels.size(), 1, plot.columns);
  const size_t rows = (plot.panels.size() + columns - 1) / columns;
  const size_t width = std::max(columns * kPanelWidth, size_t{800});
  const size_t height = rows * kPanelHeight + kTitleHeight;
  const std::string terminal =
      path.ends_with(".svg")
          ? fmt::format("svg size {},{} noenhanced font 'sans,12' background '#ffffff'", width,
                        height)
          : fmt::format("pngcairo size {},{} noenhanced font 'sans,10'", width, height);
  std::string script = fmt::format(
      "set terminal {}\nset output {}\nset multiplot layout {},{} title {} font ',13'\n"
      "set key above center horizontal samplen 3 maxcols 2\nset style textbox opaque noborder "
      "margins 0.4,0.2\n",
      terminal, in_quotes(path), rows, columns,
      // The second line, which is empty, keeps the legends away.
      in_double_quotes(plot.title + "\n"));
  for (size_t i = 0; i < plot.panels.size(); ++i) script += panel_script(plot.panels[i], i);
  return script + "unset multiplot\n";
}

}  // namespace pmstore::tools
