// AppendBook: which shared appends of which client have been executed, so that one that a client
// repeats, because its connection broke before the answer, is not executed twice.
//
// A client numbers its appends and says with each request through which number it has every answer:
// what is noted of those goes, and one that still arrives is refused. Invariant: a number of a
// client is executed at most once. Bounded: kAppendsPerClient answers for each client that has a
// session or is among the kAbsentClients that went last; of others it is not known any more what
// was executed, and what they repeat is refused. In DRAM: a restart forgets it, and a client sees
// by the epoch that it is another server. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <unordered_map>

#include "base/result.h"
#include "log/log_protocol.h"
#include "service/identity.h"

namespace pmstore::log::internal {

// Who numbers appends: one LogClient. Programs that follow each other may be the same client, and
// begin anew.
struct AppendOrigin {
  ClientId client;
  uint64_t instance = 0;
  bool operator==(const AppendOrigin&) const = default;
};

struct HashOfOrigin {
  size_t operator()(const AppendOrigin& origin) const {
    return HashOfClientId()(origin.client) ^ base::mix64(origin.instance);
  }
};

class AppendBook {
 public:
  static constexpr size_t kAppendsPerClient = 256;
  static constexpr size_t kAbsentClients = 1024;

  // The client's session begins, or ends; it has one at a time. In sessions before it has sent
  // appends through number `last_sent`, as it says.
  void came(AppendOrigin client, uint64_t last_sent);
  void left(AppendOrigin client);

  // May this append be one that the client has sent before? Then what waits for a drain is to be
  // finished before repeated() is asked.
  bool may_be_repeated(AppendOrigin client, uint64_t number) const;
  // The answer that the append had; nothing: it was not executed. OutcomeExpired: it is not known
  // any more, or the client said that it has the answer. Requires that the client came.
  Result<std::optional<AppendReply>> repeated(AppendOrigin client, uint64_t number);
  // The client has the answers of its appends through this one, or wants none. It has come (CHECK).
  void known(AppendOrigin client, uint64_t through);
  // Was executed, and is durable.
  void executed(AppendOrigin client, uint64_t number, const AppendReply& reply);
  size_t clients() const { return clients_.size(); }
  // That are kept, of all clients.
  size_t answers() const;

 private:
  struct Executed {
    uint64_t number;
    AppendReply reply;
  };
  struct Client {
    bool here = false;           // it has a session
    uint64_t highest = 0;        // of the numbers that were asked about
    uint64_t known_through = 0;  // nothing is noted of these
    std::deque<Executed> executed;
    std::list<AppendOrigin>::iterator absent;  // unless it is here: its place in absent_
  };

  Client& present(AppendOrigin id);

  std::unordered_map<AppendOrigin, Client, HashOfOrigin> clients_;
  std::list<AppendOrigin> absent_;  // who went first is first
};

}  // namespace pmstore::log::internal
