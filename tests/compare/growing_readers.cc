// What readers feel, and are told, while a store grows until its pool is full, shrinks to a tenth,
// and grows again.
//
// The server has a thread of its own. On the main thread one client inserts and erases, and
// another one READs records by itself, without the server: of the keys that are there it must
// never be told NotFound, and of those that are not it must never get a value. Each byte of a value
// is compared. At the end every key is looked up. Turns of the server's executor are measured by
// the processor time of its thread. Ends with status 1 at the first wrong answer, when a quarter of
// the last reads needed the server, and when the second growth does not find the room of the first.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/histogram.h"
#include "base/random.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/compare/measured_store.h"

using namespace pmstore;
using namespace pmstore::compare;

namespace {

struct Options {
  std::string pool = "/dev/shm/growing_readers.pool";
  uint64_t bytes = uint64_t{64} << 20;
  bool is_device() const { return pool.starts_with("/dev/dax"); }
  std::string uri = "local:growing-readers";
  std::string locks = "cpu";
  std::string domain;  // "": the detected one
  uint64_t records = UINT64_MAX;
  size_t value_bytes = 64;
  unsigned batch = 8;
  unsigned writers = 2;
  unsigned readers = 4;
};

constexpr uint64_t kLongTurnNs = 1'000'000;
constexpr uint64_t kAskAgainNs = 1'100'000'000;
constexpr std::string_view kTable = "t";

std::string key_of(uint64_t i) { return fmt::format("key{:012}", i); }
// No two keys have the same one.
std::string value_of(uint64_t i, size_t bytes) {
  std::string value = fmt::format("{:016x}", i * 0x9e3779b97f4a7c15);
  while (value.size() < bytes) value.append(value, 0, bytes - value.size());
  value.resize(bytes);
  return value;
}

std::unique_ptr<persist::Pool> make_pool(const Options& options) {
  persist::PoolOpenOptions with;
  if (!options.domain.empty()) with.assume_domain = *persist::parse_domain(options.domain);
  if (!options.is_device()) std::filesystem::remove(options.pool);
  FormatOptions format;
  format.log_bytes = 0;
  return must(
      persist::Pool::create(options.pool, options.bytes, with, options.is_device(),
                            [&](persist::Pool& made) { return format_store(made, format); }));
}

// A server in a thread of its own, which counts the turns of its executor.
class ServerThread {
 public:
  explicit ServerThread(const Options& options) : options_(options) {
    thread_ = std::thread([this] { serve(); });
    serving_.wait(false);
  }
  // The clients have gone. A pool in a file goes, too.
  ~ServerThread() {
    over_.store(true);
    thread_.join();
    if (!options_.is_device()) std::filesystem::remove(options_.pool);
  }
  const fabric::Uri& uri() const { return uri_; }

  struct Turns {
    uint64_t count = 0;
    uint64_t long_ones = 0;
    uint64_t longest_ns = 0;
  };
  // Those since the last call, but for one that is under way.
  Turns take_turns() {
    return {count_.exchange(0), long_ones_.exchange(0), longest_ns_.exchange(0)};
  }

 private:
  void serve() {
    const auto pool = make_pool(options_);
    base::RealClock clock;
    Executor executor(clock);
    ServerOptions how;
    how.discipline = options_.locks == "cpu" ? LockDiscipline::kCpu : LockDiscipline::kRnic;
    how.lease_ms = 60'000;  // an emulator is slow
    const auto server = must(executor.run(Server::start(executor, *pool, how)));
    uri_ = must(executor.run(server->listen(must(fabric::parse_uri(options_.uri)))));
    serving_.store(true);
    serving_.notify_one();
    executor.run(count_turns(executor));
    must(executor.run(server->stop()));
  }
  // All else on the executor runs between two of its steps.
  Task<void> count_turns(Executor& executor) {
    uint64_t before = thread_cpu_ns();
    while (!over_.load(std::memory_order_relaxed)) {
      co_await executor.yield();
      const uint64_t now = thread_cpu_ns();
      const uint64_t took = now - before;
      before = now;
      count_.fetch_add(1, std::memory_order_relaxed);
      if (took > kLongTurnNs) long_ones_.fetch_add(1, std::memory_order_relaxed);
      if (took > longest_ns_.load(std::memory_order_relaxed)) longest_ns_.store(took);
    }
  }

