#include "tests/compare/store_load.h"

#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/random.h"
#include "log/log_client.h"
#include "pmstore/client.h"

namespace pmstore::compare {
namespace {

constexpr std::string_view kName = "many_programs";  // of the table, and of the log
// Many programs that start together on few cores wait for one another.
constexpr uint64_t kPatienceNs = 60'000'000'000;

template <typename T>
T must(const std::string& what, Result<T> result) {
  if (!result) fail(what, result.error().to_string());
  return std::move(*result);
}

struct Session {
  std::unique_ptr<Client> store;  // of puts and gets
  std::unique_ptr<log::LogClient> logs;
  TableId table{};
  uint64_t log = 0;
};

class StoreLoad {
 public:
  StoreLoad(const LoadOptions& options, uint32_t thread, StartGate& gate, Tally& tally)
      : options_(options),
        thread_(thread),
        gate_(gate),
        tally_(tally),
        uri_(must(options.address, fabric::parse_uri(options.address))),
        executor_(clock_),
        ended_(executor_),
        opened_(executor_) {}

  void run() { executor_.run(whole()); }

 private:
  Task<Session> connect() {
    Session session;
    if (options_.operation == Operation::kAppend) {
      log::LogClientOptions patient;
      patient.call_timeout_ns = patient.connect_timeout_ns = kPatienceNs;
      auto logs = co_await log::LogClient::connect(executor_, uri_, patient);
      session.logs = must("cannot connect", std::move(logs));
      log::LogOptions made{.bytes = 4u << 20, .when_full = log::FullPolicy::kTrimOldest};
      auto log = co_await session.logs->create(kName, made);
      if (!log && log.code() == ErrorCode::kAlreadyExists) {
        log = co_await session.logs->open(kName);
      }
      session.log = must("the log", std::move(log)).id;
    } else {
      ClientOptions patient;
      patient.call_timeout_ns = patient.connect_timeout_ns = kPatienceNs;
      auto store = co_await Client::connect(executor_, uri_, patient);
      session.store = must("cannot connect", std::move(store));
      session.table = must("the table", co_await session.store->open_table(kName, true));
    }
    co_return session;
  }

  Task<void> whole() {
    for (uint32_t i = 0; i < options_.connections_of(thread_); ++i) {
      sessions_.push_back(co_await connect());
      // A client that has written once is what idles elsewhere.
      if (options_.operation == Operation::kIdle) {
        co_await one(sessions_.back(), Operation::kPut, 0);
      }
      for (uint64_t key = 0; options_.warm && key < options_.keys; ++key) {
        co_await one(sessions_.back(), Operation::kGet, key);
      }
    }
    tally_ = Tally();
    // A thousand programs that look again each millisecond would leave a new one no processor.
    gate_.arrive([this] { executor_.post_remote([this] { opened_.notify_all(); }); });
    while (!gate_.is_open()) co_await opened_.wait();
    if (options_.operation == Operation::kFill) {
      for (uint64_t key = 0; key < options_.keys; ++key) {
        co_await one(sessions_[0], Operation::kPut, key);
      }
    } else if (options_.operation == Operation::kIdle) {
      co_await executor_.sleep_for(static_cast<uint64_t>(options_.seconds * 1e9));
    } else {
      co_await work_all();
    }
    gate_.finish();
    for (Session& session : sessions_) {
      if (session.store) co_await session.store->close();
    }
    sessions_.clear();
  }

  Task<void> work_all() {
    for (Session& session : sessions_) {
      for (uint32_t i = 0; i < options_.coroutines; ++i) {
        ++working_;
        executor_.spawn(work(session, working_));
      }
    }
    while (working_ > 0) co_await ended_.wait();
  }

  Task<void> work(Session& session, uint64_t seed) {
    // Programs that run together do not write the same keys in the same order.
    const auto program = static_cast<uint64_t>(getpid());
    Random random(base::mix64(base::mix64(program) ^ (uint64_t{thread_} << 32 | seed)));
    uint64_t start_ns = gate_.start_ns();
    for (uint64_t done = 0; !is_over(options_, gate_, done, start_ns); ++done) {
      if (options_.silence_ms != 0) {
        co_await executor_.sleep_for(options_.silence_ms * 1'000'000);
        start_ns = monotonic_ns();
      }
      const bool ok = co_await one(session, options_.operation, random.below(options_.keys), done);
      const uint64_t end_ns = monotonic_ns();
      if (ok) tally_.latency_ns.record(end_ns - start_ns);
      start_ns = end_ns;
    }
    --working_;
    ended_.notify_all();
  }

  // False: another transaction came first.
  Task<bool> one(Session& session, Operation operation, uint64_t key, uint64_t number = 0) {
    std::array<char, kKeyBytes> name;
    write_key(name.data(), key);
    const std::string_view key_text(name.data(), name.size());
    if (operation == Operation::kGet) {
      auto got = co_await session.store->get(session.table, key_text);
      if (!got && got.code() == ErrorCode::kNotFound) {
        fail("the store", "the key is absent; run --op fill first");
      }
      co_return settled(got);
    }
    std::string value(options_.bytes, 'v');
    std::memcpy(value.data(), &number, std::min(sizeof(number), value.size()));
    if (operation == Operation::kAppend) {
      const auto payload = std::as_bytes(std::span(value));
      const auto appended = co_await session.logs->append(session.log, payload);
      co_return settled(appended);
    }
    const Status put = co_await session.store->put(session.table, key_text, value);
    co_return settled(put);
  }

  template <typename R>
  bool settled(const R& result) {
    if (result) [[likely]]
      return true;
    if (result.code() != ErrorCode::kConflict) fail("the store", result.error().to_string());
    ++tally_.conflicts;
    return false;
  }

  const LoadOptions& options_;
  const uint32_t thread_;
  StartGate& gate_;
  Tally& tally_;
  const fabric::Uri uri_;
  base::RealClock clock_;
  Executor executor_;
  base::WaitList ended_;
  base::WaitList opened_;
  uint64_t working_ = 0;
  std::vector<Session> sessions_;
};

}  // namespace

void run_store_load(const LoadOptions& options, uint32_t thread, StartGate& gate, Tally& tally) {
  StoreLoad(options, thread, gate, tally).run();
}

}  // namespace pmstore::compare
