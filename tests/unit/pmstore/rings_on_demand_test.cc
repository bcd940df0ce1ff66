// Lock discipline rnic: which client has a redo ring, from its first commit on, and for how long.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "persist/kept_space_rules.h"
#include "persist/zero_ahead.h"
#include "pmstore/space_rules.h"
#include "tests/unit/persist/scratch.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

// Under lock discipline rnic, of a pool that can have four rings.
class RingsOnDemand : public testing::ServerFixture {
 protected:
  RingsOnDemand() { server_options_.discipline = LockDiscipline::kRnic; }
  size_t rings() const {
    const auto& all = pool_->info().extents;
    return static_cast<size_t>(std::count_if(all.begin(), all.end(), [](const auto& extent) {
      return extent.kind == persist::ExtentKind::kRings;
    }));
  }
  uint64_t granted() const {
    const std::string text = server_->stat_json();
    const std::string name = "\"granted\": ";
    return std::strtoull(text.c_str() + text.find(name) + name.size(), nullptr, 10);
  }
  uint64_t retention_ns() const {
    return uint64_t{server_options_.outcome_retention_ms} * 1'000'000;
  }
  void restart_with_places(uint32_t places) {
    server_options_.most_clients = places;
    restart();
  }
  TxId put(Client& client, std::string_view key) {
    const TableId table = *run(client.open_table("t", true));
    Transaction tx = client.begin();
    tx.put(table, key, "value");
    EXPECT_TRUE(run(tx.commit()));
    return tx.id();
  }
};

// On a sparse file.
class RingsOfAFile : public RingsOnDemand {
 protected:
  void SetUp() override {
    persist::PoolOpenOptions options;
    options.sparse = true;
    pool_ =
        std::move(*persist::Pool::create(scratch_.path("pool"), persist::kMinPoolBytes, options));
    ASSERT_TRUE(format_store(*pool_, format_));
    start();
  }
  void TearDown() override {
    RingsOnDemand::TearDown();
    server_.reset();
    pool_.reset();
  }

  persist::Scratch scratch_;
};

TEST_F(RingsOfAFile, GiveTheirBlocksBack) {
  auto client = connect();
  put(*client, "a");
  const auto& all = pool_->info().extents;
  const auto ring = *std::find_if(all.begin(), all.end(), [](const persist::Extent& extent) {
    return extent.kind == persist::ExtentKind::kRings;
  });
  // The pages in which it begins and ends have other things, too.
  constexpr uint64_t kPageBytes = 4096;
  const uint64_t begin = (ring.offset + kPageBytes - 1) / kPageBytes * kPageBytes;
  const uint64_t end = (ring.offset + ring.bytes) / kPageBytes * kPageBytes;
  const auto first_data = [&] { return pool_->next_data(begin).value_or(UINT64_MAX); };
  ASSERT_LT(first_data(), end);
  run(client->close());
  let_time_pass(1'000'000);
  ASSERT_EQ(rings(), 0u);
  EXPECT_GE(first_data(), end);
}

// On a file that has all its blocks, and whose free space had other data.
class RingsOverUsedSpace : public RingsOnDemand {
 protected:
  static constexpr uint64_t kPartsOfARing = 4;
  void SetUp() override {
    format_.rings = 1;
    persist::PoolOpenOptions options;
    options.assume_domain = persist::Domain::kMemoryController;
    format_.ring_bytes = kPartsOfARing * persist::zeroed_at_a_time(*options.assume_domain);
    pool_ =
        persist::Pool::create(scratch_.path("pool"), 2 * persist::kMinPoolBytes, options).value();
    ASSERT_TRUE(format_store(*pool_, format_));
    const uint64_t most = pool_->largest_free_extent();
    const auto used = pool_->allocate_extent(persist::ExtentKind::kLog, most).value();
    std::memset(pool_->memory().at(used.offset), 7, used.bytes);
    ASSERT_TRUE(pool_->free_extent(used));
    start();
  }
  void TearDown() override {
    RingsOnDemand::TearDown();
    server_.reset();
    pool_.reset();
  }
  // Answers to another client until a ring was granted.
  unsigned answers_meanwhile() {
    auto reads = connect();
    auto writes = connect();
    const TableId table = *run(writes->open_table("t", true));
    Task<Status> put = writes->put(table, "a", "value");
    put.start();
    unsigned answers = 0;
    for (const uint64_t before = granted(); granted() == before && answers < 1000;) {
      auto asks = reads->list_tables();
      asks.start();
      const auto waits = [&] { return !asks.done() && granted() == before; };
      for (int turn = 0; turn < 100 && waits(); ++turn) executor_.run_once();
      answers += asks.done();
    }
    EXPECT_TRUE(finish(std::move(put)));
    run(writes->close());
    run(reads->close());
    return answers;
  }

