// The local provider: client and server in one process, on one executor or on several.
//
// Work requests are executed inline, by the poster's CPU, on the target's registered memory, with
// relaxed atomics (base/atomic_copy.h), so that the thread sanitizer means something; compare-swap
// and fetch-add are CPU atomics, so AtomicScope::kGlobal. Everything that verbs orders is ordered.
// A batch is complete when post() returns: awaiting it does not suspend. Immediates go through a
// bounded ring per direction and are delivered by the receiving device's polling; a full ring is
// BackPressure.
//
// With LocalDeviceOptions::late_effects_seed, what this device's connections post takes effect
// later instead, and completes by polling: fabric/local/late_effects.h.
//
// Peers find each other by Uri::name in a registry of the process. Bounds, keys and rights are
// checked exactly; a violation breaks the connection with kAccess at the violator and kDisconnected
// at the target, as a remote access error does on verbs.
//
// Threads: fabric/device.h's contract. The two ends may be on different threads;
// fabric/local/channel.h says how the fence works.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "fabric/device.h"
#include "fabric/local/region_table.h"

namespace pmstore::fabric {

struct Channel;
struct Endpoint;
class LateFlight;
class LocalConnection;
class LocalDevice;
struct LocalHandshake;
struct LocalListening;

class LocalRegion final : public MemoryRegion {
 public:
  LocalRegion(LocalDevice& device, std::span<std::byte> memory, Access access, uint64_t key);
  ~LocalRegion() override;
  const LocalDevice* device() const { return &device_; }

 private:
  LocalDevice& device_;
};

struct LocalDeviceOptions {
  // Set: effects are late, as this number says (for tests).
  std::optional<uint64_t> late_effects_seed = std::nullopt;
  // False: says that it notices no dead peers, as an RNIC does (for tests).
  bool notices_dead_peers = true;
};

class LocalDevice final : public Device, public base::Poller {
 public:
  explicit LocalDevice(base::Executor& executor, const LocalDeviceOptions& options = {});
  ~LocalDevice() override;

  Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> memory,
                                                        Access access) override;
  base::Task<Result<std::unique_ptr<Connection>>> connect(Uri uri, ConnectOptions options) override;
  Result<std::unique_ptr<Listener>> listen(const Uri& uri, Acceptor& acceptor) override;
  base::Task<Result<std::unique_ptr<Connection>>> loopback() override;
  // Both ends are in this process: a connection that is destroyed breaks its peer.
  bool notices_dead_peers() const override { return notices_dead_peers_; }

  size_t poll() override;
  uint64_t next_event_ns() const override;
  bool arm() override;

  const RegionTable& regions() const { return regions_; }

  // The next poll delivers what has arrived at `endpoint`, which is of this device. Any thread,
  // while the endpoint is known to be open.
  void schedule(Endpoint& endpoint);
  // The same, on this device's thread.
  void schedule_own(Endpoint& endpoint);
  // Own thread: the endpoint is being destroyed, and its peer can no longer reach it.
  void unschedule(Endpoint& endpoint);
  void count_connection(int change) {
    connections_ += change;
    PMSTORE_CHECK(connections_ >= 0, "each connection is counted once");
  }

  // ---- late effects; own thread ----
  // The seed of the next connection; none when effects are not late.
  std::optional<uint64_t> next_late_seed();
  void add_late(LocalConnection& connection) { late_.push_back(&connection); }
  void remove_late(LocalConnection& connection);
  // Adds and removes the late operations that a peer posts to a connection of this device.
  void add_incoming(std::shared_ptr<Channel> channel, LateFlight* flight);
  void remove_incoming(LateFlight* flight);
  // Some of the late operations of this device's connections may take effect.
  void stir();

 private:
  friend class LocalListener;
  friend class LocalRegion;
  struct Incoming {
    std::shared_ptr<Channel> channel;
    LateFlight* flight;
  };
  // A connect() that waits for its answer; on its coroutine's frame.
  struct Connecting;
  void withdraw(uint64_t key);
  // Resumes those whose wait is over; returns their number.
  size_t poll_connecting();
  uint64_t next_late_event_ns() const;
  // Both return true when this was destroyed.
  bool poll_scheduled(size_t& handled, const bool& destroyed);
  bool poll_late(size_t& handled, const bool& destroyed);
  void enqueue(Endpoint& endpoint);
  // Moves what others have scheduled to the private queue.
  void take_scheduled();

  RegionTable regions_;
  std::atomic<Endpoint*> scheduled_{nullptr};  // last in, first out; any thread pushes
  Endpoint* first_ = nullptr;                  // the private queue
  Endpoint* last_ = nullptr;                   // meaningful unless first_ is null
  size_t queued_ = 0;
  bool* destroyed_ = nullptr;  // of the poll() that is running, if one is
  std::vector<std::shared_ptr<LocalListening>> listening_;
  std::vector<Connecting*> connecting_;
  int connections_ = 0;
  const bool notices_dead_peers_;

  std::optional<base::Random> late_random_;  // set: effects are late
  std::vector<LocalConnection*> late_;       // null: gone, while poll_late() walks the list
  bool walking_late_ = false;
  bool deferred_ = false;  // the last poll left an endpoint for the next one
  std::vector<Incoming> incoming_;
};

Result<std::unique_ptr<Device>> open_local_device(base::Executor& executor,
                                                  const LocalDeviceOptions& options = {});

}  // namespace pmstore::fabric
