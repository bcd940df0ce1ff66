// What a session costs that does nothing: no timer and no message, unless it has a lease.
#include "fabric/local/local_device.h"
#include "pmstore/client/client_session.h"
#include "tests/harness/unnoticing_devices.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

using internal::ClientSession;
using internal::SessionRef;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kHour = 3600 * kSecond;

class IdleSession : public testing::ClientFixture {
 protected:
  void SetUp() override {}  // each test's own
  void start(LockDiscipline discipline) {
    ClientFixture::SetUp(discipline);
    ASSERT_TRUE(run(client_->put(table_, "alice", "1")));
    ASSERT_TRUE(run(client_->get(table_, "alice")));
    // Until timers that such requests have started have ended.
    let_time_pass(60 * kSecond);
  }
  void end() {
    TearDown();
    server_.reset();
  }
  // A session that sends nothing by itself.
  SessionRef open_silent_session() {
    internal::SessionOptions options;
    options.secret = ClientSecret::of_number(7);
    options.call_timeout_ns = options.connect_timeout_ns = kSecond;
    auto opened =
        run(ClientSession::open(std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_)),
                                std::make_shared<internal::SessionBook>(), uri_, options));
    if (opened) return std::move(*opened);
    ADD_FAILURE() << opened.error().to_string();
    return {};
  }
  bool expired() const {
    return server_->stat_json().find(R"("leases_expired": 0,)") == std::string::npos;
  }
  // How often the time stops during an hour, and the requests of the client in it.
  struct Hour {
    uint64_t jumps;
    uint64_t messages;
  };
  Hour hour() {
    const uint64_t jumps = clock_.jumps;
    const uint64_t messages = client_->counters().server_messages;
    let_time_pass(kHour);
    return {clock_.jumps - jumps, client_->counters().server_messages - messages};
  }
};

TEST_F(IdleSession, ServerAndClientHaveNoTimer) {
  start(LockDiscipline::kCpu);
  const Hour idle = hour();
  EXPECT_EQ(idle.jumps, 1u) << "that of the test";
  EXPECT_EQ(idle.messages, 0u);
  EXPECT_EQ(*run(client_->get(table_, "alice")), "1");
  EXPECT_EQ(client_->session().reconnects, 0u);
}

TEST_F(IdleSession, ServerWithoutAClientHasNoTimer) {
  start(LockDiscipline::kRnic);
  run(client_->close());
  client_.reset();
  let_time_pass(60 * kSecond);
  const uint64_t jumps = clock_.jumps;
  let_time_pass(kHour);
  EXPECT_EQ(clock_.jumps - jumps, 1u);
}

// Locks and redo records of the client may be there at any time, without the server's knowledge.
TEST_F(IdleSession, UnderRnicItKeepsItsLease) {
  start(LockDiscipline::kRnic);
  EXPECT_GT(hour().messages, 1000u);
  EXPECT_FALSE(expired());
  EXPECT_EQ(*run(client_->get(table_, "alice")), "1");
  EXPECT_EQ(client_->session().reconnects, 0u);
}

TEST_F(IdleSession, SilentOneIsFencedUnderRnic) {
  start(LockDiscipline::kRnic);
  run(client_->close());
  client_.reset();  // nobody else says anything
  let_time_pass(60 * kSecond);
  const SessionRef silent = open_silent_session();
  EXPECT_EQ(silent->link().welcome().lease_ms, server_options_.lease_ms);
  let_time_pass(60 * kSecond);
  EXPECT_TRUE(expired());
  EXPECT_FALSE(silent->usable());
}

TEST_F(IdleSession, SilentOneStaysBesideABusyOne) {
  start(LockDiscipline::kCpu);
  const SessionRef silent = open_silent_session();
  EXPECT_EQ(silent->link().welcome().lease_ms, 0u);
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(run(client_->put(table_, "alice", "1")));
    let_time_pass(kSecond);
  }
  EXPECT_TRUE(silent->usable());
  EXPECT_FALSE(expired());
}

// Nothing else says that it is gone.
TEST_F(IdleSession, SilentOneIsFencedWhereTheFabricDoesNotNotice) {
  harness::UnnoticingDevices devices;
  server_options_.devices = &devices;
  start(LockDiscipline::kCpu);
  EXPECT_GT(hour().messages, 1000u);
  SessionRef silent = open_silent_session();
  let_time_pass(60 * kSecond);
  EXPECT_TRUE(expired());
  EXPECT_FALSE(silent->usable());
  EXPECT_TRUE(run(client_->put(table_, "alice", "2")));
  EXPECT_EQ(client_->session().reconnects, 0u);
  silent = {};
  end();
}

}  // namespace
}  // namespace pmstore
