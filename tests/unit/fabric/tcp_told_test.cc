// Requests that one recv() of a tcp socket brings: their receivers are told of them before the
// first one is served. Those of several sockets: tcp_batch_test.cc.
#include "tests/unit/fabric/tcp_peer.h"

namespace pmstore::fabric::tcp {
namespace {

class TcpTold : public TcpPeer {
 protected:
  void SetUp() override {
    TcpPeer::SetUp();
    shake_hands();
  }
  // In one system call.
  void send_together(const std::string& bytes) { send_bytes(bytes.data(), bytes.size()); }
  std::string whole(uint32_t immediate, const std::string& letter) const {
    return bytes_of(request(immediate)) + letter;
  }
  bool run_until_served(size_t count) {
    return run_until([&] { return served_.immediates.size() == count; });
  }
};

TEST_F(TcpTold, RequestsThatCameTogetherAreToldOfBeforeTheFirstIsServed) {
  send_together(whole(7, "a") + whole(8, "b") + whole(9, "c"));
  ASSERT_TRUE(run_until_served(3));
  EXPECT_EQ(served_.told, (std::vector<Told>{{7, "a", 0}, {8, "b", 0}, {9, "c", 0}}));
}

TEST_F(TcpTold, ARequestAloneIsNotToldOf) {
  for (uint32_t i = 1; i <= 3; ++i) {
    send_together(whole(i, "a"));
    ASSERT_TRUE(run_until_served(i));
  }
  EXPECT_TRUE(served_.told.empty());
}

TEST_F(TcpTold, ManyRequestsAreToldOfInParts) {
  constexpr uint32_t kMany = 2 * kToldTogether + 1;
  std::string all;
  for (uint32_t i = 0; i < kMany; ++i) all += whole(i, "a");
  send_together(all);
  ASSERT_TRUE(run_until_served(kMany));
  ASSERT_EQ(served_.told.size(), kMany - 1) << "the last one is alone";
  for (uint32_t i = 0; i < kMany - 1; ++i) {
    EXPECT_EQ(served_.told[i], (Told{i, "a", i / kToldTogether * kToldTogether}));
  }
}

TEST_F(TcpTold, AFrameThatMakesNoSenseIsJudgedWhenItIsTaken) {
  send_together(whole(1, "a") + whole(2, "b") + bytes_of(frame(static_cast<FrameKind>(99), 0, 0)) +
                whole(3, "c"));
  expect_cut_off(ErrorCode::kProtocol);
  EXPECT_EQ(served_.told, (std::vector<Told>{{1, "a", 0}, {2, "b", 0}}));
  EXPECT_EQ(served_.immediates, (std::vector<uint32_t>{1, 2}));
}

TEST_F(TcpTold, ARequestOfAConnectionThatThereIsNotIsToldToNone) {
  FrameHeader other = request(2);
  other.channel = 999'999;
  send_together(whole(1, "a") + bytes_of(other) + "b" + whole(3, "c"));
  expect_cut_off(ErrorCode::kProtocol);
  EXPECT_EQ(served_.told, (std::vector<Told>{{1, "a", 0}, {3, "c", 0}}));
  EXPECT_EQ(served_.immediates, (std::vector<uint32_t>{1}));
}

}  // namespace
}  // namespace pmstore::fabric::tcp
