// A reader over tcp beside producers that overwrite what it reads: what it is told is true.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.h"
#include "log/log_client.h"
#include "log/log_host.h"
#include "log/log_reader.h"
#include "tests/crash/crash_image.h"

namespace pmstore::log {
namespace {
using base::Task;

class TcpLogReader : public testing::Test {
 protected:
  static constexpr size_t kPayloadBytes = 3000;

  void SetUp() override {
    pool_ = std::move(*persist::Pool::in_region(area_.bytes(), persist::Domain::kCpuCache, true));
    ASSERT_TRUE(LogStore::format(*pool_, 2 << 20, 7));
    host_ = std::move(*LogHost::start(executor_, *pool_, {}));
    const auto uri = executor_.run(host_->listen({fabric::Scheme::kTcp, "127.0.0.1", 0})).value();
    writer_ = std::move(*executor_.run(LogClient::connect(executor_, uri, {})));
    follower_ = std::move(*executor_.run(LogClient::connect(executor_, uri, {})));
    LogOptions options;
    options.bytes = 64 << 10;
    options.when_full = FullPolicy::kTrimOldest;
    log_ = executor_.run(writer_->create("l", options)).value().id;
    ASSERT_TRUE(executor_.run(follower_->open("l")));
    for (int i = 0; i < 60; ++i) ASSERT_TRUE(executor_.run(append()));  // it goes round
  }
  void TearDown() override {
    follower_.reset();
    writer_.reset();
    (void)host_->stop();
  }
  Task<Result<Appended>> append() {
    return writer_->append(log_, std::as_bytes(std::span(payload_)));
  }

  const std::string payload_ = std::string(kPayloadBytes, 'x');
  base::RealClock clock_;
  base::Executor executor_{clock_};
  crash::PageBytes area_{8 << 20};
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<LogHost> host_;
  std::unique_ptr<LogClient> writer_;
  std::unique_ptr<LogClient> follower_;
  uint64_t log_ = 0;
};

TEST_F(TcpLogReader, IsNeverToldOfDamageOnAnUndamagedLog) {
  auto reader = std::move(*executor_.run(LogReader::open(*follower_, log_, {})));
  int read = 0;
  for (int round = 0; round < 200; ++round) {
    const LogInfo now = executor_.run(writer_->open("l")).value();
    reader->seek(0);
    ASSERT_TRUE(executor_.run(reader->next()));  // it knows start and tail now
    reader->seek(now.start_lsn);
    auto next = reader->next();
    next.start();
    std::vector<Task<Result<Appended>>> appends;
    for (int i = 0; i < 4; ++i) {
      appends.push_back(append());
      appends.back().start();
    }
    const auto over = [](const auto& task) { return task.done(); };
    while (!next.done() || !std::all_of(appends.begin(), appends.end(), over)) {
      executor_.run_once();
    }
    for (auto& each : appends) EXPECT_TRUE(each.take());
    const auto entry = next.take();
    ASSERT_TRUE(entry || entry.code() == ErrorCode::kTrimmed) << entry.error().to_string();
    if (entry) ++read;
  }
  EXPECT_GT(read, 0);
  EXPECT_TRUE(executor_.run(writer_->open("l"))->damaged.empty());
}

}  // namespace
}  // namespace pmstore::log
