// A client of logs that lie in several extents of the pool, and of extents that go.
#include "fabric/local/fault_injection.h"
#include "log/log_client.h"
#include "log/log_producer.h"
#include "log/log_reader.h"
#include "tests/unit/log/log_service_fixture.h"

namespace pmstore::log {
namespace {

constexpr uint64_t kFree = 1 << 20;
constexpr uint64_t kLarge = 200 * 1024;

std::span<const std::byte> payload_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

class LogExtents : public LogServiceTest {
 protected:
  explicit LogExtents(uint64_t area_bytes = 64 * 1024)
      : LogServiceTest(persist::Domain::kCpuCache, area_bytes, kFree) {}
  void SetUp() override {
    LogServiceTest::SetUp();
    client_ = std::move(*run(LogClient::connect(executor_, uri_, {})));
  }
  void TearDown() override { client_.reset(); }
  uint64_t make(std::string_view name, uint64_t bytes) {
    const auto made = run(client_->create(name, LogOptions{.bytes = bytes}));
    EXPECT_TRUE(made) << made.error().to_string();
    return made ? made->id : 0;
  }
  // An exclusive producer's, one-sided.
  void produce(uint64_t log, const std::string& text) {
    auto producer = run(LogProducer::open(*client_, log, {}));
    ASSERT_TRUE(producer) << producer.error().to_string();
    EXPECT_TRUE(run((*producer)->append(payload_of(text))));
    EXPECT_TRUE(run((*producer)->close()));
  }
  std::unique_ptr<LogReader> reader(uint64_t log) {
    auto made = run(LogReader::open(*client_, log, {}));
    EXPECT_TRUE(made) << made.error().to_string();
    return std::move(*made);
  }
  std::string next(LogReader& from) {
    const auto entry = run(from.next());
    if (!entry) return std::string("no entry: ") + entry.error().message;
    return {reinterpret_cast<const char*>(entry->payload.data()), entry->payload.size()};
  }
  size_t extents() { return host_->store().extents().size(); }

