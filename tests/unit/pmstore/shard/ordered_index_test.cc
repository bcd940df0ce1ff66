#include "pmstore/shard/ordered_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

namespace pmstore::internal {
namespace {

using Direction = OrderedIndex::Direction;

IndexEntry record(uint64_t i) { return {SlotOffset{i * 64}, static_cast<uint8_t>(i % 40)}; }

std::string number(uint64_t i) {
  std::string key(8, '\0');
  for (size_t b = 0; b < 8; ++b) key[b] = static_cast<char>(i >> (56 - 8 * b));
  return key;
}

// What a scan sees and relies on.
struct Seen {
  std::vector<std::string> keys;
  std::vector<OrderedIndex::Leaf> leaves;
};

class Ordered : public ::testing::Test {
 protected:
  static constexpr uint64_t kMemory = 64 << 20;

  void insert(const std::string& key, uint64_t i = 1) {
    ASSERT_TRUE(index_.begin_change(key));
    index_.insert(key, record(i));
    index_.end_change(key);
  }
  void erase(const std::string& key) {
    ASSERT_TRUE(index_.begin_change(key));
    index_.remove(key);
    index_.end_change(key);
  }
  Seen walk(OrderedIndex::Range range, Direction direction = Direction::kForward,
            size_t limit = SIZE_MAX) const {
    Seen seen;
    index_.walk(
        range, direction,
        [&](OrderedIndex::Leaf leaf) {
          seen.leaves.push_back(leaf);
          return true;
        },
        [&](OrderedIndex::LeafKey key, const OrderedIndex::Entry&) {
          TreeNode::KeyRoom room;
          seen.keys.emplace_back(key.in(room));
          return seen.keys.size() < limit;
        });
    return seen;
  }
  // As a commit validates a scan.
  bool still_valid(const Seen& seen) const {
    return std::all_of(seen.leaves.begin(), seen.leaves.end(), [&](const auto& leaf) {
      return leaf.version % 2 == 0 && index_.is_leaf(leaf.id) &&
             index_.version(leaf.id) == leaf.version;
    });
  }

