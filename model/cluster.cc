// Invariants: pairs_[pair->index] is pair; half_open_ has exactly the pairs whose listener's end
// was adopted and whose connector's end was not.
#include "model/cluster.h"

#include <fmt/format.h>

#include "base/check.h"
#include "fabric/local/local_connection.h"
#include "model/connection.h"
#include "model/device.h"

namespace pmstore::model {

Result<std::unique_ptr<Cluster>> Cluster::create(base::Executor& executor,
                                                 const Parameters& parameters,
                                                 const Topology& topology) {
  const auto wrong = [](std::string message) {
    return make_error(ErrorCode::kInvalidArgument, std::move(message));
  };
  if (topology.hosts < 1 || topology.hosts > kMaxHosts) {
    return wrong(
        fmt::format("the model has from 1 to {} hosts, not {}", kMaxHosts, topology.hosts));
  }
  if (topology.sockets < 1 || topology.sockets > kMaxSockets) {
    return wrong(fmt::format("a modelled host has from 1 to {} sockets, not {}", kMaxSockets,
                             topology.sockets));
  }
  if (topology.rnics < 1 || topology.rnics > topology.sockets) {
    return wrong(
        fmt::format("a modelled host has from 1 RNIC to one on each of its {} sockets, "
                    "not {}",
                    topology.sockets, topology.rnics));
  }
  const auto per_socket = static_cast<uint32_t>(parameters.cpu.cores_per_socket);
  if (topology.sockets * per_socket > kMaxCores) {
    return wrong(
        fmt::format("{} sockets of {} cores: a modelled host has at most {} cores; use fewer "
                    "sockets or a smaller cpu.cores_per_socket",
                    topology.sockets, per_socket, kMaxCores));
  }
  return std::unique_ptr<Cluster>(new Cluster(executor, parameters, topology));
}

Cluster::Cluster(base::Executor& executor, const Parameters& parameters, const Topology& topology)
    : executor_(executor), parameters_(parameters), topology_(topology), events_(executor) {
  for (uint32_t host = 0; host < topology.hosts; ++host) {
    hosts_.push_back(std::make_unique<Host>(*this, host));
  }
}

Cluster::~Cluster() {
  PMSTORE_CHECK(devices_.empty(), "devices are destroyed before their cluster");
}

uint32_t Cluster::add_device(ModelDevice* device) {
  devices_.emplace(device->inner(), device);
  return ++last_device_;
}

void Cluster::remove_device(ModelDevice* device) { devices_.erase(device->inner()); }

ConnectedPair& Cluster::new_pair() {
  pairs_.push_back(std::make_unique<ConnectedPair>());
  pairs_.back()->index = pairs_.size() - 1;
  return *pairs_.back();
}

void Cluster::equip(QueuePair& qp, ConnectedPair& pair, QueuePair& peer, ModelDevice& device) {
  qp.pair = &pair;
  qp.peer = &peer;
  qp.rnic = &device.rnic();
  qp.core = &device.core();
  qp.number = ++last_queue_pair_;
}

QueuePair* Cluster::queue_pair(ModelDevice& device, const fabric::LocalConnection& connection) {
  if (connection.loops_back()) {
    ConnectedPair& pair = new_pair();
    equip(pair.connector, pair, pair.connector, device);
    return &pair.connector;
  }
  if (connection.is_connector()) {
    const auto found = half_open_.find(connection.channel());
    if (found == half_open_.end()) return nullptr;
    ConnectedPair& pair = *found->second;
    half_open_.erase(found);
    return &pair.connector;
  }
  const auto peer = devices_.find(connection.peer_device());
  if (peer == devices_.end()) return nullptr;
  ConnectedPair& pair = new_pair();
  equip(pair.connector, pair, pair.listener, *peer->second);
  equip(pair.listener, pair, pair.connector, device);
  half_open_[connection.channel()] = &pair;
  return &pair.listener;
}

void Cluster::unreference(ConnectedPair& pair) {
  PMSTORE_CHECK(pair.references > 0 && pairs_[pair.index].get() == &pair,
                "a pair lives until its last reference ends");
  if (--pair.references > 0) return;
  std::erase_if(half_open_, [&pair](const auto& entry) { return entry.second == &pair; });
  const size_t index = pair.index;
  pairs_[index].swap(pairs_.back());
  pairs_[index]->index = index;
  pairs_.pop_back();
}

Operation* Cluster::acquire(QueuePair& qp) {
  if (free_operations_.empty()) free_operations_.push(&all_operations_.emplace_back());
  Operation* const operation = free_operations_.pop();
  Payload payload = std::move(operation->payload);
  *operation = Operation{};
  operation->payload = std::move(payload);
  operation->qp = &qp;
  operation->paths = 1;
  ++qp.pair->references;
  return operation;
}

void Cluster::release(Operation* operation) {
  PMSTORE_CHECK(operation->paths == 0, "an operation ends with the last of its paths");
  ++operations_;
  ConnectedPair& pair = *operation->qp->pair;
  free_operations_.push(operation);
  unreference(pair);
}

}  // namespace pmstore::model
