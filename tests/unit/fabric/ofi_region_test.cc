#include "fabric/ofi/internal/ofi_region.h"

#include <gtest/gtest.h>

#include <set>

namespace pmstore::fabric::ofi {
namespace {

TEST(OfiGrant, PermitsExactlyTheBytesOfTheRegion) {
  const uint64_t grant = make_grant(Access::kRemoteRead | Access::kRemoteWrite, 4096, 17);
  EXPECT_TRUE(grant_permits(grant, 0, 4096, Access::kRemoteRead));
  EXPECT_TRUE(grant_permits(grant, 4095, 1, Access::kRemoteWrite));
  EXPECT_TRUE(grant_permits(grant, 4096, 0, Access::kRemoteWrite));
  EXPECT_FALSE(grant_permits(grant, 4096, 1, Access::kRemoteRead));
  EXPECT_FALSE(grant_permits(grant, 1, 4096, Access::kRemoteRead));
  EXPECT_FALSE(grant_permits(grant, UINT64_MAX, 1, Access::kRemoteRead));
  EXPECT_FALSE(grant_permits(grant, UINT64_MAX - 1, 4, Access::kRemoteRead));
  EXPECT_FALSE(grant_permits(grant, 8, UINT64_MAX, Access::kRemoteRead));
}

TEST(OfiGrant, KeepsRightsApart) {
  EXPECT_FALSE(grant_permits(make_grant(Access::kLocal, 8, 0), 0, 8, Access::kRemoteRead));
  EXPECT_FALSE(grant_permits(make_grant(Access::kRemoteRead, 8, 0), 0, 8, Access::kRemoteWrite));
  EXPECT_FALSE(grant_permits(make_grant(Access::kRemoteWrite, 8, 0), 0, 8, Access::kRemoteRead));
  EXPECT_TRUE(grant_permits(make_grant(Access::kRemoteWrite, 8, 0), 0, 8, Access::kRemoteWrite));
  // Atomics have no bit, and so no way to become another right.
  EXPECT_EQ(make_grant(Access::kRemoteAtomic, 8, 0), make_grant(Access::kLocal, 8, 0));
}

TEST(OfiGrant, HoldsTheLargestRegion) {
  const uint64_t grant = make_grant(Access::kRemoteRead, kGrantMaxBytes, 0xffff);
  EXPECT_TRUE(grant_permits(grant, 0, kGrantMaxBytes, Access::kRemoteRead));
  EXPECT_FALSE(grant_permits(grant, 1, kGrantMaxBytes, Access::kRemoteRead));
  EXPECT_FALSE(grant_permits(grant, 0, 1, Access::kRemoteWrite));
}

TEST(OfiRegionAddress, DiffersForEveryKeyAndIsNeverNull) {
  std::set<uint64_t> bases;
  for (uint16_t number = 0; number < 1000; ++number) {
    const uint64_t base = address_base(make_grant(Access::kRemoteRead, 4096, number));
    EXPECT_NE(base, 0u);
    EXPECT_EQ(base % 4096, 0u) << "alignment within a region is alignment of the address";
    bases.insert(base);
  }
  EXPECT_EQ(bases.size(), 1000u);
}

}  // namespace
}  // namespace pmstore::fabric::ofi
