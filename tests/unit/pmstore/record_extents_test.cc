// A server whose records take extents from the pool while it serves, and give them back.
#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/local/fault_injection.h"
#include "fabric/local/local_device.h"
#include "pmstore/admin_client.h"
#include "pmstore/check.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/embedded.h"
#include "tests/unit/pmstore/record_extents_fixture.h"

namespace pmstore::testing {
namespace {

class RecordExtents : public RecordExtentsFixture,
                      public ::testing::WithParamInterface<LockDiscipline> {
 protected:
  void SetUp() override { RecordExtentsFixture::SetUp(GetParam()); }
};
// A session has no lease while it holds nothing.
class RecordExtentsWithoutLease : public RecordExtentsFixture {
 protected:
  void SetUp() override { RecordExtentsFixture::SetUp(LockDiscipline::kCpu); }
};

TEST_P(RecordExtents, AClientThatCameBeforeReadsAndWritesWhatLiesInALaterOne) {
  fill(4);
  for (int round = 0; round < 2; ++round) expect_there(*client_);
  for (int i = 0; i < count_; i += 5) {
    ASSERT_TRUE(run(client_->put(table_, key_of(i), value_of(i + 1))));
    EXPECT_EQ(run(client_->get(table_, key_of(i))).value(), value_of(i + 1));
  }
}

TEST_P(RecordExtents, AClientThatCameBeforeLearnsWhereLaterOnesAreAndReadsThemOneSided) {
  fill(4);
  for (int round = 0; round < 2; ++round) expect_there(*client_);
  const uint64_t gets = served_gets();
  EXPECT_EQ(messages_to_read_all(*client_), 0u);
  EXPECT_EQ(served_gets(), gets);
}

TEST_P(RecordExtents, OneRequestTellsOfAllThatThereAre) {
  client_options_.location_cache_entries = 0;
  client_options_.misses = MissPath::kOneSided;
  const auto reader = connect();
  ASSERT_NE(reader, nullptr);
  fill(4);
  EXPECT_EQ(messages_to_read_all(*reader), 1u);
  EXPECT_EQ(messages_to_read_all(*reader), 0u);
  run(reader->close());
}

TEST_P(RecordExtents, AClientThatComesLaterReadsAllOfThemOneSided) {
  fill(4);
  const auto later = connect();
  ASSERT_NE(later, nullptr);
  expect_there(*later);  // its cache is warm from here on
  const uint64_t before = served_gets();
  expect_there(*later);
  EXPECT_EQ(served_gets(), before);
  for (int i = 0; i < count_; i += 5) {
    ASSERT_TRUE(run(later->put(table_, key_of(i), value_of(i + 1))));
    EXPECT_EQ(run(client_->get(table_, key_of(i))).value(), value_of(i + 1));
  }
  run(later->close());
}

// Notes of each registration of a frame whether a turn had begun since the frame got its memory.
class WatchedRegistrations final : public fabric::FaultInjector {
 public:
  WatchedRegistrations(uint64_t frame_bytes, std::function<bool()> in_a_later_turn)
      : frame_bytes_(frame_bytes), in_a_later_turn_(std::move(in_a_later_turn)) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint&) override { return {}; }
  bool refuses_memory(uint64_t bytes) override {
    if (bytes > frame_bytes_ / 2 && bytes <= frame_bytes_) {
      later.push_back(in_a_later_turn_());
    }
    return false;
  }
  std::vector<bool> later;

