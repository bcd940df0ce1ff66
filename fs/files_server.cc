#include "fs/files_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/limit_text.h"
#include "base/size_text.h"
#include "base/wall_clock.h"
#include "fs/data_servers.h"
#include "fs/file_area.h"
#include "fs/file_data_service.h"
#include "fs/files_service.h"
#include "fs/internal/area_keeper.h"
#include "fs/local_data_space.h"
#include "fs/namespace.h"
#include "fs/striped_data_space.h"
#include "pmstore/client.h"

namespace pmstore::fs {

// Members go in reverse.
struct FilesServer::State {
  explicit State(base::Executor& server_executor) : executor(server_executor) {}
  void serve_data(Server& server);
  void add_services(persist::Pool& pool, Server& server, const FilesServerOptions& options);
  base::Task<Status> open_names(Server& server, FilesServerOptions options);
  // A data server belongs to a later namespace server: file data and names are not served from here
  // on, so that no client makes changes that are lost.
  void fence(const Error& why);
  base::Task<void> stop_serving(Error why);
  std::string stat_json() const;
  std::string data_stat_json() const;

  base::Executor& executor;
  const persist::Memory* memory = nullptr;  // of the pool
  std::optional<FileArea> area;
  std::unique_ptr<LocalDataSpace> space;
  std::unique_ptr<FileDataService> data;
  std::unique_ptr<internal::AreaKeeper> keeper;
  std::unique_ptr<FilesService> files;
  std::unique_ptr<StripedDataSpace> all;
  std::unique_ptr<Client> client;
  std::unique_ptr<DataServers> servers;
  std::unique_ptr<Namespace> names;
  bool clients_come_back = true;
  std::function<void(const Error&)> on_fenced;
  bool fenced = false;
  base::Task<void> fencing;
};

namespace {

Error several_sections() {
  return make_error(ErrorCode::kUnsupported,
                    "the file area of this pool has several sections, and that of a data server "
                    "has one: create another pool");
}

Status make_first_section(persist::Pool& pool, const FilesServerOptions& options) {
  const internal::AreaKeeperOptions growing{.most_bytes = options.most_file_bytes};
  const uint64_t step = internal::AreaKeeper::step_bytes(pool, growing);
  const uint64_t bytes = std::min(step, options.most_file_bytes);
  if (bytes >= growing.least_section_bytes) {
    return FileArea::create(pool, bytes, options.identity);
  }
  if (options.most_file_bytes < growing.least_section_bytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("file data is limited to {}, and begins with at least {}: give a "
                                  "higher limit for it (pmstored --file-limit, pmstore pool limit)",
                                  base::size_text(options.most_file_bytes),
                                  base::size_text(growing.least_section_bytes)));
  }
  const std::string reserved = pool.reserved_for_others(persist::ExtentKind::kFileData);
  return make_error(ErrorCode::kFull,
                    fmt::format("the pool has no room for files: {} are free together, of which "
                                "some stays for records{}: {}, or start without --files",
                                base::size_text(pool.largest_free_extent()),
                                reserved.empty() ? "" : ", and reserved is " + reserved,
                                reserved.empty() ? "delete records or logs"
                                                 : "lower a reserve (pmstore pool limit)"));
}

}  // namespace

FilesServer::FilesServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

FilesServer::~FilesServer() {
  if (state_->files != nullptr) state_->files->stop();
  if (state_->servers != nullptr) state_->servers->stop();
}

bool FilesServer::serves() const { return state_->names != nullptr; }

