// The judge is judged: hand-made histories with each anomaly, and random ones whose every order is
// tried.
#include "tests/scenario/store/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/scenario/store/history_replay.h"

namespace pmstore::scenario {
namespace {

using ::testing::HasSubstr;
using Outcome = History::Outcome;

// The transaction `name`, of the time from `began` to `ended`.
class Made {
 public:
  Made(uint64_t name, uint64_t began, uint64_t ended) : made_(name, began) {
    made_.end(Outcome::kCommitted, ended);
  }
  Made& reads(const char* key, uint64_t writer) {
    made_.read(key, writer);
    return *this;
  }
  Made& scans(const char* from, const char* to, History::Seen seen) {
    made_.scanned(from, to, std::move(seen));
    return *this;
  }
  Made& puts(const char* key) {
    made_.put(key);
    return *this;
  }
  Made& erases(const char* key) {
    made_.erase(key);
    return *this;
  }
  Made& aborted(uint64_t ended) {
    made_.end(Outcome::kAborted, ended);
    return *this;
  }
  Made& unknown() {
    made_.end(Outcome::kUnknown, 0);
    return *this;
  }
  operator History::Transaction() const { return made_; }  // NOLINT: it is one

 private:
  History::Transaction made_;
};

// What is wrong; empty: nothing.
std::string judged(const std::vector<History::Transaction>& transactions) {
  History history;
  for (const History::Transaction& each : transactions) history.add(each);
  return history.check().value_or("");
}

TEST(HistoryTest, SerialOnesAreGood) {
  EXPECT_EQ(judged({}), "");
  EXPECT_EQ(
      judged({Made(1, 0, 10).reads("a", 0).puts("a"),
              Made(2, 5, 20).reads("a", 1).reads("b", 0).puts("b"),
              Made(3, 5, 20).reads("a", 1).reads("b", 0), Made(4, 21, 30).reads("b", 2).erases("b"),
              Made(5, 31, 40).scans("a", "z", {{"a", 1}}).puts("c"),
              Made(6, 31, 40).scans("a", "z", {{"a", 1}, {"c", 5}})}),
      "");
}

TEST(HistoryTest, LostUpdateIsFound) {
  const std::string wrong =
      judged({Made(1, 0, 10).reads("a", 0).puts("a"), Made(2, 0, 10).reads("a", 0).puts("a")});
  EXPECT_THAT(wrong, HasSubstr("1 before 2: 1 read a as it was before 2 wrote it"));
  EXPECT_THAT(wrong, HasSubstr("2 before 1: 2 read a as it was before 1 wrote it"));
}

TEST(HistoryTest, WriteSkewIsFound) {
  const std::string wrong = judged({Made(1, 0, 10).reads("a", 0).reads("b", 0).puts("a"),
                                    Made(2, 0, 10).reads("a", 0).reads("b", 0).puts("b")});
  EXPECT_THAT(wrong, HasSubstr("1 read b as it was before 2 wrote it"));
  EXPECT_THAT(wrong, HasSubstr("2 read a as it was before 1 wrote it"));
}

TEST(HistoryTest, PhantomIsFound) {
  // Each counts the keys and adds one.
  const std::string wrong = judged(
      {Made(1, 0, 10).scans("a", "c", {}).puts("a"), Made(2, 0, 10).scans("a", "c", {}).puts("b")});
  EXPECT_THAT(wrong, HasSubstr("1 scanned b as it was before 2 wrote it"));
  EXPECT_THAT(wrong, HasSubstr("2 scanned a as it was before 1 wrote it"));
}

TEST(HistoryTest, StaleReadAfterAnAcknowledgementIsFound) {
  const std::string wrong = judged({Made(1, 0, 10).puts("a"), Made(2, 11, 20).reads("a", 0)});
  EXPECT_THAT(wrong, HasSubstr("1 before 2: 1 had ended at 10 when 2 began at 11"));
  EXPECT_THAT(wrong, HasSubstr("2 before 1: 2 read a as it was before 1 wrote it"));
  EXPECT_EQ(judged({Made(1, 0, 10).puts("a"), Made(2, 10, 20).reads("a", 0)}), "");
}

TEST(HistoryTest, StaleReadOfWhatWasErasedIsFound) {
  EXPECT_NE(judged({Made(1, 0, 10).puts("a"), Made(2, 11, 20).erases("a"),
                    Made(3, 21, 30).reads("a", 1)}),
            "");
  // And the erase that has no effect.
  EXPECT_NE(judged({Made(1, 0, 10).puts("a"), Made(2, 11, 20).erases("a"),
                    Made(3, 11, 30).reads("a", 0), Made(4, 31, 40).reads("a", 1)}),
            "");
}

TEST(HistoryTest, FracturedReadIsFound) {
  const std::string wrong =
      judged({Made(1, 0, 10).puts("a").puts("b"), Made(2, 11, 20).puts("a").puts("b"),
              Made(3, 11, 30).reads("a", 1).reads("b", 2)});
  EXPECT_THAT(wrong, HasSubstr("2 before 3: 3 read b as 2 had put it"));
  EXPECT_THAT(wrong, HasSubstr("3 before 2: 3 read a as it was before 2 wrote it"));
}

TEST(HistoryTest, HalfScannedRangeIsFound) {
  EXPECT_NE(
      judged({Made(1, 0, 10).puts("a").puts("b"), Made(2, 5, 20).scans("a", "c", {{"b", 1}})}), "");
  EXPECT_NE(judged({Made(1, 0, 10).puts("a").puts("b"), Made(2, 11, 20).erases("a").erases("b"),
                    Made(3, 11, 20).scans("a", "c", {{"b", 1}})}),
            "");
}

TEST(HistoryTest, ReadOfWhatWasAbortedIsFound) {
  EXPECT_THAT(judged({Made(1, 0, 10).puts("a").aborted(10), Made(2, 0, 10).reads("a", 1)}),
              HasSubstr("transaction 2: it read a of 1, which was aborted"));
  EXPECT_THAT(judged({Made(2, 0, 10).reads("a", 1)}), HasSubstr("which there never was"));
  EXPECT_THAT(judged({Made(1, 0, 10).puts("a").erases("a"), Made(2, 0, 10).reads("a", 1)}),
              HasSubstr("which did not leave it so"));
}

TEST(HistoryTest, HiddenOwnWriteAndAnUnrepeatableReadAreFound) {
  EXPECT_THAT(judged({Made(1, 0, 10).puts("a").scans("a", "b", {})}),
              HasSubstr("its own write of a is hidden"));
  EXPECT_THAT(judged({Made(1, 0, 10).puts("a").erases("a").reads("a", 1)}),
              HasSubstr("its own write of a is hidden"));
  EXPECT_THAT(
      judged({Made(1, 0, 10).puts("a"), Made(2, 0, 10).reads("a", 0).scans("a", "b", {{"a", 1}})}),
      HasSubstr("it saw a as absent, and then of 1"));
  EXPECT_THAT(judged({Made(1, 0, 10).puts("a"), Made(2, 0, 20).scans("b", "c", {{"a", 1}})}),
              HasSubstr("beyond its range"));
}

TEST(HistoryTest, BlindWritesMayHaveAnyOrderThatReadersAgreeOn) {
  EXPECT_EQ(judged({Made(1, 0, 10).puts("a").puts("b"), Made(2, 0, 10).puts("a").puts("b"),
                    Made(3, 11, 20).reads("a", 1).reads("b", 1)}),
            "");
  EXPECT_NE(judged({Made(1, 0, 10).puts("a").puts("b"), Made(2, 0, 10).puts("a").puts("b"),
                    Made(3, 11, 20).reads("a", 1).reads("b", 2)}),
            "");
  EXPECT_NE(judged({Made(1, 0, 10).puts("a"), Made(2, 0, 10).puts("a"),
                    Made(3, 11, 20).reads("a", 1), Made(4, 11, 20).reads("a", 2)}),
            "");
}

TEST(HistoryTest, UnknownOutcomesMayHaveHappenedLaterOrNever) {
  const Made first = Made(1, 0, 10).puts("a");
  const Made doubtful = Made(2, 5, 0).reads("a", 1).puts("a").unknown();
  EXPECT_EQ(judged({first, doubtful, Made(3, 50, 60).reads("a", 1)}), "");
  EXPECT_EQ(judged({first, doubtful, Made(3, 50, 60).reads("a", 1), Made(4, 70, 80).reads("a", 2)}),
            "");
  // Not before it began, and not without an effect that others have seen.
  EXPECT_NE(judged({first, Made(2, 30, 0).puts("a").unknown(), Made(3, 11, 20).reads("a", 2)}), "");
  EXPECT_NE(judged({first, doubtful, Made(3, 11, 20).reads("a", 2), Made(4, 21, 30).reads("a", 1)}),
            "");
  EXPECT_EQ(judged({first, Made(2, 11, 0).erases("a").unknown(), Made(3, 50, 60).reads("a", 0)}),
            "");
  EXPECT_NE(judged({first, Made(2, 11, 0).reads("a", 9).erases("a").unknown(),
                    Made(3, 50, 60).reads("a", 0)}),
            "");
}

TEST(HistoryTest, ShareOfScansThatOthersWroteIntoIsCounted) {
  History history;
  history.add(Made(1, 0, 10).scans("a", "c", {}));
  history.add(Made(2, 5, 20).puts("b"));
  history.add(Made(3, 21, 30).scans("a", "c", {{"b", 2}}));
  history.add(Made(4, 0, 8).scans("c", "d", {}).aborted(8));
  const History::Counts counts = history.counts();
  EXPECT_EQ(counts.transactions, 4u);
  EXPECT_EQ(counts.committed, 3u);
  EXPECT_EQ(counts.aborted, 1u);
  EXPECT_EQ(counts.with_scan, 3u);
  EXPECT_EQ(counts.scan_written_into, 1u);
}

// ---- random histories ----

struct Drawn {
  std::vector<History::Transaction> transactions;
  std::vector<uint32_t> certain;
  std::vector<uint32_t> doubtful;
};

// A few transactions that ran one after the other, with times that overlap; one step of some of
// them is then a lie.
Drawn draw(std::mt19937_64& random) {
  const auto below = [&](uint64_t bound) { return random() % bound; };
  const auto key = [&] { return std::string(1, static_cast<char>('a' + below(3))); };
  Drawn drawn;
  History::Seen state;
  std::map<std::string, std::vector<uint64_t>> versions = {{"a", {0}}, {"b", {0}}, {"c", {0}}};
  const auto count = static_cast<uint32_t>(2 + below(5));
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t moment = 10 * (i + 1);
    const uint64_t name = i + 1;
    History::Transaction one(name, moment - below(25) % moment);
    History::Seen after = state;
    for (uint64_t steps = 1 + below(3); steps > 0; --steps) {
      const std::string at = key();
      const bool lie = below(3) == 0;
      switch (below(4)) {
        case 0: {
          const auto value = after.find(at);
          const uint64_t right = value == after.end() ? 0 : value->second;
          const std::vector<uint64_t>& earlier = versions[at];
          const bool other = lie && !earlier.empty();
          one.read(at, other ? earlier[below(earlier.size())] : right);
          break;
        }
        case 1: {
          History::Seen seen(after.lower_bound(at), after.end());
          if (lie && !seen.empty()) seen.erase(seen.begin());
          one.scanned(at, "z", seen);
          break;
        }
        case 2:
          one.put(at);
          after[at] = name;
          versions[at].push_back(name);
          break;
        default: one.erase(at); after.erase(at);
      }
    }
    const bool doubtful = below(4) == 0;
    one.end(doubtful ? Outcome::kUnknown : Outcome::kCommitted, moment + below(25));
    (doubtful ? drawn.doubtful : drawn.certain).push_back(i);
    if (!doubtful || below(2) == 0) state = after;
    drawn.transactions.push_back(std::move(one));
  }
  return drawn;
}

bool some_order_explains(const Drawn& drawn) {
  for (uint32_t subset = 0; subset < uint32_t{1} << drawn.doubtful.size(); ++subset) {
    std::vector<uint32_t> order = drawn.certain;
    for (size_t i = 0; i < drawn.doubtful.size(); ++i) {
      if ((subset >> i & 1) != 0) order.push_back(drawn.doubtful[i]);
    }
    std::sort(order.begin(), order.end());
    do {
      HistoryReplay replay;
      const bool good = std::none_of(order.begin(), order.end(), [&](uint32_t i) {
        return replay.run(drawn.transactions[i]).has_value();
      });
      if (good) return true;
    } while (std::next_permutation(order.begin(), order.end()));
  }
  return false;
}

TEST(HistoryTest, VerdictsOnRandomHistoriesAreThoseOfTryingEveryOrder) {
  std::mt19937_64 random(1);
  int good = 0;
  int explained = 0;
  constexpr int kHistories = 4000;
  for (int i = 0; i < kHistories; ++i) {
    const Drawn drawn = draw(random);
    const bool expected = some_order_explains(drawn);
    const std::string wrong = judged(drawn.transactions);
    ASSERT_EQ(wrong.empty(), expected) << "history " << i << ": " << wrong;
    good += expected;
    explained += wrong.find("must be before") != std::string::npos;
  }
  EXPECT_GT(good, kHistories / 2);
  EXPECT_GT(kHistories - good, kHistories / 20);
  EXPECT_GT(explained, kHistories / 100);
}

}  // namespace
}  // namespace pmstore::scenario
