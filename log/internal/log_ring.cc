#include "log/internal/log_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/atomic_copy.h"
#include "base/check.h"

namespace pmstore::log::internal {
namespace {

// A search behind damage may waste so many bytes of checksums, as multiples of the data area, on
// what only looks like entries: somebody may have made them look so.
constexpr uint64_t kScanBudget = 8;
constexpr uint64_t kMaxAnchors = 256;

// Entries that may lie in so many bytes, at most.
uint64_t most_entries(uint64_t bytes) { return bytes / sizeof(EntryHeader); }

}  // namespace

Result<LogRing> LogRing::format(RingRoom room, uint64_t begin_lsn, uint64_t begin_index) {
  PMSTORE_TRY(auto ring,
              Ring::format(std::move(room), begin_lsn, begin_index == 1 ? 0 : begin_index));
  PMSTORE_TRY(const persist::Persisted durable, ring.repeat_header());
  LogRing log(std::move(ring));
  log.note_durable(durable);
  log.next_index_ = begin_index;
  log.anchors_.push_back({begin_lsn, begin_index});
  return log;
}

Result<LogRing> LogRing::open(persist::Memory& memory, uint64_t offset, uint64_t bytes,
                              uint32_t salt) {
  PMSTORE_TRY(auto ring, Ring::open(memory, offset, bytes, salt));
  return LogRing(std::move(ring));
}

// ---- entries ----

// Does the header of an entry of that lsn seem to be here? Cheap; says nothing about its bytes.
bool LogRing::peek(uint64_t lsn, EntryHeader& header) const {
  if (!is_boundary(lsn, position().data_bytes)) return false;
  base::copy_from_shared(&header, ring_.data_at(lsn), sizeof header);
  return header.lsn == lsn && (header.magic == kEntryMagic || header.magic == kPadMagic);
}

// A whole entry of this log, or a whole pad, whatever its index.
bool LogRing::is_entry_here(uint64_t lsn, EntryHeader& header) const {
  if (!peek(lsn, header)) return false;
  const uint64_t wasted = header.payload_bytes;
  if (ring_.read_sealed(lsn, header) && ring_.belongs(lsn, header) &&
      (header.magic == kPadMagic || header.payload_bytes > sizeof(LogEntryPrefix))) {
    return true;
  }
  scan_budget_ -= std::min({scan_budget_, wasted, position().data_bytes});
  return false;
}

// Is it what comes next in this log, when at most `may_be_lost` entries before it were damaged?
bool LogRing::continues(uint64_t lsn, uint64_t may_be_lost, EntryHeader& header) const {
  if (!is_entry_here(lsn, header) || header.incarnation < incarnation_) return false;
  if (header.magic == kPadMagic) return true;
  return header.sequence >= next_index_ && header.sequence - next_index_ <= may_be_lost;
}

void LogRing::pass(const EntryHeader& header) {
  incarnation_ = header.incarnation;
  ring_.position_.tail_lsn = header.lsn + entry_bytes(header);
  if (header.magic == kPadMagic) return;
  LogEntryPrefix prefix;
  base::copy_from_shared(&prefix, ring_.data_at(header.lsn) + sizeof header, sizeof prefix);
  note_entry(header.lsn, header.sequence, prefix.durable_lsn);
}

// Reads nothing: an entry that was just appended is not in the caches, and the memory is slow.
void LogRing::note_entry(uint64_t lsn, uint64_t sequence, uint64_t durable_lsn) {
  PMSTORE_CHECK(sequence >= next_index_, "two entries would have the same index");
  PMSTORE_CHECK(lsn >= anchors_.back().lsn, "anchors are in order");
  next_index_ = sequence + 1;
  may_be_lost_ = 0;
  if (durable_lsn <= lsn) claimed_lsn_ = std::max(claimed_lsn_, durable_lsn);
  const uint64_t apart = position().data_bytes / kMaxAnchors;
  if (lsn - anchors_.back().lsn >= apart) anchors_.push_back({lsn, sequence});
}

void LogRing::check_marks() const {
  PMSTORE_CHECK(!anchors_.empty() && anchors_.front().lsn == position().start_lsn,
                "entries before the first anchor would not be found");
  PMSTORE_CHECK(anchors_.back().lsn <= position().tail_lsn, "an anchor is an entry or the tail");
  PMSTORE_CHECK(damaged_.empty() || damaged_.back().to_lsn <= position().tail_lsn,
                "damage is reported inside the log only");
  PMSTORE_CHECK(claimed_lsn_ <= position().tail_lsn, "what was durable would be cut off");
}

void LogRing::settle_index() {
  next_index_ += may_be_lost_;
  may_be_lost_ = 0;
}

// ---- damage ----

void LogRing::note_damage(uint64_t from, uint64_t to) {
  PMSTORE_CHECK(from < to && (damaged_.empty() || damaged_.back().to_lsn <= from),
                "damaged ranges are in order and do not overlap");
  const bool joins = !damaged_.empty() && damaged_.back().to_lsn == from;
  if (joins || damaged_.size() == kMaxDamagedRanges) {
    damaged_.back().to_lsn = to;
  } else {
    damaged_.push_back({from, to});
  }
}

// What lies at the tail is not whole, but everything below `durable_lsn` was.
void LogRing::skip_damage(uint64_t durable_lsn) {
  const uint64_t from = position().tail_lsn;
  uint64_t to = durable_lsn;
  EntryHeader header;
  for (uint64_t at = from + kLsnUnit; at < durable_lsn && scan_budget_ > 0; at += kLsnUnit) {
    if (!continues(at, may_be_lost_ + most_entries(at - from), header)) continue;
    to = at;
    break;
  }
  may_be_lost_ += most_entries(to - from);
  note_damage(from, to);
  ring_.position_.tail_lsn = to;
}

void LogRing::follow(uint64_t durable_lsn, uint64_t limit) {
  limit = std::min(limit, end());
  // What cannot be true is somebody's invention.
  if (!is_boundary(durable_lsn, position().data_bytes) || durable_lsn > limit) durable_lsn = 0;
  scan_budget_ = kScanBudget * position().data_bytes;
  EntryHeader header;
  uint64_t entries_end = position().tail_lsn;
  while (position().tail_lsn < limit) {
    const uint64_t tail = position().tail_lsn;
    if (continues(tail, may_be_lost_, header) && tail + entry_bytes(header) <= limit) {
      pass(header);
      if (header.magic == kPadMagic) continue;
      ++entries_seen_;
    } else {
      if (tail >= durable_lsn) break;
      skip_damage(durable_lsn);
    }
    entries_end = position().tail_lsn;
  }
  // A pad belongs to the entry behind it. Alone it is of one that is torn, or not there yet; and
  // replicas with the same entries end at the same place.
  if (entries_end >= durable_lsn) ring_.position_.tail_lsn = entries_end;
}

// The highest LSN that a whole entry behind the tail says to have been durable before it.
uint64_t LogRing::claimed_durable() const {
  uint64_t claimed = 0;
  EntryHeader header;
  scan_budget_ = kScanBudget * position().data_bytes;
  for (uint64_t at = position().tail_lsn; at < end() && scan_budget_ > 0; at += kLsnUnit) {
    if (!is_entry_here(at, header)) continue;
    if (header.magic == kEntryMagic && header.sequence >= next_index_) {
      LogEntryPrefix prefix;
      std::memcpy(&prefix, ring_.data_at(at) + sizeof header, sizeof prefix);
      if (prefix.durable_lsn <= at && is_boundary(prefix.durable_lsn, position().data_bytes)) {
        claimed = std::max(claimed, prefix.durable_lsn);
      }
    }
    at += entry_bytes(header) - kLsnUnit;
  }
  return claimed;
}

// Is something behind the tail that could be written only after a header that is not there?
bool LogRing::later_header_was_lost() const {
  if (ring_.both_copies_ || ring_.header_ours_) return false;
  const uint64_t data_bytes = position().data_bytes;
  uint64_t budget = kScanBudget * data_bytes;
  EntryHeader header;
  for (uint64_t at = position().tail_lsn; at < end() && budget > 0; at += kLsnUnit) {
    if (!is_boundary(at, data_bytes)) continue;
    base::copy_from_shared(&header, ring_.data_at(at), sizeof header);
    const bool later = header.lsn >= at && header.lsn < kMaxLsn &&
                       header.lsn % data_bytes == at % data_bytes &&
                       (header.lsn != at || header.incarnation > ring_.header_.incarnation);
    if (!later || (header.magic != kEntryMagic && header.magic != kPadMagic)) continue;
    budget -= std::min({budget, uint64_t{header.payload_bytes}, data_bytes});
    if (ring_.read_sealed(at, header)) return true;
  }
  return false;
}

Status LogRing::survey(const uint64_t* sealed_lsn) {
  const uint64_t start = position().start_lsn;
  const auto lost = [&](const char* why) {
    ring_.phase_ = Ring::Phase::kDamaged;
    return make_error(ErrorCode::kDamaged,
                      fmt::format("the ring at offset {} is damaged: {}", ring_.offset(), why));
  };
  ring_.position_.tail_lsn = start;
  next_index_ = std::max<uint64_t>(1, ring_.expired_below_sequence());
  anchors_.push_back({start, next_index_});
  if (!is_possible_index(start, next_index_)) {
    return lost("its header counts more entries than can have been there");
  }
  const uint64_t limit = sealed_lsn != nullptr ? *sealed_lsn : end();
  // (The end itself may be above all LSNs.)
  const bool possible =
      limit >= start && limit <= end() && is_boundary(limit, position().data_bytes);
  if (sealed_lsn != nullptr && !possible) {
    return lost("it was sealed outside of what its header says");
  }
  follow(sealed_lsn != nullptr ? limit : ring_.header_.incarnation_lsn, limit);
  if (position().tail_lsn < limit) {
    const uint64_t claimed = claimed_durable();
    if (claimed > position().tail_lsn) follow(claimed, limit);
  }
  if (sealed_lsn == nullptr && later_header_was_lost()) {
    return lost("the last header is lost, later entries are there");
  }
  settle_index();
  check_marks();
  ring_.phase_ = Ring::Phase::kWalked;
  return {};
}

// ---- changing ----

Result<persist::Persisted> LogRing::make_followed_durable() {
  settle_index();
  PMSTORE_TRY(const persist::Persisted durable, ring_.make_walked_durable());
  note_durable(durable);
  return durable;
}

persist::Persisted LogRing::durable() const {
  PMSTORE_CHECK(ring_.header_durable_ && ring_.durable_lsn_ == position().tail_lsn,
                "an entry that is not durable would count as acknowledged");
  return *ring_.header_durable_;
}

Result<persist::Persisted> LogRing::adopt(bool sealed) {
  PMSTORE_TRY(const persist::Persisted followed, make_followed_durable());
  const bool entries_came = position().tail_lsn > ring_.header_.incarnation_lsn;
  if (!sealed && entries_came && !used_up()) return take_over();
  if (!ring_.copies_agree_) return ring_.repeat_header();
  return followed;
}

// An entry right behind the tail, of whatever incarnation, was never acknowledged: torn entries
// before it, or somebody who may write there has forged it for the incarnation to come.
Status LogRing::erase_forged() {
  EntryHeader header;
  const uint64_t tail = position().tail_lsn;
  if (tail >= end() || !peek(tail, header)) return {};
  persist::Memory& memory = *ring_.memory_;
  memory.zero(ring_.data_at(tail), sizeof header);
  memory.flush(ring_.data_at(tail), sizeof header);
  PMSTORE_TRY([[maybe_unused]] auto durable, memory.drain());
  return {};
}

Result<persist::Persisted> LogRing::take_over() {
  settle_index();
  PMSTORE_TRY_STATUS(erase_forged());
  ring_.phase_ = Ring::Phase::kWalked;
  if (used_up()) return adopt(false);
  PMSTORE_TRY_STATUS(ring_.take_over(ring_.owner()));
  note_durable(*ring_.header_durable_);
  check_marks();
  return ring_.repeat_header();
}

std::optional<Appended> LogRing::append_if_room(std::span<const std::byte> payload,
                                                uint64_t durable_lsn) {
  PMSTORE_CHECK(durable_lsn <= position().tail_lsn, "an entry would make a torn one look damaged");
  const LogEntryPrefix prefix{durable_lsn};
  const uint64_t index = next_index_;
  const auto lsn = ring_.append_if_room(index, payload, std::as_bytes(std::span(&prefix, 1)));
  if (!lsn) return std::nullopt;
  incarnation_ = position().incarnation;
  note_entry(*lsn, index, durable_lsn);
  return Appended{*lsn, position().tail_lsn, index};
}

Result<Appended> LogRing::append(std::span<const std::byte> payload, uint64_t durable_lsn) {
  if (!writable()) {
    PMSTORE_TRY_STATUS(take_over());
  }
  if (const auto appended = append_if_room(payload, durable_lsn)) return *appended;
  return ring_.plan(sizeof(LogEntryPrefix) + payload.size()).error();
}

Result<uint64_t> LogRing::tail_behind(std::span<const uint64_t> payload_bytes,
                                      uint64_t start_lsn) const {
  RingPosition then = position();
  then.start_lsn = start_lsn;
  for (uint64_t bytes : payload_bytes) {
    PMSTORE_TRY(const PlannedEntry plan,
                plan_entry(then, sizeof(LogEntryPrefix) + bytes, false, ring_.rules_));
    then.tail_lsn = plan.next_lsn();
  }
  return then.tail_lsn;
}

Status LogRing::truncate(const Place& start) {
  // (The index may be what a producer has forged.)
  PMSTORE_CHECK(start.lsn >= position().start_lsn && start.lsn <= position().tail_lsn,
                "the start is an entry of the log, or the tail");
  PMSTORE_TRY(const persist::Persisted header, ring_.make_found_header_durable());
  PMSTORE_TRY_STATUS(ring_.truncate(header, start.lsn, start.index));
  PMSTORE_TRY_STATUS(ring_.repeat_header());
  while (!anchors_.empty() && anchors_.front().lsn <= start.lsn) anchors_.pop_front();
  anchors_.push_front(start);
  std::erase_if(damaged_, [&](const DamagedRange& range) { return range.to_lsn <= start.lsn; });
  check_marks();
  return {};
}

// ---- places ----

const DamagedRange* LogRing::damage_at(uint64_t lsn) const {
  for (const DamagedRange& range : damaged_) {
    if (range.from_lsn <= lsn && lsn < range.to_lsn) return &range;
  }
  return nullptr;
}

// From an anchor on. What the medium has damaged since it was read is passed over, as a survey
// passes over damage. True: the tail was reached. False: `visit` had enough, or the search for the
// next whole entry became too long; what lies behind is there and is not known.
bool LogRing::walk_known(const Place& from, const Visit& visit) const {
  scan_budget_ = kScanBudget * position().data_bytes;
  EntryHeader header;
  for (uint64_t lsn = from.lsn; lsn < position().tail_lsn;) {
    if (const DamagedRange* range = damage_at(lsn)) {
      lsn = range->to_lsn;
      continue;
    }
    // Every entry takes room, so an index that is too high was not given to an entry at this lsn.
    const bool whole =
        is_entry_here(lsn, header) && lsn + entry_bytes(header) <= position().tail_lsn &&
        (header.magic == kPadMagic || header.sequence - from.index <= most_entries(lsn - from.lsn));
    if (whole && !visit(header)) return false;
    if (!whole && scan_budget_ == 0) return false;
    lsn += whole ? entry_bytes(header) : kLsnUnit;
  }
  return true;
}

Result<LogRing::Place> LogRing::place_of(uint64_t lsn) const {
  std::optional<Place> found;
  if (lsn == position().tail_lsn) found = Place{lsn, next_index_};
  auto behind = std::upper_bound(anchors_.begin(), anchors_.end(), lsn,
                                 [](uint64_t l, const Place& anchor) { return l < anchor.lsn; });
  if (!found && behind != anchors_.begin() && lsn < position().tail_lsn) {
    walk_known(*std::prev(behind), [&](const EntryHeader& header) {
      if (header.lsn == lsn && header.magic == kEntryMagic) found = Place{lsn, header.sequence};
      return header.lsn < lsn;
    });
  }
  if (found) return *found;
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("no entry starts at lsn {}: the log has lsn {} to {}; use the lsn "
                                "of an entry that was read",
                                lsn, position().start_lsn, position().tail_lsn));
}