  const Options& options_;
  std::thread thread_;
  std::atomic<bool> serving_{false};
  std::atomic<bool> over_{false};
  fabric::Uri uri_;
  std::atomic<uint64_t> count_{0};
  std::atomic<uint64_t> long_ones_{0};
  std::atomic<uint64_t> longest_ns_{0};
};

class Load {
 public:
  explicit Load(const Options& options) : options_(options), server_(options) {
    ClientOptions how;
    how.call_timeout_ns = how.connect_timeout_ns = 60'000'000'000;
    writer_ = must(executor_.run(Client::connect(executor_, server_.uri(), how)));
    table_ = must(executor_.run(writer_->open_table(kTable, true)));
    how.misses = MissPath::kOneSided;
    reader_ = must(executor_.run(Client::connect(executor_, server_.uri(), how)));
    if (!reader_->session().one_sided_reads) fail("READs are not possible at this address");
    server_.take_turns();
  }
  ~Load() {
    executor_.run(reader_->close());
    executor_.run(writer_->close());
    reader_.reset();
    writer_.reset();
  }

  void run() {
    phase("grow", 0, &Load::insert);
    const uint64_t most = states_.size();
    if (most < 100) fail(fmt::format("only {} records had room", most));
    phase("shrink", most / 10, &Load::erase);
    phase("grow again", most / 10, &Load::insert);
    // Erased and inserted again: what is left over of the first growth may be a frame or two.
    if (present_ < most / 5 * 4) {
      fail(fmt::format("after {} records only {} had room", most, present_));
    }
    executor_.run(look_at_all());
  }

 private:
  // A key's states follow one another in this order while the store grows, and in the opposite one
  // while it shrinks: never both in one phase.
  enum class State : uint8_t { kAbsent, kInChange, kPresent };

  void phase(const char* name, uint64_t first, Task<void> (Load::*work)()) {
    next_ = first;
    over_ = full_ = false;
    writes_ = reads_ = Histogram();
    const auto reader = reader_->counters();
    const uint64_t begin = executor_.now_ns();
    std::vector<Task<void>> writing;
    for (unsigned i = 0; i < options_.writers; ++i) writing.push_back((this->*work)());
    std::vector<Task<void>> reading;
    for (unsigned i = 0; i < options_.readers; ++i) reading.push_back(read());
    for (auto& task : writing) task.start();
    for (auto& task : reading) task.start();
    executor_.run(ended(writing));
    over_ = true;
    executor_.run(ended(reading));
    report(name, executor_.now_ns() - begin, reader_->counters() - reader);
  }
  Task<void> ended(const std::vector<Task<void>>& tasks) {
    for (const auto& task : tasks) {
      while (!task.done()) co_await executor_.yield();
    }
  }
  void report(const char* name, uint64_t took_ns, const fabric::Counters& reader) {
    const auto us = [](uint64_t ns) { return static_cast<double>(ns) / 1e3; };
    const auto latency = [&](const Histogram& of) {
      return fmt::format(
          R"({{"count": {}, "p50_us": {:.0f}, "p99_us": {:.0f}, "p999_us": {:.0f}}})", of.count(),
          us(of.quantile(0.5)), us(of.quantile(0.99)), us(of.quantile(0.999)));
    };
    const auto stat = nlohmann::json::parse(must(executor_.run(writer_->server_stat())));
    const ServerThread::Turns turns = server_.take_turns();
    fmt::print(R"({{"phase": "{}", "locks": "{}", "value_bytes": {}, "present": {}, )"
               R"("full": {}, "seconds": {:.1f}, "batches": {}, "reads": {}, )"
               R"("messages_of_reads": {}, "turns": {}, "longest_turn_us": {:.0f}, )"
               R"("turns_over_1_ms": {}, "records_bytes": {}, "frames": {}, "index": {}}})"
               "\n",
               name, options_.locks, options_.value_bytes, present_, full_, us(took_ns) / 1e6,
               latency(writes_), latency(reads_), reader.server_messages, turns.count,
               us(turns.longest_ns), turns.long_ones, stat.at("records_bytes").dump(),
               stat.at("frames").dump(), stat.at("index").dump());
    std::fflush(stdout);
    if (reads_.count() == 0) fail("no read had its turn");
    if (stat.at("live_records").get<uint64_t>() != present_) fail("the server counts otherwise");
  }

