#include "tools/daemon/recovery_threads.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <thread>
#include <vector>

namespace pmstore::tools {
namespace {

TEST(RecoveryThreads, CallEachPartOnce) {
  for (const size_t count : {size_t{1}, size_t{2}, RecoveryThreads::kMost}) {
    std::vector<std::atomic<int>> calls(count);
    RecoveryThreads threads(count);
    ASSERT_EQ(threads.count(), count);
    threads.run([&](size_t worker) { ++calls.at(worker); });
    for (const auto& each : calls) EXPECT_EQ(each, 1);
  }
  const size_t usual = RecoveryThreads(0).count();
  EXPECT_GE(usual, 1u);
  EXPECT_LE(usual, RecoveryThreads::kMost);
}

// No address space has room for the stack of another thread.
TEST(RecoveryThreads, WithoutThreadsTheCallerDoesAllParts) {
  pthread_attr_t before;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  pthread_attr_t none;
  ASSERT_EQ(pthread_attr_init(&none), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&none, size_t{1} << 47), 0);
  ASSERT_EQ(pthread_setattr_default_np(&none), 0);
  const auto here = std::this_thread::get_id();
  std::vector<int> calls(5);
  RecoveryThreads(calls.size()).run([&](size_t worker) {
    EXPECT_EQ(std::this_thread::get_id(), here);
    ++calls.at(worker);
  });
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  EXPECT_EQ(calls, std::vector<int>(5, 1));
}

}  // namespace
}  // namespace pmstore::tools
