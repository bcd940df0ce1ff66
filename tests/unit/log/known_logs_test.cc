// A client that has seen more logs than it remembers asks for the others again.
#include "log/log_client.h"
#include "log/log_producer.h"
#include "log/log_reader.h"
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
  // Both ask for what is known of it; how much is known is bounded by a CHECK.
  auto reader = run(LogReader::open(*client, first, {}));
  ASSERT_TRUE(reader) << reader.error().to_string();
  auto producer = run(LogProducer::open(*client, first, {}));
  ASSERT_TRUE(producer) << producer.error().to_string();
  EXPECT_EQ((*producer)->next_index(), 1u);
  producer->reset();
  reader->reset();
  other.reset();
  client.reset();
}

}  // namespace
}  // namespace pmstore::log
