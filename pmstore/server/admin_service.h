// AdminService: answers the admin sessions of a server (pmstore/layout/admin_protocol.h).
//
// Threads: the server's executor. Lifetimes: the core and the devices of its endpoints outlive it.
// Bounded: there are at most kMaxSessions sessions. A new one ends the session that has been silent
// longest, so none needs a lease. A reply has at most kAdminReplyBytes.
// Invariant: a session in handshakes_ is in sessions_ as well.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fabric/device.h"
#include "fabric/rpc.h"

namespace pmstore::internal {

class ServerCore;
struct Endpoint;

bool is_admin_hello(std::span<const std::byte> hello);

class AdminService final : public fabric::RpcHandler {
 public:
  static constexpr size_t kMaxSessions = 8;
  explicit AdminService(ServerCore& core) : core_(core) {}

  // As fabric::Acceptor. VersionMismatch; Protocol.
  Result<std::vector<std::byte>> on_hello(Endpoint& endpoint, uint64_t token,
                                          std::span<const std::byte> hello);
  void on_connected(Endpoint& endpoint, uint64_t token,
                    std::unique_ptr<fabric::Connection> connection);
  void on_abandoned(Endpoint& endpoint, uint64_t token);
  bool has_handshake(Endpoint& endpoint, uint64_t token) const;

  void on_call(fabric::RpcPeer& peer, fabric::RpcCall call) override;
  void on_peer_gone(fabric::RpcPeer& peer, const Error& why) override;

 private:
  void end(const fabric::RpcPeer* peer);
  void serve_sessions(fabric::RpcCall& call, uint32_t from);

  ServerCore& core_;
  std::list<std::unique_ptr<fabric::RpcPeer>> sessions_;  // by their last call, the oldest first
  std::map<std::pair<Endpoint*, uint64_t>, fabric::RpcPeer*> handshakes_;
};

}  // namespace pmstore::internal
