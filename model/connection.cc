// Invariants: qp_.connection is this; qp_.signaled is empty once broken_.
#include "model/connection.h"

#include <cstring>

#include "model/cluster.h"
#include "model/device.h"
#include "model/host.h"
#include "model/picoseconds.h"
#include "model/rnic.h"

namespace pmstore::model {

using fabric::OpCode;

ModelConnection::ModelConnection(ModelDevice& device,
                                 std::unique_ptr<fabric::LocalConnection> inner, QueuePair& qp)
    : Connection(device.executor()), device_(device), inner_(std::move(inner)), qp_(qp) {
  capabilities_ = inner_->capabilities();
  capabilities_.atomics = fabric::AtomicScope::kDevice;
  capabilities_.cpu_moves_data = false;
  capabilities_.max_inline_bytes =
      static_cast<uint32_t>(device_.cluster().parameters().rnic.inline_bytes);
  peer_hello_.assign(inner_->peer_hello().begin(), inner_->peer_hello().end());
  inner_->set_receiver(this);
  qp_.connection = this;
  ++qp_.pair->references;
}

ModelConnection::~ModelConnection() {
  write_received();
  while (!qp_.signaled.empty()) {  // no completion is delivered any more
    Operation* const operation = qp_.signaled.pop();
    operation->completion = nullptr;
    qp_.rnic->end_path(operation);
  }
  qp_.connection = nullptr;
  inner_->set_receiver(nullptr);
  inner_.reset();
  device_.cluster().events().interrupt();  // the other end must notice
  device_.cluster().unreference(*qp_.pair);
}

void ModelConnection::write_received() {
  qp_.peer->rnic->write_received(qp_);
  if (qp_.peer != &qp_) qp_.rnic->write_received(*qp_.peer);
}

Status ModelConnection::check_postable(const fabric::Batch& batch) const {
  PMSTORE_CHECK(!batch.empty(), "an empty chain has no last request to complete");
  for (const fabric::WorkRequest& request : batch) {
    if (request.op == OpCode::kFlush) [[unlikely]] {
      return make_error(ErrorCode::kUnsupported,
                        "the modelled RNIC has no native FLUSH; use READ after WRITE");
    }
    if (request.bytes == 0) continue;
    const auto* region = static_cast<const ModelRegion*>(request.local_region);
    PMSTORE_CHECK(region != nullptr && &region->device() == &device_,
                  "local buffers lie in memory that was registered with the connection's device");
    const std::span<std::byte> memory = region->bytes();
    PMSTORE_CHECK(
        request.local >= memory.data() && request.bytes <= memory.size() &&
            static_cast<size_t>(request.local - memory.data()) <= memory.size() - request.bytes,
        "a local buffer lies inside its region");
  }
  const RnicParameters& rnic = device_.cluster().parameters().rnic;
  if (qp_.wqes + batch.size() > rnic.send_queue_wqes) return make_error(ErrorCode::kBackPressure);
  return {};
}

Operation* ModelConnection::make_operation(const fabric::WorkRequest& request) {
  Operation* const operation = device_.cluster().acquire(qp_);
  operation->request = request;
  operation->posted_ps = device_.cluster().events().now_ps();
  operation->wqe = qp_.next_wqe++;
  operation->inlined = operation->writes() && request.bytes <= capabilities_.max_inline_bytes;
  if (operation->inlined && request.bytes > 0) {
    std::memcpy(operation->payload.room(request.bytes), request.local, request.bytes);
  }
  return operation;
}

Status ModelConnection::post(const fabric::Batch& batch, fabric::Completion* completion) {
  if (broken_) [[unlikely]]
    return make_error(ErrorCode::kDisconnected, why_broken_.message);
  if (Status postable = check_postable(batch); !postable) [[unlikely]]
    return postable;
  ++counters_.doorbells;
  counters_.work_requests += batch.size();
  qp_.wqes += static_cast<uint32_t>(batch.size());
  NvmObserver* const observer = device_.host().nvm_observer();
  Operation* first = nullptr;
  Operation* last = nullptr;
  for (const fabric::WorkRequest& request : batch) {
    if (observer != nullptr && request.op == OpCode::kWriteImmediate) {
      observer->on_post({request.local, request.bytes});
    }
    Operation* const operation = make_operation(request);
    (last == nullptr ? first : last->next_in_chain) = operation;
    last = operation;
    if (operation->writes()) counters_.bytes_written += request.bytes;
    if (request.op == OpCode::kRead) counters_.bytes_read += request.bytes;
  }
  first->chain = static_cast<uint32_t>(batch.size());
  last->completion = completion;
  if (completion != nullptr) {
    completion->arm();
    ++last->paths;
    qp_.signaled.push(last);
  }
  const CoreParameters& costs = device_.cluster().parameters().core;
  qp_.core->charge(to_ps(costs.doorbell_ns + costs.wqe_ns * static_cast<double>(batch.size())));
  qp_.rnic->ring(first, qp_.core->free_ps());
  return {};
}

bool ModelConnection::grants(const Operation* operation) {
  if (broken_ || !inner_->reaches_peer()) return false;
  const fabric::AccessFault fault = inner_->fault_of(operation->request);
  if (fault == fabric::AccessFault::kNone) return true;
  write_received();  // what was acknowledged is not lost with the connection
  inner_->refuse(operation->request.op, fault);
  device_.cluster().events().interrupt();
  return false;
}

void ModelConnection::tell_of_break() { device_.cluster().events().interrupt(); }

void ModelConnection::check_age(uint64_t posted_ps) {
  const uint64_t age_ps = device_.cluster().events().now_ps() - posted_ps;
  if (age_ps / kPsPerNs < inner_->operation_timeout_ns()) return;
  write_received();
  inner_->fail(make_error(ErrorCode::kTimeout, "an operation did not complete in time"));
  device_.cluster().events().interrupt();
}

void ModelConnection::on_immediate(uint32_t) {
  PMSTORE_CHECK(false, "immediates of modelled connections do not go through fabric/local");
}

void ModelConnection::on_disconnect(const Error& why) {
  why_lost_ = why;
  qp_.rnic->report_broken(qp_);
}

void ModelConnection::give_up() {
  if (broken_) return;
  write_received();
  broken_ = true;
  why_broken_ = why_lost_;
  while (!qp_.signaled.empty()) {
    Operation* const operation = qp_.signaled.pop();
    qp_.core->deliver(
        {Delivery::Kind::kFailed, 0, &qp_, std::exchange(operation->completion, nullptr)});
    qp_.rnic->end_path(operation);
  }
  qp_.core->deliver({Delivery::Kind::kDisconnect, 0, &qp_, nullptr});
}

uint64_t ModelConnection::region_number(const fabric::WorkRequest& request) const {
  return region_number(static_cast<const ModelRegion*>(request.local_region)->remote().key);
}

uint64_t ModelConnection::region_number(uint64_t key) const {
  return uint64_t{device_.number()} << 16 | fabric::RegionTable::slot_of(key);
}

void ModelConnection::take(const Delivery& delivery) {
  switch (delivery.kind) {
    case Delivery::Kind::kCompleted:
    case Delivery::Kind::kFailed:
      ++counters_.completions;
      delivery.completion->finish(delivery.kind == Delivery::Kind::kCompleted);
      return;
    case Delivery::Kind::kImmediate:
      ++counters_.immediates_received;
      if (NvmObserver* observer = device_.host().nvm_observer(); observer != nullptr) {
        observer->on_packet(Packet::kImmediate, qp_.peer->number, 0);
      }
      receiver_->on_immediate(delivery.immediate);
      return;
    case Delivery::Kind::kDisconnect: receiver_->on_disconnect(Error(why_broken_)); return;
  }
}

}  // namespace pmstore::model
