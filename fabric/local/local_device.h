// The local provider: client and server in one process, on one executor or on several.
//
// Work requests are executed inline, by the poster's CPU, on the target's registered memory, with
// relaxed atomics (base/atomic_copy.h), so that the thread sanitizer means something; compare-swap
// and fetch-add are CPU atomics, so AtomicScope::kGlobal. Everything that verbs orders is ordered.
// A batch is complete when post() returns: awaiting it does not suspend. Immediates go through a
// bounded ring per direction and are delivered by the receiving device's polling; a full ring is
// BackPressure.
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

#include "fabric/device.h"
#include "fabric/local/region_table.h"

namespace pmstore::fabric {

struct Endpoint;
class LocalConnection;
struct LocalListening;

class LocalRegion final : public MemoryRegion {
 public:
  LocalRegion(RegionTable& table, std::span<std::byte> memory, Access access, uint64_t key);
  ~LocalRegion() override;
  const RegionTable* table() const { return &table_; }

 private:
  RegionTable& table_;
};

class LocalDevice final : public Device, public base::Poller {
 public:
  explicit LocalDevice(base::Executor& executor);
  ~LocalDevice() override;

  Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> memory,
                                                        Access access) override;
  base::Task<Result<std::unique_ptr<Connection>>> connect(Uri uri, ConnectOptions options) override;
  Result<std::unique_ptr<Listener>> listen(const Uri& uri, Acceptor& acceptor) override;
  base::Task<Result<std::unique_ptr<Connection>>> loopback() override;

  size_t poll() override;

  const RegionTable& regions() const { return regions_; }

  // Has the endpoint of this device looked at by the next poll. Any thread, while it is known to be
  // open.
  void schedule(Endpoint& endpoint);
  // The same, on this device's thread.
  void schedule_own(Endpoint& endpoint);
  // Own thread: the endpoint is about to go, and its peer can no longer reach it.
  void unschedule(Endpoint& endpoint);
  void count_connection(int change) { connections_ += change; }

 private:
  friend class LocalListener;
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
  int connections_ = 0;
};

Result<std::unique_ptr<Device>> open_local_device(base::Executor& executor);

}  // namespace pmstore::fabric
