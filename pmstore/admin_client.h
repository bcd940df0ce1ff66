// AdminClient: an administrator's session with a server: statistics, sessions, kick.
//
//   auto admin = executor.run(AdminClient::connect(executor, *parse_uri("tcp://db:7000"), {}));
//   auto report = executor.run((*admin)->stat());   // Result<std::string>, JSON
//
// It takes no client's place and changes nothing in the pool. Threads: one executor's. Lifetimes:
// the executor outlives it, it outlives its tasks. Errors of all calls: Disconnected, Timeout (the
// session is gone; connect again), Protocol (the reply does not decode).
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

namespace pmstore {

struct AdminOptions {
  uint64_t call_timeout_ns = 5'000'000'000;
  uint64_t connect_timeout_ns = 5'000'000'000;
  // nullptr: this machine; else a host of the modelled machine. Borrowed.
  fabric::DeviceOpener* devices = nullptr;
};

class AdminClient {
 public:
  // Errors of Device::connect; VersionMismatch: the server is of another release.
  static base::Task<Result<std::unique_ptr<AdminClient>>> connect(Executor& executor,
                                                                  fabric::Uri uri,
                                                                  AdminOptions options);
  ~AdminClient();

  // The server's report, JSON; docs/protocol.md lists its members.
  base::Task<Result<std::string>> stat();
  // A page of its sessions from number `from` on, JSON: {"next": N, "sessions": [...]}; next is 0
  // behind the last. What begins or ends between two pages may be missed or seen twice.
  base::Task<Result<std::string>> sessions(uint32_t from);
  // Fences every session of that client in order, and gives how many there were. A client that is
  // used afterwards connects again. Nothing that was acknowledged is lost; a commit that was under
  // way may or may not have happened, as after any lost connection.
  base::Task<Result<uint32_t>> kick(uint64_t client);

 private:
  struct State;
  explicit AdminClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore
