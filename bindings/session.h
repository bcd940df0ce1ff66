// What the handles of bindings/pmstore_log.h are.
//
// Threads: any; `mutex` guards everything else. Calls run the executor on their caller's thread
// until they are done; between calls the keeper does, now and then, so that leases are kept and
// tails published. Handing the executor from thread to thread is right because each call ends its
// own stores with its own drain.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "bindings/pmstore_log.h"
#include "log/log_client.h"
#include "log/log_producer.h"
#include "log/log_reader.h"
#include "log/replicated_log.h"

struct pmstore_log_session {
  pmstore_log_session() : executor(clock) {}
  ~pmstore_log_session();
  void start_keeper();
  // The keeper looks soon: an exclusive producer's tail has to be published. Holding `mutex`.
  void publish_soon();

  // The executor runs once in many calls that have not run it. Holding `mutex`.
  void take_turn();

  std::mutex mutex;
  pmstore::base::RealClock clock;
  pmstore::Executor executor;
  std::unique_ptr<pmstore::log::LogClient> client;  // empty: a session with replicated logs
  std::vector<std::string> servers;                 // of that
  pmstore::log::LogClientOptions options;

 private:
  void keep();
  std::condition_variable wake_;
  bool stop_ = false;
  bool publish_soon_ = false;
  unsigned calls_without_turn_ = 0;
  std::thread keeper_;
};

struct pmstore_log {
  pmstore_log_session& session;
  // What is known of the log. Its client is empty, but for the replica of a replicated log that is
  // read, from the first use on.
  pmstore::log::CurrentReplica at;
  std::unique_ptr<pmstore::log::LogProducer> producer;      // with PMSTORE_LOG_EXCLUSIVE
  std::unique_ptr<pmstore::log::ReplicatedLog> replicated;  // likewise
  std::unique_ptr<pmstore::log::LogReader> reader;          // goes before its client
};
