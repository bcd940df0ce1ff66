// An RPC client and server over the local provider, each on an executor of its own, in one thread
// and in virtual time, so that a test decides who runs when.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "fabric/rpc.h"
#include "tests/unit/fabric/local_pair.h"

namespace pmstore::fabric {

class RpcServer final : public Acceptor, public RpcHandler {
 public:
  RpcServer(Device& device, const RpcOptions& options) : device_(device), options_(options) {}

  Result<std::vector<std::byte>> on_hello(uint64_t, std::span<const std::byte> hello) override {
    RemoteRegion replies;
    std::memcpy(&replies, hello.data(), sizeof(replies));
    PMSTORE_TRY(peer, RpcPeer::create(device_, options_, replies, *this));
    std::vector<std::byte> answer(sizeof(RemoteRegion));
    std::memcpy(answer.data(), &peer->request_region(), sizeof(RemoteRegion));
    return answer;
  }
  void on_connected(uint64_t, std::unique_ptr<Connection> connection) override {
    peer->attach(std::move(connection));
  }
  void on_abandoned(uint64_t) override { peer.reset(); }
  void on_call(RpcPeer& from, RpcCall call) override { serve(from, std::move(call)); }
  void on_waiting(RpcPeer&, uint16_t method, std::span<const std::byte> request) override {
    waits(method, request);
  }
  void on_peer_gone(RpcPeer&, const Error& why) override {
    gone.push_back(why);
    peer.reset();
  }

  std::unique_ptr<RpcPeer> peer;
  std::vector<Error> gone;
  std::vector<RpcCall> held;
  std::function<void(RpcPeer&, RpcCall)> serve = [](RpcPeer&, RpcCall call) {
    call.reply(call.request());
  };
  std::function<void(uint16_t, std::span<const std::byte>)> waits =
      [](uint16_t, std::span<const std::byte>) {};

 private:
  Device& device_;
  RpcOptions options_;
};

inline RpcOptions options_of(uint32_t calls) {
  return {.request_ring_bytes = 1u << 20,
          .reply_arena_bytes = 1u << 20,
          .max_calls = calls,
          .call_timeout_ns = 1'000'000};
}

class RpcPair : public testing::Test {
 protected:
  ~RpcPair() override {
    connection_.reset();
    client_.reset();
    server_.held.clear();
    server_.peer.reset();
  }

  void connect(const RpcOptions& options) {
    auto client = RpcClient::create(*client_device_, options);
    ASSERT_TRUE(client);
    client_ = std::move(*client);
    auto listener = server_device_->listen(uri_, server_);
    ASSERT_TRUE(listener);
    auto connecting = [](RpcPair& pair) -> base::Task<void> {
      ConnectOptions how;
      how.hello = std::as_bytes(std::span(&pair.client_->reply_region(), 1));
      auto made = co_await pair.client_device_->connect(pair.uri_, how);
      EXPECT_TRUE(made);
      if (made) pair.connection_ = std::move(*made);
    };
    client_executor_.spawn(connecting(*this));
    for (int i = 0; i < 50 && connection_ == nullptr; ++i) both();
    ASSERT_NE(connection_, nullptr);
    RemoteRegion requests;
    std::memcpy(&requests, connection_->peer_hello().data(), sizeof(requests));
    ASSERT_TRUE(client_->attach(*connection_, requests));
  }

  // One turn of both, and a little time.
  void both(int turns = 1, uint64_t step_ns = 100) {
    for (int i = 0; i < turns; ++i) {
      client_executor_.run_once();
      server_executor_.run_once();
      clock_.advance_to(clock_.now_ns() + step_ns);
    }
  }

  struct Outcomes {
    uint64_t good = 0;
    std::vector<Error> errors;
  };
  static base::Task<void> one_call(RpcClient& client, Outcomes& outcomes, uint16_t method,
                                   size_t bytes) {
    const std::vector<std::byte> request(bytes, std::byte{0x77});
    auto reply = co_await client.call(method, request, static_cast<uint32_t>(bytes));
    if (reply &&
        std::equal(reply->bytes().begin(), reply->bytes().end(), request.begin(), request.end())) {
      ++outcomes.good;
    } else if (!reply) {
      outcomes.errors.push_back(reply.error());
    }
  }
  void start_calls(size_t count, size_t bytes) {
    for (size_t i = 0; i < count; ++i) {
      client_executor_.spawn(one_call(*client_, outcomes_, 1, bytes));
    }
  }
  void hold_everything() {
    server_.serve = [this](RpcPeer&, RpcCall call) { server_.held.push_back(std::move(call)); };
  }

  base::VirtualClock clock_;
  base::Executor client_executor_{clock_};
  base::Executor server_executor_{clock_};
  std::unique_ptr<Device> client_device_ = open_local(client_executor_);
  std::unique_ptr<Device> server_device_ = open_local(server_executor_);
  const Uri uri_ = fresh_local_uri();
  RpcOptions server_options_{1u << 20, 1u << 20, 4096, 5'000'000'000};
  RpcServer server_{*server_device_, server_options_};
  std::unique_ptr<RpcClient> client_;
  std::unique_ptr<Connection> connection_;
  Outcomes outcomes_;
};

}  // namespace pmstore::fabric
