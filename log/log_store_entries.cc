// Of LogStore: room, shared appends, exclusive producers.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "log/internal/log_store_state.h"

namespace pmstore::log {

using internal::load_word;
using internal::publish_word;
using Log = internal::StoredLog;
using Place = internal::LogRing::Place;

namespace {

constexpr uint64_t kTrimShare = 8;  // trim-oldest drops this part of a log at a time

Error used_up() {
  return make_error(ErrorCode::kFull,
                    fmt::format("the log has had all its {} writers: copy its entries into a new "
                                "log",
                                UINT32_MAX));
}

}  // namespace

// ---- room ----

// Readers know it before anything can be written over what they might be reading.
Status LogStore::State::move_start(Log& log, const Place& start) {
  PMSTORE_CHECK(start.lsn <= log.published.lsn,
                "entries that are not acknowledged would be trimmed");
  if (start.lsn <= log.ring->position().start_lsn) return {};
  publish_word(word(log).start_lsn, start.lsn);
  return fail_unless(log.ring->truncate(start));
}

Result<uint64_t> LogStore::trim(uint64_t id, uint64_t through_lsn) {
  PMSTORE_TRY(Log* const log, state_->usable(id));
  state_->catch_up(*log);
  if (through_lsn > log->ring->position().start_lsn) {
    if (through_lsn > log->published.lsn) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("cannot trim to lsn {}: the log ends at {}", through_lsn,
                                    log->published.lsn));
    }
    Place start = log->published;
    if (through_lsn < start.lsn) {
      PMSTORE_TRY(start, log->ring->place_of(through_lsn));
    }
    PMSTORE_TRY_STATUS(state_->move_start(*log, start));
  }
  return log->ring->position().start_lsn;
}

Result<uint64_t> LogStore::trim_below_index(uint64_t id, uint64_t index) {
  PMSTORE_TRY(Log* const log, state_->usable(id));
  state_->catch_up(*log);
  if (index > log->published.index) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("cannot trim to index {}: the next entry will be {}", index,
                                  log->published.index));
  }
  Place start = log->ring->first_from(index);
  if (start.lsn > log->published.lsn) start = log->published;
  PMSTORE_TRY_STATUS(state_->move_start(*log, start));
  return log->ring->position().start_lsn;
}

// Drops what lies below `to_lsn`, and by the way an eighth of the log.
Status LogStore::State::drop_oldest(Log& log, uint64_t to_lsn) {
  const RingPosition& position = log.ring->position();
  to_lsn = std::max(to_lsn, position.start_lsn + position.data_bytes / kTrimShare);
  return move_start(log, log.ring->start_from(to_lsn, log.published));
}

Result<uint64_t> LogStore::make_room(uint64_t id, uint64_t bytes) {
  State& s = *state_;
  PMSTORE_TRY(Log* const log, s.usable(id));
  const uint64_t data_bytes = log->ring->position().data_bytes;
  if (bytes > data_bytes) {
    return make_error(ErrorCode::kTooLarge,
                      fmt::format("{} bytes cannot be free in a log of {}", bytes, data_bytes));
  }
  s.catch_up(*log);
  const uint64_t tail = log->published.lsn;
  const auto enough = [&] { return tail + bytes <= log->ring->position().start_lsn + data_bytes; };
  if (!enough() && s.slot(*log).when_full == FullPolicy::kTrimOldest) {
    PMSTORE_TRY_STATUS(s.drop_oldest(*log, tail + bytes - data_bytes));
  }
  if (enough()) return log->ring->position().start_lsn;
  return make_error(ErrorCode::kBackPressure,
                    "the log is full: trim it, or create it with trim-oldest");
}

// ---- shared appends ----

// Makes room for entries with these payloads, all of them.
Status LogStore::State::fit(Log& log, std::span<const uint64_t> payload_bytes) {
  const RingPosition& position = log.ring->position();
  // The tail does not depend on where the start is, but whether it fits does.
  auto tail = log.ring->tail_behind(payload_bytes, position.start_lsn);
  if (tail || tail.code() != ErrorCode::kBackPressure) return tail ? Status{} : tail.error();
  auto at_most = log.ring->tail_behind(payload_bytes, position.tail_lsn);
  if (!at_most && at_most.code() != ErrorCode::kBackPressure) return at_most.error();
  if (!at_most) {
    return make_error(ErrorCode::kTooLarge,
                      fmt::format("these {} entries do not fit in a log of {} bytes together: "
                                  "append fewer at a time",
                                  payload_bytes.size(), position.data_bytes));
  }
  if (slot(log).when_full == FullPolicy::kBackPressure) {
    return make_error(ErrorCode::kBackPressure,
                      "the log is full: trim it, or create it with trim-oldest");
  }
  const uint64_t to_lsn = *at_most - position.data_bytes;
  // What has not been committed yet may have to go as well.
  if (to_lsn > log.published.lsn) {
    PMSTORE_TRY_STATUS(commit());
  }
  return drop_oldest(log, to_lsn);
}

