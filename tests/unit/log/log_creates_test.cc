// A server makes a large log in many turns: others are answered meanwhile, and the client that asks
// may go.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "log/log_client.h"
#include "log/log_reader.h"
#include "tests/unit/log/log_service_fixture.h"

namespace pmstore::log {
namespace {

constexpr uint64_t kFreeForCreates = 12 << 20;
constexpr uint64_t kLargeLog = 6 << 20;

// Free space of the pool that was a log's, so that it has to be zeroed.
class LogCreates : public LogServiceTest {
 protected:
  explicit LogCreates(uint64_t area_bytes = 64 * 1024,
                      persist::Domain domain = persist::Domain::kMemoryController)
      : LogServiceTest(domain, area_bytes, kFreeForCreates) {}
  void SetUp() override {
    const auto used =
        pool_.pool()
            .allocate_extent(persist::ExtentKind::kRecords, kFreeForCreates / 2 + kLargeLog / 2)
            .value();
    std::memset(pool_.pool().memory().at(used.offset), 7, used.bytes);
    ASSERT_TRUE(pool_.pool().free_extent(used));
    LogServiceTest::SetUp();
    asking_ = session(1);
    other_ = session(2);
  }
  void TearDown() override {
    asking_.reset();
    other_.reset();
    host_.reset();
  }

  static std::vector<std::byte> request_of(std::string_view name, uint64_t bytes) {
    std::vector<std::byte> request = create_request(name);
    CreateRequest fixed;
    std::memcpy(&fixed, request.data(), sizeof fixed);
    fixed.bytes = bytes;
    std::memcpy(request.data(), &fixed, sizeof fixed);
    return request;
  }
  Task<Result<std::vector<std::byte>>> creating(Client& client, std::string_view name,
                                                uint64_t bytes = kLargeLog) {
    return call_task(client, static_cast<uint16_t>(LogMethod::kCreate),
                     with_prefix(client, request_of(name, bytes)), 64 << 10);
  }
  Task<Result<std::vector<std::byte>>> listing(Client& client) {
    return call_task(client, static_cast<uint16_t>(LogMethod::kList),
                     with_prefix(client, as_bytes(ListRequest{0, 64 << 10})), 64 << 10);
  }
  Task<int> listings_until(const Task<Result<std::vector<std::byte>>>& done) {
    int answered = 0;
    while (!done.done()) {
      const auto listed = co_await listing(*other_);
      EXPECT_TRUE(listed);
      ++answered;
    }
    co_return answered;
  }
  // Of a call that was started.
  Result<std::vector<std::byte>> answer(Task<Result<std::vector<std::byte>>>& call) {
    for (int i = 0; i < 10'000 && !call.done(); ++i) turns(1);
    EXPECT_TRUE(call.done());
    return call.take();
  }
  void turns(int count) {
    run([](base::Executor& executor, int left) -> Task<void> {
      while (left-- > 0) co_await executor.yield();
    }(executor_, count));
  }
  size_t extents() { return host_->store().extents().size(); }
  bool is_there(std::string_view name) { return host_->store().find(name).has_value(); }
  uint64_t free_bytes() { return pool_.pool().largest_free_extent(); }

  std::unique_ptr<Client> asking_;
  std::unique_ptr<Client> other_;
};

class FirstLogCreates : public LogCreates {
 protected:
  explicit FirstLogCreates(persist::Domain domain = persist::Domain::kMemoryController)
      : LogCreates(0, domain) {}

  void begin_first() {
    abandoned_ =
        std::make_unique<Task<Result<std::vector<std::byte>>>>(creating(*asking_, "first"));
    abandoned_->start();
    until_the_area_is_made();
  }
  void until_the_area_is_made() {
    for (int i = 0; i < 100 && !LogStore::is_in(pool_.pool()); ++i) turns(1);
    ASSERT_TRUE(LogStore::is_in(pool_.pool())) << "the area is made first";
  }
  void abandon_first() {
    abandoned_.reset();
    asking_.reset();
    let_time_pass(10);
    ASSERT_FALSE(LogStore::is_in(pool_.pool()));
  }

