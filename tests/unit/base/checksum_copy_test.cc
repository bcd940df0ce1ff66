#include "base/checksum_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/checksum.h"
#include "base/random.h"

namespace pmstore::base {
namespace {

constexpr std::byte kUntouched{0xee};

// Every length that differs in its stripes and blocks, wherever the copy begins.
TEST(ChecksumCopy, GivesTheChecksumAndCopiesWhatIsNotSkipped) {
  Random random(1);
  std::vector<std::byte> from(20'007);
  for (auto& byte : from) byte = static_cast<std::byte>(random.below(256));
  std::vector<std::byte> to(from.size() + 2);
  for (size_t bytes = 0; bytes <= 20'000; bytes += bytes < 2200 ? 1 : 997) {
    const std::span<const std::byte> summed(from.data() + bytes % 7, bytes);
    for (const size_t most : {0u, 1u, 24u, 63u, 64u, 65u, 300u, 536u, 1024u, 1100u, 20'000u}) {
      const size_t skipped = std::min<size_t>(most, bytes);
      std::fill(to.begin(), to.end(), kUntouched);
      const uint64_t sum = checksum64_and_copy(summed, bytes, skipped, to.data() + 1);
      ASSERT_EQ(checksum64_of_far(summed, bytes), checksum64(summed, bytes));
      ASSERT_EQ(sum, checksum64(summed, bytes)) << bytes << " bytes, " << skipped << " skipped";
      const size_t copied = bytes - skipped;
      ASSERT_TRUE(std::equal(summed.begin() + static_cast<std::ptrdiff_t>(skipped), summed.end(),
                             to.begin() + 1))
          << bytes << " bytes, " << skipped << " skipped";
      ASSERT_EQ(to[0], kUntouched);
      ASSERT_EQ(to[1 + copied], kUntouched) << bytes << " bytes, " << skipped << " skipped";
    }
  }
}

TEST(ChecksumCopy, SkipsOnlyWhatThereIs) {
  std::vector<std::byte> bytes(10);
  EXPECT_DEATH(checksum64_and_copy(bytes, 0, 11, bytes.data()), "a part of what is summed");
}

}  // namespace
}  // namespace pmstore::base
