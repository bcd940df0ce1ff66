// Reading: what it costs, and what is not believed.
#include <algorithm>
#include <cstring>
#include <functional>

#include "fabric/local/fault_injection.h"
#include "tests/unit/pmstore/client_fixture.h"

namespace pmstore {
namespace {

constexpr SlotOffset kSlot{64 * 40};
constexpr SlotOffset kOtherSlot{64 * 80};

class ClientRead : public testing::FakeServerFixture {
 protected:
  // Answers gets as the real server would for a record at kSlot.
  void answer_gets_with(std::string value, SlotOffset slot = kSlot) {
    server_->answer = [value, slot](const auto& request, fabric::RpcCall call) {
      if (request.method != Method::kGet) {
        return testing::FakeServer::answer_plainly(request, std::move(call));
      }
      GetReply head{};
      head.slot = raw(slot);
      head.version = 5;
      head.value_bytes = static_cast<uint32_t>(value.size());
      head.found = FoundRecord::kWithValue;
      head.size_class = size_class_of(record_bytes(5, value.size()));
      const auto bytes = get_reply(head, value);
      if (call.reply_room().size() >= bytes.size()) return call.reply(bytes);
      head.found = FoundRecord::kPlaceOnly;
      call.reply(std::as_bytes(std::span(&head, 1)));
    };
  }
};

TEST_F(ClientRead, FirstReadAsksTheIndexAndThenTheRecord) {
  server_->place(kSlot, kTable, "alice", "90", 5);
  connect();
  const auto spent = cost([&] { EXPECT_EQ(*get("alice"), "90"); });
  EXPECT_EQ(spent.round_trips, 2u);
  EXPECT_EQ(spent.doorbells, 2u);
  EXPECT_EQ(spent.server_messages, 0u);
}

TEST_F(ClientRead, CachedReadIsTwoWorkRequestsInOneRoundTrip) {
  server_->place(kSlot, kTable, "alice", "90", 5);
  connect();
  ASSERT_TRUE(get("alice"));
  const auto spent = cost([&] { EXPECT_EQ(*get("alice"), "90"); });
  EXPECT_EQ(spent.round_trips, 1u);
  EXPECT_EQ(spent.doorbells, 1u);
  EXPECT_EQ(spent.work_requests, 2u);
  EXPECT_EQ(spent.completions, 1u);
  EXPECT_EQ(spent.server_messages, 0u);
}

TEST_F(ClientRead, AbsenceIsReadFromTheIndexAlone) {
  connect();
  const auto spent = cost([&] { EXPECT_EQ(get("nobody").code(), ErrorCode::kNotFound); });
  EXPECT_EQ(spent.round_trips, 1u);
  EXPECT_EQ(spent.doorbells, 1u);
  EXPECT_EQ(spent.work_requests, 3u) << "the bucket, between two READs of its version";
  EXPECT_EQ(spent.server_messages, 0u);
}

// Does something at the server before each READ of the client.
class BeforeReads final : public fabric::FaultInjector {
 public:
  explicit BeforeReads(std::function<void(uint32_t bytes)> action) : action_(std::move(action)) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (point.request.op == fabric::OpCode::kRead) action_(point.request.bytes);
    return {};
  }