  OrderedIndex index_ = std::move(*OrderedIndex::create(kMemory));
};

TEST_F(Ordered, EmptyIndexHasOneLeafThatAScanRelatesTo) {
  EXPECT_FALSE(index_.find("a"));
  const Seen seen = walk({});
  EXPECT_TRUE(seen.keys.empty());
  ASSERT_EQ(seen.leaves.size(), 1u);
  EXPECT_TRUE(still_valid(seen));
  insert("a");
  EXPECT_FALSE(still_valid(seen));
  index_.check_all();
}

TEST_F(Ordered, FindsWhatWasInserted) {
  insert("b", 7);
  const auto found = index_.find("b");
  ASSERT_TRUE(found);
  EXPECT_EQ(raw(found->record->slot), 7u * 64);
  EXPECT_EQ(found->record->size_class, 7);
  EXPECT_FALSE(found->in_change);
  EXPECT_FALSE(index_.find("a"));
  EXPECT_FALSE(index_.find("bb"));
  erase("b");
  EXPECT_FALSE(index_.find("b"));
}

TEST_F(Ordered, KeysWithZerosAndCommonBeginningsHaveTheirOrder) {
  const std::vector<std::string> keys = {std::string(1, '\0'),
                                         std::string(2, '\0'),
                                         std::string("a"),
                                         std::string("a\0", 2),
                                         std::string("a\0\0", 3),
                                         std::string("aa"),
                                         std::string("abcd"),
                                         std::string("abcde"),
                                         std::string("abcdf"),
                                         std::string("\xff"),
                                         std::string(kMaxKeyBytes, '\xff')};
  std::vector<std::string> shuffled = keys;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937_64(3));
  for (const std::string& key : shuffled) insert(key);
  EXPECT_EQ(walk({}).keys, keys);
  EXPECT_EQ(walk({"a", "abcde"}).keys, std::vector(keys.begin() + 2, keys.begin() + 7));
}

TEST_F(Ordered, ChangeIsSeenFromItsBeginToItsEnd) {
  insert("a");
  const Seen before = walk({});
  ASSERT_TRUE(index_.begin_change("b"));
  EXPECT_FALSE(index_.find("b")->record);
  EXPECT_FALSE(still_valid(before));
  EXPECT_FALSE(still_valid(walk({}))) << "amid a change nothing can be relied on";
  ASSERT_TRUE(index_.begin_change("a"));
  EXPECT_TRUE(index_.find("a")->in_change);
  EXPECT_TRUE(index_.find("a")->record);
  index_.end_change("b");
  EXPECT_FALSE(still_valid(walk({}))) << "the other change goes on";
  index_.end_change("a");
  EXPECT_TRUE(still_valid(walk({})));
  EXPECT_FALSE(still_valid(before)) << "versions do not come back";
  EXPECT_EQ(walk({}).keys, std::vector<std::string>{"a"});
  index_.check_all();
}

TEST_F(Ordered, MovedRecordKeepsItsKey) {
  insert("a", 1);
  ASSERT_TRUE(index_.begin_change("a"));
  index_.remove("a");
  index_.insert("a", record(9));
  index_.end_change("a");
  EXPECT_EQ(raw(index_.find("a")->record->slot), 9u * 64);
  EXPECT_EQ(index_.size(), 1u);
}

TEST_F(Ordered, AscendingKeysFillTheirLeaves) {
  constexpr uint64_t kKeys = 100'000;
  for (uint64_t i = 0; i < kKeys; ++i) insert(number(i), i);
  index_.check_all();
  EXPECT_EQ(index_.size(), kKeys);
  EXPECT_LT(index_.bytes_in_use(), kKeys * (8 + 20));
  const Seen seen = walk({number(500), number(600)});
  ASSERT_EQ(seen.keys.size(), 100u);
  EXPECT_EQ(seen.keys.front(), number(500));
  EXPECT_LE(seen.leaves.size(), 2u);
}

TEST_F(Ordered, RandomKeysTakeLessThanFortyBytesBesideTheKey) {
  constexpr uint64_t kKeys = 100'000;
  std::mt19937_64 random(1);
  for (uint64_t i = 0; i < kKeys; ++i) insert(number(random()), i);
  index_.check_all();
  EXPECT_LT(index_.bytes_in_use(), kKeys * (8 + 40));
}

TEST_F(Ordered, ErasedKeysGiveTheirMemoryBack) {
  for (uint64_t i = 0; i < 50'000; ++i) insert(number(i * 7919 % 50'000), i);
  const uint64_t most = index_.bytes_in_use();
  for (uint64_t i = 0; i < 50'000; ++i) {
    if (i % 100 != 0) erase(number(i * 31 % 50'000));
  }
  index_.check_all();
  EXPECT_LT(index_.bytes_in_use(), most / 20);
  for (uint64_t i = 0; i < 50'000; i += 100) erase(number(i * 31 % 50'000));
  index_.check_all();
  EXPECT_EQ(index_.size(), 0u);
  EXPECT_EQ(index_.bytes_in_use(), kNodeBytes);
}

TEST_F(Ordered, SplitLeavesEachChangeWithItsLeaf) {
  for (uint64_t i = 0; i < 150; ++i) insert(number(i * 10), i);
  ASSERT_EQ(index_.bytes_in_use(), kNodeBytes);
  ASSERT_TRUE(index_.begin_change(number(100)));
  ASSERT_TRUE(index_.begin_change(number(1490)));
  // All of them before the middle: nothing else changes the right leaf.
  for (uint64_t i = 20; i < 60; ++i) insert(number(i * 10 + 5), i);
  ASSERT_NE(index_.leaf_of(number(100)), index_.leaf_of(number(1490)));
  index_.check_all();
  for (const uint64_t key : {100, 1490}) {
    EXPECT_EQ(index_.version(index_.leaf_of(number(key))) % 2, 1u);
    index_.end_change(number(key));
    EXPECT_EQ(index_.version(index_.leaf_of(number(key))) % 2, 0u);
  }
  index_.check_all();
}

TEST_F(Ordered, MergedLeafHasTheChangesOfBoth) {
  for (uint64_t i = 0; i < 300; ++i) insert(number(i), i);
  ASSERT_NE(index_.leaf_of(number(0)), index_.leaf_of(number(299)));
  ASSERT_TRUE(index_.begin_change(number(0)));
  ASSERT_TRUE(index_.begin_change(number(299)));
  for (uint64_t i = 1; i < 299; ++i) erase(number(i));
  ASSERT_EQ(index_.leaf_of(number(0)), index_.leaf_of(number(299)));
  index_.check_all();
  index_.end_change(number(0));
  EXPECT_EQ(index_.version(index_.leaf_of(number(0))) % 2, 1u) << "the other change goes on";
  index_.end_change(number(299));
  EXPECT_EQ(index_.version(index_.leaf_of(number(0))) % 2, 0u);
  index_.check_all();
}

// Also when the insert splits it, and the key comes into the new one.
TEST_F(Ordered, LeafThatCoveredAKeyHasAnotherVersionBehindItsInsert) {
  for (uint64_t i = 0; i < 2000; ++i) {
    const std::string key = number(i < 1000 ? i * 2 : (i - 1000) * 7919 % 1000 * 2 + 1);
    const NodeId leaf = index_.leaf_of(key);
    const uint64_t before = index_.version(leaf);
    insert(key, i);
    ASSERT_TRUE(!index_.is_leaf(leaf) || index_.version(leaf) > before) << i;
  }
}

TEST_F(Ordered, WithoutMemoryAnInsertIsFullAndNothingChanges) {
  OrderedIndex small = std::move(*OrderedIndex::create(16 * kNodeBytes));
  const auto insert_until_full = [&small] {
    for (uint64_t i = 0;; ++i) {
      const std::string key = number(i * 7919 % 100'003);
      const Status begun = small.begin_change(key);
      if (!begun) return std::pair(i, begun.code());
      small.insert(key, record(i));
      small.end_change(key);
    }
  };
  const auto [inserted, code] = insert_until_full();
  EXPECT_EQ(code, ErrorCode::kFull);
  EXPECT_GT(inserted, 500u);
  small.check_all();
  EXPECT_EQ(small.size(), inserted);
}

TEST_F(Ordered, LeafThatWasGivenUpShowsNoEarlierVersion) {
  for (uint64_t i = 0; i < 1000; ++i) insert(number(i), i);
  const Seen all = walk({});
  ASSERT_GT(all.leaves.size(), 3u);
  for (int round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < 1000; ++i) erase(number(i));
    for (uint64_t i = 0; i < 1000; ++i) insert(number(i), i);
    const Seen now = walk({});
    for (const auto& old : all.leaves) {
      EXPECT_TRUE(!index_.is_leaf(old.id) || index_.version(old.id) > old.version);
    }
    EXPECT_EQ(now.keys, all.keys);
  }
}

// ---- beside a reference ----

struct Shape {
  const char* name;
  size_t key_bytes;  // up to
  uint64_t names;    // so many different keys
  bool long_prefix;
};

class OrderedModel : public Ordered, public ::testing::WithParamInterface<Shape> {
 protected:
  std::string key(uint64_t i) const {
    std::mt19937_64 random(i);
    std::string key(1 + random() % GetParam().key_bytes, 'x');
    for (char& c : key) c = static_cast<char>(random() % 3 + (random() % 50 == 0 ? 0xfd : 'a'));
    if (GetParam().long_prefix) key = std::string(180, 'p') + key;
    return key.substr(0, kMaxKeyBytes);
  }
  std::vector<std::string> expected(const std::string& from, const std::string& to) const {
    std::vector<std::string> keys;
    for (auto at = model_.lower_bound(from); at != model_.end(); ++at) {
      if (!to.empty() && at->first >= to) break;
      keys.push_back(at->first);
    }
    return keys;
  }
  void change_one(std::mt19937_64& random);
  void end_one(const std::string& name, bool change);
  void scan_one(std::mt19937_64& random);

