// Client::probe(): it goes all the ways to the pool, says which one fails, and changes no byte.
#include <algorithm>
#include <cstring>

#include "fabric/local/fault_injection.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

// What the client posts: i(mmediate), r(ead), w(rite), s(wap).
class Posted final : public fabric::FaultInjector {
 public:
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    using fabric::OpCode;
    const OpCode op = point.request.op;
    if (point.connector) {
      ops += op == OpCode::kWriteImmediate ? 'i'
             : op == OpCode::kRead         ? 'r'
             : op == OpCode::kWrite        ? 'w'
             : op == OpCode::kCompareSwap  ? 's'
                                           : '?';
    }
    return {};
  }
  std::string ops;
};

struct Way {
  LockDiscipline locks;
  persist::Domain domain;
  const char* name;
};

class Probe : public testing::ClientFixture, public ::testing::WithParamInterface<Way> {
 protected:
  void SetUp() override {
    domain_ = GetParam().domain;
    format_.rings = 32;
    ClientFixture::SetUp(GetParam().locks);
    ASSERT_NE(client_, nullptr);
    ASSERT_TRUE(run(client_->put(table_, "alice", "100")));
  }
  bool rnic() const { return GetParam().locks == LockDiscipline::kRnic; }
  std::vector<std::byte> pool_bytes() {
    const auto bytes = region_.bytes();
    return {bytes.begin(), bytes.end()};
  }
};
INSTANTIATE_TEST_SUITE_P(
    Ways, Probe,
    ::testing::Values(Way{LockDiscipline::kCpu, persist::Domain::kMemoryController, "cpu"},
                      Way{LockDiscipline::kRnic, persist::Domain::kCpuCache, "rnic"},
                      Way{LockDiscipline::kRnic, persist::Domain::kMemoryController,
                          "rnic_two_sided"}),
    [](const auto& way) { return std::string(way.param.name); });

TEST_P(Probe, GoesEveryWayAndLeavesEveryByte) {
  const std::vector<std::byte> before = pool_bytes();
  Posted posted;
  const fabric::ScopedFaultInjector installed(posted);
  const auto probe = run(client_->probe());
  ASSERT_TRUE(probe) << probe.error().to_string();
  EXPECT_TRUE(probe->read);
  EXPECT_EQ(probe->swapped, rnic());
  EXPECT_EQ(probe->wrote, rnic());
  const bool one_sided = domain_ == persist::Domain::kCpuCache;
  EXPECT_EQ(posted.ops, !rnic() ? "irrr" : one_sided ? "irrrsrwr" : "irrrsri");
  EXPECT_EQ(pool_bytes(), before);
  // Nothing is locked, and what comes after is as ever.
  ASSERT_TRUE(run(client_->put(table_, "alice", "90")));
  EXPECT_EQ(*run(client_->get(table_, "alice")), "90");
}

TEST_P(Probe, SaysWhichWayIsBlockedAndLeavesEveryByte) {
  std::string said;
  bool whole = false;
  for (uint64_t n = 1; !whole; ++n) {
    ASSERT_LT(n, 40u);
    client_ = connect();
    if (rnic()) {
      ASSERT_TRUE(run(client_->probe())) << "it has its ring from here on";
    }
    const std::vector<std::byte> before = pool_bytes();
    fabric::FailNthRequest fault(n, fabric::FaultSide::kConnector,
                                 {fabric::Fault::kBreakBefore, 0});
    const fabric::ScopedFaultInjector installed(fault);
    const auto probe = run(client_->probe());
    whole = !fault.fired();
    ASSERT_EQ(probe.has_value(), whole) << n;
    if (!whole) said += probe.error().message + "\n";
    EXPECT_EQ(pool_bytes(), before) << n;
  }
  std::vector<std::string> ways = {"a commit of nothing: ", "a READ of the records: ",
                                   "a READ of the lock words: ", "a READ of the index: "};
  if (rnic()) {
    ways.insert(ways.end(), {"a compare-and-swap of a lock word: ", "a READ of the redo ring: ",
                             "a durable write of the redo ring: "});
  }
  for (const std::string& way : ways) EXPECT_NE(said.find(way), said.npos) << way << said;
  EXPECT_EQ(static_cast<size_t>(std::count(said.begin(), said.end(), '\n')),
            ways.size() + (rnic() && domain_ == persist::Domain::kCpuCache ? 1 : 0))
      << said;
}

TEST_P(Probe, NotWhileATransactionCommits) {
  Transaction tx = client_->begin();
  tx.put(table_, "alice", "80");
  fabric::FailNthRequest late(1, fabric::FaultSide::kConnector, {fabric::Fault::kDelay, 1'000'000});
  const fabric::ScopedFaultInjector installed(late);
  Task<Status> commit = tx.commit();
  commit.start();
  EXPECT_EQ(run(client_->probe()).code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(finish(std::move(commit)));
}

// Delays the n-th request of the client, and says when it was posted.
class Late final : public fabric::FaultInjector {
 public:
  explicit Late(uint64_t n) : left_(n) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (!point.connector || left_ == 0 || --left_ > 0) return {};
    posted = true;
    return {fabric::Fault::kDelay, 1'000'000};
  }
  bool posted = false;

 private:
  uint64_t left_;
};

// Under lock discipline rnic a commit is acknowledged before it is in place. While the server is
// asked to put it there, nothing probes. (A client that puts it there itself probes behind it, on
// the same connection.)
TEST_P(Probe, NotWhileTheServerPutsACommitInPlace) {
  const bool by_server = rnic() && domain_ == persist::Domain::kMemoryController;
  unsigned refused = 0;
  for (uint64_t n = 1; n <= 8; ++n) {
    let_time_pass(10'000'000);
    Late late(n);
    const fabric::ScopedFaultInjector installed(late);
    ASSERT_TRUE(run(client_->put(table_, "alice", std::to_string(80 + n)))) << n;
    const auto probe = run(client_->probe());
    if (probe) continue;
    EXPECT_EQ(probe.code(), ErrorCode::kInvalidArgument) << n;
    ++refused;
  }
  EXPECT_EQ(refused > 0, by_server);
}

// A commit that begins while the ring is read and written back does not lose its entry to that.
TEST_P(Probe, ACommitMeanwhileIsKept) {
  for (uint64_t n = 1; n <= 8; ++n) {
    const std::string money = std::to_string(1000 + n);
    {
      Late late(n);
      const fabric::ScopedFaultInjector installed(late);
      bool over = false;
      const auto probe = [&]() -> Task<void> {
        EXPECT_TRUE(co_await client_->probe()) << n;
        over = true;
      };
      Task<void> probing = probe();
      probing.start();
      while (!late.posted && !over) let_time_pass(1000);
      EXPECT_TRUE(run(client_->put(table_, "alice", money))) << n;
      while (!over) let_time_pass(1000);
    }
    client_.reset();
    restart();  // replays the ring
    client_ = connect();
    EXPECT_EQ(run(client_->get(table_, "alice")).value(), money) << n;
  }
}

}  // namespace
}  // namespace pmstore
