// The hash index while it grows and shrinks: what its owner finds, and what readers see that READ
// its memory at any moment, with any idea of its size.
#include "pmstore/shard/hash_index.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "pmstore/client/bucket_count_hint.h"

namespace pmstore::internal {
namespace {

constexpr uint64_t kRecordsBytes = uint64_t{64} << 20;

struct Key {
  KeyHash hash;
  SlotOffset slot;
};
Key key(uint64_t number) {
  return {hash_key(TableId{1}, "key" + std::to_string(number)), SlotOffset{number * 64}};
}

constexpr size_t kPieceBytes = kBucketsPerPiece * sizeof(Bucket);

// The flags of the mapping that has `at`, as the kernel shows them: "hg" and "nh" are madvise()'s.
std::set<std::string> advice_for_pages(const std::byte* at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  std::ifstream mappings("/proc/self/smaps");
  bool is_there = false;
  for (std::string line; std::getline(mappings, line);) {
    uintptr_t from = 0;
    uintptr_t to = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
      is_there = from <= address && address < to;
    }
    if (!is_there || !line.starts_with("VmFlags:")) continue;
    std::istringstream flags(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(flags), {}};
  }
  return {};
}

class HashIndexTest : public ::testing::Test {
 protected:
  void put(const Key& each) {
    const uint64_t before = steps();
    index_.begin_change(each.hash);
    index_.insert(each.hash, 0, each.slot);
    index_.end_change(each.hash);
    EXPECT_LE(steps() - before, HashIndex::kStepsPerChange) << "one change does bounded work";
  }
  void erase(const Key& each) {
    const uint64_t before = steps();
    index_.begin_change(each.hash);
    index_.erase(each.hash, each.slot);
    index_.end_change(each.hash);
    EXPECT_LE(steps() - before, HashIndex::kStepsPerChange);
  }
  void put_all(uint64_t from, uint64_t to) {
    for (uint64_t i = from; i < to; ++i) put(key(i));
  }
  void erase_all(uint64_t from, uint64_t to) {
    for (uint64_t i = from; i < to; ++i) erase(key(i));
  }
  bool has(uint64_t number) const { return index_.contains(key(number).hash, key(number).slot); }
  uint64_t count_of(uint64_t from, uint64_t to) const {
    uint64_t found = 0;
    for (uint64_t i = from; i < to; ++i) found += has(i);
    return found;
  }
  uint64_t steps() const { return index_.splits() + index_.merges(); }
  const Bucket& at(uint64_t bucket) const {
    const auto piece = index_.piece(bucket / kBucketsPerPiece);
    return reinterpret_cast<const Bucket*>(piece.data())[bucket % kBucketsPerPiece];
  }
  // A change of the key's bucket that is not one: growth goes on.
  void touch(KeyHash hash) {
    index_.begin_change(hash);
    index_.end_change(hash);
  }

