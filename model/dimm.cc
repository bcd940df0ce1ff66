// Invariants: used_ <= entries_.size(); every entry in use is in the list by last use and in one
// chain; cores_[core_of_[w] - 1].writer is w; the writes_of_ of all cores sum up to the entries of
// recent_ that are not kDevice, and recent_writers_ of them are not 0.
#include "model/dimm.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
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
      hit_latency_ps_(to_ps(parameters.buffer_latency_ns)),
      now_(now) {
  const double span = std::max(1.0, parameters.crowd_full - parameters.crowd_begin);
  for (size_t writers = 0; writers < core_of_.size(); ++writers) {
    const double crowded = (static_cast<double>(writers) - parameters.crowd_begin) / span;
    slowdown_.push_back(1 / (1 - parameters.crowd_loss * std::clamp(crowded, 0.0, 1.0)));
  }
}

uint64_t Dimm::write(uint64_t at_ps, uint64_t address, Writer writer, bool evicted) {
  ++counters_.write_requests;
  if (writer != kDevice) writers_ = crowd_with(at_ps, writer);
  uint64_t taken_ps = at_ps;
  if (absorb(address >> kXpLineShift)) {
    taken_ps = to_media_.room_at(at_ps);
    to_media_.enter(media(at_ps, Direction::kWrite, writer));
  }
  if (writer != kDevice && !evicted) cores_[core_of_[writer] - 1u].taken_ps = taken_ps;
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

uint32_t Dimm::crowd_with(uint64_t at_ps, Writer writer) {
  if (core_of_[writer] == 0) {
    cores_.push_back({writer, 0});
    core_of_[writer] = static_cast<uint8_t>(cores_.size());
  }
  // What comes for later is part of a store that is under way now.
  const uint64_t now_ps = now_ == nullptr ? at_ps : std::min(now_->ps(), at_ps);
  note_writer(writer);
  uint32_t writers = recent_writers_;
  for (const Core& core : cores_) writers += writes_of_[core.writer] == 0 && core.taken_ps > now_ps;
  return writers;
}

void Dimm::note_writer(Writer writer) {
  const Writer forgotten = std::exchange(recent_[next_recent_], writer);
  if (++next_recent_ == kRecentWrites) next_recent_ = 0;
  if (forgotten != kDevice && --writes_of_[forgotten] == 0) --recent_writers_;
  if (writes_of_[writer]++ == 0) ++recent_writers_;
}

DimmCounters Dimm::settled_counters() const {
  DimmCounters counters = counters_;
  for (uint32_t i = 0; i < used_; ++i) counters.media_writes += entries_[i].written;
  return counters;
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
