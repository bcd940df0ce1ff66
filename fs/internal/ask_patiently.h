// ask_patiently(): asks the store for what it knows, for as long as an answer may still come.
//
// A store that is away, busy, or short of something may answer later: it is asked again after a
// pause. Two kinds of ends are no answer: the store has failed for good, or it has said something
// that it says each time. Threads: the executor's. Lifetimes: the executor outlives the task, and
// so does what `ask` and `has_failed` refer to.
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
    case ErrorCode::kAccess:
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

// `ask` gives a Task<Result<T>>; `has_failed` says whether the store has failed. An error: it
// stays, or the store has failed.
template <typename T, typename Ask, typename HasFailed>
base::Task<Result<T>> ask_patiently(base::Executor& executor, uint64_t pause_ns, Ask ask,
                                    HasFailed has_failed) {
  while (true) {
    Result<T> answer = co_await ask();
    if (answer || stays(answer.code()) || has_failed()) co_return std::move(answer);
    co_await executor.sleep_for(pause_ns);
  }
}

}  // namespace pmstore::fs::internal
