// Requests that wait in the rings of shm connections: their receivers are told of them before the
// first one is served.
#include <numeric>

#include "tests/unit/fabric/shm_peer.h"

namespace pmstore::fabric::shm {
namespace {

class ShmTold : public ShmPeer {
 protected:
  void SetUp() override {
    ShmPeer::SetUp();
    shake_hands();
  }
  bool run_until_served(size_t count) {
    return run_until([&] { return served_.immediates.size() == count; });
  }
};

TEST_F(ShmTold, RequestsThatWaitAreToldOfBeforeTheFirstIsServed) {
  append(request(7), "a");
  append(request(8), "b");
  append(request(9), "c");
  writer_.publish();
  ASSERT_TRUE(run_until_served(3));
  EXPECT_EQ(served_.told, (std::vector<Told>{{7, "a", 0}, {8, "b", 0}, {9, "c", 0}}));
  EXPECT_EQ(served_.immediates, (std::vector<uint32_t>{7, 8, 9}));
}

TEST_F(ShmTold, ARequestAloneIsNotToldOf) {
  for (uint32_t i = 1; i <= 3; ++i) {
    send_frame(request(i), "a");
    ASSERT_TRUE(run_until_served(i));
  }
  EXPECT_TRUE(served_.told.empty());
}

TEST_F(ShmTold, ManyRequestsAreToldOfInParts) {
  constexpr uint32_t kMany = 2 * kToldTogether + 1;
  for (uint32_t i = 0; i < kMany; ++i) append(request(i), "a");
  writer_.publish();
  ASSERT_TRUE(run_until_served(kMany));
  ASSERT_EQ(served_.told.size(), kMany - 1) << "the last one is alone";
  for (uint32_t i = 0; i < kMany - 1; ++i) {
    EXPECT_EQ(served_.told[i], (Told{i, "a", i / kToldTogether * kToldTogether}));
  }
}

TEST_F(ShmTold, OtherFramesBetweenThemArePassedOver) {
  append(request(1), "a");
  append(frame(FrameKind::kWrite, 5, 100), "hello");
  append(frame(FrameKind::kRead, 8, 0));
  append(request(2), "b");
  writer_.publish();
  ASSERT_TRUE(run_until_served(2));
  EXPECT_EQ(served_.told, (std::vector<Told>{{1, "a", 0}, {2, "b", 0}}));
  EXPECT_EQ(text_at(100, 5), "hello");
  EXPECT_EQ(receive_frame().kind, FrameKind::kReadData);
}

TEST_F(ShmTold, ARequestBesideOtherFramesIsAlone) {
  append(request(1), "a");
  append(frame(FrameKind::kWrite, 5, 100), "hello");
  writer_.publish();
  ASSERT_TRUE(run_until([&] { return text_at(100, 5) == "hello"; }));
  EXPECT_TRUE(served_.told.empty());
}

// Amid its header, and amid its body.
TEST_F(ShmTold, WhatIsNotWholeIsToldOfWithThoseBehindIt) {
  FrameHeader header = request(2);
  header.bytes = 8;
  const std::string second = bytes_of(header) + "bbbbbbbb";
  for (const size_t there : {size_t{20}, sizeof(FrameHeader), second.size() - 1}) {
    served_.immediates.clear();
    served_.told.clear();
    append(request(1), "a");
    ASSERT_EQ(writer_.append(second.data(), there), there);
    writer_.publish();
    ASSERT_TRUE(run_until_served(1));
    EXPECT_TRUE(served_.told.empty());
    ASSERT_EQ(writer_.append(second.data() + there, second.size() - there), second.size() - there);
    append(request(3), "c");
    writer_.publish();
    ASSERT_TRUE(run_until_served(3));
    EXPECT_EQ(served_.told, (std::vector<Told>{{2, "bbbbbbbb", 1}, {3, "c", 1}}));
  }
}

TEST_F(ShmTold, ARequestBehindTheRestOfALargeBodyIsFound) {
  const std::string body(1000, 'q');  // more than is taken as a whole
  append(frame(FrameKind::kWrite, 1000, 100), body.substr(0, 600));
  writer_.publish();
  ASSERT_TRUE(run_until([&] { return memory_[96 + 599] == std::byte{'q'}; }));
  ASSERT_EQ(writer_.append(body.data(), 400), 400u);
  append(request(1), "a");
  append(request(2), "b");
  writer_.publish();
  ASSERT_TRUE(run_until_served(2));
  EXPECT_EQ(served_.told, (std::vector<Told>{{1, "a", 0}, {2, "b", 0}}));
  EXPECT_EQ(text_at(100, 1000), body);
}

// Bytes of a body may look like requests.
TEST_F(ShmTold, TheRestOfALargeBodyIsNotLookedAt) {
  std::string looks = bytes_of(request(5)) + "x" + bytes_of(request(6)) + "y";
  looks.resize((looks.size() + 7) / 8 * 8, 'z');  // only whole words are placed
  append(frame(FrameKind::kWrite, 1000, 96), std::string(600, 'q'));
  writer_.publish();
  ASSERT_TRUE(run_until([&] { return memory_[96 + 599] == std::byte{'q'}; }));
  ASSERT_EQ(writer_.append(looks.data(), looks.size()), looks.size());
  writer_.publish();
  ASSERT_TRUE(run_until([&] { return text_at(696, looks.size()) == looks; }));
  EXPECT_TRUE(served_.told.empty());
}

TEST_F(ShmTold, AFrameThatMakesNoSenseIsJudgedWhenItIsTaken) {
  append(request(1), "a");
  append(request(2), "b");
  append(frame(static_cast<FrameKind>(99), 0, 0));
  append(request(3), "c");
  writer_.publish();
  expect_cut_off(ErrorCode::kProtocol);
  EXPECT_EQ(served_.told, (std::vector<Told>{{1, "a", 0}, {2, "b", 0}}));
  EXPECT_EQ(served_.immediates, (std::vector<uint32_t>{1, 2}));
}

TEST_F(ShmTold, AForgedTailIsNotBelieved) {
  writer_.state().tail.store(uint64_t{kRingBytes} + 1);
  expect_cut_off(ErrorCode::kProtocol);
  EXPECT_TRUE(served_.told.empty());
}

// Several peers, each with a connection of its own.
class ShmToldTogether : public ShmTold {
 protected:
  static constexpr size_t kPeers = 3;