base::Task<Result<std::unique_ptr<FilesServer>>> FilesServer::start(base::Executor& executor,
                                                                    persist::Pool& pool,
                                                                    Server& server,
                                                                    FilesServerOptions options) {
  std::unique_ptr<FilesServer> self(new FilesServer(std::make_unique<State>(executor)));
  if (options.most_file_bytes == UINT64_MAX) {
    options.most_file_bytes = pool.space_rules().of(persist::ExtentKind::kFileData).limit_bytes;
  }
  State& state = *self->state_;
  const bool may_serve = server.discipline() != LockDiscipline::kRnic && !options.data_server;
  if (!FileArea::is_in(pool) && options.make_area && may_serve) {
    PMSTORE_CO_TRY_STATUS(make_first_section(pool, options));
  }
  if (!FileArea::is_in(pool)) {
    FilesService::decline(server.host(), no_file_area());
    co_return std::move(self);
  }
  if (server.discipline() == LockDiscipline::kRnic) {
    FilesService::decline(server.host(),
                          make_error(ErrorCode::kUnsupported,
                                     "files are not served under lock discipline rnic; start the "
                                     "server with --locks cpu"));
    co_return std::move(self);
  }
  state.memory = &pool.memory();
  PMSTORE_CO_TRY(state.area, FileArea::open(pool));
  state.space = std::make_unique<LocalDataSpace>(executor, *state.area);
  const AreaOwner owner = state.area->owner();
  const bool has_own_files = owner.file_system != 0 ? owner.server == LocalDataSpace::kServer
                                                    : state.area->may_have_unknown_owner();
  if (options.data_server && has_own_files) {
    co_return make_error(ErrorCode::kAlreadyExists,
                         "this pool has a file system of its own, so it is no data server of "
                         "another one: create another pool");
  }
  const bool is_elsewhere = owner.file_system != 0 && owner.server != LocalDataSpace::kServer;
  if (options.data_server || is_elsewhere) {
    if (state.area->sections().size() > 1) co_return several_sections();
    state.serve_data(server);
    co_return std::move(self);
  }
  state.add_services(pool, server, options);
  PMSTORE_CO_TRY_STATUS(co_await state.open_names(server, std::move(options)));
  co_return std::move(self);
}

void FilesServer::State::serve_data(Server& server) {
  data = std::make_unique<FileDataService>(*space);
  data->serve_owner(*area);
  server.host().add(*data);
  server.host().decline(service::ServiceId::kFiles,
                        make_error(ErrorCode::kUnsupported,
                                   "this is a data server: its pool has data of files, and no "
                                   "names; connect to the file system's namespace server"));
  server.extend_stat("files", [this] { return data_stat_json(); });
}

void FilesServer::State::add_services(persist::Pool& pool, Server& server,
                                      const FilesServerOptions& options) {
  FilesServiceOptions with;
  with.epoch = space->area().start();
  with.lease_ms = options.lease_ms;
  // A new pool has no earlier start.
  with.lock_grace = options.clients_come_back && space->area().start() > 1;
  files = std::make_unique<FilesService>(executor, with);
  data = std::make_unique<FileDataService>(*space);
  const internal::AreaKeeperOptions growing{.most_bytes = options.most_file_bytes};
  keeper = std::make_unique<internal::AreaKeeper>(executor, pool, *area, *space, *data, growing);
  files->end_data_sessions = [this](ClientId gone) {
    data->end_sessions(gone, SessionEnd::kReplaced);
    all->end_client(gone);
  };
  files->data_sessions_ended = [this](uint64_t until_ns) { return all->clients_ended(until_ns); };
  files->end_data_sessions_at = [this](ClientId gone, uint16_t index) {
    internal::RemoteArea* const elsewhere = all->remote(index);
    if (index == LocalDataSpace::kServer) data->end_sessions(gone, SessionEnd::kReplaced);
    if (elsewhere != nullptr) elsewhere->end_client(gone);
  };
  files->have_ended_at = [this](ClientId gone, uint16_t index) {
    const internal::RemoteArea* const elsewhere = all->remote(index);
    return elsewhere == nullptr || !elsewhere->has_end_of(gone);
  };
  space->set_gate(*files);
  all = std::make_unique<StripedDataSpace>(*space, *files);
  files->serve(server.host());
  server.host().add(*data);
  server.extend_stat("files", [this] { return stat_json(); });
}

