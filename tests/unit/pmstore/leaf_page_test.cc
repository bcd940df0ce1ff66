// Pages of ordered tables by one-sided READs: what they cost, and what is not believed. The
// server's index is a real one; its records are the test's.
#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "fabric/local/fault_injection.h"
#include "pmstore/server/leaf_regions.h"
#include "tests/unit/pmstore/client_fixture.h"

namespace pmstore {
namespace {

using internal::IndexKey;
using internal::KeyIndex;
using internal::NodeId;

constexpr TableId kOrdered = table_id(3, TableKind::kOrdered);
constexpr TableId kOther = table_id(4, TableKind::kOrdered);

// Does something at the server before each READ of the client, which is counted from 1.
class AtEachRead final : public fabric::FaultInjector {
 public:
  explicit AtEachRead(std::function<void(int read)> action) : action_(std::move(action)) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (point.request.op == fabric::OpCode::kRead) action_(++reads);
    return {};
  }
  int reads = 0;

 private:
  const std::function<void(int)> action_;
};

class LeafPages : public testing::FakeServerFixture {
 protected:
  void SetUp() override {
    ASSERT_TRUE(index_.add_ordered(kOrdered));
    server_->answer = [this](const auto& request, fabric::RpcCall call) {
      if (request.method != Method::kRangeScan) {
        return testing::FakeServer::answer_plainly(request, std::move(call));
      }
      answer_scan(request.body, std::move(call));
    };
    opens_table_ = false;
    connect();
  }

