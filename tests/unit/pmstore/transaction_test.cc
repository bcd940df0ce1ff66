// What a transaction sends at commit under lock discipline cpu, and what validation costs.
#include "tests/unit/pmstore/client_fixture.h"

namespace pmstore {
namespace {

constexpr SlotOffset kAlice{64 * 40};
constexpr SlotOffset kBob{64 * 50};

class Tx : public testing::FakeServerFixture {
 protected:
  void SetUp() override {
    server_->place(kAlice, kTable, "alice", "90", 5);
    server_->place(kBob, kTable, "bob", "10", 8);
    connect();
  }
  Result<std::string> read(Transaction& tx, std::string_view key) {
    return run(tx.get(kTable, key));
  }
  // What the last request was.
  testing::DecodedCommit sent() { return testing::DecodedCommit(server_->requests.back().body); }
  // Writes of one key, committed; what was sent.
  testing::DecodedCommit commit_of(const std::function<void(Transaction&)>& body) {
    Transaction tx = client_->begin();
    body(tx);
    const Status status = run(tx.commit());
    EXPECT_TRUE(status) << status.error().to_string();
    return sent();
  }
};

TEST_F(Tx, ReadsItsOwnWrites) {
  Transaction tx = client_->begin();
  EXPECT_EQ(*read(tx, "alice"), "90");
  tx.put(kTable, "alice", "80");
  EXPECT_EQ(*read(tx, "alice"), "80");
  tx.put(kTable, "alice", "a longer value than before");
  EXPECT_EQ(*read(tx, "alice"), "a longer value than before");
  tx.erase(kTable, "alice");
  EXPECT_EQ(read(tx, "alice").code(), ErrorCode::kNotFound);
  tx.insert(kTable, "carol", "1");
  EXPECT_EQ(*read(tx, "carol"), "1");
  EXPECT_EQ(*read(tx, "bob"), "10");
}

TEST_F(Tx, UncommittedItSendsNothing) {
  {
    Transaction tx = client_->begin();
    tx.put(kTable, "alice", "80");
  }
  Transaction tx = client_->begin();
  tx.put(kTable, "alice", "80");
  tx.abort();
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(server_->requests.size(), 0u);
}

TEST_F(Tx, IsOverAfterItsCommit) {
  Transaction tx = client_->begin();
  tx.put(kTable, "alice", "80");
  EXPECT_EQ(tx.id(), TxId{});
  EXPECT_TRUE(run(tx.commit()));
  EXPECT_EQ(tx.id(), (TxId{client_->id(), 1}));
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(read(tx, "alice").code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(server_->requests.size(), 1u);
}

TEST_F(Tx, EmptyOneAndSingleReadAreFree) {
  Transaction empty = client_->begin();
  Transaction single = client_->begin();
  EXPECT_EQ(*read(single, "alice"), "90");
  Transaction absent = client_->begin();
  EXPECT_EQ(read(absent, "nobody").code(), ErrorCode::kNotFound);
  const auto spent = cost([&] {
    EXPECT_TRUE(run(empty.commit()));
    EXPECT_TRUE(run(single.commit()));
    EXPECT_TRUE(run(absent.commit()));
  });
  EXPECT_EQ(spent.work_requests, 0u);
}

TEST_F(Tx, ReadOnlyIsValidatedInOneDoorbell) {
  Transaction tx = client_->begin();
  EXPECT_EQ(*read(tx, "alice"), "90");
  EXPECT_EQ(*read(tx, "bob"), "10");
  EXPECT_EQ(read(tx, "nobody").code(), ErrorCode::kNotFound);
  const auto spent = cost([&] { EXPECT_TRUE(run(tx.commit())); });
  EXPECT_EQ(spent.doorbells, 1u);
  EXPECT_EQ(spent.round_trips, 1u);
  EXPECT_EQ(spent.work_requests, 3u);
  EXPECT_EQ(spent.server_messages, 0u);
}

TEST_F(Tx, ReadOnlyConflictsWithEveryChange) {
  const std::function<void()> changes[] = {
      [&] { server_->store(kAlice, kTable, "alice", "91", 6); },
      [&] { server_->word_of(kBob) = LockWord::locked(8, 3); },
      [&] { server_->bucket_of(kTable, "nobody").version += 2; },
      [&] { server_->bucket_of(kTable, "nobody").version += 1; }};
  for (const auto& change : changes) {
    server_->place(kAlice, kTable, "alice", "90", 5);
    server_->place(kBob, kTable, "bob", "10", 8);
    server_->bucket_of(kTable, "nobody").version &= ~uint64_t{1};
    Transaction tx = client_->begin();
    ASSERT_TRUE(read(tx, "alice"));
    ASSERT_TRUE(read(tx, "bob"));
    ASSERT_EQ(read(tx, "nobody").code(), ErrorCode::kNotFound);
    change();
    EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict);
  }
}

TEST_F(Tx, ManyReadsAreValidatedWithOneWait) {
  constexpr unsigned kRecords = 100;
  Transaction tx = client_->begin();
  for (unsigned i = 0; i < kRecords; ++i) {
    const std::string key = "many" + std::to_string(i);
    server_->place(SlotOffset{64 * (100 + i)}, kTable, key, "v", 1);
    ASSERT_TRUE(read(tx, key));
    server_->unindex(kTable, key);  // keeps buckets small; the record stays
  }
  const auto spent = cost([&] { EXPECT_TRUE(run(tx.commit())); });
  EXPECT_EQ(spent.work_requests, kRecords);
  EXPECT_EQ(spent.doorbells, 4u) << "32 work requests each";
  EXPECT_EQ(spent.round_trips, 1u);
}

TEST_F(Tx, WithoutOneSidedReadsTheServerValidates) {
  options_.one_sided_reads = false;
  GetReply found{};
  found.found = FoundRecord::kWithValue;
  found.slot = raw(kAlice);
  found.version = 5;
  GetReply absent{};
  absent.bucket = 3;
  absent.bucket_version = 10;
  server_->answer = [&](const auto& request, fabric::RpcCall call) {
    if (request.method != Method::kGet) {
      return testing::FakeServer::answer_plainly(request, std::move(call));
    }
    MessageReader reader(request.body);
    const auto get = reader.get<GetRequest>();
    call.reply(get_reply(reader.get_bytes(get.key_bytes) == "alice" ? found : absent, {}));
  };
  connect();
  Transaction tx = client_->begin();
  ASSERT_TRUE(read(tx, "alice"));
  ASSERT_EQ(read(tx, "nobody").code(), ErrorCode::kNotFound);
  EXPECT_TRUE(run(tx.commit()));
  const auto commit = sent();
  ASSERT_TRUE(commit.complete);
  ASSERT_EQ(commit.reads.size(), 1u);
  EXPECT_EQ(commit.reads[0].slot, raw(kAlice));
  EXPECT_EQ(commit.reads[0].version, 5u);
  ASSERT_EQ(commit.absences.size(), 1u);
  EXPECT_EQ(commit.absences[0].bucket, 3u);
  EXPECT_EQ(commit.absences[0].version, 10u);
  EXPECT_TRUE(commit.writes.empty());
  EXPECT_EQ(tx.id(), TxId{}) << "it writes nothing, so nothing can be in doubt";
}

TEST_F(Tx, WriteOfWhatWasReadCarriesItsVersion) {
  const auto commit = commit_of([&](Transaction& tx) {
    ASSERT_TRUE(read(tx, "alice"));
    ASSERT_TRUE(read(tx, "bob"));
    tx.put(kTable, "alice", "80");
  });
  ASSERT_TRUE(commit.complete);
  ASSERT_EQ(commit.reads.size(), 1u) << "the write checks the other one itself";
  EXPECT_EQ(commit.reads[0].slot, raw(kBob));
  EXPECT_EQ(commit.reads[0].version, 8u);
  ASSERT_EQ(commit.writes.size(), 1u);
  EXPECT_EQ(commit.writes[0].op.expected_slot, raw(kAlice));
  EXPECT_EQ(commit.writes[0].op.expected_version, 5u);
}

TEST_F(Tx, InsertOfWhatWasAbsentCarriesTheBucket) {
  const auto commit = commit_of([&](Transaction& tx) {
    ASSERT_EQ(read(tx, "carol").code(), ErrorCode::kNotFound);
    tx.insert(kTable, "carol", "1");
  });
  ASSERT_EQ(commit.absences.size(), 1u);
  EXPECT_EQ(commit.absences[0].bucket,
            hash_key(kTable, "carol").bucket(testing::FakeServer::kBuckets));
  EXPECT_EQ(commit.absences[0].version, server_->bucket_of(kTable, "carol").version);
  EXPECT_EQ(commit.writes[0].op.kind, WriteKind::kInsert);
  EXPECT_EQ(commit.writes[0].op.expected_version, 0u);
}

TEST_F(Tx, WritesOfOneKeyBecomeOne) {
  using Commit = testing::DecodedCommit;
  const auto expect = [](const Commit& commit, WriteKind kind, std::string_view value,
                         uint64_t version) {
    ASSERT_TRUE(commit.complete);
    ASSERT_EQ(commit.writes.size(), 1u);
    EXPECT_EQ(commit.writes[0].op.kind, kind);
    EXPECT_EQ(commit.writes[0].value, value);
    EXPECT_EQ(commit.writes[0].op.expected_version, version);
  };
  expect(commit_of([](Transaction& tx) {
           tx.put(kTable, "alice", "1");
           tx.put(kTable, "alice", "twenty");
           tx.put(kTable, "alice", "3");
         }),
         WriteKind::kPut, "3", 0);
  expect(commit_of([](Transaction& tx) {
           tx.insert(kTable, "carol", "1");
           tx.put(kTable, "carol", "2");
         }),
         WriteKind::kInsert, "2", 0);
  // The record must be there, so the transaction looks, and then depends on what it saw.
  expect(commit_of([](Transaction& tx) {
           tx.erase(kTable, "alice");
           tx.insert(kTable, "alice", "2");
         }),
         WriteKind::kPut, "2", 5);
  expect(commit_of([](Transaction& tx) {
           tx.erase(kTable, "alice");
           tx.put(kTable, "alice", "2");
         }),
         WriteKind::kPut, "2", 5);
  expect(commit_of([](Transaction& tx) {
           tx.put(kTable, "alice", "2");
           tx.erase(kTable, "alice");
         }),
         WriteKind::kErase, "", 5);
}

TEST_F(Tx, WritesThatCancelEachOtherOnlyLook) {
  Transaction put = client_->begin();
  put.put(kTable, "nobody", "1");
  put.erase(kTable, "nobody");
  EXPECT_TRUE(run(put.commit()));
  Transaction insert = client_->begin();
  insert.insert(kTable, "nobody", "1");
  insert.erase(kTable, "nobody");
  EXPECT_TRUE(run(insert.commit()));
  EXPECT_EQ(server_->requests.size(), 0u);
}

TEST_F(Tx, ContradictionsAreFoundWithoutTheServer) {
  const auto outcome = [&](const std::function<void(Transaction&)>& body) {
    Transaction tx = client_->begin();
    body(tx);
    return run(tx.commit()).code();
  };
  EXPECT_EQ(outcome([](Transaction& tx) {
              tx.insert(kTable, "carol", "1");
              tx.insert(kTable, "carol", "1");
            }),
            ErrorCode::kAlreadyExists);
  EXPECT_EQ(outcome([](Transaction& tx) {
              tx.put(kTable, "carol", "1");
              tx.insert(kTable, "carol", "1");
            }),
            ErrorCode::kAlreadyExists);
  EXPECT_EQ(outcome([](Transaction& tx) {
              tx.erase(kTable, "alice");
              tx.erase(kTable, "alice");
            }),
            ErrorCode::kNotFound);
  EXPECT_EQ(outcome([](Transaction& tx) {
              tx.insert(kTable, "alice", "1");
              tx.erase(kTable, "alice");
            }),
            ErrorCode::kAlreadyExists);
  EXPECT_EQ(outcome([](Transaction& tx) {
              tx.erase(kTable, "nobody");
              tx.put(kTable, "nobody", "1");
            }),
            ErrorCode::kNotFound);
  EXPECT_EQ(outcome([&](Transaction& tx) {
              ASSERT_TRUE(read(tx, "alice"));
              tx.insert(kTable, "alice", "1");
            }),
            ErrorCode::kAlreadyExists);
  EXPECT_EQ(outcome([&](Transaction& tx) {
              ASSERT_EQ(read(tx, "nobody").code(), ErrorCode::kNotFound);
              tx.erase(kTable, "nobody");
            }),
            ErrorCode::kNotFound);
  EXPECT_EQ(outcome([](Transaction& tx) { tx.put(kTable, "", "1"); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(outcome([](Transaction& tx) { tx.put(kTable, std::string(513, 'k'), "1"); }),
            ErrorCode::kTooLarge);
  EXPECT_EQ(server_->requests.size(), 0u);
}

TEST_F(Tx, ContradictionWithWhatHasChangedIsAConflict) {
  Transaction tx = client_->begin();
  ASSERT_TRUE(read(tx, "alice"));
  ASSERT_TRUE(read(tx, "bob"));
  tx.insert(kTable, "alice", "1");
  server_->store(kBob, kTable, "bob", "11", 9);
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict)
      << "it must not say AlreadyExists of a state that never was";
}

TEST_F(Tx, ReadThatChangesUnderItConflicts) {
  Transaction tx = client_->begin();
  ASSERT_TRUE(read(tx, "alice"));
  server_->store(kAlice, kTable, "alice", "91", 6);
  EXPECT_EQ(read(tx, "alice").code(), ErrorCode::kConflict);
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict);
}

TEST_F(Tx, RepeatedReadIsOneCheck) {
  const auto commit = commit_of([&](Transaction& tx) {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(read(tx, "alice"));
    tx.put(kTable, "bob", "1");
  });
  EXPECT_EQ(commit.reads.size(), 1u);
}

TEST_F(Tx, BegunOnALostConnectionItConflicts) {
  Transaction tx = client_->begin();
  ASSERT_TRUE(read(tx, "alice"));
  server_->break_connections();
  let_time_pass(1000);
  tx.put(kTable, "alice", "80");
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict);
  Transaction again = client_->begin();
  EXPECT_TRUE(read(again, "alice"));
  again.put(kTable, "alice", "80");
  EXPECT_TRUE(run(again.commit()));
}

TEST_F(Tx, ConflictOfTheServerIsRetried) {
  int left = 3;
  server_->answer = [&](const auto& request, fabric::RpcCall call) {
    if (left-- > 0) return call.reply_error(make_error(ErrorCode::kConflict));
    testing::FakeServer::answer_plainly(request, std::move(call));
  };
  const auto body = [](Transaction& tx) -> Task<Status> {
    tx.put(kTable, "alice", "80");
    co_return Status{};
  };
  EXPECT_TRUE(run(retry(*client_, body)));
  EXPECT_EQ(server_->requests.size(), 4u);
}

TEST_F(Tx, TooLargeForAMessageIsTooLarge) {
  Transaction tx = client_->begin();
  const std::string value(1 << 20, 'v');
  for (int i = 0; i < 3; ++i) tx.put(kTable, "key" + std::to_string(i), value);
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kTooLarge);
  EXPECT_EQ(server_->requests.size(), 0u);
}

TEST_F(Tx, LostConnectionAtCommitIsUnknownByItsName) {
  server_->answer = [&](const auto&, fabric::RpcCall) { server_->break_connections(); };
  Transaction tx = client_->begin();
  tx.put(kTable, "alice", "80");
  const Status status = run(tx.commit());
  ASSERT_EQ(status.code(), ErrorCode::kCommitUnknown);
  EXPECT_NE(status.error().message.find(tx.id().to_string()), std::string::npos);
}

TEST_F(Tx, ParallelReadsAreAllRemembered) {
  Transaction tx = client_->begin();
  Task<Result<std::string>> alice = tx.get(kTable, "alice");
  Task<Result<std::string>> bob = tx.get(kTable, "bob");
  alice.start();
  bob.start();
  let_time_pass(1000);
  ASSERT_TRUE(alice.done() && bob.done());
  EXPECT_EQ(*alice.take(), "90");
  EXPECT_EQ(*bob.take(), "10");
  tx.put(kTable, "carol", "1");
  ASSERT_TRUE(run(tx.commit()));
  EXPECT_EQ(sent().reads.size(), 2u);
}

}  // namespace
}  // namespace pmstore
