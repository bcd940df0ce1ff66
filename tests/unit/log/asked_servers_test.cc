#include <gtest/gtest.h>

#include "log/internal/log_membership.h"
#include "tests/unit/log/replicated_log_fixture.h"

namespace pmstore::log {
namespace {

using internal::AskedServer;

constexpr size_t kMostAsked = 64;  // log/internal/log_membership.h

// Each server names four others of its own, which name four others, and so on: it would not end.
class AskedServers : public testing::Test {
 protected:
  static constexpr size_t kUp = (kMostAsked + 4) / kMaxReplicas;

  AskedServers() {
    for (size_t i = 0; i < kUp; ++i) {
      servers_.push_back(std::make_unique<Server>(executor_, i, persist::Domain::kCpuCache));
      EXPECT_TRUE(executor_.run(
          ReplicatedLog::create(executor_, "log", {.bytes = kLogBytes}, {servers_[i]->uri()}, {})));
      ReplicaPlace place;
      place.membership = 2;
      for (size_t k = 1; k <= kMaxReplicas; ++k) {
        place.replicas.push_back(fmt::format("local:replica{}", i * kMaxReplicas + k));
      }
      LogStore& store = servers_[i]->store();
      EXPECT_TRUE(store.set_membership(store.find("log")->id, 1, place));
    }
  }

  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  std::vector<std::unique_ptr<Server>> servers_;
};

TEST_F(AskedServers, AreNotMoreThan64HoweverManyAreNamed) {
  std::vector<std::string> first = {servers_[0]->uri()};
  const std::vector<AskedServer> all =
      executor_.run(internal::ask_servers(executor_, "log", std::move(first), {}, {}));
  size_t asked = 0;
  size_t answered = 0;
  for (const AskedServer& server : all) {
    answered += server.info ? 1 : 0;
    if (server.info || server.info.code() != ErrorCode::kProtocol) {
      ++asked;
      continue;
    }
    EXPECT_NE(server.info.error().message.find("more than 64 servers"), std::string::npos)
        << server.info.error().message;
    EXPECT_EQ(server.client, nullptr);
  }
  EXPECT_EQ(asked, kMostAsked);
  EXPECT_EQ(answered, kUp) << "those that are there come before the bound";
  EXPECT_EQ(all.size(), 1 + kUp * kMaxReplicas) << "those that were not asked are told of, too";
}

}  // namespace
}  // namespace pmstore::log
