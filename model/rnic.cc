#include "model/rnic.h"

#include <algorithm>

#include "base/check.h"
#include "model/cluster.h"
#include "model/host.h"
#include "model/picoseconds.h"

namespace pmstore::model {

RnicCounters& RnicCounters::operator+=(const RnicCounters& other) {
  doorbells += other.doorbells;
  wqe_fetches += other.wqe_fetches;
  payload_reads += other.payload_reads;
  memory_reads += other.memory_reads;
  memory_writes += other.memory_writes;
  completions += other.completions;
  qp_misses += other.qp_misses;
  wqe_misses += other.wqe_misses;
  translation_misses += other.translation_misses;
  protection_misses += other.protection_misses;
  requests += other.requests;
  full_buffer += other.full_buffer;
  receiver_not_ready += other.receiver_not_ready;
  return *this;
}

RnicCounters& RnicCounters::operator-=(const RnicCounters& other) {
  doorbells -= other.doorbells;
  wqe_fetches -= other.wqe_fetches;
  payload_reads -= other.payload_reads;
  memory_reads -= other.memory_reads;
  memory_writes -= other.memory_writes;
  completions -= other.completions;
  qp_misses -= other.qp_misses;
  wqe_misses -= other.wqe_misses;
  translation_misses -= other.translation_misses;
  protection_misses -= other.protection_misses;
  requests -= other.requests;
  full_buffer -= other.full_buffer;
  receiver_not_ready -= other.receiver_not_ready;
  return *this;
}

Rnic::Rnic(Cluster& cluster, Host& host, uint32_t socket, uint64_t seed)
    : cluster_(cluster),
      host_(host),
      events_(cluster.events()),
      parameters_(cluster.parameters()),
      socket_(socket),
      cache_(parameters_.rnic, seed),
      pcie_(parameters_.pcie, &events_.last()),
      tx_(&events_.last()),
      rx_(&events_.last()),
      link_(parameters_.link, &events_.last()),
      atomics_(&events_.last()),
      atomic_slots_ps_(static_cast<size_t>(parameters_.rnic.atomic_slots), 0),
      misses_(static_cast<size_t>(parameters_.rnic.misses_at_once)) {
  if (const auto& late_seed = cluster_.topology().late_effects_seed) {
    late_.emplace(base::mix64(*late_seed) ^ seed);
  }
}

// Mostly little, now and then up to 8 us: what others do meanwhile takes some hundred ns or some
// us.
uint64_t Rnic::lateness_ps() {
  if (!late_) [[likely]]
    return 0;
  constexpr uint64_t kMagnitudes = 14;
  return to_ps(static_cast<double>(late_->below(uint64_t{1} << late_->below(kMagnitudes))));
}

RnicCounters Rnic::counters() const {
  RnicCounters counters = counters_;
  counters.qp_misses = cache_.misses(NicEntry::kQueuePair);
  counters.wqe_misses = cache_.misses(NicEntry::kWqe);
  counters.translation_misses = cache_.misses(NicEntry::kTranslation);
  counters.protection_misses = cache_.misses(NicEntry::kProtection);
  return counters;
}

uint64_t Rnic::entry(uint64_t at_ps, NicEntry kind, uint64_t number) {
  if (cache_.touch(kind, number)) return at_ps;
  const uint64_t begin_ps = misses_.room_at(at_ps);
  const uint64_t in_host_ps = pcie_.to_host(begin_ps, 0) + to_ps(parameters_.rnic.fetch_ns);
  const uint64_t end_ps = pcie_.to_device(in_host_ps, 64);
  misses_.enter(end_ps);
  return end_ps;
}

uint64_t Rnic::memory_entries(uint64_t at_ps, const void* address, uint32_t bytes, uint64_t key) {
  if (bytes == 0) return at_ps;
  uint64_t end_ps = entry(at_ps, NicEntry::kProtection, key);
  const auto page_bytes = static_cast<uint64_t>(parameters_.rnic.page_bytes);
  const uint64_t first = host_.memory().placement().find(address).address;
  const uint64_t last_page = (first + bytes - 1) / page_bytes;
  for (uint64_t page = first / page_bytes; page <= last_page; ++page) {
    end_ps = std::max(end_ps, entry(at_ps, NicEntry::kTranslation, page));
  }
  return end_ps;
}

void Rnic::end_path(Operation* operation) {
  PMSTORE_CHECK(operation->paths > 0, "each path ends once");
  if (--operation->paths == 0) cluster_.release(operation);
}

void Rnic::observe(Packet packet, const Operation* operation) {
  if (NvmObserver* observer = host_.nvm_observer(); observer != nullptr) {
    observer->on_packet(packet, operation->qp->number, operation->request.bytes);
  }
}

}  // namespace pmstore::model
