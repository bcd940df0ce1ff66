// The responder: from the wire into the receive buffer, and the response back onto the wire.
#include <algorithm>

#include "model/cluster.h"
#include "model/connection.h"
#include "model/host.h"
#include "model/picoseconds.h"
#include "model/rnic.h"

namespace pmstore::model {

namespace {

double rx_ns(const RnicParameters& rnic, const fabric::WorkRequest& request) {
  switch (request.op) {
    case fabric::OpCode::kRead: return rnic.rx_read_ns;
    case fabric::OpCode::kWriteImmediate: return rnic.rx_two_sided_ns;
    case fabric::OpCode::kWrite:
      return request.bytes < kLineBytes ? rnic.rx_write_ns : rnic.rx_write_line_ns;
    default: return rnic.rx_write_ns;
  }
}

}  // namespace

void Rnic::on_arrival(Operation* operation) {
  ++counters_.requests;
  operation->in_ps = events_.now_ps();
  if (operation->qp->rnic != this) {
    const uint64_t bytes = operation->writes() ? operation->request.bytes : 0;
    operation->in_ps = link_.receive(operation->in_ps, bytes);
  }
  free_buffer();
  const uint64_t bytes = operation->buffer_bytes();
  const bool fits =
      buffered_bytes_ == 0 ||
      buffered_bytes_ + bytes <= static_cast<uint64_t>(parameters_.rnic.rx_buffer_bytes);
  if (fits && on_wire_.empty()) {
    admit(operation);
  } else {
    ++counters_.full_buffer;
    on_wire_.push(operation);
  }
}

void Rnic::admit(Operation* operation) {
  QueuePair& qp = *operation->qp;
  buffered_bytes_ += operation->buffer_bytes();
  const fabric::WorkRequest& request = operation->request;
  uint64_t done_ps = rx_.take(std::max(operation->in_ps, events_.now_ps()),
                              to_ps(rx_ns(parameters_.rnic, request))) +
                     to_ps(parameters_.rnic.pipeline_ns);
  done_ps = entry(done_ps, NicEntry::kQueuePair, qp.peer->number);
  if (qp.peer->connection != nullptr) {
    done_ps = memory_entries(done_ps, reinterpret_cast<const void*>(request.remote_address),
                             request.bytes, qp.peer->connection->region_number(request.remote_key));
  }
  qp.received_ps = std::max(qp.received_ps, done_ps);
  events_.at<&Rnic::on_received>(qp.received_ps, this, operation);
}

void Rnic::on_received(Operation* operation) {
  if (operation->qp->blocked.empty() && ready_to_receive(operation)) {
    accept(operation);
    return;
  }
  // It is dropped, and sent again with those behind it.
  operation->qp->blocked.push(operation);
  buffered_bytes_ -= operation->buffer_bytes();
  pump();
}

bool Rnic::ready_to_receive(Operation* operation) {
  QueuePair& qp = *operation->qp;
  QueuePair& peer = *qp.peer;
  if (operation->request.op != fabric::OpCode::kWriteImmediate ||
      peer.immediates < parameters_.rnic.receive_queue || qp.connection == nullptr ||
      qp.connection->broken()) {
    return true;
  }
  ++counters_.receiver_not_ready;
  const uint64_t again_ps = events_.now_ps() + to_ps(parameters_.rnic.receiver_not_ready_ns);
  events_.at<&Rnic::on_retry>(again_ps, this, &qp);
  return false;
}

void Rnic::on_retry(QueuePair* qp) {
  // The first of `blocked` is the immediate that this is about; it keeps `qp` alive.
  Operation* const first = qp->blocked.front();
  if (qp->connection != nullptr) qp->connection->check_age(first->posted_ps);
  while (!qp->blocked.empty() && ready_to_receive(qp->blocked.front())) {
    Operation* const operation = qp->blocked.pop();
    buffered_bytes_ += operation->buffer_bytes();
    accept(operation);
  }
}

void Rnic::accept(Operation* operation) {
  QueuePair& qp = *operation->qp;
  observe(Packet::kArrived, operation);
  if (qp.connection == nullptr || !qp.connection->grants(operation)) {
    buffered_bytes_ -= operation->buffer_bytes();
    end_path(operation);
    pump();  // there is room for what waits on the wire
    return;
  }
  qp.unanswered.push(operation);
  if (operation->writes()) {
    ++operation->paths;  // its bytes go one way, its acknowledgement another
    qp.unwritten.push(operation);
    operation->answerable = true;
    const uint64_t hold_ps = to_ps(parameters_.rnic.hold_ns) + lateness_ps();
    if (operation->request.op == fabric::OpCode::kWrite && hold_ps > 0) {
      const uint64_t over_ps = events_.now_ps() + hold_ps;
      operation->held = true;
      qp.held.push(operation);
      events_.at<&Rnic::on_hold_over>(over_ps, this, operation);
      ++operation->paths;
    } else {
      release_held(qp);
      enqueue(operation);
    }
    respond(operation);
  } else {
    release_held(qp);
    enqueue(operation);
  }
}

void Rnic::on_hold_over(Operation* operation) {
  // Those before it go first.
  QueuePair& qp = *operation->qp;
  while (operation->held) enqueue(qp.held.pop());
  end_path(operation);
}

void Rnic::release_held(QueuePair& qp) {
  while (!qp.held.empty()) enqueue(qp.held.pop());
}

void Rnic::on_answerable(Operation* operation) {
  operation->answerable = true;
  respond(operation);
}

void Rnic::respond(Operation* operation) {
  // In the order of the requests: an acknowledgement waits for the data of a READ before it.
  QueuePair& qp = *operation->qp;
  while (!qp.unanswered.empty() && qp.unanswered.front()->answerable) {
    Operation* const first = qp.unanswered.pop();
    qp.refuses |= first->refused;
    first->refused = qp.refuses;
    if (!first->refused) observe(Packet::kAcknowledged, first);
    uint64_t arrival_ps = events_.now_ps() + to_ps(parameters_.rnic.pipeline_ns);
    if (qp.rnic != this) {
      arrival_ps = link_.send(arrival_ps, first->writes() ? 0 : first->request.bytes);
    }
    qp.response_ps = std::max(qp.response_ps, arrival_ps);
    events_.at<&Rnic::on_response>(qp.response_ps, qp.rnic, first);
  }
}

}  // namespace pmstore::model
