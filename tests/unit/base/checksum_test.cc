#include "base/checksum.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace pmstore::base {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::vector<std::byte> random_bytes(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random.below(256));
  return bytes;
}

// One bit at a time, from the definition: polynomial 0x1edc6f41, reflected.
uint32_t slow_crc32c(std::span<const std::byte> bytes) {
  uint32_t state = ~0u;
  for (const std::byte byte : bytes) {
    state ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78u : 0);
  }
  return ~state;
}

TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(bytes_of("a")), 0xc1d04330u);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  // RFC 3720, B.4
  std::vector<std::byte> block(32, std::byte{0});
  EXPECT_EQ(crc32c(block), 0x8a9136aau);
  block.assign(32, std::byte{0xff});
  EXPECT_EQ(crc32c(block), 0x62a8ab43u);
  for (size_t i = 0; i < 32; ++i) block[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(block), 0x46dd794eu);
  for (size_t i = 0; i < 32; ++i) block[i] = static_cast<std::byte>(31 - i);
  EXPECT_EQ(crc32c(block), 0x113fdb5cu);
}

TEST(Crc32c, AgreesWithTheDefinitionAtEveryLengthAndAlignment) {
  const auto bytes = random_bytes(600, 1);
  for (size_t start = 0; start < 8; ++start) {
    for (size_t count = 0; count <= 520; count += count < 80 ? 1 : 37) {
      const auto part = std::span(bytes).subspan(start, count);
      ASSERT_EQ(crc32c(part), slow_crc32c(part)) << "start " << start << " count " << count;
    }
  }
}

TEST(Crc32c, ChainsAtEverySplit) {
  const auto bytes = random_bytes(300, 2);
  const std::span<const std::byte> all(bytes);
  const uint32_t whole = crc32c(all);
  for (size_t split = 0; split <= all.size(); ++split) {
    ASSERT_EQ(crc32c(all.subspan(split), crc32c(all.first(split))), whole) << "split " << split;
  }
}

TEST(Crc32c, NoticesEverySingleFlippedBit) {
  auto bytes = random_bytes(64, 3);
  const uint32_t good = crc32c(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_NE(crc32c(bytes), good) << "bit " << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(Checksum64, IsXxh3) {
  // Golden: a stored record must be readable for ever.
  EXPECT_EQ(checksum64({}, 0), 0x2d06800538d394c2u);
  EXPECT_EQ(checksum64(bytes_of("123456789"), 0), 0x72dcb18b67a17dffu);
  EXPECT_EQ(checksum64(bytes_of("123456789"), 7), 0xd44565a47e51d7cdu);
}

// At 241 bytes it changes to the processor's widest vectors.
TEST(Checksum64, IsXxh3WhateverTheProcessorHas) {
  std::vector<std::byte> bytes(16384);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  const std::span all(bytes);
  EXPECT_EQ(checksum64(all.first(240), 7), 0x76fda3c8cdc8864bu);
  EXPECT_EQ(checksum64(all.first(241), 7), 0x86b9e393578d581bu);
  EXPECT_EQ(checksum64(all.first(1024), 7), 0x7a7bd175cfa342dbu);
  EXPECT_EQ(checksum64(all.first(1100), 7), 0xa08b4323a96531abu);
  EXPECT_EQ(checksum64(all, 7), 0x17a0ce55b540debcu);
}

TEST(Checksum64, DependsOnSeedLengthAndEveryByte) {
  auto bytes = random_bytes(320, 4);
  const uint64_t sum = checksum64(bytes, 1);
  EXPECT_NE(checksum64(bytes, 2), sum);
  EXPECT_NE(checksum64(std::span(bytes).first(319), 1), sum);
  for (auto& byte : bytes) {
    byte ^= std::byte{1};
    ASSERT_NE(checksum64(bytes, 1), sum) << "byte " << (&byte - bytes.data());
    byte ^= std::byte{1};
  }
}

}  // namespace
}  // namespace pmstore::base
