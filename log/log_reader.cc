// What a LogReader makes of what it READ.
#include "log/log_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "log/entry.h"
#include "log/internal/log_membership.h"
#include "log/internal/log_reader_state.h"

namespace pmstore::log {

using internal::ParsedEntry;

LogReader::LogReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
LogReader::~LogReader() = default;

base::Task<Result<std::unique_ptr<LogReader>>> LogReader::open(LogClient& client, uint64_t log,
                                                               LogReaderOptions options) {
  PMSTORE_CO_TRY(const LogInfo info, co_await client.state_->ask(client, log));
  if (is_lost(info)) {
    co_return make_error(ErrorCode::kDamaged,
                         fmt::format("nothing is left of the log {}: delete it", info.name));
  }
  if (!info.replicas.empty() && !options.current_replica) {
    co_return make_error(ErrorCode::kUnsupported,
                         fmt::format("the log {} is replicated, and this replica may have been "
                                     "dropped: find one with open_current_replica()",
                                     info.name));
  }
  PMSTORE_CO_TRY(KnownLog known, co_await client.state_->find(log));
  auto state = std::make_unique<State>(client, std::move(known), options);
  PMSTORE_CO_TRY(state->buffer,
                 internal::ReadBuffer::create(*client.state_->device,
                                              State::kWindowAt + options.window_bytes));
  state->replicated = !info.replicas.empty();
  state->position = state->start = info.start_lsn;
  state->tail = std::max(info.tail_lsn, options.unpublished_to_lsn);
  co_return std::unique_ptr<LogReader>(new LogReader(std::move(state)));
}

bool LogReader::State::follows_the_last(const ParsedEntry& entry) const {
  if (expected_lsn != position) return true;
  return entry.index == last_index + 1 && entry.incarnation >= last_incarnation;
}

base::Task<Status> LogReader::State::find() {
  uint64_t needed = 1;
  while (true) {
    if (from_start || held() < needed) {
      PMSTORE_CO_TRY_STATUS(co_await fetch(needed));
      if (held() < needed) co_return damaged();
    }
    found = parse();
    switch (found.kind) {
      case ParsedEntry::Kind::kEntry:
        if (!follows_the_last(found)) co_return damaged();
        co_return Status{};
      case ParsedEntry::Kind::kPad:
        PMSTORE_CHECK(found.next_lsn > position, "the same pad would be read for ever");
        if (expected_lsn == position) expected_lsn = found.next_lsn;
        position = found.next_lsn;
        needed = 1;
        break;
      case ParsedEntry::Kind::kPartial: needed = found.needed_bytes; break;
      case ParsedEntry::Kind::kInvalid: co_return damaged();
    }
  }
}

base::Task<Result<LogEntry>> LogReader::State::next() {
  PMSTORE_CO_TRY_STATUS(co_await find());
  PMSTORE_CHECK(found.next_lsn > position, "the same entry would be read for ever");
  const LogEntry entry{position, found.next_lsn, found.index, found.payload};
  position = expected_lsn = found.next_lsn;
  last_index = found.index;
  last_incarnation = found.incarnation;
  news = true;
  co_return entry;
}

// Looks at every place where an entry may begin. What is READ and summed for that is bounded, also
// when somebody has filled entries with what looks like headers: then all up to the tail is given
// up.
base::Task<Result<DamagedRange>> LogReader::State::skip_damaged() {
  if (from_start) {
    PMSTORE_CO_TRY_STATUS(co_await fetch(1));
  }
  const uint64_t from = position;
  const uint64_t end = std::max(tail, from);
  uint64_t budget = 8 * log.data_bytes() + (8u << 20);
  expected_lsn = UINT64_MAX;
  while (position < end && budget > 0) {
    uint64_t needed = std::min<uint64_t>(sizeof(EntryHeader), end - position);
    uint64_t step = kLsnUnit;
    while (is_boundary(position, log.data_bytes())) {
      if (held() < needed) {
        PMSTORE_CO_TRY_STATUS(co_await fetch(needed));
        budget -= std::min(budget, held());
        if (held() < needed) break;
      }
      if (!internal::begins_like_entry(at_position(), position)) break;
      found = parse();
      if (found.kind == ParsedEntry::Kind::kPartial) {
        needed = found.needed_bytes;
        continue;
      }
      budget -= std::min(budget, needed);
      if (found.kind == ParsedEntry::Kind::kEntry && found.index > last_index) {
        co_return DamagedRange{from, position};
      }
      if (found.kind == ParsedEntry::Kind::kPad) step = found.next_lsn - position;
      break;
    }
    position += step;
  }
  position = end;
  co_return DamagedRange{from, end};
}

void LogReader::seek(uint64_t lsn) {
  State& state = *state_;
  state.from_start = lsn == 0;
  state.position = lsn;
  state.window_bytes = 0;
  state.expected_lsn = UINT64_MAX;
  state.last_index = 0;
}

base::Task<Status> LogReader::seek_to_tail() {
  State& state = *state_;
  PMSTORE_CO_TRY_STATUS(co_await state.read_words());
  seek(state.tail);
  state.from_start = false;
  state.position = state.tail;
  co_return Status{};
}

base::Task<Result<LogEntry>> LogReader::next() { return state_->next(); }

base::Task<Result<LogReader::State::Standing>> LogReader::State::standing() {
  PMSTORE_CO_TRY(const LogInfo own, co_await client.state_->ask(client, log.reply.id));
  LogClientOptions asking = client.state_->options;
  asking.secret = {};
  const std::vector<std::string> nobody;
  const auto asked =
      co_await internal::ask_servers(client.executor(), log.name, own.replicas, nobody, asking);
  PMSTORE_CO_TRY(const auto decided, internal::decide_membership(asked, nobody));
  if (decided.identity != own.identity) co_return Standing::kDeleted;
  if (decided.number == own.membership) {
    co_return decided.replicas == own.replicas ? Standing::kCurrent : Standing::kDropped;
  }
  if (decided.pending) {
    co_return make_error(ErrorCode::kConflict,
                         "a change of its members was interrupted: open the log as a producer, "
                         "which finishes it (pmstore log append)");
  }
  // The decision may have been recorded here since it was asked.
  PMSTORE_CO_TRY(const LogInfo now, co_await client.state_->ask(client, log.reply.id));
  if (now.membership == own.membership) co_return Standing::kDropped;
  co_return make_error(ErrorCode::kConflict, "its members are being changed");
}

base::Task<Status> LogReader::State::watch_membership() {
  if (!replicated) co_return Status{};
  base::Executor& executor = client.executor();
  if (news) {  // every member had what came
    quiet_since_ns = executor.now_ns();
    unknown_since_ns.reset();
  }
  news = false;
  if (executor.now_ns() - quiet_since_ns < options.ask_members_ns) co_return Status{};
  const auto current = co_await standing();
  quiet_since_ns = executor.now_ns();
  if (current) {
    unknown_since_ns.reset();
    if (*current == Standing::kCurrent) co_return Status{};
    if (*current == Standing::kDeleted) {
      co_return make_error(ErrorCode::kInvalidArgument,
                           fmt::format("the log {} was deleted and made again while this replica "
                                       "was away: open it again",
                                       log.name));
    }
    co_return make_error(
        ErrorCode::kConflict,
        fmt::format("this replica of the log {} was dropped, and nothing new comes "
                    "here: go on at lsn {} of one that is current",
                    log.name, position));
  }
  if (!unknown_since_ns) unknown_since_ns = quiet_since_ns;
  if (quiet_since_ns - *unknown_since_ns < options.unknown_ns) co_return Status{};
  co_return make_error(
      ErrorCode::kDisconnected,
      fmt::format(
          "it is not known whether this replica of the log {} is still current: {}{}", log.name,
          current.error().message,
          current.code() == ErrorCode::kConflict ? "" : "; bring that member back, or drop it"));
}

base::Task<Result<LogEntry>> LogReader::follow(uint64_t timeout_ns) {
  State& state = *state_;
  base::Executor& executor = state.client.executor();
  const uint64_t deadline_ns = executor.now_ns() + timeout_ns;
  uint64_t pause_ns = state.options.min_poll_ns;
  auto entry = co_await state.next();
  while (!entry && entry.code() == ErrorCode::kNotFound) {
    const uint64_t now_ns = executor.now_ns();
    if (now_ns >= deadline_ns) {
      PMSTORE_CO_TRY_STATUS(co_await state.watch_membership());
      co_return make_error(ErrorCode::kTimeout,
                           fmt::format("nothing new in the log {}", state.log.name));
    }
    co_await executor.sleep_for(std::min(pause_ns, deadline_ns - now_ns));
    pause_ns = std::min(2 * pause_ns, state.options.max_poll_ns);
    PMSTORE_CO_TRY_STATUS(co_await state.watch_membership());
    // The words alone: the log itself is left in peace while nothing comes.
    PMSTORE_CO_TRY_STATUS(co_await state.read_words());
    if (state.position < state.tail || state.sealed) entry = co_await state.next();
  }
  co_return std::move(entry);
}

base::Task<Result<DamagedRange>> LogReader::skip_damaged() { return state_->skip_damaged(); }

uint64_t LogReader::position() const { return state_->position; }
uint64_t LogReader::start_lsn() const { return state_->start; }
uint64_t LogReader::tail_lsn() const { return state_->tail; }

}  // namespace pmstore::log
