#include "persist/internal/pmemobj_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "persist/padding.h"

namespace pmstore::persist::internal {
namespace {

uint64_t object_bytes_for(uint64_t extent_bytes) {
  return std::max(extent_bytes + kAlignmentSlack, kSmallestObject);
}

}  // namespace

void rejoin_free_space(PMEMobjpool* pool) {
  pobj_action action;
  if (OID_IS_NULL(pmemobj_reserve(pool, &action, kSmallestObject, 0))) return;
  pmemobj_cancel(pool, &action, 1);
}

uint64_t largest_extent_in(uint64_t object_bytes) {
  const uint64_t usable = std::min<uint64_t>(object_bytes, PMEMOBJ_MAX_ALLOC_SIZE);
  return usable < kSmallestObject ? 0 : round_down(usable - kAlignmentSlack, kXpLineBytes);
}

Result<Examined> examine(const PoolFile& file, const std::string& path) {
  PMSTORE_TRY(const PmemobjFacts facts, check_pmemobj(file.bytes(), path));
  const auto pool = file.bytes().first(facts.pool_bytes);
  PMSTORE_TRY(Catalog catalog,
              Catalog::read(pool, round_up(facts.root_offset, kXpLineBytes), path));
  const uint64_t largest = largest_extent_in(largest_free_object(pool, facts));
  return Examined{file.facts(), facts, std::move(catalog), largest};
}

Result<std::unique_ptr<Pool>> PmemobjPool::make(const std::string& path, const std::string& file,
                                                PoolHandle handle, bool format,
                                                const PoolOpenOptions& options) {
  auto pool = std::make_unique<PmemobjPool>();
  pool->handle_ = std::move(handle);
  PMSTORE_TRY_STATUS(pool->start(path, file, format, options));
  return pool;
}

PmemobjPool::~PmemobjPool() {
  // libpmemobj ends the program when msync fails, closing included. Once it has failed, the pool is
  // left as after a crash: with its lock, until the process ends.
  if (memory_ && !memory_->drain()) static_cast<void>(handle_.release());
}

Status PmemobjPool::start(const std::string& path, const std::string& file, bool format,
                          const PoolOpenOptions& options) {
  fd_ = FileDescriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd_) return system_error(path, "open it");
  PMSTORE_TRY(medium_, probe_medium(fd_.get(), path));
  const PMEMoid root = pmemobj_root(handle_.get(), kPmemobjRootBytes);
  if (OID_IS_NULL(root)) return system_error(path, "make its root object");
  PMSTORE_TRY(facts_, check_pmemobj(mapping_of(handle_.get(), medium_.bytes), path));

  mapped_ = MappedPool(mapping_of(handle_.get(), facts_.pool_bytes), path);

  PMSTORE_TRY(DomainReport report, detect_domain(file));
  const Domain domain = options.assume_domain.value_or(report.domain);
  memory_ = std::make_unique<Memory>(
      mapping_of(handle_.get(), facts_.pool_bytes),
      MemoryOptions{.domain = domain, .non_temporal_bytes = options.non_temporal_bytes});
  const uint64_t layout_offset = round_up(facts_.root_offset, kXpLineBytes);
  if (format) {
    PMSTORE_TRY_STATUS(Catalog::format(*memory_, layout_offset, options.padding));
  } else {
    rejoin_free_space(handle_.get());
  }
  PMSTORE_TRY(catalog_, Catalog::read(memory_->mapping(), layout_offset, path));
  if (!format) {
    PMSTORE_TRY_STATUS(Catalog::make_durable(*memory_, layout_offset));
  }

  info_.path = path;
  info_.medium = medium_name(medium_.medium);
  info_.format_version = kPoolFormatVersion;
  info_.bytes = facts_.pool_bytes;
  info_.detected_domain = report.domain;
  info_.domain = domain;
  info_.domain_source = std::move(report.source);
  info_.padding = catalog_.padding;
  info_.extents_come_back = catalog_.extents_come_back;
  refresh_info();
  return {};
}

std::span<std::byte> PmemobjPool::root() {
  return memory_->mapping().subspan(catalog_.root_offset, kRootBytes);
}

