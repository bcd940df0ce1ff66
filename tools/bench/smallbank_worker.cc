#include "tools/bench/smallbank_worker.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/cli/console.h"

namespace pmstore::tools::smallbank {
namespace {

constexpr uint64_t kAwayPauseNs = 20'000'000;
constexpr unsigned kMaxConflicts =
    100'000;  // of one order; only a lock that nobody frees gets there

bool is_away(ErrorCode code) {
  return code == ErrorCode::kDisconnected || code == ErrorCode::kTimeout;
}

// The server runs but has no room for the client yet.
bool is_connection_trouble(ErrorCode code) {
  return is_away(code) || code == ErrorCode::kBackPressure;
}

// The error of a run that does not wait for the server, or no longer.
Error with_advice(Error error) {
  if (!is_away(error.code)) return error;
  error.message +=
      "; the server is away: start it again, or give --ride-through SECONDS to wait for it";
  return error;
}

Error still_unknown(TxId transaction, const Error& why) {
  return make_error(ErrorCode::kCommitUnknown,
                    fmt::format("transaction {} may or may not have committed, and the server is "
                                "away ({}): when it is back, ask it with pmstore kv outcome {}; "
                                "--ride-through SECONDS waits for it",
                                transaction.to_string(), why.to_string(), transaction.to_string()));
}

}  // namespace

std::string ledger_key(uint64_t run, uint32_t client, uint32_t coroutine) {
  return fmt::format("{:016x}-{:04}-{:04}", run, client, coroutine);
}

Task<Status> Worker::run(BenchControl& control) {
  Executor& executor = client_.executor();
  for (uint64_t done = 0; plan_.ops == 0 || done < plan_.ops; ++done) {
    const uint64_t start_ns = executor.now_ns();
    if (control.over(start_ns)) co_return Status{};
    const Order order = orders_.next();
    auto finished = co_await perform(order, control);
    if (!finished) co_return std::move(finished.error());
    Tally::OfKind& kind = tally_.kinds[static_cast<size_t>(order.kind)];
    if (*finished == Done::kCommitted) {
      kind.latency_ns.record(executor.now_ns() - start_ns);
      tally_.committed.fetch_add(1, std::memory_order_relaxed);
    } else if (*finished == Done::kRolledBack) {
      ++kind.rolled_back;
    }
  }
  co_return Status{};
}

Task<Result<Worker::Done>> Worker::perform(Order order, BenchControl& control) {
  Executor& executor = client_.executor();
  uint64_t pause_ns = 1000;
  unsigned conflicts = 0;
  for (;;) {
    auto done = co_await attempt(order);
    if (!done && done.code() == ErrorCode::kCommitUnknown) done = co_await resolve();
    if (done) {
      away_since_ns_ = 0;
      co_return std::move(done);
    }
    if (done.code() == ErrorCode::kConflict && conflicts < kMaxConflicts) {
      ++conflicts;
      ++tally_.kinds[static_cast<size_t>(order.kind)].conflicts;
      tally_.conflicted.fetch_add(1, std::memory_order_relaxed);
      away_since_ns_ = 0;
      co_await executor.sleep_for(executor.random().below(pause_ns));
      pause_ns = std::min<uint64_t>(pause_ns * 2, 1'000'000);
    } else if (may_ride_through(done.code())) {
      ++tally_.reconnected_tries;
      co_await executor.sleep_for(kAwayPauseNs);
    } else {
      co_return with_advice(std::move(done.error()));
    }
    if (control.over(executor.now_ns())) co_return Done::kGivenUp;
  }
}

bool Worker::may_ride_through(ErrorCode code) {
  if (plan_.ride_through_ns == 0 || !is_connection_trouble(code)) return false;
  const uint64_t now_ns = client_.executor().now_ns();
  if (away_since_ns_ == 0) away_since_ns_ = now_ns;
  return now_ns - away_since_ns_ < plan_.ride_through_ns;
}

Task<Status> Worker::read_ledger(Transaction& transaction) {
  auto text = co_await transaction.get(plan_.tables.ledger, key_);
  const bool missing = !text && text.code() == ErrorCode::kNotFound;
  if (!text && !missing) co_return std::move(text.error());
  const auto stored = missing ? LedgerEntry{} : decode_ledger(*text);
  if (stored == expected_) co_return Status{};
  // Before anything overwrites the evidence. (A read that is stale would fail its validation, but a
  // worker's own record is written by nobody else.)
  std::string why = fmt::format("ledger record {} is '{}', but what was acknowledged makes '{}'",
                                key_, missing ? "missing" : *text, encode(expected_));
  tally_.mismatch(why);
  co_return make_error(ErrorCode::kBadPool, std::move(why));
}

Task<Result<Worker::Done>> Worker::attempt(Order order) {
  Transaction transaction = client_.begin();
  if (order.kind != Kind::kBalance) {
    PMSTORE_CO_TRY_STATUS(co_await read_ledger(transaction));
  }
  PMSTORE_CO_TRY(const Effect effect, co_await execute(transaction, plan_.tables, order));
  if (effect.writes == 0) {
    // Only read, or refused by the bank: the reads still have to be of one moment.
    PMSTORE_CO_TRY_STATUS(co_await transaction.commit());
    co_return effect.rolled_back ? Done::kRolledBack : Done::kCommitted;
  }
  next_ = {expected_.transactions + 1, expected_.net_cents + effect.net_cents,
           expected_.writes + effect.writes};
  transaction.put(plan_.tables.ledger, key_, encode(next_));
  if (plan_.journal != nullptr) plan_.journal->note_attempted(plan_.client, plan_.coroutine, next_);
  const Status committed = co_await transaction.commit();
  if (!committed) {
    unknown_ = transaction.id();
    co_return committed.error();
  }
  expected_ = next_;
  if (plan_.journal != nullptr) {
    plan_.journal->note_acknowledged(plan_.client, plan_.coroutine, expected_);
  }
  co_return Done::kCommitted;
}

Task<Result<Worker::Done>> Worker::resolve() {
  Executor& executor = client_.executor();
  // The server may have to wait out leases before it can say.
  constexpr uint64_t kResolvingNs = 15'000'000'000;
  const uint64_t away_until_ns = executor.now_ns() + plan_.ride_through_ns;
  const Patience patience{away_until_ns + plan_.call_timeout_ns + kResolvingNs, away_until_ns};
  auto outcome = co_await client_.outcome(unknown_);
  while (!outcome && worth_asking_again(outcome.code(), patience)) {
    co_await executor.sleep_for(kAwayPauseNs);
    outcome = co_await client_.outcome(unknown_);
  }
  if (!outcome && is_connection_trouble(outcome.code())) {
    co_return still_unknown(unknown_, outcome.error());
  }
  if (!outcome) {
    std::string why = fmt::format("the outcome of {} cannot be found out: {}", unknown_.to_string(),
                                  why_text(outcome.error()));
    tally_.mismatch(why);
    co_return make_error(ErrorCode::kBadPool, std::move(why));
  }
  const bool committed = *outcome == Outcome::kCommitted;
  ++(committed ? tally_.unknown_committed : tally_.unknown_aborted);
  if (committed) expected_ = next_;
  if (plan_.journal != nullptr) {
    plan_.journal->note_acknowledged(plan_.client, plan_.coroutine, expected_);
  }
  PMSTORE_CO_TRY_STATUS(co_await compare_ledger(patience));
  // The order is tried again.
  if (!committed) co_return make_error(ErrorCode::kConflict);
  co_return Done::kCommitted;
}

bool Worker::worth_asking_again(ErrorCode code, const Patience& patience) const {
  const uint64_t now_ns = client_.executor().now_ns();
  if (is_away(code)) return now_ns < patience.away_until_ns;
  const bool undecided = code == ErrorCode::kCommitUnknown || code == ErrorCode::kConflict ||
                         code == ErrorCode::kBackPressure;
  return undecided && now_ns < patience.present_until_ns;
}

Task<Status> Worker::compare_ledger(Patience patience) {
  Executor& executor = client_.executor();
  for (;;) {
    Transaction transaction = client_.begin();
    Status same = co_await read_ledger(transaction);
    if (same || !worth_asking_again(same.code(), patience)) co_return same;
    co_await executor.sleep_for(kAwayPauseNs);
  }
}

}  // namespace pmstore::tools::smallbank