  std::unique_ptr<Task<Result<std::vector<std::byte>>>> abandoned_;
};

TEST_F(LogCreates, OthersAreAnsweredWhileALogIsMade) {
  auto made = creating(*asking_, "large");
  made.start();
  const int answered = run(listings_until(made));
  EXPECT_GE(answered, 4);
  ASSERT_TRUE(answer(made));
  EXPECT_TRUE(is_there("large"));
}

TEST_F(LogCreates, OfTwoRequestsOfOneNameOneMakesTheLog) {
  auto first = creating(*asking_, "large");
  auto second = creating(*other_, "large");
  first.start();
  second.start();
  EXPECT_TRUE(answer(first));
  EXPECT_EQ(answer(second).code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(host_->store().list().size(), 1u);
}

TEST_F(LogCreates, ASessionThatEndsMeanwhileLeavesNothingAndTheNextIsServed) {
  const uint64_t free = free_bytes();
  auto abandoned =
      std::make_unique<Task<Result<std::vector<std::byte>>>>(creating(*asking_, "large"));
  abandoned->start();
  auto next = creating(*other_, "next");
  next.start();
  turns(4);
  ASSERT_FALSE(next.done());
  abandoned.reset();
  asking_.reset();
  EXPECT_TRUE(answer(next));
  EXPECT_FALSE(is_there("large"));
  EXPECT_TRUE(is_there("next"));
  EXPECT_EQ(extents(), 2u);
  EXPECT_LT(free_bytes(), free);
}

TEST_F(FirstLogCreates, ASessionThatEndsMeanwhileLeavesNoArea) {
  const uint64_t free = free_bytes();
  begin_first();
  abandon_first();
  EXPECT_EQ(extents(), 0u);
  EXPECT_EQ(free_bytes(), free);
}

TEST_F(FirstLogCreates, ASessionThatComesMeanwhileHasNoRightToTheAreaThatGoes) {
  begin_first();
  const auto area = pool_.pool().info().extents.back();
  ASSERT_EQ(area.kind, persist::ExtentKind::kLog);
  const auto third = session(3);
  EXPECT_EQ(third->session.extents, 0u);
  EXPECT_EQ(counters().extents_registered, 0u);
  abandon_first();
  EXPECT_EQ(counters().extents_registered, 0u);
  const auto taken =
      pool_.pool().allocate_extent(persist::ExtentKind::kRecords, area.bytes).value();
  EXPECT_EQ(taken.offset, area.offset) << "the space is another kind's";
}

TEST_F(FirstLogCreates, ALogIsReadWhereItLiesAlthoughAnEarlierAreaLayElsewhere) {
  begin_first();
  const auto area = pool_.pool().info().extents.back();
  const auto third = session(3);
  abandon_first();
  const auto taken =
      pool_.pool().allocate_extent(persist::ExtentKind::kRecords, area.bytes).value();
  ASSERT_EQ(taken.offset, area.offset);
  std::memset(pool_.pool().memory().at(taken.offset), 7, taken.bytes);
  const uint64_t log = create(*third, "later");
  ASSERT_TRUE(append(*third, log, {"entry"}));
  EXPECT_GT(counters().extents_registered, 0u);
  const auto client = std::move(*run(LogClient::connect(executor_, uri_, {})));
  const auto reader = std::move(*run(LogReader::open(*client, log, {})));
  const auto entry = run(reader->next());
  ASSERT_TRUE(entry) << entry.error().to_string();
  EXPECT_EQ(entry->payload.size(), 5u);
}

// Of which a page is lost when a session ends: msync of a hole in the address space is ENOMEM.
class FirstLogCreatesOnAFile : public FirstLogCreates {
 protected:
  FirstLogCreatesOnAFile() : FirstLogCreates(persist::Domain::kNone) {
    options_.host.observer = &observer_;
  }
  std::byte* lost() { return pool_.bytes().data() + pool_.bytes().size() - 4096; }

  class Observer final : public SessionObserver {
   public:
    explicit Observer(FirstLogCreatesOnAFile& test) : test_(test) {}
    void on_session(const SessionName&) override {}
    void on_refused(const SessionName&, const Error&) override {}
    void on_ended(const SessionName&, SessionEnd) override {
      if (std::exchange(has_ended_, true)) return;
      test_.pool_.pool().memory().flush(test_.lost(), 1);
      EXPECT_EQ(munmap(test_.lost(), 4096), 0);
      EXPECT_EQ(failures, 0);
    }
    void on_failure(const Error&) override { ++failures; }
    int failures = 0;

   private:
    FirstLogCreatesOnAFile& test_;
    bool has_ended_ = false;
  };
  Observer observer_{*this};
};

TEST_F(FirstLogCreatesOnAFile, AFailedWriteIsToldAlsoWhenTheClientHasGone) {
  begin_first();
  abandoned_.reset();
  asking_.reset();
  let_time_pass(10);
  EXPECT_EQ(observer_.failures, 1) << "of giving the area back";
  ASSERT_NE(
      mmap(lost(), 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      MAP_FAILED);
}

TEST_F(FirstLogCreates, AStopMeanwhileLeavesNoArea) {
  const uint64_t free = free_bytes();
  auto made = creating(*asking_, "large");
  made.start();
  until_the_area_is_made();
  ASSERT_TRUE(host_->stop());
  EXPECT_FALSE(LogStore::is_in(pool_.pool()));
  EXPECT_EQ(answer(made).code(), ErrorCode::kDisconnected);
  turns(20);
  EXPECT_FALSE(LogStore::is_in(pool_.pool()));
  EXPECT_EQ(free_bytes(), free);
  EXPECT_FALSE(is_there("large"));
}

// Wherever the process ends, a later one finds no log, or the whole one.
TEST_F(FirstLogCreates, AServerThatGoesMeanwhileLeavesAPoolThatOpens) {
  for (int count = 0; count < 40; ++count) {
    if (count > 0) {
      start();
      asking_ = session(1);
      other_ = session(2);
    }
    auto made = creating(*asking_, fmt::format("log{}", count));
    made.start();
    turns(count);
    host_.reset();
    const auto answered = answer(made);
    asking_.reset();
    other_.reset();
    pool_.reopen();
    EXPECT_TRUE(!answered || pool_.store().find(fmt::format("log{}", count)));
    for (const LogInfo& each : pool_.store().list()) ASSERT_TRUE(pool_.store().erase(each.id));
    pool_.close_store();
  }
}

}  // namespace
}  // namespace pmstore::log
