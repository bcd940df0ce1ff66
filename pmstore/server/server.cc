#include "pmstore/server.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>

#include "log/log_protocol.h"
#include "pmstore/check.h"
#include "pmstore/layout/admin_protocol.h"
#include "pmstore/server/server_state.h"

namespace pmstore {

namespace {

using internal::Endpoint;
using internal::ServerCore;

// Passes a listener's calls on, with the endpoint that they came through: to the log service what
// is its own.
class EndpointAcceptor final : public fabric::Acceptor {
 public:
  EndpointAcceptor(ServerCore& core, Endpoint& endpoint) : core_(core), endpoint_(endpoint) {}
  Result<std::vector<std::byte>> on_hello(uint64_t token,
                                          std::span<const std::byte> hello) override {
    auto answer = accept(token, hello);
    if (!answer) core_.look_for_failure();
    if (!answer && core_.options.observer != nullptr) {
      core_.options.observer->on_refused(name_of(hello), answer.error());
    }
    return answer;
  }
  void on_connected(uint64_t token, std::unique_ptr<fabric::Connection> connection) override {
    if (core_.admin && core_.admin->has_handshake(endpoint_, token)) {
      core_.admin->on_connected(endpoint_, token, std::move(connection));
    } else if (is_logs(token)) {
      core_.log_service->on_connected(endpoint_.log_endpoint, token, std::move(connection));
    } else {
      core_.on_connected(endpoint_, token, std::move(connection));
    }
  }
  void on_abandoned(uint64_t token) override {
    if (core_.admin && core_.admin->has_handshake(endpoint_, token)) {
      core_.admin->on_abandoned(endpoint_, token);
    } else if (is_logs(token)) {
      core_.log_service->on_abandoned(endpoint_.log_endpoint, token);
    } else {
      core_.on_abandoned(endpoint_, token);
    }
  }

 private:
  Result<std::vector<std::byte>> accept(uint64_t token, std::span<const std::byte> hello) {
    if (core_.stopped) return make_error(ErrorCode::kDisconnected, "the server is stopping");
    if (internal::is_admin_hello(hello)) return core_.admin->on_hello(endpoint_, token, hello);
    if (!log::LogService::is_log_hello(hello)) return core_.on_hello(endpoint_, token, hello);
    if (!core_.log_service) return log::no_log_area();
    return core_.log_service->on_hello(endpoint_.log_endpoint, token, hello);
  }
  // All hellos begin with magic, version and client.
  SessionName name_of(std::span<const std::byte> hello) const {
    SessionName name{"store", 0, endpoint_.name};
    if (internal::is_admin_hello(hello)) name.kind = "admin";
    if (log::LogService::is_log_hello(hello)) name.kind = "log";
    constexpr size_t kClientAt = offsetof(ClientHello, client);
    static_assert(kClientAt == offsetof(log::LogHello, client));
    static_assert(kClientAt == offsetof(AdminHello, client));
    if (hello.size() >= kClientAt + sizeof name.client) {
      std::memcpy(&name.client, hello.data() + kClientAt, sizeof name.client);
    }
    return name;
  }
  bool is_logs(uint64_t token) const {
    return core_.log_service && core_.log_service->has_handshake(endpoint_.log_endpoint, token);
  }
  ServerCore& core_;
  Endpoint& endpoint_;
};

void name_endpoint(ServerCore& core, Endpoint& endpoint) {
  endpoint.uri = endpoint.listener->uri();
  endpoint.name = endpoint.uri.to_string();
  if (core.log_service) core.log_service->name_endpoint(endpoint.log_endpoint, endpoint.name);
}

// Unsupported: lock discipline rnic cannot be used there.
Status check_rnic(const ServerCore& core, const fabric::Uri& uri,
                  const fabric::Capabilities& capabilities) {
  if (capabilities.atomics == fabric::AtomicScope::kNone) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} has no remote atomics, so lock discipline rnic cannot be "
                                  "used; use --locks cpu",
                                  uri.to_string()));
  }
  if (core.endpoints.empty()) return {};
  return make_error(ErrorCode::kUnsupported,
                    "lock discipline rnic serves one fabric: atomics of two devices are not "
                    "atomic against each other; use --locks cpu or a single --listen");
}

}  // namespace

Result<std::unique_ptr<persist::Pool>> open_pool(const std::string& path,
                                                 persist::PoolOpenOptions options) {
  options.accept = check_startable;
  return persist::Pool::open(path, options);
}

