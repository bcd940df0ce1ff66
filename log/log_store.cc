#include "log/log_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/size_text.h"
#include "log/internal/log_store_state.h"

namespace pmstore::log {

using internal::LogDirectory;
using internal::LogRing;
using internal::publish_word;
using Log = internal::StoredLog;

namespace {

Error no_such_log() {
  return make_error(ErrorCode::kNotFound, "no such log: it was deleted, or the pool is another");
}

Error lost(const LogSlot& slot) {
  return make_error(ErrorCode::kDamaged,
                    fmt::format("log '{}' is lost: its ring's header is damaged; delete it",
                                std::string_view(slot.name, slot.name_bytes)));
}

}  // namespace

LogStore::State::State(persist::Pool& pool_in, internal::LogDirectory loaded)
    : pool(pool_in),
      memory(pool_in.memory()),
      padding(pool_in.info().padding),
      directory(std::move(loaded)),
      committed(directory.durable()) {
  constexpr auto kPage = internal::PageDelete::kPageBytes;
  words_bytes =
      persist::round_up(directory.most_places() * sizeof(LogWords), static_cast<uint64_t>(kPage));
  words.reset(static_cast<LogWords*>(::operator new(words_bytes, kPage)));
  std::memset(static_cast<void*>(words.get()), 0, words_bytes);
}

// ---- finding ----

Result<Log*> LogStore::State::find(uint64_t id) {
  if (Log* const log = live(id)) return log;
  return no_such_log();
}

Log* LogStore::State::look_up(uint64_t id) {
  const auto found = by_id.find(id);
  if (found == by_id.end()) return nullptr;
  recent_id = id;
  return recent = found->second;
}

Result<Log*> LogStore::State::usable(uint64_t id) {
  PMSTORE_TRY(Log* const log, find(id));
  if (!log->ring) return lost(slot(*log));
  if (failed) return *failed;
  return log;
}

// What could not be made durable ends the use of this pool: it is not known what is there.
Error LogStore::State::latch(const Error& error) {
  if (error.code != ErrorCode::kIo) return error;
  if (!failed) {
    failed = make_error(ErrorCode::kIo, "the pool could not be written: " + error.message +
                                            "; see the system's log, then start again");
  }
  return *failed;
}

Status LogStore::State::fail_unless(Status durable) {
  if (durable) return durable;
  return latch(durable.error());
}

Result<persist::Persisted> LogStore::State::fail_unless(Result<persist::Persisted> durable) {
  if (durable) return durable;
  return latch(durable.error());
}

// ---- opening ----

Status LogStore::format(persist::Pool& pool, uint64_t bytes, uint64_t identity) {
  return LogDirectory::format(pool, bytes, identity);
}

bool LogStore::is_in(const persist::Pool& pool) {
  const auto& extents = pool.info().extents;
  return std::any_of(extents.begin(), extents.end(), [](const persist::Extent& extent) {
    return extent.kind == persist::ExtentKind::kLog;
  });
}

Result<std::unique_ptr<LogStore>> LogStore::open(persist::Pool& pool, uint64_t new_identity) {
  const bool begins = new_identity != 0 && !is_in(pool);
  PMSTORE_TRY(auto directory,
              begins ? LogDirectory::none(pool, new_identity) : LogDirectory::load(pool));
  PMSTORE_TRY_STATUS(directory.begin_epoch());
  auto state = std::make_unique<State>(pool, std::move(directory));
  for (size_t place = 0; place < state->directory.places().size(); ++place) state->log_at(place);
  // A damaged place may name a room: what lies there can still be rescued from a copy of the pool.
  if (state->directory.damaged_places() == 0) {
    for (const LogExtent& extent : state->directory.extents()) {
      PMSTORE_TRY_STATUS(state->give_back_unused(extent.name));
    }
  }
  const std::vector<bool> foreign = state->directory.overlapped();
  for (Log& log : state->logs) {
    if (!state->directory.places()[log.place].live()) continue;
    state->by_id[state->slot(log).id] = &log;
    if (foreign[log.place]) continue;
    PMSTORE_TRY_STATUS(state->open_log(log));
  }
  return std::unique_ptr<LogStore>(new LogStore(std::move(state)));
}

// Damage is no error: then the log has no ring.
Status LogStore::State::open_log(Log& log) {
  const LogSlot& at = slot(log);
  auto ring =
      LogRing::open(memory, directory.region_offset(at), at.region_bytes, directory.salt(at.id));
  if (!ring && ring.code() == ErrorCode::kVersionMismatch) return ring.error();
  if (!ring || !ring->survey(at.sealed != 0 ? &at.sealed_lsn : nullptr)) return {};
  PMSTORE_TRY(const persist::Persisted adopted, ring->adopt(at.sealed != 0));
  ring->set_padding(padding_of(log));
  log.ring.emplace(std::move(*ring));
  show(adopted, log);
  return {};
}

// Tells readers of a log whose ring is whole and durable.
void LogStore::State::show(persist::Persisted /*ring*/, Log& log) {
  PMSTORE_CHECK(log.ring && directory.places()[log.place].live(),
                "readers would read a region that is not the log's");
  LogWords& at = word(log);
  log.published = {log.ring->position().tail_lsn, log.ring->next_index()};
  if (slot(log).replicas > 0) {
    const uint64_t acknowledged = std::max(slot(log).sealed_lsn, log.ring->claimed_lsn());
    log.published = log.ring->boundary_at(acknowledged);
  }
  PMSTORE_CHECK(log.published.lsn <= log.ring->position().tail_lsn,
                "readers would read behind the last entry");
  publish_word(at.start_lsn, log.ring->position().start_lsn);
  publish_word(at.tail_lsn, log.published.lsn);
  publish_word(at.sealed, slot(log).sealed);
  publish_word(at.incarnation, log.ring->position().incarnation);
  publish_word(at.id, slot(log).id);
}

LogStore::LogStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
LogStore::~LogStore() = default;

// ---- what is known ----

LogInfo LogStore::State::info(Log& log) {
  const LogSlot& at = slot(log);
  LogInfo info;
  info.id = at.id;
  info.name.assign(at.name, at.name_bytes);
  info.bytes = at.region_bytes - kRingHeaderBytes;
  info.when_full = at.when_full;
  info.sealed = at.sealed != 0;
  info.exclusive = log.exclusive;
  info.membership = at.membership;
  info.agreed = at.membership == 1 || at.agreed == agreed_mark(at.membership);
  info.identity = at.identity;
  for (size_t i = 0; i < at.replicas; ++i) {
    info.replicas.emplace_back(at.replica_uri[i], strnlen(at.replica_uri[i], kMaxReplicaUriBytes));
  }
  if (!log.ring) {
    info.damaged = {{0, kMaxLsn}};
    return info;
  }
  catch_up(log);
  info.start_lsn = log.ring->position().start_lsn;
  info.tail_lsn = log.published.lsn;
  info.next_index = log.published.index;
  info.incarnation = log.ring->position().incarnation;
  info.damaged = log.ring->damaged();
  return info;
}

Result<LogInfo> LogStore::find(std::string_view name) const {
  if (Log* const log = state_->named(name)) return state_->info(*log);
  return make_error(ErrorCode::kNotFound,
                    fmt::format("there is no log '{}' in this pool: see pmstore log list", name));
}

Result<LogInfo> LogStore::info(uint64_t id) const {
  PMSTORE_TRY(Log* const log, state_->find(id));
  return state_->info(*log);
}

std::vector<LogInfo> LogStore::list() const {
  std::vector<LogInfo> all;
  for (Log& log : state_->logs) {
    if (state_->directory.places()[log.place].live()) all.push_back(state_->info(log));
  }
  return all;
}

Result<LogStore::Where> LogStore::where(uint64_t id) const {
  PMSTORE_TRY(Log* const log, state_->find(id));
  const LogSlot& slot = state_->slot(*log);
  const auto extent = state_->directory.find_extent(slot.extent);
  return Where{extent.value_or(LogExtent{slot.extent}), slot.region_offset, slot.region_bytes,
               static_cast<uint32_t>(log->place), state_->directory.salt(id)};
}

uint64_t LogStore::area_identity() const { return state_->directory.area(); }
uint64_t LogStore::epoch() const { return state_->directory.epoch(); }
void LogStore::keep_free(std::function<uint64_t()> kept) {
  state_->directory.keep_free(std::move(kept));
}
void LogStore::limit_to(uint64_t bytes) { state_->directory.limit_to(bytes); }
size_t LogStore::damaged_places() const { return state_->directory.damaged_places(); }
persist::Memory& LogStore::memory() const { return state_->memory; }

// Sessions hear of the area with its first log, so it may go without being withdrawn from them.
std::vector<LogExtent> LogStore::extents() const {
  if (state_->area_is_new) return {};
  return state_->directory.extents();
}

std::span<std::byte> LogStore::memory_of(const LogExtent& extent) const {
  PMSTORE_CHECK(state_->memory.contains(extent.offset, extent.bytes), "extents lie in the pool");
  return state_->memory.mapping().subspan(extent.offset, extent.bytes);
}

std::span<std::byte> LogStore::area() const {
  return state_->memory.mapping().subspan(state_->directory.offset(), state_->directory.bytes());
}

void LogStore::before_giving_back(std::function<void(uint64_t extent)> withdraw) {
  state_->withdraw = std::move(withdraw);
}

std::span<std::byte> LogStore::words() const {
  return {reinterpret_cast<std::byte*>(state_->words.get()), state_->words_bytes};
}

// ---- extents ----

// The area stays, and so does everything in pools where extents do not come back. A log that damage
// has brought back may name an extent that is gone.
Status LogStore::State::give_back_unused(uint64_t extent) {
  if (extent == 0 || directory.is_used(extent) || !directory.rooms_come_back()) return {};
  if (!directory.find_extent(extent)) return {};
  if (withdraw) withdraw(extent);
  return fail_unless(directory.give_back(extent));
}

// ---- directory ----

Status LogStore::erase(uint64_t id) {
  State& s = *state_;
  PMSTORE_TRY(Log* const log, s.find(id));
  if (s.failed) return *s.failed;
  if (log->exclusive) {
    return make_error(ErrorCode::kBusy, "an exclusive producer has this log: end it first");
  }
  PMSTORE_TRY_STATUS(s.commit());
  publish_word(s.word(*log).id, 0);  // before its region can become another's
  LogSlot slot = s.slot(*log);
  slot.state = LogState::kFree;
  PMSTORE_TRY_STATUS(s.fail_unless(s.directory.write(s.directory.durable(), log->place, slot)));
  log->ring.reset();
  s.by_id.erase(id);
  s.recent_id = 0;
  s.recent = nullptr;
  return s.give_back_unused(slot.extent);
}

Status LogStore::set_membership(uint64_t id, uint64_t expected, const ReplicaPlace& replica) {
  State& s = *state_;
  PMSTORE_TRY(Log* const log, s.usable(id));
  PMSTORE_TRY_STATUS(internal::check_replicas(replica));
  LogSlot slot = s.slot(*log);
  if (slot.membership != expected) return internal::other_membership(slot.membership, expected);
  if (replica.membership <= expected || slot.replicas == 0 || replica.replicas.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a decision about a replicated log's members raises its membership");
  }
  internal::set_replicas(slot, replica);
  return s.fail_unless(s.directory.write(s.directory.durable(), log->place, slot));
}

Status LogStore::agree(uint64_t id, uint64_t membership) {
  State& s = *state_;
  PMSTORE_TRY(Log* const log, s.usable(id));
  LogSlot slot = s.slot(*log);
  if (slot.membership != membership) return internal::other_membership(slot.membership, membership);
  if (slot.agreed == agreed_mark(membership)) return {};
  slot.agreed = agreed_mark(membership);
  return s.fail_unless(s.directory.write(s.directory.durable(), log->place, slot));
}

Status LogStore::seal(uint64_t id) {
  State& s = *state_;
  PMSTORE_TRY(Log* const log, s.usable(id));
  if (s.slot(*log).sealed != 0) return {};
  if (log->exclusive) {
    return make_error(ErrorCode::kBusy, "an exclusive producer has this log: end it first");
  }
  PMSTORE_TRY_STATUS(s.commit());
  LogSlot slot = s.slot(*log);
  slot.sealed = 1;
  slot.sealed_lsn = slot.replicas > 0 ? log->published.lsn : log->ring->position().tail_lsn;
  PMSTORE_TRY_STATUS(s.fail_unless(s.directory.write(log->ring->durable(), log->place, slot)));
  publish_word(s.word(*log).sealed, 1);
  return {};
}

}  // namespace pmstore::log
