// Unloaded round trips of the modelled machine, against the published ones (docs/model-network.md).
#include <gtest/gtest.h>

#include "tests/unit/model/model_pair.h"

namespace pmstore::model {
namespace {

using fabric::Batch;

class ModelLatency : public ::testing::Test {
 protected:
  // The first one pays for misses of the RNICs' caches and of the DIMM's buffer.
  uint64_t warm(const Batch& batch) {
    pair_.execute(batch);
    pair_.pass(10'000);
    return pair_.execute(batch);
  }
  Batch write(size_t bytes) {
    Batch batch;
    return batch.write(pair_.at(0, bytes), pair_.in_nvm(0));
  }
  Batch read(size_t bytes) {
    Batch batch;
    return batch.read(pair_.at(0, bytes), pair_.in_dram(0));
  }

  ModelPair pair_;
};

// Within a tenth of a published figure that has one or two digits.
void expect_about(uint64_t ns, double published_us) {
  EXPECT_GT(static_cast<double>(ns), published_us * 900) << "published: " << published_us << " us";
  EXPECT_LT(static_cast<double>(ns), published_us * 1100) << "published: " << published_us << " us";
}

TEST_F(ModelLatency, AOneSidedRequestTakesTwoMicroseconds) {
  expect_about(warm(write(256)), 2.0);
  expect_about(warm(read(16)), 2.0);
  expect_about(warm(read(256)), 2.0);
}

TEST_F(ModelLatency, AnInlineWriteSavesTheFetchOfItsPayload) {
  EXPECT_LT(warm(write(64)) + 500, warm(write(256)));
}

TEST_F(ModelLatency, WriteAndReadWithOneDoorbellTakeThree) {
  Batch batch = write(256);
  batch.read(pair_.at(512, 1), pair_.in_nvm(255));
  expect_about(warm(batch), 3.0);
}

TEST_F(ModelLatency, WriteThenReadTakeFour) {
  Batch readback;
  readback.read(pair_.at(512, 1), pair_.in_nvm(255));
  const uint64_t write_ns = warm(write(256));
  expect_about(write_ns + pair_.execute(readback), 4.0);
}

TEST_F(ModelLatency, TheExactFiguresStayWhatTheyAre) {
  // Golden: a change here is a change of every figure of the model. Say why in the commit.
  Batch small, large, atomic;
  small.write(pair_.at(0, 16), pair_.in_dram(0));
  large.write(pair_.at(0, 256), pair_.in_dram(0));
  atomic.compare_swap(pair_.at(0, 8), pair_.in_dram(0), 1, 2);
  EXPECT_EQ(warm(small), 1454u);
  EXPECT_EQ(warm(large), 2070u);
  EXPECT_EQ(warm(read(16)), 2008u);
  EXPECT_EQ(warm(atomic), 2043u);
}

}  // namespace
}  // namespace pmstore::model
