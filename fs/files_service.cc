#include "fs/files_service.h"

#include <utility>

#include "fs/internal/files_sessions.h"

namespace pmstore::fs {

struct FilesService::State {
  State(base::Executor& executor, const FilesServiceOptions& options)
      : sessions(executor, options) {}
  internal::FilesSessions sessions;
};

FilesService::FilesService(base::Executor& executor, FilesServiceOptions options)
    : state_(std::make_unique<State>(executor, options)) {
  state_->sessions.end_data_sessions = [this](ClientId client) {
    if (end_data_sessions) end_data_sessions(client);
  };
  state_->sessions.data_sessions_ended = [this](uint64_t until_ns) -> base::Task<void> {
    if (data_sessions_ended) co_await data_sessions_ended(until_ns);
  };
  state_->sessions.end_data_sessions_at = [this](ClientId client, uint16_t server) {
    if (end_data_sessions_at) end_data_sessions_at(client, server);
  };
  state_->sessions.have_ended_at = [this](ClientId client, uint16_t server) {
    return !have_ended_at || have_ended_at(client, server);
  };
}
FilesService::~FilesService() { stop(); }

void FilesService::serve(service::Host& host) { host.add(state_->sessions); }

void FilesService::decline(service::Host& host, const Error& why) {
  host.decline(service::ServiceId::kFiles, why);
  host.decline(service::ServiceId::kFileData, why);
}

void FilesService::open(Namespace& names, DataServers* servers) {
  state_->sessions.open(names, servers);
}

void FilesService::stop() { state_->sessions.stop(); }

void FilesService::refuse(const Error& why) { state_->sessions.refuse(why); }

void FilesService::note_lost_data() { state_->sessions.note_lost_data(); }

void FilesService::retired(const AreaRange& range) { state_->sessions.clients().retire(range); }

base::Task<Status> FilesService::closed(AreaRange range) {
  if (!state_->sessions.stopped()) co_await state_->sessions.clients().all_confirmed(range);
  if (!state_->sessions.stopped()) co_return Status{};
  co_return make_error(ErrorCode::kDisconnected, "the file service has stopped");
}

FilesServiceCounters FilesService::counters() const {
  const internal::FilesSessions& sessions = state_->sessions;
  const service::ServiceCounters& counted = sessions.counters();
  FilesServiceCounters all;
  all.sessions = counted.sessions;
  all.clients = sessions.clients().size();
  all.calls = counted.calls;
  all.repeated = sessions.repeated();
  all.news = sessions.clients().newest();
  all.recalls = sessions.recalls();
  all.deaf = sessions.deaf();
  all.malformed = counted.malformed;
  return all;
}

Error no_file_area() {
  return make_error(ErrorCode::kUnsupported,
                    "this pool has no file area; create it with --file-bytes, or serve it with "
                    "pmstored --files");
}

}  // namespace pmstore::fs
