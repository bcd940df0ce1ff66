// SlowPeer: makes the way to a target, or the target itself, slow and uneven, from a thread of its
// own, as far as its fabric allows it. The order of what a connection sends stays what it is.
//
//   tcp   a relay: bytes travel in pieces that end anywhere; each direction rests now and then,
//         with little room in the sockets, so that the target's answers back up
//   shm   the target is stopped and goes on, in the middle of anything
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/random.h"
#include "base/result.h"
#include "fabric/uri.h"
#include "tests/scenario/harness.h"

namespace pmstore::scenario {

class SlowPeer {
 public:
  // There is one for the fabric of this run.
  static bool possible();
  static Result<std::unique_ptr<SlowPeer>> start(Target& target, uint64_t seed);
  // Where to connect to; nothing: where the target is.
  const std::optional<fabric::Uri>& way() const { return way_; }
  // The target goes on, and connections through the relay are cut.
  ~SlowPeer();

 private:
  // One direction of one connection.
  struct Lane {
    int from;
    int to;
    std::vector<char> waiting;
    size_t sent = 0;
    uint64_t rests_until_ns = 0;
    bool over = false;
  };

  SlowPeer(Target& target, uint64_t seed) : target_(target), random_(seed) {}
  Status listen();
  void relay();
  void accept_one();
  void move(Lane& lane, uint64_t now_ns);
  void stop_and_go();

  Target& target_;
  base::Random random_;
  std::optional<fabric::Uri> way_;
  base::FileDescriptor listener_;
  std::vector<base::FileDescriptor> sockets_;
  std::vector<Lane> lanes_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace pmstore::scenario