  persist::Scratch scratch_;
};

TEST_F(RingsOverUsedSpace, AreZeroedInPartsAndOthersAreAnsweredBetween) {
  const unsigned first = answers_meanwhile();
  EXPECT_GE(first, 3 + kPartsOfARing - 1);
  let_time_pass(1'000'000);
  ASSERT_EQ(rings(), 0u);
}

// Rings are all given back when clients have gone, and only a client with a ring can delete.
TEST_F(RingsOnDemand, ComeAlsoWhereAllThatIsFreeIsReservedForOthers) {
  for (const auto kind : {persist::ExtentKind::kRecords, persist::ExtentKind::kLog}) {
    persist::SpaceRules rules;
    rules.of(kind).reserve_bytes = kRegionBytes;
    ASSERT_TRUE(keep_space_rules(*pool_, rules));
    restart();
    auto one = connect();
    put(*one, "a");
    EXPECT_EQ(rings(), 1u);
    EXPECT_EQ(pool_->room_for(persist::ExtentKind::kFileData), 0u);
    const TableId table = *run(one->open_table("t"));
    EXPECT_TRUE(run(one->erase(table, "a")));
    // The reserve holds for further ones.
    auto other = connect();
    const Status refused = run(other->put(table, "b", "value"));
    ASSERT_EQ(refused.code(), ErrorCode::kFull);
    EXPECT_NE(refused.error().message.find("lower a reserve (pmstore pool limit)"),
              std::string::npos)
        << refused.error().message;
    run(one->close());
    let_time_pass(1'000'000);
    ASSERT_EQ(rings(), 0u) << extent_name(kind);
    put(*other, "b");
    run(other->close());
    let_time_pass(1'000'000);
  }
}

TEST_F(RingsOnDemand, HaveOnePieceThatRecordsLogsAndFilesLeave) {
  persist::SpaceRules rules;
  rules.of(persist::ExtentKind::kLog).reserve_bytes = 512 << 10;
  ASSERT_TRUE(keep_space_rules(*pool_, rules));
  restart();
  const uint64_t first = pool_->space_rules().unused_reserve(persist::ExtentKind::kRings, {});
  EXPECT_GE(first, format_.ring_bytes);
  for (const auto kind : {persist::ExtentKind::kFileData, persist::ExtentKind::kLog}) {
    while (const uint64_t room = pool_->room_for(kind)) {
      ASSERT_TRUE(pool_->allocate_extent(kind, room));
    }
  }
  EXPECT_GE(pool_->largest_free_extent(), format_.ring_bytes);
  auto one = connect();
  put(*one, "a");
  // As long as there are rings, nothing is left to them.
  EXPECT_EQ(pool_->space_rules().unused_reserve(persist::ExtentKind::kRings, pool_->info().extents),
            0u);
  run(one->close());
}

TEST_F(RingsOnDemand, MoreThanTheyTakeIsNotReserved) {
  const uint64_t most = format_.rings * format_.ring_bytes;
  persist::SpaceRules rules;
  rules.of(persist::ExtentKind::kRings).reserve_bytes = most;
  EXPECT_TRUE(keep_space_rules(*pool_, rules));
  rules.of(persist::ExtentKind::kRings).reserve_bytes = most + 1;
  const Status refused = keep_space_rules(*pool_, rules);
  ASSERT_EQ(refused.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("for rings, which take at most 262144 bytes (4 rings "
                                         "of 65536 bytes)"),
            std::string::npos)
      << refused.error().message;
  server_options_.ring_reserve_bytes = most + 1;
  server_.reset();
  EXPECT_EQ(run(Server::start(executor_, *pool_, server_options_)).code(),
            ErrorCode::kInvalidArgument);
}

