#include "fs/local_data_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/atomic_copy.h"
#include "base/check.h"
#include "base/size_text.h"
#include "persist/memory.h"

namespace pmstore::fs {
namespace {

// So many bytes are moved before others get their turn: about 100 us.
constexpr size_t kPartBytes = 256 * 1024;

// Of a generation word: the start of the area in the high bits, then a number that grows.
constexpr unsigned kStartBits = 24;

constexpr size_t kZeroBytes = 64 * 1024;
alignas(64) constexpr std::byte kZeros[kZeroBytes] = {};

bool is_whole(const AreaRange& range) {
  return range.offset % kUnitBytes == 0 && range.bytes % kUnitBytes == 0;
}

UnitAllocator::Run run_of(const AreaRange& range) {
  PMSTORE_CHECK(is_whole(range), "extents are whole units");
  return {range.offset / kUnitBytes, range.bytes / kUnitBytes};
}

}  // namespace

LocalDataSpace::LocalDataSpace(base::Executor& executor, const FileArea& area)
    : executor_(executor), area_(area), allocator_(area.sections().front().units) {
  // The low bits begin anywhere: a pool that was restored has the starts of its backup.
  constexpr unsigned kLowBits = 64 - kStartBits;
  const uint64_t low = executor.random().next() >> (kStartBits + 1);
  first_word_ = area.start() << kLowBits | low;
  for (const AreaSection& section : area.sections()) {
    add_section(section);
    if (section.first_unit == 0) {
      sections_.back()->is_open = true;  // the allocator has begun with it
    } else {
      open_section(section.first_unit);
    }
  }
}

// ---- sections ----

const LocalDataSpace::Section* LocalDataSpace::find(uint64_t offset, uint64_t bytes) const {
  const auto behind = std::upper_bound(
      sections_.begin(), sections_.end(), offset,
      [](uint64_t at, const auto& section) { return at < section->place.begin(); });
  if (behind == sections_.begin()) return nullptr;
  const Section& section = **std::prev(behind);
  return section.place.has(offset, bytes) ? &section : nullptr;
}

LocalDataSpace::Section& LocalDataSpace::at_number(uint64_t first_unit) const {
  const Section* const section = find(first_unit * kUnitBytes, 1);
  PMSTORE_CHECK(section != nullptr && section->place.first_unit == first_unit,
                "a section is named by its first unit");
  return const_cast<Section&>(*section);
}

std::vector<LocalDataSpace::Reachable> LocalDataSpace::reachable() const {
  std::vector<Reachable> all;
  for (const auto& section : sections_) {
    const AreaSection& place = section->place;
    all.push_back({place.first_unit,
                   place.begin(),
                   {area_.memory().at(place.place()), place.bytes()},
                   std::as_writable_bytes(std::span(section->words.get(), place.units))});
  }
  return all;
}

void LocalDataSpace::add_section(const AreaSection& section) {
  // A number that was another unit's before could have a word twice.
  PMSTORE_CHECK(sections_.empty() ? section.begin() == 0 : section.begin() > end_,
                "numbers of units grow, and are not used again");
  auto made = std::make_unique<Section>();
  made->place = section;
  made->words = std::make_unique<uint64_t[]>(section.units);
  std::fill_n(made->words.get(), section.units, first_word_);
  end_ = section.end();
  sections_.push_back(std::move(made));
}

void LocalDataSpace::open_section(uint64_t first_unit) {
  Section& section = at_number(first_unit);
  PMSTORE_CHECK(!section.is_open, "units are handed out once");
  section.is_open = true;
  allocator_.add({first_unit, section.place.units});
}

bool LocalDataSpace::is_empty_section(uint64_t first_unit) const {
  const Section& section = at_number(first_unit);
  return section.is_open && allocator_.is_free_run({first_unit, section.place.units});
}

void LocalDataSpace::close_section(uint64_t first_unit) {
  PMSTORE_CHECK(first_unit != 0 && is_empty_section(first_unit),
                "a later section goes when none of its units is in use");
  Section& section = at_number(first_unit);
  allocator_.remove({first_unit, section.place.units});
  section.is_open = false;
}

void LocalDataSpace::drop_section(uint64_t first_unit) {
  PMSTORE_CHECK(!at_number(first_unit).is_open, "a section is closed before it goes");
  std::erase_if(sections_, [&](const auto& each) { return each->place.first_unit == first_unit; });
}

std::byte* LocalDataSpace::bytes_at(uint64_t offset, uint64_t bytes) const {
  const Section* const section = find(offset, bytes);
  if (section == nullptr) return nullptr;
  return area_.memory().at(section->place.place()) + (offset - section->place.begin());
}

void LocalDataSpace::check_taken(const AreaRange& range) const {
  PMSTORE_CHECK(is_inside(range), "a range outside of the area would be foreign memory");
  const uint64_t first = range.offset / kUnitBytes;
  const uint64_t end = (range.offset + range.bytes + kUnitBytes - 1) / kUnitBytes;
  PMSTORE_CHECK(allocator_.is_taken({first, end - first}), "a free unit is zero and nobody's");
}

// ---- which units are free ----

Status LocalDataSpace::claim(const AreaRange& range) {
  if (is_inside(range) && is_whole(range) && allocator_.claim(run_of(range))) return {};
  const bool inside = is_inside(range) && is_whole(range);
  return make_error(
      ErrorCode::kDamaged,
      fmt::format("{} at {} of the area of data server {} {}: run pmstore fs check",
                  base::size_text(range.bytes), range.offset, range.server,
                  inside ? "belong to two files" : "are named by a file and lie outside"));
}

Result<AreaRange> LocalDataSpace::allocate(uint16_t server, uint64_t least, uint64_t most) {
  PMSTORE_CHECK(server == kServer && least % kUnitBytes == 0 && most % kUnitBytes == 0,
                "whole units of a data server that is there");
  const auto run = allocator_.allocate(least / kUnitBytes, most / kUnitBytes);
  if (run) return AreaRange{kServer, run->first * kUnitBytes, run->units * kUnitBytes};
  return make_error(ErrorCode::kFull,
                    fmt::format("no {} together are free for file data ({} are free in all{}): "
                                "remove files, or create a larger pool",
                                base::size_text(least), base::size_text(free_bytes()),
                                who_has_room ? "; " + who_has_room() : ""));
}

std::optional<AreaRange> LocalDataSpace::take_unclean(uint16_t server) {
  PMSTORE_CHECK(server == kServer, "its own units");
  const auto run = allocator_.allocate(1, kMostUncleanBytes / kUnitBytes);
  if (!run) return std::nullopt;
  return AreaRange{kServer, run->first * kUnitBytes, run->units * kUnitBytes};
}

// Of a range in one section: the first byte at or behind `from` that may not be zero, range.bytes
// where none is. To read a hole, or to write zeros to it, would take a block of the file.
uint64_t LocalDataSpace::next_data(const AreaRange& range, uint64_t from) const {
  if (from >= range.bytes) return range.bytes;
  const uint64_t place = area_.memory().offset_of(at(range));
  const auto data = area_.next_data(place + from);
  if (!data || *data - place >= range.bytes) return range.bytes;
  PMSTORE_CHECK(*data >= place + from, "data is looked for in one direction");
  return *data - place;
}

// A look at a few lines of it: all of them would be as much work as zeroing.
bool LocalDataSpace::looks_zero(const AreaRange& range) const {
  constexpr uint64_t kLooks = 64;
  constexpr uint64_t kPageBytes = 4096;
  constexpr uint64_t kLineBytes = 64;
  const uint64_t lines = range.bytes / kLineBytes;
  const uint64_t step = std::max<uint64_t>(lines / kLooks, 1) * kLineBytes;
  uint64_t page_end = 0;
  for (uint64_t done = 0; done < range.bytes; done += step) {
    if (done >= page_end) {
      done = next_data(range, done);
      if (done == range.bytes) return true;
      page_end = done - done % kPageBytes + kPageBytes;
    }
    if (std::memcmp(at(range) + done, kZeros, kLineBytes) != 0) return false;
  }
  return true;
}

void LocalDataSpace::release(const AreaRange& range) {
  check_taken(range);
  if (!looks_zero(range)) {
    PMSTORE_CHECK(gate_ != nullptr, "a unit that is free is zero");
    // A client that has confirmed that it has no map of it has written there nevertheless.
    for (uint64_t done = 0; done < range.bytes; done += kZeroBytes) {
      area_.memory().write(at(range) + done, kZeros, std::min(kZeroBytes, range.bytes - done));
    }
    // What is not durable is kept out of use.
    if (!area_.memory().drain()) return;
  }
  allocator_.release(run_of(range));
  if (released) released(find(range.offset, range.bytes)->place.first_unit);
}

// ---- generation words ----

uint64_t& LocalDataSpace::word_of(uint64_t offset) const {
  const Section* const section = find(offset, 1);
  PMSTORE_CHECK(section != nullptr, "each unit has a word");
  return section->words[offset / kUnitBytes - section->place.first_unit];
}

uint64_t LocalDataSpace::word_at(uint64_t offset) const {
  return __atomic_load_n(&word_of(offset), __ATOMIC_ACQUIRE);
}

void LocalDataSpace::set_word(uint64_t offset, uint64_t word) {
  __atomic_store_n(&word_of(offset), word, __ATOMIC_RELEASE);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

uint64_t LocalDataSpace::renew_words() {
  uint64_t last = 0;
  for (const auto& section : sections_) {
    const uint64_t* const words = section->words.get();
    last = std::max(last, *std::max_element(words, words + section->place.units));
  }
  for (const auto& section : sections_) {
    for (uint64_t unit = 0; unit < section->place.units; ++unit) {
      __atomic_store_n(&section->words[unit], last + 1, __ATOMIC_RELEASE);
    }
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return last + 1;
}

uint64_t LocalDataSpace::generation(const AreaRange& range) const {
  check_taken(range);
  return word_at(range.offset);
}

base::Task<Status> LocalDataSpace::change_generations(std::vector<AreaRange> ranges) {
  for (const AreaRange& range : ranges) {
    check_taken(range);
    uint64_t& word = word_of(range.offset);
    __atomic_store_n(&word, word + 1, __ATOMIC_RELEASE);
  }
  // What a READ gives is coherent with this CPU's caches: from here on it is the new value.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  co_return Status{};
}

// ---- bytes ----

base::Task<Status> LocalDataSpace::write(AreaRange range, std::span<const std::byte> bytes) {
  check_taken(range);
  PMSTORE_CHECK(bytes.size() == range.bytes, "a range is written as a whole");
  persist::Memory& memory = area_.memory();
  for (size_t done = 0; done < bytes.size();) {
    if (done > 0) co_await executor_.yield();
    const size_t part = std::min(kPartBytes, bytes.size() - done);
    memory.write(at(range) + done, bytes.data() + done, part);
    done += part;
  }
  const auto durable = memory.drain();
  if (!durable) co_return durable.error();
  co_return Status{};
}

base::Task<Status> LocalDataSpace::zero(AreaRange range) {
  check_taken(range);
  persist::Memory& memory = area_.memory();
  for (uint64_t done = 0; done < range.bytes;) {
    if (done > 0) co_await executor_.yield();
    const uint64_t end = std::min(done + kPartBytes, range.bytes);
    while (done < end) {
      done = next_data(range, done);
      if (done >= end) break;  // a hole is zero, durably
      const uint64_t piece = std::min<uint64_t>(kZeroBytes, end - done);
      memory.write(at(range) + done, kZeros, piece);
      done += piece;
    }
    // Each part by itself: one msync of a large range would keep everybody waiting.
    const auto durable = memory.drain();
    if (!durable) co_return durable.error();
  }
  co_return Status{};
}

base::Task<Status> LocalDataSpace::read(AreaRange range, std::span<std::byte> into) {
  check_taken(range);
  PMSTORE_CHECK(into.size() == range.bytes, "a range is read as a whole");
  for (size_t done = 0; done < into.size();) {
    if (done > 0) co_await executor_.yield();
    const size_t part = std::min(kPartBytes, into.size() - done);
    base::copy_from_shared(into.data() + done, at(range) + done, part);
    done += part;
  }
  co_return Status{};
}

base::Task<Status> LocalDataSpace::clean(AreaRange range) {
  PMSTORE_CHECK(is_whole(range), "whole units are cleaned");
  check_taken(range);
  if (gate_ != nullptr) {
    PMSTORE_CO_TRY_STATUS(co_await gate_->closed(range));
  }
  co_return co_await zero(range);
}

}  // namespace pmstore::fs
