// Transactions of one operation. Under lock discipline cpu a write is one RPC and nothing else: one
// doorbell, one round trip, one message.
#include "base/check.h"
#include "pmstore/client/client_state.h"
#include "pmstore/client/commit_message.h"
#include "pmstore/client/transaction_state.h"

namespace pmstore {

namespace {

// Under lock discipline rnic a write of a record that nobody has read loses only races; it may
// simply look again, but not for ever.
constexpr unsigned kRnicAttempts = 64;
constexpr uint64_t kMostPauseNs = 256'000;

}  // namespace

Task<Result<std::string>> Client::get(TableId table, std::string_view key) {
  if (Status sizes = check_key(key); !sizes) co_return std::move(sizes.error());
  internal::SessionRef session = state_->session;
  if (!state_->has_usable_session()) {
    PMSTORE_CO_TRY(session, co_await state_->connected());
  }
  std::string value;
  auto located = co_await state_->locate(std::move(session), table, key, &value);
  if (!located) co_return std::move(located.error());
  if (!located->found) co_return make_error(ErrorCode::kNotFound);
  co_return std::move(value);
}

Task<Status> Client::put(TableId table, std::string_view key, std::string_view value) {
  return state_->write_one(WriteKind::kPut, table, key, value);
}
Task<Status> Client::insert(TableId table, std::string_view key, std::string_view value) {
  return state_->write_one(WriteKind::kInsert, table, key, value);
}
Task<Status> Client::erase(TableId table, std::string_view key) {
  return state_->write_one(WriteKind::kErase, table, key, {});
}

Task<Status> Client::State::write_one(WriteKind kind, TableId table, std::string_view key,
                                      std::string_view value) {
  if (Status sizes = check_sizes(key, value); !sizes) co_return std::move(sizes.error());
  internal::SessionRef at = session;
  if (!has_usable_session()) {
    PMSTORE_CO_TRY(at, co_await connected());
  }
  if (at->discipline() == LockDiscipline::kRnic) {
    co_return co_await write_one_rnic(kind, table, key, value);
  }
  const TxId tx = next_id();
  Running is_running(*this, tx.sequence);
  MessageWriter request({scratch.get(), scratch_bytes});
  request.put(at->prefix());
  request.put(CommitRequest{tx.sequence, 0, 0, 1, 0});
  internal::put_write(request, {0, 0, 0, raw(table), 0, kind}, key, value);
  PMSTORE_CHECK(!request.overflowed(), "the scratch buffer takes the largest single write");
  constexpr auto kMethod = static_cast<uint16_t>(Method::kCommit);
  const auto answer = co_await at->rpc().call(kMethod, request.message(), sizeof(CommitReply));
  is_running.settled();
  co_return commit_status(tx, *at, answer);
}

Task<Status> Client::State::write_one_rnic(WriteKind kind, TableId table, std::string_view key,
                                           std::string_view value) {
  using internal::TxItem;
  uint64_t pause_ns = 1000;
  for (unsigned attempt = 1;; ++attempt) {
    Transaction transaction(take_transaction());
    switch (kind) {
      case WriteKind::kPut: transaction.put(table, key, value); break;
      case WriteKind::kInsert: transaction.insert(table, key, value); break;
      case WriteKind::kErase: transaction.erase(table, key); break;
    }
    Status done = co_await transaction.commit();
    if (done || done.code() != ErrorCode::kConflict || attempt == kRnicAttempts) {
      co_return std::move(done);
    }
    co_await executor.sleep_for(executor.random().below(pause_ns));
    if (pause_ns < kMostPauseNs) pause_ns *= 2;
  }
}

}  // namespace pmstore
