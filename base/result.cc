#include "base/result.h"

namespace pmstore::base {

std::string_view error_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "InvalidArgument";
    case ErrorCode::kNotFound: return "NotFound";
    case ErrorCode::kAlreadyExists: return "AlreadyExists";
    case ErrorCode::kConflict: return "Conflict";
    case ErrorCode::kFull: return "Full";
    case ErrorCode::kTooLarge: return "TooLarge";
    case ErrorCode::kUnknownTable: return "UnknownTable";
    case ErrorCode::kBusy: return "Busy";
    case ErrorCode::kBadPool: return "BadPool";
    case ErrorCode::kVersionMismatch: return "VersionMismatch";
    case ErrorCode::kUnsupported: return "Unsupported";
    case ErrorCode::kDisconnected: return "Disconnected";
    case ErrorCode::kTimeout: return "Timeout";
    case ErrorCode::kCommitUnknown: return "CommitUnknown";
    case ErrorCode::kOutcomeExpired: return "OutcomeExpired";
    case ErrorCode::kProtocol: return "Protocol";
    case ErrorCode::kBackPressure: return "BackPressure";
    case ErrorCode::kAccess: return "Access";
    case ErrorCode::kIo: return "Io";
    case ErrorCode::kTrimmed: return "Trimmed";
    case ErrorCode::kSealed: return "Sealed";
    case ErrorCode::kFenced: return "Fenced";
    case ErrorCode::kDamaged: return "Damaged";
  }
  return "Error";
}

std::string Error::to_string() const {
  std::string text(error_name(code));
  if (!message.empty()) text += ": " + message;
  return text;
}

}  // namespace pmstore::base
