// Device: one fabric provider opened on one executor: registers memory, connects, listens.
//
// Threads: all calls on the executor's thread; the device adds itself to the executor as a poller
// and removes itself when destroyed. Connections, listeners and regions must be destroyed before
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/connection.h"
#include "fabric/memory_region.h"
#include "fabric/uri.h"

namespace pmstore::fabric {

// Handshake blobs are bounded by this; larger ones are InvalidArgument at the sender.
inline constexpr size_t kMaxHelloBytes = 4096;

struct ConnectOptions {
  std::span<const std::byte> hello;                // given to the listener; copied
  uint64_t timeout_ns = 5'000'000'000;             // for the whole handshake
  uint64_t operation_timeout_ns = 10'000'000'000;  // for each batch, see Connection
};

// What a listener decides about one incoming handshake.
class Acceptor {
 public:
  virtual ~Acceptor() = default;
  // Looks at the peer's hello and gives the answer's hello, or an error whose message the peer
  // gets. `token` names this handshake in the two calls below.
  virtual Result<std::vector<std::byte>> on_hello(uint64_t token,
                                                  std::span<const std::byte> hello) = 0;
  // The handshake of `token` is complete. The acceptor owns the connection, and must set its
  // receiver before returning: requests may be there already.
  virtual void on_connected(uint64_t token, std::unique_ptr<Connection> connection) = 0;
  // The handshake of `token` was accepted by on_hello() but did not complete.
  virtual void on_abandoned(uint64_t token) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  // Where it listens; with the real port when port 0 was asked for.
  virtual const Uri& uri() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // Io when the kernel refuses (say, the locked-memory limit), with what to do.
  virtual Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> memory,
                                                                Access access) = 0;
  // Connects and exchanges hellos. Disconnected when nobody listens there; the listener's own error
  // when it refuses; Timeout; VersionMismatch when the peer speaks another handshake.
  virtual base::Task<Result<std::unique_ptr<Connection>>> connect(Uri uri,
                                                                  ConnectOptions options) = 0;
  // Io when the address is in use or not ours. `acceptor` is borrowed for the listener's life.
  virtual Result<std::unique_ptr<Listener>> listen(const Uri& uri, Acceptor& acceptor) = 0;
  // A connection whose target is this device itself: the way a server does RNIC atomics on its own
  // words. Unsupported where the provider has none.
  virtual base::Task<Result<std::unique_ptr<Connection>>> loopback() = 0;

  base::Executor& executor() { return executor_; }

 protected:
  explicit Device(base::Executor& executor) : executor_(executor) {}
  base::Executor& executor_;
};

// Where devices come from: this machine (nullptr wherever one is asked for), or a host of the
// modelled machine (model/host.h).
class DeviceOpener {
 public:
  virtual ~DeviceOpener() = default;
  // Errors as open_device().
  virtual Result<std::unique_ptr<Device>> open(Scheme scheme, base::Executor& executor) = 0;
};

// Opens the provider for `scheme`. Unsupported when this machine has no such device, with what to
// do. For kLocal, peers are found by name within the process.
Result<std::unique_ptr<Device>> open_device(Scheme scheme, base::Executor& executor);
// The same by `devices`, unless that is null.
Result<std::unique_ptr<Device>> open_device(Scheme scheme, base::Executor& executor,
                                            DeviceOpener* devices);

}  // namespace pmstore::fabric
