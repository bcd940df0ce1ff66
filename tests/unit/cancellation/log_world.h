// LogWorld: a server of logs; a client whose operations, and those of its producer and reader, are
// destroyed in their middle; another client that takes the log over and reads it; and what must
// hold afterwards.
//
// Invariant between two operations: the server has the log "beside" and no other one, and one
// session, the other client's. Everything is on one executor in virtual time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "log/log_client.h"
#include "log/log_host.h"
#include "log/log_producer.h"
#include "log/log_reader.h"
#include "model/page_bytes.h"
#include "tests/unit/cancellation/attempts.h"
#include "tests/unit/cancellation/cutter.h"

namespace pmstore::cancellation {

// What an operation may change.
enum class LogEffect {
  kNone,
  kAppends,  // through the producer, which is of no use when that is destroyed
  kTrims,    // entries at the start may be gone
  kAppendsAndTrims,
  kSeals,
  kErases,
  kCreates,  // the log kCreated
  kCloses,   // the producer
};

// What the client has when the operation begins.
enum class LogParts { kClient, kProducer, kReplica, kReader };

inline const std::string kBesideText = "beside";

class LogWorld {
 public:
  explicit LogWorld(persist::Domain domain);
  ~LogWorld();

  // The operation is run again and again, each time on a new log, with a new client, in new weather
  // of that kind, destroyed at each point, and then once to its end.
  using Operation = base::Task<void> (*)(LogWorld&);
  struct Case {
    const char* name;
    Operation operation;
    LogParts parts = LogParts::kClient;
    LogEffect effect = LogEffect::kNone;
  };
  void destroy_everywhere(const Case& tested, Weather weather, Aftermath aftermath);

  // ---- for operations ----
  static constexpr const char* kLog = "log";
  static constexpr const char* kCreated = "created";
  std::unique_ptr<log::LogClient> client;
  std::unique_ptr<log::LogProducer> producer;
  std::unique_ptr<log::LogReader> reader;
  uint64_t id = 0;  // of the log
  base::Executor& executor() { return executor_; }
  log::LogHost& host() { return *host_; }
  fabric::Uri new_uri() {
    return {fabric::Scheme::kLocal, "also" + std::to_string(++last_uri_), 0};
  }
  Weather weather() const { return weather_; }
  base::Task<Result<std::unique_ptr<log::LogClient>>> connect();  // as one that was never there
  log::LogProducerOptions producer_options() const;
  log::LogReaderOptions reader_options() const;
  log::ReplicaPlace place(uint64_t membership) const;
  Attempt& attempt(std::vector<std::string> payloads, bool all_or_none) {
    return attempts_.add(std::move(payloads), all_or_none);
  }
  // What became of it, of an operation: in calm and slow weather it succeeds.
  void appended(Attempt& attempt, const Result<log::Appended>& result);
  template <typename T>
  void expect(const Result<T>& result) {
    if (result) return;
    failed_ = true;
    expect_failure(result.error());
  }
  // Damages the second entry until the operation is over, where no server starts meanwhile.
  void damage();

 private:
  bool prepare();
  bool make_log();
  bool destroy_at(uint64_t point, uint64_t breaks_at);
  void audit(uint64_t point, bool done);
  void expect_failure(const Error& error);
  void expect_others_end();
  void use_client();
  void use_producer(bool destroyed);
  void use_reader();
  void expect_nothing_leaked();
  void take_over(log::Takeover how);
  void append_and_close();
  void expect_fenced();
  void expect_effect(bool done);
  void erase_logs();
  void expect_nothing_left();
  void drop_parts();
  void drop_client();
  base::Task<void> start_server();
  bool appends() const {
    return case_->effect == LogEffect::kAppends || case_->effect == LogEffect::kAppendsAndTrims;
  }
  bool trims() const {
    return case_->effect == LogEffect::kTrims || case_->effect == LogEffect::kAppendsAndTrims;
  }
  template <typename T>
  T run(base::Task<T> task) {
    return executor_.run(std::move(task));
  }
  base::Task<Result<log::Appended>> append(log::LogProducer& with, Attempt& what);

  const persist::Domain domain_;
  model::PageBytes region_;
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  Cutter cutter_{executor_};
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<log::LogHost> host_;
  fabric::Uri uri_;
  std::unique_ptr<log::LogClient> other_;
  std::unique_ptr<log::LogProducer> others_producer_;
  // Other operations of the same client, begun behind the one that is destroyed.
  std::optional<base::Task<Result<log::Appended>>> beside_;
  std::optional<base::Task<Result<log::Appended>>> behind_;
  Attempt* behind_attempt_ = nullptr;
  Attempts attempts_;
  const Case* case_ = nullptr;
  Weather weather_ = Weather::kCalm;
  Aftermath aftermath_ = Aftermath::kUse;
  bool failed_ = false;  // the operation
  std::byte* damaged_ = nullptr;
  uint64_t beside_id_ = 0;
  uint64_t beside_least_ = 1;  // next indexes that are possible
  uint64_t beside_most_ = 1;
  uint64_t last_client_ = 0;
  uint64_t last_uri_ = 0;
};

}  // namespace pmstore::cancellation
