// Which newcomer goes when there are too many.
#include "fabric/internal/newcomers.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace pmstore::fabric::internal {
namespace {

constexpr Origin kHere{0, 1};
constexpr Origin kThere{0, 2};
constexpr Origin kElsewhere{7, 0};
constexpr uint64_t kGraceNs = Newcomers::kGraceNs;

class NewcomersTest : public testing::Test {
 protected:
  void TearDown() override {
    while (newcomers_.oldest() != nullptr) newcomers_.remove(*newcomers_.oldest());
  }
  Newcomer& add(const Origin& origin, uint64_t now_ns = 0) {
    newcomers_.add(all_.emplace_back(), origin, now_ns);
    return all_.back();
  }
  void add_many(const Origin& origin, size_t count, uint64_t now_ns = 0) {
    for (size_t i = 0; i < count; ++i) add(origin, now_ns);
  }

  std::deque<Newcomer> all_;
  Newcomers newcomers_{100};
};

TEST_F(NewcomersTest, NobodyGoesWhileThereIsRoom) {
  EXPECT_EQ(newcomers_.surplus(kHere, 0), nullptr);
  EXPECT_EQ(newcomers_.oldest(), nullptr);
  EXPECT_EQ(newcomers_.oldest_of_most(), nullptr);
  add_many(kHere, 99);
  EXPECT_EQ(newcomers_.surplus(kHere, 0), nullptr);
  EXPECT_EQ(newcomers_.surplus(kThere, 0), nullptr);
}

TEST_F(NewcomersTest, TheOldestOfTheOriginThatHasMostGoes) {
  Newcomer& lonely = add(kThere, 1);
  Newcomer& first = add(kHere, 2);
  add_many(kElsewhere, 40, 3);
  add_many(kHere, 58, 4);
  EXPECT_EQ(newcomers_.size(), 100u);
  EXPECT_EQ(newcomers_.oldest(), &lonely);
  EXPECT_EQ(newcomers_.surplus(kThere, 5), &first);
  EXPECT_EQ(newcomers_.surplus(kElsewhere, 5), &first);
  newcomers_.remove(first);
  EXPECT_EQ(newcomers_.surplus(kThere, 5), nullptr);
}

TEST_F(NewcomersTest, OfEqualOriginsTheOneWhoseOldestHasWaitedLongestGives) {
  Newcomer& first = add(kElsewhere, 1);
  add_many(kHere, 50, 2);
  add_many(kElsewhere, 49, 3);
  EXPECT_EQ(newcomers_.oldest_of_most(), &first);
}

// Many programs of one host start at the same moment; a flood that renews its sockets slowly does
// not get more than its share.
TEST_F(NewcomersTest, AnOriginKeepsToItsShareOnceItsNewcomersHaveWaited) {
  Newcomer& first = add(kHere, 0);
  add_many(kHere, Newcomers::kMostOfOrigin - 2, 0);
  EXPECT_EQ(newcomers_.surplus(kHere, kGraceNs), nullptr) << "it has room for one";
  add(kHere, 0);
  EXPECT_EQ(newcomers_.surplus(kHere, kGraceNs - 1), nullptr) << "they may be about to say hello";
  EXPECT_EQ(newcomers_.surplus(kHere, kGraceNs), &first);
  EXPECT_EQ(newcomers_.surplus(kThere, kGraceNs), nullptr) << "that is no matter of another one";
}

TEST_F(NewcomersTest, ASlowFloodHoldsItsShareAndLetsAllOthersIn) {
  constexpr uint64_t kEachNs = kGraceNs / 10;
  size_t most = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const Origin& origin = i % 20 == 19 ? kThere : kHere;
    const uint64_t now_ns = i * kEachNs;
    if (Newcomer* const surplus = newcomers_.surplus(origin, now_ns)) {
      ASSERT_EQ(surplus->origin, kHere);
      newcomers_.remove(*surplus);
    }
    Newcomer& added = add(origin, now_ns);
    most = std::max(most, newcomers_.size());
    if (origin == kThere) newcomers_.remove(added);  // it has said hello
  }
  EXPECT_LE(most, Newcomers::kMostOfOrigin + 1);
  EXPECT_GE(most, Newcomers::kMostOfOrigin);
}

TEST_F(NewcomersTest, ALowerBoundCountsFromTheNextOneOn) {
  add_many(kHere, 50);
  newcomers_.set_most(10);
  EXPECT_EQ(newcomers_.surplus(kThere, 0), newcomers_.oldest());
}

}  // namespace
}  // namespace pmstore::fabric::internal