bool LogStore::State::shared_by_all(const Log& log) const {
  return slot(log).sealed == 0 && slot(log).replicas == 0 && !log.exclusive &&
         log.ring->may_append();
}

Error LogStore::State::why_not_shared(const Log& log) const {
  if (slot(log).sealed != 0) {
    return make_error(ErrorCode::kSealed, "the log is sealed: append to another one");
  }
  if (slot(log).replicas > 0) {
    return make_error(ErrorCode::kUnsupported,
                      "the log is replicated: append through a ReplicatedLog, which has all of its "
                      "replicas");
  }
  if (!log.ring->may_append()) return used_up();
  return make_error(ErrorCode::kBusy,
                    "an exclusive producer has this log: wait until it is gone, or steal the log");
}

Result<LogStore::Range> LogStore::append(uint64_t id,
                                         std::span<const std::span<const std::byte>> payloads) {
  State& s = *state_;
  PMSTORE_TRY(Log* const log, s.usable(id));
  if (!s.shared_by_all(*log)) return s.why_not_shared(*log);
  const uint64_t most = internal::max_log_payload(log->ring->position().data_bytes);
  uint64_t sizes[kMaxBatchEntries];
  if (payloads.empty() || payloads.size() > kMaxBatchEntries) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("1 to {} entries are appended at a time", kMaxBatchEntries));
  }
  for (size_t i = 0; i < payloads.size(); ++i) {
    sizes[i] = payloads[i].size();
    if (sizes[i] == 0) {
      return make_error(ErrorCode::kInvalidArgument, "an entry has at least one byte");
    }
    if (sizes[i] <= most) continue;
    return make_error(ErrorCode::kTooLarge,
                      fmt::format("an entry of {} bytes is over the {} that this log takes: use "
                                  "smaller entries or a larger log",
                                  sizes[i], most));
  }
  // A single one that fits is placed once: for more all have to fit before the first is written.
  Range range;
  if (payloads.size() == 1 && log->ring->writable()) {
    if (const auto appended = log->ring->append_if_room(payloads[0], log->published.lsn)) {
      s.note_dirty(log);
      return Range{*appended, *appended};
    }
  }
  PMSTORE_TRY_STATUS(s.fit(*log, {sizes, payloads.size()}));
  for (size_t i = 0; i < payloads.size(); ++i) {
    auto appended = log->ring->append(payloads[i], log->published.lsn);
    if (!appended) return s.latch(appended.error());
    if (i == 0) range.first = *appended;
    range.last = *appended;
  }
  s.note_dirty(log);
  return range;
}

std::optional<Appended> LogStore::append_durable(uint64_t id, std::span<const std::byte> payload) {
  State& s = *state_;
  Log* const log = s.live(id);
  if (log == nullptr || !log->ring || s.failed || !s.dirty.empty()) return std::nullopt;
  if (!s.shared_by_all(*log)) return std::nullopt;
  if (payload.empty() || payload.size() > kMaxEntryBytes || !log->ring->writable()) {
    return std::nullopt;
  }
  const auto appended = log->ring->append_if_room(payload, log->published.lsn);
  if (!appended) return std::nullopt;
  const auto durable = s.memory.drain();
  if (!durable) [[unlikely]] {
    (void)s.latch(durable.error());
    PMSTORE_CHECK(s.failed, "append() may not do it once more");
    return std::nullopt;
  }
  s.publish_tail(*durable, *log);
  return appended;
}

void LogStore::State::note_dirty(Log* log) {
  PMSTORE_CHECK(log->ring && !log->exclusive, "an exclusive producer's tail is its own");
  if (!dirty.empty() && dirty.back() == log) return;
  if (std::find(dirty.begin(), dirty.end(), log) == dirty.end()) dirty.push_back(log);
}

void LogStore::State::publish_tail(persist::Persisted entries, Log& log) {
  PMSTORE_CHECK(log.published.lsn <= log.ring->position().tail_lsn,
                "an acknowledged entry is gone");
  log.ring->note_durable(entries);
  log.published = {log.ring->position().tail_lsn, log.ring->next_index()};
  publish_word(word(log).tail_lsn, log.published.lsn);
}

// What is whole here is not on every replica for certain; what was published is, and that outlives
// this process.
Status LogStore::State::publish_acknowledged(persist::Persisted entries, Log& log,
                                             const Place& boundary) {
  // The ring is read again for the boundary, and may have been damaged since: what was published
  // stays published.
  const Place acknowledged = boundary.lsn < log.published.lsn ? log.published : boundary;
  PMSTORE_CHECK(acknowledged.lsn <= log.ring->position().tail_lsn, "what is published is there");
  log.ring->note_durable(entries);
  if (slot(log).sealed == 0 && slot(log).sealed_lsn < acknowledged.lsn) {
    LogSlot changed = slot(log);
    changed.sealed_lsn = acknowledged.lsn;
    PMSTORE_TRY_STATUS(fail_unless(directory.write(entries, log.place, changed)));
  }
  log.published = acknowledged;
  publish_word(word(log).tail_lsn, acknowledged.lsn);
  return {};
}

