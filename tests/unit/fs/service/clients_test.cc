// FilesClients: numbers that are executed once, news that are confirmed, and who is forgotten when.
#include <gtest/gtest.h>

#include "base/clock.h"
#include "fs/internal/files_clients.h"

namespace pmstore::fs::internal {
namespace {

class FilesClientsTest : public testing::Test {
 protected:
  static constexpr uint64_t kLeaseNs = 1'000'000'000;
  using Number = FilesClients::Number;

  static ClientId id_of(uint64_t number) { return ClientSecret::of_number(number).id(); }
  FilesClientRef come(uint64_t number, uint64_t last_sent = 0) {
    return clients_.came(id_of(number), 1, last_sent, session_);
  }
  void let_time_pass(uint64_t ns) {
    executor_.run([](base::Executor& executor, uint64_t for_ns) -> base::Task<void> {
      co_await executor.sleep_for(for_ns);
    }(executor_, ns));
  }
  // Whether the range is clean now.
  bool is_confirmed(base::Task<void>& waits) {
    for (int i = 0; i < 10; ++i) executor_.run_once();
    return waits.done();
  }

  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  service::Session session_;
  FilesClients clients_{executor_, kLeaseNs, 2};
};

TEST_F(FilesClientsTest, ANumberIsExecutedOnce) {
  const auto client = come(1, 5);
  EXPECT_EQ(clients_.begin(*client, 5), Number::kKnown) << "of a session before";
  EXPECT_EQ(clients_.begin(*client, 6), Number::kNew);
  EXPECT_EQ(clients_.begin(*client, 6), Number::kRunning);
  clients_.answer(*client, 6, FilesClient::Answer(3));
  EXPECT_EQ(clients_.begin(*client, 6), Number::kAnswered);
  EXPECT_EQ(clients_.begin(*client, 7), Number::kNew);
  clients_.drop(*client, 7);
  EXPECT_EQ(clients_.begin(*client, 7), Number::kNew) << "it was not executed";
  clients_.known(*client, 6);
  EXPECT_EQ(clients_.begin(*client, 6), Number::kKnown);
  clients_.known(*client, 5);
  EXPECT_EQ(clients_.begin(*client, 6), Number::kKnown) << "what is known stays known";
  EXPECT_EQ(clients_.begin(*client, 7), Number::kRunning);
}

TEST_F(FilesClientsTest, AnswersHaveABound) {
  const auto client = come(1);
  for (uint64_t number = 1; number <= FilesClients::kAnswers; ++number) {
    ASSERT_EQ(clients_.begin(*client, number), Number::kNew);
    clients_.answer(*client, number, {});
  }
  EXPECT_EQ(clients_.begin(*client, FilesClients::kAnswers + 1), Number::kTooMany);
  EXPECT_EQ(clients_.begin(*client, 1), Number::kAnswered);
  clients_.known(*client, 10);
  EXPECT_EQ(clients_.begin(*client, FilesClients::kAnswers + 1), Number::kNew);
  EXPECT_EQ(client->executed.size(), FilesClients::kAnswers - 9);
}

TEST_F(FilesClientsTest, NewsAreConfirmed) {
  const auto before = come(1);
  for (uint64_t ino = 1; ino <= 3; ++ino) clients_.add_news(Ino{ino});
  const auto client = come(2);
  EXPECT_EQ(client->confirmed, 3u) << "it begins without a map";
  EXPECT_EQ(before->confirmed, 0u);
  const auto news = clients_.news_after(1, 10);
  EXPECT_EQ(news.through, 3u);
  EXPECT_EQ(news.changed, (std::vector<Ino>{Ino{2}, Ino{3}}));
  EXPECT_TRUE(clients_.news_after(3, 10).changed.empty());
  EXPECT_FALSE(clients_.confirm(*client, 4)) << "it cannot know of it";
  before->has_maps = true;
  auto waits = clients_.all_confirmed({0, 0, kUnitBytes});
  waits.start();
  EXPECT_FALSE(is_confirmed(waits));
  EXPECT_TRUE(clients_.confirm(*before, 2));
  EXPECT_FALSE(is_confirmed(waits));
  EXPECT_TRUE(clients_.confirm(*before, 3));
  EXPECT_TRUE(clients_.confirm(*before, 1));
  EXPECT_EQ(before->confirmed, 3u) << "it never falls";
  EXPECT_TRUE(is_confirmed(waits));
  // Who confirms within two leases is not deaf, however many news there are.
  for (int i = 0; i < 12; ++i) {
    clients_.add_news(Ino{9});
    let_time_pass(kLeaseNs / 2);
    EXPECT_TRUE(clients_.look().empty()) << i;
    EXPECT_TRUE(clients_.confirm(*before, clients_.newest()));
    EXPECT_TRUE(clients_.confirm(*client, clients_.newest()));
  }
}

TEST_F(FilesClientsTest, ADataServerThatIsHeldBackHoldsUpNothingElse) {
  const auto client = come(1);
  client->has_maps = true;
  clients_.add_news(Ino{1});
  UnlandedWrites unlanded;
  unlanded[3].inos = {Ino{1}};
  EXPECT_FALSE(clients_.confirm_beside(*client, 2, unlanded)) << "it cannot know of it";
  EXPECT_TRUE(clients_.confirm_beside(*client, 1, unlanded));
  auto other = clients_.all_confirmed({0, 0, kUnitBytes});
  auto there = clients_.all_confirmed({3, 0, kUnitBytes});
  other.start();
  there.start();
  EXPECT_TRUE(is_confirmed(other));
  EXPECT_FALSE(is_confirmed(there));
  // Later news do not change what it was held back at.
  clients_.add_news(Ino{2});
  EXPECT_TRUE(clients_.confirm_beside(*client, 2, unlanded));
  EXPECT_EQ(client->confirmed_at(3), 0u);
  EXPECT_EQ(client->confirmed_at(0), 2u);
  EXPECT_FALSE(is_confirmed(there));
  // It is not deaf, but does not keep the server for ever.
  let_time_pass(2 * kLeaseNs - 1000);
  EXPECT_TRUE(clients_.held_back_long().empty());
  let_time_pass(1000);
  EXPECT_TRUE(clients_.look().empty());
  ASSERT_EQ(clients_.held_back_long().size(), 1u);
  EXPECT_EQ(clients_.held_back_long().front().second, 3);
  clients_.landed(*client, 3);
  EXPECT_TRUE(is_confirmed(there));
  EXPECT_TRUE(clients_.held_back_long().empty());
}

TEST_F(FilesClientsTest, WhatHasLandedIsConfirmedWithTheNextList) {
  const auto client = come(1);
  client->has_maps = true;
  clients_.add_news(Ino{1});
  UnlandedWrites unlanded;
  unlanded[3].any = true;
  unlanded[4].any = true;
  EXPECT_TRUE(clients_.confirm_beside(*client, 1, unlanded));
  unlanded.erase(3);
  EXPECT_TRUE(clients_.confirm_beside(*client, 1, unlanded));
  EXPECT_EQ(client->confirmed_at(3), 1u);
  EXPECT_EQ(client->confirmed_at(4), 0u);
  EXPECT_TRUE(clients_.confirm_beside(*client, 1, {}));
  EXPECT_EQ(client->confirmed_at(4), 1u);
}

TEST_F(FilesClientsTest, AListThatIsRefusedChangesNothing) {
  const auto client = come(1);
  client->has_maps = true;
  clients_.add_news(Ino{1});
  UnlandedWrites unlanded;
  unlanded[3].any = true;
  EXPECT_FALSE(clients_.confirm_beside(*client, 2, unlanded));
  EXPECT_TRUE(client->held_back.empty());
  EXPECT_TRUE(clients_.confirm_beside(*client, 1, unlanded));
  auto there = clients_.all_confirmed({3, 0, kUnitBytes});
  there.start();
  EXPECT_FALSE(clients_.confirm_beside(*client, 2, {}));
  EXPECT_FALSE(is_confirmed(there)) << "writes may land there";
  EXPECT_EQ(client->confirmed_at(3), 0u);
}

TEST_F(FilesClientsTest, NewsThatAreNotKeptAreAll) {
  for (uint64_t ino = 1; ino <= FilesClients::kNews + 10; ++ino) clients_.add_news(Ino{ino});
  EXPECT_EQ(clients_.newest(), FilesClients::kNews + 10);
  EXPECT_TRUE(clients_.news_after(9, 10'000).all);
  EXPECT_FALSE(clients_.news_after(10, 10'000).all);
  EXPECT_EQ(clients_.news_after(10, 10'000).changed.size(), FilesClients::kNews);
  const auto too_many = clients_.news_after(10, 100);
  EXPECT_TRUE(too_many.all && too_many.changed.empty());
  // The same file many times is one.
  for (int i = 0; i < 500; ++i) clients_.add_news(Ino{1});
  EXPECT_EQ(clients_.news_after(clients_.newest() - 500, 1).changed, std::vector<Ino>{Ino{1}});
}

TEST_F(FilesClientsTest, ARangeIsRetiredAnew) {
  const auto client = come(1);
  client->has_maps = true;
  const AreaRange range{0, 0, kUnitBytes};
  for (int i = 0; i < 2; ++i) {
    clients_.add_news(Ino{1});
    clients_.retire(range);
    clients_.add_news(Ino{2});
    EXPECT_TRUE(clients_.confirm(*client, clients_.newest() - 1));
    auto waits = clients_.all_confirmed(range);
    waits.start();
    EXPECT_TRUE(is_confirmed(waits)) << "the last one does not concern it";
  }
  // What was not retired waits for all of now.
  auto waits = clients_.all_confirmed(range);
  waits.start();
  EXPECT_FALSE(is_confirmed(waits));
}

TEST_F(FilesClientsTest, WhoIsAwayForALeaseIsForgotten) {
  const auto client = come(1);
  const auto stays = come(2);
  std::vector<ClientId> forgotten;
  clients_.on_forget = [&](FilesClient& gone) { forgotten.push_back(gone.id); };
  clients_.left(*client);
  let_time_pass(kLeaseNs * 3 / 4);
  clients_.look();
  EXPECT_TRUE(forgotten.empty());
  EXPECT_EQ(come(1), client) << "it finds all as it was";
  clients_.left(*client);
  let_time_pass(kLeaseNs);
  clients_.look();
  EXPECT_EQ(forgotten, std::vector<ClientId>{id_of(1)});
  EXPECT_TRUE(client->forgotten);
  EXPECT_NE(come(1), client);
  EXPECT_EQ(clients_.size(), 2u);
}

TEST_F(FilesClientsTest, WhoIsAwayLongestGoesFirst) {
  for (uint64_t number = 1; number <= 4; ++number) {
    clients_.left(*come(number));
    let_time_pass(1000);
  }
  EXPECT_EQ(clients_.find(id_of(1), 1), nullptr);
  EXPECT_EQ(clients_.find(id_of(2), 1), nullptr);
  EXPECT_NE(clients_.find(id_of(3), 1), nullptr);
  EXPECT_NE(clients_.find(id_of(4), 1), nullptr);
}

}  // namespace
}  // namespace pmstore::fs::internal
