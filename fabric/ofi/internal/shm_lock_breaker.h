// ShmLockBreaker: unlocks the spin lock that a killed peer has left locked, so that the executor's
// thread of this process can go on.
//
// In libfabric 1.17 each shm endpoint has a segment in shared memory with a spin lock that the peer
// takes to post a command. A peer that is killed inside leaves it locked, and whoever progresses or
// posts to the endpoint next spins for ever inside libfabric. This watches from a thread of its
// own: when the executor's thread has burned kSpinNs of processor time inside one call, every
// segment that it shares with a peer that is gone (its socket has hung up) and whose lock is held
// is emptied and unlocked. A command that was half written is lost with it, as it must be; the
// connection breaks at the next tick.
//
// Needs a layout that ShmSegment recognizes; with another libfabric, connections do not add
// themselves (and later ones have queues without locks).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "fabric/ofi/internal/shm_segment.h"

namespace pmstore::fabric::ofi {

struct CallTrace;

class ShmLockBreaker {
 public:
  // `trace` is borrowed.
  explicit ShmLockBreaker(const CallTrace& trace);
  ~ShmLockBreaker();
  ShmLockBreaker(const ShmLockBreaker&) = delete;
  ShmLockBreaker& operator=(const ShmLockBreaker&) = delete;

  // Both segments of one connection and its socket are borrowed until remove(). Any thread.
  void add(ShmSegment* own, ShmSegment* peer, int socket_fd);
  void remove(const ShmSegment* own);

 private:
  struct Watched {
    ShmSegment* own;
    ShmSegment* peer;
    int socket_fd;
  };
  void run();
  bool spinning();
  void break_locks();

  const CallTrace& trace_;
  uint64_t call_ = 0;       // the call that was last seen, 0: none
  uint64_t cpu_at_ns_ = 0;  // processor time of the executor's thread at that moment
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::vector<Watched> watched_;
  std::thread thread_;
};

}  // namespace pmstore::fabric::ofi
