#include "base/frame_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace pmstore::base {
namespace {

TEST(FramePool, GivesAReleasedFrameToTheNextOfItsSizeClass) {
  void* frame = FramePool::allocate(100);
  FramePool::release(frame, 100);
  void* again = FramePool::allocate(128);  // the class of 65 to 128 bytes
  EXPECT_EQ(again, frame);
  void* other_class = FramePool::allocate(129);
  EXPECT_NE(other_class, frame);
  FramePool::release(again, 128);
  FramePool::release(other_class, 129);
}

TEST(FramePool, FramesInUseAreDistinctAndWritableToTheLastByte) {
  std::vector<std::pair<char*, size_t>> frames;
  for (size_t bytes = 1; bytes <= 4096; bytes = bytes * 3 / 2 + 1) {
    for (int i = 0; i < 20; ++i) {
      auto* frame = static_cast<char*>(FramePool::allocate(bytes));
      std::memset(frame, static_cast<int>(frames.size() % 251), bytes);
      frames.emplace_back(frame, bytes);
    }
  }
  for (size_t i = 0; i < frames.size(); ++i) {
    const auto [frame, bytes] = frames[i];
    ASSERT_EQ(static_cast<unsigned char>(frame[0]), i % 251);
    ASSERT_EQ(static_cast<unsigned char>(frame[bytes - 1]), i % 251);
  }
  for (const auto& [frame, bytes] : frames) FramePool::release(frame, bytes);
}

TEST(FramePool, KeepsABoundedNumberAndSurvivesMore) {
  std::vector<void*> frames;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 1000; ++i) frames.push_back(FramePool::allocate(200));
    EXPECT_EQ(std::set<void*>(frames.begin(), frames.end()).size(), frames.size());
    for (void* frame : frames) FramePool::release(frame, 200);
    frames.clear();
  }
}

TEST(FramePool, AFrameMayBeReleasedByAnotherThread) {
  std::vector<void*> frames;
  for (int i = 0; i < 300; ++i) frames.push_back(FramePool::allocate(64));
  std::thread([&] {
    for (void* frame : frames) FramePool::release(frame, 64);
    // Recycled here, and freed when this thread ends (the address sanitizer looks for leaks).
    void* frame = FramePool::allocate(64);
    EXPECT_EQ(std::set<void*>(frames.begin(), frames.end()).count(frame), 1u);
    FramePool::release(frame, 64);
  }).join();
}

}  // namespace
}  // namespace pmstore::base