  HashIndex index_ = *HashIndex::create(kRecordsBytes);
};

TEST_F(HashIndexTest, IsAsLargeAsItsEntriesNeed) {
  EXPECT_EQ(index_.bucket_count(), HashIndex::kLeastBuckets);
  put_all(0, 100'000);
  EXPECT_EQ(index_.bucket_count(), 100'000 / HashIndex::kGrowAbove);
  EXPECT_EQ(count_of(0, 100'000), 100'000u);
  EXPECT_LT(index_.overflowed(), 100'000u / 30);
  erase_all(1'000, 100'000);
  EXPECT_EQ(index_.bucket_count(), HashIndex::kLeastBuckets);
  EXPECT_EQ(count_of(0, 1'000), 1'000u);
  EXPECT_EQ(count_of(1'000, 100'000), 0u);
  EXPECT_EQ(index_.size(), 1'000u);
}

TEST_F(HashIndexTest, GrowsAgainAfterItHasShrunk) {
  for (int round = 0; round < 3; ++round) {
    put_all(0, 20'000);
    EXPECT_EQ(count_of(0, 20'000), 20'000u);
    erase_all(0, 20'000);
    EXPECT_EQ(index_.bucket_count(), HashIndex::kLeastBuckets);
    EXPECT_EQ(index_.overflowed(), 0u);
  }
}

TEST_F(HashIndexTest, StopsWhereItsAddressSpaceEndsAndKeepsAllEntries) {
  HashIndex small = *HashIndex::create(0);
  const auto each_key = [&](auto&& change) {
    for (uint64_t i = 0; i < 90'000; ++i) {
      small.begin_change(key(i).hash);
      change(key(i));
      small.end_change(key(i).hash);
    }
  };
  each_key([&](const Key& each) { small.insert(each.hash, 0, each.slot); });
  EXPECT_EQ(small.bucket_count(), kBucketsPerPiece) << "address space comes in pieces";
  EXPECT_GT(small.overflowed(), 0u);
  each_key([&](const Key& each) { EXPECT_TRUE(small.contains(each.hash, each.slot)); });
  each_key([&](const Key& each) { small.erase(each.hash, each.slot); });
  EXPECT_EQ(small.bucket_count(), HashIndex::kLeastBuckets);
}

TEST_F(HashIndexTest, RecordsThatAnEntryCannotNameAreRefused) {
  const auto made = HashIndex::create(BucketEntry::kMostRecordsBytes + 64);
  EXPECT_EQ(made.code(), ErrorCode::kUnsupported);
}

TEST_F(HashIndexTest, MemoryOfWholePiecesGoesBack) {
  put_all(0, 100'000);
  const uint64_t bucket = kBucketsPerPiece + 17;
  ASSERT_TRUE(at(bucket).shape.in_use());
  erase_all(1'000, 100'000);
  EXPECT_EQ(at(bucket).version, 0u) << "the page is new";
  put_all(1'000, 100'000);
  EXPECT_EQ(count_of(0, 100'000), 100'000u);
}

TEST_F(HashIndexTest, PinnedMemoryStays) {
  index_.keep_memory();
  put_all(0, 100'000);
  const uint64_t bucket = kBucketsPerPiece + 17;
  erase_all(1'000, 100'000);
  EXPECT_NE(at(bucket).version, 0u);
  EXPECT_FALSE(at(bucket).shape.in_use());
  put_all(1'000, 100'000);
  EXPECT_EQ(count_of(0, 100'000), 100'000u);
}

// The kernel zeroes a huge page in one go, during the turn that uses it first.
TEST_F(HashIndexTest, FullPiecesMayBeHugePagesAndTheLastIsNot) {
  if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0) {
    GTEST_SKIP() << "the kernel has no huge pages";
  }
  put_all(0, (2 * kBucketsPerPiece + 10) * HashIndex::kGrowAbove);
  ASSERT_EQ(index_.bucket_count() / kBucketsPerPiece, 2u);
  const std::byte* const begin = index_.piece(0).data();
  EXPECT_TRUE(advice_for_pages(begin).contains("hg"));
  EXPECT_TRUE(advice_for_pages(begin + 2 * kPieceBytes - 1).contains("hg"));
  EXPECT_TRUE(advice_for_pages(begin + 2 * kPieceBytes).contains("nh"));
  erase_all(1'000, 2 * kBucketsPerPiece * HashIndex::kGrowAbove);
  EXPECT_TRUE(advice_for_pages(begin + kPieceBytes).contains("nh")) << "it has gone back";

  HashIndex expecting = *HashIndex::create(kRecordsBytes);
  expecting.expect((kBucketsPerPiece + 10) * HashIndex::kGrowAbove);
  EXPECT_TRUE(advice_for_pages(expecting.piece(0).data()).contains("hg"));
  EXPECT_TRUE(advice_for_pages(expecting.piece(1).data()).contains("nh"));
  expecting.keep_memory();
  EXPECT_TRUE(advice_for_pages(expecting.piece(1).data()).contains("hg")) << "pinned ones cannot";
}

TEST_F(HashIndexTest, WhatIsExpectedNeedsNoSteps) {
  for (const uint64_t entries :
       {uint64_t{0}, uint64_t{5'000}, uint64_t{32'768}, uint64_t{50'000}}) {
    HashIndex index = *HashIndex::create(kRecordsBytes);
    index.expect(entries);
    for (uint64_t i = 0; i < entries; ++i) {
      index.begin_change(key(i).hash);
      index.insert(key(i).hash, 0, key(i).slot);
      index.end_change(key(i).hash);
    }
    EXPECT_EQ(index.splits() + index.merges(), 0u);
    index.expect_no_more();
    EXPECT_EQ(index.merges(), 0u);
    for (uint64_t i = 0; i < entries; ++i) {
      const uint64_t bucket = index.bucket_of(key(i).hash);
      const auto* buckets = reinterpret_cast<const Bucket*>(index.piece(0).data());
      EXPECT_TRUE(buckets[bucket].shape.holds(key(i).hash, bucket));
      EXPECT_TRUE(index.contains(key(i).hash, key(i).slot));
    }
  }
}

TEST_F(HashIndexTest, RoomThatWasNotNeededIsGivenUp) {
  index_.expect(200'000);
  put_all(0, 10'000);
  EXPECT_EQ(index_.bucket_count(), 200'000 / HashIndex::kGrowAbove);
  index_.expect_no_more();
  EXPECT_EQ(index_.bucket_count(), 10'000 / HashIndex::kShrinkBelow);
  EXPECT_EQ(count_of(0, 10'000), 10'000u);
  EXPECT_EQ(at(kBucketsPerPiece + 17).version, 0u);
}

// ---- buckets in change ----

TEST_F(HashIndexTest, BucketInChangeSplitsLaterAndKeepsNoOtherFromSplitting) {
  const Key held = key(1'000'000);
  index_.begin_change(held.hash);
  const uint64_t bucket = index_.bucket_of(held.hash);
  put_all(0, 40'000);
  EXPECT_EQ(index_.bucket_of(held.hash), bucket);
  EXPECT_EQ(at(bucket).shape.depth(), kLeastDepth);
  EXPECT_EQ(index_.bucket_count(), 40'000 / HashIndex::kGrowAbove);
  const uint64_t grown = index_.bucket_count() - HashIndex::kLeastBuckets;
  EXPECT_LT(index_.splits(), grown);
  EXPECT_GT(index_.splits(), grown - 16);
  EXPECT_EQ(count_of(0, 40'000), 40'000u);
  index_.insert(held.hash, 0, held.slot);
  index_.end_change(held.hash);
  for (int i = 0; i < 32; ++i) touch(key(7).hash);
  EXPECT_EQ(index_.splits(), index_.bucket_count() - HashIndex::kLeastBuckets)
      << "the late ones were made up for";
  EXPECT_EQ(count_of(0, 40'000), 40'000u);
  EXPECT_TRUE(index_.contains(held.hash, held.slot));
  EXPECT_LT(index_.overflowed(), 40'000u / 30);
}

TEST_F(HashIndexTest, BucketInChangeIsNotMerged) {
  put_all(0, 20'000);
  const uint64_t count = index_.bucket_count();
  // In the last bucket, which would go first, and in its parent.
  for (const uint64_t bucket : {count - 1, parent_bucket(count - 1)}) {
    uint64_t number = 1'000'000;
    while (index_.bucket_of(key(number).hash) != bucket) ++number;
    const Key held = key(number);
    index_.begin_change(held.hash);
    erase_all(100, 20'000);
    EXPECT_EQ(index_.bucket_count(), count);
    EXPECT_EQ(index_.bucket_of(held.hash), bucket);
    put_all(100, 20'000);
    index_.insert(held.hash, 0, held.slot);
    index_.end_change(held.hash);
    EXPECT_TRUE(index_.contains(held.hash, held.slot));
    erase(held);
  }
}

TEST_F(HashIndexTest, ChangesOfABucketNestWhileOthersSplit) {
  const Key held = key(1'000'000);
  index_.begin_change(held.hash);
  index_.begin_change(held.hash);
  put_all(0, 10'000);
  index_.end_change(held.hash);
  EXPECT_EQ(index_.version(index_.bucket_of(held.hash)) % 2, 1u);
  put_all(10'000, 20'000);
  index_.end_change(held.hash);
  for (int i = 0; i < 32; ++i) touch(key(7).hash);
  EXPECT_EQ(index_.splits(), index_.bucket_count() - HashIndex::kLeastBuckets);
  EXPECT_EQ(count_of(0, 20'000), 20'000u);
}

// ---- versions ----

// What a bucket shows at an even version it shows at no other time at this version: so what was
// found absent is still absent while the version is the same.
TEST_F(HashIndexTest, VersionOfABucketNeverReturns) {
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> seen;  // bucket, version -> what it showed
  const auto look = [&] {
    for (uint64_t bucket = 0; bucket < index_.end_of_buckets(); ++bucket) {
      const Bucket& now = at(bucket);
      if (!now.shape.in_use()) {
        ASSERT_FALSE(seen.contains({bucket, now.version})) << "an absence from before it has gone";
        continue;
      }
      ASSERT_EQ(now.version % 2, 0u);
      ASSERT_NE(now.version, 0u);
      const auto shown = base::checksum64(std::as_bytes(std::span(&now, 1)), 1);
      const auto [other, is_new] = seen.try_emplace({bucket, now.version}, shown);
      ASSERT_EQ(other->second, shown) << "bucket " << bucket << " version " << now.version;
    }
  };
  for (uint64_t round = 0; round < 12; ++round) {
    // Other keys each time, so that a bucket does not show the same by chance.
    const uint64_t from = round * 20'000;
    for (uint64_t i = 0; i < 12'000; ++i) {
      put(key(from + i));
      if (i % 500 == 0) look();
    }
    for (uint64_t i = 0; i < 12'000; ++i) {
      erase(key(from + i));
      if (i % 500 == 0) look();
    }
    look();
  }
}

// An absence that a client saw in a bucket that has gone since is a Conflict, not nonsense.
TEST_F(HashIndexTest, BucketsThatWereInUseAreKnownAfterTheyHaveGone) {
  put_all(0, 20'000);
  const uint64_t end = index_.end_of_buckets();
  EXPECT_EQ(end, index_.bucket_count());
  const uint64_t version = index_.version(end - 1);
  erase_all(0, 20'000);
  EXPECT_EQ(index_.end_of_buckets(), end);
  EXPECT_NE(index_.version(end - 1), version);
}

// ---- readers ----

// Looks up a key as a client does, one READ in a step; see pmstore/client/reader.cc.
class SlowReader {
 public:
  SlowReader(HashIndex& index, Key wanted, uint64_t bucket_count, unsigned order)
      : index_(index), key_(wanted), order_(order) {
    hint_.start(bucket_count);
    go_to(hint_.bucket_of(wanted.hash));
  }
  enum class Answer { kNone, kFound, kAbsent, kAsk };

  Answer step() {
    const Bucket* const from = bucket();
    switch (stage_++) {
      case 0: before_ = from->version; return Answer::kNone;
      // The two lines of a bucket come in any order.
      case 1: copy_line(*from, order_ % 2); return Answer::kNone;
      case 2: copy_line(*from, 1 - order_ % 2); return Answer::kNone;
      default: return decide(from->version);
    }
  }

 private:
  const Bucket* bucket() const {
    static const Bucket kNever{};
    const auto piece = index_.piece(number_ / kBucketsPerPiece);
    if (piece.empty()) return &kNever;
    return reinterpret_cast<const Bucket*>(piece.data()) + number_ % kBucketsPerPiece;
  }
  void copy_line(const Bucket& from, unsigned line) {
    std::memcpy(reinterpret_cast<std::byte*>(&seen_) + 64 * line,
                reinterpret_cast<const std::byte*>(&from) + 64 * line, 64);
  }
  void go_to(uint64_t bucket) {
    number_ = bucket;
    stage_ = 0;
  }
  Answer decide(uint64_t after) {
    const bool whole = after % 2 == 0 && after == before_ && after == seen_.version;
    if (const auto next = hint_.next(key_.hash, number_, seen_.shape)) {
      if (++hops_ == BucketCountHint::kMostHops) return Answer::kAsk;
      go_to(*next);
      return Answer::kNone;
    }
    if (!whole || !seen_.shape.holds(key_.hash, number_)) {
      if (++again_ == 4) return Answer::kAsk;
      go_to(hint_.bucket_of(key_.hash));
      return Answer::kNone;
    }
    for (const uint64_t bits : seen_.entries) {
      if (bits != 0 && BucketEntry{bits}.slot() == key_.slot) return Answer::kFound;
    }
    return seen_.shape.overflow() != 0 ? Answer::kAsk : Answer::kAbsent;
  }

  HashIndex& index_;
  const Key key_;
  const unsigned order_;
  BucketCountHint hint_;
  uint64_t number_ = 0;
  unsigned stage_ = 0;
  unsigned hops_ = 0;
  unsigned again_ = 0;
  uint64_t before_ = 0;
  Bucket seen_{};
};

// Readers that look for keys which are always there, one READ after each store of every split and
// merge; the next store may come between any two READs.
class Readers {
 public:
  Readers(HashIndex& index, std::vector<Key> keys) : index_(index), keys_(std::move(keys)) {
    for (int i = 0; i < 24; ++i) readers_.push_back(start());
    index_.watch_steps([this] { step(); });
  }
  ~Readers() { index_.watch_steps({}); }
  // With the sizes that the index had.
  void note_size() { sizes_.push_back(index_.bucket_count()); }
  void step() {
    for (auto& reader : readers_) {
      const auto answer = reader->step();
      if (answer == SlowReader::Answer::kNone) continue;
      ++answers[static_cast<size_t>(answer)];
      reader = start();
    }
  }
  std::array<uint64_t, 4> answers{};

 private:
  std::unique_ptr<SlowReader> start() {
    const Key& wanted = keys_[random_() % keys_.size()];
    const uint64_t size =
        sizes_.empty() ? index_.bucket_count() : sizes_[random_() % sizes_.size()];
    return std::make_unique<SlowReader>(index_, wanted, size, static_cast<unsigned>(random_()));
  }

  HashIndex& index_;
  const std::vector<Key> keys_;
  std::vector<uint64_t> sizes_;
  std::vector<std::unique_ptr<SlowReader>> readers_;
  std::mt19937_64 random_{1};
};

TEST_F(HashIndexTest, ReadersAreNeverToldThatAKeyIsAbsentThatIsThere) {
  constexpr uint64_t kStaying = 64;
  std::vector<Key> staying;
  for (uint64_t i = 0; i < kStaying; ++i) staying.push_back(key(i));
  put_all(0, kStaying);
  Readers readers(index_, staying);
  // Few buckets, so that the readers' keys are in those that split: to 2,500 and back.
  for (int round = 0; round < 4; ++round) {
    for (uint64_t i = kStaying; i < 20'000; ++i) {
      put(key(i));
      if (i % 997 == 0) readers.note_size();
    }
    erase_all(kStaying, 20'000);
  }
  using Answer = SlowReader::Answer;
  const auto of = [&](Answer answer) { return readers.answers[static_cast<size_t>(answer)]; };
  EXPECT_EQ(of(Answer::kAbsent), 0u);
  EXPECT_GT(of(Answer::kFound), 10'000u);
  EXPECT_LT(of(Answer::kAsk), of(Answer::kFound) / 10);
}

}  // namespace
}  // namespace pmstore::internal
