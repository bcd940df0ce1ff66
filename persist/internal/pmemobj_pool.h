// PmemobjPool: a pool on libpmemobj, in use. See persist/pool.h for the contract and docs/pool.md
// for the steps. libpmemobj makes and repairs pools; while one is in use libpmemobj has not opened
// it.
//
// Invariants: memory_ covers what libpmemobj would use, pool_bytes from the beginning; catalog_ is
// what the medium says; each extent has an object in the heap, and no object of chunks of its own
// but that of the root has none. While there is no call only heap_ and catalog_ have stored to
// libpmemobj's metadata and to the extent table.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "persist/file_reads.h"
#include "persist/internal/catalog.h"
#include "persist/internal/freed_blocks.h"
#include "persist/internal/owned_pool_file.h"
#include "persist/internal/pmemobj_format.h"
#include "persist/internal/pmemobj_heap.h"
#include "persist/internal/pmemobj_library.h"
#include "persist/internal/pool_file.h"
#include "persist/internal/zeroed_ranges.h"
#include "persist/padding.h"
#include "persist/pool.h"
#include "persist/resident_pages.h"
#include "persist/sparse_blocks.h"

namespace pmstore::persist::internal {

class PmemobjPool final : public Pool, public SparseBlocks, public ResidentPages, public FileReads {
 public:
  ~PmemobjPool() override;
  // Takes a pool that check_pmemobj() accepts and that libpmemobj has nothing to repair in; with
  // `format`, one that has no catalog yet. `file` is what it can be opened by now, `path` what it
  // is called. `open` is what libpmemobj's record of unsafe shutdowns says while the pool is in
  // use. Busy: another process has it, or had it since it was looked at.
  static Result<std::unique_ptr<Pool>> make(const std::string& path, const std::string& file,
                                            const ShutdownState& open, bool format,
                                            const PoolOpenOptions& options);

  Memory& memory() override { return *memory_; }
  const PoolInfo& info() const override { return info_; }
  std::span<std::byte> root() override;
  Status free_extent(const Extent& extent) override;
  Result<bool> zero_ahead(ExtentKind kind, uint64_t bytes, uint64_t most_bytes) override;
  Result<bool> release_blocks(uint64_t most_bytes) override { return freed_.release(most_bytes); }
  Result<bool> give_back(uint64_t offset, uint64_t bytes) override;
  void forget(uint64_t offset, uint64_t bytes) const override {
    file_.forget_pages(offset, offset + bytes);
  }
  uint64_t largest_free_extent() override;
  std::vector<uint64_t> free_extents() override { return heap_->free_extents(); }
  uint64_t least_extent() const override { return kLeastExtent; }
  std::optional<uint64_t> next_data(uint64_t offset) const override {
    return next_data_in(file_.descriptor(), file_.facts().medium, offset);
  }
  Status read(uint64_t offset, std::span<std::byte> to) const override {
    return read_bytes(file_.descriptor(), info_.path, offset, to);
  }

 private:
  Result<Extent> make_extent(ExtentKind kind, uint64_t bytes, const ExtentFill& fill,
                             ExtentRest rest) override;
  bool gives_back() const override { return freed_.can_release(); }
  bool is_file() const override { return file_.facts().medium != Medium::kDeviceDax; }
  Status start(const std::string& path, const std::string& file, bool format,
               const PoolOpenOptions& options);
  Status note_open(const ShutdownState& open);
  // The object of `room` and its entry, durably; `content` proves that what is in it is durable.
  Status publish(Persisted content, const PmemobjHeap::Room& room, const Extent& extent,
                 const ExtentEntry& entry);
  Result<Persisted> store_tag(const Extent& extent, uint64_t tag);
  // Zeroes what is not known to be zero. Flushed, not durable.
  Status zero_extent(const Extent& extent);
  // The same of a range of which nothing is known.
  Status zero_range(ByteRange range);
  // All that is not a hole.
  Status zero_between_holes(ByteRange range);
  // The pages that are not zero.
  Status zero_where_read(ByteRange range);
  // Up to where the range is one hole, as far as that is quickly known.
  uint64_t end_of_hole(ByteRange range) const;
  void refresh_info();
  ExtentEntry* entry_of(const Extent& extent) {
    return reinterpret_cast<ExtentEntry*>(
        memory_->at(Catalog::entry_offset(catalog_.layout_offset, extent.entry)));
  }

  OwnedPoolFile file_;  // closed last
  PmemobjFacts facts_{};
  // libpmemobj's record of unsafe shutdowns when the pool is closed, where the device counts them.
  std::optional<ShutdownState> closed_;
  Catalog catalog_;
  PoolInfo info_{};
  std::unique_ptr<Memory> memory_;
  std::optional<PmemobjHeap> heap_;
  FreedBlocks freed_;
  ZeroedRanges zeroed_;     // no extent lies in them
  uint64_t undrained_ = 0;  // bytes that were zeroed ahead since the last drain for them
  // On tmpfs, which looks for the end of data page by page, however far away that is: 15 ms for
  // each GiB on Linux 6.18. Reading gives zeroes where there are no blocks, and takes no memory.
  bool in_memory_ = false;
  // The end of a hole is far away, too: blocks were reserved, and never written.
  bool holes_are_slow_ = false;
  bool filling_ = false;  // make_extent() is under way: its room still counts as free
};

// What can be said about a pool without opening it, nothing changed. The errors of Pool::open().
struct Examined {
  MediumFacts medium;
  PmemobjFacts facts;
  Catalog catalog;
  uint64_t largest_free_extent;
};
Result<Examined> examine(const PoolFile& file, const std::string& path);
// Whether libpmemobj has to open the pool before it is used: a lane has something to finish or to
// take back, as a crash of an earlier release can leave it, or the device counts unsafe shutdowns.
bool needs_libpmemobj(const PoolFile& file, const Examined& examined);
// check_allocated() of what was examined.
Status check_heap(const PoolFile& file, const Examined& examined, const std::string& path);

// A crash between reserving and publishing leaves the free space cut in two. Cancelling a
// reservation of the smaller piece (libpmemobj takes the best fit) joins it with its neighbours.
void rejoin_free_space(PMEMobjpool* pool);

// A PMEMobjpool is the beginning of the mapping.
inline std::span<std::byte> mapping_of(PMEMobjpool* pool, uint64_t bytes) {
  return {reinterpret_cast<std::byte*>(pool), bytes};
}

}  // namespace pmstore::persist::internal
