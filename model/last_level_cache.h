// LastLevelCache: which lines the caches of one socket hold, and which goes when one comes.
//
// One level stands for all of a socket's caches: a line remembers the core that touched it last,
// whose own caches are taken to hold it. Modelled: sets and ways; devices bring lines into the DDIO
// ways only (and change lines in place wherever they are); the line that goes is the least recently
// used one of the ways allowed, but for a share of evictions that takes any of them. That share is
// what brings lines of one XPLine to the DIMM at different times. Left out: the slices and their
// hash (so neighbouring lines are in neighbouring sets), capacity of the cores' own caches,
// prefetching.
// One thread. Random numbers come from a seeded generator: the same calls give the same victims.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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
    uint64_t user : 8;    // who touched it last
    uint64_t writer : 8;  // who wrote it last, if dirty
  };
  static_assert(sizeof(Entry) == 8);

  // The line, now the most recently used one of its set; nullptr when it is not there. Valid until
  // the next insert() or take_out().
  Entry* find(Line line);
  // Brings in a line that is not there, clean; gives what had to go (valid == 0: nothing).
  Entry insert(Line line, User user);
  // Takes a line out; gives what it was (valid == 0: it was not there).
  Entry take_out(Line line);
  // Calls visit(line) for each dirty line and makes it clean.
  template <typename Visit>
  void clean_all(Visit&& visit) {
    for (Entry& entry : entries_) {
      if (entry.valid && entry.dirty) visit(Line::from_name(entry.name));
      entry.dirty = 0;
    }
  }

 private:
  size_t set_of(Line line) const { return line.name() % orders_.size(); }
  Entry* in_set(size_t set, Line line);
  void make_newest(size_t set, unsigned way);
  unsigned victim(size_t set, bool device);

  unsigned ways_, ddio_ways_;
  double random_victim_;
  std::vector<Entry> entries_;    // ways_ for each set; devices allocate in the first ddio_ways_
  std::vector<uint64_t> orders_;  // of each set: its ways, 4 bits each, the newest lowest
  Random random_;
};

}  // namespace pmstore::model
