#include "base/atomic_copy.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/random.h"

namespace pmstore::base {
namespace {

using Buffer = std::array<std::byte, 128>;

Buffer random_buffer(uint64_t seed) {
  Random random(seed);
  Buffer buffer;
  for (auto& byte : buffer) byte = static_cast<std::byte>(random.below(256));
  return buffer;
}

// Calls check(copy, target, source, count) for every pair of alignments and every size up to 80.
template <typename Copy>
void expect_like_memcpy(Copy copy) {
  for (size_t to = 0; to < 8; ++to) {
    for (size_t from = 0; from < 8; ++from) {
      for (size_t count = 0; count <= 80; ++count) {
        alignas(8) const Buffer source = random_buffer(count + 100);
        alignas(8) Buffer target = random_buffer(from + 8 * to);
        Buffer expected = target;
        std::memcpy(expected.data() + to, source.data() + from, count);
        copy(target.data() + to, source.data() + from, count);
        ASSERT_EQ(target, expected) << "to " << to << " from " << from << " count " << count;
      }
    }
  }
}

TEST(AtomicCopy, FromSharedEqualsMemcpyAtEveryAlignmentAndSize) {
  expect_like_memcpy(copy_from_shared);
}

TEST(AtomicCopy, ToSharedEqualsMemcpyAtEveryAlignmentAndSize) {
  expect_like_memcpy(copy_to_shared);
}

// Words of equal halves: a torn word would have different ones. Run by the thread sanitizer, this
// also shows that the race is no data race.
TEST(AtomicCopy, NeverTearsAnAlignedWord) {
  alignas(64) std::array<uint64_t, 8> shared{};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      const uint64_t half = i & 0xffffffffu;
      std::array<uint64_t, 8> words;
      words.fill(half << 32 | half);
      copy_to_shared(shared.data(), words.data(), sizeof words);
    }
  });
  for (int i = 0; i < 20'000; ++i) {
    std::array<uint64_t, 8> words;
    copy_from_shared(words.data(), shared.data(), sizeof words);
    for (const uint64_t word : words) EXPECT_EQ(word >> 32, word & 0xffffffffu);
  }
  stop.store(true, std::memory_order_relaxed);
  writer.join();
}

}  // namespace
}  // namespace pmstore::base
