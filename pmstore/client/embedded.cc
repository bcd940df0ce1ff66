#include "pmstore/client/embedded.h"

namespace pmstore::internal {

base::Task<Result<std::unique_ptr<Embedded>>> Embedded::open(Executor& executor, std::string path,
                                                             ClientOptions options) {
  auto embedded = std::make_unique<Embedded>();
  persist::PoolOpenOptions pool_options;
  pool_options.assume_domain = options.assume_domain;
  PMSTORE_CO_TRY(embedded->pool, open_pool(path, pool_options));
  ServerOptions server_options;
  server_options.discipline = options.local_discipline;
  server_options.most_record_bytes = options.most_record_bytes;
  PMSTORE_CO_TRY(embedded->server,
                 co_await Server::start(executor, *embedded->pool, server_options));
  // A name of its own: the path is how other clients of this process would ask for a pool.
  fabric::Uri wanted{fabric::Scheme::kLocal,
                     path + "#" + std::to_string(reinterpret_cast<uintptr_t>(embedded.get())), 0};
  PMSTORE_CO_TRY(embedded->uri, co_await embedded->server->listen(wanted));
  co_return std::move(embedded);
}

std::unique_ptr<StoreCalls> Embedded::calls_of(Server& server, ClientId client,
                                               std::shared_ptr<const uint64_t> known_through) {
  return server.direct_calls(client, std::move(known_through));
}

}  // namespace pmstore::internal