 private:
  const uint64_t frame_bytes_;
  std::function<bool()> in_a_later_turn_;
};

TEST_P(RecordExtents, ANewOneIsRegisteredInALaterTurnThanThatWhichTookIt) {
  size_t seen = extents();
  bool over = false;
  const auto look = [&]() -> Task<void> {
    while (!over) {
      seen = extents();
      co_await executor_.yield();
    }
  };
  WatchedRegistrations watched(kFrameBytes, [&] { return seen == extents(); });
  {
    const fabric::ScopedFaultInjector injector(watched);
    executor_.spawn(look());
    for (int i = 0; extents() < 4; ++i) {
      ASSERT_TRUE(run(client_->put(table_, key_of(i), value_of(i))));
    }
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(run(client_->list_tables()));
    over = true;
    let_time_pass(1'000'000);
  }
  EXPECT_EQ(watched.later, std::vector<bool>(3, true));
}

TEST_P(RecordExtents, EmptyOnesGoBackToThePool) {
  fill(4);
  const uint64_t free_bytes = pool_->info().free_bytes;
  erase_all(*client_);
  EXPECT_EQ(extents(), 1u);
  EXPECT_GT(pool_->info().free_bytes, free_bytes);
  fill(3);
  expect_there(*client_);
  const auto later = connect();
  ASSERT_NE(later, nullptr) << "the regions are those of the new extents";
  expect_there(*later);
  run(later->close());
  restart();
  EXPECT_TRUE(check_store(*pool_)->sound());
}

TEST_P(RecordExtents, OneThatAClientMayReadStaysUntilItsSessionEnds) {
  fill(4);
  const auto later = connect();
  ASSERT_NE(later, nullptr);
  expect_there(*later);
  erase_all(*client_);
  EXPECT_EQ(extents(), 4u) << "it has not heard that they go";
  run(later->close());
  look_again();
  EXPECT_EQ(extents(), 1u);
}

TEST_P(RecordExtents, OneThatAClientMayReadGoesBackWhenTheClientHasHeardOfIt) {
  fill(4);
  const auto later = connect();
  ASSERT_NE(later, nullptr);
  expect_there(*later);
  erase_all(*client_);
  ASSERT_EQ(extents(), 4u);
  for (int i = 0; i < count_; ++i) {
    EXPECT_EQ(run(later->get(table_, key_of(i))).code(), ErrorCode::kNotFound);
  }
  let_time_pass(1'000'000);
  EXPECT_EQ(extents(), 1u);
  fill(4);
  for (int round = 0; round < 2; ++round) {
    expect_there(*later);
    let_time_pass(1'000'000'000);
  }
  EXPECT_EQ(messages_to_read_all(*later), 0u) << "the regions are those of the new extents";
  EXPECT_EQ(later->session().reconnects, 0u);
  run(later->close());
}

// The records that were there are still in the frame, where no other record has overwritten them.
TEST_P(RecordExtents, OneThatIsTakenAgainTellsNobodyOfTheRecordsThatItHad) {
  fill(4);
  const int before = count_;
  expect_there(*client_);
  erase_all(*client_);
  ASSERT_EQ(extents(), 1u);
  for (int i = 0; extents() < 2; ++i) {
    ASSERT_TRUE(run(client_->put(table_, "other" + std::to_string(i), value_of(i))));
  }
  let_time_pass(1'000'000);
  const auto later = connect();
  ASSERT_NE(later, nullptr);
  for (int i = 0; i < before; ++i) {
    EXPECT_EQ(run(client_->get(table_, key_of(i))).code(), ErrorCode::kNotFound) << i;
    EXPECT_EQ(run(later->get(table_, key_of(i))).code(), ErrorCode::kNotFound) << i;
  }
  run(later->close());
}

TEST_F(RecordExtentsWithoutLease, ASilentClientKeepsAnExtentForTwoLeases) {
  fill(4);
  const auto silent = connect();
  ASSERT_NE(silent, nullptr);
  expect_there(*silent);
  erase_all(*client_);
  let_time_pass(lease_ns());
  EXPECT_EQ(extents(), 4u);
  let_time_pass(2 * lease_ns());
  EXPECT_EQ(extents(), 1u);
  EXPECT_EQ(run(silent->get(table_, key_of(1))).code(), ErrorCode::kNotFound);
  EXPECT_EQ(silent->session().reconnects, 1u);
  run(silent->close());
}

TEST_F(RecordExtentsWithoutLease, AClientThatWasSilentAsksBeforeItReads) {
  fill(4);
  for (int round = 0; round < 2; ++round) expect_there(*client_);
  let_time_pass(lease_ns());
  EXPECT_EQ(messages_to_read_all(*client_), 1u);
  EXPECT_EQ(messages_to_read_all(*client_), 0u);
}

// The first answer tells of the list, the second operation asks for it; neither drives the executor
// any further.
TEST_F(RecordExtentsWithoutLease, AClientThatPutsOnceInAWhileKeepsItsSession) {
  for (const double leases : {0.5, 0.98, 1.02, 1.9}) {
    fill(4);
    const auto later = connect();
    ASSERT_NE(later, nullptr);
    expect_there(*later);
    erase_all(*client_);
    ASSERT_EQ(extents(), 4u);
    for (int i = 0; i < 8; ++i) {
      be_away(leases);
      const Status put = run(later->put(table_, "slow", value_of(i)));
      ASSERT_TRUE(put) << leases << ", " << i << ": " << put.error().to_string();
    }
    EXPECT_EQ(later->session().reconnects, 0u) << leases;
    EXPECT_EQ(extents(), 1u) << leases;
    ASSERT_TRUE(run(later->erase(table_, "slow")));
    run(later->close());
  }
}

TEST_F(RecordExtentsWithoutLease, AClientConfirmsAListBeforeItsNextOperation) {
  fill(4);
  const auto later = connect();
  ASSERT_NE(later, nullptr);
  expect_there(*later);
  erase_all(*client_);
  ASSERT_TRUE(run(later->put(table_, "told", "by its answer")));
  ASSERT_EQ(extents(), 4u);
  ASSERT_TRUE(run(later->put(table_, "told", "before it begins")));
  EXPECT_EQ(extents(), 1u);
  run(later->close());
}

TEST_F(RecordExtentsWithoutLease, ATransactionThatOnlyReadsKeepsItsSession) {
  ASSERT_TRUE(run(client_->put(table_, "stays", "here")));
  for (const double leases : {0.6, 0.98, 1.5}) {
    fill(4);
    const auto reader = connect();
    ASSERT_NE(reader, nullptr);
    expect_there(*reader);
    ASSERT_TRUE(run(reader->get(table_, "stays")));
    erase_all(*client_);
    ASSERT_EQ(extents(), 4u);
    Transaction tx = reader->begin();
    for (int i = 0; i < 8; ++i) {
      const auto got = run(tx.get(table_, "stays"));
      ASSERT_TRUE(got) << leases << ", " << i << ": " << got.error().to_string();
      be_away(leases);
    }
    tx.put(table_, "stays", "still");
    EXPECT_TRUE(run(tx.commit())) << leases;
    EXPECT_EQ(reader->session().reconnects, 0u) << leases;
    EXPECT_EQ(extents(), 1u) << leases;
    run(reader->close());
  }
}

// What it has read may have changed: the commit did not begin, and its outcome is known.
TEST_F(RecordExtentsWithoutLease, ACommitAfterALongSilenceIsNotInDoubt) {
  ASSERT_TRUE(run(client_->put(table_, "stays", "here")));
  fill(4);
  const auto silent = connect();
  ASSERT_NE(silent, nullptr);
  expect_there(*silent);
  erase_all(*client_);
  Transaction tx = silent->begin();
  ASSERT_TRUE(run(tx.get(table_, "stays")));
  tx.put(table_, "stays", "changed");
  let_time_pass(3 * lease_ns());
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict);
  run(silent->close());
}

TEST_F(RecordExtentsWithoutLease, OperationsThatBeginAtOnceAfterALongSilenceShareOnePing) {
  constexpr int kTogether = 16;
  fill(4);
  const auto silent = connect();
  ASSERT_NE(silent, nullptr);
  expect_there(*silent);
  for (const bool ended : {true, false}) {
    if (ended) {
      erase_all(*client_);
      let_time_pass(3 * lease_ns());
    } else {
      be_away(3);
    }
    const uint64_t before = silent->counters().server_messages;
    std::deque<std::string> texts;
    std::deque<Task<Status>> puts;
    for (int i = 0; i < kTogether; ++i) {
      const std::string& key = texts.emplace_back(key_of(i));
      puts.push_back(silent->put(table_, key, texts.emplace_back(value_of(i))));
      puts.back().start();
    }
    if (!ended) {
      EXPECT_LE(silent->counters().server_messages - before, 1u) << "they wait for the answer";
    }
    for (auto& put : puts) {
      const Status done = finish(std::move(put));
      EXPECT_TRUE(done) << done.error().to_string();
    }
    EXPECT_EQ(silent->session().reconnects, 1u);
    if (!ended) {
      EXPECT_EQ(silent->counters().server_messages - before, kTogether + 1u);
    }
    fill(4);
    expect_there(*silent);
  }
  run(silent->close());
}

// It cannot confirm before the READ has ended.
TEST_F(RecordExtentsWithoutLease, AClientThatSendsWhileAReadOfItTakesLongIsEndedAfterFourLeases) {
  client_options_.call_timeout_ns = 20 * lease_ns();
  for (const uint64_t leases : {3, 9}) {
    fill(4);
    const auto reader = connect();
    ASSERT_NE(reader, nullptr);
    for (int round = 0; round < 2; ++round) expect_there(*reader);
    fabric::FailNthRequest delay(1, fabric::FaultSide::kConnector,
                                 {fabric::Fault::kDelay, leases * lease_ns()});
    const std::string last = key_of(count_ - 1);
    Task<Result<std::string>> slow = reader->get(table_, last);
    {
      const fabric::ScopedFaultInjector installed(delay);
      slow.start();
    }
    ASSERT_FALSE(slow.done());
    erase_all(*client_);
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(extents() > 1, i < 2 * static_cast<int>(std::min<uint64_t>(leases, 4))) << i;
      let_time_pass(lease_ns() / 2);
      const Status put = run(reader->put(table_, "busy", value_of(i)));
      ASSERT_TRUE(put) << leases << ", " << i << ": " << put.error().to_string();
    }
    EXPECT_EQ(reader->session().reconnects, leases < 4 ? 0u : 1u);
    const auto got = finish(std::move(slow));
    EXPECT_EQ(got.has_value(), leases < 4);
    ASSERT_TRUE(run(client_->erase(table_, "busy")));
    run(reader->close());
  }
}

