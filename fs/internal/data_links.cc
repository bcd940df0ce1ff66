#include "fs/internal/data_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pmstore::fs::internal {
namespace {

constexpr uint16_t kNamespaceServer = 0;
constexpr uint64_t kOpenAgainNs = 20'000'000;
constexpr uint32_t kServersReplyBytes = 64 * 1024;

bool may_come_back(const Error& why) {
  return why.code == ErrorCode::kDisconnected || why.code == ErrorCode::kTimeout;
}

}  // namespace

DataLinks::DataLinks(base::Executor& executor, fabric::Device& device, fabric::Uri uri,
                     FilesLink& link, const FileSystemOptions& options)
    : executor_(executor), device_(device), uri_(std::move(uri)), link_(link), options_(options) {}

DataLinks::~DataLinks() = default;

// ---- sessions ----

base::Task<Result<DataLinks::Place>> DataLinks::place_of(uint16_t server) {
  if (server == kNamespaceServer) co_return Place{uri_, 0};
  const FilesCall request(FilesMethod::kDataServers, false, kServersReplyBytes);
  const auto answered = co_await link_.call(request);
  if (!answered) co_return make_error(ErrorCode::kDisconnected, answered.error().to_string());
  fabric::MessageReader reader = answered->reader();
  const auto head = reader.get<DataServersReply>();
  std::optional<DataServerInfo> found;
  for (uint32_t i = 0; i < head.count && !reader.failed(); ++i) {
    auto each = get_data_server(reader);
    if (each && each->index == server) found = std::move(each);
  }
  if (!reader.complete() || !found || found->state == DataServerState::kGone) {
    co_return make_error(ErrorCode::kNotFound,
                         fmt::format("the file system has no data server {} now", server));
  }
  PMSTORE_CO_TRY(fabric::Uri uri, fabric::parse_uri(found->uri));
  co_return Place{std::move(uri), found->area};
}

base::Task<Result<std::unique_ptr<FileData>>> DataLinks::open_at(fabric::Device& device,
                                                                 Place place) {
  FileDataOptions with;
  with.secret = link_.secret();
  with.area = place.area;
  with.call_timeout_ns = options_.call_timeout_ns;
  with.connect_timeout_ns = options_.connect_timeout_ns;
  with.reconnect_timeout_ns = options_.reconnect_timeout_ns;
  with.write_strategy = options_.write_strategy;
  if (place.area != 0) {  // one of several
    with.small_buffers /= 2;
    with.large_buffers /= 2;
  }
  auto opened = co_await FileData::open(device, place.uri, with);
  const uint64_t give_up_ns = executor_.now_ns() + options_.reconnect_timeout_ns;
  while (!opened && may_come_back(opened.error()) && executor_.now_ns() < give_up_ns) {
    co_await executor_.sleep_for(kOpenAgainNs);
    opened = co_await FileData::open(device, place.uri, with);
  }
  co_return std::move(opened);
}

base::Task<Status> DataLinks::open_first(uint16_t index, Server& server) {
  struct Opening {
    explicit Opening(Server& of) : server(of) { server.opening = true; }
    ~Opening() {
      server.opening = false;
      server.opened.notify_all();
    }
    Server& server;
  };
  const Opening opening(server);
  PMSTORE_CO_TRY(Place place, co_await place_of(index));
  fabric::Device* device = &device_;
  if (index != kNamespaceServer && place.uri.scheme != uri_.scheme) {
    if (server.device == nullptr) {
      PMSTORE_CO_TRY(server.device,
                     fabric::open_device(place.uri.scheme, executor_, options_.devices));
    }
    device = server.device.get();
  }
  PMSTORE_CO_TRY(auto data, co_await open_at(*device, std::move(place)));
  for (const auto& [memory, bytes] : registered_) {
    if (!data->register_buffer({memory, bytes})) server.refused.insert(memory);
  }
  server.data = std::move(data);
  co_return Status{};
}

base::Task<Status> DataLinks::open(uint16_t index) {
  std::unique_ptr<Server>& entry = servers_[index];
  if (entry == nullptr) entry = std::make_unique<Server>(executor_);
  Server& server = *entry;
  while (server.opening) co_await server.opened.wait();
  if (server.data != nullptr) co_return co_await server.data->connected();
  co_return co_await open_first(index, server);
}

DataSessions DataLinks::sessions() const {
  DataSessions all;
  for (const auto& [index, server] : servers_) {
    if (server->data == nullptr) continue;
    all.resize(size_t{index} + 1);
    all[index] = server->data->session();
  }
  return all;
}

