// LastLevelCache: the lines in the caches of one socket, and which line a new one evicts.
//
// One level stands for all of a socket's caches: a line remembers the core that touched it last,
// whose own caches are taken to hold it. Modelled: sets and ways; devices bring lines into the DDIO
// ways only (and change lines in place wherever they are); the line that goes is the least recently
// used one of the ways allowed, but for a share of evictions that takes the one after it, as a
// pseudo-LRU does. That share is what brings lines of one XPLine to the DIMM at different times.
// Left out: the slices and their hash (so neighbouring lines are in neighbouring sets), capacity of
// the cores' own caches, prefetching. One thread. Random numbers come from a seeded generator: the
// same calls give the same victims.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "base/random.h"
#include "model/line.h"
#include "model/parameters.h"

namespace pmstore::model {

class LastLevelCache {
 public:
  LastLevelCache(const LlcParameters& parameters, uint64_t seed);

  using User = uint8_t;  // core + 1
  static constexpr User kDevice = 0;

  struct Entry {
    uint64_t name : Line::kBits;
    uint64_t valid : 1;
    uint64_t dirty : 1;
    uint64_t user : 8;    // the core or device that touched it last
    uint64_t writer : 8;  // the core or device that wrote it last, if dirty
  };
  static_assert(sizeof(Entry) == 8);

  // The line, now the most recently used one of its set; nullptr when it is not there. Valid until
  // the next insert() or take_out().
  Entry* find(Line line);
  // Adds a line that is not in the cache, clean. Gives the evicted entry (valid == 0: none).
  Entry insert(Line line, User user);
  // Removes a line. Gives its entry (valid == 0: it was not in the cache).
  Entry take_out(Line line);
  // Calls visit(line) for each dirty line.
  template <typename Visit>
  void each_dirty(Visit&& visit) const {
    for (const Entry& entry : std::span(entries_.get(), lines_ == 0 ? 0 : sets_count_ * ways_)) {
      if (entry.valid && entry.dirty) visit(Line::from_name(entry.name));
    }
  }
  // Calls visit(line) for each dirty line and makes it clean.
  template <typename Visit>
  void clean_all(Visit&& visit) {
    for (Entry& entry : std::span(entries_.get(), lines_ == 0 ? 0 : sets_count_ * ways_)) {
      if (entry.valid && entry.dirty) visit(Line::from_name(entry.name));
      entry.dirty = 0;
    }
  }

 private:
  static constexpr unsigned kMostWays = 12;
  static constexpr uint32_t kNowhere = UINT32_MAX;

  // The data of a look-up: half a cache line of the real machine, so that a look-up costs one miss.
  struct Set {
    uint64_t order;            // its ways, 4 bits each, the newest lowest; 0: never used
    uint16_t tags[kMostWays];  // of the lines; 0: the way is empty
  };
  static_assert(sizeof(Set) == 32);
  struct Position {
    size_t set;
    uint32_t way;  // kNowhere: not in the set
    uint16_t tag;
  };

  struct FreeMemory {
    void operator()(void* memory) const { std::free(memory); }
  };

  Position look_up(Line line) const;
  Entry& at(size_t set, uint32_t way) { return entries_[set * ways_ + way]; }
  void make_newest(Set& set, uint32_t way);
  uint32_t victim(const Set& set, bool device);

  uint32_t ways_, ddio_ways_;
  double second_oldest_;
  size_t lines_ = 0;  // that are in
  // All zero bytes at the start, and so not touched: most modelled hosts use little of it.
  size_t sets_count_;
  std::unique_ptr<Set[], FreeMemory> sets_;
  std::unique_ptr<Entry[], FreeMemory> entries_;  // ways_ for each set; devices: the first few
  Random random_;
};

}  // namespace pmstore::model
