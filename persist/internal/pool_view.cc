#include "persist/internal/pool_view.h"

#include <fmt/format.h>

namespace pmstore::persist::internal {

Result<PoolInfo> info_of(const Examined& examined, const std::string& path) {
  PMSTORE_TRY(DomainReport report, detect_domain(path));
  PoolInfo info{};
  info.path = path;
  info.medium = medium_name(examined.medium.medium);
  info.format_version = kPoolFormatVersion;
  info.bytes = examined.facts.pool_bytes;
  info.free_bytes = examined.largest_free_extent;
  info.detected_domain = info.domain = report.domain;
  info.domain_source = std::move(report.source);
  info.padding = examined.catalog.padding;
  info.extents = examined.catalog.extents;
  info.extents_come_back = examined.catalog.extents_come_back;
  return info;
}

PoolView::PoolView(const PoolFile& file, std::span<std::byte> mapping, uint64_t root_offset,
                   PoolInfo info)
    : descriptor_(file.descriptor()),
      medium_(file.facts().medium),
      root_offset_(root_offset),
      info_(std::move(info)),
      memory_(mapping, MemoryOptions{.domain = info_.domain, .non_temporal_bytes = 256}) {}

Result<std::unique_ptr<PoolView>> PoolView::of(const PoolFile& file, Examined examined,
                                               const std::string& path) {
  PMSTORE_TRY(PoolInfo info, info_of(examined, path));
  const auto bytes = file.bytes().first(examined.facts.pool_bytes);
  // Memory hands out places to store to; the mapping itself refuses stores.
  const std::span<std::byte> mapping(const_cast<std::byte*>(bytes.data()), bytes.size());
  return std::unique_ptr<PoolView>(
      new PoolView(file, mapping, examined.catalog.root_offset, std::move(info)));
}

std::optional<uint64_t> PoolView::next_data(uint64_t offset) const {
  return next_data_in(descriptor_, medium_, offset);
}

std::span<std::byte> PoolView::root() {
  return memory_.mapping().subspan(root_offset_, kRootBytes);
}

Result<Extent> PoolView::make_extent(ExtentKind, uint64_t, const ExtentFill&, ExtentRest) {
  return make_error(
      ErrorCode::kUnsupported,
      fmt::format("{}: opened to be read, it gets no extents: open it for use", info_.path));
}

Status PoolView::free_extent(const Extent&) {
  return make_error(
      ErrorCode::kUnsupported,
      fmt::format("{}: opened to be read, it frees no extents: open it for use", info_.path));
}

}  // namespace pmstore::persist::internal
