// Memory: the only way to store to persistent memory.
//
// It is a mapped range with a persistence domain. store() makes data visible; flush() starts it on
// its way; drain() waits until everything flushed before by this thread is durable and gives the
// Persisted token. Stores are relaxed 8-byte atomics, because RNICs and other threads read
// concurrently.
//   ADR:   flush = clwb (clflushopt or clflush where the CPU has no clwb) per line, drain = sfence
//   eADR:  flush = nothing, drain = sfence
//   none:  flush = remember the pages, drain = one msync for each area of the memory
// Threads: store() and flush() from any thread on disjoint ranges; with Domain::kNone
// flush()/drain() from one thread at a time (it keeps the list of pages). Lifetime: the mapping is
// borrowed. Every store is visible to other threads in program order, the non-temporal ones too (a
// fence follows them, but for parts: end_parts() or drain() is theirs), so publishing after write()
// needs no drain(). docs/persist.md has the costs.
// An Observer sees every step in order; that is how the modelled machine crashes it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "persist/domain.h"
#include "persist/persisted.h"

namespace pmstore::persist {

// Each call comes before the step takes effect, from the thread that makes it. A non-temporal store
// needs no flush: the next drain makes it durable; under eADR the next fence does. A write() is
// reported as the steps that it consists of.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_store(const void* to, const void* from, size_t bytes, bool non_temporal) = 0;
  virtual void on_flush(const void* from, size_t bytes) = 0;
  virtual void on_drain() = 0;
  // A fence that is not a drain: non-temporal stores before it are visible and, under eADR,
  // durable.
  virtual void on_fence() {}
  // Domain::kNone, in a drain: an msync of these pages.
  virtual void on_sync(const void* /*from*/, size_t /*bytes*/) {}
};

// Exact for up to Memory::kStatsShards threads; above that, threads that share a shard may lose
// counts.
struct MemoryStats {
  uint64_t flushed_lines = 0;
  uint64_t drains = 0;
  uint64_t msyncs = 0;
};

struct MemoryOptions {
  Domain domain = Domain::kNone;
  // Rule H4: copies of at least this many bytes use non-temporal stores; SIZE_MAX switches it off.
  size_t non_temporal_bytes = 256;
};

class Memory {
 public:
  Memory(std::span<std::byte> mapping, MemoryOptions options);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* base() const { return mapping_.data(); }
  size_t bytes() const { return mapping_.size(); }
  std::span<std::byte> mapping() const { return mapping_; }
  Domain domain() const { return options_.domain; }
  std::byte* at(uint64_t offset) const { return mapping_.data() + offset; }
  uint64_t offset_of(const void* address) const {
    return static_cast<uint64_t>(static_cast<const std::byte*>(address) - mapping_.data());
  }
  bool contains(uint64_t offset, uint64_t count) const {
    return offset <= mapping_.size() && count <= mapping_.size() - offset;
  }

  // Visible on return, not durable. [to, to+bytes) must be inside the mapping (CHECK).
  void store(void* to, const void* from, size_t bytes);
  void store64(uint64_t* to, uint64_t value);  // aligned; never torn
  void zero(void* to, size_t bytes);
  // Starts the lines of [from, from+bytes) on their way.
  void flush(const void* from, size_t bytes);
  // store() + flush(), with non-temporal stores where the rule says so. Not durable before drain().
  // Domain::kNone never uses non-temporal stores: its data goes through the page cache.
  void write(void* to, const void* from, size_t bytes);
  // The same with non-temporal stores for every whole line, whatever the size (rule H7).
  void write_non_temporal(void* to, const void* from, size_t bytes);
  // A part of a write() of `whole` bytes. Until end_parts() the parts, and stores that follow, may
  // become visible to other threads in any order: a fence for each part would cost as much as 2
  // KiB.
  void write_part(void* to, const void* from, size_t bytes, size_t whole);
  // The same, with the CRC32C of what was stored after bytes whose sum is `crc`. Each byte is read
  // once: the sum is right even while somebody else writes to `from`. In one pass where `to` is
  // aligned to a line.
  uint32_t write_part_summed(void* to, const void* from, size_t bytes, size_t whole, uint32_t crc);
  // A part whose place is not in the caches, as behind the tail of a log: whole lines go past them
  // also where they are few, when they would have to be flushed (adr, rule H7). That saves reading
  // them and flushing them.
  void write_fresh_part(void* to, const void* from, size_t bytes);
  // A small part that carries its own sum, as store_frame() in persist/internal/copy_summed.h lays
  // it out in `bytes`, a multiple of 8 that holds head and body. False, and nothing is stored,
  // where it is better laid out elsewhere and written as a whole.
  bool write_frame(void* to, std::span<const uint64_t> head, std::span<const std::byte> body,
                   size_t bytes, uint32_t crc);
  // drain() ends parts as well.
  void end_parts();
  // What lies from `offset` to where the next area begins belongs together. Domain::kNone only:
  // a drain is one msync for each area in which something was flushed, from the first such page to
  // the last. Without this call all of the memory is one area.
  void begin_area(uint64_t offset);
  // What lies in [offset, offset+bytes) does not belong together any more: no area begins there,
  // nor directly behind it, until begin_area() says so again.
  void end_areas(uint64_t offset, uint64_t bytes);
  // Io when msync fails (Domain::kNone only): then nothing since the last drain may be called
  // durable, and every later drain fails too, because the kernel reports a lost page once and then
  // calls it clean.
  Result<Persisted> drain();

  // Whether a drain has failed.
  bool failed() const;

  // nullptr for none. Borrowed.
  void set_observer(Observer* observer) { observer_ = observer; }
  Observer* observer() const { return observer_; }
  MemoryStats stats() const;

  static constexpr size_t kStatsShards = 32;

 private:
  // Each thread counts in a cache line of its own, with plain loads and stores.
  struct alignas(64) StatsShard {
    std::atomic<uint64_t> flushed_lines{0};
    std::atomic<uint64_t> drains{0};
    std::atomic<uint64_t> msyncs{0};
  };
  struct Unsynced;

  void check_inside(const void* address, size_t bytes) const;
  StatsShard& my_stats();
  bool streams(size_t whole) const { return whole >= options_.non_temporal_bytes; }
  void write_past_caches(void* to, const void* from, size_t bytes);
  uint32_t write_lines_summed(std::byte* to, const std::byte* from, size_t lines, bool past_caches,
                              uint32_t crc);
  Result<Persisted> synchronize();

  std::span<std::byte> mapping_;
  MemoryOptions options_;
  uint8_t flush_instruction_;
  Observer* observer_ = nullptr;
  std::unique_ptr<Unsynced> unsynced_;  // Domain::kNone only
  std::array<StatsShard, kStatsShards> stats_;
};

}  // namespace pmstore::persist
