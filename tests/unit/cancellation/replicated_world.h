// ReplicatedWorld: three servers of logs and one log that two or three of them have; a producer and
// a reader of it whose operations are destroyed in their middle; and what must hold afterwards.
//
// Invariant between two operations: no server has a log, a session or a producer. Everything is on
// one executor in virtual time.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "log/log_host.h"
#include "log/replicated_log.h"
#include "model/page_bytes.h"
#include "tests/unit/cancellation/attempts.h"
#include "tests/unit/cancellation/cutter.h"

namespace pmstore::cancellation {

// What is there when the operation begins.
enum class ReplicatedParts {
  kNothing,
  kClosed,  // the log
  kOpen,    // and its producer
  kFull,    // likewise, and the log takes no more
  kReader,  // the log, and a reader of a replica that has just been dropped
};

// What an operation may change.
enum class ReplicatedEffect {
  kNone,
  kCreates,
  kAppends,
  kTrims,
  kAdds,
  kDrops,
  kCloses,
  kSeals,
  kErases
};

class ReplicatedWorld {
 public:
  explicit ReplicatedWorld(persist::Domain domain);
  ~ReplicatedWorld();

  using Operation = base::Task<void> (*)(ReplicatedWorld&);
  struct Case {
    const char* name;
    Operation operation;
    ReplicatedParts parts = ReplicatedParts::kClosed;
    ReplicatedEffect effect = ReplicatedEffect::kNone;
  };
  void destroy_everywhere(const Case& tested, Weather weather, Aftermath aftermath);

  // ---- for operations ----
  static constexpr const char* kLog = "log";
  static constexpr size_t kServers = 3;
  std::unique_ptr<log::ReplicatedLog> log;
  std::optional<log::CurrentReplica> at;
  std::unique_ptr<log::LogReader> reader;  // of `at`
  base::Executor& executor() { return executor_; }
  std::vector<std::string> uris(size_t count, size_t first = 0) const;
  static log::ReplicatedLogOptions options();
  log::LogOptions shape() const;
  Attempt& attempt(std::vector<std::string> payloads) {
    return attempts_.add(std::move(payloads), false);
  }
  void appended(Attempt& attempt, const Result<log::Appended>& result);
  template <typename T>
  void expect(const Result<T>& result) {
    if (result) return;
    failed_ = true;
    expect_failure(result.error());
  }
  base::Task<Result<log::Appended>> append(Attempt& what);

 private:
  struct Server {
    model::PageBytes region;
    std::unique_ptr<persist::Pool> pool;
    std::unique_ptr<log::LogHost> host;
  };
  base::Task<void> start(size_t number);
  bool prepare();
  bool prepare_dropped();
  bool fill();
  void lose_a_server();
  bool destroy_at(uint64_t point, uint64_t breaks_at);
  void audit(uint64_t point, bool done);
  void use_log(bool destroyed);
  void use_reader();
  void repeat(bool destroyed);
  void take_over(bool steal);
  void expect_fenced();
  void add_again();
  void append_and_close();
  void expect_equal();
  void erase_log();
  void expect_nothing_left();
  void drop_client();
  void expect_failure(const Error& error);
  template <typename T>
  T run(base::Task<T> task) {
    return executor_.run(std::move(task));
  }
  // Within the time that no operation takes; the error says so.
  template <typename T>
  Result<T> in_time(const char* what, base::Task<Result<T>> task);

  const persist::Domain domain_;
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  Cutter cutter_{executor_};
  std::array<Server, kServers> servers_;
  std::unique_ptr<log::ReplicatedLog> other_;
  std::optional<base::Task<Result<log::Appended>>> behind_;
  Attempts attempts_;
  Attempt* behind_attempt_ = nullptr;
  const Case* case_ = nullptr;
  Weather weather_ = Weather::kCalm;
  Aftermath aftermath_ = Aftermath::kUse;
  size_t members_ = 2;
  bool failed_ = false;  // the operation
};

}  // namespace pmstore::cancellation
