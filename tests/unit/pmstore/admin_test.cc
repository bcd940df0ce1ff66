// Administrators of a server: they take no place, are bounded, and end sessions in order.
#include <gtest/gtest.h>

#include <vector>

#include "pmstore/admin_client.h"
#include "pmstore/server/admin_service.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore::testing {
namespace {

// Counts what it is told.
class Observed final : public SessionObserver {
 public:
  void on_session(const SessionName&) override { ++begun; }
  void on_refused(const SessionName& session, const Error&) override { refused = session.client; }
  void on_ended(const SessionName& session, SessionEnd why) override {
    ended = session.client;
    reason = why;
  }
  void on_failure(const Error&) override { ++failures; }
  int failures = 0;
  int begun = 0;
  ClientId refused;
  ClientId ended;
  SessionEnd reason = SessionEnd::kSilent;
};

class Admin : public ServerFixture {
 protected:
  static constexpr uint32_t kPlaces = 4;
  void SetUp() override {
    server_options_.observer = &observed_;
    server_options_.most_clients = kPlaces;
    ServerFixture::SetUp();
  }
  std::unique_ptr<AdminClient> administer() {
    auto admin = run(AdminClient::connect(executor_, uri_, {}));
    EXPECT_TRUE(admin);
    return admin ? std::move(*admin) : nullptr;
  }
  Observed observed_;
};

TEST_F(Admin, AsksAServerAllOfWhosePlacesAreTaken) {
  std::vector<std::unique_ptr<Client>> clients;
  for (uint64_t i = 1; i <= kPlaces; ++i) clients.push_back(connect(i));
  EXPECT_EQ(try_connect(99).code(), ErrorCode::kBackPressure);
  EXPECT_EQ(observed_.refused, numbered::id_of(99));
  const auto admin = administer();
  const auto sessions = run(admin->sessions(0));
  ASSERT_TRUE(sessions);
  EXPECT_NE(sessions->find(R"("id": ")" + numbered::id_of(4).to_string() + R"(", "kind": "store")"),
            std::string::npos);
  EXPECT_NE(run(admin->stat())->find(R"("sessions": 4,)"), std::string::npos);
}

TEST_F(Admin, OneTooManyEndsTheOneThatWasQuietLongest) {
  std::vector<std::unique_ptr<AdminClient>> admins;
  for (size_t i = 0; i < internal::AdminService::kMaxSessions; ++i) admins.push_back(administer());
  EXPECT_TRUE(run(admins[0]->stat()));  // now the second one is quiet longest
  admins.push_back(administer());
  EXPECT_FALSE(run(admins[1]->stat()));
  EXPECT_TRUE(run(admins[0]->stat()));
  EXPECT_TRUE(run(admins.back()->stat()));
}

TEST_F(Admin, KickEndsTheSessionsOfOneClientAndNoOther) {
  auto kicked = connect(7);
  auto other = connect(8);
  const TableId table = *run(kicked->open_table("t", true));
  EXPECT_TRUE(run(kicked->put(table, "key", "value")));
  const auto admin = administer();
  EXPECT_EQ(run(admin->kick(numbered::id_of(9))), 0u);
  EXPECT_EQ(run(admin->kick(numbered::id_of(7))), 1u);
  EXPECT_EQ(observed_.ended, numbered::id_of(7));
  EXPECT_EQ(observed_.reason, SessionEnd::kKicked);
  EXPECT_EQ(run(admin->kick(numbered::id_of(7))), 0u);
  EXPECT_EQ(run(other->get(table, "key")), "value");
}

TEST_F(Admin, AnOrderlyEndIsToldAsOne) {
  auto client = connect(7);
  run(client->close());
  client.reset();
  let_time_pass(1'000'000);
  EXPECT_EQ(observed_.begun, 1);
  EXPECT_EQ(observed_.ended, numbered::id_of(7));
  EXPECT_EQ(observed_.reason, SessionEnd::kGoodbye);
}

}  // namespace
}  // namespace pmstore::testing
