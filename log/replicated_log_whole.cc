// Of ReplicatedLog: what is asked of all replicas without appending to them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "log/internal/replicated_log_state.h"
#include "log/replicated_log.h"

namespace pmstore::log {

using internal::AskedServer;
using internal::at_server;
using internal::Membership;

namespace {

AskedServer& server_of(std::vector<AskedServer>& asked, const std::string& uri) {
  return *std::find_if(asked.begin(), asked.end(),
                       [&](const AskedServer& server) { return server.uri == uri; });
}

bool says(const AskedServer& server, const Membership& decided) {
  return server.info && server.info->identity == decided.identity &&
         server.info->membership == decided.number && server.info->replicas == decided.replicas;
}

}  // namespace

// ---- who they are ----

base::Task<ReplicatedLogStatus> ReplicatedLog::status(base::Executor& executor, std::string name,
                                                      std::vector<std::string> servers,
                                                      LogClientOptions options) {
  const std::vector<std::string> nobody;
  auto asked = co_await internal::ask_servers(executor, name, servers, nobody, options);
  ReplicatedLogStatus status;
  auto membership = internal::decide_membership(asked, nobody);
  status.agreed = membership && membership->agreed && !membership->pending;
  if (!membership) {
    status.why_not = membership.error();
    membership = internal::newest_membership(asked);
  }
  if (membership) {
    status.membership = membership->number;
    status.replicas = membership->replicas;
    status.identity = membership->identity;
  }
  for (AskedServer& server : asked) {
    const bool current = status.agreed && says(server, *membership);
    status.servers.push_back({server.uri, std::move(server.info), current});
  }
  co_return status;
}

base::Task<Result<CurrentReplica>> open_current_replica(base::Executor& executor, std::string name,
                                                        std::vector<std::string> servers,
                                                        LogClientOptions options) {
  const std::vector<std::string> nobody;
  auto asked = co_await internal::ask_servers(executor, name, servers, nobody, options);
  PMSTORE_CO_TRY(const Membership decided, internal::decide_membership(asked, nobody));
  for (AskedServer& server : asked) {
    if (!says(server, decided)) continue;
    co_return CurrentReplica{std::move(server.client), std::move(*server.info)};
  }
  co_return make_error(ErrorCode::kConflict, "no server has the log's newest membership");
}

base::Task<Status> move_to_current_replica(std::vector<std::string> servers,
                                           LogClientOptions options, CurrentReplica& at,
                                           std::unique_ptr<LogReader>& reader) {
  // The one that was dropped knows who the others were.
  servers.insert(servers.end(), at.info.replicas.begin(), at.info.replicas.end());
  PMSTORE_CO_TRY(auto found, co_await open_current_replica(at.client->executor(), at.info.name,
                                                           std::move(servers), std::move(options)));
  // A decision that drops one raises the number. Without it the same would come again there.
  if (found.info.identity != at.info.identity || found.info.membership <= at.info.membership) {
    co_return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "the log {} was deleted, or what a server says of it changes without a decision "
            "about its members: open it again",
            at.info.name));
  }
  LogReaderOptions reading;
  reading.current_replica = true;
  PMSTORE_CO_TRY(auto moved, co_await LogReader::open(*found.client, found.info.id, reading));
  if (reader->position() > 0) moved->seek(reader->position());
  reader = std::move(moved);  // before the client that the old one has used goes
  at = std::move(found);
  co_return Status{};
}

// ---- trim ----

base::Task<Status> ReplicatedLog::trim_below_index(uint64_t index) {
  for (State::Member& member : state_->members) {
    // What is not published yet cannot be trimmed.
    if (member.producer != nullptr) {
      PMSTORE_CO_TRY_STATUS(co_await member.producer->publish());
    }
    const auto trimmed = co_await member.client->trim_below_index(member.info.id, index);
    if (!trimmed) co_return at_server(member.uri, trimmed.error());
  }
  co_return Status{};
}

