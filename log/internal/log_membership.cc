#include "log/internal/log_membership.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "fabric/uri.h"

namespace pmstore::log::internal {
namespace {

bool contains(const std::vector<std::string>& uris, const std::string& uri) {
  return std::find(uris.begin(), uris.end(), uri) != uris.end();
}

const AskedServer* find(const std::vector<AskedServer>& asked, const std::string& uri) {
  for (const AskedServer& each : asked) {
    if (each.uri == uri) return &each;
  }
  return nullptr;
}

// Those who are asked at the same time.
struct Round {
  explicit Round(base::Executor& executor) : done(executor) {}
  size_t left = 0;
  base::WaitList done;
};

base::Task<Result<LogInfo>> ask(base::Executor& executor, const std::string& name,
                                const LogClientOptions& options, AskedServer& server) {
  PMSTORE_CO_TRY(const fabric::Uri uri, fabric::parse_uri(server.uri));
  auto client = co_await LogClient::connect(executor, uri, options);
  if (!client) co_return std::move(client.error());
  server.client = std::move(*client);
  co_return co_await server.client->open(name);
}

base::Task<void> ask_one(base::Executor& executor, const std::string& name,
                         const LogClientOptions& options, AskedServer& server, Round& round) {
  server.info = co_await ask(executor, name, options, server);
  if (--round.left == 0) round.done.notify_all();
}

// What the servers that have answered say, the highest number first. `nobody`: why none has.
std::vector<Membership> claims(const std::vector<AskedServer>& asked, Error& nobody) {
  std::vector<Membership> claimed;
  for (const AskedServer& server : asked) {
    if (!server.info) {
      nobody = at_server(server.uri, server.info.error());
    } else if (server.info->replicas.empty()) {
      nobody = at_server(server.uri, make_error(ErrorCode::kUnsupported,
                                                "the log is not replicated: use it directly"));
    } else {
      claimed.push_back({.number = server.info->membership,
                         .replicas = server.info->replicas,
                         .identity = server.info->identity});
    }
  }
  std::stable_sort(claimed.begin(), claimed.end(),
                   [](const Membership& a, const Membership& b) { return a.number > b.number; });
  return claimed;
}

bool enough(const Membership& before, const std::vector<std::string>& stay) {
  const size_t twice = 2 * stay.size();
  return twice > before.replicas.size() ||
         (twice == before.replicas.size() && stay.front() == before.replicas.front());
}

// Two of those that were asked, the first one that has it in front.
Error different_logs(const std::vector<AskedServer>& asked) {
  const AskedServer* first = nullptr;
  for (const AskedServer& server : asked) {
    if (!server.info) continue;
    if (first == nullptr) first = &server;
    if (server.info->identity == first->info->identity) continue;
    return make_error(
        ErrorCode::kConflict,
        fmt::format("{} and {} have different logs of that name: leave out the one that is not "
                    "meant, or delete the log there; where it is still a replica, drop it",
                    first->uri, server.uri));
  }
  return make_error(ErrorCode::kConflict, "no server has the log that is meant");
}

// Keeps what is claimed of the log that counts.
Status choose_log(const std::vector<AskedServer>& asked, std::vector<Membership>& claimed) {
  const Membership* alive = nullptr;
  for (const Membership& each : claimed) {
    std::vector<std::string> left;
    for (const std::string& uri : each.replicas) {
      const AskedServer* const member = find(asked, uri);
      const bool other =
          member != nullptr && member->info && member->info->identity != each.identity;
      if (!other) left.push_back(uri);
    }
    if (left.empty() || !enough(each, left)) continue;
    if (alive != nullptr && alive->identity != each.identity) return different_logs(asked);
    alive = &each;
  }
  if (alive == nullptr) return different_logs(asked);
  const uint64_t identity = alive->identity;
  const bool named = std::any_of(asked.begin(), asked.end(), [&](const AskedServer& server) {
    return server.named && server.info && server.info->identity == identity;
  });
  if (!named) return different_logs(asked);
  std::erase_if(claimed, [&](const Membership& each) { return each.identity != identity; });
  return {};
}

// What has another identity was left behind by choose_log(), unless it is not replicated.
Status check_related(const std::vector<AskedServer>& asked, const Membership& chosen) {
  for (const AskedServer& server : asked) {
    if (!server.info) continue;
    const bool replicated = !server.info->replicas.empty();
    if (replicated && (server.info->identity != chosen.identity || is_of(*server.info, chosen))) {
      continue;
    }
    return at_server(
        server.uri,
        make_error(ErrorCode::kConflict,
                   fmt::format("it has another log of that name{}: leave this server out",
                               replicated ? "" : ", which is not replicated")));
  }
  return {};
}

Error has_another(const std::string& uri) {
  return at_server(
      uri, make_error(ErrorCode::kConflict, "it has another log of that name: drop this replica"));
}

// Each was recorded by some members of the membership before, and those that say which of the two
// went on are left out.
Error two_decisions(const Membership& one, const Membership& other) {
  return make_error(
      ErrorCode::kConflict,
      fmt::format(
          "membership {} may be {} or {}, and nobody who was asked knows that all of either "
          "have recorded it: bring those back that are left out, or leave out those of "
          "one that never went on",
          one.number, fmt::join(one.replicas, " "), fmt::join(other.replicas, " ")));
}

// What a server says is not trusted: it may neither make a client open files of its own machine,
// nor keep it asking for ever.
std::optional<Error> not_to_be_asked(const std::string& namer, const std::string& named,
                                     size_t known) {
  constexpr std::string_view kLocal = "local:";
  constexpr size_t kMostServers = 16 * kMaxReplicas;
  if (named.starts_with(kLocal) && !namer.starts_with(kLocal)) {
    return make_error(ErrorCode::kInvalidArgument,
                      namer + " names it as a replica, but it is a path of this machine");
  }
  if (known < kMostServers) return {};
  return make_error(ErrorCode::kProtocol,
                    fmt::format("more than {} servers are named as replicas", kMostServers));
}

}  // namespace

size_t Membership::place_of(const std::string& uri) const {
  return static_cast<size_t>(std::find(replicas.begin(), replicas.end(), uri) - replicas.begin());
}

Error at_server(const std::string& uri, const Error& error) {
  return make_error(error.code, uri + ": " + error.message);
}

bool is_of(const LogInfo& info, const Membership& membership) {
  if (info.identity != membership.identity || info.replicas.empty()) return false;
  return info.identity != 0 ||
         std::any_of(info.replicas.begin(), info.replicas.end(),
                     [&](const std::string& uri) { return contains(membership.replicas, uri); });
}

Error same_pool(const std::string& one, const std::string& other) {
  return make_error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} and {} are the same pool: replicas lie on different ones", one, other));
}

