#include "persist/internal/pmemobj_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <utility>

#include "base/check.h"
#include "persist/padding.h"

namespace pmstore::persist::internal {

namespace {

// An msync takes some 10 ms on a disk, however little it writes; and what is left to the drain of
// the extent would keep others waiting there.
constexpr uint64_t kDrainedTogether = 16 << 20;

}  // namespace

void rejoin_free_space(PMEMobjpool* pool) {
  pobj_action action;
  if (OID_IS_NULL(pmemobj_reserve(pool, &action, kSmallestObject, 0))) return;
  pmemobj_cancel(pool, &action, 1);
}

Result<Examined> examine(const PoolFile& file, const std::string& path) {
  PMSTORE_TRY(const PmemobjFacts facts, check_pmemobj(file.bytes(), path));
  const auto pool = file.bytes().first(facts.pool_bytes);
  PMSTORE_TRY(Catalog catalog,
              Catalog::read(pool, round_up(facts.root_offset, kXpLineBytes), path));
  const uint64_t largest = largest_extent_in(largest_free_object(pool, facts));
  return Examined{file.facts(), facts, std::move(catalog), largest};
}

bool needs_libpmemobj(const PoolFile& file, const Examined& examined) {
  const auto pool = file.bytes().first(examined.facts.pool_bytes);
  return counts_shutdowns(shutdown_state_in(pool)) || !lanes_are_idle(pool, examined.facts);
}

Status check_heap(const PoolFile& file, const Examined& examined, const std::string& path) {
  return check_allocated(file.bytes().first(examined.facts.pool_bytes), examined.facts,
                         examined.catalog.extents, path);
}

Result<std::unique_ptr<Pool>> PmemobjPool::make(const std::string& path, const std::string& file,
                                                const ShutdownState& open, bool format,
                                                const PoolOpenOptions& options) {
  auto pool = std::make_unique<PmemobjPool>();
  PMSTORE_TRY_STATUS(pool->start(path, file, format, options));
  PMSTORE_TRY_STATUS(pool->note_open(open));
  return pool;
}

PmemobjPool::~PmemobjPool() {
  if (!memory_) return;
  if (closed_ && !memory_->failed()) {
    memory_->write(memory_->at(kShutdownStateOffset), closed_->data(), closed_->size());
  }
  // Once msync has failed the pool is left as after a crash: with its lock, until the process ends.
  if (!memory_->drain()) file_.keep_locked();
}

Status PmemobjPool::start(const std::string& path, const std::string& file, bool format,
                          const PoolOpenOptions& options) {
  PMSTORE_TRY(file_, OwnedPoolFile::open(file, path));
  PMSTORE_TRY(facts_, check_pmemobj(file_.bytes(), path));
  const auto bytes = file_.bytes().first(facts_.pool_bytes);
  if (!lanes_are_idle(bytes, facts_)) return busy(path);
  file_.forget_pages(kPmemobjHeaderBytes, facts_.heap_offset);  // the lanes have 3 MiB

  PMSTORE_TRY(DomainReport report, detect_domain(file));
  const Domain domain = options.assume_domain.value_or(report.domain);
  memory_ = std::make_unique<Memory>(
      bytes, MemoryOptions{.domain = domain, .non_temporal_bytes = options.non_temporal_bytes});
  heap_.emplace(*memory_, facts_);
  freed_ = FreedBlocks(file_.descriptor(), path);
  in_memory_ = is_in_memory(file_.descriptor());
  holes_are_slow_ = in_memory_ && !freed_.can_release();
  const uint64_t layout_offset = round_up(facts_.root_offset, kXpLineBytes);
  if (format) {
    PMSTORE_TRY_STATUS(Catalog::format(*memory_, layout_offset, options.padding));
  }
  PMSTORE_TRY(catalog_, Catalog::read(memory_->mapping(), layout_offset, path));
  if (!format) {
    PMSTORE_TRY_STATUS(check_allocated(bytes, facts_, catalog_.extents, path));
    PMSTORE_TRY_STATUS(Catalog::make_durable(*memory_, layout_offset));
    PMSTORE_TRY_STATUS(heap_->mend(catalog_.extents));
  }

  info_.path = path;
  info_.medium = medium_name(file_.facts().medium);
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

Status PmemobjPool::note_open(const ShutdownState& open) {
  const ShutdownState closed = shutdown_state_in(memory_->mapping());
  if (!counts_shutdowns(open) || open == closed) return {};
  closed_ = closed;
  memory_->write(memory_->at(kShutdownStateOffset), open.data(), open.size());
  PMSTORE_TRY_STATUS(memory_->drain());
  return {};
}

std::span<std::byte> PmemobjPool::root() {
  return memory_->mapping().subspan(catalog_.root_offset, kRootBytes);
}

Result<Extent> PmemobjPool::make_extent(ExtentKind kind, uint64_t bytes, const ExtentFill& fill,
                                        ExtentRest rest) {
  PMSTORE_CHECK(!filling_, "what fills an extent makes none: both would lie in the same room");
  PMSTORE_TRY(const uint64_t size, check_extent_request(catalog_, kind, bytes, info_.path));
  PMSTORE_TRY_STATUS(check_reserves(*this, kind, size));
  const auto room = heap_->find(size);
  if (!room) return no_room(info_.path, size, largest_free_extent());

  const auto place = catalog_.free_entry();
  PMSTORE_CHECK(place.has_value(), "the request was checked");
  const Extent extent{kind, round_up(room->object(), kXpLineBytes), size, place->index,
                      place->generation};
  freed_.remove(room->bytes());
  // Under Domain::kNone the drain below is an msync of the file, which does the same.
  if (memory_->domain() != Domain::kNone) {
    PMSTORE_TRY_STATUS(freed_.make_holes_durable());
  }
  if (rest == ExtentRest::kZeroed) {
    PMSTORE_TRY_STATUS(zero_extent(extent));
  }
  zeroed_.remove(room->bytes());
  if (fill) {
    filling_ = true;
    const Status filled = fill(extent);
    filling_ = false;
    PMSTORE_TRY_STATUS(filled);
  }
  const ExtentEntry entry = Catalog::make_entry(extent, room->object());
  ExtentEntry* const at = entry_of(extent);
  memory_->store(&at->offset, &entry.offset, sizeof entry - offsetof(ExtentEntry, offset));
  memory_->flush(at, sizeof *at);
  PMSTORE_TRY_STATUS(heap_->prepare(*room, static_cast<uint64_t>(kind)));
  PMSTORE_TRY(const Persisted content, memory_->drain());
  PMSTORE_TRY_STATUS(publish(content, *room, extent, entry));
  catalog_.add(extent);
  refresh_info();
  return extent;
}

Status PmemobjPool::publish(Persisted content, const PmemobjHeap::Room& room, const Extent& extent,
                            const ExtentEntry& entry) {
  // A crash between the two leaves an object without an extent, which the next opening frees.
  PMSTORE_TRY_STATUS(heap_->publish(content, room));
  PMSTORE_TRY_STATUS(store_tag(extent, entry.tag));
  return {};
}

Result<Persisted> PmemobjPool::store_tag(const Extent& extent, uint64_t tag) {
  ExtentEntry* const at = entry_of(extent);
  memory_->store64(&at->tag, tag);
  memory_->flush(at, sizeof *at);
  return memory_->drain();
}

Status PmemobjPool::free_extent(const Extent& extent) {
  PMSTORE_CHECK(!filling_, "what fills an extent frees none: the room that is filled would change");
  PMSTORE_CHECK(catalog_.has(extent), "an extent is freed once, and not a later one for it");
  if (!catalog_.extents_come_back) return nothing_is_freed(info_.path);
  const uint64_t object = entry_of(extent)->allocation;
  PMSTORE_TRY(const Persisted gone, store_tag(extent, Catalog::freed_tag(extent)));
  PMSTORE_TRY(const ByteRange chunks, heap_->give_back(gone, object));
  freed_.add(chunks);
  catalog_.remove(extent);
  memory_->end_areas(extent.offset, extent.bytes);
  refresh_info();
  return {};
}

Result<bool> PmemobjPool::give_back(uint64_t offset, uint64_t bytes) {
  PMSTORE_CHECK(std::any_of(catalog_.extents.begin(), catalog_.extents.end(),
                            [&](const Extent& extent) {
                              return extent.offset <= offset && bytes <= extent.bytes &&
                                     offset - extent.offset <= extent.bytes - bytes;
                            }),
                "what is given back lies in one extent");
  return freed_.release_now({offset, offset + bytes});
}

// ---- zeroes ----

Result<bool> PmemobjPool::zero_ahead(ExtentKind kind, uint64_t bytes, uint64_t most_bytes) {
  PMSTORE_CHECK(!filling_, "what is filled still counts as free");
  PMSTORE_CHECK(most_bytes > 0 && most_bytes % kXpLineBytes == 0, "a step zeroes whole lines");
  const auto size = check_extent_request(catalog_, kind, bytes, info_.path);
  if (!size || !check_reserves(*this, kind, *size)) return false;  // make_extent() says why
  const auto room = heap_->find(*size);
  if (!room) return false;
  const uint64_t begin = round_up(room->object(), kXpLineBytes);
  const ByteRange extent{begin, begin + *size};
  const auto unknown = zeroed_.first_unknown(extent);
  if (!unknown) return false;
  const uint64_t from = end_of_hole(*unknown);
  const uint64_t end = std::min(unknown->end, from + most_bytes);
  if (from < end) {
    PMSTORE_TRY_STATUS(zero_range({from, end}));
    undrained_ += end - from;
  }
  zeroed_.add({unknown->begin, end});
  const bool more = zeroed_.first_unknown(extent).has_value();
  if (undrained_ >= kDrainedTogether || (!more && undrained_ > 0)) {
    PMSTORE_TRY_STATUS(memory_->drain());
    undrained_ = 0;
  }
  return more;
}

Status PmemobjPool::zero_extent(const Extent& extent) {
  ByteRange left{extent.offset, extent.offset + extent.bytes};
  while (const auto unknown = zeroed_.first_unknown(left)) {
    PMSTORE_TRY_STATUS(zero_range(*unknown));
    left.begin = unknown->end;
  }
  return {};
}

Status PmemobjPool::zero_range(ByteRange range) {
  if (file_.facts().medium != Medium::kDeviceDax) {
    return in_memory_ ? zero_where_read(range) : zero_between_holes(range);
  }
  memory_->zero(memory_->at(range.begin), range.end - range.begin);
  memory_->flush(memory_->at(range.begin), range.end - range.begin);
  return {};
}

uint64_t PmemobjPool::end_of_hole(ByteRange range) const {
  if (holes_are_slow_) return range.begin;
  return std::min(range.end, next_data(range.begin).value_or(range.end));
}

// A hole reads as zeroes and is durable as it is; touching it would only use up blocks.
Status PmemobjPool::zero_between_holes(ByteRange range) {
  while (range.begin < range.end) {
    const off_t data = lseek(file_.descriptor(), static_cast<off_t>(range.begin), SEEK_DATA);
    if (data < 0 && errno == ENXIO) return {};
    if (data < 0) return system_error(info_.path, "look for holes");
    const auto begin = static_cast<uint64_t>(data);
    // The end of other extents' data would be searched for a long time.
    if (begin >= range.end) return {};
    const off_t hole = lseek(file_.descriptor(), data, SEEK_HOLE);
    if (hole < 0) return system_error(info_.path, "look for holes");
    const uint64_t end = std::clamp(static_cast<uint64_t>(hole), begin, range.end);
    memory_->zero(memory_->at(begin), end - begin);
    memory_->flush(memory_->at(begin), end - begin);
    range.begin = end;
  }
  return {};
}

// What is zero in a file of the system's memory is as durable as it can be.
Status PmemobjPool::zero_where_read(ByteRange range) {
  constexpr uint64_t kReadBytes = 64 << 10;
  constexpr uint64_t kPageBytes = 4096;
  const auto read = std::make_unique_for_overwrite<std::byte[]>(kReadBytes);
  for (uint64_t at = end_of_hole(range); at < range.end; at = end_of_hole({at, range.end})) {
    const uint64_t end = std::min(range.end, round_down(at, kPageBytes) + kReadBytes);
    PMSTORE_TRY_STATUS(read_bytes(file_.descriptor(), info_.path, at, {read.get(), end - at}));
    for (const std::byte* from = read.get(); at < end;) {
      const uint64_t bytes = std::min(end, round_down(at, kPageBytes) + kPageBytes) - at;
      if (std::any_of(from, from + bytes, [](std::byte each) { return each != std::byte{0}; })) {
        memory_->zero(memory_->at(at), bytes);
        memory_->flush(memory_->at(at), bytes);
      }
      from += bytes;
      at += bytes;
    }
  }
  return {};
}

uint64_t PmemobjPool::largest_free_extent() { return heap_->largest_extent(); }

void PmemobjPool::refresh_info() {
  for (const Extent& extent : catalog_.extents) memory_->begin_area(extent.offset);
  info_.extents = catalog_.extents;
  info_.free_bytes = largest_free_extent();
}

}  // namespace pmstore::persist::internal
