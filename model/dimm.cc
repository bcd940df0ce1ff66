// Invariants: used_ <= entries_.size(); every entry in use is in the list by last use and in one
// chain; the writes_of_ of all cores sum up to the entries of recent_ that are not kDevice, and
// writers_ of them are not 0.
#include "model/dimm.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/random.h"
#include "model/picoseconds.h"

namespace pmstore::model {

Dimm::Dimm(const DimmParameters& parameters, const Now* now)
    : entries_(static_cast<size_t>(parameters.combining_lines)),
      buckets_(std::bit_ceil(2 * entries_.size()), kNone),
      media_(now),
      to_media_(static_cast<size_t>(parameters.media_queue)),
      read_ps_(to_ps(parameters.media_read_ns)),
      write_ps_(to_ps(parameters.media_write_ns)),
      turn_ps_(to_ps(parameters.read_write_turn_ns)),
      miss_latency_ps_(to_ps(parameters.read_latency_ns)),
      hit_latency_ps_(to_ps(parameters.buffer_latency_ns)) {
  const double span = std::max(1.0, parameters.crowd_full - parameters.crowd_begin);
  for (size_t writers = 0; writers <= kRecentWrites; ++writers) {
    const double crowded = (static_cast<double>(writers) - parameters.crowd_begin) / span;
    slowdown_.push_back(1 / (1 - parameters.crowd_loss * std::clamp(crowded, 0.0, 1.0)));
  }
}

uint64_t Dimm::write(uint64_t at_ps, uint64_t address, Writer writer) {
  ++counters_.write_requests;
  note_writer(writer);
  if (!absorb(address >> kXpLineShift)) return at_ps;
  const uint64_t taken_ps = to_media_.room_at(at_ps);
  to_media_.enter(media(at_ps, Direction::kWrite, writer));
  return taken_ps;
}

void Dimm::write_untimed(uint64_t address) {
  ++counters_.write_requests;
  if (absorb(address >> kXpLineShift)) ++counters_.media_writes;
}

bool Dimm::absorb(uint64_t xpline) {
  uint32_t entry = find(xpline);
  bool written_out = false;
  if (entry != kNone) {
    touch(entry);
  } else {
    written_out = make_room();
    entry = add(xpline);
  }
  entries_[entry].written = true;
  return written_out;
}

uint64_t Dimm::read(uint64_t at_ps, uint64_t address, Writer reader) {
  ++counters_.read_requests;
  const uint64_t xpline = address >> kXpLineShift;
  const uint32_t entry = find(xpline);
  if (entry != kNone) {
    touch(entry);
    return at_ps + hit_latency_ps_;
  }
  const uint64_t read_ps = media(at_ps, Direction::kRead, reader);
  if (make_room()) to_media_.enter(media(at_ps, Direction::kWrite, reader));
  add(xpline);
  return std::max(at_ps + miss_latency_ps_, read_ps + miss_latency_ps_ - read_ps_);
}

void Dimm::settle() {
  for (uint32_t i = 0; i < used_; ++i) {
    if (entries_[i].written) ++counters_.media_writes;
    entries_[i].written = false;
  }
}

uint64_t Dimm::media(uint64_t at_ps, Direction direction, Writer who) {
  const bool reading = direction == Direction::kRead;
  ++(reading ? counters_.media_reads : counters_.media_writes);
  uint64_t service_ps = reading ? read_ps_ : write_ps_;
  if (direction != last_) service_ps += turn_ps_;
  last_ = direction;
  if (who != kDevice) {
    const double slower = static_cast<double>(service_ps) * slowdown_[writers_];
    service_ps = static_cast<uint64_t>(slower + 0.5);
  }
  return media_.take(at_ps, service_ps);
}

void Dimm::note_writer(Writer writer) {
  if (writer == kDevice) return;
  const Writer forgotten = std::exchange(recent_[next_recent_], writer);
  if (++next_recent_ == kRecentWrites) next_recent_ = 0;
  if (forgotten != kDevice && --writes_of_[forgotten] == 0) --writers_;
  if (writes_of_[writer]++ == 0) ++writers_;
}

uint32_t& Dimm::bucket(uint64_t xpline) {
  return buckets_[base::mix64(xpline) & (buckets_.size() - 1)];
}

uint32_t Dimm::find(uint64_t xpline) const {
  uint32_t entry = const_cast<Dimm*>(this)->bucket(xpline);
  while (entry != kNone && entries_[entry].xpline != xpline) entry = entries_[entry].chained;
  return entry;
}

bool Dimm::make_room() {
  if (used_ < entries_.size()) return false;
  Entry& victim = entries_[oldest_];
  uint32_t* link = &bucket(victim.xpline);
  while (*link != oldest_) link = &entries_[*link].chained;
  *link = victim.chained;
  return victim.written;
}

uint32_t Dimm::add(uint64_t xpline) {
  uint32_t entry;
  if (used_ < entries_.size()) {
    entry = used_++;
  } else {
    entry = oldest_;
    unlink(entry);
  }
  uint32_t& first = bucket(xpline);
  entries_[entry] = {xpline, kNone, kNone, first, false};
  first = entry;
  link_newest(entry);
  return entry;
}

void Dimm::touch(uint32_t entry) {
  if (entry == newest_) return;
  unlink(entry);
  link_newest(entry);
}

void Dimm::unlink(uint32_t entry) {
  const Entry& e = entries_[entry];
  (e.newer == kNone ? newest_ : entries_[e.newer].older) = e.older;
  (e.older == kNone ? oldest_ : entries_[e.older].newer) = e.newer;
}

void Dimm::link_newest(uint32_t entry) {
  entries_[entry].newer = kNone;
  entries_[entry].older = newest_;
  (newest_ == kNone ? oldest_ : entries_[newest_].newer) = entry;
  newest_ = entry;
}

}  // namespace pmstore::model
