// The local provider with late effects (fabric/local/late_effects.h): whose turn it is.
#include <algorithm>
#include <utility>

#include "fabric/local/channel.h"
#include "fabric/local/late_effects.h"
#include "fabric/local/local_connection.h"
#include "fabric/local/local_device.h"

namespace pmstore::fabric {

std::optional<uint64_t> LocalDevice::next_late_seed() {
  if (!late_random_) return std::nullopt;
  return late_random_->next();
}

void LocalDevice::remove_late(LocalConnection& connection) {
  const auto found = std::find(late_.begin(), late_.end(), &connection);
  if (found == late_.end()) return;  // it has never met its peer
  if (walking_late_) {
    *found = nullptr;
  } else {
    late_.erase(found);
  }
}

void LocalDevice::add_incoming(std::shared_ptr<Channel> channel, LateFlight* flight) {
  incoming_.push_back({std::move(channel), flight});
}

void LocalDevice::remove_incoming(LateFlight* flight) {
  std::erase_if(incoming_, [flight](const Incoming& one) { return one.flight == flight; });
}

void LocalDevice::withdraw(uint64_t key) {
  regions_.remove(key);
  for (const Incoming& one : incoming_) one.flight->withdraw(key);
}

void LocalDevice::stir() {
  for (LocalConnection* connection : late_) {
    if (connection != nullptr && late_random_->below(4) == 0) connection->stir();
  }
}

bool LocalDevice::poll_late(size_t& handled, const bool& destroyed) {
  for (const Incoming& one : incoming_) {
    if (one.flight->abandoned() && one.flight->drift(executor_.now_ns())) ++handled;
  }
  walking_late_ = true;
  const size_t count = late_.size();
  const size_t from = count == 0 ? 0 : late_random_->below(count);
  for (size_t i = 0; i < count; ++i) {
    LocalConnection* const connection = late_[(from + i) % count];
    if (connection == nullptr) continue;
    handled += connection->late_turn();
    if (destroyed) return true;
  }
  walking_late_ = false;
  std::erase(late_, nullptr);
  return false;
}

uint64_t LocalDevice::next_late_event_ns() const {
  if (deferred_) return executor_.now_ns();
  uint64_t next_ns = kNoEvent;
  for (const LocalConnection* connection : late_) {
    next_ns = std::min(next_ns, connection->next_event_ns());
  }
  for (const Incoming& one : incoming_) {
    if (one.flight->abandoned()) next_ns = std::min(next_ns, one.flight->next_event_ns());
  }
  return next_ns;
}

}  // namespace pmstore::fabric
