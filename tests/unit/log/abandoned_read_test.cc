// Reads of a log reader whose coroutine is destroyed while they are under way.
#include "fabric/local/fault_injection.h"
#include "log/log_client.h"
#include "log/log_reader.h"
#include "tests/unit/log/log_service_fixture.h"

namespace pmstore::log {
namespace {

class LateReads final : public fabric::FaultInjector {
 public:
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (!point.connector || point.request.op != fabric::OpCode::kRead) return {};
    return {fabric::Fault::kDelay, 20'000};
  }
};

TEST_F(LogServiceTest, ReadBehindOneThatWasAbandonedWaitsUntilThatHasLanded) {
  auto client = std::move(*run(LogClient::connect(executor_, uri_, {})));
  LogOptions options;
  options.bytes = kTestLog;
  const uint64_t log = run(client->create("l", options))->id;
  const std::string payload = "entry";
  ASSERT_TRUE(run(client->append(log, std::as_bytes(std::span(payload)))));
  auto reader = std::move(*run(LogReader::open(*client, log, {})));
  LateReads late;
  const fabric::ScopedFaultInjector installed(late);
  {
    auto abandoned = reader->next();
    abandoned.start();
    ASSERT_FALSE(abandoned.done());
  }
  const auto entry = run(reader->next());
  ASSERT_TRUE(entry) << entry.error().to_string();
  EXPECT_EQ(entry->index, 1u);
  reader.reset();
  client.reset();
}

}  // namespace
}  // namespace pmstore::log