Result<Extent> PmemobjPool::allocate_filled(ExtentKind kind, uint64_t bytes,
                                            const ExtentFill& fill) {
  PMSTORE_TRY(const uint64_t size, check_extent_request(catalog_, kind, bytes, info_.path));
  if (size > largest_free_extent()) {
    return no_room(info_.path, size, largest_free_extent());
  }
  pobj_action actions[5];
  const PMEMoid object = pmemobj_reserve(handle_.get(), &actions[0], object_bytes_for(size),
                                         static_cast<uint64_t>(kind));
  if (OID_IS_NULL(object)) return no_room(info_.path, size, largest_free_extent());

  const auto place = catalog_.free_entry();
  PMSTORE_CHECK(place.has_value(), "the request was checked");
  const Extent extent{kind, round_up(object.off, kXpLineBytes), size, place->index,
                      place->generation};
  Status ready = zero_extent(extent.offset, extent.bytes);
  if (ready && fill) ready = fill(extent);
  if (!ready) {
    pmemobj_cancel(handle_.get(), actions, 1);
    return ready.error();
  }
  // Reservation and entry are published by one redo log of libpmemobj: both or neither.
  const ExtentEntry entry = Catalog::make_entry(extent, object.off);
  ExtentEntry* const at = entry_of(extent);
  pmemobj_set_value(handle_.get(), &actions[1], &at->offset, entry.offset);
  pmemobj_set_value(handle_.get(), &actions[2], &at->bytes, entry.bytes);
  pmemobj_set_value(handle_.get(), &actions[3], &at->allocation, entry.allocation);
  pmemobj_set_value(handle_.get(), &actions[4], &at->tag, entry.tag);
  if (pmemobj_publish(handle_.get(), actions, 5) != 0) {
    const Error error = system_error(info_.path, "publish an extent");
    pmemobj_cancel(handle_.get(), actions, 5);
    return error;
  }
  catalog_.add(extent);
  refresh_info();
  return extent;
}

Status PmemobjPool::free_extent(const Extent& extent) {
  PMSTORE_CHECK(catalog_.has(extent), "an extent is freed once, and not a later one for it");
  if (!catalog_.extents_come_back) return nothing_is_freed(info_.path);
  ExtentEntry* const at = entry_of(extent);
  // Object and entry go by one redo log of libpmemobj: both or neither.
  pobj_action actions[2];
  pmemobj_defer_free(handle_.get(), pmemobj_oid(memory_->at(at->allocation)), &actions[0]);
  pmemobj_set_value(handle_.get(), &actions[1], &at->tag, Catalog::freed_tag(extent));
  if (pmemobj_publish(handle_.get(), actions, 2) != 0) {
    const Error error = system_error(info_.path, "free an extent");
    pmemobj_cancel(handle_.get(), actions, 2);
    return error;
  }
  catalog_.remove(extent);
  memory_->end_areas(extent.offset, extent.bytes);
  refresh_info();
  return {};
}

Status PmemobjPool::zero_extent(uint64_t offset, uint64_t bytes) {
  const uint64_t end = offset + bytes;
  while (offset < end) {
    uint64_t begin_data = offset;
    uint64_t end_data = end;
    if (medium_.medium != Medium::kDeviceDax) {
      // A hole reads as zeroes and is durable as it is; touching it would only use up blocks.
      const off_t data = lseek(fd_.get(), static_cast<off_t>(offset), SEEK_DATA);
      if (data < 0 && errno == ENXIO) return {};
      if (data < 0) return system_error(info_.path, "look for holes");
      const off_t hole = lseek(fd_.get(), data, SEEK_HOLE);
      if (hole < 0) return system_error(info_.path, "look for holes");
      begin_data = std::clamp(static_cast<uint64_t>(data), offset, end);
      end_data = std::clamp(static_cast<uint64_t>(hole), begin_data, end);
    }
    if (begin_data < end_data) {
      pmemobj_memset_persist(handle_.get(), memory_->at(begin_data), 0, end_data - begin_data);
    }
    offset = end_data;
  }
  return {};
}

uint64_t PmemobjPool::largest_free_extent() {
  return largest_extent_in(largest_free_object(memory_->mapping(), facts_));
}

void PmemobjPool::refresh_info() {
  for (const Extent& extent : catalog_.extents) memory_->begin_area(extent.offset);
  info_.extents = catalog_.extents;
  info_.free_bytes = largest_free_extent();
}

}  // namespace pmstore::persist::internal
