// What a client feels while others make logs, rings and space for files, in a pool whose free space
// had other data before. Its file has all its blocks, or is sparse and has those of that data.
//
// The server has a thread of its own. On the main thread a client overwrites one record all the
// time, and others make a log, write a file, or commit one-sided for the first time. Turns of the
// server's executor are measured by the processor time of its thread, and the longest time between
// two answers by the clock. Ends with status 1 when the log or file cannot be made.
#include <fcntl.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fs/file_area.h"
#include "fs/file_system.h"
#include "fs/files_server.h"
#include "log/log_client.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/compare/measured_store.h"

using namespace pmstore;
using namespace pmstore::compare;

namespace {

constexpr uint64_t kLongTurnNs = 1'000'000;

struct Options {
  std::string pool = "/dev/shm/making_space.pool";
  uint64_t bytes = uint64_t{4} << 30;
  std::string uri = "local:making-space";
  std::string locks = "cpu";
  std::string domain;  // "": the detected one
  std::vector<uint64_t> logs = {uint64_t{256} << 20, uint64_t{1} << 30};
  uint64_t file_bytes = uint64_t{256} << 20;
  unsigned clients = 64;
  bool sparse = false;
};

// As after logs, files and records that have gone; in a sparse file, before their blocks have gone.
void use_free_space(persist::Pool& pool) {
  std::vector<persist::Extent> taken;
  for (uint64_t most = pool.largest_free_extent(); most > 0; most = pool.largest_free_extent()) {
    const auto fill = [](const persist::Extent&) { return Status(); };
    taken.push_back(must(pool.allocate_unzeroed(persist::ExtentKind::kRecords, most, fill)));
    std::memset(pool.memory().at(taken.back().offset), 0x5a, most);
  }
  for (const persist::Extent& each : taken) must(pool.free_extent(each));
}

std::unique_ptr<persist::Pool> make_pool(const Options& options) {
  persist::PoolOpenOptions with;
  if (!options.domain.empty()) with.assume_domain = *persist::parse_domain(options.domain);
  with.sparse = options.sparse;
  std::filesystem::remove(options.pool);
  FormatOptions format;
  format.rings = std::max(options.clients, 1u);
  format.file_bytes = uint64_t{4} << 20;
  auto pool = must(persist::Pool::create(options.pool, options.bytes, with, false));
  use_free_space(*pool);
  must(fs::format_pool(*pool, format));
  return pool;
}

// A server in a thread of its own, which counts the turns of its executor.
class ServerThread {
 public:
  explicit ServerThread(const Options& options) : options_(options) {
    thread_ = std::thread([this] { serve(); });
    serving_.wait(false);
  }
  ~ServerThread() {
    over_.store(true);
    thread_.join();
    std::filesystem::remove(options_.pool);
  }
  const fabric::Uri& uri() const { return uri_; }
  struct Turns {
    uint64_t long_ones;
    uint64_t longest_ns;
  };
  Turns take_turns() { return {long_ones_.exchange(0), longest_ns_.exchange(0)}; }

 private:
  void serve() {
    const auto pool = make_pool(options_);
    base::RealClock clock;
    Executor executor(clock);
    ServerOptions how;
    how.discipline = options_.locks == "cpu" ? LockDiscipline::kCpu : LockDiscipline::kRnic;
    const auto server = must(executor.run(Server::start(executor, *pool, how)));
    const auto files = must(executor.run(fs::FilesServer::start(executor, *pool, *server, {})));
    uri_ = must(executor.run(server->listen(must(fabric::parse_uri(options_.uri)))));
    serving_.store(true);
    serving_.notify_one();
    executor.run(count_turns(executor));
    executor.run(files->stop());
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
      if (took > kLongTurnNs) long_ones_.fetch_add(1, std::memory_order_relaxed);
      if (took > longest_ns_.load(std::memory_order_relaxed)) longest_ns_.store(took);
    }
  }

  const Options& options_;
  std::thread thread_;
  std::atomic<bool> serving_{false};
  std::atomic<bool> over_{false};
  fabric::Uri uri_;
  std::atomic<uint64_t> long_ones_{0};
  std::atomic<uint64_t> longest_ns_{0};
};

class Load {
 public:
  explicit Load(const Options& options) : options_(options), server_(options) {
    client_ = connect();
    table_ = must(executor_.run(client_->open_table("t", true)));
  }
  ~Load() {
    executor_.run(client_->close());
    client_.reset();
  }

  void run() {
    phase("nothing", quiet());
    for (const uint64_t bytes : options_.logs) {
      phase(fmt::format("log of {} MiB", bytes >> 20), make_log(bytes));
    }
    if (options_.locks == "cpu") {
      phase(fmt::format("file of {} MiB", options_.file_bytes >> 20), write_file());
    }
    if (options_.clients > 0) phase(fmt::format("{} clients", options_.clients), come());
  }

