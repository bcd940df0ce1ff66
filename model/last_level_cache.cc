// Invariants: a line is in at most one way of its set; an order is a permutation of the ways; a way
// has a tag if and only if its entry is valid, and lines_ are.
#include "model/last_level_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pmstore::model {
namespace {

uint64_t initial_order(uint32_t ways) {
  uint64_t order = 0;
  for (uint32_t way = 0; way < ways; ++way) order |= uint64_t{way} << (4 * way);
  return order;
}

}  // namespace

LastLevelCache::LastLevelCache(const LlcParameters& parameters, uint64_t seed)
    : ways_(static_cast<uint32_t>(parameters.ways)),
      ddio_ways_(std::min(ways_, static_cast<uint32_t>(parameters.ddio_ways))),
      second_oldest_(parameters.second_oldest),
      random_(seed) {
  PMSTORE_CHECK(ways_ >= 1 && ways_ <= kMostWays, "a set has room for that many");
  const double lines = parameters.kib * 1024 / kCacheLineBytes;
  sets_count_ = std::max<size_t>(1, static_cast<size_t>(lines / ways_));
  sets_.reset(static_cast<Set*>(std::calloc(sets_count_, sizeof(Set))));
  entries_.reset(static_cast<Entry*>(std::calloc(sets_count_ * ways_, sizeof(Entry))));
  PMSTORE_CHECK(sets_ != nullptr && entries_ != nullptr, "there is memory for a modelled cache");
}

LastLevelCache::Position LastLevelCache::look_up(Line line) const {
  const size_t set = line.name() % sets_count_;
  const auto tag = static_cast<uint16_t>(1 + line.name() / sets_count_ % UINT16_MAX);
  for (uint32_t way = 0; way < ways_; ++way) {
    if (sets_[set].tags[way] == tag && entries_[set * ways_ + way].name == line.name()) {
      return {set, way, tag};
    }
  }
  return {set, kNowhere, tag};
}

LastLevelCache::Entry* LastLevelCache::find(Line line) {
  if (lines_ == 0) return nullptr;
  const Position position = look_up(line);
  if (position.way == kNowhere) return nullptr;
  make_newest(sets_[position.set], position.way);
  return &at(position.set, position.way);
}

LastLevelCache::Entry LastLevelCache::insert(Line line, User user) {
  const Position position = look_up(line);
  PMSTORE_CHECK(position.way == kNowhere, "a line is in the cache once");
  Set& set = sets_[position.set];
  if (set.order == 0) set.order = initial_order(ways_);
  const uint32_t way = victim(set, user == kDevice);
  Entry& entry = at(position.set, way);
  const Entry gone = entry;
  if (!gone.valid) ++lines_;
  entry = {line.name(), 1, 0, user, kDevice};
  set.tags[way] = position.tag;
  make_newest(set, way);
  return gone;
}

LastLevelCache::Entry LastLevelCache::take_out(Line line) {
  if (lines_ == 0) return {};
  const Position position = look_up(line);
  if (position.way == kNowhere) return {};
  PMSTORE_CHECK(lines_ > 0, "lines_ counts the lines in the cache");
  --lines_;
  sets_[position.set].tags[position.way] = 0;
  return std::exchange(at(position.set, position.way), Entry{});
}

void LastLevelCache::make_newest(Set& set, uint32_t way) {
  uint32_t shift = 0;
  while ((set.order >> shift & 15) != way) shift += 4;
  const uint64_t newer = set.order & ((uint64_t{1} << shift) - 1);
  const uint64_t older = set.order >> (shift + 4) << (shift + 4);
  set.order = older | newer << 4 | way;
}

uint32_t LastLevelCache::victim(const Set& set, bool device) {
  const uint32_t allowed = device ? ddio_ways_ : ways_;
  for (uint32_t way = 0; way < allowed; ++way) {
    if (set.tags[way] == 0) return way;
  }
  uint32_t oldest = 0;
  uint32_t second = 0;
  for (uint32_t i = 0; i < ways_; ++i) {
    const auto way = static_cast<uint32_t>(set.order >> (4 * i) & 15);
    if (way >= allowed) continue;
    second = oldest;
    oldest = way;
  }
  return allowed > 1 && random_.uniform() < second_oldest_ ? second : oldest;
}

}  // namespace pmstore::model
