// The pool in a plain region: the layout at offset 0, extents behind it, each in the smallest gap
// that has room for it, the first of these.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "persist/internal/catalog.h"
#include "persist/internal/zeroed_ranges.h"
#include "persist/padding.h"
#include "persist/pool.h"

namespace pmstore::persist {
namespace {

constexpr char kName[] = "region";

class RegionPool final : public Pool {
 public:
  RegionPool(std::span<std::byte> region, Domain domain, size_t non_temporal_bytes)
      : memory_(region, MemoryOptions{.domain = domain, .non_temporal_bytes = non_temporal_bytes}) {
  }

  Status start(bool format, const PaddingRules& padding) {
    if (format) {
      PMSTORE_TRY_STATUS(internal::Catalog::format(memory_, 0, padding));
      zero_from_ = kPoolLayoutBytes;
    }
    PMSTORE_TRY(catalog_, internal::Catalog::read(memory_.mapping(), 0, kName));
    if (!format) {
      PMSTORE_TRY_STATUS(internal::Catalog::make_durable(memory_, 0));
    }
    info_.path = kName;
    info_.medium = kName;
    info_.format_version = kPoolFormatVersion;
    info_.bytes = memory_.bytes();
    info_.detected_domain = info_.domain = memory_.domain();
    info_.domain_source = "given by the owner of the region";
    info_.padding = catalog_.padding;
    info_.extents_come_back = catalog_.extents_come_back;
    refresh_info();
    return {};
  }

  Memory& memory() override { return memory_; }
  const PoolInfo& info() const override { return info_; }
  std::span<std::byte> root() override {
    return memory_.mapping().subspan(catalog_.root_offset, kRootBytes);
  }

  Result<Extent> make_extent(ExtentKind kind, uint64_t bytes, const ExtentFill& fill,
                             ExtentRest rest) override {
    PMSTORE_TRY(const uint64_t size, internal::check_extent_request(catalog_, kind, bytes, kName));
    PMSTORE_TRY_STATUS(internal::check_reserves(*this, kind, size));
    const auto place = catalog_.free_entry();
    PMSTORE_CHECK(place.has_value(), "the request was checked");
    const auto offset = find_gap(size);
    if (!offset) return internal::no_room(kName, size, largest_free_extent());
    const Extent extent{kind, *offset, size, place->index, place->generation};
    const internal::ByteRange range{extent.offset, extent.offset + extent.bytes};
    if (rest == ExtentRest::kZeroed) make_zero(range);
    zeroed_.remove(range);
    zero_from_ = std::max(zero_from_, extent.offset + extent.bytes);
    if (fill) {
      PMSTORE_TRY_STATUS(fill(extent));
    }
    const ExtentEntry entry = internal::Catalog::make_entry(extent, 0);
    ExtentEntry* const at = entry_of(extent);
    memory_.store(&at->offset, &entry.offset, sizeof entry - offsetof(ExtentEntry, offset));
    memory_.flush(at, sizeof *at);
    PMSTORE_TRY(const Persisted content, memory_.drain());
    PMSTORE_TRY_STATUS(publish(content, extent, entry.tag));
    catalog_.add(extent);
    refresh_info();
    return extent;
  }

  Result<bool> zero_ahead(ExtentKind kind, uint64_t bytes, uint64_t most_bytes) override {
    const auto size = internal::check_extent_request(catalog_, kind, bytes, kName);
    if (!size || !internal::check_reserves(*this, kind, *size)) return false;
    const auto offset = find_gap(*size);
    if (!offset) return false;
    PMSTORE_CHECK(most_bytes > 0 && most_bytes % kXpLineBytes == 0, "a step zeroes whole lines");
    // What lies behind is zero.
    const internal::ByteRange used{*offset, std::min(*offset + *size, zero_from_)};
    const auto unknown = zeroed_.first_unknown(used);
    if (!unknown) return false;
    const internal::ByteRange next{unknown->begin,
                                   std::min(unknown->end, unknown->begin + most_bytes)};
    make_zero(next);
    PMSTORE_TRY_STATUS(memory_.drain());
    zeroed_.add(next);
    return zeroed_.first_unknown(used).has_value();
  }

  Status free_extent(const Extent& extent) override {
    PMSTORE_CHECK(catalog_.has(extent), "an extent is freed once, and not a later one for it");
    if (!catalog_.extents_come_back) return internal::nothing_is_freed(kName);
    // What there is in the extent is of no use any more: nothing has to be durable before.
    PMSTORE_TRY_STATUS(store_tag(extent, internal::Catalog::freed_tag(extent)));
    catalog_.remove(extent);
    memory_.end_areas(extent.offset, extent.bytes);
    refresh_info();
    return {};
  }

