#include "tools/daemon/session_log.h"

#include <fmt/format.h>

namespace pmstore::tools {
namespace {

std::string name_text(const SessionName& session) {
  return fmt::format("{} session {} at {}", session.kind, session.client.to_string(), session.via);
}

std::string_view reason(SessionEnd why) {
  switch (why) {
    case SessionEnd::kGoodbye: return "ended in order";
    case SessionEnd::kDisconnected: return "disconnected";
    case SessionEnd::kSilent: return "fenced: it was silent longer than its lease";
    case SessionEnd::kMalformed: return "fenced: it sent a malformed message";
    case SessionEnd::kReplaced: return "fenced: replaced by a newer session";
    case SessionEnd::kKicked: return "fenced: an administrator ended it";
    case SessionEnd::kHeldLock: return "fenced: it kept a record locked longer than its lease";
    case SessionEnd::kFull: return "fenced: it held memory for messages, and others needed it";
  }
  return "ended";
}

// Everyday events of clients are logged at level debug only.
LogLevel level_of(const SessionName& session, SessionEnd why) {
  if (why == SessionEnd::kGoodbye) return LogLevel::kDebug;
  if (why != SessionEnd::kDisconnected) return LogLevel::kWarning;
  // Clients of logs have no other end.
  return session.kind == "store" ? LogLevel::kInfo : LogLevel::kDebug;
}

}  // namespace

void SessionLog::on_session(const SessionName& session) {
  log_.write(LogLevel::kDebug, name_text(session) + " connected");
}

void SessionLog::on_refused(const SessionName& session, const Error& why) {
  summarize();
  if (!refusals_.allow()) return;
  log_.write(LogLevel::kWarning, fmt::format("{} refused: {}", name_text(session),
                                             why.message.empty() ? why.to_string() : why.message));
}

void SessionLog::on_ended(const SessionName& session, SessionEnd why) {
  summarize();
  const LogLevel level = level_of(session, why);
  if (level != LogLevel::kDebug && !ends_.allow()) return;
  log_.write(level, fmt::format("{} {}", name_text(session), reason(why)));
}

void SessionLog::on_warning(const std::string& what) {
  summarize();
  if (warnings_.allow()) log_.write(LogLevel::kWarning, what);
}

void SessionLog::summarize() {
  if (const uint64_t count = refusals_.take_suppressed(); count > 0) {
    log_.write(LogLevel::kWarning, fmt::format("{} more sessions were refused", count));
  }
  if (const uint64_t count = ends_.take_suppressed(); count > 0) {
    log_.write(LogLevel::kWarning, fmt::format("{} more sessions were fenced or lost", count));
  }
  if (const uint64_t count = warnings_.take_suppressed(); count > 0) {
    log_.write(LogLevel::kWarning, fmt::format("{} more warnings of services", count));
  }
}

}  // namespace pmstore::tools
