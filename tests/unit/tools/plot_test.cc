#include "tools/bench/plot.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace pmstore::tools {
namespace {

Plot curves() {
  PlotPanel panel;
  panel.title = "what's measured";
  panel.ticks = {{8, "8"}, {64, "64"}};
  panel.series = {{"one-sided", {8, 64}, {1.5, 2}}, {"two-sided", {8, 64}, {0.5, 1}}};
  Plot plot;
  plot.title = "a picture";
  plot.panels = {panel};
  return plot;
}

Plot bars() {
  PlotPanel panel;
  panel.title = "16 B";
  panel.y_label = "rate";
  panel.labels = {"no rule", "+ h1: near socket", "h6, not h5: 64-byte units"};
  panel.series = {{"measured", {}, {15, 30, NAN}}, {"limit: link", {}, {52, 52, 35}}};
  panel.series[1].style = PlotStyle::kLimit;
  Plot plot;
  plot.title = "bars";
  plot.panels = {panel, panel};
  plot.panels[1].title = "2048 B";
  plot.panels[1].series[0].y = {1, 2, 3};
  return plot;
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string drawn_as(const Plot& plot, const std::string& ending) {
  const std::string path = testing::TempDir() + "plot_test." + std::to_string(getpid()) + ending;
  const Status drawn = draw(plot, path);
  EXPECT_TRUE(drawn) << drawn.error().message;
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  unlink(path.c_str());
  return bytes;
}

TEST(Plot, ScriptsHoldTheFiguresAndQuoteNames) {
  const std::string script = gnuplot_script(curves(), "it's.png");
  EXPECT_TRUE(holds(script, "set output 'it''s.png'"));
  EXPECT_TRUE(holds(script, "'what''s measured'"));
  EXPECT_TRUE(holds(script, "\n64 2\n"));
  EXPECT_TRUE(holds(script, "title 'two-sided'"));
  EXPECT_TRUE(holds(script, "\"64\" 64"));
}

TEST(Plot, EachPanelHasAnAxisOfItsOwn) {
  const std::string script = gnuplot_script(bars(), "x.png");
  EXPECT_TRUE(holds(script, "layout 1,2"));
  EXPECT_TRUE(holds(script, "set yrange [0:59.8]")) << script;  // the limit, and room above
  EXPECT_TRUE(holds(script, "set yrange [0:3.45]")) << "its limit is far above: " << script;
  EXPECT_TRUE(holds(script, "title 'limit: link (35, above this picture)'")) << script;
  EXPECT_TRUE(holds(script, "'refused'"));
}

TEST(Plot, TheEndingSaysWhatThePictureIs) {
  EXPECT_TRUE(gnuplot_script(bars(), "x.png").starts_with("set terminal pngcairo"));
  EXPECT_TRUE(gnuplot_script(bars(), "x.svg").starts_with("set terminal svg"));
  for (const char* path : {"x.jpg", "x.gif", "x", "png", "x.png.pdf", "x.PNG"}) {
    const Status checked = check_plot(path);
    ASSERT_FALSE(checked) << path;
    EXPECT_EQ(checked.code(), ErrorCode::kInvalidArgument) << path;
    EXPECT_TRUE(holds(checked.error().message, "ends in .png or .svg"));
  }
}

TEST(Plot, CrowdedTicksAreLeftOut) {
  Plot plot = curves();
  PlotPanel& panel = plot.panels[0];
  panel.ticks.clear();
  panel.series.resize(1);
  panel.series[0].x.clear();
  panel.series[0].y.clear();
  for (int i = 100; i <= 200; ++i) {
    panel.ticks.emplace_back(i, std::to_string(i));
    panel.series[0].x.push_back(i);
    panel.series[0].y.push_back(1);
  }
  const std::string script = gnuplot_script(plot, "x.svg");
  EXPECT_FALSE(holds(script, "logscale x")) << "a factor of two is no reason";
  EXPECT_TRUE(holds(script, "\"100\" 100"));
  EXPECT_FALSE(holds(script, "\"101\" 101"));
  EXPECT_TRUE(holds(script, "\"106\" 106"));
}

TEST(Plot, MoreThanThereIsRoomForIsRefused) {
  Plot plot = bars();
  plot.panels.resize(kMostPlotPanels, plot.panels[0]);
  EXPECT_TRUE(check_plot_size(plot));
  plot.panels.push_back(plot.panels[0]);
  EXPECT_EQ(check_plot_size(plot).code(), ErrorCode::kInvalidArgument);
  plot = curves();
  plot.panels[0].series.resize(kMostPlotCurves + 1);
  EXPECT_EQ(check_plot_size(plot).code(), ErrorCode::kInvalidArgument);
  plot = bars();
  plot.panels[0].labels.resize(kMostPlotCurves + 1);
  EXPECT_EQ(check_plot_size(plot).code(), ErrorCode::kInvalidArgument);
}

TEST(Plot, WithoutGnuplotItSaysWhatToInstall) {
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  const Status checked = check_plot("x.png");
  setenv("PATH", path.c_str(), 1);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.code(), ErrorCode::kNotFound);
  EXPECT_TRUE(holds(checked.error().message, "gnuplot-nox"));
}

TEST(Plot, PicturesArePngOrSvg) {
  if (!check_plot("x.png")) GTEST_SKIP() << "gnuplot is not installed";
  EXPECT_TRUE(drawn_as(curves(), ".png").starts_with("\x89PNG"));
  EXPECT_TRUE(drawn_as(bars(), ".png").starts_with("\x89PNG"));
  const std::string svg = drawn_as(bars(), ".svg");
  EXPECT_TRUE(holds(svg, "<svg")) << svg.substr(0, 200);
  for (const char* text : {"no rule", "64-byte units", "refused", "limit: link", "2048 B"}) {
    EXPECT_TRUE(holds(svg, text)) << text;
  }
}

TEST(Plot, WhereItCannotBeWrittenItSaysWhy) {
  if (!check_plot("x.png")) GTEST_SKIP() << "gnuplot is not installed";
  const Status drawn = draw(curves(), "/nowhere/x.png");
  ASSERT_FALSE(drawn);
  EXPECT_EQ(drawn.code(), ErrorCode::kIo);
  EXPECT_TRUE(holds(drawn.error().message, "No such file or directory; name a file"));
}

TEST(Plot, WhatGnuplotRefusesIsOneLineWithoutItsScript) {
  if (!check_plot("x.png")) GTEST_SKIP() << "gnuplot is not installed";
  Plot plot = curves();
  for (PlotSeries& series : plot.panels[0].series) {
    series.x.clear();
    series.y.clear();
  }
  const Status drawn = draw(plot, testing::TempDir() + "plot_test_empty.png");
  ASSERT_FALSE(drawn);
  const std::string& why = drawn.error().message;
  EXPECT_FALSE(holds(why, "pmstore-plot-")) << why;
  EXPECT_FALSE(holds(why, "  ")) << why;
  EXPECT_FALSE(holds(why, "\n")) << why;
}

}  // namespace
}  // namespace pmstore::tools
