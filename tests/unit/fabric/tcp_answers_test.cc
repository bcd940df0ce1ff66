// READs over tcp of memory that changes, by a peer that takes its answers late or asks late.
#include "base/random.h"
#include "tests/unit/fabric/tcp_peer.h"

namespace pmstore::fabric::tcp {
namespace {

class TcpReads : public TcpPeer {
 protected:
  static constexpr uint32_t kSmall = 8;
  static constexpr uint32_t kRecord = 300;

  // The whole of the region shows how often this was called.
  void change_memory() {
    const std::vector<uint64_t> words(kBytes / 8, ++changes_);
    std::memcpy(memory_.data(), words.data(), kBytes);
  }
  // The next answer: the oldest and the newest change that it shows.
  std::pair<uint64_t, uint64_t> receive_answer(uint32_t bytes) {
    uint64_t oldest = UINT64_MAX;
    uint64_t newest = 0;
    for (uint32_t left = bytes; left > 0;) {
      const FrameHeader header = receive_frame();
      EXPECT_EQ(header.kind, FrameKind::kReadData);
      if (header.kind != FrameKind::kReadData || header.bytes > left) return {};
      const std::string body = receive_bytes(header.bytes);
      for (size_t at = 0; at + 8 <= body.size(); at += 8) {
        uint64_t word = 0;
        std::memcpy(&word, body.data() + at, 8);
        EXPECT_GE(word, newest) << "a READ is copied from front to back";
        oldest = std::min(oldest, word);
        newest = std::max(newest, word);
      }
      left -= header.bytes;
    }
    return {oldest, newest};
  }
  void expect_answers_in_order(const std::vector<uint32_t>& asked) {
    uint64_t seen = 0;
    for (size_t i = 0; i < asked.size(); ++i) {
      const auto [oldest, newest] = receive_answer(asked[i]);
      ASSERT_GE(oldest, seen) << "READ " << i << " of " << asked[i] << " bytes";
      seen = newest;
      change_memory();
    }
  }

  uint64_t changes_ = 0;
};

TEST_F(TcpReads, ShowMemoryInTheirOrderToAPeerThatTakesAnswersLate) {
  shake_hands();
  change_memory();
  std::vector<uint32_t> asked;
  for (int i = 0; i < 12; ++i) asked.push_back(kBytes);  // more than the sockets take
  for (int i = 0; i < 50; ++i) {
    asked.push_back(kRecord / 8 * 8);
    asked.push_back(kSmall);
  }
  for (const uint32_t bytes : asked) send_frame(frame(FrameKind::kRead, bytes, 0));
  run_a_while();
  change_memory();
  expect_answers_in_order(asked);
}

TEST_F(TcpReads, ShowMemoryInTheirOrderToAPeerThatDoesAsItLikes) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    base::Random random(seed);
    shake_hands();
    std::string stream;
    std::vector<uint32_t> asked;
    for (int i = 0; i < 150; ++i) {
      const uint32_t sizes[] = {8, 64, 72, 304, 4096, 65'536, 200'000, kBytes};
      asked.push_back(sizes[random.below(std::size(sizes))]);
      const FrameHeader header = frame(FrameKind::kRead, asked.back(), 0);
      stream.append(reinterpret_cast<const char*>(&header), sizeof header);
    }
    for (size_t sent = 0; sent < stream.size();) {
      const size_t next = std::min<size_t>(stream.size() - sent, 1 + random.below(400));
      send_bytes(stream.data() + sent, next);
      sent += next;
      executor_.run_once();
      change_memory();
    }
    expect_answers_in_order(asked);
    served_.connection.reset();
    hang_up();
    dial();
  }
}

// Two that ask each other for more than either has room for.
TEST_F(TcpReads, OfBothEndsDoNotWaitForEachOther) {
  hang_up();
  auto client = *open_tcp_device(executor_);
  std::vector<std::byte> theirs(kBytes);
  std::vector<std::byte> into(kBytes);
  auto exposed = *client->register_memory(theirs, Access::kRemoteRead);
  auto buffer = *client->register_memory(into, Access::kLocal);
  auto own_into = std::vector<std::byte>(kBytes);
  auto own_buffer = *device_->register_memory(own_into, Access::kLocal);
  auto connection = *executor_.run(client->connect(listener_->uri(), patient()));
  ASSERT_TRUE(run_until([&] { return served_.connection != nullptr; }));
  std::vector<Completion> done(40);
  for (size_t i = 0; i < done.size(); i += 2) {
    Batch ask;
    Batch ask_back;
    for (size_t j = 0; j < 4; ++j) {
      ask.read({into.data(), kBytes, buffer.get()}, region_->remote().at(0));
      ask_back.read({own_into.data(), kBytes, own_buffer.get()}, exposed->remote().at(0));
    }
    ASSERT_TRUE(connection->post(ask, &done[i]));
    ASSERT_TRUE(served_.connection->post(ask_back, &done[i + 1]));
  }
  EXPECT_TRUE(run_until([&] {
    return std::all_of(done.begin(), done.end(), [](const auto& each) { return each.done(); });
  }));
  for (const Completion& each : done) EXPECT_TRUE(each.ok());
  connection.reset();
}

// A region that is gone is not needed by answers that were copied from it.
TEST_F(TcpReads, ThatWereServedAreAnsweredThoughTheirRegionIsGone) {
  shake_hands();
  std::vector<std::byte> other(kRecord, std::byte{'o'});
  auto region = *device_->register_memory(other, Access::kRemoteRead);
  FrameHeader header = frame(FrameKind::kRead, kRecord, 0);
  header.key = region->remote().key;
  header.address = region->remote().address;
  send_frame(header);
  send_frame(frame(FrameKind::kWrite, 1, 0), "x");
  ASSERT_TRUE(run_until([&] { return memory_[0] == std::byte{'x'}; }));
  region.reset();
  std::fill(other.begin(), other.end(), std::byte{'n'});
  EXPECT_EQ(receive_frame().bytes, kRecord);
  EXPECT_EQ(receive_bytes(kRecord), std::string(kRecord, 'o'));
  run_a_while();
  EXPECT_FALSE(served_.disconnected);
}

}  // namespace
}  // namespace pmstore::fabric::tcp
