// Plots: pictures of results, drawn by gnuplot.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace pmstore::tools {

struct PlotSeries {
  std::string name;
  std::vector<double> x;  // of curves
  std::vector<double> y;
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<PlotSeries> curves;  // over a logarithmic x axis
  // Instead of curves: one bar for each label.
  std::vector<std::string> labels;
  std::vector<double> bars;
};

// Before a long measurement: InvalidArgument when `path` does not end in .png; NotFound, with what
// to install, when there is no gnuplot.
Status check_plot(const std::string& path);
// Writes the PNG `path`. Errors of check_plot(); Io with gnuplot's own words when it fails.
Status draw(const Plot& plot, const std::string& path);
// What draw() feeds to gnuplot.
std::string gnuplot_script(const Plot& plot, const std::string& path);

}  // namespace pmstore::tools