 private:
  const std::function<void(uint32_t)> action_;
};

// A READ of two lines may bring the second from before an insert, and the first, with the version,
// from after it. Only a READ of the version before that one shows it.
TEST_F(ClientRead, BucketWhoseLinesCameOutOfOrderIsNotBelieved) {
  server_->place(kSlot, kTable, "alice", "90", 5);
  connect();
  Bucket& bucket = server_->bucket_of(kTable, "alice");
  bucket.version = 8;
  const Bucket after = bucket;
  Bucket before = after;
  std::fill(std::begin(before.entries), std::end(before.entries), 0);
  Bucket mixed = before;
  mixed.version = after.version;
  before.version = 6;
  bucket = before;
  bool inserted = false;
  BeforeReads injector([&](uint32_t bytes) {
    if (inserted) bucket = after;
    if (inserted || bytes != sizeof(Bucket)) return;
    bucket = mixed;
    inserted = true;
  });
  const fabric::ScopedFaultInjector installed(injector);
  EXPECT_EQ(*get("alice"), "90");
}

// The other way round: the first line and the version from before the change, the second from after
// it. Only a READ of the version behind that one shows it.
TEST_F(ClientRead, BucketThatChangesWhileItsLinesAreReadIsNotBelieved) {
  server_->place(kSlot, kTable, "alice", "90", 5);
  connect();
  Bucket& bucket = server_->bucket_of(kTable, "alice");
  bucket.version = 8;
  const Bucket after = bucket;
  Bucket mixed = after;
  mixed.version = 6;
  std::fill(std::begin(mixed.entries), std::end(mixed.entries), 0);
  bucket.version = 6;
  bool changed = false;
  BeforeReads injector([&](uint32_t bytes) {
    if (changed) bucket = after;
    if (changed || bytes != sizeof(Bucket)) return;
    bucket = mixed;
    changed = true;
  });
  const fabric::ScopedFaultInjector installed(injector);
  const auto got = get("alice");
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(*got, "90");
}

TEST_F(ClientRead, SlotUsedByAnotherKeyIsNotBelieved) {
  server_->place(kSlot, kTable, "alice", "90", 5);
  connect();
  ASSERT_TRUE(get("alice"));
  server_->store(kSlot, kTable, "mallory", "666", 6);  // reused
  server_->place(kOtherSlot, kTable, "alice", "91", 3);
  EXPECT_EQ(*get("alice"), "91");
  const auto spent = cost([&] { EXPECT_EQ(*get("alice"), "91"); });
  EXPECT_EQ(spent.round_trips, 1u) << "the new place is remembered";
}

// A record that moves between the READ of its bucket and that of its slot, which another key gets,
// is there all the time. Only a READ of the bucket's version behind that of the slot shows it.
TEST_F(ClientRead, SlotThatAnotherKeyGotMeanwhileProvesNoAbsence) {
  server_->place(kSlot, kTable, "alice", "90", 5);
  connect();
  bool moved = false;
  BeforeReads injector([&](uint32_t bytes) {
    if (moved || bytes != kSlotBytes[0]) return;
    moved = true;
    server_->place(kOtherSlot, kTable, "alice", "91", 3);
    server_->store(kSlot, kTable, "mallory", "666", 6);
  });
  const fabric::ScopedFaultInjector installed(injector);
  const auto got = get("alice");
  EXPECT_TRUE(moved);
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_EQ(*got, "91");
}

TEST_F(ClientRead, SameKeyOfAnotherTableIsNotBelieved) {
  server_->place(kSlot, kTable, "alice", "90", 5);
  connect();
  ASSERT_TRUE(get("alice"));
  server_->unindex(kTable, "alice");
  server_->store(kSlot, TableId{4}, "alice", "666", 6);
  EXPECT_EQ(get("alice").code(), ErrorCode::kNotFound);
}

TEST_F(ClientRead, TombstoneIsNotARecord) {
  server_->place(kSlot, kTable, "alice", "90", 5);
  connect();
  ASSERT_TRUE(get("alice"));
  server_->unindex(kTable, "alice");
  build_record(server_->record_at(kSlot, 64), kSlot, kTable, 6, RecordState::kTombstone, "alice",
               {});
  server_->word_of(kSlot) = LockWord::unlocked(6);
  EXPECT_EQ(get("alice").code(), ErrorCode::kNotFound);
}

TEST_F(ClientRead, LockedTornAndOutdatedRecordsAreLeftToTheServer) {
  const auto locked = [&] { server_->word_of(kSlot) = LockWord::locked(5, 1); };
  const auto torn = [&] { server_->record_at(kSlot, 64)[34] ^= std::byte{1}; };
  const auto outdated = [&] { server_->word_of(kSlot) = LockWord::unlocked(6); };
  for (const std::function<void()>& spoil : {std::function<void()>(locked), {torn}, {outdated}}) {
    for (const bool cached : {false, true}) {
      server_->place(kSlot, kTable, "alice", "90", 5);
      answer_gets_with("from the server");
      connect();
      if (cached) {
        ASSERT_TRUE(get("alice"));
      }
      spoil();
      const auto spent = cost([&] { EXPECT_EQ(*get("alice"), "from the server"); });
      EXPECT_EQ(spent.server_messages, 1u);
      EXPECT_GT(spent.round_trips, 4u) << "it looked more than once before";
    }
  }
}

TEST_F(ClientRead, RecordThatIsUnlockedSoonIsReadOneSided) {
  server_->place(kSlot, kTable, "alice", "90", 5);
  connect();
  server_->word_of(kSlot) = LockWord::locked(5, 1);
  Task<Result<std::string>> reading = client_->get(kTable, "alice");
  reading.start();
  let_time_pass(2000);
  ASSERT_FALSE(reading.done());
  server_->store(kSlot, kTable, "alice", "91", 6);
  let_time_pass(10'000'000);
  ASSERT_TRUE(reading.done());
  EXPECT_EQ(*reading.take(), "91");
  EXPECT_EQ(server_->requests.size(), 0u);
}

TEST_F(ClientRead, BucketUnderChangeIsLeftToTheServer) {
  server_->bucket_of(kTable, "alice").version = 7;
  answer_gets_with("from the server");
  connect();
  EXPECT_EQ(*get("alice"), "from the server");
}

TEST_F(ClientRead, AbsenceInABucketWithOverflowIsLeftToTheServer) {
  server_->bucket_of(kTable, "alice").shape = BucketShape::make(4, 1);
  answer_gets_with("from the server");
  connect();
  EXPECT_EQ(*get("alice"), "from the server");
}

TEST_F(ClientRead, ReservedSlotIsNotAbsence) {
  // An insert that has not committed: the index shows a slot that is locked and holds nothing.
  server_->place(kSlot, kTable, "alice", "90", 5);
  server_->record_at(kSlot, 64)[0] ^= std::byte{1};
  server_->word_of(kSlot) = LockWord::locked(4, 9);
  server_->answer = [&](const auto&, fabric::RpcCall call) {
    call.reply_error(make_error(ErrorCode::kConflict));
  };
  connect();
  EXPECT_EQ(get("alice").code(), ErrorCode::kConflict);
}

TEST_F(ClientRead, EntryOutsideTheRecordsIsLeftToTheServer) {
  Bucket& bucket = server_->bucket_of(kTable, "alice");
  const uint32_t tag = hash_key(kTable, "alice").tag();
  answer_gets_with("from the server");
  for (const BucketEntry bad :
       {BucketEntry::make(tag, 0, SlotOffset{testing::FakeServer::kRecordsBytes}),
        BucketEntry::make(tag, 5, SlotOffset{testing::FakeServer::kRecordsBytes - 64}),
        BucketEntry::make(tag, kSizeClasses, SlotOffset{0})}) {
    bucket.entries[3] = bad.bits;
    connect();
    EXPECT_EQ(*get("alice"), "from the server");
  }
}

TEST_F(ClientRead, LargeRecordComesFromTheServer) {
  const std::string value(300'000, 'x');
  server_->place(SlotOffset{0}, kTable, "alice", value, 5);
  answer_gets_with(value);
  connect();
  EXPECT_EQ(*get("alice"), value);
  // The first reply had too little room; the place is known now.
  const auto spent = cost([&] { EXPECT_EQ(*get("alice"), value); });
  EXPECT_EQ(spent.server_messages, 1u);
}

// ---- misses by RPC ----

TEST_F(ClientRead, MissByRpcIsOneRoundTripAndTheNextReadOneSided) {
  server_->place(kSlot, kTable, "alice", "90", 5);
  answer_gets_with("90");
  options_.misses = MissPath::kRpc;
  connect();
  EXPECT_EQ(client_->session().misses, MissPath::kRpc);
  const auto miss = cost([&] { EXPECT_EQ(*get("alice"), "90"); });
  EXPECT_EQ(miss.round_trips, 1u);
  EXPECT_EQ(miss.server_messages, 1u);
  EXPECT_EQ(miss.bytes_read, 0u);
  const auto hit = cost([&] { EXPECT_EQ(*get("alice"), "90"); });
  EXPECT_EQ(hit.round_trips, 1u);
  EXPECT_EQ(hit.doorbells, 1u);
  EXPECT_EQ(hit.work_requests, 2u);
  EXPECT_EQ(hit.server_messages, 0u);
}

TEST_F(ClientRead, MissPathFollowsTheFabricUnlessTheClientChooses) {
  for (const MissPath chosen : {MissPath::kAuto, MissPath::kOneSided, MissPath::kRpc}) {
    options_.misses = chosen;
    connect();
    ASSERT_TRUE(client_->session().one_sided_reads);
    const bool automatic = chosen == MissPath::kAuto;
    EXPECT_EQ(client_->session().misses, automatic ? MissPath::kOneSided : chosen);
  }
  options_.misses = MissPath::kOneSided;
  options_.one_sided_reads = false;
  connect();
  EXPECT_EQ(client_->session().misses, MissPath::kRpc) << "there is no other way";
}

TEST_F(ClientRead, MissByRpcOfAnAbsentKeyIsOneRequest) {
  options_.misses = MissPath::kRpc;
  server_->answer = [](const auto&, fabric::RpcCall call) { call.reply(get_reply({}, {})); };
  connect();
  const auto spent = cost([&] { EXPECT_EQ(get("nobody").code(), ErrorCode::kNotFound); });
  EXPECT_EQ(spent.round_trips, 1u);
  EXPECT_EQ(spent.server_messages, 1u);
}

// A place that proves wrong is a miss, too.
TEST_F(ClientRead, SlotUsedByAnotherKeyIsAskedAbout) {
  server_->place(kSlot, kTable, "alice", "90", 5);
  answer_gets_with("90");
  options_.misses = MissPath::kRpc;
  connect();
  ASSERT_TRUE(get("alice"));
  server_->store(kSlot, kTable, "mallory", "666", 6);  // reused
  answer_gets_with("91", kOtherSlot);
  server_->place(kOtherSlot, kTable, "alice", "91", 5);
  const auto spent = cost([&] { EXPECT_EQ(*get("alice"), "91"); });
  EXPECT_EQ(spent.round_trips, 2u) << "the old place, then one request";
  EXPECT_EQ(spent.server_messages, 1u);
  const auto hit = cost([&] { EXPECT_EQ(*get("alice"), "91"); });
  EXPECT_EQ(hit.server_messages, 0u) << "the new place is remembered";
}

// The answer to the first read has room for 4 KiB.
TEST_F(ClientRead, ValueThatTheAnswerHasNoRoomForIsReadOneSided) {
  const std::string value(9000, 'x');
  server_->place(kSlot, kTable, "alice", value, 5);
  answer_gets_with(value);
  options_.misses = MissPath::kRpc;
  connect();
  const auto spent = cost([&] { EXPECT_EQ(*get("alice"), value); });
  EXPECT_EQ(spent.server_messages, 1u);
  EXPECT_EQ(spent.round_trips, 2u);
  EXPECT_GT(spent.bytes_read, 9000u);
  const auto hit = cost([&] { EXPECT_EQ(*get("alice"), value); });
  EXPECT_EQ(hit.server_messages, 0u);
}

// One transaction's read gives up; the next one finds the record unlocked. Nothing of the first one
// has to be valid.
TEST_F(ClientRead, ManyKeysOfWhichOneIsLockedForLongAreReadAgain) {
  int conflicts = 0;
  answer_gets_with("90");
  const auto found = server_->answer;
  server_->answer = [&](const auto& request, fabric::RpcCall call) {
    if (request.method != Method::kGet || conflicts == 0) return found(request, std::move(call));
    --conflicts;
    call.reply_error(make_error(ErrorCode::kConflict, "locked"));
  };
  options_.one_sided_reads = false;
  connect();
  const std::string_view keys[] = {"alice"};
  conflicts = 1000;
  Transaction transaction = client_->begin();
  ASSERT_EQ(executor_.run(transaction.get_many(kTable, keys)).code(), ErrorCode::kConflict);
  const int of_one_read = 1000 - conflicts;
  conflicts = of_one_read + 1;
  const auto values = executor_.run(client_->get_many(kTable, keys));
  ASSERT_TRUE(values) << values.error().to_string();
  EXPECT_EQ(*values, Values{"90"});
  EXPECT_EQ(conflicts, 0);
  conflicts = 1000;
  EXPECT_EQ(executor_.run(client_->get_many(kTable, keys)).code(), ErrorCode::kConflict)
      << "it does not wait without a bound";
}

// What the READ finds is not believed, so the value comes with a second answer.
TEST_F(ClientRead, ValueThatCannotBeReadIsAskedForWithRoom) {
  const std::string value(9000, 'x');
  server_->place(kSlot, kTable, "alice", value, 5);
  server_->word_of(kSlot) = LockWord::locked(5, 1);
  answer_gets_with(value);
  options_.misses = MissPath::kRpc;
  connect();
  const auto spent = cost([&] { EXPECT_EQ(*get("alice"), value); });
  EXPECT_EQ(spent.server_messages, 2u);
}

TEST_F(ClientRead, ValueLargerThanTheBufferIsNotAskedForAgain) {
  const std::string value(9000, 'x');
  server_->place(kSlot, kTable, "alice", value, 5);
  server_->word_of(kSlot) = LockWord::locked(5, 1);
  answer_gets_with(value);
  options_.misses = MissPath::kRpc;
  connect();
  std::vector<std::byte> into(100, std::byte{7});
  const auto spent = cost([&] {
    const auto bytes = executor_.run(client_->get(kTable, "alice", into));
    ASSERT_TRUE(bytes) << bytes.error().to_string();
    EXPECT_EQ(*bytes, value.size());
  });
  EXPECT_EQ(spent.server_messages, 1u);
  EXPECT_EQ(into, std::vector<std::byte>(100, std::byte{7}));
}

TEST_F(ClientRead, SwitchedOffEveryReadIsOneRequest) {
  options_.one_sided_reads = false;
  answer_gets_with("90");
  connect();
  EXPECT_FALSE(client_->session().one_sided_reads);
  const auto spent = cost([&] { EXPECT_EQ(*get("alice"), "90"); });
  EXPECT_EQ(spent.round_trips, 1u);
  EXPECT_EQ(spent.server_messages, 1u);
  EXPECT_EQ(spent.bytes_read, 0u);
}

TEST_F(ClientRead, MalformedAnswerCostsTheConnectionNotTheClient) {
  options_.one_sided_reads = false;
  GetReply outside{};
  outside.found = FoundRecord::kWithValue;
  outside.version = 1;
  outside.slot = lock_table_bytes(testing::FakeServer::kRecordsBytes) / 8 * 64;
  GetReply wrong_class{};
  wrong_class.found = FoundRecord::kWithValue;
  wrong_class.version = 1;
  wrong_class.size_class = kSizeClasses;
  GetReply wrong_bucket{};
  wrong_bucket.bucket = kMostBuckets;
  GetReply longer{};
  longer.value_bytes = 100;
  GetReply place{};
  place.found = FoundRecord::kPlaceOnly;
  place.version = 1;
  GetReply left_out_for_nothing = place;
  left_out_for_nothing.value_bytes = 4000;  // there was room for it
  GetReply too_large = place;
  too_large.value_bytes = kMaxValueBytes + 1;
  GetReply left_out_and_there = place;
  left_out_and_there.value_bytes = 5000;
  GetReply unknown = place;
  unknown.found = FoundRecord{3};
  std::vector<std::vector<std::byte>> replies = {{},
                                                 get_reply({}, "left over"),
                                                 get_reply(outside, {}),
                                                 get_reply(wrong_class, {}),
                                                 get_reply(wrong_bucket, {}),
                                                 get_reply(longer, "short"),
                                                 get_reply(left_out_for_nothing, {}),
                                                 get_reply(too_large, {}),
                                                 get_reply(left_out_and_there, "value"),
                                                 get_reply(unknown, {})};
  for (const auto& reply : replies) {
    server_->answer = [&](const auto&, fabric::RpcCall call) { call.reply(reply); };
    connect();
    EXPECT_EQ(get("alice").code(), ErrorCode::kProtocol);
    answer_gets_with("90");
    EXPECT_EQ(*get("alice"), "90");
    EXPECT_EQ(client_->session().reconnects, 1u);
  }
}

TEST_F(ClientRead, ImpossibleKeysAreRefusedBeforeAnythingIsSent) {
  connect();
  const auto spent = cost([&] {
    EXPECT_EQ(get("").code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(get(std::string(513, 'k')).code(), ErrorCode::kTooLarge);
    EXPECT_EQ(put("", "v").code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(put("k", std::string((1 << 20) + 1, 'v')).code(), ErrorCode::kTooLarge);
  });
  EXPECT_EQ(spent.work_requests, 0u);
  EXPECT_EQ(get(std::string(512, 'k')).code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace pmstore
