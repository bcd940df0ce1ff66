// PmemobjPool: a pool on libpmemobj, opened. See persist/pool.h for the contract and docs/pool.md
// for the steps.
//
// Invariants: memory_ covers exactly what libpmemobj mapped, [handle, handle + pool_bytes);
// catalog_ is what the medium says; nobody but libpmemobj stores to its metadata or to the extent
// table.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "persist/internal/catalog.h"
#include "persist/internal/mapped_pool.h"
#include "persist/internal/pmemobj_format.h"
#include "persist/internal/pmemobj_library.h"
#include "persist/internal/pool_file.h"
#include "persist/padding.h"
#include "persist/pool.h"

namespace pmstore::persist::internal {

// Objects up to 10 chunks of 256 KiB (MAX_RUN_SIZE in PMDK's alloc_class.c) are cut from runs of
// several of their size, which may not fit where one object does. Larger ones get chunks of their
// own, so that the chunk headers tell exactly what can still be allocated.
inline constexpr uint64_t kSmallestObject = 10 * 256 * 1024 + 1;
// libpmemobj aligns an object to its 16-byte header only.
inline constexpr uint64_t kAlignmentSlack = kXpLineBytes;
inline constexpr uint64_t kLeastExtent = 10 * 256 * 1024;
static_assert(kLeastExtent % kXpLineBytes == 0 &&
              (kLeastExtent + kAlignmentSlack) / kChunkBytes == kSmallestObject / kChunkBytes);

class PmemobjPool final : public Pool {
 public:
  ~PmemobjPool() override;
  // Takes a pool that check_pmemobj() accepts; with `format`, one that has no catalog yet. `file`
  // is what it can be opened by now, `path` what it is called.
  static Result<std::unique_ptr<Pool>> make(const std::string& path, const std::string& file,
                                            PoolHandle handle, bool format,
                                            const PoolOpenOptions& options);

  Memory& memory() override { return *memory_; }
  const PoolInfo& info() const override { return info_; }
  std::span<std::byte> root() override;
  Result<Extent> allocate_filled(ExtentKind kind, uint64_t bytes, const ExtentFill& fill) override;
  Status free_extent(const Extent& extent) override;
  uint64_t largest_free_extent() override;
  uint64_t least_extent() const override { return kLeastExtent; }
  std::optional<uint64_t> next_data(uint64_t offset) const override {
    return next_data_in(fd_.get(), medium_.medium, offset);
  }

 private:
  Status start(const std::string& path, const std::string& file, bool format,
               const PoolOpenOptions& options);
  // Makes what is not known to be zero in [offset, offset + bytes) zero, durably.
  Status zero_extent(uint64_t offset, uint64_t bytes);
  void refresh_info();
  ExtentEntry* entry_of(const Extent& extent) {
    return reinterpret_cast<ExtentEntry*>(
        memory_->at(Catalog::entry_offset(catalog_.layout_offset, extent.entry)));
  }

  PoolHandle handle_;  // closed last
  MappedPool mapped_;
  FileDescriptor fd_;  // to ask for holes
  MediumFacts medium_{};
  PmemobjFacts facts_{};
  Catalog catalog_;
  PoolInfo info_{};
  std::unique_ptr<Memory> memory_;
};

// What can be said about a pool without opening it, nothing changed. The errors of Pool::open().
struct Examined {
  MediumFacts medium;
  PmemobjFacts facts;
  Catalog catalog;
  uint64_t largest_free_extent;
};
Result<Examined> examine(const PoolFile& file, const std::string& path);

inline constexpr uint64_t kPmemobjRootBytes = kPoolLayoutBytes + kAlignmentSlack;

// A crash between reserving and publishing leaves the free space cut in two. Cancelling a
// reservation of the smaller piece (libpmemobj takes the best fit) joins it with its neighbours.
void rejoin_free_space(PMEMobjpool* pool);

// A PMEMobjpool is the beginning of the mapping.
inline std::span<std::byte> mapping_of(PMEMobjpool* pool, uint64_t bytes) {
  return {reinterpret_cast<std::byte*>(pool), bytes};
}

// From the largest object: an extent is a multiple of 256, aligned inside its object.
uint64_t largest_extent_in(uint64_t object_bytes);

}  // namespace pmstore::persist::internal
