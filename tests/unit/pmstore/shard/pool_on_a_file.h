// A pool in a region, as a file in which the medium has errors from `bad` on, in `bad_bytes` bytes,
// and which may have a hole.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "persist/file_reads.h"
#include "persist/pool.h"

namespace pmstore::internal {

class PoolOnAFile final : public persist::Pool, public persist::FileReads {
 public:
  explicit PoolOnAFile(persist::Pool& pool, uint64_t bad, uint64_t bad_bytes = 1)
      : pool_(pool), bad_(bad), bad_bytes_(bad_bytes) {}
  persist::Memory& memory() override { return pool_.memory(); }
  const persist::PoolInfo& info() const override { return pool_.info(); }
  std::span<std::byte> root() override { return pool_.root(); }
  Result<persist::Extent> make_extent(persist::ExtentKind kind, uint64_t bytes,
                                      const ExtentFill& fill, ExtentRest rest) override {
    return rest == ExtentRest::kZeroed ? pool_.allocate_filled(kind, bytes, fill)
                                       : pool_.allocate_unzeroed(kind, bytes, fill);
  }
  Status free_extent(const persist::Extent& extent) override { return pool_.free_extent(extent); }
  uint64_t largest_free_extent() override { return pool_.largest_free_extent(); }
  std::vector<uint64_t> free_extents() override { return pool_.free_extents(); }
  uint64_t least_extent() const override { return pool_.least_extent(); }
  std::optional<uint64_t> next_data(uint64_t offset) const override {
    ++asked_for_data;
    return pool_.next_data(hole_.covers(offset) ? hole_.end : offset);
  }
  Status read(uint64_t offset, std::span<std::byte> to) const override {
    ++reads;
    if (offset < bad_ + bad_bytes_ && bad_ < offset + to.size()) {
      return make_error(ErrorCode::kIo, "the medium has an error");
    }
    std::memcpy(to.data(), pool_.memory().at(offset), to.size());
    return {};
  }
  void set_bad(uint64_t bad, uint64_t bad_bytes) {
    bad_ = bad;
    bad_bytes_ = bad_bytes;
  }
  void set_hole(uint64_t from, uint64_t end) { hole_ = {from, end}; }
  mutable std::atomic<uint64_t> reads{0};
  mutable std::atomic<uint64_t> asked_for_data{0};

 private:
  bool is_file() const override { return true; }
  persist::Pool& pool_;
  uint64_t bad_;
  uint64_t bad_bytes_;
  struct Hole {
    uint64_t from = 0;
    uint64_t end = 0;
    bool covers(uint64_t offset) const { return offset >= from && offset < end; }
  } hole_;
};

}  // namespace pmstore::internal
