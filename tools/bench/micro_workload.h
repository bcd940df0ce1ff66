// The workload of the remote-access benchmark: a client that keeps its window full, and a whole
// measurement with all clients on one executor, in real or virtual time.
//
// Nothing here knows which fabric it runs on. A window is coroutines, one for each request (or
// batch) outstanding; each issues its next one from the completion of its last.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/histogram.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "persist/remote_writer.h"
#include "tools/bench/micro_addresses.h"
#include "tools/bench/micro_point.h"

namespace pmstore::tools {

// The state that the clients of one measurement share. Any thread.
class MicroControl {
 public:
  explicit MicroControl(const MicroPoint& point) : clients_(point.clients) {}
  // Called when the first client begins to count and when the last one has ended, on that client's
  // thread. Set before the start.
  std::function<void()> on_begin;
  std::function<void()> on_end;

  // Ends the measurement early.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  // The same, with a reason; the first one counts.
  void fail(Error why);
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
  // Why it failed; nothing when it has not.
  std::optional<Error> error() const;

 private:
  friend class MicroClient;
  mutable std::mutex mutex_;
  std::optional<Error> error_;  // under mutex_
  const uint32_t clients_;
  std::atomic<bool> stopped_{false};
  std::atomic<uint32_t> connected_{0};
  std::atomic<uint32_t> began_{0};
  std::atomic<uint32_t> ended_{0};
  std::atomic<uint64_t> start_ns_{0};  // 0: not yet
};

// The counters of one client, or of all.
struct MicroTally {
  Histogram latency_ns;  // of each request; those of a batch have the batch's
  fabric::Counters counters;
  uint64_t begin_ns = UINT64_MAX;
  uint64_t end_ns = 0;
  persist::PersistCapability server;
  bool ordinary_file = false;  // what the server has for nvm, where nvm was asked for
  persist::WriteStrategy strategy = persist::WriteStrategy::kAuto;  // in force; persistent writes

  void merge(const MicroTally& other);
  double seconds() const;
  double rate_per_s() const;
};

class MicroClient {
 public:
  // Requires check_point(point). `device` and `point` are borrowed; `index` < point.clients.
  MicroClient(fabric::Device& device, const MicroPoint& point, uint32_t index);
  ~MicroClient();

  // Connects to the server thread at `server` and to as many of the others as it has connections
  // for, waits until all clients of `control` have, works, and counts. When one client fails, all
  // stop, and `control` says why.
  base::Task<void> run(fabric::Uri server, MicroControl& control);
  const MicroTally& tally() const { return tally_; }

 private:
  struct Link;
  enum class Phase : uint8_t { kWarmUp, kCounting, kOver };

  base::Task<Status> connect(fabric::Uri server);
  // A new route, to the server thread at `uri`.
  base::Task<Status> connect_route(Link& link, fabric::Uri uri);
  base::Task<Status> connect_link(Link& link, uint64_t stream, const fabric::Uri& server);
  base::Task<bool> meet();
  base::Task<void> work();
  base::Task<void> keep_busy(Link& link, uint32_t slot);
  base::Task<Status> one_sided(Link& link, uint32_t slot);
  base::Task<Status> one_by_one(Link& link, uint32_t slot);
  base::Task<Status> two_sided(Link& link, uint32_t slot);
  base::Task<Status> persistent(Link& link, uint32_t slot);
  void add_request(Link& link, std::byte* local);
  bool over() const { return phase_ == Phase::kOver || control_->stopped(); }
  void count(uint64_t start_ns, uint64_t end_ns, uint32_t requests);
  void begin(uint64_t now_ns);
  void end(uint64_t now_ns);
  fabric::Counters counters() const;
  std::byte* buffer(const Link& link, uint32_t slot);

  fabric::Device& device_;
  const MicroPoint& point_;
  const uint32_t index_;
  const uint32_t bytes_;  // of each request
  const uint32_t slots_;  // coroutines of each connection
  std::vector<std::byte> memory_;
  std::unique_ptr<fabric::MemoryRegion> region_;
  size_t buffer_bytes_;  // of each slot
  std::vector<std::unique_ptr<Link>> links_;
  fabric::Batch batch_;  // filled and posted without a suspension in between

  MicroControl* control_ = nullptr;
  Phase phase_ = Phase::kWarmUp;
  uint64_t warm_until_ns_ = 0;
  uint64_t end_ns_ = 0;
  uint64_t warm_ops_ = 0;  // by count: still to come
  uint64_t ops_left_ = 0;
  uint32_t working_ = 0;
  base::WaitList all_ended_;
  fabric::Counters counters_at_begin_;
  MicroTally tally_;
};

// One measurement, all clients on `executor`, client i on devices[i % size]; the server is
// elsewhere or another task of this executor. InvalidArgument of check_point(), errors of
// connecting, of the fabric, and of persist::negotiate().
base::Task<Result<MicroTally>> run_micro(base::Executor& executor,
                                         std::span<fabric::Device* const> devices,
                                         fabric::Uri server, const MicroPoint& point,
                                         MicroControl& control);

}  // namespace pmstore::tools
