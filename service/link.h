// Link: a client's end of a session: its connection, the RPC over it, and its lease.
//
// Invariant: a link that is not usable() never becomes usable again. Threads: the executor's.
// Lifetimes: the device outlives it; the link outlives whatever borrows its connection or RPC.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/task.h"
#include "fabric/connection.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "fabric/uri.h"
#include "service/hello.h"

namespace pmstore::service {

struct LinkOptions {
  ServiceId service{};
  ClientSecret secret;  // whose link it is
  uint64_t connect_timeout_ns = 5'000'000'000;
  fabric::RpcOptions rpc;  // its call timeout is that of one-sided operations, too
  // RequestPrefix::known_through of each request when it is laid out; shared, because requests of
  // operations that unwind may be the last to use it. Empty: 0.
  std::shared_ptr<const uint64_t> known_through = {};
};

class Link {
 public:
  // Connects, says hello with `body`, and reads the welcome. `body` outlives the wait. Errors of
  // RpcClient::create() and Device::connect(), the server's refusal among them. VersionMismatch:
  // the server is of another release. Protocol: its welcome is malformed.
  static base::Task<Result<std::unique_ptr<Link>>> open(fabric::Device& device, fabric::Uri uri,
                                                        LinkOptions options,
                                                        std::span<const std::byte> body);
  // The connection goes before the memory that its peer can still reach.
  ~Link();

  const Welcome& welcome() const { return welcome_; }
  // The service's part of the welcome.
  std::span<const std::byte> body() const {
    return connection_->peer_hello().subspan(sizeof(Welcome));
  }
  fabric::Connection& connection() const { return *connection_; }
  fabric::RpcClient& rpc() const { return *rpc_; }
  // The first bytes of every request.
  RequestPrefix prefix() const {
    return {welcome_.epoch, known_through_ == nullptr ? 0 : *known_through_};
  }

  bool usable() const { return !dropped_ && !connection_->broken() && !rpc_->failed(); }
  // Nothing new starts on it. Who connects again under the same id is let in: the server ends this
  // session first.
  void drop() { dropped_ = true; }
  bool dropped() const { return dropped_; }
  // For a message, when it is not usable, or what is built on it.
  Error why_unusable() const;
  // As RpcClient::call(), with the prefix in front of `body`. Copies once more than a request that
  // is laid out with its prefix: not for the data path.
  base::Task<Result<fabric::RpcReply>> call(uint16_t method, std::span<const std::byte> body,
                                            uint32_t reply_capacity);
  // From now on sends pings while nothing else is sent, where the session has a lease, until the
  // link is not usable.
  void keep_lease();

 private:
  explicit Link(base::Executor& executor) : executor_(executor) {}
  base::Task<void> send_pings(uint64_t interval_ns);

  base::Executor& executor_;
  std::unique_ptr<fabric::RpcClient> rpc_;
  std::unique_ptr<fabric::Connection> connection_;
  Welcome welcome_;
  std::shared_ptr<const uint64_t> known_through_;
  bool dropped_ = false;
  base::Task<void> lease_;
};

}  // namespace pmstore::service