  void SetUp() override {
    ShmTold::SetUp();
    while (writers_.size() + 1 < kPeers) {
      keep();
      dial();
      shake_hands();
    }
    keep();
    for (const auto& connection : served_.kept) connection->set_receiver(&served_);
  }
  void keep() {
    served_.keep();
    writers_.push_back(writer_);
    sockets_.push_back(std::move(socket_));
    segments_.push_back(std::move(*segment_));
  }
  void send(size_t peer, const FrameHeader& header, const std::string& body) {
    writer_ = writers_[peer];
    send_frame(header, body);
    writers_[peer] = writer_;
  }

  std::vector<RingWriter> writers_;
  std::vector<ShmSocket> sockets_;
  std::vector<Segment> segments_;
};

TEST_F(ShmToldTogether, RequestsOfAllConnectionsAreToldOfBeforeTheFirstIsServed) {
  for (uint32_t peer = 0; peer < kPeers; ++peer) send(peer, request(peer), "a");
  ASSERT_TRUE(run_until_served(kPeers));
  EXPECT_EQ(served_.told.size(), kPeers);
  for (const Told& told : served_.told) EXPECT_EQ(told.after, 0u) << told;
}

TEST_F(ShmToldTogether, OneOfManyConnectionsIsAloneToo) {
  for (uint32_t peer = 0; peer < kPeers; ++peer) {
    send(peer, request(peer), "a");
    ASSERT_TRUE(run_until_served(peer + 1));
  }
  EXPECT_TRUE(served_.told.empty());
}

TEST_F(ShmToldTogether, ConnectionsShareWhatIsToldTogether) {
  constexpr uint32_t kEach = kToldTogether;
  for (uint32_t peer = 0; peer < kPeers; ++peer) {
    writer_ = writers_[peer];
    for (uint32_t i = 0; i < kEach; ++i) append(request(peer * 100 + i), "a");
    writer_.publish();
    writers_[peer] = writer_;
  }
  ASSERT_TRUE(run_until_served(kPeers * kEach));
  EXPECT_EQ(served_.told.size(), kPeers * kEach);
  std::vector<size_t> first(kPeers);
  for (const Told& told : served_.told) {
    if (told.after == 0) ++first[told.immediate / 100];
  }
  EXPECT_EQ(std::accumulate(first.begin(), first.end(), size_t{0}), kToldTogether);
  for (const size_t each : first) EXPECT_GE(each, kToldTogether / kPeers);
}

// A connection amid a large body, beside another one that has a request.
TEST_F(ShmToldTogether, TheRestOfALargeBodyIsNotLookedAtBesideOthersRequests) {
  std::string looks = bytes_of(request(5)) + "x" + bytes_of(request(6)) + "y";
  looks.resize((looks.size() + 7) / 8 * 8, 'z');  // only whole words are placed
  send(0, frame(FrameKind::kWrite, 1000, 96), std::string(600, 'q'));
  ASSERT_TRUE(run_until([&] { return memory_[96 + 599] == std::byte{'q'}; }));
  writer_ = writers_[0];
  ASSERT_EQ(writer_.append(looks.data(), looks.size()), looks.size());
  writer_.publish();
  send(1, request(7), "a");
  ASSERT_TRUE(run_until_served(1));
  ASSERT_TRUE(run_until([&] { return text_at(696, looks.size()) == looks; }));
  EXPECT_TRUE(served_.told.empty());
}

}  // namespace
}  // namespace pmstore::fabric::shm
