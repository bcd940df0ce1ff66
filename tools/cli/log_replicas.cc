// pmstore log create | stat | trim | seal | delete of a replicated log; members | add-member |
// drop-member.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tools/cli/bytes_text.h"
#include "tools/cli/log_session.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {

using log::ReplicatedLog;

namespace {

int fail_replicas(std::string_view what, const LogCommandOptions& options, const Error& error) {
  return fail(kProgram, what, why_text(error) + advice(error, options));
}

std::string joined(const std::vector<std::string>& uris) {
  return printable(fmt::format("{}", fmt::join(uris, ", ")));
}

void print_membership(const LogCommandOptions& options, uint64_t number,
                      const std::vector<std::string>& replicas) {
  if (options.session.json) {
    return print_json({{"log", options.name}, {"membership", number}, {"replicas", replicas}});
  }
  print_text(fmt::format("membership {}: {}\n", number, joined(replicas)));
}

// Empty: a log that an earlier version has made has none.
std::string identity_text(uint64_t identity) {
  return identity == 0 ? "" : fmt::format("{:016x}", identity);
}

// A string: readers of JSON may keep 53 bits of a number.
nlohmann::ordered_json identity_json(uint64_t identity) {
  if (identity == 0) return nullptr;
  return identity_text(identity);
}

// How a server stands to the log.
std::string state_of(const log::ReplicaStatus& server, const log::ReplicatedLogStatus& log) {
  if (!server.info) {
    return server.info.code() == ErrorCode::kNotFound ? "has no such log" : "missing";
  }
  if (server.current) return "current";
  if (log.membership == 0) return "unclear";
  if (server.info->identity != log.identity) return "has another log";
  const auto& replicas = log.replicas;
  const bool member = std::find(replicas.begin(), replicas.end(), server.uri) != replicas.end();
  if (!member) return "dropped";
  return server.info->membership < log.membership ? "behind" : "not confirmed";
}

nlohmann::ordered_json server_json(const log::ReplicaStatus& server,
                                   const log::ReplicatedLogStatus& log) {
  nlohmann::ordered_json object = {{"uri", server.uri}, {"state", state_of(server, log)}};
  if (server.info) {
    object["identity"] = identity_json(server.info->identity);
    object["membership"] = server.info->membership;
    object["replicas"] = server.info->replicas;
    object["start_lsn"] = server.info->start_lsn;
    object["tail_lsn"] = server.info->tail_lsn;
    object["next_index"] = server.info->next_index;
    object["sealed"] = server.info->sealed;
    object["exclusive"] = server.info->exclusive;
  } else {
    object["error"] = why_text(server.info.error());
  }
  return object;
}

void print_status(const log::ReplicatedLogStatus& log, const LogCommandOptions& options) {
  if (options.session.json) {
    nlohmann::ordered_json servers = nlohmann::ordered_json::array();
    for (const log::ReplicaStatus& server : log.servers)
      servers.push_back(server_json(server, log));
    return print_json({{"log", options.name},
                       {"identity", identity_json(log.identity)},
                       {"membership", log.membership},
                       {"replicas", log.replicas},
                       {"agreed", log.agreed},
                       {"servers", std::move(servers)}});
  }
  if (log.membership != 0) {
    print_text(fmt::format("membership {}{}: {}\n", log.membership,
                           log.agreed ? "" : ", not confirmed by all of its members",
                           joined(log.replicas)));
  }
  TextTable table(3);
  table.row({"server", "state", "identity", "membership", "next index", "start lsn", "tail lsn"});
  for (const log::ReplicaStatus& server : log.servers) {
    if (!server.info) {
      table.row({printable(server.uri), state_of(server, log), "-", "-", "-", "-", "-"});
      continue;
    }
    const log::LogInfo& info = *server.info;
    const std::string identity = identity_text(info.identity);
    table.row({printable(server.uri), state_of(server, log), identity.empty() ? "-" : identity,
               std::to_string(info.membership), std::to_string(info.next_index),
               std::to_string(info.start_lsn), std::to_string(info.tail_lsn)});
  }
  print_text(table.text());
}

}  // namespace

log::ReplicatedLogOptions replicated_options(const LogCommandOptions& options) {
  log::ReplicatedLogOptions how;
  how.client = log_client_options(options.session);
  how.producer.takeover = options.steal ? log::Takeover::kSteal : log::Takeover::kIfFree;
  return how;
}

std::string advice(const Error& error, const LogCommandOptions& options) {
  switch (error.code) {
    case ErrorCode::kDisconnected:
    case ErrorCode::kTimeout:
    case ErrorCode::kCommitUnknown:
      return fmt::format(
          "; bring that server back, or go on without it: pmstore log drop-member {} LOST "
          "--replica OTHERS",
          printable(options.name));
    case ErrorCode::kBusy: return "; --steal takes the log over";
    default: return "";
  }
}

// ---- the log as a whole ----

