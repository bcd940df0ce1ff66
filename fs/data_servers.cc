#include "fs/data_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "fabric/message.h"
#include "fs/file_data_protocol.h"
#include "service/link.h"

namespace pmstore::fs {

using internal::RemoteArea;

namespace {

constexpr uint64_t kDrainPauseNs = 200'000'000;

}  // namespace

// One change of the list, to its end.
class DataServers::Changing {
 public:
  explicit Changing(DataServers& servers) : servers_(servers) { servers_.changing_ = true; }
  Changing(const Changing&) = delete;
  Changing& operator=(const Changing&) = delete;
  ~Changing() { servers_.changing_ = false; }

 private:
  DataServers& servers_;
};

DataServers::DataServers(Client& client, LocalDataSpace& local, StripedDataSpace& space,
                         DataServersOptions options)
    : executor_(client.executor()),
      local_(local),
      space_(space),
      options_(options),
      start_(base::random_identity()),
      records_(client) {}

internal::RemoteAreaOptions DataServers::area_options(uint16_t index) const {
  internal::RemoteAreaOptions with;
  with.devices = options_.devices;
  with.file_system = file_system_;
  with.epoch = options_.epoch;
  with.start = start_;
  with.server = index;
  return with;
}

void DataServers::watch_fences(RemoteArea& area) {
  area.on_fenced = [this](const Error& why) {
    if (on_fenced) on_fenced(why);
  };
  area.on_restarted = [this] {
    if (on_restarted) on_restarted();
  };
}

base::Task<Status> DataServers::open() {
  PMSTORE_CO_TRY(const auto loaded, co_await records_.load());
  file_system_ = loaded.identity;
  for (const Entry& entry : loaded.servers) {
    entries_[entry.index] = entry;
    if (entry.state == DataServerState::kGone) continue;
    if (entry.index == LocalDataSpace::kServer) {
      space_.set_state(entry.index, entry.state);
      continue;
    }
    PMSTORE_CO_TRY(fabric::Uri uri, fabric::parse_uri(entry.uri));
    internal::RemoteAreaOptions with = area_options(entry.index);
    with.area = entry.area;
    with.bytes = entry.bytes;
    const auto secret = co_await records_.secret_of(entry.area);
    if (!secret && secret.code() == ErrorCode::kFull) {
      co_return make_error(ErrorCode::kFull,
                           "the pool has no room for the secret of a data server: remove files "
                           "with the release that has added it, and start this one again");
    }
    if (!secret) co_return secret.error();
    with.secret = *secret;
    PMSTORE_CO_TRY(auto area, RemoteArea::create(executor_, std::move(uri), with));
    watch_fences(*area);
    // Once: the others do not wait for one that is away.
    const Status connected = co_await area->try_once();
    // A later namespace server has it: this one must not serve.
    if (!connected && connected.code() == ErrorCode::kFenced) co_return connected.error();
    area->keep_connected();
    space_.add(entry.index, std::move(area), entry.state);
  }
  co_return Status{};
}

void DataServers::serve(Namespace& names) {
  names_ = &names;
  file_system_ = names.identity();
  for (const auto& [index, entry] : entries_) {
    if (entry.state == DataServerState::kDraining) start_draining(index);
  }
}

void DataServers::stop() {
  draining_ = {};
  drained_.clear();
  names_ = nullptr;
}

std::vector<DataServerInfo> DataServers::list() const {
  std::vector<DataServerInfo> all;
  DataServerInfo here;
  here.state = space_.state(LocalDataSpace::kServer);
  here.area = local_.area().identity();
  here.bytes = local_.total_bytes();
  here.end = local_.end();
  here.used_bytes = space_.used_bytes(LocalDataSpace::kServer);
  all.push_back(std::move(here));
  for (const auto& [index, entry] : entries_) {
    if (index == LocalDataSpace::kServer) continue;
    const RemoteArea* const area = space_.remote(index);
    all.push_back({index,
                   entry.state,
                   area != nullptr && area->is_connected(),
                   entry.area,
                   entry.bytes,
                   space_.used_bytes(index),
                   entry.uri,
                   {},
                   entry.bytes});
  }
  for (DataServerInfo& server : all) {
    const auto problem = problems_.find(server.index);
    const bool is_draining = server.state == DataServerState::kDraining;
    if (is_draining && problem != problems_.end()) server.problem = problem->second;
  }
  return all;
}

PosixStatus DataServers::may_change(const Caller& caller) const {
  if (names_ == nullptr) return PosixError(EIO, "the server starts or stops; try again");
  if (caller.uid != 0 && caller.uid != options_.admin_uid) {
    return PosixError(EPERM, "only root and the user who runs the server change its data servers");
  }
  if (changing_) return PosixError(EBUSY, "the list of data servers is being changed; try again");
  return {};
}

// ---- adding ----

// By a session as a client has it, which changes nothing there.
base::Task<Result<uint64_t>> DataServers::identity_at(const fabric::Uri& uri) {
  PMSTORE_CO_TRY(auto device, fabric::open_device(uri.scheme, executor_, options_.devices));
  service::LinkOptions with;
  with.service = service::ServiceId::kFileData;
  with.secret = ClientSecret::random();
  const FileDataHello hello{0, 1};
  PMSTORE_CO_TRY(const auto link,
                 co_await service::Link::open(*device, uri, with, service::bytes_of(hello)));
  fabric::MessageReader reader(link->body());
  const auto answer = reader.get<FileDataAnswer>();
  if (reader.complete() && answer.area != 0) co_return answer.area;
  co_return make_error(ErrorCode::kProtocol, "it is no data server of this version");
}

base::Task<PosixResult<uint16_t>> DataServers::add(const Caller& caller, std::string uri) {
  PMSTORE_CO_TRY_STATUS(may_change(caller));
  auto parsed = fabric::parse_uri(uri);
  if (!parsed) co_return PosixError(EINVAL, parsed.error().message);
  const Changing changing(*this);
  co_return co_await add_found(std::move(*parsed));
}

base::Task<PosixResult<uint16_t>> DataServers::add_found(fabric::Uri uri) {
  const auto is_in_use = [](const auto& each) {
    return each.second.state != DataServerState::kGone;
  };
  if (std::count_if(entries_.begin(), entries_.end(), is_in_use) >= ptrdiff_t{kMost}) {
    co_return PosixError(ENOSPC, fmt::format("there are {} data servers already", kMost));
  }
  PMSTORE_CO_TRY(const uint64_t identity, co_await identity_at(uri));
  for (const DataServerInfo& server : list()) {
    if (server.state == DataServerState::kGone || server.area != identity) continue;
    co_return PosixError(EEXIST, fmt::format("its area is data server {} already", server.index));
  }
  PMSTORE_CO_TRY(const auto loaded, co_await records_.load());
  // An earlier call may have recorded it, and not have known that.
  const auto recorded =
      std::find_if(loaded.servers.begin(), loaded.servers.end(), [identity](const Entry& each) {
        return each.area == identity && each.state != DataServerState::kGone;
      });
  const bool is_recorded = recorded != loaded.servers.end();
  const uint16_t index = is_recorded ? recorded->index : loaded.next_index;
  internal::RemoteAreaOptions with = area_options(index);
  with.area = identity;
  PMSTORE_CO_TRY(const bool was_ours, co_await records_.has_secret_of(identity));
  const auto secret = co_await records_.secret_of(identity);
  if (!secret && secret.code() == ErrorCode::kFull) {
    co_return PosixError(ENOSPC,
                         "the pool has no room for the data server's secret: remove files and add "
                         "it again");
  }
  if (!secret) co_return PosixError(secret.error());
  with.secret = *secret;
  PMSTORE_CO_TRY(auto area, RemoteArea::create(executor_, uri, with));
  watch_fences(*area);
  // Records there whose it is. Were this program to end here, the same command goes on with it.
  const Status is_ours = co_await area->connected();
  if (!is_ours && is_ours.code() == ErrorCode::kAccess) {
    co_return PosixError(EACCES, is_ours.error().message);
  }
  if (!is_ours) co_return PosixError(is_ours.error());
  Entry entry;
  entry.index = index;
  entry.area = area->area();
  entry.bytes = area->bytes();
  entry.uri = uri.to_string();
  PMSTORE_CO_TRY_STATUS(co_await take_in(std::move(entry), std::move(area), is_recorded, was_ours));
  co_return index;
}

// One that was ours may have data of a record that is lost: then all of it is zeroed.
base::Task<PosixStatus> DataServers::take_in(Entry entry, std::unique_ptr<RemoteArea> area,
                                             bool is_recorded, bool was_ours) {
  const uint16_t index = entry.index;
  uint32_t given_up = 0;
  if (was_ours) {  // a start before the end of this call zeroes all free space
    PMSTORE_CO_TRY(given_up, co_await records_.exchange_given_up(internal::kSpaceIsUnclean));
  }
  if (is_recorded) {
    PMSTORE_CO_TRY_STATUS(co_await records_.change(entry));
  } else {
    PMSTORE_CO_TRY_STATUS(co_await records_.add(entry));
  }
  area->keep_connected();
  space_.add(index, std::move(area), DataServerState::kInUse);
  entries_[index] = std::move(entry);
  if (!was_ours) co_return PosixStatus();
  if (names_ == nullptr) co_return PosixError(EIO, "the server stops");
  const Status noted = co_await names_->quarantine_free_of(index);
  if (!noted) {
    co_return PosixError(noted.code() == ErrorCode::kFull ? ENOSPC : EIO,
                         fmt::format("data server {} is added, and gets no data: what it has is to "
                                     "be zeroed, and that cannot be noted: {}; start this server "
                                     "again",
                                     index, noted.error().message));
  }
  // Else the next start zeroes once more.
  (void)co_await records_.exchange_given_up(given_up);
  co_return PosixStatus();
}

// ---- draining ----

base::Task<Status> DataServers::record(Entry entry) {
  PMSTORE_CO_TRY_STATUS(co_await records_.change(entry));
  entries_[entry.index] = std::move(entry);
  co_return Status{};
}

base::Task<PosixStatus> DataServers::drain(const Caller& caller, uint16_t index, bool undo) {
  PMSTORE_CO_TRY_STATUS(may_change(caller));
  const DataServerState wanted = undo ? DataServerState::kInUse : DataServerState::kDraining;
  const DataServerState now = space_.state(index);
  if (now == DataServerState::kGone) {
    co_return PosixError(EINVAL, fmt::format("there is no data server {} in use", index));
  }
  if (now == wanted) co_return PosixStatus{};
  if (!undo && now == DataServerState::kInUse) {
    size_t others = 0;
    for (const DataServerInfo& server : list()) {
      others += server.index != index && server.state == DataServerState::kInUse ? 1 : 0;
    }
    if (others == 0) {
      co_return PosixError(EINVAL, "it is the last data server in use: add another one first");
    }
  }
  const Changing changing(*this);
  Entry entry = entries_[index];
  entry.index = index;
  entry.state = wanted;
  PMSTORE_CO_TRY_STATUS(co_await record(std::move(entry)));
  space_.set_state(index, wanted);
  if (!undo) start_draining(index);
  co_return PosixStatus{};
}

void DataServers::start_draining(uint16_t index) {
  if (drained_.insert(index).second) draining_.run(drain_all(index));
}

// Until it is empty, or used again.
base::Task<void> DataServers::drain_all(uint16_t index) {
  const base::RunningTasks::Position here = draining_.started_last();
  while (space_.state(index) == DataServerState::kDraining) {
    // What cannot be moved now is tried again: there may be no room, or a server is away.
    const auto moved = co_await names_->move_off(index);
    std::string problem;
    if (!moved) problem = moved.error().to_string();
    if (!space_.is_there(index)) problem = "it is away: start it again, or undo the drain";
    note_problem(index, std::move(problem));
    const bool is_empty = space_.used_bytes(index) == 0 && !changing_;
    // The namespace's own area stays, and is not used.
    if (is_empty && index == LocalDataSpace::kServer) break;
    if (is_empty && space_.state(index) == DataServerState::kDraining) {
      const Status done = co_await finish(index);
      if (done) break;
      note_problem(index, done.error().to_string());
    }
    co_await executor_.sleep_for(kDrainPauseNs);
  }
  problems_.erase(index);
  drained_.erase(index);
  draining_.ended(here);
}

void DataServers::note_problem(uint16_t index, std::string what) {
  constexpr size_t kMostBytes = 255;
  if (what.size() > kMostBytes) what.resize(kMostBytes);
  if (what.empty()) {
    problems_.erase(index);
  } else {
    problems_[index] = std::move(what);
  }
}

base::Task<Status> DataServers::finish(uint16_t index) {
  const Changing changing(*this);
  Entry entry = entries_.at(index);
  entry.state = DataServerState::kGone;
  PMSTORE_CO_TRY_STATUS(co_await record(std::move(entry)));
  const std::unique_ptr<RemoteArea> area = space_.remove(index);
  // One that is away keeps its record: this file system may add it again, no other one may.
  const Status released = co_await area->give_up();
  co_await area->close();  // it comes there no more
  // Without its secret it counts as new when it is added again: all of it is zero.
  if (released) (void)co_await records_.forget_secret_of(area->area());
  co_return Status{};
}

}  // namespace pmstore::fs