LogRing::Place LogRing::first_from(uint64_t index) const {
  auto behind = std::upper_bound(anchors_.begin(), anchors_.end(), index,
                                 [](uint64_t i, const Place& anchor) { return i < anchor.index; });
  const Place from = behind == anchors_.begin() ? anchors_.front() : *std::prev(behind);
  Place found = from;
  const bool all_are_below = walk_known(from, [&](const EntryHeader& header) {
    if (header.magic == kPadMagic) return true;
    found = {header.lsn, header.sequence};
    return header.sequence < index;
  });
  return all_are_below ? Place{position().tail_lsn, next_index_} : found;
}

LogRing::Place LogRing::boundary_at(uint64_t lsn) const {
  if (lsn >= position().tail_lsn) return {position().tail_lsn, next_index_};
  auto behind = std::upper_bound(anchors_.begin(), anchors_.end(), lsn,
                                 [](uint64_t l, const Place& anchor) { return l < anchor.lsn; });
  Place found = behind == anchors_.begin() ? anchors_.front() : *std::prev(behind);
  walk_known(found, [&](const EntryHeader& header) {
    const bool entry = header.magic == kEntryMagic;
    // Behind damage only an entry says which index comes next.
    if (!entry && header.lsn != found.lsn) return header.lsn < lsn;
    if (header.lsn <= lsn) found = {header.lsn, entry ? header.sequence : found.index};
    const uint64_t end = header.lsn + entry_bytes(header);
    if (end <= lsn) found = {end, found.index + (entry ? 1 : 0)};
    return end < lsn;
  });
  return found;
}

LogRing::Place LogRing::start_from(uint64_t lsn, const Place& limit) const {
  auto found = std::lower_bound(anchors_.begin(), anchors_.end(), lsn,
                                [](const Place& anchor, uint64_t l) { return anchor.lsn < l; });
  return found == anchors_.end() || found->lsn > limit.lsn ? limit : *found;
}

}  // namespace pmstore::log::internal