base::Task<int> create_replicas(base::Executor& executor, const LogCommandOptions& options) {
  const std::string what = what_of("create", options);
  const auto how = replicated_options(options);
  const Status made = co_await ReplicatedLog::create(executor, options.name, options.log_options(),
                                                     options.replicas, how);
  if (!made) co_return fail(kProgram, what, made.error());
  print_membership(options, 1, options.replicas);
  co_return kDone;
}

base::Task<int> stat_replicas(base::Executor& executor, const LogCommandOptions& options) {
  const auto at = co_await log::open_current_replica(executor, options.name, options.replicas,
                                                     log_client_options(options.session));
  if (!at) co_return fail_replicas(what_of("stat", options), options, at.error());
  print_log(at->info, options.session.json);
  co_return kDone;
}

base::Task<int> trim_replicas(base::Executor& executor, const LogCommandOptions& options) {
  const log::TrimPlace until{options.through_lsn, options.below_index};
  const auto start = co_await ReplicatedLog::trim(executor, options.name, options.replicas, until,
                                                  log_client_options(options.session));
  if (!start) co_return fail_replicas(what_of("trim", options), options, start.error());
  if (options.session.json) {
    print_json({{"log", options.name}, {"start_lsn", *start}});
  } else {
    print_text(fmt::format("the oldest entry is now at lsn {}\n", *start));
  }
  co_return kDone;
}

base::Task<int> seal_replicas(base::Executor& executor, const LogCommandOptions& options) {
  const auto how = replicated_options(options);
  const Status sealed = co_await ReplicatedLog::seal(executor, options.name, options.replicas, how);
  if (!sealed) co_return fail_replicas(what_of("seal", options), options, sealed.error());
  if (options.session.json) print_json({{"log", options.name}, {"sealed", true}});
  co_return kDone;
}

base::Task<int> delete_replicas(base::Executor& executor, const LogCommandOptions& options) {
  const Status erased = co_await ReplicatedLog::erase(executor, options.name, options.replicas,
                                                      log_client_options(options.session));
  if (!erased) co_return fail(kProgram, what_of("delete", options), erased.error());
  if (options.session.json) print_json({{"log", options.name}, {"deleted", true}});
  co_return kDone;
}

// ---- its members ----

base::Task<int> print_members(base::Executor& executor, const LogCommandOptions& options) {
  const std::string what = what_of("members", options);
  const auto log = co_await ReplicatedLog::status(executor, options.name, options.servers(),
                                                  log_client_options(options.session));
  // Servers with different logs: what they have tells which one is meant.
  const bool unclear = log.why_not && log.why_not->code == ErrorCode::kConflict;
  if (log.membership == 0 && !unclear) co_return fail_replicas(what, options, *log.why_not);
  print_status(log, options);
  if (log.agreed) co_return kDone;
  if (!log.why_not) {
    co_return fail(kProgram, what,
                   "a change of the members was interrupted; the next append finishes it");
  }
  co_return fail_replicas(what, options, *log.why_not);
}

base::Task<int> add_members(base::Executor& executor, const LogCommandOptions& options) {
  const std::string what = what_of("add-member", options);
  const auto how = replicated_options(options);
  auto log = co_await ReplicatedLog::open(executor, options.name, options.servers(), how);
  if (!log) co_return fail_replicas(what, options, log.error());
  Status done;
  for (const std::string& uri : options.members) {
    done = co_await (*log)->add(uri, options.replace);
    if (!done) break;
  }
  const uint64_t number = (*log)->membership();
  const std::vector<std::string> replicas = (*log)->replicas();
  const Status closed = co_await (*log)->close();
  if (!done && done.code() == ErrorCode::kAlreadyExists) {
    co_return fail(
        kProgram, what,
        done.error().message + "; --replace deletes what a dropped member still has of this log");
  }
  if (!done) co_return fail(kProgram, what, done.error());
  if (!closed) co_return fail_replicas(what, options, closed.error());
  print_membership(options, number, replicas);
  co_return kDone;
}

base::Task<int> drop_members(base::Executor& executor, const LogCommandOptions& options) {
  const std::string what = what_of("drop-member", options);
  auto how = replicated_options(options);
  how.drop = options.members;
  how.dropped_are_gone = options.gone;
  bool only_if_gone = false;
  auto log =
      co_await ReplicatedLog::open(executor, options.name, options.servers(), how, &only_if_gone);
  if (!log) {
    co_return only_if_gone ? fail(kProgram, what, log.error().message + " (--gone)")
                           : fail_replicas(what, options, log.error());
  }
  const uint64_t number = (*log)->membership();
  const std::vector<std::string> replicas = (*log)->replicas();
  const Status closed = co_await (*log)->close();
  if (!closed) co_return fail_replicas(what, options, closed.error());
  print_membership(options, number, replicas);
  co_return kDone;
}

}  // namespace pmstore::tools