base::Task<Result<uint64_t>> ReplicatedLog::trim(base::Executor& executor, std::string name,
                                                 std::vector<std::string> servers, TrimPlace until,
                                                 LogClientOptions options) {
  const std::vector<std::string> nobody;
  auto asked = co_await internal::ask_servers(executor, name, servers, nobody, options);
  PMSTORE_CO_TRY(const Membership decided, internal::decide_membership(asked, nobody));
  uint64_t start_lsn = 0;
  for (const std::string& uri : decided.replicas) {
    AskedServer& member = server_of(asked, uri);
    Result<uint64_t> trimmed = uint64_t{0};
    if (until.below_index != 0) {
      trimmed = co_await member.client->trim_below_index(member.info->id, until.below_index);
    } else {
      trimmed = co_await member.client->trim(member.info->id, until.through_lsn);
    }
    if (!trimmed) co_return at_server(uri, trimmed.error());
    start_lsn = std::max(start_lsn, *trimmed);
  }
  co_return start_lsn;
}

// ---- seal ----

// From the first member on: once that is sealed nobody can have all leases, and so nothing more is
// appended, wherever this is interrupted.
base::Task<Status> ReplicatedLog::seal() {
  State& s = *state_;
  PMSTORE_CO_TRY_STATUS(s.usable());
  PMSTORE_CO_TRY_STATUS(co_await close());
  for (State::Member& member : s.members) {
    const Status sealed = co_await member.client->seal(member.info.id);
    if (!sealed) co_return at_server(member.uri, sealed.error());
  }
  co_return Status{};
}

base::Task<Status> ReplicatedLog::seal(base::Executor& executor, std::string name,
                                       std::vector<std::string> servers,
                                       ReplicatedLogOptions options) {
  const std::vector<std::string> nobody;
  auto asked = co_await internal::ask_servers(executor, name, servers, nobody, options.client);
  PMSTORE_CO_TRY(const Membership decided, internal::decide_membership(asked, nobody));
  const AskedServer& first = server_of(asked, decided.replicas.front());
  if (!first.info->sealed) {
    asked.clear();
    PMSTORE_CO_TRY(const auto log,
                   co_await open(executor, name, decided.replicas, std::move(options)));
    co_return co_await log->seal();
  }
  // One before was interrupted. It had closed the log, so all were equal and published.
  for (const std::string& uri : decided.replicas) {
    AskedServer& member = server_of(asked, uri);
    if (member.info->sealed) continue;
    if (member.info->next_index != first.info->next_index) {
      co_return at_server(
          uri, make_error(ErrorCode::kConflict,
                          fmt::format("it has entries up to {}, and {}, which is sealed, up to {}: "
                                      "drop it, or the other one",
                                      member.info->next_index - 1, first.uri,
                                      first.info->next_index - 1)));
    }
    const Status sealed = co_await member.client->seal(member.info->id);
    if (!sealed) co_return at_server(uri, sealed.error());
  }
  co_return Status{};
}

// ---- delete ----

base::Task<Status> ReplicatedLog::erase(base::Executor& executor, std::string name,
                                        std::vector<std::string> servers,
                                        LogClientOptions options) {
  const std::vector<std::string> nobody;
  auto asked = co_await internal::ask_servers(executor, name, servers, nobody, options);
  PMSTORE_CO_TRY(const Membership newest, internal::newest_membership(asked));
  // All must be there before one goes; those that have none any more are of an erase before.
  for (const std::string& uri : newest.replicas) {
    const AskedServer& member = server_of(asked, uri);
    if (!member.info && member.info.code() != ErrorCode::kNotFound) {
      co_return at_server(uri, member.info.error());
    }
  }
  for (const std::string& uri : newest.replicas) {
    AskedServer& member = server_of(asked, uri);
    if (!member.info || member.info->identity != newest.identity) continue;
    const Status erased = co_await member.client->erase(member.info->id);
    if (!erased) co_return at_server(uri, erased.error());
  }
  co_return Status{};
}

}  // namespace pmstore::log
