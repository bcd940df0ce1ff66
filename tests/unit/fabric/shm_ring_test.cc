// The ring of a segment: bytes in order across its end, room, and what a peer may forge.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "fabric/shm/internal/segment.h"

namespace pmstore::fabric::shm {
namespace {

class Ring : public testing::Test {
 protected:
  void SetUp() override {
    Result<Segment> made = Segment::create();
    ASSERT_TRUE(made) << made.error().to_string();
    segment_.emplace(std::move(*made));
    writer_ = segment_->writer();
    reader_ = RingReader(writer_.state(), bytes());
  }
  // Where the writer's bytes are: the mapping is private to Segment, so the ring is followed there.
  const std::byte* bytes() {
    Result<Segment> other = Segment::adopt(copies());
    EXPECT_TRUE(other) << other.error().to_string();
    other_.emplace(std::move(*other));
    return other_->reader().front();
  }
  Segment::Descriptors copies() {
    Segment::Descriptors all;
    const auto own = segment_->descriptors();
    for (size_t i = 0; i < all.size(); ++i) all[i] = base::FileDescriptor(dup(own[i]));
    return all;
  }
  std::string take(size_t count) {
    EXPECT_TRUE(reader_.look());
    const size_t taken = std::min(count, reader_.available());
    std::string text(reinterpret_cast<const char*>(reader_.front()), taken);
    reader_.consume(taken);
    return text;
  }

  std::optional<Segment> segment_;
  std::optional<Segment> other_;
  RingWriter writer_;
  RingReader reader_;
};

TEST_F(Ring, NothingIsSeenBeforeItIsPublished) {
  EXPECT_EQ(writer_.append("hello", 5), 5u);
  EXPECT_FALSE(reader_.has_news());
  EXPECT_EQ(take(100), "");
  EXPECT_TRUE(writer_.publish());
  EXPECT_FALSE(writer_.publish()) << "once";
  EXPECT_TRUE(reader_.has_news());
  EXPECT_EQ(take(2), "he");
  EXPECT_EQ(take(100), "llo");
  EXPECT_FALSE(reader_.has_news());
}

TEST_F(Ring, BytesStayInOrderAcrossItsEnd) {
  Random random(1);
  uint8_t next_in = 0;
  uint8_t next_out = 0;
  for (size_t moved = 0; moved < 20 * size_t{kRingBytes};) {
    std::string some(random.below(kRingBytes / 2), '\0');
    for (char& byte : some) byte = static_cast<char>(next_in++);
    ASSERT_TRUE(writer_.look());
    const size_t appended = writer_.append(some.data(), some.size());
    next_in = static_cast<uint8_t>(next_in - (some.size() - appended));
    writer_.publish();
    const std::string out = take(random.below(kRingBytes));
    for (const char byte : out) ASSERT_EQ(static_cast<uint8_t>(byte), next_out++);
    reader_.publish();
    moved += out.size();
  }
}

TEST_F(Ring, AFullOneTakesNothingUntilTheReaderGivesRoom) {
  const std::string much(kRingBytes + 1, 'a');
  EXPECT_EQ(writer_.append(much.data(), much.size()), kRingBytes);
  EXPECT_EQ(writer_.append("b", 1), 0u);
  writer_.publish();
  EXPECT_EQ(take(10).size(), 10u);
  EXPECT_FALSE(writer_.has_news()) << "the reader keeps it";
  EXPECT_TRUE(reader_.publish());
  EXPECT_TRUE(writer_.has_news());
  EXPECT_EQ(writer_.room(), 0u);
  EXPECT_TRUE(writer_.look());
  EXPECT_EQ(writer_.room(), 10u);
}

TEST_F(Ring, TheOneOfTheOtherDirectionIsAnother) {
  RingWriter back = other_->writer();
  RingReader answers = segment_->reader();
  const std::string all(kRingBytes, 'b');
  ASSERT_EQ(back.append(all.data(), all.size() - 10), kRingBytes - 10);
  back.publish();
  ASSERT_TRUE(answers.look());
  answers.consume(kRingBytes - 10);
  answers.publish();
  ASSERT_TRUE(back.look());
  const std::string ours(kRingBytes, 'a');
  EXPECT_EQ(writer_.append(ours.data(), ours.size()), kRingBytes);
  writer_.publish();
  EXPECT_EQ(back.append(all.data(), 100), 100u) << "across its end";
  back.publish();
  EXPECT_TRUE(take(kRingBytes) == ours);
  ASSERT_TRUE(answers.look());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(answers.front()), 100),
            std::string(100, 'b'));
}

TEST_F(Ring, AForgedTailIsFound) {
  writer_.append("abc", 3);
  writer_.publish();
  EXPECT_EQ(take(2), "ab");
  for (const uint64_t forged : {uint64_t{1}, uint64_t{kRingBytes} + 1, UINT64_MAX}) {
    writer_.state().tail = forged;
    EXPECT_FALSE(reader_.look()) << forged;
    EXPECT_EQ(reader_.available(), 1u) << "as before";
  }
  writer_.state().tail = kRingBytes;
  EXPECT_TRUE(reader_.look()) << "it may be so";
}

TEST_F(Ring, AForgedHeadIsFound) {
  writer_.append("abc", 3);
  writer_.publish();
  for (const uint64_t forged : {uint64_t{4}, UINT64_MAX, uint64_t{1} << 40}) {
    writer_.state().head = forged;
    EXPECT_FALSE(writer_.look()) << forged;
    EXPECT_EQ(writer_.room(), kRingBytes - 3) << "as before";
  }
  writer_.state().head = 3;
  EXPECT_TRUE(writer_.look());
  writer_.append("de", 2);
  writer_.state().head = 5;
  EXPECT_FALSE(writer_.look()) << "nobody can have read what was not published";
  writer_.state().head = 0;
  EXPECT_FALSE(writer_.look()) << "room that was given is not taken back";
}

TEST_F(Ring, AnEndComesAfterWhatWasWrittenBefore) {
  writer_.append("last", 4);
  writer_.publish();
  writer_.end(RingEnd::kRefused);
  EXPECT_TRUE(reader_.has_news());
  EXPECT_EQ(reader_.end(), RingEnd::kRefused);
  EXPECT_EQ(take(100), "last");
  writer_.state().end = 77;
  EXPECT_EQ(reader_.end(), RingEnd::kClosed) << "whatever it means";
}

}  // namespace
}  // namespace pmstore::fabric::shm
