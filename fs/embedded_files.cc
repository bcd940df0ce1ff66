#include "fs/embedded_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "fs/file_area.h"
#include "fs/files_server.h"
#include "fs/files_service.h"
#include "persist/pool.h"
#include "pmstore/server.h"

namespace pmstore::fs {

// Members go in reverse.
struct EmbeddedFiles::State {
  std::unique_ptr<persist::Pool> pool;
  std::unique_ptr<FilesServer> files;
  std::unique_ptr<Server> server;
  fabric::Uri uri;
};

EmbeddedFiles::EmbeddedFiles(std::unique_ptr<State> state) : state_(std::move(state)) {}
EmbeddedFiles::~EmbeddedFiles() = default;

const fabric::Uri& EmbeddedFiles::uri() const { return state_->uri; }

base::Task<Result<std::unique_ptr<EmbeddedFiles>>> EmbeddedFiles::open(
    base::Executor& executor, std::string path, EmbeddedFilesOptions options) {
  auto state = std::make_unique<State>();
  persist::PoolOpenOptions pool_options;
  pool_options.assume_domain = options.assume_domain;
  PMSTORE_CO_TRY(state->pool, open_pool(path, pool_options));
  if (!FileArea::is_in(*state->pool)) co_return no_file_area();
  ServerOptions server_options;
  server_options.discipline = LockDiscipline::kCpu;
  PMSTORE_CO_TRY(state->server, co_await Server::start(executor, *state->pool, server_options));
  FilesServerOptions files_options;
  files_options.clients_come_back = false;  // they are of this process
  files_options.root_uid = geteuid();
  files_options.root_gid = getegid();
  PMSTORE_CO_TRY(state->files, co_await FilesServer::start(executor, *state->pool, *state->server,
                                                           files_options));
  // A name of its own: the path is how other clients of this process would ask for a pool.
  const fabric::Uri wanted{
      fabric::Scheme::kLocal,
      fmt::format("{}#files{}", path, reinterpret_cast<uintptr_t>(state.get())), 0};
  PMSTORE_CO_TRY(state->uri, co_await state->server->listen(wanted));
  co_return std::unique_ptr<EmbeddedFiles>(new EmbeddedFiles(std::move(state)));
}

base::Task<void> EmbeddedFiles::close() {
  co_await state_->files->stop();
  // The next start recovers what could not be written.
  [[maybe_unused]] const Status stopped = co_await state_->server->stop();
}

}  // namespace pmstore::fs
