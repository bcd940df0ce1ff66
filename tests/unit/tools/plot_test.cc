#include "tools/plot.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace pmstore::tools {
namespace {

Plot curves() {
  Plot plot;
  plot.title = "what's measured";
  plot.curves = {{"side=one", {8, 64}, {1.5, 2}}, {"side=two", {8, 64}, {0.5, 1}}};
  return plot;
}

TEST(Plot, ScriptsHoldTheFiguresAndQuoteNames) {
  const std::string script = gnuplot_script(curves(), "it's.png");
  EXPECT_NE(script.find("set output 'it''s.png'"), std::string::npos);
  EXPECT_NE(script.find("'what''s measured'"), std::string::npos);
  EXPECT_NE(script.find("64 2\n"), std::string::npos);
  EXPECT_NE(script.find("title 'side=two'"), std::string::npos);
  Plot bars;
  bars.labels = {"none", "+h1"};
  bars.bars = {15, 30};
  EXPECT_NE(gnuplot_script(bars, "x.png").find("1 30 \"+h1\""), std::string::npos);
}

TEST(Plot, OtherFormatsAreRefused) {
  const Status checked = check_plot("x.jpg");
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.code(), ErrorCode::kInvalidArgument);
}

TEST(Plot, WithoutGnuplotItSaysWhatToInstall) {
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  const Status checked = check_plot("x.png");
  setenv("PATH", path.c_str(), 1);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.code(), ErrorCode::kNotFound);
  EXPECT_NE(checked.error().message.find("gnuplot-nox"), std::string::npos);
}

TEST(Plot, PicturesArePng) {
  if (!check_plot("x.png")) GTEST_SKIP() << "gnuplot is not installed";
  const std::string path = testing::TempDir() + "plot_test." + std::to_string(getpid()) + ".png";
  const Status drawn = draw(curves(), path);
  ASSERT_TRUE(drawn) << drawn.error().message;
  std::ifstream file(path, std::ios::binary);
  std::string magic(4, ' ');
  file.read(magic.data(), 4);
  EXPECT_EQ(magic, "\x89PNG");
  unlink(path.c_str());
}

TEST(Plot, WhereItCannotBeWrittenItSaysWhy) {
  if (!check_plot("x.png")) GTEST_SKIP() << "gnuplot is not installed";
  const Status drawn = draw(curves(), "/nowhere/x.png");
  ASSERT_FALSE(drawn);
  EXPECT_EQ(drawn.code(), ErrorCode::kIo);
  EXPECT_NE(drawn.error().message.find("No such file or directory; name a file"),
            std::string::npos);
}

TEST(Plot, WhatGnuplotRefusesIsOneLineWithoutItsScript) {
  if (!check_plot("x.png")) GTEST_SKIP() << "gnuplot is not installed";
  Plot plot = curves();
  plot.curves[0].x.clear();
  plot.curves[0].y.clear();
  plot.curves[1] = plot.curves[0];
  const Status drawn = draw(plot, testing::TempDir() + "plot_test_empty.png");
  ASSERT_FALSE(drawn);
  const std::string& why = drawn.error().message;
  EXPECT_EQ(why.find("pmstore-plot-"), std::string::npos) << why;
  EXPECT_EQ(why.find("  "), std::string::npos) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos) << why;
}

}  // namespace
}  // namespace pmstore::tools
