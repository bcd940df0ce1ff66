// Listeners that cannot accept, for lack of descriptors, wait asleep and accept later.
#include <optional>

#include "tests/harness/no_descriptors.h"
#include "tests/unit/fabric/shm_peer.h"
#include "tests/unit/fabric/tcp_peer.h"

namespace pmstore::fabric {
namespace {

// Of TcpPeer or ShmPeer.
template <typename Peer>
class ListenerRetry : public Peer {
 protected:
  ListenerRetry() : Peer({.poll = base::PollMode::kNever}) {}
  // The turns of the executor in `time_ns`.
  uint64_t turns_in(uint64_t time_ns) {
    const uint64_t before = this->turns_.turns;
    this->run_for(time_ns);
    return this->turns_.turns - before;
  }
};

using Peers = testing::Types<tcp::TcpPeer, shm::ShmPeer>;
TYPED_TEST_SUITE(ListenerRetry, Peers);

TYPED_TEST(ListenerRetry, WithoutADescriptorItSleepsAndAcceptsWhenThereIsOneAgain) {
  constexpr uint64_t kTimeNs = 350'000'000;
  constexpr uint64_t kRetries = 3;  // one each 100 ms
  constexpr uint64_t kTurnsOfAWakeUp = 4;
  this->hang_up();
  this->run_a_while();  // the listener's end of it is closed
  this->make_socket();
  std::optional<harness::NoDescriptors> none(std::in_place);
  this->knock();
  // Three turns without any retry: before the first block, when the client knocks, and when time is
  // over. A machine that stalls makes one wake-up of a retry and the end, but not each time.
  const uint64_t deadline = this->clock_.now_ns() + this->patience_ns();
  uint64_t turns = 0;
  while (turns <= kRetries && this->clock_.now_ns() < deadline) turns = this->turns_in(kTimeNs);
  none.reset();
  EXPECT_LE(turns, (kRetries + 2) * kTurnsOfAWakeUp) << "the socket is readable all the time";
  ASSERT_GT(turns, kRetries) << "it does not try again";
  this->shake_hands();
  EXPECT_LE(this->turns_in(kTimeNs), 2 * kTurnsOfAWakeUp) << "it goes on trying";
  this->served_.keep();
  this->hang_up();
  this->dial();
  this->shake_hands();  // it hears of the next client
}

}  // namespace
}  // namespace pmstore::fabric
