// OfiDevice: what the tcp and the shm device have in common; see fabric/device.h.
//
// Polling is in two parts: the completion queues at every turn, and once a millisecond (more often
// while a handshake is under way) a tick for connection events, deadlines and peers that have gone.
//
// What is resumed from inside poll() may destroy the device, once its connections are gone.
#pragma once

#include <pthread.h>

#include <atomic>
#include <vector>

#include "fabric/device.h"
#include "fabric/ofi/internal/destruction_watch.h"
#include "fabric/ofi/internal/handshake.h"
#include "fabric/ofi/internal/ofi_connection.h"
#include "fabric/ofi/internal/provider.h"

namespace pmstore::fabric::ofi {

class HandshakeListener;

// Where the executor's thread is, for ShmLockBreaker, which reads it from another thread.
struct CallTrace {
  std::atomic<uint64_t> calls{0};  // odd while inside libfabric
  std::atomic<pthread_t> thread{};
};

class OfiDevice : public Device, public base::Poller {
 public:
  ~OfiDevice() override;

  Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> memory,
                                                        Access access) override;
  base::Task<Result<std::unique_ptr<Connection>>> connect(Uri uri, ConnectOptions options) override;
  base::Task<Result<std::unique_ptr<Connection>>> loopback() override;

  size_t poll() override;

  // ---- for connections and listeners ----
  const Provider& provider() const { return *provider_; }
  void add(OfiConnection& connection) { connections_.push_back(&connection); }
  void remove(OfiConnection& connection);
  void add(HandshakeListener& listener) { listeners_.push_back(&listener); }
  void remove(HandshakeListener& listener);
  // While at least one is under way, ticks come more often.
  void handshake_started() { ++handshakes_; }
  void handshake_ended() { --handshakes_; }

 protected:
  OfiDevice(base::Executor& executor, std::unique_ptr<Provider> provider);

  // Starts connecting; InvalidArgument or Disconnected at once where that is plain already.
  virtual Result<std::unique_ptr<OfiConnection>> dial(const Uri& uri,
                                                      const ConnectionOptions& options) = 0;
  // Takes from the completion queues what is there. The device may be gone afterwards.
  virtual size_t poll_queues();
  // Connection events of the transport. The device may be gone afterwards.
  virtual void poll_events() {}

  const std::vector<OfiConnection*>& connections() const { return connections_; }

 private:
  friend class CallGuard;

  // The device may be gone afterwards.
  size_t tick();
  // Those that are there by the time it is their turn; ends early when the device is destroyed.
  template <typename Visit>
  void for_each_connection(Visit visit);
  base::Task<Result<std::unique_ptr<Connection>>> introduce(Uri uri, std::vector<std::byte> hello,
                                                            uint64_t timeout_ns,
                                                            uint64_t operation_timeout_ns);
  // The next message, which must be of that kind; the listener's error if it refuses.
  base::Task<Result<HandshakeMessage>> await_answer(OfiConnection& connection, MessageKind kind,
                                                    uint64_t deadline_ns, const std::string& where);

 protected:
  CallTrace calls_;
  std::unique_ptr<Provider> provider_;
  Lifetime lifetime_;

 private:
  std::vector<OfiConnection*> connections_;  // holes while walking_
  std::vector<HandshakeListener*> listeners_;
  unsigned walking_ = 0;
  unsigned handshakes_ = 0;
  unsigned polls_since_look_ = 0;
  uint64_t next_tick_ns_ = 0;
};

// Around calls that take libfabric's locks. Not nested.
class CallGuard {
 public:
  explicit CallGuard(OfiDevice& device) : trace_(device.calls_) {
    trace_.thread.store(pthread_self(), std::memory_order_relaxed);
    step();
  }
  ~CallGuard() { step(); }
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;

 private:
  void step() {
    trace_.calls.store(trace_.calls.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  CallTrace& trace_;
};

}  // namespace pmstore::fabric::ofi