  struct Placed {
    SlotOffset slot;
    uint64_t version;
    std::string value;
  };
  void put(const std::string& key, const std::string& value) {
    const auto [at, is_new] = records_.try_emplace(key);
    Placed& record = at->second;
    const uint64_t bytes = record_bytes(key.size(), value.size());
    if (is_new) record.slot = SlotOffset{next_slot_};
    if (is_new) next_slot_ += kSlotBytes[size_class_of(bytes)];
    record.value = value;
    server_->store(record.slot, kOrdered, key, value, record.version += 1);
    if (!is_new) return;
    const IndexKey name = IndexKey::of(kOrdered, key);
    ASSERT_TRUE(index_.insert_alone(name, size_class_of(bytes), record.slot));
  }
  // The slot is free, and another transaction's.
  void erase(std::string key) {
    const Placed gone = records_.extract(key).mapped();
    index_.remove_alone(IndexKey::of(kOrdered, key), gone.slot);
    server_->store(gone.slot, kOther, "mallory", "666", gone.version + 1);
  }
  void fill(int from, int count) {
    for (int i = from; i < from + count; ++i) put(key(i), std::to_string(i));
  }
  static std::string key(int i) { return "key" + std::to_string(20'000 + i); }

  // As the real server does.
  void answer_scan(const std::vector<std::byte>& body, fabric::RpcCall call) {
    MessageReader message(body);
    const auto request = message.get<RangeScanRequest>();
    const std::string from(message.get_bytes(request.from_bytes));
    const std::string to(message.get_bytes(request.to_bytes));
    const internal::OrderedIndex* const index = index_.ordered(kOrdered);
    if (index == nullptr) return call.reply_error(make_error(ErrorCode::kUnknownTable));
    RangeScanReply head{};
    std::vector<LeafSeen> leaves;
    std::vector<std::string> keys;
    index->walk(
        {from, to},
        request.backwards != 0 ? internal::OrderedIndex::Direction::kBackward
                               : internal::OrderedIndex::Direction::kForward,
        [&](auto leaf) {
          leaves.push_back({leaf_unit(kOrdered, leaf.id), leaf.version});
          return true;
        },
        [&](internal::OrderedIndex::LeafKey next, const auto&) {
          internal::TreeNode::KeyRoom in;
          head.more = keys.size() == request.most_records;
          if (head.more == 0) keys.emplace_back(next.in(in));
          return head.more == 0;
        });
    MessageWriter writer(call.reply_room());
    head.leaves = static_cast<uint32_t>(leaves.size());
    head.records = static_cast<uint32_t>(keys.size());
    writer.put(head);
    for (const LeafSeen& leaf : leaves) writer.put(leaf);
    for (const std::string& next : keys) {
      const Placed& record = records_.at(next);
      writer.put(RangeItem{raw(record.slot),
                           record.version,
                           static_cast<uint32_t>(record.value.size()),
                           static_cast<uint16_t>(next.size()),
                           {}});
      writer.put_bytes(next);
      writer.put_bytes(record.value);
    }
    size_t bytes = writer.bytes();
    if (request.routes != 0) bytes = leaves_.add_routes(kOrdered, call.reply_room(), bytes);
    call.reply_filled(bytes);
  }

  Result<RecordPage> page(KeyRange range = {}, ScanDirection direction = ScanDirection::kForward,
                          uint32_t most = UINT32_MAX) {
    Transaction tx = client_->begin();
    TransactionScan scan = tx.scan(kOrdered, std::move(range), direction);
    return run(scan.next(most));
  }
  // Nothing else is in the table then, and the client knows both.
  static constexpr int kTwoLeaves = 220;
  void fill_two_leaves() {
    while (!records_.empty()) erase(records_.begin()->first);
    next_slot_ = 0;
    fill(0, kTwoLeaves);
    learn();
    ASSERT_GE(std::distance(records_.lower_bound(second_leaf()), records_.end()), 10);
    ASSERT_NE(second_leaf(), "");
  }
  // Its first fence.
  std::string second_leaf() const {
    const internal::OrderedIndex& index = *index_.ordered(kOrdered);
    return std::string(index.fences(index.leaf_of(key(kTwoLeaves - 1))).low);
  }
  // The client learns where the leaves are.
  void learn() {
    ASSERT_TRUE(page());
    if (leaves_.needs_work()) run(leaves_.work());
    ASSERT_TRUE(page());
    server_->requests.clear();
  }
  size_t asked() const { return server_->count(Method::kRangeScan); }
  template <typename Records>
  static std::string text(const Records& records) {
    std::string all;
    for (const auto& record : records) {
      all.append(record.key).append("=").append(record.value).append(" ");
    }
    return all;
  }
  // What a scan of the whole table should see now.
  std::string now() const {
    std::string all;
    for (const auto& [key, record] : records_) all += key + "=" + record.value + " ";
    return all;
  }

  KeyIndex index_ = std::move(*KeyIndex::create(1 << 20));
  internal::LeafRegions leaves_{executor_, server_->device(), index_};
  std::map<std::string, Placed> records_;
  uint64_t next_slot_ = 0;
};

TEST_F(LeafPages, LeavesAreKnownOnceTheirMemoryIsRegistered) {
  fill(0, 3);
  ASSERT_TRUE(page());
  EXPECT_TRUE(leaves_.needs_work());
  EXPECT_EQ(leaves_.registered(), 0u);
  run(leaves_.work());
  EXPECT_FALSE(leaves_.needs_work());
  EXPECT_EQ(leaves_.registered(), 1u);
  ASSERT_TRUE(page());
  EXPECT_EQ(asked(), 2u);
  const auto spent = cost([&] { EXPECT_EQ(text(*page()), now()); });
  EXPECT_EQ(asked(), 2u);
  EXPECT_EQ(spent.server_messages, 0u);
  EXPECT_EQ(spent.round_trips, 2u);
  EXPECT_EQ(spent.doorbells, 2u);
}

TEST_F(LeafPages, ClientThatReadsByMessagesAsksForNoRoutes) {
  fill(0, 3);
  options_.misses = MissPath::kRpc;
  connect();
  ASSERT_TRUE(page());
  EXPECT_FALSE(leaves_.needs_work());
}

// Any pages of any ranges are those of the index, also over several leaves.
TEST_F(LeafPages, PagesAreThoseOfTheIndex) {
  fill(0, 1000);
  learn();
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const int from = static_cast<int>(random() % 1010) - 5;
    const int to = from + static_cast<int>(random() % 40);
    KeyRange range{from < 0 ? "" : key(from) + (random() % 2 ? "+" : ""),
                   to >= 1000 ? "" : key(to) + (random() % 2 ? "+" : "")};
    const bool forward = random() % 2 == 0;
    std::vector<Record> expected;
    for (const auto& [name, record] : records_) {
      if (name < range.from || (!range.to.empty() && name >= range.to)) continue;
      expected.push_back({name, record.value});
    }
    if (!forward) std::reverse(expected.begin(), expected.end());
    Transaction tx = client_->begin();
    TransactionScan scan = tx.scan(kOrdered, std::move(range),
                                   forward ? ScanDirection::kForward : ScanDirection::kBackward);
    RecordPage all;
    const auto most = static_cast<uint32_t>(1 + random() % 30);
    for (auto part = run(scan.next(most)); part && !part->empty(); part = run(scan.next(most))) {
      EXPECT_LE(part->size(), most);
      for (const RecordRef record : *part) all.add(record.key, record.value);
    }
    ASSERT_EQ(text(all), text(expected));
  }
  EXPECT_LE(asked(), 10u) << "empty ranges";
}

// Before each READ of a page, one after the other, the table changes: the page is of the moment
// before the change or of the moment after it.
TEST_F(LeafPages, PageIsOfOneMoment) {
  struct Change {
    const char* name;
    std::function<void()> make;
    bool beside = false;  // of the range that is scanned
  };
  const Change changes[] = {
      {"insert", [this] { put(key(2) + "+", "new"); }},
      {"erase", [this] { erase(key(2)); }},
      {"erase and insert", [this] { erase(key(2)), put(key(2), "new"); }},
      {"update of two", [this] { put(key(1), "new"), put(key(4), "new"); }},
      {"insert and update", [this] { put(key(2) + "+", "new"), put(key(4), "new"); }},
      {"split", [this] { fill(-900, 900); }, true},
      {"merge", [this] {
         fill(-900, 900);
         for (int i = -900; i < 0; ++i) erase(key(i));
         put(key(3) + "+", "new");
       }}};
  for (const Change& change : changes) {
    bool happened = true;
    for (int at = 1; happened; ++at) {
      SCOPED_TRACE(std::string(change.name) + " before READ " + std::to_string(at));
      while (!records_.empty()) erase(records_.begin()->first);
      next_slot_ = 0;
      fill(0, 6);
      learn();
      const std::string before = now();
      happened = false;
      AtEachRead injector([&](int read) {
        if (read != at) return;
        change.make();
        happened = true;
      });
      const fabric::ScopedFaultInjector installed(injector);
      Transaction tx = client_->begin();
      TransactionScan scan = tx.scan(kOrdered, {key(0), ""});
      const auto records = run(scan.next());
      ASSERT_TRUE(records) << records.error().to_string();
      const std::string after = now();
      const std::string got = text(*records);
      const bool whole = got == before || (got == after.substr(after.find(key(0))));
      EXPECT_TRUE(whole) << got;
      EXPECT_TRUE(at > 1 || got != before || change.beside) << "it has happened before the page";
      EXPECT_TRUE(happened || asked() == 0);
    }
  }
}

// A page leads backwards from the second leaf to the first one, which splits before it is READ. The
// second leaf has its old version: only the fences say that a leaf is between the two.
TEST_F(LeafPages, LeafThatASplitPutsBetweenIsNotPassedOver) {
  fill_two_leaves();
  AtEachRead injector([&](int read) {
    if (read != 3) return;  // behind both of the second leaf
    for (int i = 0; i < kTwoLeaves / 2; ++i) put(key(i) + "+", "new");
  });
  const fabric::ScopedFaultInjector installed(injector);
  const auto records = page({}, ScanDirection::kBackward);
  ASSERT_TRUE(records) << records.error().to_string();
  EXPECT_GE(injector.reads, 3);
  auto next = records_.rbegin();
  for (const RecordRef record : *records) EXPECT_EQ(record.key, next++->first);
}

// The lines of the page come from before a change, but for the first one, with the version.
TEST_F(LeafPages, PageWhoseLinesCameOutOfOrderIsNotBelieved) {
  fill(0, 6);
  learn();
  const std::span<std::byte> leaf =
      index_.share_chunk_of(kOrdered, 1).subspan(internal::kNodeBytes, internal::kNodeBytes);
  const std::vector<std::byte> before(leaf.begin(), leaf.end());
  std::vector<std::byte> after;
  AtEachRead injector([&](int read) {
    if (read == 2) {
      put(key(2) + "+", "new");
      after.assign(leaf.begin(), leaf.end());
      std::copy(before.begin() + 8, before.end(), leaf.begin() + 8);
    } else if (!after.empty()) {
      std::copy(after.begin(), after.end(), leaf.begin());
    }
  });
  const fabric::ScopedFaultInjector installed(injector);
  EXPECT_EQ(text(*page()), now());
  EXPECT_EQ(asked(), 1u);
}

TEST_F(LeafPages, LockedRecordIsAskedFor) {
  fill(0, 6);
  learn();
  LockWord& word = server_->word_of(records_.at(key(4)).slot);
  word = LockWord::locked(word.version(), 1);
  EXPECT_EQ(text(*page()), now());
  EXPECT_EQ(asked(), 1u);
  EXPECT_EQ(page({"", key(4)})->size(), 4u);
  EXPECT_EQ(asked(), 1u) << "another part of the leaf";
}

// A transaction has locked a record, and may be logged, before another one writes what it depends
// on: a page that shows the later one may not show the earlier one's record as it was.
TEST_F(LeafPages, RecordThatIsLockedBeforeAnotherIsWrittenIsAskedFor) {
  fill(0, 6);
  learn();
  bool happened = true;
  for (int at = 1; happened; ++at) {
    SCOPED_TRACE(at);
    put(key(4), "old");
    server_->requests.clear();
    LockWord& word = server_->word_of(records_.at(key(1)).slot);
    const LockWord unlocked = word;
    happened = false;
    AtEachRead injector([&](int read) {
      if (read != at) return;
      word = LockWord::locked(word.version(), 1);
      put(key(4), "new");
      happened = true;
    });
    const fabric::ScopedFaultInjector installed(injector);
    const auto records = page();
    ASSERT_TRUE(records);
    EXPECT_TRUE((*records)[4].value == "old" || asked() == 1);
    word = unlocked;
  }
}

TEST_F(LeafPages, LeafInChangeIsAskedFor) {
  fill(0, 6);
  learn();
  const std::string name = key(3);
  const IndexKey changing = IndexKey::of(kOrdered, name);
  ASSERT_TRUE(index_.begin_change(changing));
  EXPECT_EQ(text(*page()), now());
  EXPECT_EQ(asked(), 1u);
  EXPECT_EQ(page({"", key(2)})->size(), 2u);
  EXPECT_EQ(asked(), 2u) << "another part of the leaf";
  index_.end_change(changing);
  EXPECT_EQ(text(*page()), now());
  EXPECT_EQ(asked(), 2u);
}

TEST_F(LeafPages, RouteToALeafThatWasSplitIsForgotten) {
  fill(0, 6);
  learn();
  fill(6, 900);
  EXPECT_EQ(page({key(900), ""})->size(), 6u);
  EXPECT_EQ(asked(), 1u);
  EXPECT_EQ(page({key(900), ""})->size(), 6u);
  EXPECT_EQ(asked(), 1u);
}

// The link back is none of what a leaf's version tells of.
TEST_F(LeafPages, NeighbourThatWasSplitIsNotBelieved) {
  for (const int at : {1, 2, 3, 4, 5}) {
    SCOPED_TRACE(at);
    fill_two_leaves();
    const auto begin = records_.lower_bound(second_leaf());
    const std::string behind = std::next(begin, 4)->first;
    const std::string old = std::prev(begin)->first;
    AtEachRead injector([&](int read) {
      if (read != at) return;
      for (int i = 0; i < 300; ++i) put(old + std::to_string(1000 + i), "new");
    });
    const fabric::ScopedFaultInjector installed(injector);
    const auto records = page({"", behind}, ScanDirection::kBackward, 8);
    ASSERT_TRUE(records);
    ASSERT_EQ(records->size(), 8u);
    const std::string found((*records)[4].key);
    EXPECT_TRUE(found == old + "1299" || (found == old && at > 1)) << found;
  }
}

TEST_F(LeafPages, LeafThatWasMergedIsNotBelieved) {
  fill_two_leaves();
  const auto range = [&] { return KeyRange{second_leaf(), ""}; };
  KeyRange second = range();
  for (int i = 5; i < kTwoLeaves - 2; ++i) erase(key(i));
  ASSERT_NE(second_leaf(), second.from);
  EXPECT_EQ(page(std::move(second))->size(), 2u);
}

TEST_F(LeafPages, PageOfALeafThatIsMergedIsOfOneMoment) {
  bool happened = true;
  for (int at = 1; happened; ++at) {
    SCOPED_TRACE(at);
    fill_two_leaves();
    const std::string from = key(kTwoLeaves - 8);
    const std::string all = now();
    const std::string before = all.substr(all.find(from));
    const std::string second = second_leaf();
    happened = false;
    AtEachRead injector([&](int read) {
      if (read != at) return;
      for (int i = 5; key(i) < second; ++i) erase(key(i));  // of the first leaf alone
      EXPECT_NE(second_leaf(), second);
      put(key(kTwoLeaves - 5) + "+", "new");
      put(key(kTwoLeaves - 3), "new");
      happened = true;
    });
    const fabric::ScopedFaultInjector installed(injector);
    const auto records = page({from, ""});
    ASSERT_TRUE(records);
    const std::string later = now();
    const std::string got = text(*records);
    EXPECT_TRUE(got == later.substr(later.find(from)) || (got == before && at > 1)) << got;
  }
}

TEST_F(LeafPages, LargeRecordsAreAskedFor) {
  for (int i = 0; i < 4; ++i) put(key(i), std::string(6000, 'x'));
  learn();
  EXPECT_EQ(text(*page()), now());
  EXPECT_EQ(asked(), 1u) << "READs would bring fewer of them";
  EXPECT_EQ(page({}, ScanDirection::kForward, 2)->size(), 2u);
  EXPECT_EQ(asked(), 1u);
}

TEST_F(LeafPages, ServerIsAskedNowAndThenWhetherTheTableIsThere) {
  fill(0, 3);
  learn();
  let_time_pass(Client::kTableSeenNs);
  EXPECT_TRUE(page());
  EXPECT_EQ(asked(), 1u);
  EXPECT_TRUE(page());
  EXPECT_EQ(asked(), 1u);
}

TEST_F(LeafPages, LeafOfADroppedTableIsNotBelieved) {
  learn();
  ASSERT_EQ(page()->size(), 0u);
  EXPECT_EQ(asked(), 0u);
  index_.forget_ordered(kOrdered);
  EXPECT_EQ(page().code(), ErrorCode::kUnknownTable);
}

// Its keys go one by one, in no order: what is left of them is not the table.
TEST_F(LeafPages, LeafOfATableWhoseKeysAreBeingFreedIsNotBelieved) {
  fill(0, 6);
  learn();
  ASSERT_EQ(page()->size(), 6u);
  ASSERT_EQ(asked(), 0u);
  index_.leave_ordered(kOrdered);
  EXPECT_TRUE(page());
  EXPECT_EQ(asked(), 1u);
}

// The memory of a table that is dropped is the next table's.
TEST_F(LeafPages, LeafOfAnotherTableIsNotBelieved) {
  learn();
  ASSERT_EQ(page()->size(), 0u);
  EXPECT_EQ(asked(), 0u);
  const std::byte* const memory = index_.share_chunk_of(kOrdered, 1).data();
  index_.forget_ordered(kOrdered);
  ASSERT_TRUE(index_.add_ordered(kOther));
  EXPECT_EQ(index_.share_chunk_of(kOther, 1).data(), memory);
  EXPECT_EQ(page().code(), ErrorCode::kUnknownTable);
}

}  // namespace
}  // namespace pmstore
