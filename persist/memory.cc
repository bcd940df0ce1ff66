// Invariants: unsynced_ exists exactly with Domain::kNone. Every store is inside mapping_.
#include "persist/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/atomic_copy.h"
#include "base/check.h"
#include "base/checksum.h"
#include "persist/internal/copy_summed.h"
#include "persist/internal/dirty_pages.h"
#include "persist/internal/instructions.h"
#include "persist/padding.h"

namespace pmstore::persist {

struct Memory::Unsynced {
  internal::DirtyPages pages;
  int failed_errno = 0;  // of the first msync that failed; stays
};

namespace {

// Which shard this thread counts in.
size_t thread_shard() {
  static std::atomic<size_t> threads{0};
  thread_local const size_t mine =
      threads.fetch_add(1, std::memory_order_relaxed) % Memory::kStatsShards;
  return mine;
}

// Asked once: in a virtual machine CPUID costs an exit to the hypervisor.
uint8_t this_cpus_flush_instruction() {
  static const auto best = static_cast<uint8_t>(internal::best_flush_instruction());
  return best;
}

// As store() and flush(); whole lines 16 bytes at a time.
void write_through_caches(Memory& memory, void* to, const void* from, size_t bytes) {
  if ((reinterpret_cast<uintptr_t>(to) | bytes) % kLineBytes != 0) {
    memory.store(to, from, bytes);
  } else {
    PMSTORE_CHECK(memory.contains(memory.offset_of(to), bytes),
                  "a store outside the pool would hit foreign memory");
    if (memory.observer() != nullptr) [[unlikely]] {
      memory.observer()->on_store(to, from, bytes, false);
    }
    internal::copy_lines(to, from, bytes / kLineBytes);
  }
  memory.flush(to, bytes);
}

void add(std::atomic<uint64_t>& counter, uint64_t n) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

}  // namespace

Memory::Memory(std::span<std::byte> mapping, MemoryOptions options)
    : mapping_(mapping), options_(options), flush_instruction_(this_cpus_flush_instruction()) {
  if (options.domain == Domain::kNone) {
    auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    unsynced_ = std::make_unique<Unsynced>(Unsynced{internal::DirtyPages(page_bytes), 0});
  }
}

Memory::~Memory() = default;

inline void Memory::check_inside(const void* address, size_t bytes) const {
  PMSTORE_CHECK(contains(offset_of(address), bytes),
                "a store outside the pool would hit foreign memory");
}

inline Memory::StatsShard& Memory::my_stats() { return stats_[thread_shard()]; }

void Memory::store(void* to, const void* from, size_t bytes) {
  check_inside(to, bytes);
  if (observer_) [[unlikely]]
    observer_->on_store(to, from, bytes, false);
  base::copy_to_shared(to, from, bytes);
}

void Memory::store64(uint64_t* to, uint64_t value) {
  check_inside(to, sizeof value);
  PMSTORE_CHECK(base::aligned8(to), "an unaligned word can be torn");
  if (observer_) [[unlikely]]
    observer_->on_store(to, &value, sizeof value, false);
  __atomic_store_n(to, value, __ATOMIC_RELAXED);
}

void Memory::zero(void* to, size_t bytes) {
  static constexpr std::byte kZeros[4096] = {};
  check_inside(to, bytes);
  auto* target = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const size_t piece = std::min(bytes, sizeof kZeros);
    store(target, kZeros, piece);
    target += piece;
    bytes -= piece;
  }
}

void Memory::flush(const void* from, size_t bytes) {
  if (bytes == 0) return;
  check_inside(from, bytes);
  if (observer_) [[unlikely]]
    observer_->on_flush(from, bytes);
  const auto begin = reinterpret_cast<uintptr_t>(from);
  switch (options_.domain) {
    case Domain::kCpuCache: return;
    case Domain::kMemoryController: {
      const auto instruction = static_cast<internal::FlushInstruction>(flush_instruction_);
      const uintptr_t end = begin + bytes;
      uintptr_t line = round_down(begin, kLineBytes);
      add(my_stats().flushed_lines, (round_up(end, kLineBytes) - line) / kLineBytes);
      for (; line < end; line += kLineBytes) {
        internal::flush_line(instruction, reinterpret_cast<const void*>(line));
      }
      return;
    }
    case Domain::kNone: unsynced_->pages.note(begin, begin + bytes); return;
  }
}

void Memory::write(void* to, const void* from, size_t bytes) {
  if (streams(bytes)) return write_non_temporal(to, from, bytes);
  write_through_caches(*this, to, from, bytes);
}

void Memory::write_non_temporal(void* to, const void* from, size_t bytes) {
  write_past_caches(to, from, bytes);
  end_parts();
}

void Memory::write_part(void* to, const void* from, size_t bytes, size_t whole) {
  if (streams(whole)) return write_past_caches(to, from, bytes);
  write_through_caches(*this, to, from, bytes);
}

void Memory::write_fresh_part(void* to, const void* from, size_t bytes) {
  const bool few = options_.domain == Domain::kMemoryController && !streams(bytes) &&
                   options_.non_temporal_bytes != SIZE_MAX;
  write_part(to, from, bytes, few ? options_.non_temporal_bytes : bytes);
}

bool Memory::write_frame(void* to, std::span<const uint64_t> head, std::span<const std::byte> body,
                         size_t bytes, uint32_t crc) {
  static const bool sums = internal::processor_sums();
  const bool streamed = options_.domain == Domain::kMemoryController ||
                        (options_.domain == Domain::kCpuCache && streams(bytes));
  if (!sums || observer_ != nullptr || streamed) return false;
  check_inside(to, bytes);
  PMSTORE_CHECK(base::aligned8(to) && bytes % sizeof(uint64_t) == 0 &&
                    bytes >= head.size_bytes() + body.size() && !head.empty(),
                "the frame has room for what is in it");
  internal::store_frame(static_cast<uint64_t*>(to), head, body, bytes / sizeof(uint64_t), crc);
  if (options_.domain == Domain::kNone) flush(to, bytes);
  return true;
}

