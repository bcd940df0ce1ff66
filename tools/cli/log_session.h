// One subcommand of log: connect, do it. And what its parts share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "log/log_client.h"
#include "log/log_reader.h"
#include "log/replicated_log.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/log_framing.h"
#include "tools/cli/session_options.h"

namespace pmstore::tools {

struct LogCommandOptions {
  SessionOptions session;
  // Servers that have the log's replicas (create: all of them); empty: it is at session.uri only.
  std::vector<std::string> replicas;
  std::string name;
  // create, and append --create
  bool create = false;
  uint64_t bytes = 2u << 20;
  std::string when_full = "back-pressure";
  // append
  std::string payload;
  bool has_payload = false;
  bool exclusive = false;
  bool steal = false;
  uint32_t batch = 64;
  // append, read, follow
  std::string framing = "lines";
  // read, follow
  uint64_t from_lsn = 0;
  uint64_t from_index = 0;
  uint64_t limit = 0;  // 0: no limit
  bool from_tail = false;
  bool follows = false;
  std::optional<double> wait_seconds;  // none: until interrupted
  // trim
  uint64_t through_lsn = 0;
  uint64_t below_index = 0;
  // delete
  bool this_replica = false;
  // add-member, drop-member
  std::vector<std::string> members;
  bool replace = false;
  bool gone = false;
  double ride_through_seconds = 0;

  bool replicated() const { return !replicas.empty(); }
  uint64_t ride_through_ns() const { return static_cast<uint64_t>(ride_through_seconds * 1e9); }
  // Those to ask about a replicated log.
  std::vector<std::string> servers() const {
    return replicated() ? replicas : std::vector<std::string>{session.uri};
  }
  Framing parsed_framing() const { return *parse_framing(framing); }
  log::LogOptions log_options() const {
    return {.bytes = bytes, .when_full = *log::parse_full_policy(when_full)};
  }
};

inline log::LogClientOptions log_client_options(const SessionOptions& session) {
  const ClientOptions common = session.client_options();
  log::LogClientOptions options;
  options.call_timeout_ns = common.call_timeout_ns;
  options.connect_timeout_ns = common.connect_timeout_ns;
  options.assume_domain = common.assume_domain;
  return options;
}

// Connects and runs `body(LogClient&, const LogCommandOptions&) -> Task<int>`, whose int is the
// exit status.
template <typename Body>
int with_log_client(const LogCommandOptions& options, std::string_view what, Body body) {
  base::RealClock clock;
  base::Executor executor(clock);
  log::LogClientOptions with = log_client_options(options.session);
  // Who follows looks between short tries whether it was interrupted.
  constexpr uint64_t kFollowPatienceNs = 100'000'000;
  with.reconnect_timeout_ns = options.follows
                                  ? std::min(options.ride_through_ns(), kFollowPatienceNs)
                                  : options.ride_through_ns();
  auto client = executor.run(log::LogClient::connect(executor, options.session.parsed_uri(), with));
  if (!client) return fail(kProgram, what, client.error());
  return executor.run(body(**client, options));
}

// Runs `body(Executor&, const LogCommandOptions&) -> Task<int>`.
template <typename Body>
int with_executor(const LogCommandOptions& options, Body body) {
  base::RealClock clock;
  base::Executor executor(clock);
  return executor.run(body(executor, options));
}

std::string what_of(std::string_view verb, const LogCommandOptions& options);
// Opens the log at this server. Unsupported for a replicated log, which --uri does not reach.
base::Task<Result<log::LogInfo>> open_single(log::LogClient& client,
                                             const LogCommandOptions& options);
void print_log(const log::LogInfo& info, bool json);

nlohmann::ordered_json log_json(const log::LogInfo& info);

// log_append.cc
base::Task<int> append_to_log(log::LogClient& client, const LogCommandOptions& options);
base::Task<int> append_to_replicas(base::Executor& executor, const LogCommandOptions& options);
// log_read.cc
base::Task<int> read_log(log::LogClient& client, const LogCommandOptions& options);
base::Task<int> read_replicas(base::Executor& executor, const LogCommandOptions& options);
base::Task<int> follow_log(log::LogClient& client, const LogCommandOptions& options);
base::Task<int> follow_replicas(base::Executor& executor, const LogCommandOptions& options);
// log_replicas.cc
log::ReplicatedLogOptions replicated_options(const LogCommandOptions& options);
// A remedy for an error of a replicated log, to be printed behind the error; empty if the error
// contains one.
std::string advice(const Error& error, const LogCommandOptions& options);
base::Task<int> create_replicas(base::Executor& executor, const LogCommandOptions& options);
base::Task<int> stat_replicas(base::Executor& executor, const LogCommandOptions& options);
base::Task<int> trim_replicas(base::Executor& executor, const LogCommandOptions& options);
base::Task<int> seal_replicas(base::Executor& executor, const LogCommandOptions& options);
base::Task<int> delete_replicas(base::Executor& executor, const LogCommandOptions& options);
base::Task<int> print_members(base::Executor& executor, const LogCommandOptions& options);
base::Task<int> add_members(base::Executor& executor, const LogCommandOptions& options);
base::Task<int> drop_members(base::Executor& executor, const LogCommandOptions& options);

}  // namespace pmstore::tools
