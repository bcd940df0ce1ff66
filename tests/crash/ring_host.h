// RingHost: a server of one redo ring, granted to the client that connected last. RingLink: a
// client's end of it. They do only what a store's server and client do with a ring under lock
// discipline rnic, for the runs of a ring on the modelled machine. Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/device.h"
#include "fabric/rpc.h"
#include "log/remote_appender.h"
#include "log/ring.h"
#include "model/host.h"
#include "persist/remote_writer.h"

namespace pmstore::crash {

class RingHost final : private fabric::Acceptor, private fabric::RpcHandler {
 public:
  static constexpr uint16_t kTruncate = 1;  // Truncate -> nothing
  struct Hello {
    fabric::RemoteRegion replies;
    uint64_t owner;
  };
  struct Answer {
    fabric::RemoteRegion requests;
    fabric::RemoteRegion data;
    log::RingPosition position;
    persist::PersistCapability capability;
  };
  struct Truncate {
    uint64_t tail_lsn;
    uint64_t start_lsn;
    uint64_t expired_below_sequence;
  };

  struct Options {
    persist::Domain domain = persist::Domain::kMemoryController;
    bool rule_h7 = true;
  };
  // Formats a ring of kRingBytes at the start of `memory`, durably, and serves it. `memory` and the
  // host are borrowed.
  RingHost(model::Host& host, base::Executor& executor, persist::Memory& memory,
           const Options& options);
  ~RingHost() override;

  const fabric::Uri& uri() const { return listener_->uri(); }
  const persist::PersistCapability& capability() const { return capability_; }
  const log::Ring& ring() const { return *ring_; }
  // The client's connection ends: nothing more of it lands.
  void fence() { peer_.reset(); }

 private:
  // Fences the client before; walks; the new one takes the ring over.
  Result<std::vector<std::byte>> on_hello(uint64_t token,
                                          std::span<const std::byte> hello) override;
  void on_connected(uint64_t token, std::unique_ptr<fabric::Connection> connection) override;
  void on_abandoned(uint64_t) override { fence(); }
  void on_call(fabric::RpcPeer& peer, fabric::RpcCall call) override;
  void on_peer_gone(fabric::RpcPeer&, const Error&) override { fence(); }
  Status truncate(const fabric::RpcCall& call);

  persist::Memory& memory_;
  persist::PersistCapability capability_;
  persist::PersistService writes_;
  std::optional<log::Ring> ring_;
  std::unique_ptr<fabric::Device> device_;
  std::unique_ptr<fabric::MemoryRegion> data_;
  std::unique_ptr<fabric::RpcPeer> peer_;
  std::unique_ptr<fabric::Listener> listener_;
};

class RingLink {
 public:
  // Connects and takes the ring over for `owner`. Errors of negotiate(); all else is a CHECK.
  static base::Task<Result<std::unique_ptr<RingLink>>> connect(fabric::DeviceOpener& host,
                                                               base::Executor& executor,
                                                               const fabric::Uri& uri,
                                                               uint64_t owner,
                                                               persist::RemoteWriterOptions writer);
  log::RemoteAppender& appender() { return *appender_; }
  // Asks the server to truncate, then tells the appender.
  base::Task<Status> truncate(uint64_t start_lsn, uint64_t expired_below_sequence);

 private:
  RingLink() = default;
  // Destroyed from the last to the first.
  std::unique_ptr<fabric::Device> device_;
  std::unique_ptr<fabric::RpcClient> rpc_;
  std::unique_ptr<fabric::Connection> connection_;
  std::unique_ptr<persist::RemoteWriter> writer_;
  std::unique_ptr<log::RemoteAppender> appender_;
};

}  // namespace pmstore::crash
