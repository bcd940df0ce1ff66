// MapCache: the maps of files that a client has heard of, the last ones used.
//
// A map is one contiguous part of a file's map, with the file's size. It may be used in the session
// with the data servers that was there before it was asked for, until news say that it is stale.
// Invariant: every map in the cache has all changes that the client has confirmed. Threads: one.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fs/internal/data_links.h"
#include "fs/namespace.h"
#include "fs/types.h"

namespace pmstore::fs::internal {

struct CachedMap {
  Attributes attributes;  // as they were last heard of
  DataSessions sessions;  // in which it may be used
  uint64_t from = 0;      // the part of the file that is known
  uint64_t to = 0;
  std::vector<MapExtent> extents;  // in order
  // Ranges without an extent may have one by now: so many accesses to them were made by calls.
  unsigned holes_hit = 0;

  // Bytes from `offset` on, at most `most`, that extents have one after the other.
  uint64_t allocated_from(uint64_t offset, uint64_t most) const;
  bool knows(uint64_t offset) const { return from <= offset && offset < to; }
  // Of the extent that has the byte at `offset`; the end if none has.
  std::vector<MapExtent>::const_iterator extent_at(uint64_t offset) const;
};
using CachedMapRef = std::shared_ptr<CachedMap>;

class MapCache {
 public:
  explicit MapCache(size_t most) : most_(most) {}

  // nullptr: none is known.
  CachedMapRef find(Ino ino);
  // False: a change that it does not have was heard of meanwhile.
  bool put(Ino ino, CachedMapRef map, uint64_t news_before);
  void forget(Ino ino);
  // News through this number: these files have changed, or any.
  void drop(uint64_t through, bool all, const std::vector<Ino>& changed);
  // The server knows nothing of this client any more: its news begin anew.
  void clear();
  // The attributes of a file were heard of.
  void note(const Attributes& attributes);
  size_t size() const { return maps_.size(); }

 private:
  struct Entry {
    CachedMapRef map;
    std::list<Ino>::iterator used;
  };
  const size_t most_;
  std::unordered_map<uint64_t, Entry> maps_;
  std::list<Ino> used_;  // the last one used is last
  uint64_t dropped_through_ = 0;
};

}  // namespace pmstore::fs::internal
