// AdminService: answers the admin sessions of a server (pmstore/layout/admin_protocol.h).
//
// Threads: the server's executor. Lifetimes: the core outlives it. Bounded: there are at most
// kMaxSessions sessions. A new one ends the session that has been silent longest, so none needs a
// lease. A reply has at most kAdminReplyBytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "service/service.h"

namespace pmstore::internal {

class ServerCore;

class AdminService final : public service::Service {
 public:
  static constexpr size_t kMaxSessions = 8;
  explicit AdminService(ServerCore& core);

  uint64_t epoch() const override;
  Result<std::vector<std::byte>> admit(service::Session& session,
                                       std::span<const std::byte> body) override;
  void on_call(service::Session& session, fabric::RpcCall call,
               std::span<const std::byte> body) override;

 private:
  void serve_sessions(fabric::RpcCall& call, uint32_t from);

  ServerCore& core_;
};

}  // namespace pmstore::internal
