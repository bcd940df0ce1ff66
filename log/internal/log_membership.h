// Which servers are the replicas of a log: what each of them says, and what follows from that.
//
// A membership is a number and a list of URIs. It is agreed upon when every member of its list has
// recorded it; then the coordinator tells each member so. A membership that some members have not
// recorded yet is pending: the next producer that opens the log finishes it.
//
// Servers hold the same log when they report the same identity. A log of an earlier version has no
// identity: there, servers hold the same log when their member lists have a server in common.
// Threads: one executor's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "log/log_client.h"
#include "log/log_types.h"

namespace pmstore::log::internal {

struct AskedServer {
  std::string uri;
  std::unique_ptr<LogClient> client;  // empty: no connection could be made
  Result<LogInfo> info;
  bool named = false;  // by the caller, not by another server
};

struct Membership {
  uint64_t number = 0;
  std::vector<std::string> replicas;
  bool pending = false;
  bool agreed = false;  // a member that was asked says that all have recorded it
  uint64_t identity = 0;
  bool operator==(const Membership&) const = default;
  size_t place_of(const std::string& uri) const;  // replicas.size(): none
};

// Asks these servers at the same time, then the servers that their answers name, without `except`.
// Each call has the time-outs of `options`. Two kinds of servers are not asked, and are in the
// result with an error: a `local:` path that a server of another kind names, and every server after
// the 64th.
base::Task<std::vector<AskedServer>> ask_servers(base::Executor& executor, const std::string& name,
                                                 std::vector<std::string> servers,
                                                 const std::vector<std::string>& except,
                                                 const LogClientOptions& options);

// Several logs may share this name. Chooses the log for which some member list still has a quorum;
// Conflict if none or several qualify, or if no server that the caller has named holds that log.
//
// Gives the newest membership of that log that can still be agreed upon without asking `except`.
// Errors: the error of a member that must be asked and does not answer; NotFound; Conflict when no
// membership can be agreed upon, or when two memberships have the highest number, no server knows
// that either was agreed upon, and only servers in `except` could tell.
Result<Membership> decide_membership(const std::vector<AskedServer>& asked,
                                     const std::vector<std::string>& except);

// The membership with the highest number that any server reports for that log, agreed upon or not.
// NotFound; Conflict as above.
Result<Membership> newest_membership(const std::vector<AskedServer>& asked);

// `before` without `dropped`. NotFound: one is no member; InvalidArgument: no member would stay.
Result<Membership> without(const Membership& before, const std::vector<std::string>& dropped);

// May `after` follow `before` even if the dropped members are still running? Conflict when too few
// members stay, or when no server knows that `before` was agreed upon: then a dropped member may
// still have the membership before it, and continue under another decision that follows that one.
Status check_drop(const Membership& before, const Membership& after);

// Has this server the log with this identity and these members?
bool is_of(const LogInfo& info, const Membership& membership);

// Two names of one pool.
Error same_pool(const std::string& one, const std::string& other);

// With the server's name in front.
Error at_server(const std::string& uri, const Error& error);

}  // namespace pmstore::log::internal