bool DataLinks::was_opened(uint16_t server) const {
  const auto found = servers_.find(server);
  return found != servers_.end() && found->second->data != nullptr;
}

bool DataLinks::is_one_sided(uint16_t server) const {
  const auto found = servers_.find(server);
  return found != servers_.end() && found->second->data != nullptr &&
         found->second->data->strategy() != persist::WriteStrategy::kTwoSided;
}

class DataLinks::Writing {
 public:
  Writing(Server& server, Ino ino) : server_(server), ino_(ino) { ++server_.writing[ino_]; }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;
  ~Writing() {
    const auto mine = server_.writing.find(ino_);
    PMSTORE_CHECK(mine != server_.writing.end() && mine->second > 0, "a write ends once");
    if (--mine->second == 0) server_.writing.erase(mine);
    if (!landed) name(server_.unlanded, ino_);
  }
  bool landed = false;

 private:
  Server& server_;
  const Ino ino_;
};

void DataLinks::name(UnlandedFiles& files, Ino ino) {
  if (files.any) return;
  files.inos.insert(ino);
  if (files.inos.size() <= kMostNamed) return;
  files.any = true;
  files.inos.clear();
}

base::Task<void> DataLinks::look_at(Server& server, uint64_t until_ns, UnlandedFiles& into) {
  into = std::exchange(server.unlanded, {});
  for (const auto& [ino, writes] : server.writing) name(into, ino);
  const Status landed = co_await server.data->landed_by(until_ns);
  if (landed) {
    into = {};
    co_return;
  }
  // They are asked for again.
  server.unlanded.any |= into.any;
  for (const Ino ino : into.inos) name(server.unlanded, ino);
}

base::Task<UnlandedWrites> DataLinks::unlanded(uint64_t until_ns) {
  UnlandedWrites all;
  std::vector<uint16_t> indexes;
  for (const auto& [index, server] : servers_) {
    if (server->data != nullptr) indexes.push_back(index);
  }
  for (const uint16_t index : indexes) {
    UnlandedFiles files;
    co_await look_at(*servers_.at(index), until_ns, files);
    if (files.any || !files.inos.empty()) all.emplace(index, std::move(files));
  }
  co_return all;
}

base::Task<void> DataLinks::close() {
  for (const auto& [index, server] : servers_) {
    if (server->data != nullptr) co_await server->data->close();
  }
}

fabric::Counters DataLinks::counters() const {
  fabric::Counters all;
  for (const auto& [index, server] : servers_) {
    if (server->data != nullptr) all += server->data->counters();
  }
  all.round_trips -= joint_round_trips_;
  return all;
}

// ---- accesses ----

// The pieces of one server.
template <typename Piece>
struct DataLinks::Part {
  uint16_t server = 0;
  std::vector<Piece> pieces;
  std::optional<Result<DataOutcome>> outcome;
};

// Of several servers. The tasks go first: they may be destroyed at any suspension.
template <typename Piece>
struct DataLinks::Joint {
  explicit Joint(base::Executor& executor) : ended(executor) {}
  const DataSessions* sessions = nullptr;
  Ino ino{};
  DataSync sync = DataSync::kAlways;
  std::vector<Part<Piece>> parts;
  size_t running = 0;
  base::WaitList ended;
  std::vector<base::Task<void>> tasks;
};

template <typename Piece>
base::Task<Result<DataOutcome>> DataLinks::access_one(uint16_t server, uint64_t session, Ino ino,
                                                      std::vector<Piece> pieces, DataSync sync) {
  const auto found = servers_.find(server);
  PMSTORE_CHECK(found != servers_.end(), "a map's servers were asked for");
  FileData* const data = found->second->data.get();
  if (data == nullptr || session == 0) {
    PMSTORE_CO_TRY_STATUS(co_await open(server));
    co_return DataOutcome::kStaleMap;
  }
  if constexpr (std::is_same_v<Piece, ReadPiece>) {
    co_return co_await data->read(session, std::move(pieces));
  } else {
    Writing writing(*found->second, ino);
    auto outcome = co_await data->write(session, std::move(pieces), sync);
    // A stale map: the server has ended the session of this write, or has stored nothing.
    writing.landed = outcome.has_value();
    co_return std::move(outcome);
  }
}

template <typename Piece>
base::Task<void> DataLinks::run_part(Joint<Piece>& joint, size_t number) {
  Part<Piece>& part = joint.parts[number];
  const DataSessions& sessions = *joint.sessions;
  const uint64_t session = part.server < sessions.size() ? sessions[part.server] : 0;
  part.outcome =
      co_await access_one(part.server, session, joint.ino, std::move(part.pieces), joint.sync);
  PMSTORE_CHECK(joint.running > 0, "each part ends once");
  if (--joint.running == 0) joint.ended.notify_all();
}

