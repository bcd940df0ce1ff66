// A client that has seen more logs than it remembers asks for the others again.
#include "log/log_client.h"
#include "tests/unit/log/log_service_fixture.h"

namespace pmstore::log {
namespace {

TEST_F(LogServiceTest, ClientThatHasSeenThousandsOfLogsStillKnowsItsFirst) {
  auto client = std::move(*run(LogClient::connect(executor_, uri_, {})));
  auto other = std::move(*run(LogClient::connect(executor_, uri_, {})));
  LogOptions options;
  options.bytes = kTestLog;
  const uint64_t first = run(client->create("first", options))->id;
  for (int i = 0; i < 5000; ++i) {
    const auto passing = run(client->create("passing", options));
    ASSERT_TRUE(passing) << passing.error().to_string();
    ASSERT_TRUE(run(other->open("passing")));
    ASSERT_TRUE(run(other->erase(passing->id)));
  }
  const std::string payload = "still here";
  const auto appended = run(client->append(first, std::as_bytes(std::span(payload))));
  ASSERT_TRUE(appended) << appended.error().to_string();
  EXPECT_EQ(appended->index, 1u);
  ASSERT_TRUE(run(client->seal(first)));
  EXPECT_EQ(run(client->append(first, std::as_bytes(std::span(payload)))).code(),
            ErrorCode::kSealed);
  other.reset();
  client.reset();
}

}  // namespace
}  // namespace pmstore::log