  uint64_t largest_free_extent() override {
    uint64_t largest = 0;
    for_each_gap([&](uint64_t from, uint64_t to) { largest = std::max(largest, to - from); });
    return largest;
  }
  std::vector<uint64_t> free_extents() override {
    std::vector<uint64_t> all;
    for_each_gap([&](uint64_t from, uint64_t to) { all.push_back(to - from); });
    return all;
  }
  uint64_t least_extent() const override { return kXpLineBytes; }
  std::optional<uint64_t> next_data(uint64_t offset) const override { return offset; }

 private:
  ExtentEntry* entry_of(const Extent& extent) {
    return reinterpret_cast<ExtentEntry*>(
        memory_.at(internal::Catalog::entry_offset(0, extent.entry)));
  }
  // `content` proves that the extent and all of its entry but the tag are durable. Durable on
  // return.
  Status publish(Persisted /*content*/, const Extent& extent, uint64_t tag) {
    return store_tag(extent, tag);
  }
  Status store_tag(const Extent& extent, uint64_t tag) {
    ExtentEntry* const at = entry_of(extent);
    memory_.store64(&at->tag, tag);
    memory_.flush(at, sizeof *at);
    PMSTORE_TRY_STATUS(memory_.drain());
    return {};
  }
  // The region was zero when the pool was made. Behind every extent that there was since then it
  // still is; before, and after a restart, an extent or an attempt to make one may have been there.
  // Flushed, not durable.
  void make_zero(internal::ByteRange range) {
    range.end = std::min(range.end, zero_from_);
    while (const auto unknown = zeroed_.first_unknown(range)) {
      for (uint64_t at = unknown->begin; at < unknown->end; at += kXpLineBytes) {
        std::byte* const line = memory_.at(at);
        const auto is_zero = [](std::byte each) { return each == std::byte{0}; };
        if (!std::all_of(line, line + kXpLineBytes, is_zero)) memory_.zero(line, kXpLineBytes);
      }
      // A line that reads as zero may be zero in the CPU's caches only.
      memory_.flush(memory_.at(unknown->begin), unknown->end - unknown->begin);
      range.begin = unknown->end;
    }
  }
  template <typename Visit>
  void for_each_gap(Visit visit) const {
    std::vector<Extent> in_order = catalog_.extents;
    std::sort(in_order.begin(), in_order.end(),
              [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
    uint64_t from = kPoolLayoutBytes;
    for (const Extent& extent : in_order) {
      if (extent.offset > from) visit(from, extent.offset);
      from = extent.offset + extent.bytes;
    }
    const uint64_t end = round_down(memory_.bytes(), kXpLineBytes);
    if (end > from) visit(from, end);
  }
  std::optional<uint64_t> find_gap(uint64_t bytes) const {
    std::optional<uint64_t> best;
    uint64_t best_bytes = UINT64_MAX;
    for_each_gap([&](uint64_t from, uint64_t to) {
      if (to - from < bytes || to - from >= best_bytes) return;
      best = from;
      best_bytes = to - from;
    });
    return best;
  }
  void refresh_info() {
    for (const Extent& extent : catalog_.extents) memory_.begin_area(extent.offset);
    info_.extents = catalog_.extents;
    info_.free_bytes = largest_free_extent();
  }

  Memory memory_;
  internal::Catalog catalog_;
  PoolInfo info_{};
  internal::ZeroedRanges zeroed_;
  uint64_t zero_from_ = UINT64_MAX;  // what is free behind it is zero, durably
};

}  // namespace

Result<std::unique_ptr<Pool>> Pool::in_region(std::span<std::byte> region, Domain domain,
                                              bool format, size_t non_temporal_bytes,
                                              Observer* observer, const PaddingRules& padding) {
  if (region.size() < kPoolLayoutBytes ||
      reinterpret_cast<uintptr_t>(region.data()) % kXpLineBytes != 0) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("region of {} bytes: a pool needs at least {} and 256-byte alignment",
                    region.size(), kPoolLayoutBytes));
  }
  auto pool = std::make_unique<RegionPool>(region, domain, non_temporal_bytes);
  pool->memory().set_observer(observer);
  PMSTORE_TRY_STATUS(pool->start(format, padding));
  return pool;
}

}  // namespace pmstore::persist
