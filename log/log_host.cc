#include "log/log_host.h"

#include <utility>
#include <vector>

namespace pmstore::log {
namespace {

class HostAcceptor final : public fabric::Acceptor {
 public:
  HostAcceptor(LogService& service, size_t endpoint) : service_(service), endpoint_(endpoint) {}
  Result<std::vector<std::byte>> on_hello(uint64_t token,
                                          std::span<const std::byte> hello) override {
    if (!LogService::is_log_hello(hello)) {
      return make_error(ErrorCode::kUnsupported,
                        "only logs are served here: start pmstored for tables");
    }
    return service_.on_hello(endpoint_, token, hello);
  }
  void on_connected(uint64_t token, std::unique_ptr<fabric::Connection> connection) override {
    service_.on_connected(endpoint_, token, std::move(connection));
  }
  void on_abandoned(uint64_t token) override { service_.on_abandoned(endpoint_, token); }

 private:
  LogService& service_;
  size_t endpoint_;
};

// Members go in reverse: the listener first, the device last.
struct Place {
  std::unique_ptr<fabric::Device> device;
  std::unique_ptr<HostAcceptor> acceptor;
  std::unique_ptr<fabric::Listener> listener;
};

}  // namespace

struct LogHost::State {
  State(base::Executor& host_executor, persist::Pool& served_pool,
        const LogHostOptions& host_options)
      : executor(host_executor), pool(served_pool), options(host_options) {}
  base::Executor& executor;
  persist::Pool& pool;
  LogHostOptions options;
  std::unique_ptr<LogStore> store;
  std::vector<Place> places;
  std::unique_ptr<LogService> service;  // goes before the devices
};

LogHost::LogHost(std::unique_ptr<State> state) : state_(std::move(state)) {}

LogHost::~LogHost() {
  for (Place& place : state_->places) place.listener.reset();
}

LogStore& LogHost::store() { return *state_->store; }
LogService& LogHost::service() { return *state_->service; }

Result<std::unique_ptr<LogHost>> LogHost::start(base::Executor& executor, persist::Pool& pool,
                                                const LogHostOptions& options) {
  auto state = std::make_unique<State>(executor, pool, options);
  PMSTORE_TRY(state->store, LogStore::open(pool));
  PMSTORE_TRY(state->service, LogService::start(executor, *state->store, options.service));
  return std::unique_ptr<LogHost>(new LogHost(std::move(state)));
}

base::Task<Result<fabric::Uri>> LogHost::listen(fabric::Uri uri) {
  State& s = *state_;
  Place place;
  PMSTORE_CO_TRY(place.device, fabric::open_device(uri.scheme, s.executor, s.options.devices));
  // What the fabric can do shows on a connection; one to itself, where the provider has it.
  fabric::Capabilities capabilities;
  if (uri.scheme == fabric::Scheme::kVerbs || uri.scheme == fabric::Scheme::kLocal) {
    auto probe = co_await place.device->loopback();
    if (!probe) co_return probe.error();
    capabilities = (*probe)->capabilities();
  }
  const persist::PersistCapability persistence{
      s.pool.info().domain,
      capabilities.cpu_moves_data ? persist::WriteLanding::kCpu : s.options.device_landing,
      capabilities.native_flush};
  PMSTORE_CO_TRY(const size_t endpoint, s.service->add_endpoint(*place.device, persistence));
  place.acceptor = std::make_unique<HostAcceptor>(*s.service, endpoint);
  auto listener = place.device->listen(uri, *place.acceptor);
  if (!listener) {
    s.service->remove_last_endpoint();
    co_return listener.error();
  }
  place.listener = std::move(*listener);
  s.places.push_back(std::move(place));
  co_return s.places.back().listener->uri();
}

Status LogHost::stop() {
  for (Place& place : state_->places) place.listener.reset();
  state_->service->stop();
  return state_->store->close();
}

}  // namespace pmstore::log
