// Requests that wait together, over the local provider: what a receiver, and what a handler of
// calls is told of before the first one is served.
#include "fabric/rpc_layout.h"
#include "tests/unit/fabric/rpc_pair.h"

namespace pmstore::fabric {
namespace {

class LocalTold : public LocalPair {
 protected:
  void send(uint32_t immediate) {
    Batch batch;
    batch.write_immediate(client_memory_->at(0, 8), server_memory_->remote(0), immediate);
    ASSERT_TRUE(connection_->post(batch, nullptr));
  }
};

TEST_F(LocalTold, ImmediatesThatWaitAreToldOfInParts) {
  constexpr uint32_t kMany = kToldTogether + 3;
  for (uint32_t i = 0; i < kMany; ++i) send(i);
  turns(3);
  ASSERT_EQ(server_receiver_.immediates.size(), kMany);
  ASSERT_EQ(server_receiver_.told.size(), kMany);
  for (uint32_t i = 0; i < kMany; ++i) {
    EXPECT_EQ(server_receiver_.told[i], std::pair(i, i < kToldTogether ? 0 : kToldTogether));
  }
}

TEST_F(LocalTold, AnImmediateAloneIsNotToldOf) {
  for (uint32_t i = 0; i < 3; ++i) {
    send(i);
    turns(3);
  }
  EXPECT_EQ(server_receiver_.immediates.size(), 3u);
  EXPECT_TRUE(server_receiver_.told.empty());
}

class RpcTold : public RpcPair {
 protected:
  void SetUp() override {
    connect(options_of(16));
    server_.waits = [this](uint16_t method, std::span<const std::byte> request) {
      told_.emplace_back(method, request.size());
      EXPECT_EQ(served_, 0);
      for (const std::byte each : request) EXPECT_EQ(each, std::byte{0x77});
    };
    server_.serve = [this](RpcPeer&, RpcCall call) {
      ++served_;
      call.reply(call.request());
    };
  }
  // A header that the client would not make.
  void post_request(const RpcRequestHeader& header, uint32_t immediate) {
    std::memcpy(bad_.bytes.data(), &header, sizeof header);
    RemoteRegion requests;
    std::memcpy(&requests, connection_->peer_hello().data(), sizeof(requests));
    Batch batch;
    batch.write_immediate(bad_.at(0, sizeof header), requests.at(kOffset), immediate);
    ASSERT_TRUE(connection_->post(batch, nullptr));
  }
  // One that would be well-formed.
  static RpcRequestHeader header(uint32_t bytes) {
    return {kRpcRequestMagic,
            static_cast<uint32_t>(sizeof(RpcRequestHeader)) + bytes,
            1,
            9,
            1,
            0,
            0,
            0,
            0};
  }

  static constexpr uint32_t kOffset = 8192;  // in the ring, behind all others
  std::vector<std::pair<uint16_t, size_t>> told_;
  int served_ = 0;
  Memory bad_{*client_device_, 64, Access::kLocal};
};

TEST_F(RpcTold, RequestsThatWaitAreToldOfBeforeTheFirstIsServed) {
  start_calls(3, 20);
  both(5);
  EXPECT_EQ(outcomes_.good, 3u);
  EXPECT_EQ(told_, (std::vector<std::pair<uint16_t, size_t>>(3, {1, 20})));
}

TEST_F(RpcTold, WhatIsMalformedIsNotToldOfAndRefusedInItsTurn) {
  RpcRequestHeader magic = header(0);
  magic.magic ^= 1;
  for (const auto& [wrong, immediate] :
       {std::pair(magic, kOffset / kRpcUnit), std::pair(header(1u << 30), kOffset / kRpcUnit),
        std::pair(header(-1u), kOffset / kRpcUnit), std::pair(header(0), UINT32_MAX),
        std::pair(header(0), (1u << 20) / kRpcUnit)}) {
    told_.clear();
    served_ = 0;
    server_.gone.clear();
    outcomes_ = {};
    start_calls(1, 20);
    client_executor_.run_once();
    post_request(wrong, immediate);
    both(5);
    EXPECT_EQ(told_, (std::vector<std::pair<uint16_t, size_t>>{{1, 20}}));
    EXPECT_EQ(served_, 1) << "the one before it";
    ASSERT_EQ(server_.gone.size(), 1u);
    EXPECT_EQ(server_.gone[0].code, ErrorCode::kProtocol);
    connection_.reset();
    client_.reset();
    both(5);
    connect(options_of(16));
  }
}

}  // namespace
}  // namespace pmstore::fabric
