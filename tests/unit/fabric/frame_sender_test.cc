// When a FrameSender takes the answers of READs from the memory that they show.
#include "fabric/internal/frame_sender.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"

namespace pmstore::fabric::internal {
namespace {

constexpr uint32_t kReadBytes = 1000;

struct ReadRegion final : MemoryRegion {
  explicit ReadRegion(size_t bytes) : MemoryRegion({}, Access::kRemoteRead), memory(bytes) {
    memory_ = memory;
  }
  void fill(char value) { std::fill(memory.begin(), memory.end(), std::byte(value)); }
  std::vector<std::byte> memory;
};

class FrameSenderAnswers : public testing::Test {
 protected:
  void read(uint32_t bytes, size_t offset = 0) {
    sender_.push_read_answer(region_.memory.data() + offset, bytes, region_);
  }
  // What leaves when the socket takes `room` bytes.
  std::string send(size_t room) {
    std::string left;
    while (left.size() < room && !sender_.empty()) {
      std::vector<iovec> pieces;
      const size_t wanted = sender_.gather(pieces, 128);
      if (wanted == 0) {
        ADD_FAILURE() << "it has something to send, and sends nothing";
        break;
      }
      std::string all;
      for (const iovec& piece : pieces) {
        all.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
      }
      EXPECT_EQ(all.size(), wanted);
      const size_t taken = std::min(wanted, room - left.size());
      left += all.substr(0, taken);
      sender_.count_sent(taken);
    }
    return left;
  }
  static FrameHeader header_at(const std::string& stream, size_t offset) {
    FrameHeader header{};
    if (stream.size() - offset < sizeof header) {
      ADD_FAILURE() << "half a frame";
    } else {
      std::memcpy(&header, stream.data() + offset, sizeof header);
    }
    return header;
  }
  // The bodies of the frames in `stream`, which is whole.
  static std::vector<std::string> bodies(const std::string& stream) {
    std::vector<std::string> found;
    for (size_t at = 0; at < stream.size();) {
      const FrameHeader header = header_at(stream, at);
      EXPECT_EQ(header.channel, 7u);
      const size_t bytes = header.kind == FrameKind::kDone ? 0 : header.bytes;
      found.push_back(stream.substr(at + sizeof header, bytes));
      at += sizeof header + bytes;
    }
    return found;
  }

  ReadRegion region_{1u << 20};
  FrameSender sender_{7};
};

TEST_F(FrameSenderAnswers, AreCopiedWhenTheyArePushed) {
  region_.fill('a');
  read(kReadBytes);
  region_.fill('b');
  read(8);
  EXPECT_FALSE(sender_.waits_for(region_));
  region_.fill('c');
  const auto found = bodies(send(SIZE_MAX));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0], std::string(kReadBytes, 'a'));
  EXPECT_EQ(found[1], std::string(8, 'b'));
}

// Also one that would find room.
TEST_F(FrameSenderAnswers, OfAReadThatWaitsAreCopiedBeforeThoseBehindIt) {
  region_.fill('a');
  while (!sender_.waits_for(region_)) read(FrameSender::kMaxPieceBytes);
  const uint32_t waiting = sender_.answers() - 1;
  read(8);
  region_.fill('b');
  const auto found = bodies(send(SIZE_MAX));
  ASSERT_EQ(found.size(), waiting + 2);
  EXPECT_EQ(found[waiting - 1], std::string(FrameSender::kMaxPieceBytes, 'a'));
  EXPECT_EQ(found[waiting], std::string(FrameSender::kMaxPieceBytes, 'b'));
  EXPECT_EQ(found[waiting + 1], std::string(8, 'b'));
}

TEST_F(FrameSenderAnswers, OfALargeReadComeInPiecesThatEndBetweenLines) {
  for (size_t i = 0; i < region_.memory.size(); ++i) region_.memory[i] = std::byte(i / 4096);
  read((1u << 20) - 24, 24);
  const auto found = bodies(send(SIZE_MAX));
  EXPECT_GT(found.size(), 1u);
  std::string whole;
  for (const std::string& piece : found) {
    EXPECT_LE(piece.size(), FrameSender::kMaxPieceBytes);
    whole += piece;
    const auto next = reinterpret_cast<uintptr_t>(region_.memory.data()) + 24 + whole.size();
    EXPECT_TRUE(&piece == &found.back() || next % 64 == 0);
  }
  EXPECT_EQ(std::memcmp(whole.data(), region_.memory.data() + 24, whole.size()), 0);
  EXPECT_EQ(whole.size(), (1u << 20) - 24);
  EXPECT_EQ(sender_.answers(), 0u);
}

