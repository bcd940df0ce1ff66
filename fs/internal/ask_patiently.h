// ask_patiently(): asks the store for what it knows, for as long as an answer may still come.
//
// A store that is away, busy, or short of something may answer later: it is asked again after a
// pause, for a bounded time. Three kinds of ends are no answer: the store has failed for good, it
// has said something that it says each time, or the time is over. Threads: the executor's.
// Lifetimes: the executor outlives the task, and so does what `ask` and `has_failed` refer to.
#pragma once

#include <cstdint>
#include <utility>

#include "base/check.h"
#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"

namespace pmstore::fs::internal {

// The same question leads to the same error, however long the store is there.
inline bool stays(ErrorCode code) {
  switch (code) {
    // What is asked for is not there, or the question is wrong.
    case ErrorCode::kNotFound:
    case ErrorCode::kOutcomeExpired:
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnknownTable:
    // The store refuses this client, whose secret does not change.
    case ErrorCode::kAccess:
    // The store that answers has another format, or has lost the record.
    case ErrorCode::kBadPool:
    case ErrorCode::kVersionMismatch:
    case ErrorCode::kUnsupported:
    case ErrorCode::kDamaged: return true;
    case ErrorCode::kAlreadyExists:
    case ErrorCode::kConflict:
    case ErrorCode::kFull:
    case ErrorCode::kTooLarge:
    case ErrorCode::kBusy:
    case ErrorCode::kDisconnected:
    case ErrorCode::kTimeout:
    case ErrorCode::kCommitUnknown:
    // A peer that restarts may break off in the middle of an answer, and a new session mends that.
    case ErrorCode::kProtocol:
    case ErrorCode::kBackPressure:
    // Also for lack of memory. A store that has failed for good gives it, too: see `has_failed`.
    case ErrorCode::kIo:
    case ErrorCode::kTrimmed:
    case ErrorCode::kSealed:
    case ErrorCode::kFenced: return false;
  }
  PMSTORE_CHECK(false, "every code of an error is in the list");
  return true;
}

// After an error that passes, the store is asked again for so long, in virtual or real time. A
// server that is started again by hand is back before.
inline constexpr uint64_t kPatienceNs = 600'000'000'000;

// `ask` gives a Task<Result<T>>, bounded by itself; `has_failed` says whether the store has failed.
// An error: it stays, the store has failed, or it is the last one of `patience_ns`.
template <typename T, typename Ask, typename HasFailed>
base::Task<Result<T>> ask_patiently(base::Executor& executor, uint64_t pause_ns,
                                    uint64_t patience_ns, Ask ask, HasFailed has_failed) {
  const uint64_t begun_ns = executor.now_ns();
  while (true) {
    Result<T> answer = co_await ask();
    if (answer || stays(answer.code()) || has_failed()) co_return std::move(answer);
    if (executor.now_ns() - begun_ns >= patience_ns) co_return std::move(answer);
    co_await executor.sleep_for(pause_ns);
  }
}

}  // namespace pmstore::fs::internal
