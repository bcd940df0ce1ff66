// Host: one machine of the model: sockets with their cores and memory, and RNICs.
//
// Code under test gets a Host or one of its HostCores where it takes a fabric::DeviceOpener, and
// runs there unchanged. What a core is charged for is in model/core.h and docs/model-network.md.
// Memory is DRAM of the socket of the core that registers it, unless place_nvm() has said otherwise
// before. Threads: one. Owned by its Cluster.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fabric/device.h"
#include "model/core.h"
#include "model/memory_system.h"
#include "model/nvm_observer.h"
#include "model/rnic.h"
#include "persist/memory.h"
#include "persist/strategy.h"

namespace pmstore::model {

class Cluster;
class Host;

// Opens devices for one core, on one RNIC.
class HostCore final : public fabric::DeviceOpener {
 public:
  HostCore(Host& host, Core& core, Rnic& rnic) : host_(host), core_(core), rnic_(rnic) {}
  // Unsupported for another scheme than local: a modelled host has nothing else. `executor` must be
  // the cluster's (CHECK).
  Result<std::unique_ptr<fabric::Device>> open(fabric::Scheme scheme,
                                               base::Executor& executor) override;
  Core& core() { return core_; }

 private:
  Host& host_;
  Core& core_;
  Rnic& rnic_;
};

class Host final : public fabric::DeviceOpener {
 public:
  Host(Cluster& cluster, uint32_t number);
  ~Host() override;
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  Cluster& cluster() { return cluster_; }
  uint32_t number() const { return number_; }
  size_t cores() const { return cores_.size(); }
  size_t rnics() const { return rnics_.size(); }
  Core& core(size_t index) { return *cores_[index]; }
  Rnic& rnic(size_t index) { return *rnics_[index]; }
  MemorySystem& memory() { return *memory_; }

  // For core `index`, on the RNIC of its socket (or the nearest that there is).
  HostCore& on_core(size_t index) { return openers_[index]; }
  // The same with another RNIC: rule H1 switched off.
  HostCore on_core(size_t index, size_t rnic) { return {*this, core(index), this->rnic(rnic)}; }
  // on_core(0).open()
  Result<std::unique_ptr<fabric::Device>> open(fabric::Scheme scheme,
                                               base::Executor& executor) override {
    return on_core(0).open(scheme, executor);
  }

  // `range` is persistent memory of that socket from now on, until remove_nvm().
  void place_nvm(std::span<const std::byte> range, uint32_t socket);
  void remove_nvm(std::span<const std::byte> range);
  // Rule H8 switched off: memory that grants remote atomics, and is registered from now on, is
  // persistent memory of that socket.
  void place_atomics_on_nvm(uint32_t socket) { atomics_socket_ = socket; }
  // The accesses of the CPU to `memory` are charged to core `index`, and told to the NvmObserver.
  // `memory` is borrowed until unwatch(), which comes before the destruction of `memory`, or until
  // this host is destroyed.
  void watch(persist::Memory& memory, size_t index);
  void unwatch(persist::Memory& memory);
  // Where this host's RNICs write; the host declares it in handshakes.
  persist::WriteLanding landing() const;
  // Told of the accesses of devices and watched CPUs to memory; nullptr: none. Borrowed.
  void set_nvm_observer(NvmObserver* observer) { nvm_observer_ = observer; }
  NvmObserver* nvm_observer() const { return nvm_observer_; }

  RnicCounters rnic_counters() const;  // of all RNICs
  uint64_t busy_ps() const;            // of all cores

  // ---- for ModelRegion ----
  void add_registered(std::span<const std::byte> range, fabric::Access access, uint32_t core);
  void remove_registered(std::span<const std::byte> range);

 private:
  class Watch;

  Cluster& cluster_;
  const uint32_t number_;
  std::unique_ptr<MemorySystem> memory_;
  std::vector<std::unique_ptr<Core>> cores_;
  std::vector<std::unique_ptr<Rnic>> rnics_;
  std::vector<HostCore> openers_;  // one for each core
  std::vector<std::unique_ptr<Watch>> watches_;
  // Ranges placed because they were registered: how often.
  std::map<std::pair<const std::byte*, size_t>, uint32_t> registered_;
  NvmObserver* nvm_observer_ = nullptr;
  std::optional<uint32_t> atomics_socket_;  // set by place_atomics_on_nvm()
};

}  // namespace pmstore::model