 private:
  std::unique_ptr<Client> connect() {
    ClientOptions how;
    how.call_timeout_ns = how.connect_timeout_ns = 60'000'000'000;
    return must(executor_.run(Client::connect(executor_, server_.uri(), how)));
  }

  void phase(const std::string& name, Task<void> work) {
    over_ = false;
    puts_ = longest_ns_ = 0;
    server_.take_turns();
    Task<void> putting = put();
    putting.start();
    const uint64_t begin = executor_.now_ns();
    executor_.run(std::move(work));
    const uint64_t took_ns = executor_.now_ns() - begin;
    over_ = true;
    executor_.run(ended(putting));
    const ServerThread::Turns turns = server_.take_turns();
    fmt::print(R"({{"phase": "{}", "locks": "{}", "ms": {:.1f}, "puts": {}, )"
               R"("longest_put_ms": {:.2f}, "longest_turn_us": {:.0f}, "turns_over_1_ms": {}}})"
               "\n",
               name, options_.locks, static_cast<double>(took_ns) / 1e6, puts_,
               static_cast<double>(longest_ns_) / 1e6, static_cast<double>(turns.longest_ns) / 1e3,
               turns.long_ones);
    std::fflush(stdout);
  }
  Task<void> ended(const Task<void>& task) {
    while (!task.done()) co_await executor_.yield();
  }
  Task<void> put() {
    while (!over_) {
      const uint64_t begin = executor_.now_ns();
      must(co_await client_->put(table_, "key", "value"));
      longest_ns_ = std::max(longest_ns_, executor_.now_ns() - begin);
      ++puts_;
      co_await executor_.yield();
    }
  }

  Task<void> quiet() { co_await executor_.sleep_for(300'000'000); }
  Task<void> make_log(uint64_t bytes) {
    log::LogClientOptions how;
    how.call_timeout_ns = 60'000'000'000;
    const auto logs = must(co_await log::LogClient::connect(executor_, server_.uri(), how));
    log::LogOptions shape;
    shape.bytes = bytes;
    must(co_await logs->create(fmt::format("log{}", bytes), shape));
  }
  Task<void> write_file() {
    fs::FileSystemOptions how;
    how.call_timeout_ns = 60'000'000'000;
    const auto files = must(co_await fs::FileSystem::connect(executor_, server_.uri(), how));
    auto file = co_await files->open("/file", O_CREAT | O_RDWR, 0600);
    if (!file) fail("the file cannot be made");
    const std::vector<std::byte> bytes(uint64_t{1} << 20, std::byte{7});
    for (uint64_t at = 0; at < options_.file_bytes; at += bytes.size()) {
      const auto written = co_await (*file)->pwrite(bytes, at);
      if (!written || *written != bytes.size()) fail("the file cannot be written");
    }
    const auto closed = co_await (*file)->close();
    if (!closed) fail("the file cannot be closed");
    co_await files->close();
  }
  Task<void> come() {
    ClientOptions how;
    how.call_timeout_ns = how.connect_timeout_ns = 60'000'000'000;
    std::vector<std::unique_ptr<Client>> all;
    for (unsigned i = 0; i < options_.clients; ++i) {
      all.push_back(must(co_await Client::connect(executor_, server_.uri(), how)));
      const auto done = co_await all.back()->put(table_, fmt::format("key{}", i), "value");
      // Of one ring too few, the last client is told.
      if (!done && done.code() != ErrorCode::kBackPressure) fail(done.error().to_string());
    }
    for (auto& each : all) co_await each->close();
  }

  const Options& options_;
  base::RealClock clock_;
  Executor executor_{clock_};
  ServerThread server_;
  std::unique_ptr<Client> client_;
  TableId table_{};
  uint64_t puts_ = 0;
  uint64_t longest_ns_ = 0;
  bool over_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "what a client feels while others make logs, rings and space for files\n"
      "example: making_space --bytes 4294967296 --domain adr"};
  Options options;
  app.add_option("--pool", options.pool, "the pool's file, which is made anew");
  app.add_option("--bytes", options.bytes, "of the pool");
  app.add_option("--uri", options.uri, "where it is served")->capture_default_str();
  app.add_option("--locks", options.locks)->check(CLI::IsMember({"cpu", "rnic"}));
  app.add_option("--domain", options.domain, "persistence domain to assume: none, adr, eadr")
      ->check(CLI::IsMember({"none", "adr", "eadr"}));
  app.add_option("--logs", options.logs, "bytes of each log");
  app.add_option("--file-bytes", options.file_bytes, "of the file; under cpu only");
  app.add_option("--clients", options.clients, "that write for the first time");
  app.add_flag("--sparse", options.sparse, "the pool's file has blocks only where it has data");
  CLI11_PARSE(app, argc, argv);
  Load(options).run();
  return 0;
}
