// Lock discipline rnic: the server's compare-swaps, and the loopback that they go over, fail while
// it releases reservations and resolves clients that are gone. Nothing stays locked, nothing stays
// reserved, and a transaction has happened wholly or not at all.
#include <memory>
#include <string>

#include "pmstore/check.h"
#include "tests/unit/pmstore/fail_swaps.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

using testing::FailSwaps;
using testing::RefuseLoopbacks;

class BackgroundAtomics : public testing::ClientFixture {
 protected:
  static constexpr uint64_t kResolved = 15'000'000'000;  // virtual time for several tries

  void SetUp() override {
    format_.rings = 32;
    client_options_.reconnect_timeout_ns = 20'000'000'000;
    ClientFixture::SetUp(LockDiscipline::kRnic, 77);
  }
  std::string key(const char* name) const { return name + std::to_string(round_); }
  void prepare() {
    ++round_;
    for (const char* name : {"update", "move", "erase"}) {
      ASSERT_TRUE(run(client_->put(table_, key(name), "old")));
    }
  }
  void every_kind(Transaction& tx) {
    tx.put(table_, key("update"), "new");
    tx.put(table_, key("move"), std::string(1000, 'n'));
    tx.erase(table_, key("erase"));
    tx.insert(table_, key("insert"), "new");
  }
  void expect_all_or_nothing() {
    const auto update = run(client_->get(table_, key("update")));
    const auto move = run(client_->get(table_, key("move")));
    ASSERT_TRUE(update) << update.error().to_string();
    ASSERT_TRUE(move) << move.error().to_string();
    const bool is = *update == "new";
    EXPECT_EQ(move->size(), is ? 1000u : 3u);
    EXPECT_EQ(run(client_->get(table_, key("erase"))).has_value(), !is);
    EXPECT_EQ(run(client_->get(table_, key("insert"))).has_value(), is);
  }
  void expect_free() {
    for (const char* name : {"update", "move", "erase", "insert"}) {
      const auto change = [&](Transaction& tx) -> Task<Status> {
        tx.put(table_, key(name), "after");
        co_return Status{};
      };
      const Status status = run(retry(*client_, change, 1000));
      EXPECT_TRUE(status) << key(name) << ": " << status.error().to_string();
      static_cast<void>(run(client_->erase(table_, key(name))));
    }
  }
  void expect_sound_pool() {
    run(client_->close());
    client_.reset();
    server_.reset();
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain_, false));
    const auto report = check_store(*pool_);
    ASSERT_TRUE(report) << report.error().to_string();
    EXPECT_TRUE(report->sound()) << report->problems.front();
    EXPECT_EQ(report->live_records, 0u);
  }

  // A transaction that reserves two slots loses a race for a third record, so that both are
  // released; compare-swaps fail meanwhile.
  template <typename Injector>
  void lose_a_race(Injector& injector) {
    prepare();
    Transaction loser = client_->begin();
    EXPECT_TRUE(run(loser.get(table_, key("update"))));
    every_kind(loser);
    auto other = connect();
    EXPECT_TRUE(run(other->put(table_, key("update"), "others")));
    run(other->close());
    {
      const fabric::ScopedFaultInjector installed(injector);
      EXPECT_FALSE(run(loser.commit()));
      let_time_pass(kResolved);
    }
    const auto update = run(client_->get(table_, key("update")));
    EXPECT_TRUE(update && *update == "others");
    EXPECT_EQ(run(client_->get(table_, key("insert"))).code(), ErrorCode::kNotFound);
    expect_free();
  }

  // A client loses its connection at its n-th request and is gone; then the server's compare-swaps
  // fail. False when its transaction has fewer requests.
  template <typename Injector>
  bool vanish(uint64_t n, fabric::Fault fault, Injector& injector) {
    prepare();
    auto victim = connect();
    fabric::FailNthRequest breaks(n, fabric::FaultSide::kConnector, {fault, 0});
    {
      const fabric::ScopedFaultInjector installed(breaks);
      Transaction tx = victim->begin();
      every_kind(tx);
      Task<Status> commit = tx.commit();
      commit.start();
      for (int i = 0; i < 200 && !breaks.fired() && !commit.done(); ++i) executor_.run_once();
    }
    {
      const fabric::ScopedFaultInjector installed(injector);
      victim.reset();
      let_time_pass(kResolved);
    }
    expect_all_or_nothing();
    expect_free();
    return breaks.fired();
  }
  template <typename Make>
  void vanish_everywhere(const Make& make) {
    for (const fabric::Fault fault : {fabric::Fault::kBreakBefore, fabric::Fault::kBreakAfter}) {
      bool more = true;
      uint64_t n = 0;
      while (more && !HasFailure()) {
        ++n;
        bool fired = true;
        for (uint64_t first = 1; fired && !HasFailure(); ++first) {
          auto injector = make(first);
          more = vanish(n, fault, injector);
          fired = injector.fired();
          ++pairs_;
        }
      }
      EXPECT_FALSE(HasFailure()) << "at request " << n;
      EXPECT_GE(n, 6u) << "there were requests";
    }
    EXPECT_GE(pairs_, 24u);
    expect_sound_pool();
  }

  int round_ = 0;
  int pairs_ = 0;  // of a request of the client and a compare-swap of the server
};

TEST_F(BackgroundAtomics, ReleaseOfReservationsWhoseSwapsFail) {
  for (const fabric::Fault fault : {fabric::Fault::kBreakBefore, fabric::Fault::kBreakAfter}) {
    for (const uint64_t count : {1u, 5u, 12u}) {
      bool fired = true;
      for (uint64_t first = 1; fired && !HasFailure(); ++first) {
        FailSwaps injector(first, first + count - 1, fault);
        lose_a_race(injector);
        fired = injector.fired();
        EXPECT_FALSE(HasFailure()) << count << " from swap " << first;
      }
    }
  }
  expect_sound_pool();
}

TEST_F(BackgroundAtomics, ReleaseOfReservationsWhoseLoopbackCannotBeMade) {
  for (const uint64_t refusals : {1u, 3u, 9u}) {
    bool fired = true;
    for (uint64_t first = 1; fired && !HasFailure(); ++first) {
      RefuseLoopbacks injector(first, refusals);
      lose_a_race(injector);
      fired = injector.fired();
      EXPECT_FALSE(HasFailure()) << refusals << " from swap " << first;
    }
  }
  expect_sound_pool();
}

TEST_F(BackgroundAtomics, ResolvingAClientThatIsGoneWhoseSwapsFailOnce) {
  vanish_everywhere(
      [](uint64_t first) { return FailSwaps(first, first, fabric::Fault::kBreakAfter); });
}
TEST_F(BackgroundAtomics, ResolvingAClientThatIsGoneWhoseSwapsFailSixTimesBefore) {
  vanish_everywhere(
      [](uint64_t first) { return FailSwaps(first, first + 5, fabric::Fault::kBreakBefore); });
}
TEST_F(BackgroundAtomics, ResolvingAClientThatIsGoneWhoseSwapsFailSixTimesAfter) {
  vanish_everywhere(
      [](uint64_t first) { return FailSwaps(first, first + 5, fabric::Fault::kBreakAfter); });
}
TEST_F(BackgroundAtomics, ResolvingAClientThatIsGoneWhoseLoopbackCannotBeMade) {
  vanish_everywhere([](uint64_t first) { return RefuseLoopbacks(first, 9); });
}

}  // namespace
}  // namespace pmstore
