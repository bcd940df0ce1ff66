#include "base/atomic_copy.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/bulk_copy.h"
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

// The same for large copies: lines begin and end at each place.
template <typename Copy>
void expect_bulk_like_memcpy(Copy copy) {
  constexpr size_t kLine = 64;
  std::vector<std::byte> source(2048);
  Random random(7);
  for (auto& byte : source) byte = static_cast<std::byte>(random.below(256));
  for (size_t to = 0; to < kLine; ++to) {
    for (size_t from = 0; from < kLine; from += to % 8 == 0 ? 1 : 13) {
      for (const size_t more : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{777}}) {
        alignas(kLine) std::array<std::byte, 2048> target{};
        alignas(kLine) std::array<std::byte, 2048> aligned_source;
        std::memcpy(aligned_source.data(), source.data(), source.size());
        const size_t count = kLeastBulkBytes + more;
        std::array<std::byte, 2048> expected = target;
        std::memcpy(expected.data() + to, source.data() + from, count);
        copy(target.data() + to, aligned_source.data() + from, count);
        ASSERT_EQ(target, expected) << "to " << to << " from " << from << " count " << count;
      }
    }
  }
}

TEST(BulkCopy, FromSharedEqualsMemcpyAtEveryAlignment) {
  expect_bulk_like_memcpy(copy_bulk_from_shared);
  expect_like_memcpy(copy_bulk_from_shared);
}

TEST(BulkCopy, ToSharedEqualsMemcpyAtEveryAlignment) {
  expect_bulk_like_memcpy(copy_bulk_to_shared);
  expect_like_memcpy(copy_bulk_to_shared);
}

TEST(BulkCopy, PastTheCachesEqualsMemcpyAtEveryAlignment) {
  expect_bulk_like_memcpy(copy_bulk_past_caches);
  expect_like_memcpy(copy_bulk_past_caches);
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

// The private sides begin in the middle of a word, so a copy of theirs alone would tear.
void expect_whole_words(void (*store)(void*, const void*, size_t)) {
  constexpr size_t kWords = 2 * kLeastBulkBytes / sizeof(uint64_t);
  alignas(64) std::array<uint64_t, kWords> shared{};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    std::array<std::byte, sizeof shared + 1> from;
    for (uint64_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      const uint64_t half = i & 0xffffffffu;
      std::array<uint64_t, kWords> words;
      words.fill(half << 32 | half);
      std::memcpy(from.data() + 1, words.data(), sizeof words);
      store(shared.data(), from.data() + 1, sizeof shared);
    }
  });
  for (int i = 0; i < 5'000; ++i) {
    std::array<std::byte, sizeof shared + 3> into;
    copy_bulk_from_shared(into.data() + 3, shared.data(), sizeof shared);
    std::array<uint64_t, kWords> words;
    std::memcpy(words.data(), into.data() + 3, sizeof words);
    for (const uint64_t word : words) EXPECT_EQ(word >> 32, word & 0xffffffffu);
  }
  stop.store(true, std::memory_order_relaxed);
  writer.join();
}

TEST(BulkCopy, NeverTearsAnAlignedWord) {
  expect_whole_words(copy_bulk_to_shared);
  expect_whole_words(copy_bulk_past_caches);
}

}  // namespace
}  // namespace pmstore::base
