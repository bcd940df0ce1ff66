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

// Decides about incoming handshakes, and takes the accepted connections.
class Acceptor {
 public:
  virtual ~Acceptor() = default;
  // Accepts or refuses the peer's `hello`. Gives the hello of the answer, or an error, which the
  // peer gets. `token` names this handshake in the two calls below.
  virtual Result<std::vector<std::byte>> on_hello(uint64_t token,
                                                  std::span<const std::byte> hello) = 0;
  // The handshake of `token` is complete. The acceptor owns the connection and must set its
  // receiver before it returns: requests may have arrived already.
  virtual void on_connected(uint64_t token, std::unique_ptr<Connection> connection) = 0;
  // on_hello() accepted the handshake of `token`, which then did not complete.
  virtual void on_abandoned(uint64_t token) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  // The address on which it listens; with the real port if port 0 was requested.
  virtual const Uri& uri() const = 0;
};

class Device {
 public:
  // Of notices_dead_peers(): TCP keepalive after 30 s of silence, which gives up 30 s later.
  static constexpr uint64_t kPeerGoneNs = 60'000'000'000;

  virtual ~Device() = default;

  // Io when the kernel refuses, for instance because of the locked-memory limit; the message says
  // what to do.
  virtual Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> memory,
                                                                Access access) = 0;
  // Connects and exchanges hellos. Disconnected without a listener at `uri`; the listener's own
  // error when it refuses; Timeout; VersionMismatch when the peer's handshake has another version.
  virtual base::Task<Result<std::unique_ptr<Connection>>> connect(Uri uri,
                                                                  ConnectOptions options) = 0;
  // Io when the address is in use or not of this machine. `acceptor` outlives the listener.
  virtual Result<std::unique_ptr<Listener>> listen(const Uri& uri, Acceptor& acceptor) = 0;
  // A connection whose target is this device: a server uses it for RNIC atomics on its own words.
  // Unsupported where the provider has none.
  virtual base::Task<Result<std::unique_ptr<Connection>>> loopback() = 0;

  // True: a connection breaks by itself when no process holds its other end any more, at once, or
  // when that machine is gone, within kPeerGoneNs; although nothing is sent on it. A server then
  // needs no lease to notice that. False: only who sends something notices.
  virtual bool notices_dead_peers() const { return false; }

  base::Executor& executor() { return executor_; }

 protected:
  explicit Device(base::Executor& executor) : executor_(executor) {}
  base::Executor& executor_;
};

// Opens devices: those of a host of the modelled machine (model/host.h). A null DeviceOpener stands
// for this machine.
class DeviceOpener {
 public:
  virtual ~DeviceOpener() = default;
  // Errors as open_device().
  virtual Result<std::unique_ptr<Device>> open(Scheme scheme, base::Executor& executor) = 0;
};

// Opens the provider for `scheme`. Unsupported when this machine has no such device; the message
// says what to do. With kLocal, peers find each other by name within the process.
Result<std::unique_ptr<Device>> open_device(Scheme scheme, base::Executor& executor);
// Opens it with `devices`; on this machine if that is null.
Result<std::unique_ptr<Device>> open_device(Scheme scheme, base::Executor& executor,
                                            DeviceOpener* devices);

}  // namespace pmstore::fabric
