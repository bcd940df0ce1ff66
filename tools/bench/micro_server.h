// MicroServer: one server thread of the remote-access benchmark: grants memory to the clients that
// connect and serves their two-sided requests on its executor.
//
// A server with several threads is several MicroServers, each with an executor and a device, over
// the same memory; clients are told of all of them by each one. Threads: the device's executor,
// also for the destructor. Lifetimes: device, memory and observer are borrowed.
// Nothing is durable but what a persistent request asks for. Clients are trusted not to overwrite
// each other: the memory holds nothing but benchmark data.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "fabric/device.h"
#include "fabric/rpc.h"
#include "persist/memory.h"
#include "persist/remote_writer.h"
#include "tools/bench/micro_message.h"
#include "tools/bench/micro_point.h"

namespace pmstore::tools {

// The memory behind one medium. Empty: there is none.
struct MicroMemory {
  std::span<std::byte> bytes;
  persist::PersistCapability capability;
  // bytes[0] begins a 4 KiB stripe, and stripes go round six DIMMs.
  bool interleaved = false;
  bool ordinary_file = false;             // no persistent memory is behind it
  persist::Observer* observer = nullptr;  // of the CPU's stores
  // Called before the CPU loads these bytes; may be empty.
  std::function<void(const void* address, size_t bytes)> on_load;
};

struct MicroServerOptions {
  MicroMemory dram;
  MicroMemory nvm;
};

class MicroServer final : public fabric::Acceptor, public fabric::RpcHandler {
 public:
  // Errors of register_memory() and listen().
  static Result<std::unique_ptr<MicroServer>> start(fabric::Device& device,
                                                    const MicroServerOptions& options,
                                                    const fabric::Uri& uri);
  ~MicroServer() override;

  const fabric::Uri& uri() const { return listener_->uri(); }
  // The ports of all server threads, this one's included, 0 where the fabric has none; needed
  // before the first client. Until then clients are told of this one only.
  void set_workers(std::vector<uint16_t> ports) { ports_ = std::move(ports); }
  size_t clients() const { return peers_.size(); }
  // Calls that were answered, whatever they asked for.
  uint64_t served() const { return served_; }

  Result<std::vector<std::byte>> on_hello(uint64_t token,
                                          std::span<const std::byte> hello) override;
  void on_connected(uint64_t token, std::unique_ptr<fabric::Connection> connection) override;
  void on_abandoned(uint64_t token) override;
  void on_call(fabric::RpcPeer& peer, fabric::RpcCall call) override;
  void on_peer_gone(fabric::RpcPeer& peer, const Error& why) override;

 private:
  struct Medium;
  struct Peer;
  explicit MicroServer(fabric::Device& device);
  Status add_medium(MicroMedium name, const MicroMemory& memory);
  Result<MicroAnswer> accept(const MicroHello& hello, Peer& peer);
  void store(const Peer& peer, fabric::RpcCall call);
  void load(const Peer& peer, fabric::RpcCall call);
  void drop(const Peer& peer);

  fabric::Device& device_;
  std::vector<std::unique_ptr<Medium>> media_;
  std::vector<uint16_t> ports_;
  uint64_t served_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Peer>> pending_;
  std::unordered_map<const Peer*, std::unique_ptr<Peer>> peers_;
  std::unique_ptr<fabric::Listener> listener_;
};

// Where the server thread `index` listens, when thread 0 does so at `first`; `port` is 0 while it
// is not known.
fabric::Uri micro_worker_uri(const fabric::Uri& first, uint32_t index, uint16_t port);

}  // namespace pmstore::tools