  // Batches of keys that follow one another, until the pool is full.
  Task<void> insert() {
    while (!full_ && next_ < options_.records) {
      const uint64_t first = next_;
      next_ += std::min<uint64_t>(options_.batch, options_.records - next_);
      const uint64_t end = next_;
      if (states_.size() < end) states_.resize(end, State::kAbsent);
      std::fill(states_.begin() + first, states_.begin() + end, State::kInChange);
      Transaction batch = writer_->begin();
      for (uint64_t i = first; i < end; ++i) {
        batch.insert(table_, key_of(i), value_of(i, options_.value_bytes));
      }
      const bool done = co_await committed(std::move(batch));
      std::fill(states_.begin() + first, states_.begin() + end,
                done ? State::kPresent : State::kAbsent);
      if (done) present_ += end - first;
    }
  }
  Task<void> erase() {
    while (next_ < states_.size()) {
      const uint64_t first = next_;
      next_ = std::min<uint64_t>(next_ + options_.batch, states_.size());
      const uint64_t end = next_;
      Transaction batch = writer_->begin();
      uint64_t erased = 0;
      for (uint64_t i = first; i < end; ++i) {
        if (states_[i] != State::kPresent) continue;
        states_[i] = State::kInChange;
        batch.erase(table_, key_of(i));
        ++erased;
      }
      if (erased == 0) continue;
      const bool done = co_await committed(std::move(batch));
      if (!done) fail("an erase was told that the pool is full");
      for (uint64_t i = first; i < end; ++i) states_[i] = State::kAbsent;
      present_ -= erased;
    }
  }
  // False: the pool is full.
  Task<bool> committed(Transaction batch) {
    const uint64_t begin = executor_.now_ns();
    const Status done = co_await batch.commit();
    if (!done && done.code() != ErrorCode::kFull) fail(done.error().to_string());
    if (!done) full_ = true;
    if (done) writes_.record(executor_.now_ns() - begin);
    co_return done.has_value();
  }

  Task<void> read() {
    while (!over_) {
      if (states_.empty()) {
        co_await executor_.yield();
        continue;
      }
      const uint64_t begin = executor_.now_ns();
      const bool answered = co_await look_at(random_.below(states_.size()));
      if (answered) reads_.record(executor_.now_ns() - begin);
      co_await executor_.yield();  // where a READ is a copy, it waits for nothing
    }
  }
  // False: another transaction has kept the record locked.
  Task<bool> look_at(uint64_t i) {
    const std::string key = key_of(i);
    const State before = states_[i];
    const auto got = co_await reader_->get(table_, key);
    const State after = states_[i];
    if (!got && got.code() == ErrorCode::kConflict) co_return false;
    if (!got && got.code() != ErrorCode::kNotFound) fail(got.error().to_string());
    if (!got && before == State::kPresent && after == State::kPresent) {
      fail(fmt::format("NotFound of {}, which is there", key));
    }
    if (got && before == State::kAbsent && after == State::kAbsent) {
      fail(fmt::format("a value of {}, which is not there", key));
    }
    if (got && *got != value_of(i, options_.value_bytes)) {
      fail(fmt::format("a wrong value of {}", key));
    }
    co_return true;
  }
  // A reader alone: nearly all keys are found without the server, which is asked for the regions of
  // frames first, at most once a second for each.
  Task<void> look_at_all() {
    co_await executor_.sleep_for(kAskAgainNs);
    const auto before = reader_->counters();
    for (uint64_t i = 0; i < states_.size(); ++i) {
      const bool answered = co_await look_at(i);
      if (!answered) fail(fmt::format("{} stays locked", key_of(i)));
    }
    const uint64_t messages = (reader_->counters() - before).server_messages;
    fmt::print(R"({{"phase": "look at all", "locks": "{}", "reads": {}, "messages_of_reads": {}}})"
               "\n",
               options_.locks, states_.size(), messages);
    if (messages * 4 > states_.size()) {
      fail(fmt::format("{} reads took {} messages", states_.size(), messages));
    }
  }

  const Options& options_;
  base::RealClock clock_;
  Executor executor_{clock_};
  ServerThread server_;
  std::unique_ptr<Client> writer_;
  std::unique_ptr<Client> reader_;
  TableId table_{};
  std::vector<State> states_;
  uint64_t present_ = 0;
  uint64_t next_ = 0;
  bool full_ = false;
  bool over_ = false;
  Random random_{1};
  Histogram writes_;
  Histogram reads_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "what one-sided readers feel and are told while a store grows until its pool is full, "
      "shrinks, and grows again\n"
      "example: growing_readers --pool /dev/dax0.0 --bytes 0 --uri verbs://10.77.0.1:7000"};
  Options options;
  app.add_option("--pool", options.pool, "the pool's file or DAX device, which is made anew");
  app.add_option("--bytes", options.bytes, "of the pool; 0: all of a device");
  app.add_option("--uri", options.uri, "where it is served")->capture_default_str();
  app.add_option("--locks", options.locks)->check(CLI::IsMember({"cpu", "rnic"}));
  app.add_option("--domain", options.domain, "persistence domain to assume: none, adr, eadr")
      ->check(CLI::IsMember({"none", "adr", "eadr"}));
  app.add_option("--records", options.records, "so many at most; default: until the pool is full");
  app.add_option("--value-bytes", options.value_bytes, "of each record");
  app.add_option("--batch", options.batch, "records of a transaction")->check(CLI::PositiveNumber);
  app.add_option("--writers", options.writers, "transactions under way")
      ->check(CLI::PositiveNumber);
  app.add_option("--readers", options.readers, "reads under way")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  Load(options).run();
  return 0;
}
