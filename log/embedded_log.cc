#include "log/embedded_log.h"

#include <cstdint>
#include <utility>

#include "log/log_check.h"
#include "log/log_host.h"
#include "persist/kept_space_rules.h"
#include "persist/pool.h"

namespace pmstore::log {

struct EmbeddedLog::State {
  std::unique_ptr<persist::Pool> pool;
  std::unique_ptr<LogHost> host;  // goes before the pool
  fabric::Uri uri;
};

EmbeddedLog::EmbeddedLog(std::unique_ptr<State> state) : state_(std::move(state)) {}

EmbeddedLog::~EmbeddedLog() {
  // What could not be written was acknowledged to nobody; the next open() walks the logs.
  if (state_->host) (void)state_->host->stop();
}

const fabric::Uri& EmbeddedLog::uri() const { return state_->uri; }

Result<Appended> EmbeddedLog::append(uint64_t log,
                                     std::span<const std::span<const std::byte>> payloads) {
  LogStore& store = state_->host->store();
  PMSTORE_TRY(const LogStore::Range range, store.append(log, payloads));
  PMSTORE_TRY_STATUS(store.commit_appends());
  return range.last;
}

std::optional<Appended> EmbeddedLog::append_one(uint64_t log, std::span<const std::byte> payload) {
  return state_->host->store().append_durable(log, payload);
}

base::Task<Result<std::unique_ptr<EmbeddedLog>>> EmbeddedLog::open(base::Executor& executor,
                                                                   std::string path,
                                                                   EmbeddedLogOptions options) {
  auto state = std::make_unique<State>();
  persist::PoolOpenOptions pool_options;
  pool_options.assume_domain = options.assume_domain;
  pool_options.accept = [](persist::Pool& view) -> Status {
    PMSTORE_TRY_STATUS(persist::load_space_rules(view));
    return LogStore::is_in(view) ? check_log_area(view) : Status{};
  };
  PMSTORE_CO_TRY(state->pool, persist::Pool::open(path, pool_options));
  PMSTORE_CO_TRY(const persist::SpaceRules rules, persist::load_space_rules(*state->pool));
  PMSTORE_CO_TRY(state->host, LogHost::start(executor, *state->pool, {}));
  state->host->store().limit_to(rules.of(persist::ExtentKind::kLog).limit_bytes);
  state->pool->set_space_rules(rules);
  // A name of its own: the path is how other clients of this process would ask for a pool.
  fabric::Uri wanted{fabric::Scheme::kLocal,
                     path + "#log" + std::to_string(reinterpret_cast<uintptr_t>(state.get())), 0};
  PMSTORE_CO_TRY(state->uri, co_await state->host->listen(wanted));
  co_return std::unique_ptr<EmbeddedLog>(new EmbeddedLog(std::move(state)));
}

}  // namespace pmstore::log
