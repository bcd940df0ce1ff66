// Result<T>: a value or an Error. ErrorCode is the only error table of the project.
//
// A code exists only if some caller reacts to it differently from the others; everything else that
// a person needs is in Error::message, one line: what, why, what to do. Threads: values, no
// sharing.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace pmstore::base {

// The values travel between processes: new ones go at the end, and kLastErrorCode names the last.
enum class ErrorCode {
  kInvalidArgument,  // the request is wrong by itself; repeating it cannot help
  kNotFound,         // no such key
  kAlreadyExists,    // insert of a key that is there
  kConflict,         // the transaction lost against another one and did nothing; run it again
  kFull,             // the pool has no room; deleting makes room
  kTooLarge,         // key, value, transaction or message over its limit
  kUnknownTable,     // no such table in this pool
  kBusy,             // the pool is in use by another process
  kBadPool,          // not a pool, truncated, or damaged
  kVersionMismatch,  // a pool or a peer of another format version
  kUnsupported,      // stronger than the peer's or the machine's capability
  kDisconnected,     // the connection is broken; nothing was in doubt
  kTimeout,          // no answer in time, and nothing was in doubt
  kCommitUnknown,    // the commit may or may not have happened; ask by transaction id
  kOutcomeExpired,   // the outcome of that transaction is no longer kept
  kProtocol,         // a malformed message; it costs the sender its connection
  kBackPressure,     // a bounded resource is used up for the moment; try again later
  kAccess,           // a remote access outside what was granted
  kIo,               // the operating system refused
  kTrimmed,          // of a log: what was asked for is no longer kept; read on from its start. Of a
                     // scan: records have moved; begin it again
  kSealed,           // of a log: nothing can be appended any more
  kFenced,           // of a log: another producer has taken over; this one cannot append any more
  kDamaged,          // the medium lost a record, or an entry of a log; the message says which
};

inline constexpr ErrorCode kLastErrorCode = ErrorCode::kDamaged;

// The name as printed, for instance "Conflict".
std::string_view error_name(ErrorCode code);

struct Error {
  ErrorCode code;
  std::string message;  // one line; may be empty on hot paths, then error_name(code) says enough

  // "Conflict: message", or "Conflict".
  std::string to_string() const;
};

template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
  Result(Error error) : tl::expected<T, Error>(tl::unexpect, std::move(error)) {}
  ErrorCode code() const { return this->error().code; }
};

using Status = Result<void>;

inline Error make_error(ErrorCode code, std::string message = {}) {
  return Error{code, std::move(message)};
}

}  // namespace pmstore::base

namespace pmstore {
using base::Error;
using base::ErrorCode;
using base::make_error;
using base::Result;
using base::Status;
}  // namespace pmstore

#define PMSTORE_CONCAT_(a, b) a##b
#define PMSTORE_CONCAT(a, b) PMSTORE_CONCAT_(a, b)
// Return the error of `expression` from a plain function, or bind its value.
#define PMSTORE_TRY(declaration, expression) \
  PMSTORE_TRY_(PMSTORE_CONCAT(try_, __COUNTER__), declaration, expression, return )
#define PMSTORE_CO_TRY(declaration, expression) \
  PMSTORE_TRY_(PMSTORE_CONCAT(try_, __COUNTER__), declaration, expression, co_return )
#define PMSTORE_TRY_(temporary, declaration, expression, give_back) \
  auto temporary = (expression);                                    \
  if (!temporary) [[unlikely]]                                      \
    give_back std::move(temporary.error());                         \
  declaration = std::move(*temporary)
// The same where there is no value.
#define PMSTORE_TRY_STATUS(expression) \
  PMSTORE_TRY_STATUS_(PMSTORE_CONCAT(try_, __COUNTER__), expression, return )
#define PMSTORE_CO_TRY_STATUS(expression) \
  PMSTORE_TRY_STATUS_(PMSTORE_CONCAT(try_, __COUNTER__), expression, co_return )
#define PMSTORE_TRY_STATUS_(temporary, expression, give_back) \
  auto temporary = (expression);                              \
  if (!temporary) [[unlikely]]                                \
  give_back std::move(temporary.error())
