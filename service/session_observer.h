// SessionObserver: is told of sessions that a server accepts, refuses and ends, and of its failure.
//
// Threads: called on the server's executor, from its handshakes and from the ends of connections,
// never from the data path; on_failure() also from there. An implementation does not block, throw,
// or call the server back.
// Lifetimes: it outlives the server; views are valid during the call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "service/identity.h"

namespace pmstore {

struct SessionName {
  std::string_view kind;  // "store", "log", "producer", "admin"
  ClientId client;        // the id in its hello; 0 when the hello could not be read
  std::string_view via;   // the URI that it came through
};

enum class SessionEnd : uint8_t {
  kGoodbye,       // in order
  kDisconnected,  // its connection was lost, or closed without a goodbye
  kSilent,        // its lease has run out
  kMalformed,     // it sent what does not decode
  kReplaced,      // its client came back, or another producer took its log over
  kKicked,        // an administrator ended it
  kFull,          // it held memory for messages longer than others did, and there was too little
  kHeldLock,      // under lock discipline rnic it kept a record locked for longer than its lease
};

class SessionObserver {
 public:
  virtual ~SessionObserver() = default;
  virtual void on_session(const SessionName& session) = 0;
  virtual void on_refused(const SessionName& session, const Error& why) = 0;
  virtual void on_ended(const SessionName& session, SessionEnd why) = 0;
  // The pool cannot be written any more, and the server refuses all work: it should be stopped.
  // Called once.
  virtual void on_failure(const Error& why) = 0;
  // Damage of the medium was found beside the answers, and mended. One line says what. An observer
  // of sessions alone need not know.
  virtual void on_mended(const std::string& /*what*/) {}
  // Clients miss something that an operator can give them. One line says what, why and what to do.
  virtual void on_warning(const std::string& /*what*/) {}
};

// A session as an administrator sees it.
struct SessionReport {
  std::string kind;
  ClientId client;
  std::string via;
  uint64_t begun_ns = 0;
  uint64_t worked_ns = 0;  // when the last request but a ping was seen, in steps of lease / 4
  uint64_t calls = 0;
  uint64_t log = 0;  // producers: the id of their log
  // Of the store's sessions.
  std::optional<uint32_t> ring;  // its redo ring, where it has one
  uint64_t ring_used_bytes = 0;
  uint64_t commits = 0;
  uint64_t locks = 0;  // words that it may have locked
};

}  // namespace pmstore