// As a program has left it that did not compare them.
TEST_F(RingsOnDemand, MoreThanTheyTakeThatThePoolKeepsCountsAsWhatTheyTake) {
  const uint64_t most = format_.rings * format_.ring_bytes;
  persist::SpaceRules rules;
  rules.of(persist::ExtentKind::kRings).reserve_bytes = most;
  ASSERT_TRUE(write_space_rules(*pool_, rules));
  EXPECT_EQ(*excess_ring_reserve(*pool_), std::nullopt);
  rules.of(persist::ExtentKind::kRings).reserve_bytes = most + 1;
  ASSERT_TRUE(write_space_rules(*pool_, rules));
  restart();
  EXPECT_EQ(pool_->space_rules().of(persist::ExtentKind::kRings).reserve_bytes, most);
  EXPECT_EQ(**excess_ring_reserve(*pool_),
            "the pool keeps a reserve of 262145 bytes for rings, which take at most 262144 bytes: "
            "only that is reserved; set it anew (pmstore pool limit --ring-reserve 262144)");
  server_options_.ring_reserve_bytes = 1;
  restart();
  EXPECT_EQ(pool_->space_rules().of(persist::ExtentKind::kRings).reserve_bytes, 1u);
  server_options_.ring_reserve_bytes.reset();
  ASSERT_TRUE(keep_space_rules(*pool_, {}));
  EXPECT_EQ(*excess_ring_reserve(*pool_), std::nullopt);
}

TEST_F(RingsOnDemand, RulesOfARunEndWithIt) {
  server_options_.log_reserve_bytes = 512 << 10;
  restart();
  EXPECT_EQ(pool_->space_rules().of(persist::ExtentKind::kLog).reserve_bytes, 512u << 10);
  ASSERT_TRUE(run(server_->stop()));
  EXPECT_EQ(pool_->space_rules(), persist::SpaceRules());
  std::unique_ptr<Server> before = std::move(server_);
  server_options_.log_reserve_bytes = 256 << 10;
  start();
  server_options_.log_reserve_bytes.reset();
  // What is left of the earlier one takes nothing from the next one.
  before.reset();
  EXPECT_EQ(pool_->space_rules().of(persist::ExtentKind::kLog).reserve_bytes, 256u << 10);
  server_.reset();
  EXPECT_EQ(pool_->space_rules(), persist::SpaceRules());
}

TEST_F(RingsOnDemand, AreThereWhileClientsAre) {
  EXPECT_EQ(rings(), 0u);
  auto one = connect();
  auto other = connect();
  put(*one, "a");
  put(*other, "b");
  EXPECT_EQ(rings(), 2u);
  run(one->close());
  let_time_pass(1'000'000);
  EXPECT_EQ(rings(), 1u);
  run(other->close());
  let_time_pass(1'000'000);
  EXPECT_EQ(rings(), 0u);
  auto third = connect();
  EXPECT_EQ(*run(third->get(*run(third->open_table("t")), "a")), "value");
  run(third->close());
}

TEST_F(RingsOnDemand, OfVanishedClientsStayAsLongAsTheirOutcomesAreKept) {
  auto killed = connect(7);
  const TxId id = put(*killed, "a");
  killed.reset();
  let_time_pass(1'000'000);
  EXPECT_EQ(rings(), 1u);
  restart();
  EXPECT_EQ(rings(), 1u);
  auto asks = connect(8);
  EXPECT_EQ(run(asks->outcome(id)), Outcome::kCommitted);
  let_time_pass(retention_ns() - 10'000'000);
  EXPECT_EQ(run(asks->outcome(id)), Outcome::kCommitted);
  let_time_pass(20'000'000);
  EXPECT_EQ(rings(), 0u);
  EXPECT_EQ(run(asks->outcome(id)).code(), ErrorCode::kOutcomeExpired);
  EXPECT_EQ(*run(asks->get(*run(asks->open_table("t")), "a")), "value");
  run(asks->close());
}

TEST_F(RingsOnDemand, OfVanishedClientsAreGivenBackOneInATurn) {
  for (uint64_t id = 7; id < 10; ++id) put(*connect(id), "a");
  let_time_pass(1'000'000);
  restart();  // from here on all of them are kept
  ASSERT_EQ(rings(), 3u);
  let_time_pass(retention_ns() - 1);
  clock_.advance_to(clock_.now_ns() + 1);
  size_t most_in_a_turn = 0;
  for (int turn = 0; turn < 100 && rings() > 0; ++turn) {
    const size_t before = rings();
    executor_.run_once();
    most_in_a_turn = std::max(most_in_a_turn, before - rings());
  }
  EXPECT_EQ(rings(), 0u);
  EXPECT_EQ(most_in_a_turn, 1u);
}