struct Server::State {
  std::shared_ptr<ServerCore> core;
  // Without an explicit choice, the first fabric decides.
  bool discipline_decided = false;
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() {
  if (state_) state_->core->shut_down();
}

base::Task<Result<std::unique_ptr<Server>>> Server::start(Executor& executor, persist::Pool& pool,
                                                          const ServerOptions& options) {
  const uint64_t began_ns = executor.now_ns();
  PMSTORE_CO_TRY(auto store, internal::Store::open(pool));
  const uint64_t took_us = (executor.now_ns() - began_ns) / 1000;
  store->set_recovery_duration(took_us);
  auto state = std::make_unique<State>();
  state->core = std::make_shared<ServerCore>(executor, pool, options, std::move(store));
  PMSTORE_CO_TRY_STATUS(state->core->start_logs());
  if (options.discipline) {
    state->core->discipline = *options.discipline;
    state->discipline_decided = true;
  }
  co_return std::unique_ptr<Server>(new Server(std::move(state)));
}

base::Task<Result<fabric::Uri>> Server::listen(fabric::Uri uri) {
  ServerCore& core = *state_->core;
  auto endpoint = std::make_unique<Endpoint>();
  endpoint->scheme = uri.scheme;
  PMSTORE_CO_TRY(endpoint->device,
                 fabric::open_device(uri.scheme, core.executor, core.options.devices));
  fabric::Device& device = *endpoint->device;

  // What the fabric can do shows on a connection; one to itself, where the provider has it.
  fabric::Capabilities capabilities;
  if (uri.scheme == fabric::Scheme::kVerbs || uri.scheme == fabric::Scheme::kLocal) {
    auto probe = co_await device.loopback();
    if (!probe) co_return probe.error();
    capabilities = (*probe)->capabilities();
  }
  endpoint->cpu_moves_data = capabilities.cpu_moves_data;
  endpoint->native_flush = capabilities.native_flush;
  const persist::PersistCapability persistence{
      core.pool.info().domain,
      capabilities.cpu_moves_data ? persist::WriteLanding::kCpu : core.options.device_landing,
      capabilities.native_flush};
  if (!state_->discipline_decided) {
    const bool rnic = capabilities.atomics != fabric::AtomicScope::kNone &&
                      !capabilities.cpu_moves_data && persistence.one_sided_durable();
    core.discipline = rnic ? LockDiscipline::kRnic : LockDiscipline::kCpu;
    state_->discipline_decided = true;
  }
  const bool rnic = core.discipline == LockDiscipline::kRnic;
  if (rnic) {
    PMSTORE_CO_TRY_STATUS(check_rnic(core, uri, capabilities));
  } else {
    core.store->set_sole_writer();
  }
  const bool writable = rnic && core.options.one_sided_commit && persistence.one_sided_durable();
  PMSTORE_CO_TRY(
      endpoint->records,
      device.register_memory(core.store->records_bytes(),
                             writable ? fabric::Access::kRemoteRead | fabric::Access::kRemoteWrite
                                      : fabric::Access::kRemoteRead));
  PMSTORE_CO_TRY(endpoint->words, device.register_memory(core.store->words().bytes(),
                                                         rnic ? fabric::Access::kRemoteRead |
                                                                    fabric::Access::kRemoteAtomic
                                                              : fabric::Access::kRemoteRead));
  PMSTORE_CO_TRY(endpoint->buckets,
                 device.register_memory(core.store->index().bytes(), fabric::Access::kRemoteRead));
  if (rnic) {
    auto words = co_await internal::RnicWords::create(device, *endpoint->words);
    if (!words) co_return words.error();
    endpoint->rnic_words = std::move(*words);
  }
  if (core.log_service) {
    PMSTORE_CO_TRY(endpoint->log_endpoint, core.log_service->add_endpoint(device, persistence));
  }
  endpoint->acceptor = std::make_unique<EndpointAcceptor>(core, *endpoint);
  auto listener = device.listen(uri, *endpoint->acceptor);
  if (!listener) {
    if (core.log_service) core.log_service->remove_last_endpoint();
    co_return listener.error();
  }
  endpoint->listener = std::move(*listener);
  name_endpoint(core, *endpoint);
  core.endpoints.push_back(std::move(endpoint));
  co_return core.endpoints.back()->uri;
}

base::Task<Status> Server::stop() {
  const std::shared_ptr<ServerCore> core = state_->core;
  core->stopped = true;
  for (auto& endpoint : core->endpoints) endpoint->listener.reset();
  for (auto& state : core->ring_states) {
    if (const auto session = state.session) core->fence(session, std::nullopt);
  }
  if (core->log_service) core->log_service->stop();
  // Resolving is bounded by the RNIC's timeout; past it, the next start recovers.
  const uint64_t give_up_ns = core->executor.now_ns() + 5'000'000'000;
  while (core->resolving_any() && core->executor.now_ns() < give_up_ns) {
    co_await core->executor.sleep_for(100'000);
  }
  Status closed;
  if (core->resolving_any()) {
    closed = make_error(ErrorCode::kTimeout,
                        "transactions of clients that are gone are still undecided after 5 s; the "
                        "next start decides them");
  } else if (core->store->failed()) {
    closed = make_error(ErrorCode::kIo,
                        "the pool could not be written; see the system's log, then start again, "
                        "which recovers what was acknowledged");
  } else {
    closed = core->store->close();
  }
  if (core->logs) {
    if (Status logs_closed = core->logs->close(); !logs_closed && closed) closed = logs_closed;
  }
  core->shut_down();
  co_return closed;
}

const RecoveryReport& Server::recovery() const { return state_->core->store->recovery(); }

std::vector<std::string> Server::damaged_logs() const {
  std::vector<std::string> lines;
  if (!state_->core->logs) return lines;
  for (const log::LogInfo& info : state_->core->logs->list()) {
    if (log::is_lost(info)) {
      lines.push_back(fmt::format("log '{}' is lost", info.name));
    } else if (!info.damaged.empty()) {
      lines.push_back(
          fmt::format("log '{}' has lost entries in {} places", info.name, info.damaged.size()));
    }
  }
  if (const size_t places = state_->core->logs->damaged_places(); places > 0) {
    lines.push_back(fmt::format("{} places of the log directory are damaged", places));
  }
  return lines;
}

LockDiscipline Server::discipline() const { return state_->core->discipline; }

void Server::set_outcome_retention_ms(uint32_t milliseconds) {
  state_->core->options.outcome_retention_ms = milliseconds;
}

std::unique_ptr<internal::StoreCalls> Server::direct_calls(uint64_t client) {
  return state_->core->direct_calls(client);
}

std::string Server::stat_json() const { return internal::server_stat_json(*state_->core); }

}  // namespace pmstore
