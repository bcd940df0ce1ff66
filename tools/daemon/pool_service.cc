#include "tools/daemon/pool_service.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <future>

#include "fs/file_area.h"
#include "tools/cli/damage_warning.h"

namespace pmstore::tools {

Result<std::unique_ptr<persist::Pool>> create_store(const std::string& path, uint64_t bytes,
                                                    const persist::PoolOpenOptions& open,
                                                    const FormatOptions& format, bool force) {
  PMSTORE_TRY_STATUS(check_format(format));  // before a device is cleared
  return persist::Pool::create(path, bytes, open, force,
                               [&](persist::Pool& pool) { return fs::format_pool(pool, format); });
}

Result<std::unique_ptr<PoolService>> PoolService::start(const ServiceOptions& options) {
  std::unique_ptr<PoolService> service(new PoolService(options.executor));
  struct stat status;
  const bool missing = stat(options.pool.c_str(), &status) != 0 && errno == ENOENT;
  if (missing && options.create_bytes) {
    PMSTORE_TRY(service->pool_,
                create_store(options.pool, *options.create_bytes, options.open, {}, false));
  } else {
    PMSTORE_TRY(service->pool_, open_pool(options.pool, options.open));
  }
  Executor& executor = service->executor_;
  PMSTORE_TRY(service->server_,
              executor.run(Server::start(executor, *service->pool_, options.server)));
  fs::FilesServerOptions files;
  files.lease_ms = options.server.lease_ms;
  files.devices = options.server.devices;
  files.data_server = options.data_server;
  files.max_inodes = options.max_inodes;
  files.max_opens = options.max_opens;
  files.make_area = options.files;
  files.on_fenced = options.on_fenced;
  files.on_damage = options.on_files_damage;
  // A user without root can use the files of a pool of theirs.
  files.root_uid = geteuid();
  files.root_gid = getegid();
  PMSTORE_TRY(service->files_,
              executor.run(fs::FilesServer::start(executor, *service->pool_, *service->server_,
                                                  std::move(files))));
  for (const fabric::Uri& uri : options.listen) {
    auto at = executor.run(service->server_->listen(uri));
    if (!at) {
      // Errors are ignored: no client was served, and the next start recovers.
      [[maybe_unused]] const Status closed = service->stop();
      return std::move(at.error());
    }
    service->uris_.push_back(std::move(*at));
  }
  return service;
}

PoolService::~PoolService() = default;

Status PoolService::run(const std::function<void()>& stopping) {
  executor_.run_until_stopped();
  if (stopping) stopping();
  return stop();
}

Status PoolService::stop() {
  executor_.run(files_->stop());
  return executor_.run(server_->stop());
}

Result<std::unique_ptr<ServiceThread>> ServiceThread::start(const ServiceOptions& options) {
  std::unique_ptr<ServiceThread> self(new ServiceThread);
  std::promise<Result<PoolService*>> started;
  auto result = started.get_future();
  self->thread_ = std::thread([options, started = std::move(started)]() mutable {
    auto service = PoolService::start(options);
    if (!service) {
      started.set_value(std::move(service.error()));
      return;
    }
    warn_of_damage("pmstore", (*service)->server().recovery());
    started.set_value(service->get());
    // The benchmark has ended its own work, so everything acknowledged is durable. The next start
    // may have to recover; that does not concern the benchmark.
    [[maybe_unused]] const Status stopped = (*service)->run();
  });
  auto service = result.get();
  if (!service) return std::move(service.error());
  self->service_ = *service;
  return self;
}

ServiceThread::~ServiceThread() {
  if (service_ != nullptr) service_->request_stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace pmstore::tools
