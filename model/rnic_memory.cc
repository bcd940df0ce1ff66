// The responder's way to memory: from the receive buffer over PCIe, and the landing.
#include <algorithm>
#include <numeric>

#include "model/cluster.h"
#include "model/connection.h"
#include "model/host.h"
#include "model/picoseconds.h"
#include "model/rnic.h"

namespace pmstore::model {

namespace {

constexpr uint32_t kCompletionBytes = 64;

// That a request touches.
uint32_t lines_of(const fabric::WorkRequest& request) {
  if (request.bytes == 0) return 0;
  const uint64_t last = (request.remote_address + request.bytes - 1) / kLineBytes;
  return static_cast<uint32_t>(last - request.remote_address / kLineBytes + 1);
}

void* remote_memory(const fabric::WorkRequest& request) {
  return reinterpret_cast<void*>(request.remote_address);
}

}  // namespace

void Rnic::enqueue(Operation* operation) {
  operation->held = false;
  queue_.push(operation);
  pump();
}

void Rnic::on_pcie_free(uint32_t) {
  pump_set_ = false;
  pump();
}

void Rnic::pump() {
  free_buffer();
  while (!queue_.empty() && pcie_free_ps_ <= events_.now_ps()) {
    Operation* const operation = queue_.front();
    if (operation->writes()) {
      issue_write(operation);
    } else {
      queue_.pop();
      leaving_bytes_ += operation->buffer_bytes();
      operation->atomic() ? issue_atomic(operation) : issue_read(operation);
    }
    free_buffer();
  }
  if (pump_set_ || (queue_.empty() && on_wire_.empty())) return;
  if (pcie_free_ps_ <= events_.now_ps()) return;  // what is on the wire waits for what is admitted
  pump_set_ = true;
  events_.at<&Rnic::on_pcie_free>(pcie_free_ps_, this, 0u);
}

void Rnic::free_buffer() {
  if (pcie_free_ps_ <= events_.now_ps()) {
    buffered_bytes_ -= leaving_bytes_;
    leaving_bytes_ = 0;
  }
  const auto room = static_cast<uint64_t>(parameters_.rnic.rx_buffer_bytes);
  while (!on_wire_.empty() &&
         (buffered_bytes_ == 0 || buffered_bytes_ + on_wire_.front()->buffer_bytes() <= room)) {
    admit(on_wire_.pop());
  }
}

void Rnic::issue_write(Operation* operation) {
  QueuePair& qp = *operation->qp;
  const fabric::WorkRequest& request = operation->request;
  const uint32_t piece = std::min(request.bytes - operation->issued,
                                  static_cast<uint32_t>(parameters_.link.mtu_bytes));
  const uint64_t now_ps = events_.now_ps();
  qp.visible_ps = std::max(qp.visible_ps, now_ps);
  if (piece > 0) {
    ++counters_.memory_writes;
    const uint64_t at_host_ps = pcie_.to_host(now_ps, piece);
    const MemorySystem::DeviceWrite write = host_.memory().device_write(
        socket_, at_host_ps, static_cast<std::byte*>(remote_memory(request)) + operation->issued,
        piece);
    operation->in_cache = write.in_cache;
    qp.visible_ps = std::max(qp.visible_ps, write.visible_ps);
    pcie_free_ps_ = std::max(at_host_ps, write.accepted_ps) - pcie_.latency_ps();
  }
  operation->issued += piece;
  ++operation->pieces;
  events_.at<&Rnic::on_write_visible>(qp.visible_ps, this, operation);
  if (operation->issued < request.bytes) return;
  queue_.pop();
  leaving_bytes_ += operation->buffer_bytes();
  if (request.op == fabric::OpCode::kWriteImmediate) {
    ++counters_.completions;
    const uint64_t at_host_ps = pcie_.to_host(pcie_free_ps_, kCompletionBytes);
    pcie_free_ps_ = std::max(pcie_free_ps_, at_host_ps - pcie_.latency_ps());
  }
}

void Rnic::on_write_visible(Operation* operation) {
  QueuePair& qp = *operation->qp;
  const uint32_t bytes = operation->request.bytes;
  --operation->pieces;
  // Unless write_received() was faster.
  if (operation->written_bytes < bytes) write_piece(operation);
  if (operation->pieces > 0 || operation->issued < bytes) return;
  if (!operation->told) tell_immediate(operation);
  PMSTORE_CHECK(qp.unwritten.front() == operation,
                "the WRITEs of a queue pair take effect in their order");
  qp.unwritten.pop();
  end_path(operation);
}

void Rnic::write_piece(Operation* operation) {
  fabric::WorkRequest piece = operation->request;
  piece.op = fabric::OpCode::kWrite;
  piece.bytes = std::min(piece.bytes - operation->written_bytes,
                         static_cast<uint32_t>(parameters_.link.mtu_bytes));
  piece.local = operation->payload.data() + operation->written_bytes;
  piece.remote_address += operation->written_bytes;
  operation->written_bytes += piece.bytes;
  ModelConnection* const connection = operation->qp->connection;
  if (connection == nullptr || !connection->reaches_peer()) return;
  connection->take_effect(piece, [&] {
    observe_write(remote_memory(piece), piece.local, piece.bytes, operation->in_cache);
  });
}

void Rnic::observe_write(const void* destination, const void* source, uint32_t bytes,
                         bool in_cache) {
  NvmObserver* const observer = host_.nvm_observer();
  if (observer == nullptr) return;
  observer->on_dma_write(destination, source, bytes,
                         in_cache ? Landing::kLastLevelCache : Landing::kMemory);
}

void Rnic::tell_immediate(Operation* operation) {
  operation->told = true;
  QueuePair& peer = *operation->qp->peer;
  if (operation->request.op != fabric::OpCode::kWriteImmediate || peer.connection == nullptr) {
    return;
  }
  ++peer.immediates;
  peer.core->deliver({Delivery::Kind::kImmediate, operation->request.immediate, &peer, nullptr,
                      remote_memory(operation->request), operation->request.bytes});
}

void Rnic::write_received(QueuePair& qp) {
  for (Operation* at = qp.unwritten.front(); at != nullptr; at = at->next_unwritten) {
    while (at->written_bytes < at->request.bytes) write_piece(at);
    if (!at->told) tell_immediate(at);
  }
}

void Rnic::issue_read(Operation* operation) {
  QueuePair& qp = *operation->qp;
  const fabric::WorkRequest& request = operation->request;
  const uint64_t at_host_ps = pcie_.to_host(events_.now_ps(), 0);
  pcie_free_ps_ = at_host_ps - pcie_.latency_ps();
  uint64_t read_ps = std::max(at_host_ps, qp.visible_ps);
  if (request.bytes > 0) {
    ++counters_.memory_reads;
    read_ps = host_.memory().device_read(socket_, read_ps, remote_memory(request), request.bytes);
  }
  qp.sampled_ps = std::max(qp.sampled_ps, read_ps);
  if (late_) [[unlikely]]
    return schedule_samples(operation, qp.sampled_ps);
  events_.at<&Rnic::on_sampled>(qp.sampled_ps, this, operation);
}

// Its lines are copied at up to four moments, in any order; those of the next READ later.
void Rnic::schedule_samples(Operation* operation, uint64_t first_ps) {
  constexpr uint32_t kMostSamples = 4;
  const uint32_t lines = lines_of(operation->request);
  if (lines > 0) {
    operation->first_line = static_cast<uint32_t>(late_->below(lines));
    do {
      operation->line_stride = 1 + static_cast<uint32_t>(late_->below(lines));
    } while (std::gcd(operation->line_stride, lines) != 1);
  }
  operation->samples = 1 + static_cast<uint32_t>(late_->below(kMostSamples));
  for (uint32_t i = 0; i < operation->samples; ++i) {
    first_ps += lateness_ps();
    events_.at<&Rnic::on_sampled>(first_ps, this, operation);
  }
  operation->qp->sampled_ps = first_ps;
}

void Rnic::sample_lines(Operation* operation, ModelConnection& connection) {
  const fabric::WorkRequest& request = operation->request;
  const uint32_t lines = lines_of(request);
  const uint32_t left = lines - operation->sampled_lines;
  const bool last = operation->samples == 1;
  uint32_t count = last ? left : static_cast<uint32_t>(late_->below(left + 1));
  const uint64_t base = request.remote_address / kLineBytes * kLineBytes;
  for (; count > 0; --count, ++operation->sampled_lines) {
    const uint64_t at =
        operation->first_line + uint64_t{operation->sampled_lines} * operation->line_stride;
    const uint64_t line = base + at % lines * kLineBytes;
    const uint64_t begin = std::max(line, request.remote_address);
    const uint64_t end = std::min(line + kLineBytes, request.remote_address + request.bytes);
    fabric::WorkRequest part = request;
    part.remote_address = begin;
    part.bytes = static_cast<uint32_t>(end - begin);
    part.local = operation->payload.data() + (begin - request.remote_address);
    operation->refused |= !connection.take_effect(part, [] {});
  }
}

void Rnic::on_sampled(Operation* operation) {
  fabric::WorkRequest sample = operation->request;
  sample.local = operation->payload.room(sample.bytes);
  ModelConnection* const connection = operation->qp->connection;
  if (connection != nullptr && sample.bytes > 0) {
    if (late_) [[unlikely]] {
      sample_lines(operation, *connection);
    } else {
      operation->refused = !connection->take_effect(sample, [] {});
    }
  }
  if (--operation->samples > 0) return;
  const uint64_t ready_ps = pcie_.to_device(events_.now_ps(), sample.bytes);
  events_.at<&Rnic::on_answerable>(ready_ps, this, operation);
}

void Rnic::issue_atomic(Operation* operation) {
  QueuePair& qp = *operation->qp;
  void* const word = remote_memory(operation->request);
  ++counters_.memory_reads;
  const uint64_t address = host_.memory().placement().find(word).address;
  uint64_t& slot_ps = atomic_slots_ps_[address / kAtomicBytes % atomic_slots_ps_.size()];
  const uint64_t unit_ps = atomics_.take(events_.now_ps(), to_ps(parameters_.rnic.atomic_ns));
  const uint64_t at_host_ps = pcie_.to_host(std::max(unit_ps, slot_ps), 0);
  const uint64_t read_ps =
      host_.memory().device_read(socket_, std::max(at_host_ps, qp.visible_ps), word, kAtomicBytes);
  const uint64_t back_ps = pcie_.to_device(read_ps, kAtomicBytes);
  qp.sampled_ps = std::max(qp.sampled_ps, back_ps);
  slot_ps = qp.sampled_ps;
  events_.at<&Rnic::on_atomic>(qp.sampled_ps, this, operation);
}

void Rnic::on_atomic(Operation* operation) {
  QueuePair& qp = *operation->qp;
  fabric::WorkRequest request = operation->request;
  request.local = operation->payload.room(kAtomicBytes);
  operation->refused = true;
  if (ModelConnection* connection = qp.connection;
      connection != nullptr && connection->reaches_peer()) {
    ++counters_.memory_writes;
    const MemorySystem::DeviceWrite write =
        host_.memory().device_write(socket_, pcie_.to_host(events_.now_ps(), kAtomicBytes),
                                    remote_memory(request), kAtomicBytes);
    uint64_t value =
        __atomic_load_n(static_cast<uint64_t*>(remote_memory(request)), __ATOMIC_RELAXED);
    const bool swaps = request.op == fabric::OpCode::kCompareSwap;
    if (!swaps) value += request.compare_or_add;
    if (swaps && value == request.compare_or_add) value = request.swap;
    operation->refused = !connection->take_effect(request, [&] {
      observe_write(remote_memory(request), &value, kAtomicBytes, write.in_cache);
    });
  }
  on_answerable(operation);
}

}  // namespace pmstore::model
