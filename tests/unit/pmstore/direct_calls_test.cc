// Calls without messages amid a server's groups: they wait, and are answered, like requests.
#include "pmstore/server/direct_calls.h"

#include <sys/mman.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "pmstore/client/client_session.h"
#include "pmstore/client/embedded.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

using internal::StoreCalls;
using nlohmann::json;

class DirectCallsTest : public testing::ClientFixture {
 protected:
  static constexpr uint64_t kCaller = 7;

  DirectCallsTest() {
    domain_ = persist::Domain::kNone;
    format_.rings = 8;
    server_options_.group_above_ns = 0;
  }
  void SetUp() override {
    ClientFixture::SetUp(LockDiscipline::kCpu, 100);
    internal::SessionOptions options;
    options.secret = ClientSecret::of_number(kCaller);
    options.call_timeout_ns = options.connect_timeout_ns = 1'000'000'000;
    auto opened = run(internal::ClientSession::open(
        std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_)),
        std::make_shared<internal::SessionBook>(), uri_, options));
    ASSERT_TRUE(opened) << opened.error().to_string();
    session_ = std::move(*opened);
    number_ = session_->hello().next_sequence;
    calls_ = calls_of(kCaller);
    ASSERT_NE(calls_, nullptr);
  }
  void TearDown() override {
    session_ = {};
    ClientFixture::TearDown();
  }

  std::unique_ptr<StoreCalls> calls_of(uint64_t number) {
    return internal::Embedded::calls_of(*server_, numbered::id_of(number), known_);
  }
  Task<Status> put(std::string key, std::string value) {
    const internal::CommitWrite write{WriteKind::kPut, table_, 0, 0, key, value};
    const internal::CommitView request{numbered::id_of(kCaller),
                                       number_++,
                                       {},
                                       {},
                                       internal::CommitWrites(std::span(&write, 1)),
                                       1};
    co_return co_await calls_->commit(request);
  }
  Task<Result<std::string>> get(std::string key) {
    std::string value;
    auto found = co_await calls_->get(table_, key, kMaxValueBytes, internal::ValueRoom(value));
    if (!found) co_return found.error();
    co_return value;
  }
  json stat() const { return json::parse(server_->stat_json()); }
  json groups() const { return stat().at("group_commit"); }

  internal::SessionRef session_;
  const std::shared_ptr<uint64_t> known_ = std::make_shared<uint64_t>(0);
  std::unique_ptr<StoreCalls> calls_;
  uint64_t number_ = 0;
};

TEST_F(DirectCallsTest, ShareADrainWithRequests) {
  auto other = client_->put(table_, "other", "1");
  other.start();
  std::vector<Task<Status>> puts;
  for (int i = 0; i < 3; ++i) puts.push_back(put(std::to_string(i), "1"));
  for (auto& each : puts) {
    each.start();
    EXPECT_FALSE(each.done()) << "it is answered behind the drain";
  }
  const uint64_t before = pool_->memory().stats().msyncs;
  for (auto& each : puts) EXPECT_TRUE(finish(std::move(each)));
  EXPECT_TRUE(finish(std::move(other)));
  EXPECT_LE(pool_->memory().stats().msyncs - before, 2u);
  EXPECT_EQ(groups().at("transactions"), 4u);
  EXPECT_EQ(*run(client_->get(table_, "2")), "1");
  EXPECT_EQ(stat().at("commits"), 4u);
}

TEST_F(DirectCallsTest, ReadOfWhatTheGroupWritesFinishesIt) {
  auto writing = put("k", "1");
  writing.start();
  EXPECT_EQ(*run(get("k")), "1");
  EXPECT_TRUE(finish(std::move(writing)));
  EXPECT_EQ(groups().at("groups"), 1u);
  auto again = put("k", "2");
  again.start();
  auto third = put("k", "3");
  third.start();
  EXPECT_TRUE(finish(std::move(again)));
  EXPECT_TRUE(finish(std::move(third)));
  EXPECT_EQ(*run(get("k")), "3");
  auto fourth = put("k", "4");
  fourth.start();
  const auto scan = [&]() -> Task<Result<ScanPage>> {
    const ScanRequest request{0, 4096, raw(table_), 0, {}};
    co_return co_await calls_->scan(request, 4096);
  };
  const auto page = run(scan());
  ASSERT_TRUE(page && page->records.size() == 1);
  EXPECT_EQ(page->records[0].value, "4");
  EXPECT_TRUE(finish(std::move(fourth)));
  EXPECT_EQ(stat().at("conflicts"), 0u);
}

