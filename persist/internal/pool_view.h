// PoolView: a pool in a read-only mapping, for looking at what its owner keeps in it. See
// Pool::view().
//
// Invariants: the mapping has no right to be written, so nothing that is done with a view reaches
// the medium. Threads: one. A mapping that is not owned outlives it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "persist/file_reads.h"
#include "persist/internal/pmemobj_pool.h"
#include "persist/internal/pool_file.h"
#include "persist/pool.h"

namespace pmstore::persist::internal {

class PoolView final : public Pool, public FileReads {
 public:
  // Of what examine() has found in `file`. Io: detect_domain().
  static Result<std::unique_ptr<PoolView>> of(const PoolFile& file, Examined examined,
                                              const std::string& path);
  // The file goes with the view.
  void keep(PoolFile file) { file_.emplace(std::move(file)); }

  Memory& memory() override { return memory_; }
  const PoolInfo& info() const override { return info_; }
  std::span<std::byte> root() override;
  // Unsupported.
  Status free_extent(const Extent& extent) override;
  uint64_t largest_free_extent() override { return info_.free_bytes; }
  std::vector<uint64_t> free_extents() override { return {info_.free_bytes}; }
  std::optional<uint64_t> next_data(uint64_t offset) const override;
  uint64_t least_extent() const override { return kLeastExtent; }
  Status read(uint64_t offset, std::span<std::byte> to) const override {
    return read_bytes(descriptor_, info_.path, offset, to);
  }

 private:
  // Unsupported.
  Result<Extent> make_extent(ExtentKind kind, uint64_t bytes, const ExtentFill& fill,
                             ExtentRest rest) override;
  bool is_file() const override { return medium_ != Medium::kDeviceDax; }
  PoolView(const PoolFile& file, std::span<std::byte> mapping, uint64_t root_offset, PoolInfo info);

  std::optional<PoolFile> file_;  // goes last
  int descriptor_;                // of the file, whoever keeps it
  Medium medium_;
  uint64_t root_offset_;
  PoolInfo info_;
  Memory memory_;
};

// What is known of a pool that was examined, domain included. Io: detect_domain().
Result<PoolInfo> info_of(const Examined& examined, const std::string& path);

}  // namespace pmstore::persist::internal