template <typename Piece>
base::Task<Result<DataOutcome>> DataLinks::access(const DataSessions& sessions, Ino ino,
                                                  std::vector<Piece> pieces, DataSync sync) {
  Joint<Piece> joint(executor_);
  joint.sessions = &sessions;
  joint.ino = ino;
  joint.sync = sync;
  for (Piece& piece : pieces) {
    const uint16_t server = piece.extent.place.server;
    auto part = std::find_if(joint.parts.begin(), joint.parts.end(),
                             [server](const Part<Piece>& each) { return each.server == server; });
    if (part == joint.parts.end()) {
      joint.parts.push_back({server, {}, {}});
      part = std::prev(joint.parts.end());
    }
    part->pieces.push_back(std::move(piece));
  }
  if (joint.parts.size() == 1) {
    const uint16_t server = joint.parts.front().server;
    const uint64_t session = server < sessions.size() ? sessions[server] : 0;
    co_return co_await access_one(server, session, ino, std::move(joint.parts.front().pieces),
                                  sync);
  }
  joint.running = joint.parts.size();
  for (size_t i = 0; i < joint.parts.size(); ++i) {
    joint.tasks.push_back(run_part(joint, i));
    joint.tasks.back().start();
  }
  while (joint.running > 0) co_await joint.ended.wait();
  DataOutcome all = DataOutcome::kDone;
  for (Part<Piece>& part : joint.parts) {
    if (!*part.outcome) co_return std::move(*part.outcome);
    if (**part.outcome == DataOutcome::kStaleMap) all = DataOutcome::kStaleMap;
  }
  if (all == DataOutcome::kDone) joint_round_trips_ += joint.parts.size() - 1;
  co_return all;
}

base::Task<Result<DataOutcome>> DataLinks::read(const DataSessions& sessions,
                                                std::vector<ReadPiece> pieces) {
  return access(sessions, Ino{}, std::move(pieces), DataSync::kAlways);
}

base::Task<Result<DataOutcome>> DataLinks::write(const DataSessions& sessions, Ino ino,
                                                 std::vector<WritePiece> pieces, DataSync sync) {
  return access(sessions, ino, std::move(pieces), sync);
}

// ---- later durability ----

uint64_t DataLinks::start_of(uint16_t server, uint64_t session) const {
  const auto found = servers_.find(server);
  PMSTORE_CHECK(found != servers_.end() && found->second->data != nullptr,
                "a session was with a server that was opened");
  return found->second->data->start_of(session);
}

// The tasks go first, as of a Joint.
struct DataLinks::JointPersist {
  JointPersist(base::Executor& executor, const std::vector<DirtyRanges::OfServer>& what)
      : dirty(what), outcomes(what.size()), running(what.size()), ended(executor) {}
  const std::vector<DirtyRanges::OfServer>& dirty;
  std::vector<std::optional<Result<PersistOutcome>>> outcomes;
  size_t running;
  base::WaitList ended;
  std::vector<base::Task<void>> tasks;
};

base::Task<Result<PersistOutcome>> DataLinks::persist_one(const DirtyRanges::OfServer& dirty) {
  const auto found = servers_.find(dirty.server);
  PMSTORE_CHECK(found != servers_.end() && found->second->data != nullptr,
                "what is dirty was written by this object");
  co_return co_await found->second->data->persist(dirty.start, dirty.ranges);
}

base::Task<void> DataLinks::run_persist(JointPersist& joint, size_t number) {
  joint.outcomes[number] = co_await persist_one(joint.dirty[number]);
  PMSTORE_CHECK(joint.running > 0, "each server ends once");
  if (--joint.running == 0) joint.ended.notify_all();
}

base::Task<std::vector<Result<PersistOutcome>>> DataLinks::persist(
    const std::vector<DirtyRanges::OfServer>& dirty) {
  JointPersist joint(executor_, dirty);
  for (size_t i = 0; i < dirty.size(); ++i) {
    joint.tasks.push_back(run_persist(joint, i));
    joint.tasks.back().start();
  }
  while (joint.running > 0) co_await joint.ended.wait();
  std::vector<Result<PersistOutcome>> all;
  for (auto& outcome : joint.outcomes) all.push_back(std::move(*outcome));
  if (!all.empty()) joint_round_trips_ += all.size() - 1;
  co_return all;
}

}  // namespace pmstore::fs::internal
