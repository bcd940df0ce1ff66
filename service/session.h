// Session: a client's session at a server, from its hello to its end.
//
// It belongs to the Host, which calls its service about it; a service that keeps more of a session
// derives from this. It ends when its connection is destroyed: from then on no WRITE, READ or
// atomic of the client takes effect, and `peer` is empty. Who works for a session across a
// suspension, or ends others meanwhile, keeps it by shared_from_this(). Threads: the executor's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/memory_region.h"
#include "fabric/rpc.h"
#include "service/identity.h"

namespace pmstore::service {

class Service;
struct Endpoint;

// What is known of a session's requests: counted when they arrive, looked at by the lease.
struct SessionWork {
  uint64_t calls = 0;
  uint64_t pings = 0;
  uint64_t begun_ns = 0;
  uint64_t worked_ns = 0;  // when a request but a ping was seen last, in steps of lease / 4
  uint64_t last_call = 0;  // its number among the requests of all sessions

  void begin(uint64_t now_ns) { begun_ns = worked_ns = now_ns; }
  // Has anything come since the last look? `busy`: the session counts as heard.
  bool look(uint64_t now_ns, bool busy) {
    const bool heard = calls != calls_seen || busy;
    calls_seen = calls;
    silent_looks = heard ? 0 : silent_looks + 1;
    if (calls - pings != work_seen) worked_ns = now_ns;
    work_seen = calls - pings;
    return heard;
  }

  // Nothing has come between the last two looks, nor since.
  bool silent() const { return silent_looks > 0 && calls == calls_seen; }

  // Of look().
  uint64_t calls_seen = 0;
  uint64_t work_seen = 0;
  unsigned silent_looks = 0;  // in a row
};

struct Session : public std::enable_shared_from_this<Session> {
  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  virtual ~Session() = default;

  // From here on nothing of the client takes effect.
  void disconnect() {
    peer.reset();  // destroys the connection; before the regions are deregistered
    grants.clear();
  }

  Service* service = nullptr;
  Endpoint* endpoint = nullptr;  // that it came through
  ClientId client;
  uint64_t number = 0;  // in the order of the hellos
  uint64_t token = 0;   // of its handshake
  SessionWork work;
  uint64_t known_through = 0;  // as RequestPrefix, of the requests so far
  bool leased = false;         // it is ended when it is silent for the lease
  bool connected = false;      // the handshake is over
  bool goodbye = false;        // the client has nothing in doubt and goes
  bool ended = false;
  // Handlers that are suspended; the service counts them. A session with one is not silent.
  unsigned active = 0;
  // Memory that this session alone may reach.
  std::vector<std::unique_ptr<fabric::MemoryRegion>> grants;
  std::unique_ptr<fabric::RpcPeer> peer;  // empty once the session has ended
};

}  // namespace pmstore::service
