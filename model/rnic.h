// Rnic: one RDMA adapter of a modelled host: requester and responder of reliable connections.
//
// A request passes: doorbell, fetch of WQE and payload, sending side, link, receiving side, PCIe;
// its response the same way back. Every shared thing on the way (the two sides, the link's two
// directions, PCIe's two directions, the atomics unit, the slots for cache misses) is reserved when
// the request gets there, so later requests queue. docs/model-network.md has the whole path with
// its costs. Requests that are received and not yet on PCIe are in the receive buffer; when it is
// full, arriving requests wait on the link. Threads: one. Owned by its host.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/random.h"
#include "model/event_queue.h"
#include "model/link.h"
#include "model/memory_system.h"
#include "model/nic_cache.h"
#include "model/nvm_observer.h"
#include "model/parameters.h"
#include "model/pcie.h"
#include "model/queue.h"
#include "model/queue_pair.h"

namespace pmstore::model {

inline constexpr uint32_t kLineBytes = 64;  // of the CPU caches

inline constexpr uint32_t kAtomicBytes = 8;  // what an atomic operation reads and writes

class Cluster;
class Host;
class ModelConnection;

// Totals of one RNIC since the start.
struct RnicCounters {
  uint64_t doorbells = 0;      // MMIO writes of its CPUs
  uint64_t wqe_fetches = 0;    // PCIe reads of descriptors
  uint64_t payload_reads = 0;  // of what it sends
  uint64_t memory_reads = 0;   // for its peers: READ and atomics
  uint64_t memory_writes = 0;  // for its peers: WRITE, atomics; for its CPUs: answers to READ
  uint64_t completions = 0;    // CQEs written
  // Entries fetched from the host because the chip's cache did not have them.
  uint64_t qp_misses = 0;
  uint64_t wqe_misses = 0;
  uint64_t translation_misses = 0;
  uint64_t protection_misses = 0;
  uint64_t requests = 0;     // received
  uint64_t full_buffer = 0;  // requests that waited on the wire for the receive buffer
  uint64_t receiver_not_ready = 0;

  uint64_t cache_misses() const {
    return qp_misses + wqe_misses + translation_misses + protection_misses;
  }
  uint64_t pcie_transactions() const {
    return doorbells + wqe_fetches + payload_reads + memory_reads + memory_writes + completions +
           cache_misses();
  }
  RnicCounters& operator+=(const RnicCounters& other);
  RnicCounters& operator-=(const RnicCounters& other);
};

class Rnic {
 public:
  Rnic(Cluster& cluster, Host& host, uint32_t socket, uint64_t seed);
  Rnic(const Rnic&) = delete;
  Rnic& operator=(const Rnic&) = delete;

  Host& host() { return host_; }
  uint32_t socket() const { return socket_; }
  RnicCounters counters() const;

  // The CPU has rung the doorbell for the chain that starts with `first`; it gets here then.
  void ring(Operation* first, uint64_t at_ps);

  // The connection of `qp` is broken. Its receiver is told at the time at which a refusal would
  // have arrived.
  void report_broken(QueuePair& qp);

  // Writes all that was received from `qp` to memory, inline: an acknowledged WRITE outlives its
  // connection.
  void write_received(QueuePair& qp);

  // One of its `paths` has ended. Releases the operation after the last one.
  void end_path(Operation* operation);

 private:
  // ---- requester (rnic_requester.cc) ----
  void on_doorbell(Operation* first);
  void fetch(Operation* operation, uint64_t wqe_ps);
  void on_fetched(Operation* operation);
  void transmit(Operation* operation);
  void on_response(Operation* operation);
  void on_completed(Operation* operation);
  void on_broken(QueuePair* qp);
  void resume_stalled(QueuePair& qp);

  // ---- responder (rnic_responder.cc) ----
  void on_arrival(Operation* operation);
  void admit(Operation* operation);
  void on_received(Operation* operation);
  bool ready_to_receive(Operation* operation);
  void on_retry(QueuePair* qp);
  void accept(Operation* operation);
  void on_hold_over(Operation* operation);
  void release_held(QueuePair& qp);
  void on_answerable(Operation* operation);
  void respond(Operation* operation);

  // ---- PCIe and memory (rnic_memory.cc) ----
  void enqueue(Operation* operation);
  void on_pcie_free(uint32_t);
  void pump();
  void issue_write(Operation* operation);
  void issue_read(Operation* operation);
  void issue_atomic(Operation* operation);
  void on_write_visible(Operation* operation);
  void write_piece(Operation* operation);
  void tell_immediate(Operation* operation);
  void observe_write(const void* destination, const void* source, uint32_t bytes, bool in_cache);
  void on_atomic(Operation* operation);
  void on_sampled(Operation* operation);
  void schedule_samples(Operation* operation, uint64_t first_ps);
  void sample_lines(Operation* operation, ModelConnection& connection);
  void free_buffer();

  // ---- shared (rnic.cc) ----
  // The random delay of a step; 0 without late effects.
  uint64_t lateness_ps();
  // The time at which an entry that is needed at `at_ps` is on the chip.
  uint64_t entry(uint64_t at_ps, NicEntry kind, uint64_t number);
  // The same for the translations and the protection entry of a range of `host`'s memory.
  uint64_t memory_entries(uint64_t at_ps, const void* address, uint32_t bytes, uint64_t key);
  void observe(Packet packet, const Operation* operation);

  Cluster& cluster_;
  Host& host_;
  EventQueue& events_;
  const Parameters& parameters_;
  const uint32_t socket_;
  std::optional<base::Random> late_;  // set: effects are late
  NicCache cache_;
  RnicCounters counters_;

  PcieLink pcie_;
  Server tx_, rx_;
  Link link_;
  Server atomics_;
  std::vector<uint64_t> atomic_slots_ps_;  // when the words of each are free again
  Window misses_;

  OperationList<&Operation::next> queue_;    // received, in the order in which they go to PCIe
  OperationList<&Operation::next> on_wire_;  // arrived, no room in the buffer
  uint64_t pcie_free_ps_ = 0;                // when the next of queue_ may go
  uint64_t buffered_bytes_ = 0;
  uint64_t leaving_bytes_ = 0;  // of buffered_bytes_: on PCIe until pcie_free_ps_
  bool pump_set_ = false;       // on_pcie_free() is to come
};

}  // namespace pmstore::model
