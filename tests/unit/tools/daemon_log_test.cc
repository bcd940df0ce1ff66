#include "tools/daemon/daemon_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tools/daemon/recovery_progress.h"
#include "tools/daemon/session_log.h"

namespace pmstore::tools {
namespace {

class DaemonLogFile : public ::testing::Test {
 protected:
  DaemonLogFile() {
    path_ = ::testing::TempDir() + "daemon-log." + std::to_string(getpid());
    EXPECT_TRUE(log_.open(path_));
  }
  ~DaemonLogFile() override { std::filesystem::remove(path_); }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(path_).rdbuf();
    return all.str();
  }
  size_t lines_with(std::string_view what) const {
    std::istringstream lines(text());
    size_t found = 0;
    for (std::string line; std::getline(lines, line);) {
      found += line.find(what) != std::string::npos ? 1 : 0;
    }
    return found;
  }
  void refuse(SessionLog& sessions) {
    sessions.on_refused({"store", 7, "tcp://h:1"}, make_error(ErrorCode::kUnsupported, "not you"));
  }

  std::string path_;
  DaemonLog log_{nullptr};
  base::VirtualClock clock_;
};

TEST_F(DaemonLogFile, WritesItsLevelAndAbove) {
  log_.set_level(LogLevel::kWarning);
  log_.write(LogLevel::kError, "one");
  log_.write(LogLevel::kWarning, "two");
  log_.write(LogLevel::kInfo, "three");
  EXPECT_EQ(lines_with(" error one"), 1u);
  EXPECT_EQ(lines_with(" warning two"), 1u);
  EXPECT_EQ(lines_with("three"), 0u);
}

TEST_F(DaemonLogFile, ALineIsOneLineWhateverIsInIt) {
  log_.write(LogLevel::kInfo, "a\nb\x1b[2Jc" + std::string(10'000, 'x'));
  EXPECT_EQ(lines_with(""), 1u);
  EXPECT_EQ(lines_with("a b [2Jc"), 1u);
  EXPECT_LE(text().size(), 4096u);
}

TEST_F(DaemonLogFile, AFileThatCannotBeOpenedLeavesItAsItIs) {
  EXPECT_EQ(log_.open("/nowhere/log").code(), ErrorCode::kIo);
  log_.write(LogLevel::kInfo, "still here");
  EXPECT_EQ(lines_with("still here"), 1u);
}

TEST_F(DaemonLogFile, RefusalsAreLimitedAndTheOthersCounted) {
  clock_.advance_to(1'000'000'000'000);
  SessionLog sessions(log_, clock_, [] {});
  for (int i = 0; i < 100; ++i) refuse(sessions);
  EXPECT_EQ(lines_with("refused: not you"), 10u);
  EXPECT_EQ(lines_with("more sessions were refused"), 0u);
  clock_.advance_to(clock_.now_ns() + SessionLog::kPeriodNs);
  sessions.summarize();
  EXPECT_EQ(lines_with("90 more sessions were refused"), 1u);
  refuse(sessions);
  EXPECT_EQ(lines_with("refused: not you"), 11u);
}

TEST_F(DaemonLogFile, WarningsOfServicesAreLimitedAndTheOthersCounted) {
  clock_.advance_to(1'000'000'000'000);
  SessionLog sessions(log_, clock_, [] {});
  EXPECT_EQ(sessions.summary_due_ns(), LineLimit::kNever);
  for (int i = 0; i < 100; ++i) sessions.on_warning("clients cannot read the logs");
  EXPECT_EQ(lines_with("clients cannot read the logs"), 10u);
  const uint64_t due_ns = clock_.now_ns() + SessionLog::kPeriodNs;
  EXPECT_EQ(sessions.summary_due_ns(), due_ns);
  clock_.advance_to(due_ns);
  sessions.summarize();
  EXPECT_EQ(lines_with("90 more warnings of services"), 1u);
  sessions.on_warning("clients cannot read the logs");
  EXPECT_EQ(lines_with("clients cannot read the logs"), 11u);
}

TEST_F(DaemonLogFile, EndsInOrderAreForThoseWhoAskForThem) {
  SessionLog sessions(log_, clock_, [] {});
  sessions.on_ended({"store", 7, "tcp://h:1"}, SessionEnd::kGoodbye);
  EXPECT_EQ(text(), "");
  log_.set_level(LogLevel::kDebug);
  sessions.on_ended({"store", 7, "tcp://h:1"}, SessionEnd::kGoodbye);
  EXPECT_EQ(
      lines_with(
          " debug store session 00000000000000000000000000000007 at tcp://h:1 ended in order"),
      1u);
}

TEST_F(DaemonLogFile, ALongStartSaysOncePerSecondHowFarItIs) {
  const ServiceManager none(nullptr);
  RecoveryProgress progress(clock_, log_, none, "/pool");
  clock_.advance_to(clock_.now_ns() + 999'999'999);
  progress.tell(10, 1000);
  EXPECT_EQ(lines_with("slots of records"), 0u);
  clock_.advance_to(clock_.now_ns() + 1);
  progress.tell(20, 1000);
  progress.tell(21, 1000);
  EXPECT_EQ(lines_with("slots of records"), 1u);
  EXPECT_EQ(lines_with(" info read 20 of 1000 slots of records (2%)"), 1u);
}

TEST_F(DaemonLogFile, FencedSessionsAreWarnedOf) {
  clock_.advance_to(1'000'000'000'000);
  SessionLog sessions(log_, clock_, [] {});
  sessions.on_ended({"producer", 7, "tcp://h:1"}, SessionEnd::kSilent);
  EXPECT_EQ(
      lines_with(
          " warning producer session 00000000000000000000000000000007 at tcp://h:1 fenced: it was "
          "silent"),
      1u);
}

}  // namespace
}  // namespace pmstore::tools
