// The pool in a plain region: the layout at offset 0, extents behind it, one after the other.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "persist/internal/catalog.h"
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
    refresh_info();
    return {};
  }

  Memory& memory() override { return memory_; }
  const PoolInfo& info() const override { return info_; }
  std::span<std::byte> root() override {
    return memory_.mapping().subspan(catalog_.root_offset, kRootBytes);
  }

  Result<Extent> allocate_extent(ExtentKind kind, uint64_t bytes) override {
    PMSTORE_TRY(const uint64_t size, internal::check_extent_request(catalog_, kind, bytes, kName));
    if (size > largest_free_extent()) return internal::no_room(kName, size, largest_free_extent());
    const Extent extent{kind, first_free(), size};
    const size_t index = catalog_.extents.size();
    const ExtentEntry entry = internal::Catalog::make_entry(index, extent, 0);
    // The region was zero at the start and nobody was given this part of it: it is still zero.
    auto* place =
        reinterpret_cast<ExtentEntry*>(memory_.at(internal::Catalog::entry_offset(0, index)));
    memory_.store(&place->offset, &entry.offset, sizeof entry - offsetof(ExtentEntry, offset));
    memory_.flush(place, sizeof *place);
    PMSTORE_TRY(const Persisted rest, memory_.drain());
    PMSTORE_TRY(const Persisted tag, publish(rest, place, entry.tag));
    grant(tag, extent);
    return extent;
  }

  uint64_t largest_free_extent() override {
    return round_down(memory_.bytes(), kXpLineBytes) - first_free();
  }

 private:
  // `rest` proves that all of the entry but its tag is durable. Durable on return.
  Result<Persisted> publish(Persisted /*rest*/, ExtentEntry* entry, uint64_t tag) {
    PMSTORE_CHECK(entry->tag == 0, "an extent that is in use would be lost");
    memory_.store64(&entry->tag, tag);
    memory_.flush(entry, sizeof *entry);
    return memory_.drain();
  }
  // `entry` proves that the extent's entry is durable.
  void grant(Persisted /*entry*/, const Extent& extent) {
    PMSTORE_CHECK(!catalog_.covers(extent.offset, extent.bytes),
                  "two owners would write to the same extent");
    catalog_.extents.push_back(extent);
    refresh_info();
  }
  uint64_t first_free() const {
    uint64_t end = kPoolLayoutBytes;
    for (const Extent& extent : catalog_.extents) end = std::max(end, extent.offset + extent.bytes);
    return end;
  }
  void refresh_info() {
    for (const Extent& extent : catalog_.extents) memory_.begin_area(extent.offset);
    info_.extents = catalog_.extents;
    info_.free_bytes = largest_free_extent();
  }

  Memory memory_;
  internal::Catalog catalog_;
  PoolInfo info_{};
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
