// What lies in a ring beyond its entries is erased before somebody else gets it.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "log/ring.h"
#include "persist/memory.h"
#include "tests/crash/crash_image.h"

namespace pmstore::log {
namespace {

constexpr uint64_t kRingBytes = 16 * 1024;
constexpr uint64_t kRingData = kRingBytes - kRingHeaderBytes;
constexpr uint32_t kRingSalt = 0x5a17;

class RingLeftovers : public testing::Test {
 protected:
  // Opened again and walked; the sequences of its entries.
  std::vector<uint64_t> reopen() {
    ring_ = std::move(Ring::open(memory_, 0, kRingBytes, kRingSalt).value());
    return walk();
  }
  std::vector<uint64_t> walk() {
    std::vector<uint64_t> found;
    const Status walked =
        ring_.walk([&](const EntryView& entry) { found.push_back(entry.sequence); });
    EXPECT_TRUE(walked) << walked.error().to_string();
    return found;
  }
  void append(uint64_t sequence, size_t bytes) {
    const std::vector<std::byte> payload(bytes, std::byte{7});
    ASSERT_TRUE(ring_.append(sequence, payload));
  }
  std::byte* data(uint64_t lsn) { return memory_.at(ring_.data_offset() + lsn % kRingData); }

  crash::PageBytes region_{kRingBytes};
  persist::Memory memory_{region_.bytes(), {.domain = persist::Domain::kCpuCache}};
  Ring ring_ = std::move(Ring::format(memory_, 0, kRingBytes, kRingSalt).value());
};

TEST_F(RingLeftovers, AreErasedWhenNoEntryIsLeft) {
  append(1, 900);
  append(2, 900);
  const std::vector<uint64_t> both = {1, 2};
  ASSERT_EQ(reopen(), both);
  EXPECT_EQ(ring_.erase_leftovers().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(walk(), both) << "refused, it has erased nothing";
  const uint64_t tail = ring_.position().tail_lsn;
  ASSERT_TRUE(ring_.truncate(*memory_.drain(), tail, 3));
  ASSERT_TRUE(ring_.erase_leftovers());
  for (uint64_t at = 0; at < kRingData; ++at) ASSERT_EQ(*data(at), std::byte{0}) << at;
  ASSERT_TRUE(ring_.take_over(9));
  append(5, 20);
  EXPECT_EQ(reopen(), std::vector<uint64_t>{5});
  EXPECT_EQ(ring_.position().start_lsn, tail);
}

// Whether the line was flushed and drained before anything was stored.
class FlushedFirst final : public persist::Observer {
 public:
  explicit FlushedFirst(const std::byte* line) : line_(line) {}

  void on_store(const void*, const void*, size_t, bool) override { stored_ = true; }
  void on_flush(const void* from, size_t bytes) override {
    const auto* const at = static_cast<const std::byte*>(from);
    flushed_ = flushed_ || (at <= line_ && line_ < at + bytes);
  }
  void on_drain() override { durable_first_ = durable_first_ || (flushed_ && !stored_); }
  bool durable_first() const { return durable_first_; }

 private:
  const std::byte* line_;
  bool stored_ = false;
  bool flushed_ = false;
  bool durable_first_ = false;
};

// The zeros over a forged entry may be in the caches of the process that died only; under the
// header of the next owner the entry must not come back.
TEST_F(RingLeftovers, WhatADeadOwnerHasErasedAtTheTailStaysErased) {
  append(1, 20);
  ASSERT_EQ(reopen(), std::vector<uint64_t>{1});  // as a process does that follows a dead one
  FlushedFirst observer(data(ring_.position().tail_lsn));
  memory_.set_observer(&observer);
  ASSERT_TRUE(ring_.take_over(9));
  memory_.set_observer(nullptr);
  EXPECT_TRUE(observer.durable_first());
}

TEST_F(RingLeftovers, PadWhoseEntryHasNeverComeIsOne) {
  append(1, 10);
  const PlannedEntry plan = plan_entry(ring_.position(), 900, false).value();
  ASSERT_GT(plan.pad_bytes, 0u);
  std::byte pad[kMaxPadWriteBytes];
  const size_t bytes = seal_pad(pad, plan, ring_.position());
  std::memcpy(data(plan.pad_lsn), pad, bytes);
  reopen();
  ASSERT_TRUE(ring_.truncate(*memory_.drain(), plan.pad_lsn, 2));
  ASSERT_TRUE(ring_.take_over(0));  // begins behind the pad
  reopen();
  ASSERT_TRUE(ring_.erase_leftovers());
  EXPECT_EQ(reopen(), std::vector<uint64_t>()) << "also if the next header never comes";
}

TEST_F(RingLeftovers, NothingIsWrittenForARingThatWasNotWalked) {
  Ring ring = Ring::open(memory_, 0, kRingBytes, kRingSalt).value();
  EXPECT_DEATH((void)ring.repeat_header(), "was not walked");
  EXPECT_DEATH((void)ring.make_walked_durable(), "known only after a walk");
  EXPECT_DEATH((void)ring.truncate(*memory_.drain(), 0, 0), "known only after a walk");
}

TEST_F(RingLeftovers, AHeaderThatOpenWouldRefuseIsNeverWritten) {
  EXPECT_DEATH((void)Ring::format(memory_, 0, kRingBytes, kRingSalt, 3),
               "would refuse this header");
}

}  // namespace
}  // namespace pmstore::log
