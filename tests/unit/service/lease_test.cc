// Leases: which sessions have one, what keeps it, and that an idle host has no timer.
#include "fabric/local/local_device.h"
#include "tests/harness/unnoticing_devices.h"
#include "tests/unit/service/host_fixture.h"

namespace pmstore::service {
namespace {

class Leases : public HostFixture {
 protected:
  void SetUp() override {}  // each test's own
};

TEST_F(Leases, SilentSessionWithALeaseEnds) {
  echo_.leased = true;
  start();
  const auto silent = open(1);
  const auto alive = open(2);
  EXPECT_EQ(silent->welcome().lease_ms, kLeaseMs);
  for (int i = 0; i < 10; ++i) {
    let_time_pass(kLeaseMs / 5);
    ASSERT_TRUE(run(alive->call(kPingMethod, {}, 0)));
  }
  EXPECT_FALSE(silent->usable());
  EXPECT_TRUE(alive->usable());
  EXPECT_EQ(events_.back(), "ended: echo 1 2");
  EXPECT_EQ(echo_.counters().silent, 1u);
}

TEST_F(Leases, SessionWithoutOneMayBeSilentBesideABusyOne) {
  start();
  const auto silent = open(1);
  const auto busy = open(2);
  for (int i = 0; i < 20; ++i) {
    let_time_pass(kLeaseMs / 5);
    ASSERT_TRUE(call(*busy, kEchoMethod));
  }
  let_time_pass(1000 * kLeaseMs);
  EXPECT_TRUE(silent->usable());
}

TEST_F(Leases, EachSessionHasOneWhereTheFabricDoesNotNotice) {
  harness::UnnoticingDevices devices;
  start(&devices);
  const auto silent = open(1);
  const auto quiet = open(2, kQuiet);
  EXPECT_EQ(silent->welcome().lease_ms, kLeaseMs);
  EXPECT_EQ(quiet->welcome().lease_ms, 0u) << "it would give way";
  let_time_pass(3 * kLeaseMs);
  EXPECT_FALSE(silent->usable());
  EXPECT_TRUE(quiet->usable());
  host_.reset();
}

TEST_F(Leases, PingsOfALinkKeepIt) {
  echo_.leased = true;
  start();
  const auto link = open(1);
  link->keep_lease();
  let_time_pass(10 * kLeaseMs);
  EXPECT_TRUE(link->usable());
  const auto reports = host_->reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_GT(reports[0].calls, 10u);
  EXPECT_EQ(reports[0].worked_ns, reports[0].begun_ns) << "a ping is no work";
}

TEST_F(Leases, LinkWhosePingIsRefusedIsNotUsable) {
  echo_.leased = true;
  start();
  const auto link = open(1);
  link->keep_lease();
  echo_.epoch_now = 6;
  let_time_pass(kLeaseMs / 2);
  EXPECT_FALSE(link->usable());
  EXPECT_EQ(link->why_unusable().code, ErrorCode::kDisconnected);
}

TEST_F(Leases, SuspendedHandlerIsNotSilence) {
  echo_.leased = true;
  start();
  const auto link = open(1);
  const auto session = echo_.last.lock();
  session->active = 1;
  let_time_pass(10 * kLeaseMs);
  EXPECT_TRUE(link->usable());
  session->active = 0;
  let_time_pass(2 * kLeaseMs);
  EXPECT_FALSE(link->usable());
}

TEST_F(Leases, IdleHostHasNoTimer) {
  start();
  const auto link = open(1);
  EXPECT_TRUE(call(*link, kEchoMethod));
  let_time_pass(60'000);  // until the timer of the call has ended
  EXPECT_TRUE(executor_.quiet_until(executor_.now_ns() + 3'600'000'000'000));
}

}  // namespace
}  // namespace pmstore::service