TEST_F(RingsOnDemand, HellosThatAreNeverCompletedGiveWay) {
  restart_with_places(4);
  for (int steps = 0; steps < 24; ++steps) {
    std::vector<Task<Result<std::unique_ptr<Client>>>> half;
    for (uint64_t id = 100; id < 104; ++id) {
      ClientOptions options = client_options_;
      options.secret = ClientSecret::of_number(id);
      half.push_back(Client::connect(executor_, uri_, options));
      half.back().start();
      for (int i = 0; i < steps && !half.back().done(); ++i) let_time_pass(10);
    }
    auto same = try_connect(100);
    ASSERT_TRUE(same) << steps << ": " << same.error().to_string();
    put(**same, "a");
    if (!half[1].done()) {
      auto other = try_connect(200);
      ASSERT_TRUE(other) << steps << ": " << other.error().to_string();
      put(**other, "b");
      run((*other)->close());
    }
    run((*same)->close());
    half.clear();
    let_time_pass(retention_ns() + 1'000'000);
    EXPECT_EQ(rings(), 0u) << steps;
  }
}

// Two rings share an extent.
class SharedExtents : public RingsOnDemand {
 protected:
  SharedExtents() { format_.rings = 40; }
};

TEST_F(SharedExtents, ANewClientTakesAFreeRingThatIsThere) {
  auto killed = connect(7);
  const TxId id = put(*killed, "a");
  killed.reset();
  let_time_pass(1'000'000);
  auto next = connect(8);
  put(*next, "b");
  EXPECT_EQ(rings(), 1u);
  EXPECT_EQ(run(next->outcome(id)), Outcome::kCommitted);
  run(next->close());
  EXPECT_EQ(rings(), 1u) << "the killed client may come back";
  let_time_pass(retention_ns() + 1'000'000);
  EXPECT_EQ(rings(), 0u);
}

TEST_F(RingsOnDemand, AClientThatComesBackInTimeHasItsRing) {
  auto killed = connect(7);
  const TxId id = put(*killed, "a");
  killed.reset();
  let_time_pass(retention_ns() / 2);
  auto back = connect(7);
  EXPECT_EQ(run(back->outcome(id)), Outcome::kCommitted);
  put(*back, "b");
  EXPECT_EQ(rings(), 1u);
  let_time_pass(2 * retention_ns());
  put(*back, "c");
  EXPECT_EQ(rings(), 1u);
  run(back->close());
  let_time_pass(1'000'000);
  EXPECT_EQ(rings(), 0u);
}

TEST_F(RingsOnDemand, AClientThatComesBackAndOnlyAsksLeavesNoRingBehind) {
  auto killed = connect(7);
  const TxId id = put(*killed, "a");
  killed.reset();
  let_time_pass(1'000'000);
  auto back = connect(7);
  EXPECT_EQ(run(back->outcome(id)), Outcome::kCommitted);
  EXPECT_EQ(rings(), 1u);
  run(back->close());
  let_time_pass(1'000'000);
  EXPECT_EQ(rings(), 0u);
  EXPECT_EQ(granted(), 1u);
}

TEST_F(RingsOnDemand, ClientsThatOnlyReadHaveNone) {
  auto writes = connect();
  put(*writes, "a");
  const TableId table = *run(writes->open_table("t"));
  std::vector<std::unique_ptr<Client>> readers;
  for (int i = 0; i < 8; ++i) {
    readers.push_back(connect());
    ASSERT_NE(readers.back(), nullptr) << i;
    Transaction tx = readers.back()->begin();
    EXPECT_EQ(*run(tx.get(table, "a")), "value");
    EXPECT_EQ(run(tx.get(table, "b")).code(), ErrorCode::kNotFound);
    EXPECT_TRUE(run(tx.commit()));
    EXPECT_TRUE(run(readers.back()->scan(table, 0, 4096)));
  }
  EXPECT_EQ(rings(), 1u);
  EXPECT_EQ(granted(), 1u);
  put(*readers[5], "b");
  EXPECT_EQ(rings(), 2u);
  for (auto& reader : readers) run(reader->close());
  run(writes->close());
}

