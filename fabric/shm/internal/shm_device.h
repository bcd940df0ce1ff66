// ShmDevice: the device for shm://NAME. See fabric/device.h and docs/fabric-shm.md.
//
// Each poll looks at the rings of the awake connections. While there are few, all are awake. With
// more, one that has been quiet for a while goes to sleep, as if this end blocked: its peer rings
// its bell, which wakes it at the executor's next look. So idle connections cost a turn nothing.
#pragma once

#include <memory>

#include "fabric/internal/framed_device.h"
#include "fabric/shm/internal/shm_connection.h"

namespace pmstore::fabric::shm {

class ShmDevice final : public internal::FramedDevice {
 public:
  explicit ShmDevice(base::Executor& executor) : FramedDevice(executor, Scheme::kShm) {}

  Result<std::unique_ptr<Listener>> listen(const Uri& uri, Acceptor& acceptor) override;
  bool notices_dead_peers() const override { return true; }

  bool arm() override;
  void disarm() override;

  // How often this device has woken a peer: its system calls on the data path.
  uint64_t rings() const { return rings_; }

  // ---- for connections ----
  void count_ring() { ++rings_; }
  // No effect on one that is awake.
  void wake(ShmConnection& connection);
  // It has no rings any more.
  void forget(ShmConnection& connection);

 protected:
  Result<std::unique_ptr<internal::PolledConnection>> dial(
      const Uri& uri, const internal::ConnectionOptions& options) override;
  size_t poll_queues() override;
  // Tells of requests that wait in the rings of the next connections, `most` of them at most, when
  // several have some; gives at how many connections it has looked.
  size_t tell_of_waiting(size_t most);

 private:
  // So many connections are awake however quiet they are.
  static constexpr size_t kAlwaysAwake = 16;
  // So many polls in a row find nothing before one goes to sleep.
  static constexpr unsigned kQuietPolls = 256;
  // While some sleep, so many polls go by between two looks at their bells.
  static constexpr unsigned kPollsPerLook = 16;

  uint64_t rings_ = 0;
  internal::IntrusiveList<ShmConnection, &ShmConnection::awake> awake_;
  size_t asleep_ = 0;
  unsigned polls_ = 0;
};

}  // namespace pmstore::fabric::shm
