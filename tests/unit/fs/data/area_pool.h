// A pool in memory with a file area, for tests of what is in it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "fs/file_area.h"
#include "model/page_bytes.h"
#include "persist/pool.h"

namespace pmstore::fs {

inline constexpr uint64_t kTestUnits = 32;
inline constexpr uint64_t kTestIdentity = 0xf11e;
// Units, header, and what alignment may take.
inline constexpr uint64_t kTestAreaBytes = (kTestUnits + 1) * kUnitBytes + kFileAreaHeaderBytes;

class AreaPool {
 public:
  // `spare_bytes`: of the pool, for other extents.
  explicit AreaPool(persist::Domain domain = persist::Domain::kMemoryController,
                    uint64_t area_bytes = kTestAreaBytes, uint64_t spare_bytes = 0)
      : region_(persist::round_up(area_bytes + spare_bytes + 128 * 1024, 4096)), domain_(domain) {
    pool_ = persist::Pool::in_region(region_.bytes(), domain_, true).value();
    extent_ = pool_->allocate_extent(persist::ExtentKind::kFileData, area_bytes).value();
    EXPECT_TRUE(FileArea::format(*pool_, kTestIdentity));
  }
  void reopen() { pool_ = persist::Pool::in_region(region_.bytes(), domain_, false).value(); }
  persist::Pool& pool() { return *pool_; }
  std::byte* header_copy(size_t copy) {
    return pool_->memory().at(extent_.offset + copy * kFileAreaCopyStride);
  }

 private:
  model::PageBytes region_;
  persist::Domain domain_;
  std::unique_ptr<persist::Pool> pool_;
  persist::Extent extent_{};
};

}  // namespace pmstore::fs
