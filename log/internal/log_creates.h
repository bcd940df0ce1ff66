// LogCreates: makes the logs that sessions ask for, one after another, each in many turns of the
// executor: its space is zeroed in parts, and other sessions are answered in between.
//
// A session that ends before its log exists gets none, and what was zeroed for it stays free.
// Invariants: a request that waits, or is served, counts as active in its session; at most one log
// is being made, so two requests of one name never make two logs. Threads: one executor's.
// Lifetimes: the store outlives it, and so do the sessions' service and its host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/rpc.h"
#include "log/log_store.h"
#include "service/session.h"

namespace pmstore::log::internal {

class LogCreates {
 public:
  struct Request {
    std::string name;
    LogOptions options;
    ReplicaPlace replica;
  };
  // Tells the session of its log, or of the error.
  using Answer = std::function<void(service::Session&, fabric::RpcCall&, const Result<LogInfo>&)>;

  LogCreates(base::Executor& executor, LogStore& store, Answer answer);

  // `session` has not ended (CHECK).
  void ask(service::Session& session, fabric::RpcCall call, Request request);

 private:
  struct Asked {
    std::shared_ptr<service::Session> session;
    fabric::RpcCall call;
    Request request;
  };
  // Runs until it is destroyed with this object.
  base::Task<void> serve();
  base::Task<Result<LogInfo>> make(const service::Session& session, const Request& request);
  base::Task<Status> prepare(const service::Session& session, const Request& request);

  base::Executor& executor_;
  LogStore& store_;
  const Answer answer_;
  std::deque<Asked> asked_;
  base::WaitList wake_;
  base::Task<void> serving_;  // last: destroyed first
};

}  // namespace pmstore::log::internal