TEST_F(DirectCallsTest, ScanOfARangeFinishesTheGroupThatWritesThere) {
  table_ = *run(client_->create_table("ordered", TableKind::kOrdered));
  ASSERT_TRUE(run(put("a", "1")));
  const auto scan = [&]() -> Task<Result<internal::RangePage>> {
    const RangeScanRequest request{100, 4096, raw(table_), 0, 0, 0, {}};
    const KeyRange all;
    co_return co_await calls_->range_scan(request, all, 4096);
  };
  for (const char* value : {"2", "3"}) {  // an insert, and an update behind the first record
    auto writing = put("b", value);
    writing.start();
    ASSERT_FALSE(writing.done());
    const auto page = run(scan());
    ASSERT_TRUE(page) << page.error().to_string();
    ASSERT_EQ(page->records.size(), 2u);
    EXPECT_EQ(page->checks.size(), 2u) << "what the first try has found is forgotten";
    EXPECT_EQ(page->leaves.size(), 1u);
    EXPECT_EQ(page->records[1].value, value);
    EXPECT_TRUE(finish(std::move(writing)));
  }
  EXPECT_EQ(stat().at("conflicts"), 0u);
}

TEST_F(DirectCallsTest, OneThatNobodyWaitsForAnyMoreCommits) {
  for (int turns = 0; turns < 4; ++turns) {
    const std::string value = std::to_string(turns);
    {
      auto writing = put("k", value);
      writing.start();
      ASSERT_FALSE(writing.done());
      for (int i = 0; i < turns; ++i) executor_.run_once();
    }
    EXPECT_EQ(*run(client_->get(table_, "k")), value);
  }
  EXPECT_EQ(stat().at("commits"), 4u);
}

TEST_F(DirectCallsTest, EndOfTheSessionFinishesItsGroupFirst) {
  auto writing = put("k", "1");
  writing.start();
  const auto again = connect(kCaller);
  ASSERT_NE(again, nullptr);
  EXPECT_TRUE(finish(std::move(writing)));
  EXPECT_EQ(*run(again->get(table_, "k")), "1");
  EXPECT_FALSE(calls_->connected());
  EXPECT_EQ(run(put("k", "2")).code(), ErrorCode::kDisconnected);
  EXPECT_EQ(run(get("k")).code(), ErrorCode::kDisconnected);
  EXPECT_EQ(*run(again->get(table_, "k")), "1");
  run(again->close());
}

TEST_F(DirectCallsTest, ServerThatGoesAwayLeavesNobodyWaiting) {
  auto writing = put("k", "1");
  writing.start();
  ASSERT_FALSE(writing.done());
  server_.reset();
  EXPECT_EQ(finish(std::move(writing)).code(), ErrorCode::kDisconnected);
  EXPECT_EQ(run(put("k", "2")).code(), ErrorCode::kDisconnected);
  session_ = {};
  run(client_->close());
  restart();
}

TEST_F(DirectCallsTest, AFailedMsyncIsToldToAllAndEndsTheService) {
  ASSERT_TRUE(run(client_->put(table_, "k", "0")));
  // msync of a hole in the address space is ENOMEM.
  std::byte* const lost = region_.bytes().data() + region_.bytes().size() - 4096;
  pool_->memory().flush(lost, 1);
  ASSERT_EQ(munmap(lost, 4096), 0);
  auto writing = put("k", "1");
  writing.start();
  ASSERT_FALSE(writing.done());
  EXPECT_EQ(finish(std::move(writing)).code(), ErrorCode::kCommitUnknown);
  EXPECT_EQ(run(put("k", "2")).code(), ErrorCode::kIo);
  EXPECT_EQ(run(get("k")).code(), ErrorCode::kIo);
  session_ = {};
  run(client_->close());
  client_.reset();
  server_.reset();
  ASSERT_EQ(
      mmap(lost, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      lost);
}

TEST_F(DirectCallsTest, ANumberIsExecutedOnce) {
  ASSERT_TRUE(run(put("k", "1")));
  number_ -= 1;
  EXPECT_DEATH(static_cast<void>(run(put("k", "2"))), "a number is executed once");
}

TEST_F(DirectCallsTest, ThereAreNoneForWhomHasNoSession) {
  EXPECT_EQ(calls_of(kCaller + 1), nullptr);
}

}  // namespace
}  // namespace pmstore
