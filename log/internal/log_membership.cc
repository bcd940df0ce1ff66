#include "log/internal/log_membership.h"

#include <fmt/format.h>

#include <algorithm>
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

base::Task<AskedServer> ask(base::Executor& executor, const std::string& name,
                            const std::string& uri, const LogClientOptions& options) {
  AskedServer server{uri, nullptr, make_error(ErrorCode::kDisconnected)};
  auto parsed = fabric::parse_uri(uri);
  if (!parsed) {
    server.info = parsed.error();
    co_return server;
  }
  auto client = co_await LogClient::connect(executor, *parsed, options);
  if (!client) {
    server.info = client.error();
    co_return server;
  }
  server.client = std::move(*client);
  server.info = co_await server.client->open(name);
  co_return server;
}

}  // namespace

size_t Membership::place_of(const std::string& uri) const {
  return static_cast<size_t>(std::find(replicas.begin(), replicas.end(), uri) - replicas.begin());
}

Error at_server(const std::string& uri, const Error& error) {
  return make_error(error.code, uri + ": " + error.message);
}

base::Task<std::vector<AskedServer>> ask_servers(base::Executor& executor, const std::string& name,
                                                 std::vector<std::string> servers,
                                                 const std::vector<std::string>& except,
                                                 const LogClientOptions& options) {
  std::vector<AskedServer> asked;
  for (size_t i = 0; i < servers.size(); ++i) {
    const std::string uri = servers[i];
    if (find(asked, uri) != nullptr || contains(except, uri)) continue;
    asked.push_back(co_await ask(executor, name, uri, options));
    if (!asked.back().info) continue;
    for (const std::string& other : asked.back().info->replicas) servers.push_back(other);
  }
  co_return asked;
}

Result<Membership> decide_membership(const std::vector<AskedServer>& asked,
                                     const std::vector<std::string>& except) {
  std::vector<Membership> claimed;
  Error nobody = make_error(ErrorCode::kNotFound, "no server was named: name one that has the log");
  for (const AskedServer& server : asked) {
    if (!server.info) {
      nobody = at_server(server.uri, server.info.error());
    } else if (server.info->replicas.empty()) {
      nobody = at_server(server.uri, make_error(ErrorCode::kUnsupported,
                                                "the log is not replicated: use it directly"));
    } else {
      claimed.push_back({server.info->membership, server.info->replicas});
    }
  }
  if (claimed.empty()) return nobody;
  std::stable_sort(claimed.begin(), claimed.end(),
                   [](const Membership& a, const Membership& b) { return a.number > b.number; });
  for (Membership& candidate : claimed) {
    bool possible = true;
    for (const std::string& uri : candidate.replicas) {
      if (contains(except, uri)) continue;
      const AskedServer* const member = find(asked, uri);
      if (!member->info) return at_server(uri, member->info.error());
      const Membership its{member->info->membership, member->info->replicas};
      if (its.number == candidate.number ? its.replicas != candidate.replicas
                                         : its.number > candidate.number) {
        possible = false;
      }
      candidate.pending = candidate.pending || its.number < candidate.number;
    }
    if (possible) return candidate;
  }
  return make_error(ErrorCode::kConflict,
                    "these servers were dropped from the log's replicas: name one that was not");
}

Result<Membership> without(const Membership& before, const std::vector<std::string>& dropped,
                           bool gone) {
  Membership after{before.number + 1, {}};
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
  const size_t twice = 2 * after.replicas.size();
  const bool enough =
      twice > before.replicas.size() ||
      (twice == before.replicas.size() && after.replicas.front() == before.replicas.front());
  if (gone || (enough && !before.pending)) return after;
  return make_error(
      ErrorCode::kConflict,
      fmt::format("without these {} replicas, those of membership {} could go on by themselves{}: "
                  "bring one back, or confirm that they are gone for good",
                  dropped.size(), before.number,
                  before.pending ? ", which not all of them have recorded" : ""));
}

}  // namespace pmstore::log::internal
