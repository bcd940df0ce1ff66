// TransactionNumbers: the numbers of one client's transactions, and how their commits stand.
//
// A client numbers its transactions (TxId::sequence). The handshake grants a session the numbers
// [first, first + kSessionSequences); a number is used once. A commit that takes a number is
// running, then it is settled (its caller has the answer) or in doubt (nobody has the answer;
// Client::outcome() asks for it). It is held while a server may not have the commit. Invariants:
// the next number never decreases, so no number is used twice; a running number was taken and runs
// once. Threads: the executor's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "pmstore/client/client_session.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class TransactionNumbers {
 public:
  explicit TransactionNumbers(ClientId client) : client_(client) {}

  ClientId client() const { return client_; }
  // False: the session has used up its numbers, and a new session must be made.
  bool available() const { return next_ < end_; }
  // CHECK: available().
  TxId take() {
    PMSTORE_CHECK(available(), "a number is taken only while the session has one");
    return {client_, next_++};
  }
  // A handshake has granted the numbers from `first` on. Protocol, and nothing changes: this client
  // has already used them all.
  Status begin_session(uint64_t first);
  // The session has the numbers from `first` on: begin_session() was the last to say so.
  bool has_begun(uint64_t first) const { return end_ == first + kSessionSequences; }
  // Takes the number out of use. Its outcome is final from now on: no commit will have it. False:
  // the number is beyond those of this session.
  bool retire(uint64_t sequence);

  // Marks a number as running for as long as the object exists. Destroyed before settled(), it puts
  // the number in doubt: no caller has been told how the commit ended.
  class Running;
  bool nothing_running() const { return running_.empty(); }
  bool nothing_in_doubt() const { return doubtful_.empty() && held_.empty(); }
  // For as long as the object exists no request of the session says that the number is known,
  // whatever becomes of its doubt: else a server that has the commit would forget it, and the votes
  // would abort it at a server that has it only prepared.
  class Held;
  bool is_running(TxId tx) const;
  // RequestPrefix::known_through of this client's requests: the oldest number of the session that
  // is running, in doubt or held is not known, nor are those behind it. Changes with what is known.
  std::shared_ptr<const uint64_t> known_through() const { return known_through_; }
  // A commit that ended with this number: will no request say soon that it is known? An older one
  // is in doubt until somebody asks for it, or held, or has been running for many numbers.
  bool is_held_back(uint64_t sequence) const;
  // The caller of outcome() has the answer.
  void resolve(TxId tx);

  // The commit `tx` may have happened. Drops its session, so that the server ends the session
  // before it tells the outcome, and puts the number in doubt. Gives CommitUnknown.
  Error in_doubt(TxId tx, ClientSession& session, const Error& why);
  // The result of a commit by the server's answer.
  Status commit_status(TxId tx, ClientSession& session, Status answer) {
    if (answer) [[likely]]
      return answer;
    return commit_failure(tx, session, std::move(answer.error()));
  }

  // So many doubts are kept, the youngest ones.
  static constexpr size_t kMaxDoubts = 4096;
  // is_held_back(): so many numbers may end while an older one is running.
  static constexpr uint64_t kMostBehind = 64;

 private:
  void add_doubt(uint64_t sequence) {
    PMSTORE_CHECK(sequence < next_, "only a commit that has a number can be in doubt");
    if (doubtful_.size() == kMaxDoubts) doubtful_.erase(doubtful_.begin());
    doubtful_.push_back(sequence);
  }
  void note_known();
  Error commit_failure(TxId tx, ClientSession& session, Error why);

  const ClientId client_;
  uint64_t next_ = 1;
  uint64_t end_ = 0;                // of the session's numbers
  std::vector<uint64_t> running_;   // in no order
  std::vector<uint64_t> doubtful_;  // oldest first
  std::vector<uint64_t> held_;      // in no order
  // Requests of operations that outlive the client may still be sent.
  const std::shared_ptr<uint64_t> known_through_ = std::make_shared<uint64_t>(0);
};

class TransactionNumbers::Running {
 public:
  Running(TransactionNumbers& numbers, uint64_t sequence) : numbers_(numbers), sequence_(sequence) {
    PMSTORE_CHECK(sequence_ < numbers_.next_, "a commit takes its number before it runs");
    numbers_.running_.push_back(sequence_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running();
  void settled() {
    PMSTORE_CHECK(!settled_, "a commit is settled once");
    settled_ = true;
  }

 private:
  TransactionNumbers& numbers_;
  uint64_t sequence_;
  bool settled_ = false;
};

class TransactionNumbers::Held {
 public:
  Held(TransactionNumbers& numbers, uint64_t sequence) : numbers_(numbers), sequence_(sequence) {
    numbers_.held_.push_back(sequence_);
    numbers_.note_known();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held();

 private:
  TransactionNumbers& numbers_;
  const uint64_t sequence_;
};

}  // namespace pmstore::internal
