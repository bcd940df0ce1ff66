// The data path of LogProducer: appends, and what an append that finds no room or no connection
// does.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "fabric/message.h"
#include "log/internal/log_producer_state.h"
#include "log/log_producer.h"

namespace pmstore::log {
namespace {

// Between two looks at whether what is in flight has landed.
constexpr uint64_t kInFlightPauseNs = 5'000;

}  // namespace

Status LogProducer::State::check(const RemoteAppender::Entries& entries) const {
  const size_t count = entries.payloads.size();
  if (count == 0 || (!entries.gather && count > kMaxBatchEntries)) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{} entries cannot be appended at a time: 1 to {} can", count,
                                  kMaxBatchEntries));
  }
  uint64_t bytes = 0;
  bool empty = false;
  bool large = false;
  for (const auto& payload : entries.payloads) {
    bytes += payload.size();
    empty |= payload.empty();
    large |= payload.size() > kMaxEntryBytes;
  }
  if (entries.gather ? bytes == 0 : empty) {
    return make_error(ErrorCode::kInvalidArgument, "an entry has at least one byte");
  }
  if (large || (entries.gather && bytes > kMaxEntryBytes)) {
    return make_error(ErrorCode::kTooLarge,
                      fmt::format("an entry is at most {} bytes: use several", kMaxEntryBytes));
  }
  return {};
}

base::Task<Result<Appended>> LogProducer::State::append(RemoteAppender::Entries entries) {
  PMSTORE_CO_TRY_STATUS(check(entries));
  if (lost) co_return Error(*lost);
  if (closing) co_return closed_error();
  if (broken() || link->rpc().failed()) {
    const Error seen = broken()
                           ? link->connection().why_broken()
                           : make_error(ErrorCode::kDisconnected, "the server does not answer");
    co_return co_await why_lost(seen);
  }
  entries.prefix = std::as_bytes(std::span(&prefix, 1));
  entries.next_sequence = &next_index;
  entries.room = this;
  Result<RemoteAppender::Appended> appended = co_await appender->append_all(entries);
  if (appended) [[likely]] {
    landed_lsn = appended->next_lsn;
    if (!options.replica) {
      publisher->set_durable(appended->persisted, appended->next_lsn);
      prefix.durable_lsn = appended->next_lsn;
    }
    PMSTORE_CHECK(publisher->durable() <= landed_lsn && landed_lsn <= appender->position().tail_lsn,
                  "readers would read behind the last entry");
    co_return Appended{appended->lsn, appended->next_lsn, entries.last_sequence};
  }
  const Error seen = appended.error();
  // Nothing was written, and the next one may succeed.
  if (!entries.placed && !broken()) co_return Error(seen);
  Error why = co_await why_lost(seen);
  if (!entries.placed || why.code == ErrorCode::kFenced) co_return std::move(why);
  co_return make_error(
      ErrorCode::kCommitUnknown,
      fmt::format("entries {} to {} may or may not be there: open a producer again "
                  "and compare its next index ({})",
                  entries.last_sequence - (entries.gather ? 0 : entries.payloads.size() - 1),
                  entries.last_sequence, why.to_string()));
}

base::Task<Result<Appended>> LogProducer::append(std::span<const std::byte> payload) {
  const std::span<const std::byte> one[] = {payload};
  RemoteAppender::Entries entries;
  entries.payloads = one;
  co_return co_await state_->append(entries);
}

base::Task<Result<Appended>> LogProducer::append_gather(
    std::span<const std::span<const std::byte>> pieces) {
  RemoteAppender::Entries entries;
  entries.payloads = pieces;
  entries.gather = true;
  return state_->append(entries);
}

base::Task<Result<Appended>> LogProducer::append_batch(
    std::span<const std::span<const std::byte>> payloads) {
  RemoteAppender::Entries entries;
  entries.payloads = payloads;
  return state_->append(entries);
}

