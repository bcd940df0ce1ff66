#include "model/core.h"

#include "base/check.h"
#include "model/cluster.h"
#include "model/connection.h"
#include "model/host.h"
#include "model/picoseconds.h"

namespace pmstore::model {

namespace {
constexpr double kRedeliverNs = 10'000;
}

Core::Core(Cluster& cluster, uint32_t number)
    : cluster_(cluster), events_(cluster.events()), number_(number) {}

void Core::deliver(const Delivery& delivery) {
  ++delivery.to->pair->references;
  waiting_.push(delivery);
  wake();
}

void Core::wake() {
  if (awake_ || waiting_.empty()) return;
  awake_ = true;
  events_.at<&Core::run>(free_ps(), this, 0u);
}

void Core::run(uint32_t) {
  awake_ = false;
  // Charged meanwhile, by code that a timer woke.
  if (free_ps() > events_.now_ps()) return wake();
  const Delivery delivery = waiting_.pop();
  const bool message = delivery.kind == Delivery::Kind::kImmediate;
  const bool asked = !message && delivery.kind != Delivery::Kind::kDisconnect;
  ModelConnection* const connection = delivery.to->connection;
  if (connection != nullptr && !asked && (!undelivered_.empty() || !connection->has_receiver())) {
    if (undelivered_.empty()) {
      events_.at<&Core::redeliver>(events_.now_ps() + to_ps(kRedeliverNs), this, 0u);
    }
    undelivered_.push(delivery);
    return wake();
  }
  PMSTORE_CHECK(!message || delivery.to->immediates > 0, "each immediate is delivered once");
  if (message) --delivery.to->immediates;
  if (connection != nullptr) {
    const CoreParameters& costs = cluster_.parameters().core;
    if (asked || message) charge(to_ps(costs.poll_ns));
    if (message) {
      MemorySystem& memory = delivery.to->rnic->host().memory();
      set_free(memory.cpu_receive(number_, free_ps(), delivery.written, delivery.bytes));
      charge(to_ps(costs.message_ns));
    }
    connection->take(delivery);  // may be gone then
    events_.interrupt();
  }
  cluster_.unreference(*delivery.to->pair);
  wake();
}

void Core::redeliver(uint32_t) {
  while (!undelivered_.empty()) waiting_.push(undelivered_.pop());
  wake();
}

}  // namespace pmstore::model
