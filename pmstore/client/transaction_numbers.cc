#include "pmstore/client/transaction_numbers.h"

#include <algorithm>
#include <string>

namespace pmstore::internal {

Status TransactionNumbers::begin_session(uint64_t first) {
  const uint64_t end = first + kSessionSequences;
  if (std::max(next_, first) >= end) {
    return make_error(ErrorCode::kProtocol,
                      "the server numbers transactions from " + std::to_string(first) +
                          " on, this client is at " + std::to_string(next_) +
                          ": it may serve an old copy of the pool; connect a new client");
  }
  next_ = std::max(next_, first);
  end_ = end;
  PMSTORE_CHECK(available(), "a session begins with numbers to use");
  note_known();
  return {};
}

bool TransactionNumbers::retire(uint64_t sequence) {
  if (sequence >= end_) return false;
  next_ = std::max(next_, sequence + 1);
  return true;
}

bool TransactionNumbers::is_running(TxId tx) const {
  return tx.client == client_ &&
         std::find(running_.begin(), running_.end(), tx.sequence) != running_.end();
}

[[gnu::hot]] void TransactionNumbers::note_known() {
  const uint64_t first = end_ - kSessionSequences;
  uint64_t oldest = next_;
  for (const auto* const open : {&running_, &held_, &doubtful_}) {
    for (const uint64_t each : *open) {
      if (each >= first) oldest = std::min(oldest, each);
    }
  }
  *known_through_ = oldest - 1;
}

bool TransactionNumbers::is_held_back(uint64_t sequence) const {
  if (*known_through_ >= sequence) return false;
  const uint64_t first = end_ - kSessionSequences;
  const auto before = [&](uint64_t each) { return each >= first && each <= sequence; };
  return sequence - *known_through_ > kMostBehind ||
         std::any_of(doubtful_.begin(), doubtful_.end(), before) ||
         std::any_of(held_.begin(), held_.end(), before);
}

void TransactionNumbers::resolve(TxId tx) {
  PMSTORE_CHECK(!is_running(tx), "the outcome of a running commit is not known");
  if (tx.client != client_) return;
  std::erase(doubtful_, tx.sequence);
  note_known();
}

Error TransactionNumbers::in_doubt(TxId tx, ClientSession& session, const Error& why) {
  session.drop();
  add_doubt(tx.sequence);
  return make_error(ErrorCode::kCommitUnknown,
                    "transaction " + tx.to_string() +
                        " may or may not have committed; ask for its outcome (" + why.to_string() +
                        ")");
}

Error TransactionNumbers::commit_failure(TxId tx, ClientSession& session, Error why) {
  const ErrorCode code = why.code;
  const bool open = code == ErrorCode::kDisconnected || code == ErrorCode::kTimeout ||
                    code == ErrorCode::kCommitUnknown;
  return open ? in_doubt(tx, session, why) : why;
}

[[gnu::hot]] TransactionNumbers::Running::~Running() {
  std::vector<uint64_t>& running = numbers_.running_;
  const auto found = std::find(running.begin(), running.end(), sequence_);
  PMSTORE_CHECK(found != running.end(), "a running commit is in the list until it ends");
  *found = running.back();
  running.pop_back();
  if (!settled_) numbers_.add_doubt(sequence_);
  numbers_.note_known();
}

TransactionNumbers::Held::~Held() {
  std::erase(numbers_.held_, sequence_);
  numbers_.note_known();
}

}  // namespace pmstore::internal
