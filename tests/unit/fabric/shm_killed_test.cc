// Clients that are killed while they write, at whatever point: the server sees each of them go and
// serves the next.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "tests/unit/fabric/shm_peer.h"

namespace pmstore::fabric::shm {
namespace {

// Posts WRITEs of changing sizes as fast as it can, until it is killed.
[[noreturn]] void write_without_end(const Uri& uri, const RemoteRegion& remote, int status) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  base::RealClock clock;
  base::Executor executor(clock);
  ShmDevice device(executor);
  std::vector<std::byte> memory(1u << 20, std::byte{0xcc});
  auto region = std::move(*device.register_memory(memory, Access::kLocal));
  auto connected = executor.run(device.connect(uri, {}));
  if (!connected) _exit(1);
  const char up = 1;
  if (write(status, &up, 1) != 1) _exit(2);
  for (uint32_t i = 0;;) {
    const uint32_t bytes = i % 3 == 0 ? 64 : i % 3 == 1 ? 5000 : i % 100 == 2 ? 500'000 : 1;
    Batch batch;
    batch.write_immediate({memory.data(), bytes, region.get()}, remote.at(0), i);
    if ((*connected)->post(batch, nullptr)) ++i;
    executor.run_once();
  }
}

class ShmKilled : public ShmPeer {
 protected:
  // Some time after it has connected, or, with `writing`, after its first WRITE has arrived. False:
  // it could not connect.
  bool kill_a_client(bool writing, uint64_t after_ns) {
    int status[2];
    if (pipe(status) != 0) return false;
    const RemoteRegion remote = region_->remote();
    const pid_t child = fork();
    if (child == 0) {
      // Nothing of this process: what the child holds open would not hang up.
      dup2(status[1], 3);
      close_range(4, ~0u, 0);
      write_without_end(uri_, remote, 3);
    }
    close(status[1]);
    const bool up = run_until(
        [&] { return served_.connection != nullptr && (!writing || !served_.immediates.empty()); });
    char byte = 0;
    const bool told = up && read(status[0], &byte, 1) == 1;
    const uint64_t until = clock_.now_ns() + after_ns;
    while (clock_.now_ns() < until) executor_.run_once();
    ::kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(status[0]);
    return told;
  }
};

TEST_F(ShmKilled, AtAnyPointHarmsNobody) {
  base::Random random(7);
  size_t immediates = 0;
  for (int round = 0; round < 40; ++round) {
    socket_.close();
    served_.connection.reset();
    served_.disconnected.reset();
    served_.immediates.clear();
    ASSERT_TRUE(kill_a_client(round % 2 == 0, random.below(3'000'000)));
    expect_cut_off(ErrorCode::kDisconnected);
    // All that came is whole and in order.
    for (size_t i = 0; i < served_.immediates.size(); ++i) {
      ASSERT_EQ(served_.immediates[i], served_.immediates[0] + i);
    }
    immediates += served_.immediates.size();
  }
  EXPECT_GE(immediates, 20u);
  dial();
  shake_hands();
  send_frame(frame(FrameKind::kWrite, 5, 64, kAnswerWhenDone), "hello");
  EXPECT_EQ(receive_frame().kind, FrameKind::kDone);
}

}  // namespace
}  // namespace pmstore::fabric::shm
