// What the handles of bindings/pmstore_log.h are.
//
// Threads: any; only the thread that holds the session uses the rest. Calls hold it on their own
// thread and run the executor until they are done. When no call has come for a while, the keeper
// holds it: it blocks in the executor, which wakes up for what has to be done (leases, deadlines,
// what peers send), until a call takes the session. Handing the executor from thread to thread is
// right because each call ends its own stores with its own drain.
#pragma once

#include <atomic>
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

  // Holds the session as long as the lock lives: waits for other calls, takes it from the keeper.
  std::unique_lock<std::mutex> hold();

  // ---- for those who hold the session ----
  // The keeper looks soon: an exclusive producer's tail has to be published.
  void publish_soon();
  // The executor runs once in many calls that have not run it.
  void take_turn();

  pmstore::base::RealClock clock;
  pmstore::Executor executor;
  std::unique_ptr<pmstore::log::LogClient> client;  // empty: a session with replicated logs
  std::vector<std::string> servers;                 // of that
  pmstore::log::LogClientOptions options;

 private:
  void keep();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<unsigned> wanted_{0};          // calls that wait for the keeper, or for another call
  pmstore::base::WaitList asked_{executor};  // the keeper, while it holds the session
  uint64_t calls_ = 0;
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