base::Task<std::vector<AskedServer>> ask_servers(base::Executor& executor, const std::string& name,
                                                 std::vector<std::string> servers,
                                                 const std::vector<std::string>& except,
                                                 const LogClientOptions& options) {
  std::vector<AskedServer> asked;
  asked.reserve(servers.size());
  for (size_t first = 0; !servers.empty(); first = asked.size()) {
    for (std::string& uri : servers) {
      if (find(asked, uri) != nullptr || contains(except, uri)) continue;
      asked.push_back({std::move(uri), nullptr, make_error(ErrorCode::kDisconnected), first == 0});
    }
    Round round(executor);
    round.left = asked.size() - first;
    std::vector<base::Task<void>> tasks;
    for (size_t i = first; i < asked.size(); ++i) {
      tasks.push_back(ask_one(executor, name, options, asked[i], round));
    }
    for (base::Task<void>& task : tasks) task.start();
    while (round.left > 0) co_await round.done.wait();
    servers.clear();
    const size_t end = asked.size();
    for (size_t i = first; i < end; ++i) {
      if (!asked[i].info) continue;
      const std::string namer = asked[i].uri;
      for (const std::string& named : asked[i].info->replicas) {
        if (const auto why = not_to_be_asked(namer, named, asked.size() + servers.size())) {
          if (find(asked, named) == nullptr) asked.push_back({named, nullptr, *why});
        } else {
          servers.push_back(named);
        }
      }
    }
  }
  co_return asked;
}

