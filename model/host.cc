#include "model/host.h"

#include <algorithm>

#include "base/check.h"
#include "model/cluster.h"
#include "model/device.h"

namespace pmstore::model {

// Charges a core for what it does to persistent memory.
class Host::Watch final : public persist::Observer {
 public:
  Watch(Host& host, Core& core, persist::Memory& memory)
      : host_(host), core_(core), memory_(&memory) {
    memory.set_observer(this);
  }
  ~Watch() override {
    if (memory_ != nullptr) memory_->set_observer(nullptr);
  }
  const persist::Memory* memory() const { return memory_; }

  void on_store(const void* to, const void* from, size_t bytes, bool non_temporal) override {
    if (host_.nvm_observer_ != nullptr) {
      host_.nvm_observer_->on_store(to, from, bytes, non_temporal);
    }
    MemorySystem& memory = host_.memory();
    const auto count = static_cast<uint32_t>(bytes);
    core_.set_free(non_temporal
                       ? memory.cpu_store_non_temporal(core_.number(), core_.free_ps(), to, count)
                       : memory.cpu_store(core_.number(), core_.free_ps(), to, count));
  }
  void on_flush(const void* from, size_t bytes) override {
    if (host_.nvm_observer_ != nullptr) host_.nvm_observer_->on_flush(from, bytes);
    // Elsewhere Memory::flush() leaves the caches alone.
    if (memory_->domain() != persist::Domain::kMemoryController) return;
    core_.set_free(host_.memory().cpu_flush(core_.number(), core_.free_ps(), from,
                                            static_cast<uint32_t>(bytes)));
  }
  void on_drain() override {
    if (host_.nvm_observer_ != nullptr) host_.nvm_observer_->on_drain();
    core_.set_free(host_.memory().cpu_drain(core_.number(), core_.free_ps()));
  }
  void on_fence() override {
    if (host_.nvm_observer_ != nullptr) host_.nvm_observer_->on_fence();
  }
  // Its time is that of a disk, which is not modelled.
  void on_sync(const void* from, size_t bytes) override {
    if (host_.nvm_observer_ != nullptr) host_.nvm_observer_->on_sync(from, bytes);
  }

 private:
  Host& host_;
  Core& core_;
  persist::Memory* memory_;
};

Result<std::unique_ptr<fabric::Device>> HostCore::open(fabric::Scheme scheme,
                                                       base::Executor& executor) {
  Cluster& cluster = host_.cluster();
  PMSTORE_CHECK(&executor == &cluster.executor(), "a modelled host runs on its cluster's executor");
  if (scheme != fabric::Scheme::kLocal) {
    return make_error(ErrorCode::kUnsupported, "a modelled host has no " +
                                                   std::string(fabric::scheme_name(scheme)) +
                                                   " device; use local:NAME");
  }
  return std::unique_ptr<fabric::Device>(new ModelDevice(cluster, host_, core_, rnic_));
}

Host::Host(Cluster& cluster, uint32_t number) : cluster_(cluster), number_(number) {
  const Topology& topology = cluster.topology();
  const uint64_t seed = base::mix64(topology.seed ^ base::mix64(number + 1));
  memory_ = std::make_unique<MemorySystem>(
      cluster.parameters(),
      MemoryOptions{.sockets = topology.sockets, .ddio = topology.ddio, .seed = seed});
  for (uint32_t rnic = 0; rnic < topology.rnics; ++rnic) {
    rnics_.push_back(std::make_unique<Rnic>(cluster, *this, rnic, base::mix64(seed + rnic)));
  }
  const auto per_socket = static_cast<uint32_t>(cluster.parameters().cpu.cores_per_socket);
  openers_.reserve(size_t{topology.sockets} * per_socket);
  for (uint32_t core = 0; core < topology.sockets * per_socket; ++core) {
    cores_.push_back(std::make_unique<Core>(cluster, core));
    Rnic& nearest = *rnics_[std::min<size_t>(core / per_socket, rnics_.size() - 1)];
    openers_.emplace_back(*this, *cores_.back(), nearest);
  }
}

Host::~Host() = default;

void Host::place_nvm(std::span<const std::byte> range, uint32_t socket) {
  memory_->placement().place(range, Medium::kNvm, socket);
}

void Host::remove_nvm(std::span<const std::byte> range) { memory_->placement().remove(range); }

void Host::watch(persist::Memory& memory, size_t index) {
  watches_.push_back(std::make_unique<Watch>(*this, core(index), memory));
}

void Host::unwatch(persist::Memory& memory) {
  std::erase_if(watches_, [&memory](const auto& watch) { return watch->memory() == &memory; });
}

persist::WriteLanding Host::landing() const {
  return memory_->ddio() ? persist::WriteLanding::kLastLevelCache : persist::WriteLanding::kMemory;
}

RnicCounters Host::rnic_counters() const {
  RnicCounters sum;
  for (const auto& rnic : rnics_) sum += rnic->counters();
  return sum;
}

uint64_t Host::busy_ps() const {
  uint64_t sum = 0;
  for (const auto& core : cores_) sum += core->busy_ps();
  return sum;
}

void Host::add_registered(std::span<const std::byte> range, fabric::Access access, uint32_t core) {
  if (range.empty()) return;
  Placement& placement = memory_->placement();
  const auto known = registered_.find({range.data(), range.size()});
  if (known != registered_.end()) {
    ++known->second;
    return;
  }
  // A part of memory that has its place keeps it.
  if (placement.overlaps(range)) return;
  const auto per_socket = static_cast<uint32_t>(cluster_.parameters().cpu.cores_per_socket);
  if (atomics_socket_ && fabric::has(access, fabric::Access::kRemoteAtomic)) {
    placement.place(range, Medium::kNvm, *atomics_socket_);
  } else {
    placement.place(range, Medium::kDram, core / per_socket);
  }
  registered_.emplace(std::pair(range.data(), range.size()), 1u);
}

void Host::remove_registered(std::span<const std::byte> range) {
  const auto known = registered_.find({range.data(), range.size()});
  if (known == registered_.end() || --known->second > 0) return;
  memory_->placement().remove(range);
  registered_.erase(known);
}

}  // namespace pmstore::model