TEST_F(RecordExtentsWithoutLease, AnOperationThatIsDestroyedWhileItPingsHoldsNoOtherUp) {
  fill(4);
  for (int round = 0; round < 2; ++round) expect_there(*client_);
  for (int turns = 0; turns < 8; ++turns) {
    be_away(1.5);
    Task<Result<std::string>> waits = client_->get(table_, "key1");
    {
      Task<Result<std::string>> pings = client_->get(table_, "key0");
      pings.start();
      waits.start();
      for (int turn = 0; turn < turns; ++turn) executor_.run_once();
    }
    EXPECT_EQ(finish(std::move(waits)).value(), value_of(1)) << turns;
  }
}

// Opens devices on which what is posted takes a while.
class OpensLate final : public fabric::DeviceOpener {
 public:
  Result<std::unique_ptr<fabric::Device>> open(fabric::Scheme, Executor& executor) override {
    return fabric::open_local_device(executor, {.late_effects_seed = 3});
  }
};

// The last of them has posted READs without a completion, and waits for room in the send queue.
TEST_F(RecordExtentsWithoutLease, ReadersThatAreDestroyedBetweenTwoBatchesHoldNoneBack) {
  constexpr int kReads = 45;
  constexpr int kReaders = 23;
  for (int i = 0; i < kReads; ++i) {
    ASSERT_TRUE(run(client_->put(table_, "stays" + std::to_string(i), "here")));
  }
  fill(4);
  OpensLate late;
  client_options_.devices = &late;
  const auto reader = connect();
  ASSERT_NE(reader, nullptr);
  expect_there(*reader);
  {
    std::deque<Transaction> transactions;
    std::deque<Task<Status>> commits;
    for (int each = 0; each < kReaders; ++each) {
      Transaction& tx = transactions.emplace_back(reader->begin());
      for (int i = 0; i < kReads; ++i) {
        ASSERT_TRUE(run(tx.get(table_, "stays" + std::to_string(i))));
      }
    }
    for (Transaction& tx : transactions) commits.push_back(tx.commit());
    for (auto& commit : commits) commit.start();
    EXPECT_FALSE(commits.back().done());
  }
  erase_all(*client_);
  ASSERT_EQ(extents(), 4u);
  for (int i = 0; i < 16; ++i) {
    let_time_pass(lease_ns() / 4);
    ASSERT_TRUE(run(reader->put(table_, "busy", value_of(i))));
  }
  EXPECT_EQ(extents(), 1u);
  EXPECT_EQ(reader->session().reconnects, 0u);
  run(reader->close());
}

