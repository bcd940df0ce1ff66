#include "fs/posix_error.h"

#include <fmt/format.h>

#include <cerrno>

namespace pmstore::fs {
namespace {

int number_of(base::ErrorCode code) {
  switch (code) {
    case base::ErrorCode::kInvalidArgument: return EINVAL;
    case base::ErrorCode::kNotFound: return ENOENT;
    case base::ErrorCode::kAlreadyExists: return EEXIST;
    case base::ErrorCode::kConflict:
    case base::ErrorCode::kBackPressure: return EAGAIN;
    case base::ErrorCode::kFull: return ENOSPC;
    case base::ErrorCode::kTooLarge: return EFBIG;
    case base::ErrorCode::kBusy: return EBUSY;
    case base::ErrorCode::kUnsupported: return EOPNOTSUPP;
    case base::ErrorCode::kFenced: return ESTALE;
    default: return EIO;
  }
}

}  // namespace

PosixError::PosixError(base::Error error)
    : number(number_of(error.code)), message(error.to_string()) {}

std::string PosixError::to_string() const {
  const std::string name = errno_name(number);
  return message.empty() ? name : fmt::format("{}: {}", name, message);
}

std::string errno_name(int number) {
  switch (number) {
    case EPERM: return "EPERM";
    case ENOENT: return "ENOENT";
    case EIO: return "EIO";
    case ENXIO: return "ENXIO";
    case E2BIG: return "E2BIG";
    case EBADF: return "EBADF";
    case EAGAIN: return "EAGAIN";
    case ENOMEM: return "ENOMEM";
    case EACCES: return "EACCES";
    case EFAULT: return "EFAULT";
    case EBUSY: return "EBUSY";
    case EEXIST: return "EEXIST";
    case EXDEV: return "EXDEV";
    case ENODEV: return "ENODEV";
    case ENOTDIR: return "ENOTDIR";
    case EISDIR: return "EISDIR";
    case EINVAL: return "EINVAL";
    case ENFILE: return "ENFILE";
    case EMFILE: return "EMFILE";
    case EFBIG: return "EFBIG";
    case ENOSPC: return "ENOSPC";
    case ESPIPE: return "ESPIPE";
    case EROFS: return "EROFS";
    case EMLINK: return "EMLINK";
    case ERANGE: return "ERANGE";
    case EDEADLK: return "EDEADLK";
    case ENAMETOOLONG: return "ENAMETOOLONG";
    case ENOLCK: return "ENOLCK";
    case ENOSYS: return "ENOSYS";
    case ENOTEMPTY: return "ENOTEMPTY";
    case ELOOP: return "ELOOP";
    case ENODATA: return "ENODATA";
    case EPROTO: return "EPROTO";
    case EOVERFLOW: return "EOVERFLOW";
    case EOPNOTSUPP: return "EOPNOTSUPP";
    case ETIMEDOUT: return "ETIMEDOUT";
    case ESTALE: return "ESTALE";
    case ENOTCONN: return "ENOTCONN";
    case EINTR: return "EINTR";
    default: return fmt::format("errno {}", number);
  }
}

}  // namespace pmstore::fs
