// The inside of run_log_load(): its threads, their producers, the laps that they run together.
//
// Members are written by the first thread while the others wait at meet(), unless they are atomic,
// behind `mutex_`, or of a producer, which is its thread's; the first one's session is used by the
// first thread only.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "log/embedded_log.h"
#include "log/log_client.h"
#include "log/log_producer.h"
#include "log/replicated_log.h"
#include "tools/bench/bench_control.h"
#include "tools/bench/log_load.h"
#include "tools/bench/model_service.h"

namespace pmstore::tools {

using base::Task;
using log::LogClient;

// One stream of entries: a coroutine of a producer.
struct Worker {
  uint64_t stream = 0;
  uint64_t number = 0;  // of its next entry
  uint64_t appends_left = UINT64_MAX;
  uint64_t last_index = 0;
  std::vector<std::byte> bytes;  // of a batch
  std::vector<std::span<const std::byte>> payloads;
  // Entries that follow each other, in the log and in the stream.
  struct Acked {
    uint64_t first_index;
    uint64_t first_number;
    uint64_t entries;
  };
  std::vector<Acked> acked;  // in this lap
  void note_acked(uint64_t first_index, uint64_t entries) {
    if (!acked.empty() && acked.back().first_index + acked.back().entries == first_index &&
        acked.back().first_number + acked.back().entries == number) {
      acked.back().entries += entries;
    } else {
      acked.push_back({first_index, number, entries});
    }
  }
};

struct Producer {
  std::unique_ptr<log::LogClient> client;  // not of a replicated log's
  std::unique_ptr<log::LogProducer> exclusive;
  std::unique_ptr<log::ReplicatedLog> replicated;
  size_t log = 0;
  std::vector<Worker> workers;
  fabric::Counters counters() const {
    if (replicated) return replicated->counters();
    return exclusive ? exclusive->counters() : client->counters();
  }
};

// A session of the first thread's with one server that has the logs, for reading and trimming.
struct LogServer {
  std::string uri;
  std::unique_ptr<log::EmbeddedLog> embedded;  // of a local:PATH pool
  std::unique_ptr<log::LogClient> client;      // goes before it
};

struct LoadedLog {
  std::string name;
  uint64_t id = 0;          // when it is not replicated
  uint64_t next_index = 1;  // of the first entry that was not read yet
  uint64_t next_lsn = 0;    // where it is
};

class LogLoad {
 public:
  explicit LogLoad(const LogLoadOptions& options)
      : options_(options),
        payloads_(options.payload_bytes, options.seed),
        logs_(options.mode == LogMode::kShared ? 1 : options.producers),
        producers_(options.producers),
        histograms_(options.threads) {}
  Result<LogLoadResult> run();

 private:
  void real_thread(uint32_t thread);
  void model_thread();
  Task<void> member(Executor& executor, uint32_t thread);
  Task<void> member_of(Executor& executor, uint32_t thread, uint32_t& left, base::WaitList& ended);
  Task<Status> prepare(Executor& executor);
  Task<Status> connect(Executor& executor, uint32_t thread);
  Task<Result<std::unique_ptr<log::LogClient>>> client(Executor& executor, uint32_t number);
  Task<Status> connect_replicas(Executor& executor);
  Task<Status> connect_producer(Executor& executor, uint32_t number);
  Task<Status> make_logs(Executor& executor);
  Task<Status> delete_logs();
  Task<Status> delete_logs(LogClient& session);
  log::ReplicatedLogOptions replicated_options() const;
  std::vector<std::string> replica_uris() const;
  Task<Status> publish(Producer& producer);
  Task<Status> close(Producer& producer);
  // The producers of one thread, until this lap is over.
  Task<void> lap(Executor& executor, uint32_t thread);
  Task<void> work(Executor& executor, uint32_t thread, Producer& producer, Worker& worker,
                  uint32_t& left, base::WaitList& ended);
  Task<Result<log::Appended>> append(Producer& producer, Worker& worker);
  // A shared append in process.
  std::optional<Result<log::Appended>> append_at_once(Producer& producer, const Worker& worker);
  Task<Status> check();
  Task<Status> check(size_t log);
  // The acknowledged entries of this log since the last lap: index and tag.
  using Acknowledged = std::vector<std::pair<uint64_t, uint64_t>>;
  Result<Acknowledged> take_acknowledged(size_t log);
  // Reads one replica, or the one log there is, and trims it.
  Task<Result<uint64_t>> check_at(log::LogClient& session, const LoadedLog& log,
                                  const Acknowledged& acknowledged, uint64_t& next_index);
  bool lap_over(uint64_t now_ns) const {
    return control_.over(now_ns) || full_.load(std::memory_order_relaxed) || failed();
  }
  bool all_done(uint64_t now_ns) const;
  // Until all threads are here; false when the run has failed.
  Task<bool> meet(Executor& executor, uint32_t& meetings);
  void fail(Error error);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  void begin_lap(Executor& executor);
  void end_lap();
  void show_progress();
  void thread_ended();

  const LogLoadOptions& options_;
  const LogPayloads payloads_;
  std::vector<LoadedLog> logs_;
  std::vector<Producer> producers_;  // number p belongs to thread p % threads
  std::vector<Histogram> histograms_;
  std::unique_ptr<log::EmbeddedLog>
      embedded_;  // of a local:PATH pool, one thread, several producers
  std::optional<fabric::Uri> uri_;
  std::vector<LogServer> servers_;  // of replicated logs
  BenchControl control_;
  LogLoadResult result_;
  uint64_t lap_start_ns_ = 0;
  uint64_t measured_ns_ = 0;
  bool last_lap_ = false;
  std::atomic<bool> full_{false};
  std::atomic<bool> failed_{false};
  std::atomic<uint32_t> arrived_{0};
  std::atomic<uint64_t> appended_{0};
  std::atomic<uint64_t> laps_{0};
  std::mutex mutex_;
  std::condition_variable ended_condition_;
  uint32_t threads_ended_ = 0;
  uint32_t threads_to_end_ = 0;  // of the process
  uint64_t lap_end_ns_ = 0;
  std::optional<Error> error_;
  ModelService* model_ = nullptr;  // while model_thread() runs
};

}  // namespace pmstore::tools
