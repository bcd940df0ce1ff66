// FilesService: serves a Namespace to clients (fs/file_system.h). docs/files-service.md.
//
// It keeps what a client has open, and what it did, over the ends of its sessions; tells clients
// which of their maps are stale; and says when no client uses a freed range any more.
// Threads: one executor's. Lifetimes: executor and namespace outlive it; it outlives its host, as
// service/service.h says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/executor.h"
#include "fs/namespace.h"
#include "fs/quarantine_gate.h"
#include "service/host.h"
#include "service/service.h"

namespace pmstore::fs {

struct FilesServiceOptions {
  // Of what is served: another one after each start.
  uint64_t epoch = 1;
  // Of the host. A client that is away for so long is forgotten.
  uint32_t lease_ms = 5000;
  size_t max_sessions = 4096;
  // For a lease from open() on, only locks that clients had before are given.
  bool lock_grace = true;
};

struct FilesServiceCounters {
  uint64_t sessions = 0;  // that have connected
  uint64_t clients = 0;   // of now: with a session, or away for less than a lease
  uint64_t calls = 0;
  uint64_t repeated = 0;  // answered again, not executed again
  uint64_t news = 0;
  uint64_t recalls = 0;  // of delegations
  uint64_t deaf = 0;     // clients that were ended because they did not confirm news
  uint64_t malformed = 0;
};

class DataServers;

class FilesService final : public QuarantineGate {
 public:
  FilesService(base::Executor& executor, FilesServiceOptions options);
  ~FilesService() override;

  // Before the host listens. Until open() clients are told to try again.
  void serve(service::Host& host);
  static void decline(service::Host& host, const Error& why);
  // From here on clients are served. Takes names.on_map_change. `servers`, if given, outlives
  // stop().
  void open(Namespace& names, DataServers* servers = nullptr);
  // Nothing of a client is executed or forgotten any more; what is under way is destroyed, so it
  // happens as a whole or not at all.
  void stop();
  // stop(), and all sessions have ended: clients are told this reason when they come again.
  void refuse(const Error& why);

  // A data server was started again: what clients have cached of any file may be lost.
  void note_lost_data();

  // Ends the client's sessions with data servers, for one that is forgotten.
  std::function<void(ClientId)> end_data_sessions;
  // Returns when they have ended at data servers elsewhere, too, or at that time. The client's
  // locks are kept until then, so that what it has posted does not land under another one's.
  std::function<base::Task<void>(uint64_t until_ns)> data_sessions_ended;
  // Ends the client's sessions with one data server, at which it may still write by stale maps.
  std::function<void(ClientId, uint16_t server)> end_data_sessions_at;
  // Have those ended?
  std::function<bool(ClientId, uint16_t server)> have_ended_at;

  // As QuarantineGate.
  void retired(const AreaRange& range) override;
  base::Task<Status> closed(AreaRange range) override;

  FilesServiceCounters counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What a server without a file area answers to a hello of this service.
Error no_file_area();

}  // namespace pmstore::fs
