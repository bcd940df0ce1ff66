// Plots: pictures of results, drawn by gnuplot. A picture is a grid of panels, each with axes of
// its own. The ending of the file's name chooses the format: .png or .svg.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace pmstore::tools {

enum class PlotStyle {
  kSolid,
  kDashed,
  kLimit,  // what cannot be exceeded: a broken line
};

inline constexpr size_t kPlotBlack = SIZE_MAX;

struct PlotSeries {
  std::string name;       // in the legend; empty: not there
  std::vector<double> x;  // of curves; ascending
  std::vector<double> y;  // bars: one for each label; NaN: refused
  PlotStyle style = PlotStyle::kSolid;
  size_t colour = 0;  // series of one colour belong together; kPlotBlack
};

// Curves, or with `labels` bars.
struct PlotPanel {
  std::string title;
  std::string x_label;                                // with its unit
  std::string y_label;                                // with its unit
  std::vector<std::string> labels;                    // of bars; wrapped at their blanks
  std::vector<std::pair<double, std::string>> ticks;  // of curves, ascending; crowded ones left out
  std::vector<PlotSeries> series;
};

struct Plot {
  std::string title;
  std::vector<PlotPanel> panels;  // row by row
  size_t columns = 3;             // panels in a row; at least 1
};

inline constexpr size_t kMostPlotPanels = 24;
inline constexpr size_t kMostPlotCurves = 16;  // in a panel, bars and limits too

// Before a long measurement: InvalidArgument when `path` ends in neither .png nor .svg; Io when its
// folder cannot be written; NotFound, with what to install, when there is no gnuplot.
Status check_plot(const std::string& path);
// Writes the picture `path`. Errors of check_plot(); and of check_plot_size(); Io with gnuplot's
// own words when it fails.
Status draw(const Plot& plot, const std::string& path);
// InvalidArgument for more panels, curves or bars than there is room for.
Status check_plot_size(const Plot& plot);
// The script that draw() gives to gnuplot.
std::string gnuplot_script(const Plot& plot, const std::string& path);

}  // namespace pmstore::tools
