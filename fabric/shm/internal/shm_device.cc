#include "fabric/shm/internal/shm_device.h"

#include <array>
#include <utility>

#include "fabric/shm/internal/shm_listener.h"

namespace pmstore::fabric::shm {

Result<std::unique_ptr<internal::PolledConnection>> ShmDevice::dial(
    const Uri& uri, const internal::ConnectionOptions& options) {
  PMSTORE_TRY(std::unique_ptr<ShmConnection> connection,
              ShmConnection::dial(*this, uri.name, options));
  return std::unique_ptr<internal::PolledConnection>(std::move(connection));
}

Result<std::unique_ptr<Listener>> ShmDevice::listen(const Uri& uri, Acceptor& acceptor) {
  return ShmListener::open(*this, uri, acceptor);
}

[[gnu::hot]] void ShmDevice::wake(ShmConnection& connection) {
  if (connection.awake.listed) return;
  connection.disarm();
  connection.quiet_polls = 0;
  awake_.push_back(connection);
  if (std::exchange(connection.asleep, false)) --asleep_;
}

void ShmDevice::forget(ShmConnection& connection) {
  if (connection.awake.listed) awake_.remove(connection);
  if (std::exchange(connection.asleep, false)) --asleep_;
}

[[gnu::hot]] size_t ShmDevice::poll_queues() {
  // A busy executor looks seldom by itself.
  if (asleep_ > 0 && ++polls_ % kPollsPerLook == 0) executor_.look();
  size_t handled = 0;
  internal::DestructionWatch watch(lifetime_);
  size_t looked = 0;  // at so many of the next connections
  for (size_t left = awake_.size(); left > 0 && !awake_.empty(); --left) {
    if (looked == 0) looked = tell_of_waiting(left);
    --looked;
    count_visit();
    ShmConnection& connection = awake_.pop_front();
    if (++connection.quiet_polls > kQuietPolls && awake_.size() >= kAlwaysAwake &&
        connection.fall_asleep()) {
      connection.asleep = true;
      ++asleep_;
      continue;
    }
    awake_.push_back(connection);
    handled += connection.poll();
    if (watch.destroyed()) break;
  }
  return handled;
}

[[gnu::hot]] size_t ShmDevice::tell_of_waiting(size_t most) {
  if (most == 1) return 1;  // it looks at its own ring
  std::array<ShmConnection*, kToldTogether> waiting;
  size_t count = 0;
  size_t looked = 0;
  ShmConnection* at = awake_.front();
  for (; looked < most && at != nullptr && count < waiting.size(); at = awake_.next(*at)) {
    ++looked;
    if (at->may_have_requests()) waiting[count++] = at;
  }
  size_t left = kToldTogether;
  for (size_t i = 0; count > 1 && i < count; ++i) {
    left -= waiting[i]->tell_of_waiting(left / (count - i), /*alone=*/false);
  }
  return looked;
}

[[gnu::hot]] bool ShmDevice::arm() {
  if (!PolledDevice::arm()) return false;
  for (ShmConnection* at = awake_.front(); at != nullptr; at = awake_.next(*at)) {
    count_visit();
    if (at->arm()) continue;
    disarm();
    return false;
  }
  return true;
}

[[gnu::hot]] void ShmDevice::disarm() {
  for (ShmConnection* at = awake_.front(); at != nullptr; at = awake_.next(*at)) {
    count_visit();
    at->disarm();
  }
  PolledDevice::disarm();
}

}  // namespace pmstore::fabric::shm
