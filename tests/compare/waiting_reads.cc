// What look-ups of requests that wait together cost the server's core.
//
// A server and --sessions clients, on two executors of one thread: a turn of the clients posts a
// get of a random key for each of their --coroutines, then turns of the server answer all of them.
// The processor time of the server's turns counts, and that of the clients' does not; so neither
// another program on the machine nor the speed of a client changes it much.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/random.h"
#include "pmstore/batch_writer.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/compare/measured_store.h"

using namespace pmstore;
using namespace pmstore::compare;

namespace {

struct Options {
  std::string pool = "/dev/shm/waiting_reads.pool";
  std::string uri = "shm://waiting-reads";
  uint64_t bytes = uint64_t{2} << 30;
  uint64_t records = 1'000'000;
  size_t value_bytes = 64;
  unsigned sessions = 16;
  unsigned coroutines = 1;
  double seconds = 1;
  unsigned turns = 5;
};

std::string key_of(uint64_t i) { return fmt::format("key{:013}", i); }

std::unique_ptr<persist::Pool> make_pool(const Options& options) {
  persist::PoolOpenOptions with;
  with.assume_domain = persist::Domain::kMemoryController;
  with.sparse = true;
  std::filesystem::remove(options.pool);
  FormatOptions format;
  format.log_bytes = 0;
  return must(
      persist::Pool::create(options.pool, options.bytes, with, false,
                            [&](persist::Pool& made) { return format_store(made, format); }));
}

class Load {
 public:
  explicit Load(const Options& options) : options_(options), pool_(make_pool(options)) {
    server_ = must(at_server_.run(Server::start(at_server_, *pool_, {})));
    uri_ = must(at_server_.run(server_->listen(must(fabric::parse_uri(options.uri)))));
    ClientOptions all_by_rpc;
    all_by_rpc.one_sided_reads = false;
    for (unsigned i = 0; i < options.sessions; ++i) {
      clients_.push_back(must(both(Client::connect(at_clients_, uri_, all_by_rpc))));
    }
    table_ = must(both(clients_[0]->open_table("t", true)));
    must(both(fill()));
  }
  ~Load() {
    for (auto& client : clients_) both(client->close());
    clients_.clear();
    must(at_server_.run(server_->stop()));
    server_.reset();
    pool_.reset();
    std::filesystem::remove(options_.pool);
  }

  void measure() {
    const auto before = stat();
    done_ = 0;
    server_ns_ = 0;
    over_ = false;
    std::vector<Task<void>> tasks;
    for (auto& client : clients_) {
      for (unsigned i = 0; i < options_.coroutines; ++i) {
        tasks.push_back(gets(*client, at_clients_.random().next()));
      }
    }
    for (auto& task : tasks) task.start();
    const uint64_t wanted_ns = static_cast<uint64_t>(options_.seconds * 1e9);
    while (server_ns_ < wanted_ns) turn();
    over_ = true;
    for (auto& task : tasks) {
      while (!task.done()) turn();
    }
    const double per_get = static_cast<double>(server_ns_) / static_cast<double>(done_);
    const auto after = stat();
    fmt::print(
        R"({{"sessions": {}, "coroutines": {}, "gets": {}, "server_ns_per_get": {:.0f}, )"
        R"("gets_per_s": {:.0f}, "counted_gets": {}, "expected": {}}})"
        "\n",
        options_.sessions, options_.coroutines, done_, per_get, 1e9 / per_get,
        after.at("gets").get<uint64_t>() - before.at("gets").get<uint64_t>(),
        after.value("gets_expected", uint64_t{0}) - before.value("gets_expected", uint64_t{0}));
    std::fflush(stdout);
  }

 private:
  nlohmann::json stat() { return nlohmann::json::parse(server_->stat_json()); }
  template <typename T>
  T both(Task<T> task) {
    task.start();
    while (!task.done()) {
      at_clients_.run_once();
      at_server_.run_once();
    }
    return task.take();
  }
  void turn() {
    while (at_clients_.run_once()) {
    }
    const uint64_t begin = thread_cpu_ns();
    while (at_server_.run_once()) {
    }
    server_ns_ += thread_cpu_ns() - begin;
  }
  Task<Status> fill() {
    BatchWriter writer(*clients_[0], table_);
    const std::string value(options_.value_bytes, 'v');
    for (uint64_t i = 0; i < options_.records; ++i) {
      PMSTORE_CO_TRY_STATUS(co_await writer.put(key_of(i), value));
    }
    co_return co_await writer.flush();
  }
  Task<void> gets(Client& client, uint64_t seed) {
    Random random(seed);
    while (!over_) {
      must(co_await client.get(table_, key_of(random.below(options_.records))));
      ++done_;
    }
  }

  const Options& options_;
  std::unique_ptr<persist::Pool> pool_;
  base::RealClock clock_;
  Executor at_server_{clock_};
  Executor at_clients_{clock_};
  std::unique_ptr<Server> server_;
  fabric::Uri uri_;
  std::vector<std::unique_ptr<Client>> clients_;
  TableId table_{};
  uint64_t done_ = 0;
  uint64_t server_ns_ = 0;
  bool over_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "what look-ups of requests that wait together cost the server's core\n"
      "example: waiting_reads --records 5000000 --sessions 16"};
  Options options;
  app.add_option("--pool", options.pool, "the pool's file, which is made anew");
  app.add_option("--uri", options.uri, "where it is served")->capture_default_str();
  app.add_option("--bytes", options.bytes, "of the pool");
  app.add_option("--records", options.records, "so many")->check(CLI::PositiveNumber);
  app.add_option("--value-bytes", options.value_bytes, "of each record");
  app.add_option("--sessions", options.sessions, "clients")->check(CLI::PositiveNumber);
  app.add_option("--coroutines", options.coroutines, "gets under way in each session")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "of the server's processor time in each turn");
  app.add_option("--turns", options.turns, "of each kind")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  Load load(options);
  for (unsigned i = 0; i < options.turns; ++i) load.measure();
  return 0;
}
