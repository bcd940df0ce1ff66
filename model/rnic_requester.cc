// The requester: from the doorbell to the wire, and from the response to the completion.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "model/cluster.h"
#include "model/connection.h"
#include "model/host.h"
#include "model/picoseconds.h"
#include "model/rnic.h"

namespace pmstore::model {

namespace {

constexpr uint32_t kWqeReadBytes = 256;  // of one PCIe read of descriptors

uint64_t wqe_number(const Operation* operation) {
  return uint64_t{operation->qp->number} << 32 | operation->wqe;
}

}  // namespace

void Rnic::ring(Operation* first, uint64_t at_ps) {
  events_.at<&Rnic::on_doorbell>(at_ps + pcie_.latency_ps(), this, first);
}

void Rnic::on_doorbell(Operation* first) {
  ++counters_.doorbells;
  const RnicParameters& rnic = parameters_.rnic;
  QueuePair& qp = *first->qp;
  uint64_t ready_ps = entry(events_.now_ps(), NicEntry::kQueuePair, qp.number);
  const double lone_bytes = rnic.wqe_bytes + (first->inlined ? first->request.bytes : 0);
  if (first->chain > 1 || lone_bytes > rnic.blueflame_bytes) {
    // Only a lone WQE comes with the doorbell.
    uint64_t bytes = 0;
    for (const Operation* at = first; at != nullptr; at = at->next_in_chain) {
      bytes += static_cast<uint64_t>(rnic.wqe_bytes) + (at->inlined ? at->request.bytes : 0);
    }
    counters_.wqe_fetches += (bytes + kWqeReadBytes - 1) / kWqeReadBytes;
    const uint64_t in_host_ps = pcie_.to_host(ready_ps, 0) + to_ps(rnic.fetch_ns);
    ready_ps = pcie_.to_device(in_host_ps, bytes);
  }
  for (Operation* at = first; at != nullptr;) {
    Operation* const next = at->next_in_chain;  // `at` may be over when fetch() returns
    cache_.put(NicEntry::kWqe, wqe_number(at));
    fetch(at, ready_ps);
    at = next;
  }
}

void Rnic::fetch(Operation* operation, uint64_t wqe_ps) {
  QueuePair& qp = *operation->qp;
  const fabric::WorkRequest& request = operation->request;
  uint64_t ready_ps = wqe_ps;
  // A connection that is gone took its buffers along.
  if (operation->writes() && !operation->inlined && request.bytes > 0 && qp.connection != nullptr) {
    ++counters_.payload_reads;
    ready_ps = memory_entries(ready_ps, request.local, request.bytes,
                              qp.connection->region_number(request));
    const uint64_t asked_ps = pcie_.to_host(ready_ps, 0);
    const uint64_t in_host_ps =
        host_.memory().device_read(socket_, asked_ps, request.local, request.bytes);
    ready_ps = pcie_.to_device(in_host_ps, request.bytes);
  }
  qp.fetched_ps = std::max(qp.fetched_ps, ready_ps);
  if (qp.fetching == 0 && qp.fetched_ps <= events_.now_ps()) {
    ++qp.fetching;
    on_fetched(operation);
  } else {
    ++qp.fetching;
    events_.at<&Rnic::on_fetched>(qp.fetched_ps, this, operation);
  }
}

void Rnic::on_fetched(Operation* operation) {
  QueuePair& qp = *operation->qp;
  PMSTORE_CHECK(qp.fetching > 0, "each WQE is fetched once");
  --qp.fetching;
  if (qp.connection == nullptr || qp.connection->broken()) {
    end_path(operation);  // never sent
    return;
  }
  const fabric::WorkRequest& request = operation->request;
  if (operation->writes() && !operation->inlined && request.bytes > 0) {
    std::memcpy(operation->payload.room(request.bytes), request.local, request.bytes);
  }
  const bool waits = !operation->writes() && qp.reads >= parameters_.rnic.reads_per_qp;
  if (waits || !qp.stalled.empty()) {
    qp.stalled.push(operation);
  } else {
    transmit(operation);
  }
}

void Rnic::transmit(Operation* operation) {
  QueuePair& qp = *operation->qp;
  PMSTORE_CHECK(operation->writes() || qp.reads < parameters_.rnic.reads_per_qp,
                "a queue pair has a bounded number of READs under way");
  if (!operation->writes()) ++qp.reads;
  Rnic& target = *qp.peer->rnic;
  const uint64_t sent_ps = tx_.take(events_.now_ps(), to_ps(parameters_.rnic.tx_ns)) +
                           to_ps(parameters_.rnic.pipeline_ns);
  uint64_t arrival_ps = sent_ps;
  if (&target != this) {
    const uint32_t bytes = operation->writes()   ? operation->request.bytes
                           : operation->atomic() ? 2 * kAtomicBytes
                                                 : 0;
    arrival_ps = link_.send(sent_ps, bytes);
  }
  arrival_ps += lateness_ps();
  qp.arrival_ps = std::max(qp.arrival_ps, arrival_ps);
  events_.at<&Rnic::on_arrival>(qp.arrival_ps, &target, operation);
}

void Rnic::on_response(Operation* operation) {
  QueuePair& qp = *operation->qp;
  if (!operation->writes()) {
    PMSTORE_CHECK(qp.reads > 0, "each READ has one response");
    --qp.reads;
    resume_stalled(qp);
  }
  ModelConnection* const connection = qp.connection;
  if (connection == nullptr || connection->broken() || operation->refused) {
    end_path(operation);
    return;
  }
  const fabric::WorkRequest& request = operation->request;
  const bool brings_data = !operation->writes() && request.bytes > 0;
  uint64_t ready_ps = events_.now_ps();
  if (brings_data && qp.peer->rnic != this) ready_ps = link_.receive(ready_ps, request.bytes);
  ready_ps += to_ps(parameters_.rnic.pipeline_ns);
  ready_ps = entry(ready_ps, NicEntry::kQueuePair, qp.number);
  ready_ps = entry(ready_ps, NicEntry::kWqe, wqe_number(operation));
  if (brings_data) {
    ++counters_.memory_writes;
    ready_ps =
        memory_entries(ready_ps, request.local, request.bytes, connection->region_number(request));
    const uint64_t at_host_ps = pcie_.to_host(ready_ps, request.bytes);
    // The completion is a posted write behind this one.
    ready_ps = std::max(
        ready_ps,
        host_.memory().device_write(socket_, at_host_ps, request.local, request.bytes).visible_ps -
            pcie_.latency_ps());
    std::memcpy(request.local, operation->payload.data(), request.bytes);
  }
  qp.completed_ps = std::max(qp.completed_ps, ready_ps);
  connection->wqe_done();
  if (operation->completion == nullptr) {
    end_path(operation);
    return;
  }
  ++counters_.completions;
  const uint64_t seen_ps = pcie_.to_host(qp.completed_ps, parameters_.rnic.wqe_bytes);
  qp.seen_ps = std::max(qp.seen_ps, seen_ps + lateness_ps());
  events_.at<&Rnic::on_completed>(qp.seen_ps, this, operation);
}

void Rnic::on_completed(Operation* operation) {
  QueuePair& qp = *operation->qp;
  // A connection that broke meanwhile has told already.
  if (operation->completion != nullptr && qp.connection != nullptr) {
    PMSTORE_CHECK(qp.signaled.front() == operation, "completions come in the order of their posts");
    qp.signaled.pop();
    qp.peer->rnic->observe(Packet::kCompleted, operation);
    qp.core->deliver(
        {Delivery::Kind::kCompleted, 0, &qp, std::exchange(operation->completion, nullptr)});
    end_path(operation);
  }
  end_path(operation);
}

void Rnic::report_broken(QueuePair& qp) {
  const uint64_t back_ps = to_ps(2 * parameters_.rnic.pipeline_ns) + link_.latency_ps();
  ++qp.pair->references;
  events_.at<&Rnic::on_broken>(events_.now_ps() + back_ps + pcie_.latency_ps(), this, &qp);
}

void Rnic::on_broken(QueuePair* qp) {
  if (qp->connection != nullptr) qp->connection->give_up();
  cluster_.unreference(*qp->pair);
}

void Rnic::resume_stalled(QueuePair& qp) {
  while (!qp.stalled.empty()) {
    Operation* const operation = qp.stalled.front();
    if (!operation->writes() && qp.reads >= parameters_.rnic.reads_per_qp) return;
    qp.stalled.pop();
    transmit(operation);
  }
}

}  // namespace pmstore::model