Error nobody_named() {
  return make_error(ErrorCode::kNotFound,
                    "no server was named that stays: name one that has the log");
}

Result<Membership> newest_membership(const std::vector<AskedServer>& asked) {
  Error nobody = nobody_named();
  std::vector<Membership> claimed = claims(asked, nobody);
  if (claimed.empty()) return nobody;
  PMSTORE_TRY_STATUS(choose_log(asked, claimed));
  PMSTORE_TRY_STATUS(check_related(asked, claimed.front()));
  return std::move(claimed.front());
}

Result<Membership> decide_membership(const std::vector<AskedServer>& asked,
                                     const std::vector<std::string>& except) {
  Error nobody = nobody_named();
  std::vector<Membership> claimed = claims(asked, nobody);
  if (claimed.empty()) return nobody;
  PMSTORE_TRY_STATUS(choose_log(asked, claimed));
  std::optional<Membership> decided;
  Error none =
      make_error(ErrorCode::kConflict,
                 "these servers were dropped from the log's replicas: name one that was not");
  for (Membership& candidate : claimed) {
    if (decided && candidate.number < decided->number) break;
    bool possible = true;
    for (const std::string& uri : candidate.replicas) {
      if (contains(except, uri)) continue;
      const AskedServer* const member = find(asked, uri);
      if (!member->info) return at_server(uri, member->info.error());
      if (member->info->identity != candidate.identity) {
        none = has_another(uri);
        possible = false;
        break;
      }
      const Membership its{member->info->membership, member->info->replicas};
      if (its.number == candidate.number ? its.replicas != candidate.replicas
                                         : its.number > candidate.number) {
        possible = false;
      }
      candidate.pending = candidate.pending || its.number < candidate.number;
      candidate.agreed =
          candidate.agreed || (its.number == candidate.number && member->info->agreed);
    }
    if (!possible || candidate == decided) continue;
    if (decided && decided->agreed == candidate.agreed) return two_decisions(*decided, candidate);
    // Who has acknowledged anything by it, has been told first that it was agreed upon.
    if (!decided || candidate.agreed) decided = std::move(candidate);
  }
  if (decided) {
    PMSTORE_TRY_STATUS(check_related(asked, *decided));
    return std::move(*decided);
  }
  return none;
}

Result<Membership> without(const Membership& before, const std::vector<std::string>& dropped) {
  Membership after{.number = before.number + 1, .replicas = {}, .identity = before.identity};
  for (const std::string& uri : dropped) {
    if (contains(before.replicas, uri)) continue;
    return make_error(ErrorCode::kNotFound,
                      fmt::format("{} is no replica of membership {}", uri, before.number));
  }
  for (const std::string& uri : before.replicas) {
    if (!contains(dropped, uri)) after.replicas.push_back(uri);
  }
  if (after.replicas.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a log keeps at least one replica: delete it to be rid of it");
  }
  return after;
}

Status check_drop(const Membership& before, const Membership& after) {
  if (!enough(before, after.replicas)) {
    return make_error(
        ErrorCode::kConflict,
        fmt::format("without these {} replicas, those of membership {} could go on by themselves: "
                    "bring one back, or confirm that they are gone for good",
                    before.replicas.size() - after.replicas.size(), before.number));
  }
  if (before.agreed) return {};
  return make_error(
      ErrorCode::kConflict,
      fmt::format("membership {} was interrupted before all replicas were known to have recorded "
                  "it: open the log with all of them, which finishes it (pmstore log append), or "
                  "confirm that those to drop are gone for good",
                  before.number));
}

}  // namespace pmstore::log::internal