TEST_F(RecordExtentsWithoutLease, OneIsFreedWhenItsLastReaderBecomesAClientInThisProcess) {
  constexpr uint64_t kReader = 7;
  fill(4);
  internal::SessionOptions options;
  options.secret = ClientSecret::of_number(kReader);
  options.call_timeout_ns = options.connect_timeout_ns = 1'000'000'000;
  const auto reader = run(internal::ClientSession::open(
      std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_)),
      std::make_shared<internal::SessionBook>(), uri_, options));
  ASSERT_TRUE(reader) << reader.error().to_string();
  erase_all(*client_);
  ASSERT_EQ(extents(), 4u);
  const auto calls = internal::Embedded::calls_of(*server_, numbered::id_of(kReader),
                                                  std::make_shared<const uint64_t>(0));
  ASSERT_NE(calls, nullptr);
  let_time_pass(1'000'000);
  EXPECT_EQ(extents(), 1u);
}

TEST_F(RecordExtentsWithoutLease, AClientThatKnowsNoneThatCanGoAsksNothing) {
  ASSERT_TRUE(run(client_->put(table_, key_of(0), value_of(0))));
  count_ = 1;
  for (int round = 0; round < 2; ++round) expect_there(*client_);
  let_time_pass(3 * lease_ns());
  EXPECT_EQ(messages_to_read_all(*client_), 0u);
}

