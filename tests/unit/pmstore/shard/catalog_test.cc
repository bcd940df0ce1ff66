// The catalog's header: what of it is checked, and what programs of other releases can tell of it.
#include <gtest/gtest.h>

#include <cstring>
#include <span>

#include "base/checksum.h"
#include "pmstore/shard/table_catalog.h"
#include "tests/unit/pmstore/shard/earlier_pool.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

constexpr uint64_t kCatalogRegionBytes = 2 << 20;
// Earlier releases look at no byte of the header behind it.
constexpr size_t kEarlierHeaderBytes = 128;

std::byte* copy_at(StoreInRegion& s, uint64_t copy) {
  return s.pool().root().data() + copy * kCatalogCopyBytes;
}

TEST(Catalog, AnEarlierReleaseFindsTheHeaderWhole) {
  StoreInRegion s(kCatalogRegionBytes);
  for (uint64_t copy = 0; copy < 2; ++copy) {
    const std::span<const std::byte> seen(copy_at(s, copy), kEarlierHeaderBytes);
    EXPECT_EQ(catalog_copy(s.pool(), copy).crc,
              base::crc32c(seen.subspan(offsetof(CatalogHeader, version)), 0));
  }
}

TEST(Catalog, AHeaderOfALaterReleaseIsNotCalledDamaged) {
  StoreInRegion s(kCatalogRegionBytes);
  for (uint64_t copy = 0; copy < 2; ++copy) {
    CatalogHeader header = catalog_copy(s.pool(), copy);
    header.version = kCatalogVersion + 1;
    store_catalog_copy(s.pool(), copy, header);
    std::memset(copy_at(s, copy) + kEarlierHeaderBytes, 0x5a,
                kCatalogCopyBytes - kEarlierHeaderBytes);
  }
  EXPECT_EQ(TableCatalog::load(s.pool()).code(), ErrorCode::kVersionMismatch);
}

TEST(Catalog, AnyDamagedByteIsNoticed) {
  StoreInRegion s(kCatalogRegionBytes);
  const auto flip = [&](size_t byte) {
    for (uint64_t copy = 0; copy < 2; ++copy) copy_at(s, copy)[byte] ^= std::byte{0x10};
  };
  for (size_t byte = 0; byte < sizeof(CatalogHeader); ++byte) {
    flip(byte);
    EXPECT_EQ(TableCatalog::load(s.pool()).code(), ErrorCode::kBadPool) << byte;
    flip(byte);
  }
  EXPECT_TRUE(TableCatalog::load(s.pool()));
}

// A crash may leave a line of the header that was written last, and another one of the header that
// had been there.
TEST(Catalog, TheBeginOfOneGenerationDoesNotFitTheRestOfAnother) {
  StoreInRegion s(kCatalogRegionBytes);
  const uint64_t newest =
      catalog_copy(s.pool(), 0).generation > catalog_copy(s.pool(), 1).generation ? 0 : 1;
  const uint64_t other = 1 - newest;
  std::memcpy(copy_at(s, newest) + kEarlierHeaderBytes, copy_at(s, other) + kEarlierHeaderBytes,
              sizeof(CatalogHeader) - kEarlierHeaderBytes);
  const auto loaded = TableCatalog::load(s.pool());
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->header().generation, catalog_copy(s.pool(), other).generation);
}

}  // namespace
}  // namespace pmstore::internal