  std::map<std::string, bool> model_;  // whether it has a record; one that changes may have none
  std::vector<std::string> changing_;
  std::vector<std::pair<Seen, std::pair<std::string, std::string>>> relied_;
};

void OrderedModel::change_one(std::mt19937_64& random) {
  // Few at a time, so that there are leaves without one.
  if (!changing_.empty() && random() % 3 < 2 * changing_.size()) {
    return end_one(changing_[random() % changing_.size()], random() % 4 != 0);
  }
  const std::string name = key(random() % GetParam().names);
  if (std::find(changing_.begin(), changing_.end(), name) != changing_.end()) return;
  ASSERT_TRUE(index_.begin_change(name));
  model_.try_emplace(name, false);
  changing_.push_back(name);
}

void OrderedModel::end_one(const std::string& name, bool change) {
  bool& there = model_.at(name);
  if (change) {
    there ? index_.remove(name) : index_.insert(name, record(name.size()));
    there = !there;
  }
  index_.end_change(name);
  if (!there) model_.erase(name);
  std::erase(changing_, name);
}

void OrderedModel::scan_one(std::mt19937_64& random) {
  const std::string from = random() % 5 == 0 ? "" : key(random() % GetParam().names);
  const std::string to = random() % 5 == 0 ? "" : key(random() % GetParam().names);
  std::vector<std::string> keys = expected(from, to);
  if (!to.empty() && from >= to) keys.clear();
  const Seen seen = walk({from, to});
  ASSERT_EQ(seen.keys, keys);
  std::vector<std::string> backward = walk({from, to}, Direction::kBackward).keys;
  std::reverse(backward.begin(), backward.end());
  ASSERT_EQ(backward, keys);
  if (still_valid(seen)) relied_.emplace_back(seen, std::pair(from, to));
}

TEST_P(OrderedModel, ScansSeeTheReferenceAndRelyOnNothingThatChanged) {
  std::mt19937_64 random(11);
  uint64_t held = 0;
  uint64_t refused = 0;
  for (int step = 0; step < 8000; ++step) {
    change_one(random);
    if (step % 20 == 0) scan_one(random);
    if (step % 200 == 0) index_.check_all();
    for (auto relied = relied_.begin(); step % 10 == 0 && relied != relied_.end();) {
      const auto& [seen, range] = *relied;
      if (still_valid(seen)) {
        ASSERT_EQ(seen.keys, expected(range.first, range.second)) << "a phantom";
        ++held;
        ++relied;
      } else {
        ++refused;
        relied = relied_.erase(relied);
      }
    }
    ASSERT_EQ(index_.size(), model_.size());
  }
  EXPECT_GT(held, 0u);
  EXPECT_GT(refused, 0u);
  while (!changing_.empty()) end_one(std::string(changing_.back()), false);
  while (!model_.empty()) {
    erase(model_.begin()->first);
    model_.erase(model_.begin());
  }
  index_.check_all();
  EXPECT_EQ(index_.bytes_in_use(), kNodeBytes);
}

INSTANTIATE_TEST_SUITE_P(Keys, OrderedModel,
                         ::testing::Values(Shape{"short", 8, 4000, false},
                                           Shape{"long", kMaxKeyBytes, 3000, false},
                                           Shape{"prefixed", 60, 3000, true},
                                           Shape{"few", 12, 40, false}),
                         [](const auto& shape) { return std::string(shape.param.name); });

// A hostile server's page.
TEST_F(Ordered, NodeWhoseFencesAreNotInOrderIsNotWellFormed) {
  alignas(TreeNode) std::byte page[kNodeBytes] = {};
  auto& node = *reinterpret_cast<TreeNode*>(page);
  node.reset(0, {"a", "b"});
  EXPECT_TRUE(node.well_formed());
  node.reset(0, {"b", ""});
  EXPECT_TRUE(node.well_formed());
  node.reset(0, {"b", "a"});
  EXPECT_FALSE(node.well_formed());
  node.reset(0, {"b", "b"});
  EXPECT_FALSE(node.well_formed());
}

// Streams of keys that each ascend, and have much in common with the others.
TEST_F(Ordered, LeavesOfSeveralAscendingStreamsAreHalfFull) {
  OrderedIndex index = std::move(*OrderedIndex::create(64 << 20));
  const std::string common(100, 'p');
  for (uint32_t i = 0; i < 20'000; ++i) {
    std::string number = std::to_string(i / 10);
    number.insert(0, 8 - number.size(), '0');
    const std::string key = common + std::to_string(i % 10) + number;
    ASSERT_TRUE(index.begin_change(key));
    index.insert(key, IndexEntry{SlotOffset{64 * (i + 1)}, 0});
    index.end_change(key);
  }
  index.check_all();
  EXPECT_LT(index.bytes_in_use(), 20'000u * 64);
}

}  // namespace
}  // namespace pmstore::internal
