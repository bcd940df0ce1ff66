// One-sided reads while the server's hash index grows and shrinks, and asks for its pieces.
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/pmstore/client_fixture.h"

namespace pmstore {
namespace {

constexpr SlotOffset kGrownSlot{64 * 40};
constexpr SlotOffset kOtherGrownSlot{64 * 80};

class ClientReadGrowth : public testing::FakeServerFixture {
 protected:
  static GetReply head_of(std::string_view value) {
    GetReply head{};
    head.slot = raw(kGrownSlot);
    head.version = 5;
    head.value_bytes = static_cast<uint32_t>(value.size());
    head.found = FoundRecord::kWithValue;
    return head;
  }
  void answer_gets_with(std::string value) {
    server_->answer = [value](const auto&, fabric::RpcCall call) {
      call.reply(get_reply(head_of(value), value));
    };
  }
  // Splits bucket 0 to 15 of the hash's low 4 bits once, as the server does.
  Bucket& split(std::string_view key) {
    const KeyHash hash = hash_key(kTable, key);
    for (const bool upper : {false, true}) {
      const uint64_t number = hash.value % 16 + (upper ? 16 : 0);
      server_->bucket_at(number).version += 2;
      server_->bucket_at(number).shape = BucketShape::make(5, 0);
    }
    return server_->bucket_at(hash.value % 32);
  }
  // Whose bucket is in the upper half of 32.
  static std::string upper_key(int first = 0) {
    for (int i = first;; ++i) {
      const std::string key = "key" + std::to_string(i);
      if (hash_key(kTable, key).value % 32 >= 16) return key;
    }
  }
  void show(Bucket& bucket, std::string_view key, SlotOffset slot) {
    server_->store(slot, kTable, key, "90", 5);
    const uint8_t size_class = size_class_of(record_bytes(key.size(), 2));
    bucket.entries[2] = BucketEntry::make(hash_key(kTable, key).tag(), size_class, slot).bits;
  }
};

TEST_F(ClientReadGrowth, KeyThatASplitHasMovedIsFoundByTheDepthOfItsOldBucket) {
  connect();
  const std::string key = upper_key();
  show(split(key), key, kGrownSlot);
  const auto first = cost([&] { EXPECT_EQ(*get(key), "90"); });
  EXPECT_EQ(first.server_messages, 0u);
  EXPECT_EQ(first.round_trips, 3u) << "the old bucket, the new one, the record";
  // What it has learned: the index has at least as many buckets.
  const std::string other = upper_key(1000);
  show(split(other), other, kOtherGrownSlot);
  const auto second = cost([&] { EXPECT_EQ(*get(other), "90"); });
  const uint64_t known = hash_key(kTable, key).value % 32;
  EXPECT_EQ(second.round_trips, hash_key(kTable, other).value % 32 <= known ? 2u : 3u);
}

TEST_F(ClientReadGrowth, AbsenceIsThatOfTheBucketThatWouldHoldTheKey) {
  connect();
  const std::string key = upper_key();
  Bucket& holder = split(key);
  holder.version = 12;
  ASSERT_EQ(get(key).code(), ErrorCode::kNotFound);
  show(holder, key, kGrownSlot);
  Transaction tx = client_->begin();
  EXPECT_EQ(*run(tx.get(kTable, key)), "90");
}

TEST_F(ClientReadGrowth, BucketThatIsNotInUseLeadsToItsParent) {
  server_->hello.bucket_count = 32;  // as the index was when the client came
  connect();
  const std::string key = upper_key();
  server_->place(kGrownSlot, kTable, key, "90", 5);
  const auto first = cost([&] { EXPECT_EQ(*get(key), "90"); });
  EXPECT_EQ(first.server_messages, 0u);
  EXPECT_EQ(first.round_trips, 3u) << "no bucket, its parent, the record";
  options_.location_cache_entries = 0;
  connect();
  ASSERT_TRUE(get(key));
  const auto again = cost([&] { EXPECT_EQ(*get(key), "90"); });
  EXPECT_EQ(again.round_trips, 2u) << "it has learned that the index has fewer buckets";
}

// While a merge is under way the bucket is not in use any more, and its version odd; what it held
// is in the parent, which is stable before or after.
TEST_F(ClientReadGrowth, BucketThatIsNotInUseIsNotWaitedFor) {
  server_->hello.bucket_count = 32;
  connect();
  const std::string key = upper_key();
  server_->bucket_at(hash_key(kTable, key).value % 32).version = 7;
  server_->place(kGrownSlot, kTable, key, "90", 5);
  const auto spent = cost([&] { EXPECT_EQ(*get(key), "90"); });
  EXPECT_EQ(spent.round_trips, 3u);
}

TEST_F(ClientReadGrowth, NeitherDepthNorParentsWithoutEndAreFollowed) {
  connect();
  const std::string key = upper_key();
  answer_gets_with("from the server");
  // The old bucket says that the key is in the upper one, which is not in use.
  server_->bucket_of(kTable, key).shape = BucketShape::make(5, 0);
  EXPECT_EQ(*get(key), "from the server");
  server_->bucket_of(kTable, key).shape = BucketShape::make(kMostDepth + 5, 0);
  EXPECT_EQ(*get(key), "from the server");
  // No bucket is in use.
  for (uint64_t i = 0; i < testing::FakeServer::kBuckets; ++i) server_->bucket_at(i).shape = {};
  EXPECT_EQ(*get("another"), "from the server");
}

// ---- pieces of the index ----

class ClientReadPieces : public ClientReadGrowth {
 protected:
  void SetUp() override {
    // The second piece has 16 buckets, which are deeper than their parents were.
    for (uint64_t i = 0; i < kBucketsPerPiece; ++i) {
      server_->bucket_at(i).shape = BucketShape::make(i < 16 ? 14 : 13, 0);
    }
    for (uint64_t i = 0; i < 16; ++i) {
      server_->bucket_at(kBucketsPerPiece + i).shape = BucketShape::make(14, 0);
    }
    server_->hello.bucket_count = kBucketsPerPiece + 16;
    options_.location_cache_entries = 0;
    for (int i = 0; keys_.size() < 2; ++i) {
      const std::string key = "key" + std::to_string(i);
      const uint64_t bucket = hash_key(kTable, key).value % (2 * kBucketsPerPiece);
      if (bucket < kBucketsPerPiece || bucket >= kBucketsPerPiece + 16) continue;
      show(server_->bucket_at(bucket), key, SlotOffset{64 * 40 * (keys_.size() + 1)});
      keys_.push_back(key);
    }
  }
  std::vector<std::string> keys_;  // of the second piece
};

TEST_F(ClientReadPieces, UnknownPieceIsAskedForOnceAndThenRead) {
  connect();
  server_->answer = [&](const auto& request, fabric::RpcCall call) {
    server_->answer_regions(request, std::move(call));
  };
  const auto first = cost([&] { EXPECT_EQ(*get(keys_[0]), "90"); });
  EXPECT_EQ(first.server_messages, 1u) << "for the region";
  const auto second = cost([&] { EXPECT_EQ(*get(keys_[1]), "90"); });
  EXPECT_EQ(second.server_messages, 0u);
  EXPECT_EQ(second.round_trips, 2u);
}

TEST_F(ClientReadPieces, PieceWithoutARegionIsReadByTheServerAndAskedForLater) {
  connect();
  int asked = 0;
  server_->answer = [&](const auto& request, fabric::RpcCall call) {
    if (request.method == Method::kRegions) {
      ++asked;
      const RegionsReply none{};
      return call.reply(std::as_bytes(std::span(&none, 1)));
    }
    call.reply(get_reply(head_of("by"), "by"));
  };
  EXPECT_EQ(*get(keys_[0]), "by");
  EXPECT_EQ(*get(keys_[1]), "by");
  EXPECT_EQ(asked, 1);
  let_time_pass(1'000'000'000);
  EXPECT_EQ(*get(keys_[1]), "by");
  EXPECT_EQ(asked, 2);
}

// Two keys, so that there is something to validate.
TEST_F(ClientReadPieces, AbsenceInABucketThatCannotBeReadIsValidatedByTheServer) {
  options_.misses = MissPath::kRpc;
  connect();
  server_->answer = [&](const auto& request, fabric::RpcCall call) {
    if (request.method == Method::kRegions) {
      const RegionsReply none{};
      return call.reply(std::as_bytes(std::span(&none, 1)));
    }
    if (request.method != Method::kGet) {
      return testing::FakeServer::answer_plainly(request, std::move(call));
    }
    GetReply head{};
    head.bucket = kBucketsPerPiece + 3;
    head.bucket_version = 4;
    call.reply(get_reply(head, {}));
  };
  Transaction tx = client_->begin();
  for (const std::string& key : keys_) {
    ASSERT_EQ(run(tx.get(kTable, key)).code(), ErrorCode::kNotFound);
  }
  ASSERT_TRUE(run(tx.commit()));
  ASSERT_EQ(server_->count(Method::kCommit), 1u);
  const testing::DecodedCommit commit(server_->requests.back().body);
  ASSERT_EQ(commit.absences.size(), 2u);
  EXPECT_EQ(commit.absences[0].bucket, kBucketsPerPiece + 3);
}

TEST_F(ClientReadPieces, WhileOneTaskAsksOthersGoToTheServer) {
  connect();
  std::optional<fabric::RpcCall> waiting;
  server_->answer = [&](const auto& request, fabric::RpcCall call) {
    if (request.method == Method::kRegions) {
      waiting.emplace(std::move(call));
      return;
    }
    call.reply(get_reply({}, {}));
  };
  Task<Result<std::string>> first = client_->get(kTable, keys_[0]);
  first.start();
  let_time_pass(2000);
  ASSERT_TRUE(waiting);
  EXPECT_EQ(get(keys_[1]).code(), ErrorCode::kNotFound) << "as the server says";
  EXPECT_EQ(server_->count(Method::kRegions), 1u);
  // Another task may ask when the one that asked is gone.
  first = {};
  server_->answer = [&](const auto& request, fabric::RpcCall call) {
    server_->answer_regions(request, std::move(call));
  };
  EXPECT_EQ(*get(keys_[1]), "90");
}

TEST_F(ClientReadPieces, MalformedRegionsCostTheConnection) {
  using Answer = std::vector<NumberedRegion>;
  const fabric::RemoteRegion region{4096, 4096, 1};
  for (const Answer& bad : {Answer{{0, 0, region}}, Answer{{2, 0, region}, {2, 0, region}},
                            Answer{{1, 0, fabric::RemoteRegion{}}}}) {
    server_->answer = nullptr;
    connect();
    server_->answer = [&](const auto& request, fabric::RpcCall call) {
      if (request.method != Method::kRegions) return call.reply(get_reply(head_of("by"), "by"));
      std::array<std::byte, 256> room;
      MessageWriter writer(room);
      writer.put(RegionsReply{static_cast<uint32_t>(bad.size()), 0, 0});
      for (const NumberedRegion& each : bad) writer.put(each);
      call.reply(writer.message());
    };
    EXPECT_EQ(get(keys_[0]).code(), ErrorCode::kProtocol);
  }
}

}  // namespace
}  // namespace pmstore
