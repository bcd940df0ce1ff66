#include "base/size_text.h"

#include <gtest/gtest.h>

namespace pmstore::base {
namespace {

TEST(SizeText, SmallSizesAreBytesOnly) {
  EXPECT_EQ(size_text(0), "0 bytes");
  EXPECT_EQ(size_text(1), "1 byte");
  EXPECT_EQ(size_text((1u << 20) - 1), "1048575 bytes");
}

TEST(SizeText, LargeOnesHaveTheirUnitBefore) {
  EXPECT_EQ(size_text(1u << 20), "1 MiB (1048576 bytes)");
  EXPECT_EQ(size_text(33226752), "31.7 MiB (33226752 bytes)");
  EXPECT_EQ(size_text(uint64_t{3} << 29), "1.5 GiB (1610612736 bytes)");
  EXPECT_EQ(size_text(uint64_t{2} << 40), "2 TiB (2199023255552 bytes)");
}

}  // namespace
}  // namespace pmstore::base