  std::unique_ptr<LogClient> client_;
};

TEST_F(LogExtents, ProducersAndReadersReachEachExtent) {
  const uint64_t small = make("small", kTestLog);
  const uint64_t large = make("large", kLarge);
  ASSERT_EQ(extents(), 2u);
  produce(small, "to the area");
  produce(large, "to the room");
  EXPECT_EQ(next(*reader(small)), "to the area");
  EXPECT_EQ(next(*reader(large)), "to the room");
  // Who comes later hears of both in the handshake.
  const auto other = std::move(*run(LogClient::connect(executor_, uri_, {})));
  client_ = std::move(*run(LogClient::connect(executor_, uri_, {})));
  EXPECT_EQ(next(*reader(large)), "to the room");
}

TEST_F(LogExtents, AReaderOfADeletedLogsExtentIsToldAndOthersGoOn) {
  const uint64_t small = make("small", kTestLog);
  const uint64_t large = make("large", kLarge);
  produce(small, "one");
  produce(large, "one");
  auto of_small = reader(small);
  auto of_large = reader(large);
  EXPECT_EQ(next(*of_small), "one");
  EXPECT_EQ(next(*of_large), "one");
  ASSERT_TRUE(run(client_->erase(large)));
  ASSERT_EQ(extents(), 1u);
  const auto gone = run(of_large->next());
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.code(), ErrorCode::kInvalidArgument) << gone.error().to_string();
  EXPECT_NE(gone.error().message.find("was deleted"), std::string::npos);
  EXPECT_LE(client_->reconnects(), 1u);
  produce(small, "two");
  EXPECT_EQ(next(*of_small), "two");
}

// A device without room for the memory of the extent that is not the area.
class RefusesRooms final : public fabric::FaultInjector {
 public:
  bool refuses_memory(uint64_t bytes) override { return bytes > kLarge; }
  fabric::FaultDecision on_request(const fabric::FaultPoint&) override { return {}; }
};

class Warnings final : public SessionObserver {
 public:
  void on_session(const SessionName&) override {}
  void on_refused(const SessionName&, const Error&) override {}
  void on_ended(const SessionName&, SessionEnd) override {}
  void on_failure(const Error&) override {}
  void on_warning(const std::string& what) override { said.push_back(what); }
  std::vector<std::string> said;
};

class WatchedLogExtents : public LogExtents {
 protected:
  WatchedLogExtents() { options_.host.observer = &warnings_; }
  void TearDown() override {
    LogExtents::TearDown();
    host_.reset();
  }
  Warnings warnings_;
};

TEST_F(WatchedLogExtents, AnExtentThatADeviceRefusesIsToldOnceAndCounted) {
  make("small", kTestLog);
  const LogServiceCounters before = counters();
  EXPECT_GT(before.extents_registered, 0u);
  EXPECT_EQ(before.extents_refused, 0u);
  uint64_t large = 0;
  {
    RefusesRooms refuses;
    const fabric::ScopedFaultInjector installed(refuses);
    large = make("large", kLarge);
    ASSERT_TRUE(run(client_->open("large")));
    ASSERT_EQ(warnings_.said.size(), 1u);
    const std::string& line = warnings_.said.front();
    for (const char* part : {"local:log-service", "refuses this memory", "locked memory"}) {
      EXPECT_NE(line.find(part), std::string::npos) << line;
    }
    EXPECT_EQ(counters().extents_refused, 1u);
    EXPECT_EQ(counters().extents_registered, before.extents_registered);
    const auto reader = run(LogReader::open(*client_, large, {}));
    EXPECT_TRUE(!reader || !run((*reader)->next())) << "its entries are in no region";
  }
  client_ = std::move(*run(LogClient::connect(executor_, uri_, {})));
  EXPECT_EQ(counters().extents_refused, 0u) << "there was room when it was asked again";
  EXPECT_EQ(counters().extents_registered, before.extents_registered + 1);
  EXPECT_EQ(warnings_.said.size(), 1u);
  produce(large, "entry");
  EXPECT_EQ(next(*reader(large)), "entry");
}

// What was read before says nothing of what is there now.
TEST_F(LogExtents, NoClientReadsAnExtentThatIsNoMoreTheLogs) {
  auto raw = session(7);
  ASSERT_NE(raw, nullptr);
  const uint64_t id = create(*raw, "small");
  const uint64_t large = make("large", kLarge);
  const LogReply known = open(*raw, "large");
  ASSERT_GT(known.extent.region.bytes, kLarge);
  std::vector<std::byte> room(4096);
  auto region = device_->register_memory(room, fabric::Access::kLocal).value();
  const auto read = [&] {
    fabric::Batch batch;
    batch.read({room.data(), 256, region.get()}, known.extent.region.at(known.region_offset));
    return run([](fabric::Connection& from, fabric::Batch& what) -> Task<Status> {
      co_return co_await from.execute(what);
    }(*raw->connection, batch));
  };
  EXPECT_TRUE(read());
  ASSERT_TRUE(run(client_->erase(large)));
  EXPECT_EQ(read().code(), ErrorCode::kAccess);
  EXPECT_TRUE(broken(*raw));
  EXPECT_TRUE(run(client_->open("small")));
  EXPECT_NE(id, 0u);
}

TEST_F(LogExtents, AReaderGoesOnInItsExtentAfterARestartOfTheServer) {
  make("small", kTestLog);
  const uint64_t large = make("large", kLarge);
  produce(large, "before");
  auto of_large = reader(large);
  EXPECT_EQ(next(*of_large), "before");
  host_.reset();
  let_time_pass(1);
  pool_.reopen();
  pool_.close_store();
  start();
  produce(large, "after");
  EXPECT_EQ(next(*of_large), "after");
  EXPECT_EQ(client_->reconnects(), 1u);
}

class LogExtentsWithoutAnArea : public LogExtents {
 protected:
  LogExtentsWithoutAnArea() : LogExtents(0) {}
};

TEST_F(LogExtentsWithoutAnArea, TheFirstLogOfAPoolIsMadeWhileItIsServed) {
  EXPECT_EQ(extents(), 0u);
  auto early = std::move(*run(LogClient::connect(executor_, uri_, {})));
  EXPECT_TRUE(run(client_->list())->empty());
  const uint64_t id = make("first", kLarge);
  produce(id, "one");
  EXPECT_EQ(next(*reader(id)), "one");
  EXPECT_EQ(run(early->list())->size(), 1u);
  client_ = std::move(early);
  EXPECT_EQ(next(*reader(id)), "one");
  EXPECT_EQ(client_->reconnects(), 0u);
}

TEST_F(LogExtentsWithoutAnArea, AFullPoolRefusesALogAndServesTheOthers) {
  const uint64_t id = make("first", kLarge);
  const auto refused = run(client_->create("second", LogOptions{.bytes = kFree}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kFull) << refused.error().to_string();
  produce(id, "goes on");
  EXPECT_EQ(next(*reader(id)), "goes on");
}

}  // namespace
}  // namespace pmstore::log
