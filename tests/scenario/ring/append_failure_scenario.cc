// Appends that fail.
#include "tests/scenario/ring/ring_scenario.h"

namespace pmstore::scenario {
namespace {

class AppendFailure : public RingScenario {};

// The connection is fine, but nobody knows any more what the ring holds.
TEST_F(AppendFailure, FailedWriteIsTheLastEvenOnAHealthyConnection) {
  auto link = connect();
  ASSERT_TRUE(link);
  log::RingPosition beyond = link->answer.position;  // a ring twice as long as what was granted
  beyond.data_bytes *= 2;
  beyond.start_lsn = beyond.tail_lsn = beyond.data_bytes - 64;
  auto appender = log::RemoteAppender::create(*device_, *link->writer, beyond,
                                              log::RemoteAppender::kMinStagingBytes);
  ASSERT_TRUE(appender);
  link->appender = std::move(*appender);
  EXPECT_EQ(append(*link, 1, text(1, 10)).code(), ErrorCode::kInvalidArgument);
  const auto later = append(*link, 2, text(2, 10));  // would go to the start, which was granted
  ASSERT_FALSE(later);
  EXPECT_EQ(later.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(later.error().message.find("an earlier append"), std::string::npos);
  EXPECT_TRUE(found(*link).empty());
}

TEST_F(AppendFailure, DeadTargetFailsAppendsInBoundedTime) {
  auto link = connect();
  ASSERT_TRUE(link);
  ASSERT_TRUE(append(*link, 1, text(1, 100)));
  target_->kill();
  std::vector<Appending> appendings = {{2, text(2, 100), {}, 0}, {3, text(3, 100), {}, 0}};
  append_all(*link, appendings);
  for (const Appending& what : appendings) {
    ASSERT_FALSE(*what.result);
    EXPECT_TRUE(what.result->code() == ErrorCode::kDisconnected ||
                what.result->code() == ErrorCode::kTimeout)
        << what.result->error().to_string();
  }
  EXPECT_FALSE(append(*link, 4, text(4, 10)));
}

}  // namespace
}  // namespace pmstore::scenario
