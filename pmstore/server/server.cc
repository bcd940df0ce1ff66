#include "pmstore/server.h"

#include <fmt/format.h>

#include "persist/kept_space_rules.h"
#include "persist/sparse_blocks.h"
#include "pmstore/check.h"
#include "pmstore/server/pinned_memory.h"
#include "pmstore/server/server_state.h"
#include "pmstore/shard/shared_pages.h"
#include "pmstore/space_rules.h"

namespace pmstore {

using internal::ServerCore;

Result<std::unique_ptr<persist::Pool>> open_pool(const std::string& path,
                                                 persist::PoolOpenOptions options) {
  options.accept = [](persist::Pool& view) -> Status {
    PMSTORE_TRY_STATUS(check_startable(view));
    PMSTORE_TRY_STATUS(load_space_rules(view));
    return {};
  };
  return persist::Pool::open(path, options);
}

struct Server::State {
  std::shared_ptr<ServerCore> core;
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() {
  if (state_) state_->core->shut_down();
}

base::Task<Result<std::unique_ptr<Server>>> Server::start(Executor& executor, persist::Pool& pool,
                                                          const ServerOptions& options) {
  PMSTORE_CO_TRY_STATUS(internal::host_options(pool, options).check());
  PMSTORE_CO_TRY(persist::SpaceRules rules, space_rules_of_run(pool, options));
  const uint64_t began_ns = executor.now_ns();
  PMSTORE_CO_TRY(auto store, internal::Store::open(pool, options.recovery));
  const uint64_t took_us = (executor.now_ns() - began_ns) / 1000;
  store->set_recovery_duration(took_us);
  auto state = std::make_unique<State>();
  state->core = std::make_shared<ServerCore>(executor, pool, options, std::move(store));
  PMSTORE_CO_TRY_STATUS(state->core->start_logs());
  state->core->go_by(rules);
  state->core->rings.watch();
  if (persist::SparseBlocks::of(pool) == nullptr) state->core->store->arena().keep_blocks();
  state->core->follow_checkpoint();
  co_return std::unique_ptr<Server>(new Server(std::move(state)));
}

base::Task<Result<fabric::Uri>> Server::listen(fabric::Uri uri) {
  ServerCore& core = *state_->core;
  return core.host.listen(std::move(uri));
}

base::Task<Status> Server::stop() {
  const std::shared_ptr<ServerCore> core = state_->core;
  core->host.stop();
  // Resolving is bounded by the RNIC's timeout; past it, the next start recovers.
  const uint64_t give_up_ns = core->executor.now_ns() + 5'000'000'000;
  while (core->resolving() > 0 && core->executor.now_ns() < give_up_ns) {
    co_await core->executor.sleep_for(100'000);
  }
  Status closed;
  if (core->resolving() > 0) {
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

const std::string& Server::no_checkpoint() const { return state_->core->store->no_checkpoint(); }

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

service::Host& Server::host() { return state_->core->host; }

void Server::extend_stat(std::string name, std::function<std::string()> json) {
  state_->core->more_stat.emplace_back(std::move(name), std::move(json));
}

LockDiscipline Server::discipline() const { return state_->core->discipline; }

void Server::set_outcome_retention_ms(uint32_t milliseconds) {
  state_->core->options.outcome_retention_ms = milliseconds;
}

std::unique_ptr<internal::StoreCalls> Server::direct_calls(
    ClientId client, std::shared_ptr<const uint64_t> known_through) {
  return state_->core->direct_calls(client, std::move(known_through));
}

std::string Server::stat_json() const { return internal::server_stat_json(*state_->core); }

namespace internal {

// Decides the lock discipline, if it is not: then checks it. Gives why it does not fit.
Status ServerCore::fit_discipline(const service::Endpoint& endpoint) {
  const fabric::Capabilities& fabric = endpoint.capabilities;
  if (!discipline_decided) {
    const bool rnic = fabric.atomics != fabric::AtomicScope::kNone && !fabric.cpu_moves_data &&
                      endpoint.persistence.one_sided_durable();
    discipline = rnic ? LockDiscipline::kRnic : LockDiscipline::kCpu;
    discipline_decided = true;
  }
  if (discipline != LockDiscipline::kRnic) {
    store->set_sole_writer();
    return {};
  }
  if (!store->two_phase().empty()) {
    return make_error(ErrorCode::kUnsupported,
                      "this pool has transactions of several servers that are not decided, and "
                      "lock discipline rnic cannot decide them; use --locks cpu and settle them");
  }
  if (fabric.atomics == fabric::AtomicScope::kNone) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} has no remote atomics, so lock discipline rnic cannot be "
                                  "used; use --locks cpu",
                                  endpoint.uri.to_string()));
  }
  if (store->rings().most() == 0) {
    return make_error(ErrorCode::kUnsupported,
                      "this pool has no client rings, which lock discipline rnic needs; use "
                      "--locks cpu, or create the pool with --rings");
  }
  if (!host.endpoints().empty()) {
    return make_error(ErrorCode::kUnsupported,
                      "lock discipline rnic serves one fabric: atomics of two devices are not "
                      "atomic against each other; use --locks cpu or a single --listen");
  }
  return {};
}

base::Task<Result<std::unique_ptr<service::EndpointPart>>> ServerCore::open(
    service::Endpoint& endpoint) {
  PMSTORE_CO_TRY_STATUS(fit_discipline(endpoint));
  using fabric::Access;
  const bool rnic = discipline == LockDiscipline::kRnic;
  const bool writable =
      rnic && options.one_sided_commit && endpoint.persistence.one_sided_durable();
  const Access record_rights =
      writable ? Access::kRemoteRead | Access::kRemoteWrite : Access::kRemoteRead;
  const Access word_rights =
      rnic ? Access::kRemoteRead | Access::kRemoteAtomic : Access::kRemoteRead;
  fabric::Device& device = *endpoint.device;
  auto part = std::make_unique<StoreRegions>();
  if (pins_memory(endpoint)) store->arena().keep_blocks();
  part->records = std::make_unique<RecordRegions>(device, record_rights, store->arena());
  PMSTORE_CO_TRY_STATUS(part->records->start());
  // All of them become resident: the fewer pages, the fewer addresses the RNIC has to translate.
  if (pins_memory(endpoint)) join_pages(store->words().bytes());
  PMSTORE_CO_TRY(part->words, device.register_memory(store->words().bytes(), word_rights));
  HashIndex& index = store->index().hash();
  if (pins_memory(endpoint)) index.keep_memory();
  part->growing = std::make_unique<RegionTable>(executor, device);
  part->growing->add(RegionKind::kBuckets,
                     {Access::kRemoteRead,
                      [&index] {
                        return static_cast<uint32_t>(
                            (index.end_of_buckets() + kBucketsPerPiece - 1) / kBucketsPerPiece);
                      },
                      [&index](uint32_t number) { return index.piece(number); }});
  PMSTORE_CO_TRY_STATUS(part->growing->provide(RegionKind::kBuckets, 0));
  part->leaves = std::make_unique<LeafRegions>(executor, device, store->index());
  if (rnic) {
    auto words = co_await RnicWords::create(device, *part->words);
    if (!words) co_return std::move(words.error());
    part->rnic_words = std::move(*words);
  }
  co_return std::unique_ptr<service::EndpointPart>(std::move(part));
}

}  // namespace internal
}  // namespace pmstore