uint32_t Memory::write_part_summed(void* to, const void* from, size_t bytes, size_t whole,
                                   uint32_t crc) {
  auto* target = static_cast<std::byte*>(to);
  auto* source = static_cast<const std::byte*>(from);
  if (reinterpret_cast<uintptr_t>(to) % kLineBytes == 0 && internal::processor_sums()) {
    const size_t lines = bytes / kLineBytes;
    crc = write_lines_summed(target, source, lines, streams(whole), crc);
    target += lines * kLineBytes;
    source += lines * kLineBytes;
    bytes -= lines * kLineBytes;
  }
  alignas(kLineBytes) std::byte piece[8 * kLineBytes];
  while (bytes > 0) {
    const size_t count = std::min(bytes, sizeof piece);
    std::memcpy(piece, source, count);
    crc = base::crc32c({piece, count}, crc);
    write_part(target, piece, count, whole);
    target += count;
    source += count;
    bytes -= count;
  }
  return crc;
}

uint32_t Memory::write_lines_summed(std::byte* to, const std::byte* from, size_t lines,
                                    bool past_caches, uint32_t crc) {
  if (lines == 0) return crc;
  const size_t bytes = lines * kLineBytes;
  check_inside(to, bytes);
  past_caches = past_caches && options_.domain != Domain::kNone;
  if (observer_) [[unlikely]]
    observer_->on_store(to, from, bytes, past_caches);
  using enum internal::CopyPath;
  crc = internal::copy_lines_summed(to, from, lines, past_caches ? kPastCaches : kCached, crc,
                                    internal::best_width(lines));
  if (!past_caches) flush(to, bytes);
  return crc;
}

// Non-temporal stores may otherwise become visible after later stores, such as the word that
// publishes this data. The drain that follows has then nothing left to wait for.
void Memory::end_parts() {
  if (options_.domain == Domain::kNone) return;
  if (observer_) [[unlikely]]
    observer_->on_fence();
  internal::store_fence();
}

void Memory::write_past_caches(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  auto* source = static_cast<const std::byte*>(from);
  // The ends that are not whole lines go through the cache: a partial non-temporal store costs the
  // memory a read-modify-write.
  const auto misaligned = reinterpret_cast<uintptr_t>(target) % kLineBytes;
  const size_t head = misaligned == 0 ? 0 : std::min(bytes, kLineBytes - misaligned);
  const size_t whole = round_down(bytes - head, kLineBytes);
  if (options_.domain == Domain::kNone || whole == 0) {
    return write_through_caches(*this, to, from, bytes);
  }
  if (head > 0) {
    store(target, source, head);
    flush(target, head);
  }
  check_inside(target + head, whole);
  if (observer_) [[unlikely]]
    observer_->on_store(target + head, source + head, whole, true);
  internal::copy_lines_non_temporal(target + head, source + head, whole / kLineBytes);
  if (const size_t tail = bytes - head - whole; tail > 0) {
    store(target + head + whole, source + head + whole, tail);
    flush(target + head + whole, tail);
  }
}

void Memory::begin_area(uint64_t offset) {
  if (unsynced_ == nullptr) return;
  PMSTORE_CHECK(contains(offset, 1), "an area is in the memory");
  unsynced_->pages.begin_area(reinterpret_cast<uintptr_t>(at(offset)));
}

void Memory::end_areas(uint64_t offset, uint64_t bytes) {
  if (unsynced_ == nullptr) return;
  PMSTORE_CHECK(contains(offset, bytes), "an area is in the memory");
  const auto first = reinterpret_cast<uintptr_t>(at(offset));
  unsynced_->pages.end_areas(first, first + bytes);
}

Result<Persisted> Memory::drain() {
  if (observer_) [[unlikely]]
    observer_->on_drain();
  add(my_stats().drains, 1);
  if (options_.domain == Domain::kNone) return synchronize();
  internal::store_fence();
  return Persisted();
}

Result<Persisted> Memory::synchronize() {
  PMSTORE_CHECK(unsynced_ != nullptr, "pages are remembered without a persistence domain");
  for (const internal::PageRange& range : unsynced_->pages.ranges()) {
    if (unsynced_->failed_errno != 0) break;
    if (range.is_empty()) continue;
    add(my_stats().msyncs, 1);
    auto* const pages = reinterpret_cast<void*>(range.begin);
    if (observer_) [[unlikely]]
      observer_->on_sync(pages, range.end - range.begin);
    if (msync(pages, range.end - range.begin, MS_SYNC) != 0) {
      unsynced_->failed_errno = errno;
    }
  }
  unsynced_->pages.clear();
  if (unsynced_->failed_errno == 0) return Persisted();
  return make_error(
      ErrorCode::kIo,
      fmt::format("cannot make stores durable: msync: {}; what was written since the last "
                  "success may be lost: check the disk, then open the pool again",
                  std::strerror(unsynced_->failed_errno)));
}

bool Memory::failed() const { return unsynced_ != nullptr && unsynced_->failed_errno != 0; }

MemoryStats Memory::stats() const {
  MemoryStats sum;
  for (const StatsShard& shard : stats_) {
    sum.flushed_lines += shard.flushed_lines.load(std::memory_order_relaxed);
    sum.drains += shard.drains.load(std::memory_order_relaxed);
    sum.msyncs += shard.msyncs.load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace pmstore::persist
