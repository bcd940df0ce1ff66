#include "log/log_host.h"

#include <utility>

#include "base/random.h"

namespace pmstore::log {

// Members go in reverse.
struct LogHost::State {
  std::unique_ptr<LogStore> store;
  std::unique_ptr<LogService> service;
  std::unique_ptr<service::Host> host;
};

LogHost::LogHost(std::unique_ptr<State> state) : state_(std::move(state)) {}
LogHost::~LogHost() = default;

LogStore& LogHost::store() { return *state_->store; }
LogService& LogHost::service() { return *state_->service; }
service::Host& LogHost::host() { return *state_->host; }

Result<std::unique_ptr<LogHost>> LogHost::start(base::Executor& executor, persist::Pool& pool,
                                                const LogHostOptions& options) {
  PMSTORE_TRY_STATUS(options.host.check());
  auto state = std::make_unique<State>();
  PMSTORE_TRY(state->store, LogStore::open(pool, base::random_identity()));
  state->service = std::make_unique<LogService>(executor, *state->store, options.max_sessions);
  service::HostOptions host_options = options.host;
  host_options.domain = pool.info().domain;
  state->host = std::make_unique<service::Host>(executor, host_options);
  state->service->serve(*state->host);
  state->host->decline(
      service::ServiceId::kStore,
      make_error(ErrorCode::kUnsupported, "only logs are served here: start pmstored for tables"));
  return std::unique_ptr<LogHost>(new LogHost(std::move(state)));
}

base::Task<Result<fabric::Uri>> LogHost::listen(fabric::Uri uri) {
  return state_->host->listen(std::move(uri));
}

Status LogHost::stop() {
  state_->host->stop();
  return state_->store->close();
}

}  // namespace pmstore::log
