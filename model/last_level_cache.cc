// Invariants: a line is in at most one way of its set; an order is a permutation of the ways.
#include "model/last_level_cache.h"

#include <algorithm>

#include "base/check.h"

namespace pmstore::model {
namespace {

uint64_t initial_order(unsigned ways) {
  uint64_t order = 0;
  for (unsigned way = 0; way < ways; ++way) order |= uint64_t{way} << (4 * way);
  return order;
}

}  // namespace

LastLevelCache::LastLevelCache(const LlcParameters& parameters, uint64_t seed)
    : ways_(static_cast<unsigned>(parameters.ways)),
      ddio_ways_(std::min(ways_, static_cast<unsigned>(parameters.ddio_ways))),
      random_victim_(parameters.random_victim),
      random_(seed) {
  const double lines = parameters.kib * 1024 / kCacheLineBytes;
  const size_t sets = std::max<size_t>(1, static_cast<size_t>(lines / ways_));
  entries_.resize(sets * ways_);
  orders_.resize(sets, initial_order(ways_));
}

LastLevelCache::Entry* LastLevelCache::in_set(size_t set, Line line) {
  Entry* first = &entries_[set * ways_];
  for (unsigned way = 0; way < ways_; ++way) {
    if (first[way].name == line.name() && first[way].valid) return first + way;
  }
  return nullptr;
}

LastLevelCache::Entry* LastLevelCache::find(Line line) {
  const size_t set = set_of(line);
  Entry* entry = in_set(set, line);
  if (entry != nullptr) make_newest(set, static_cast<unsigned>(entry - &entries_[set * ways_]));
  return entry;
}

LastLevelCache::Entry LastLevelCache::insert(Line line, User user) {
  const size_t set = set_of(line);
  PMSTORE_CHECK(in_set(set, line) == nullptr, "a line is in the cache once");
  const unsigned way = victim(set, user == kDevice);
  Entry& place = entries_[set * ways_ + way];
  const Entry gone = place;
  place = {line.name(), 1, 0, user, kDevice};
  make_newest(set, way);
  return gone;
}

LastLevelCache::Entry LastLevelCache::take_out(Line line) {
  Entry* entry = in_set(set_of(line), line);
  if (entry == nullptr) return {};
  const Entry gone = *entry;
  *entry = {};
  return gone;
}

void LastLevelCache::make_newest(size_t set, unsigned way) {
  uint64_t& order = orders_[set];
  unsigned shift = 0;
  while ((order >> shift & 15) != way) shift += 4;
  const uint64_t newer = order & ((uint64_t{1} << shift) - 1);
  const uint64_t older = shift == 60 ? 0 : order >> (shift + 4) << (shift + 4);
  order = older | newer << 4 | way;
}

unsigned LastLevelCache::victim(size_t set, bool device) {
  const unsigned allowed = device ? ddio_ways_ : ways_;
  const Entry* first = &entries_[set * ways_];
  for (unsigned way = 0; way < allowed; ++way) {
    if (!first[way].valid) return way;
  }
  if (random_victim_ > 0 && random_.uniform() < random_victim_) {
    return static_cast<unsigned>(random_.below(allowed));
  }
  unsigned oldest = ways_;
  for (unsigned i = 0; i < ways_; ++i) {
    const auto way = static_cast<unsigned>(orders_[set] >> (4 * i) & 15);
    if (way < allowed) oldest = way;
  }
  return oldest;
}

}  // namespace pmstore::model