base::Task<Result<Appended>> LogProducer::append_batch_at(
    std::span<const std::span<const std::byte>> payloads, uint64_t first_index) {
  RemoteAppender::Entries entries;
  entries.payloads = payloads;
  entries.expected_sequence = first_index;
  return state_->append(entries);
}

// ---- room ----

base::Task<Result<uint64_t>> LogProducer::State::make_room(uint64_t tail_lsn, uint64_t bytes) {
  const uint64_t give_up_ns = executor.now_ns() + client.state_->options.call_timeout_ns;
  while (true) {
    PMSTORE_CO_TRY(const uint64_t start, co_await read_start());
    if (fits(start, tail_lsn, bytes) || log.reply.when_full == FullPolicy::kBackPressure) {
      co_return start;
    }
    // The server trims only what is published, so that much at least.
    publisher->post();
    const uint64_t durable = publisher->durable();
    const uint64_t behind = tail_lsn + bytes - durable;
    if (behind <= answer.data.bytes) {
      Result<uint64_t> made = co_await ask_for_room(behind);
      if (made || made.code() != ErrorCode::kBackPressure) co_return std::move(made);
    }
    // Entries in flight take the room; they land, or the connection breaks.
    if (durable == tail_lsn || executor.now_ns() >= give_up_ns) {
      co_return make_error(
          ErrorCode::kBackPressure,
          fmt::format("{} bytes cannot be made free: append less at a time", bytes));
    }
    while (publisher->durable() == durable && !broken() && executor.now_ns() < give_up_ns) {
      co_await executor.sleep_for(kInFlightPauseNs);
    }
    if (broken()) co_return link->connection().why_broken();
  }
}

base::Task<Result<uint64_t>> LogProducer::State::read_start() {
  LogClient::State& session = *client.state_;
  const uint64_t timeout_ns = session.options.call_timeout_ns;
  PMSTORE_CO_TRY_STATUS(co_await words->settle(timeout_ns));
  PMSTORE_CO_TRY(const LogClient::State::LinkRef on, co_await session.connected());
  words->clear(on);
  words->read(0, sizeof(LogWords), session.words_at(log));
  PMSTORE_CO_TRY_STATUS(co_await words->execute(on->connection(), timeout_ns));
  LogWords seen;
  std::memcpy(&seen, words->bytes().data(), sizeof seen);
  if (seen.id != log.reply.id || seen.incarnation != answer.incarnation) {
    co_return make_error(ErrorCode::kFenced, "another one has the log");
  }
  co_return seen.start_lsn;
}

base::Task<Result<uint64_t>> LogProducer::State::ask_for_room(uint64_t bytes) {
  const MakeRoomRequest request{bytes};
  auto answered = co_await link->call(static_cast<uint16_t>(LogMethod::kMakeRoom),
                                      service::bytes_of(request), sizeof(TrimReply));
  if (!answered) co_return std::move(answered.error());
  fabric::MessageReader reader(answered->bytes());
  const auto reply = reader.get<TrimReply>();
  if (!reader.complete()) {
    co_return make_error(ErrorCode::kProtocol, "the server's reply about room is malformed");
  }
  co_return reply.start_lsn;
}

// ---- losing the log ----

base::Task<Error> LogProducer::State::why_lost(Error seen) {
  while (asking) co_await asked.wait();
  if (lost) co_return Error(*lost);
  struct Asking {
    State& state;
    explicit Asking(State& of) : state(of) { state.asking = true; }
    ~Asking() {
      state.asking = false;
      state.asked.notify_all();
    }
  };
  const Asking guard(*this);
  // The server fences and raises the incarnation in one turn, so it has done so when it answers.
  const auto now = co_await client.open(log.name);
  const bool taken = now && (now->id != log.reply.id || now->incarnation != answer.incarnation);
  if (taken) {
    lost = make_error(ErrorCode::kFenced,
                      fmt::format("another producer has the log {}, or this one's lease ran out: "
                                  "open it again to append",
                                  log.name));
  } else {
    lost = std::move(seen);
  }
  co_return Error(*lost);
}

}  // namespace pmstore::log
