// Opening a device leaves signals to the program: a crash is a crash.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

#include "base/clock.h"
#include "base/executor.h"
#include "fabric/device.h"

namespace pmstore::fabric {
namespace {

void open_and_raise(int number) {
  base::RealClock clock;
  base::Executor executor(clock);
  if (!open_device(Scheme::kShm, executor)) std::exit(3);
  raise(number);
}

TEST(SignalsDeathTest, AnAbortedProgramIsSeenToBeAborted) {
  EXPECT_EXIT(open_and_raise(SIGABRT), testing::KilledBySignal(SIGABRT), "");
}

TEST(SignalsDeathTest, ATerminatedProgramIsSeenToBeTerminated) {
  EXPECT_EXIT(open_and_raise(SIGTERM), testing::KilledBySignal(SIGTERM), "");
}

TEST(Signals, TheProgramsOwnHandlersStay) {
  static volatile sig_atomic_t seen = 0;
  struct sigaction mine {};
  struct sigaction before {};
  mine.sa_handler = [](int) { seen = 1; };
  ASSERT_EQ(sigaction(SIGTERM, &mine, &before), 0);
  open_and_raise(SIGTERM);
  EXPECT_EQ(seen, 1);
  sigaction(SIGTERM, &before, nullptr);
}

}  // namespace
}  // namespace pmstore::fabric