TEST_F(RingsOnDemand, OneWriterTooManyIsBackPressureUntilAnotherGoes) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(connect());
  for (int i = 0; i < 4; ++i) put(*clients[i], "a");
  const TableId table = *run(clients[4]->open_table("t"));
  const Status refused = run(clients[4]->put(table, "a", "its"));
  EXPECT_EQ(refused.code(), ErrorCode::kBackPressure);
  EXPECT_EQ(*run(clients[4]->get(table, "a")), "value");
  run(clients[0]->close());
  let_time_pass(1'000'000);
  EXPECT_TRUE(run(clients[4]->put(table, "a", "its")));
  EXPECT_EQ(clients[4]->session().reconnects, 0u);
  for (auto& client : clients) run(client->close());
}

TEST_F(RingsOnDemand, ANewWriterLeavesAClientThatIsGoneItsRing) {
  auto killed = connect(7);
  put(*killed, "a");
  killed.reset();
  let_time_pass(1'000'000);
  auto next = connect(8);
  put(*next, "b");
  EXPECT_EQ(rings(), 2u);
  run(next->close());
}

TEST_F(RingsOnDemand, CommitsAtTheSameTimeAskOnceAndOutliveTheOneThatAsked) {
  auto client = connect();
  const TableId table = *run(client->open_table("t", true));
  std::vector<Task<Status>> puts;
  for (const char* key : {"a", "b", "c"}) puts.push_back(client->put(table, key, "value"));
  for (auto& put : puts) put.start();
  puts.erase(puts.begin());  // the one that has sent the request
  EXPECT_EQ(granted(), 0u);
  for (auto& put : puts) EXPECT_TRUE(finish(std::move(put)));
  EXPECT_EQ(granted(), 1u);
  run(client->close());
}

// Each step of a grant has a turn of its own, in which others are answered.
TEST_F(RingsOnDemand, OthersAreAnsweredWhileARingIsMade) {
  auto reads = connect();
  auto writes = connect();
  const TableId table = *run(writes->open_table("t", true));
  Task<Status> put = writes->put(table, "a", "value");
  put.start();
  unsigned answers = 0;
  while (granted() == 0) {
    auto asks = reads->list_tables();
    asks.start();
    for (int turn = 0; turn < 100 && !asks.done() && granted() == 0; ++turn) executor_.run_once();
    answers += asks.done();
    ASSERT_LT(answers, 1000u);
  }
  EXPECT_GE(answers, 3u) << "one in front of each step";
  EXPECT_TRUE(finish(std::move(put)));
  run(writes->close());
  run(reads->close());
}

// It comes back meanwhile, which ends its session, whichever step of the grant has been done.
TEST_F(RingsOnDemand, ASessionThatEndsWhileItsRingIsMadeLeavesNothing) {
  constexpr int kMostTurns = 16;
  int cut_short = 0;
  for (int lead = -kMostTurns; lead < kMostTurns; ++lead) {
    {
      auto goes = connect(7);
      const TableId table = *run(goes->open_table("t", true));
      ClientOptions options = client_options_;
      options.secret = ClientSecret::of_number(7);
      Task<Result<std::unique_ptr<Client>>> again = Client::connect(executor_, uri_, options);
      Task<Status> put = goes->put(table, "a", "value");
      if (lead < 0) again.start();
      for (int turn = lead; turn < 0; ++turn) executor_.run_once();
      put.start();
      for (int turn = 0; turn < lead; ++turn) executor_.run_once();
      if (lead >= 0) again.start();
      const auto back = finish(std::move(again));
      ASSERT_TRUE(back) << lead << ": " << back.error().to_string();
      cut_short += !finish(std::move(put));
      let_time_pass(1'000'000);
      EXPECT_NE(server_->stat_json().find("\"resolving\": 0"), std::string::npos) << lead;
      run((*back)->close());
    }
    let_time_pass(retention_ns() + 1'000'000);
    EXPECT_EQ(rings(), 0u) << lead;
    auto other = connect(8);
    put(*other, "a");
    run(other->close());
    let_time_pass(1'000'000);
    EXPECT_EQ(rings(), 0u) << lead;
  }
  EXPECT_GE(cut_short, 5) << "one in front of each step";
}

}  // namespace
}  // namespace pmstore
