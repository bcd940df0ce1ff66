// Which servers are the replicas of a log: what each of them says, and what follows from that.
//
// A membership is a number and a list of URIs. It is agreed upon when every member of its list has
// recorded it; then they are told so, and each knows it. One that some have not recorded yet is
// pending: whoever has it finishes it.
//
// Servers are of one log when they say the same identity. Of logs of earlier versions, which have
// none, those are whose lists have somebody in common.
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
  std::unique_ptr<LogClient> client;  // empty: it could not be reached
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

// Asks these servers, and those that any of them names, but for `except`: all at the same time, and
// then those that were not known before. Each has the time-outs of `options`. Not asked, and so in
// the answer with an error: a `local:` path that a server of another kind names, and what comes
// after 64 servers.
base::Task<std::vector<AskedServer>> ask_servers(base::Executor& executor, const std::string& name,
                                                 std::vector<std::string> servers,
                                                 const std::vector<std::string>& except,
                                                 const LogClientOptions& options);

// Of several logs of that name the one counts of which so many are left, of some list, that they
// could go on without those who say that they have another. Conflict when more than one does, or
// none, or when nobody has it whom the caller has named.
//
// The newest membership of that log that can still be agreed upon, without asking `except`. The
// error of a member that must be asked and cannot; NotFound; Conflict: none can, it is not known
// which log is meant, or there are two of that number, which those in `except` could tell apart,
// and of neither anybody knows that it was agreed upon.
Result<Membership> decide_membership(const std::vector<AskedServer>& asked,
                                     const std::vector<std::string>& except);

// The one with the highest number that anybody says of that log, agreed upon or not. NotFound;
// Conflict as above.
Result<Membership> newest_membership(const std::vector<AskedServer>& asked);

// `before` without `dropped`. NotFound: one is no member; InvalidArgument: nobody would stay.
Result<Membership> without(const Membership& before, const std::vector<std::string>& dropped);

// May `after` follow from `before`, whether those that are dropped are gone for good or not?
// Conflict: too few stay, or nobody knows that `before` was agreed upon: one who is dropped may be
// of the membership before it, and go on by another decision that follows from that.
Status check_drop(const Membership& before, const Membership& after);

// Has this server the log with this identity and these members?
bool is_of(const LogInfo& info, const Membership& membership);

// Two names of one pool.
Error same_pool(const std::string& one, const std::string& other);

// With the server's name in front.
Error at_server(const std::string& uri, const Error& error);

}  // namespace pmstore::log::internal
