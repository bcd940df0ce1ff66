// RpcTestServer: what is equal in the RPC servers of tests: they keep the connections of their
// clients from the handshake to the end. What a hello says and what a call does is the test's.
//
// A derived class overrides on_hello(), where it calls expect_client(), and on_call(). It calls
// disconnect_all() before its device goes, in its destructor at the latest.
//
// Threads: that of the device's executor. Lifetimes: the device outlives the connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "fabric/device.h"
#include "fabric/rpc.h"

namespace pmstore::harness {

// The bytes of a message without variable parts.
template <typename T>
std::vector<std::byte> message_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

class RpcTestServer : public fabric::Acceptor, public fabric::RpcHandler {
 public:
  ~RpcTestServer() override {
    PMSTORE_CHECK(handshakes_.empty() && peers_.empty(), "the device of the peers is gone");
  }

  void on_connected(uint64_t token, std::unique_ptr<fabric::Connection> connection) override {
    const auto found = handshakes_.find(token);
    PMSTORE_CHECK(found != handshakes_.end(), "on_hello() accepts clients by expect_client()");
    fabric::RpcPeer* const peer = found->second.get();
    peers_[peer] = std::move(found->second);
    handshakes_.erase(found);
    peer->attach(std::move(connection));
  }
  void on_abandoned(uint64_t token) override { handshakes_.erase(token); }
  void on_peer_gone(fabric::RpcPeer& peer, const Error&) override { peers_.erase(&peer); }

 protected:
  // Accepts the client whose handshake `token` names and whose replies go to `replies`. Gives where
  // its requests go, for the answer to the hello. Errors of RpcPeer::create().
  Result<fabric::RemoteRegion> expect_client(uint64_t token, fabric::Device& device,
                                             const fabric::RemoteRegion& replies,
                                             const fabric::RpcOptions& options = {}) {
    PMSTORE_TRY(auto peer, fabric::RpcPeer::create(device, options, replies, *this));
    const fabric::RemoteRegion requests = peer->request_region();
    handshakes_[token] = std::move(peer);
    return requests;
  }
  // Of expect_client(), and neither connected nor abandoned yet.
  bool in_handshake(uint64_t token) const { return handshakes_.contains(token); }
  size_t handshakes() const { return handshakes_.size(); }
  size_t clients() const { return peers_.size(); }
  void disconnect(fabric::RpcPeer& peer) { peers_.erase(&peer); }
  // Also those in a handshake.
  void disconnect_all() {
    peers_.clear();
    handshakes_.clear();
  }

 private:
  std::map<uint64_t, std::unique_ptr<fabric::RpcPeer>> handshakes_;  // by token
  std::map<fabric::RpcPeer*, std::unique_ptr<fabric::RpcPeer>> peers_;
};

}  // namespace pmstore::harness