base::Task<Status> FilesServer::State::open_names(Server& server, FilesServerOptions options) {
  // Nobody else knows this address.
  const fabric::Uri wanted{fabric::Scheme::kLocal,
                           fmt::format("files#{}", reinterpret_cast<uintptr_t>(this)), 0};
  PMSTORE_CO_TRY(const fabric::Uri at, co_await server.listen(wanted));
  ClientOptions connecting;
  connecting.devices = options.devices;
  // It stays as long as the server does: what it could READ would never be given back.
  connecting.one_sided_reads = false;
  connecting.server = &server;
  PMSTORE_CO_TRY(client, co_await Client::connect(executor, at, connecting));
  DataServersOptions data_servers;
  data_servers.devices = options.devices;
  data_servers.epoch = area->start();
  data_servers.admin_uid = options.root_uid;
  servers = std::make_unique<DataServers>(*client, *space, *all, data_servers);
  on_fenced = std::move(options.on_fenced);
  servers->on_fenced = [this](const Error& why) { fence(why); };
  servers->on_restarted = [this] { files->note_lost_data(); };
  PMSTORE_CO_TRY_STATUS(co_await servers->open());
  NamespaceOptions with;
  with.store_has_failed = [this] { return memory->failed(); };
  with.now_ns = std::move(options.now_ns);
  with.max_inodes = options.max_inodes;
  with.max_opens = options.max_opens;
  with.records_given_up = server.recovery().damaged_records;
  with.on_damage = std::move(options.on_damage);
  with.identity = options.identity;
  with.root_uid = options.root_uid;
  with.root_gid = options.root_gid;
  clients_come_back = options.clients_come_back;
  with.room_patience_ns = uint64_t{options.lease_ms} * 1'000'000 / 2;
  with.reclaim_ns = clients_come_back ? uint64_t{options.lease_ms} * 1'000'000 : 0;
  if (!with.now_ns && executor.clock().is_virtual()) {
    with.now_ns = [this] { return executor.now_ns(); };
  } else if (!with.now_ns) {
    with.now_ns = [] { return base::wall_now_ns(); };
  }
  PMSTORE_CO_TRY(names, co_await Namespace::open(*client, *all, with));
  if (area->owner().file_system != names->identity()) {
    const AreaOwner owner{names->identity(), 0, LocalDataSpace::kServer};
    PMSTORE_CO_TRY_STATUS(area->set_owner(owner));
  }
  servers->serve(*names);
  // Else a section may look empty that a file has data in.
  if (names->knows_space()) keeper->begin();
  files->open(*names, servers.get());
  co_return Status{};
}

void FilesServer::State::fence(const Error& why) {
  // One that has not started yet says so to its starter.
  if (names == nullptr || std::exchange(fenced, true)) return;
  const Error told = make_error(
      ErrorCode::kFenced,
      fmt::format("this server has stopped serving files: another one, on a copy of its pool, has "
                  "taken the data servers ({}); connect to that one, and stop this one",
                  why.message));
  fencing = stop_serving(told);
  fencing.start();
}

// In a turn of its own: what is to be destroyed here has noticed it.
base::Task<void> FilesServer::State::stop_serving(Error why) {
  co_await executor.yield();
  files->refuse(why);
  data->refuse(why);
  servers->stop();
  if (on_fenced) on_fenced(why);
}

base::Task<void> FilesServer::stop() {
  if (!serves()) co_return;
  if (!state_->clients_come_back && !state_->fenced) {
    co_await state_->names->finish_reclaiming();
  }
  state_->files->stop();
  state_->servers->stop();
  state_->names.reset();
  state_->keeper->give_back_now();
  co_await state_->all->close();
  co_await state_->client->close();
}

std::string FilesServer::State::data_stat_json() const {
  const AreaOwner owner = data->owner();
  return fmt::format(R"({{"identity": {}, "server": {}, "area_bytes": {}, "owner_session": {}, )"
                     R"("data_sessions": {}, "stale_writes": {}}})",
                     owner.file_system, owner.server, space->total_bytes(),
                     data->has_owner_session(), data->sessions(), data->stale_writes());
}

std::string FilesServer::State::stat_json() const {
  const FilesServiceCounters counters = files->counters();
  return fmt::format(
      R"({{"identity": {}, "area_bytes": {}, "free_bytes": {}, "growable_bytes": {}, )"
      R"("limit_bytes": {}, "sections": {}, "sessions_total": {}, "clients": {}, )"
      R"("calls": {}, "repeated": {}, )"
      R"("news": {}, "recalls": {}, "deaf": {}, "malformed": {}, "data_sessions": {}, )"
      R"("stale_writes": {}, "fenced": {}, "store_messages": {}}})",
      names == nullptr ? 0 : names->identity(), all->total_bytes(), all->free_bytes(),
      all->growable_bytes(), base::limit_json(keeper->most_bytes()), area->sections().size(),
      counters.sessions, counters.clients, counters.calls, counters.repeated, counters.news,
      counters.recalls, counters.deaf, counters.malformed, data->sessions(), data->stale_writes(),
      fenced, client == nullptr ? 0 : client->counters().server_messages);
}

}  // namespace pmstore::fs