Result<persist::Persisted> LogStore::State::commit() {
  if (failed) return *failed;
  if (dirty.empty()) return committed;
  PMSTORE_TRY(const persist::Persisted entries, fail_unless(memory.drain()));
  for (Log* log : dirty) publish_tail(entries, *log);
  dirty.clear();
  committed = entries;
  return entries;
}

Result<persist::Persisted> LogStore::commit_appends() { return state_->commit(); }

// ---- exclusive producers ----

// Of an exclusive producer's entries the server knows what the published tail says; it looks at
// them when somebody asks. The producer may write anything there.
void LogStore::State::catch_up(Log& log) {
  if (!log.exclusive) return;
  const uint64_t published = load_word(word(log).tail_lsn);
  log.ring->follow(0, published);
  if (slot(log).replicas > 0) {
    // As in publish_acknowledged(): what was published stays published.
    const Place boundary = log.ring->boundary_at(std::max(published, log.published.lsn));
    if (boundary.lsn > log.published.lsn) log.published = boundary;
  } else {
    log.published = {log.ring->position().tail_lsn, log.ring->next_index()};
  }
  PMSTORE_CHECK(log.published.lsn <= log.ring->position().tail_lsn,
                "readers would read behind the last entry");
}

// What the producer has landed counts from here on, as far as it is whole; what it has published
// and is not whole is damage. Nothing is told before it is durable.
Status LogStore::State::settle(Log& log) {
  PMSTORE_TRY_STATUS(commit());
  const uint64_t published = load_word(word(log).tail_lsn);
  if (log.exclusive) log.ring->follow(published, UINT64_MAX);
  PMSTORE_TRY(const persist::Persisted entries, fail_unless(log.ring->take_over()));
  log.exclusive = false;
  if (slot(log).replicas > 0) {
    const Place acknowledged = log.ring->boundary_at(std::max(published, log.published.lsn));
    PMSTORE_TRY_STATUS(publish_acknowledged(entries, log, acknowledged));
  } else {
    publish_tail(entries, log);
  }
  publish_word(word(log).incarnation, log.ring->position().incarnation);
  return {};
}

Status LogStore::may_acquire(uint64_t id, uint64_t membership) const {
  PMSTORE_TRY(Log* const log, state_->usable(id));
  const LogSlot& slot = state_->slot(*log);
  if (slot.sealed != 0) {
    return make_error(ErrorCode::kSealed, "the log is sealed: append to another one");
  }
  if (log->ring->used_up()) return used_up();
  if (slot.membership == membership) return {};
  return internal::other_membership(slot.membership, membership);
}

Error internal::other_membership(uint64_t found, uint64_t expected) {
  return make_error(ErrorCode::kConflict,
                    fmt::format("the log's replicas have changed: membership is {}, not {}; open "
                                "the log again",
                                found, expected));
}

Result<LogStore::Grant> LogStore::acquire(uint64_t id, uint64_t membership) {
  State& s = *state_;
  PMSTORE_TRY_STATUS(may_acquire(id, membership));
  PMSTORE_TRY(Log* const log, s.usable(id));
  PMSTORE_TRY_STATUS(s.settle(*log));
  PMSTORE_CHECK(!log->exclusive, "a ring has one writer");
  PMSTORE_CHECK(std::find(s.dirty.begin(), s.dirty.end(), log) == s.dirty.end(),
                "a shared append that is not durable would be the producer's");
  log->exclusive = true;
  return Grant{log->ring->position(), log->ring->next_index(), log->ring->data_offset(),
               &s.word(*log).tail_lsn, s.padding_of(*log)};
}

Status LogStore::release(uint64_t id) {
  PMSTORE_TRY(Log* const log, state_->usable(id));
  return log->exclusive ? state_->settle(*log) : Status{};
}

Status LogStore::close() {
  State& s = *state_;
  PMSTORE_TRY_STATUS(s.commit());
  PMSTORE_TRY_STATUS(end_preparing());
  for (Log& log : s.logs) {
    if (!log.ring) continue;
    if (log.exclusive) {
      PMSTORE_TRY_STATUS(s.settle(log));
    }
    PMSTORE_TRY_STATUS(s.fail_unless(log.ring->adopt(s.slot(log).sealed != 0)));
    publish_word(s.word(log).incarnation, log.ring->position().incarnation);
  }
  return {};
}

}  // namespace pmstore::log
