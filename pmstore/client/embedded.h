// Embedded: the pool and the server of a local:PATH client, on the client's own executor.
#pragma once

#include <memory>
#include <string>

#include "base/task.h"
#include "fabric/uri.h"
#include "persist/pool.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "pmstore/server/store_calls.h"

namespace pmstore::internal {

struct Embedded {
  std::unique_ptr<persist::Pool> pool;
  std::unique_ptr<Server> server;  // after the pool: destroyed before it
  fabric::Uri uri;                 // where the server listens

  // Opens the pool at `path`, recovers it and listens under a name of this process. Errors of
  // open_pool() and Server::start().
  static base::Task<Result<std::unique_ptr<Embedded>>> open(Executor& executor, std::string path,
                                                            ClientOptions options);
  // How the client with a session calls a server in its process; nullptr when it has none, and
  // under lock discipline rnic, where it works as on a network.
  static std::unique_ptr<StoreCalls> calls_of(Server& server, ClientId client,
                                              std::shared_ptr<const uint64_t> known_through);
};

}  // namespace pmstore::internal
