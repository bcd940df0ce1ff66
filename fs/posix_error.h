// PosixError: why a file operation failed, as an errno and one line for people.
//
// Programs of a mount react to errnos, so every file operation ends with one. An Error of the store
// or of the network becomes the errno that a program can do something with (docs/files.md has the
// table). Threads: values.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "base/result.h"

namespace pmstore::fs {

struct PosixError {
  PosixError(int error_number, std::string what = {})
      : number(error_number), message(std::move(what)) {}
  // Full: ENOSPC; Timeout, Disconnected: EIO; and so on.
  PosixError(base::Error error);

  int number;           // as in <cerrno>, never 0
  std::string message;  // one line; may be empty, then the errno says enough

  // "ENOENT: message", or "ENOENT".
  std::string to_string() const;
};

// "ENOENT"; "errno 200" for one that has no name here.
std::string errno_name(int number);

template <typename T>
class [[nodiscard]] PosixResult : public tl::expected<T, PosixError> {
 public:
  using tl::expected<T, PosixError>::expected;
  PosixResult(PosixError error) : tl::expected<T, PosixError>(tl::unexpect, std::move(error)) {}
  PosixResult(base::Error error)
      : tl::expected<T, PosixError>(tl::unexpect, PosixError(std::move(error))) {}
  int number() const { return this->error().number; }
};

using PosixStatus = PosixResult<void>;

}  // namespace pmstore::fs