TEST_P(RecordExtents, OneThatAClientOnlyReadsByRpcGoesBackWhileItIsConnected) {
  fill(4);
  client_options_.one_sided_reads = false;
  const auto by_rpc = connect();
  ASSERT_NE(by_rpc, nullptr);
  expect_there(*by_rpc);
  for (int i = 0; i < count_; i += 5) {
    ASSERT_TRUE(run(by_rpc->put(table_, key_of(i), value_of(i + 1))));
    EXPECT_EQ(run(client_->get(table_, key_of(i))).value(), value_of(i + 1));
  }
  erase_all(*client_);
  EXPECT_EQ(extents(), GetParam() == LockDiscipline::kCpu ? 1u : 4u) << "under rnic it writes them";
  EXPECT_EQ(run(by_rpc->get(table_, key_of(1))).code(), ErrorCode::kNotFound);
  fill(3);
  expect_there(*by_rpc);
  run(by_rpc->close());
}

TEST_P(RecordExtents, AStartGivesBackWhatNobodyMayReadAnyMore) {
  fill(3);
  const auto later = connect();
  erase_all(*client_);
  ASSERT_EQ(extents(), 3u);
  restart();
  EXPECT_EQ(extents(), 1u);
  client_ = connect();
}

INSTANTIATE_TEST_SUITE_P(Locks, RecordExtents,
                         ::testing::Values(LockDiscipline::kCpu, LockDiscipline::kRnic),
                         [](const auto& locks) {
                           return std::string(discipline_name(locks.param));
                         });

}  // namespace
}  // namespace pmstore::testing
