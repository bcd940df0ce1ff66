// What the tests of frames of records share: pools of small frames, filled and emptied.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal::small_frames {

inline constexpr uint64_t kFrameBytes = 256 << 10;

inline FormatOptions in_frames(uint64_t frame_bytes = kFrameBytes, uint64_t ring_bytes = 64 << 10) {
  FormatOptions format{2, ring_bytes};
  format.frame_bytes = frame_bytes;
  return format;
}

inline std::string value_of(int i) { return std::string(1400, static_cast<char>('a' + i % 26)); }
inline std::string key_of(int i) { return "key" + std::to_string(i); }

inline size_t extents_of(StoreInRegion& s, persist::ExtentKind kind) {
  const auto& all = s.pool().info().extents;
  return static_cast<size_t>(std::count_if(
      all.begin(), all.end(), [&](const auto& extent) { return extent.kind == kind; }));
}
inline size_t extents(StoreInRegion& s) { return extents_of(s, persist::ExtentKind::kRecords); }

inline int fill(StoreInRegion& s, size_t most_extents) {
  int count = 0;
  while (extents(s) < most_extents) {
    EXPECT_TRUE(s.put(key_of(count), value_of(count)));
    ++count;
  }
  return count;
}
inline int fill_up(StoreInRegion& s) {
  int count = 0;
  Status status;
  while ((status = s.put(key_of(count), value_of(count)))) ++count;
  EXPECT_EQ(status.code(), ErrorCode::kFull) << status.error().to_string();
  return count;
}
inline void erase(StoreInRegion& s, int from, int to) {
  for (int i = from; i < to; ++i) ASSERT_TRUE(s.erase(key_of(i))) << i;
}
inline void expect_there(StoreInRegion& s, int from, int to) {
  for (int i = from; i < to; ++i) {
    const auto got = s.get(key_of(i));
    ASSERT_TRUE(got && got->found()) << i;
    EXPECT_EQ(got->value, value_of(i));
  }
}
// Gives back all that it can; the number of frames.
inline int give_back(StoreInRegion& s) {
  int frames = 0;
  while (const auto frame = s.store().arena().empty_frame(0)) {
    EXPECT_TRUE(s.store().give_back_frame(*frame));
    ++frames;
  }
  return frames;
}

}  // namespace pmstore::internal::small_frames
