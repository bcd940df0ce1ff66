// Cluster: hosts of the modelled machine around one switch, in one process and in virtual time.
//
//   VirtualClock clock;
//   Executor executor(clock);
//   auto cluster = Cluster::create(executor, *named_parameters("optane-cx5"), {.hosts = 2});
//   ServerOptions server;   server.devices = &(*cluster)->host(0);
//   ClientOptions client;   client.devices = &(*cluster)->host(1).on_core(3);
//
// The same seed, parameters and topology give the same run, whatever the host and its addresses.
// Threads: the executor's. Lifetimes: the executor, whose clock must be virtual, outlives the
// cluster; devices, connections and regions are destroyed before it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "model/event_queue.h"
#include "model/host.h"
#include "model/parameters.h"
#include "model/queue_pair.h"

namespace pmstore::fabric {
class LocalConnection;
class LocalDevice;
struct Channel;
}  // namespace pmstore::fabric

namespace pmstore::model {

class ModelDevice;

// All hosts are alike.
struct Topology {
  uint32_t hosts = 2;
  uint32_t sockets = 1;  // of each host
  uint32_t rnics = 1;    // of each host, on sockets 0, 1, ...
  bool ddio = true;      // rule H3 switches it off
  uint64_t seed = 1;
  // Set: effects are late, with this seed (docs/model-network.md). For tests.
  std::optional<uint64_t> late_effects_seed = std::nullopt;
};

class Cluster {
 public:
  static constexpr uint32_t kMaxHosts = 1024;
  static constexpr uint32_t kMaxSockets = 8;
  static constexpr uint32_t kMaxCores =
      254;  // of a host: a cache line remembers its core in 8 bits

  // InvalidArgument for a topology that no machine can have.
  static Result<std::unique_ptr<Cluster>> create(base::Executor& executor,
                                                 const Parameters& parameters,
                                                 const Topology& topology);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  size_t hosts() const { return hosts_.size(); }
  Host& host(size_t index) { return *hosts_[index]; }
  const Parameters& parameters() const { return parameters_; }
  const Topology& topology() const { return topology_; }
  base::Executor& executor() { return executor_; }
  EventQueue& events() { return events_; }
  // Work requests that have ended so far, of all hosts.
  uint64_t operations() const { return operations_; }

  // ---- for devices, connections and RNICs ----
  uint32_t add_device(ModelDevice* device);
  void remove_device(ModelDevice* device);
  // The queue pair for this end of a connection; null when the other end is not in this cluster.
  QueuePair* queue_pair(ModelDevice& device, const fabric::LocalConnection& connection);
  void unreference(ConnectedPair& pair);
  Operation* acquire(QueuePair& qp);
  void release(Operation* operation);

 private:
  Cluster(base::Executor& executor, const Parameters& parameters, const Topology& topology);
  ConnectedPair& new_pair();
  void equip(QueuePair& qp, ConnectedPair& pair, QueuePair& peer, ModelDevice& device);

  base::Executor& executor_;
  const Parameters parameters_;
  const Topology topology_;
  EventQueue events_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::map<const fabric::LocalDevice*, ModelDevice*> devices_;
  uint32_t last_device_ = 0;
  uint32_t last_queue_pair_ = 0;
  std::vector<std::unique_ptr<ConnectedPair>> pairs_;
  // Those of which only the listener's end exists so far.
  std::map<const fabric::Channel*, ConnectedPair*> half_open_;
  std::deque<Operation> all_operations_;
  OperationList<&Operation::next> free_operations_;
  uint64_t operations_ = 0;
};

}  // namespace pmstore::model