// The memory changes all the time, and the socket takes what it wants.
TEST_F(FrameSenderAnswers, OfALaterReadAreNeverOlder) {
  Random random(3);
  std::string stream;
  std::vector<uint32_t> asked;
  uint8_t now = 0;
  size_t done = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    // So seldom that far less than 128 values are on their way at a time.
    if (turn % 24 == 0) region_.fill(static_cast<char>(++now));
    if (sender_.answers() < 40) {
      const uint32_t sizes[] = {8, 64, 200, 4096, 70'000, FrameSender::kMaxPieceBytes, 300'000};
      asked.push_back(sizes[random.below(std::size(sizes))]);
      read(asked.back());
    }
    if (random.below(8) == 0) sender_.push_done();
    stream += send(random.below(40'000));
  }
  stream += send(SIZE_MAX);
  uint8_t seen = 0;
  size_t left = 0;
  for (const std::string& body : bodies(stream)) {
    if (body.empty()) continue;  // a kDone
    if (left == 0) left = asked[done];
    ASSERT_LE(body.size(), left);
    for (const char byte : body) ASSERT_EQ(byte, body[0]) << "a piece is copied at one moment";
    ASSERT_LT(static_cast<uint8_t>(static_cast<uint8_t>(body[0]) - seen), 128) << "it is older";
    seen = static_cast<uint8_t>(body[0]);
    left -= body.size();
    if (left == 0) ++done;
  }
  EXPECT_EQ(left, 0u);
  EXPECT_EQ(done, asked.size());
  EXPECT_GT(done, 200u);
}

TEST_F(FrameSenderAnswers, ThatHaveBegunToLeaveAreCompletedFromTheCopy) {
  region_.fill('a');
  for (int i = 0; i < 20; ++i) read(1u << 20);
  ASSERT_TRUE(sender_.waits_for(region_));
  const std::string begun = send(sizeof(FrameHeader) + 5);
  ASSERT_TRUE(sender_.abandon());
  EXPECT_FALSE(sender_.waits_for(region_));
  region_.fill('z');
  const auto found = bodies(begun + send(SIZE_MAX));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0] == std::string(found[0].size(), 'a'));
  EXPECT_GT(found[0].size(), FrameSender::kMaxPieceBytes - 64) << "a piece ends with a line";
  EXPECT_TRUE(sender_.empty());
}

TEST_F(FrameSenderAnswers, ThatHaveNotBegunToLeaveAreForgotten) {
  for (int i = 0; i < 20; ++i) read(1u << 20);
  // At the border between two pieces of one READ, too.
  const auto end = reinterpret_cast<uintptr_t>(region_.memory.data()) + FrameSender::kMaxPieceBytes;
  send(sizeof(FrameHeader) + FrameSender::kMaxPieceBytes - end % 64);
  ASSERT_FALSE(sender_.mid_frame());
  ASSERT_TRUE(sender_.abandon());
  EXPECT_TRUE(sender_.empty());
}

TEST_F(FrameSenderAnswers, DoneThatHasBegunToLeaveCountsNoFurtherRequest) {
  sender_.push_done();
  std::string stream = send(offsetof(FrameHeader, channel));
  sender_.push_done();
  sender_.push_done();
  stream += send(SIZE_MAX);
  uint32_t done = 0;
  for (size_t at = 0; at < stream.size(); at += sizeof(FrameHeader)) {
    const FrameHeader header = header_at(stream, at);
    ASSERT_EQ(header.kind, FrameKind::kDone);
    done += header.bytes;
  }
  EXPECT_EQ(done, 3u);
}

using FrameSenderAnswersDeathTest = FrameSenderAnswers;

TEST_F(FrameSenderAnswersDeathTest, NoMoreIsSentThanWasGathered) {
  sender_.push_done();
  std::vector<iovec> pieces;
  const size_t gathered = sender_.gather(pieces, 128);
  EXPECT_DEATH(sender_.count_sent(gathered + 1), "only gathered bytes are sent");
}

TEST_F(FrameSenderAnswers, ASenderGivesItsMemoryBackAndGoesOn) {
  EXPECT_FALSE(sender_.has_surplus()) << "it has none yet";
  region_.fill('a');
  read(8);
  send(SIZE_MAX);
  EXPECT_FALSE(sender_.has_surplus()) << "a page is not much";
  // Few answers of many bytes, and many of few.
  for (const size_t count : {size_t{6}, size_t{6}, size_t{100}}) {
    for (size_t i = 0; i < count; ++i) read(count == 100 ? 8 : kReadBytes);
    EXPECT_EQ(bodies(send(SIZE_MAX)).size(), count);
    EXPECT_TRUE(sender_.has_surplus());
    sender_.give_back();
    EXPECT_FALSE(sender_.has_surplus());
  }
}

TEST(GrowingRing, KeepsItsOrderWhileItGrowsAndIsGivenBack) {
  GrowingRing<uint64_t> ring;
  base::Random random(3);
  uint64_t pushed = 0;
  uint64_t popped = 0;
  for (int step = 0; step < 20'000; ++step) {
    // Now it fills, now it empties.
    const bool fills = step / 500 % 2 == 0;
    if (ring.empty() || random.below(10) < (fills ? 7u : 3u)) {
      EXPECT_EQ(ring.push_back(pushed), pushed);
      ++pushed;
    } else {
      ASSERT_EQ(ring[0], popped);
      ring.pop_front();
      ++popped;
    }
    ASSERT_EQ(ring.size(), pushed - popped);
    if (!ring.empty()) {
      ASSERT_EQ(ring[ring.size() - 1], pushed - 1);
    }
    EXPECT_TRUE(ring.empty() || !ring.has_surplus());
    ring.give_back();
  }
  EXPECT_GT(popped, 1000u);
  ring.truncate(0);
  ring.give_back();
  EXPECT_FALSE(ring.has_surplus());
}

}  // namespace
}  // namespace pmstore::fabric::internal
