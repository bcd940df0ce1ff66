// AdminClient: an administrator's session with a server: statistics, sessions, kick.
//
//   auto admin = executor.run(AdminClient::connect(executor, *parse_uri("tcp://db:7000"), {}));
//   auto report = executor.run((*admin)->stat());   // Result<std::string>, JSON
//
// It needs no redo ring, so it connects to a server that has no room for another client, and it
// changes nothing in the pool. Threads: the executor's. Lifetimes: the executor outlives it, and it
// outlives its tasks. Errors of all calls: Disconnected, Timeout (connect again), Protocol (the
// reply does not decode).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/device.h"
#include "fabric/uri.h"
#include "service/identity.h"

namespace pmstore {

struct AdminOptions {
  uint64_t call_timeout_ns = 5'000'000'000;
  uint64_t connect_timeout_ns = 5'000'000'000;
  // Opens the device: a host of the modelled machine. nullptr: this machine. Outlives the client.
  fabric::DeviceOpener* devices = nullptr;
};

class AdminClient {
 public:
  // Errors of Device::connect(). VersionMismatch: the server is of another release.
  static base::Task<Result<std::unique_ptr<AdminClient>>> connect(Executor& executor,
                                                                  fabric::Uri uri,
                                                                  AdminOptions options);
  ~AdminClient();

  // The server's report, JSON; docs/protocol.md lists its members.
  base::Task<Result<std::string>> stat();
  // One page of the server's sessions, beginning with number `first`, JSON: {"next": N, "sessions":
  // [...]}. `next` is the first number of the next page; 0: this is the last page. A session that
  // begins or ends between two pages may be missed or seen twice.
  base::Task<Result<std::string>> sessions(uint32_t first);
  // Ends every session of the client `client` and returns their number. The client's next operation
  // connects again. Nothing that was acknowledged is lost; a commit that is under way is
  // CommitUnknown for its client, as after any lost connection.
  base::Task<Result<uint32_t>> kick(ClientId client);

 private:
  struct State;
  explicit AdminClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore
