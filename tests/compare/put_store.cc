// What a durable put of one record costs, in the pool's process or through a fabric.
//
// With --uri, a server and a client on two executors of one thread take turns, so the processor
// time of a put is that of both; without, the client opens the pool. The keys are there before the
// measurement, and each put overwrites a random one with a value of the same size. The program
// builds with earlier revisions, too: their binaries in turn tell whether puts have become slower.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "persist/pool.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/compare/measured_store.h"

using namespace pmstore;
using namespace pmstore::compare;

namespace {

struct Options {
  std::string pool = "/dev/shm/put_store.pool";
  std::string domain = "adr";
  std::string uri;  // "": the client opens the pool
  uint64_t keys = 100'000;
  size_t value_bytes = 64;
  uint64_t operations = 200'000;  // of a turn
  unsigned turns = 5;
};

std::string key_of(uint64_t i) { return fmt::format("key{:013}", i); }

class Load {
 public:
  explicit Load(const Options& options) : options_(options) {
    persist::PoolOpenOptions open;
    open.assume_domain = *persist::parse_domain(options.domain);
    std::filesystem::remove(options.pool);
    const uint64_t bytes = (uint64_t{256} << 20) + options.keys * (options.value_bytes + 256) * 2;
    auto pool =
        must(persist::Pool::create(options.pool, bytes, open, false, [](persist::Pool& made) {
          return format_store(made, FormatOptions{});
        }));
    ClientOptions how;
    how.assume_domain = open.assume_domain;
    how.local_discipline = LockDiscipline::kCpu;
    fabric::Uri uri{fabric::Scheme::kLocal, options.pool, 0};
    if (options.uri.empty()) {
      pool.reset();
    } else {
      pool_ = std::move(pool);
      ServerOptions serve;
      serve.discipline = LockDiscipline::kCpu;
      server_ = must(at_server_.run(Server::start(at_server_, *pool_, serve)));
      uri = must(at_server_.run(server_->listen(must(fabric::parse_uri(options.uri)))));
      how.one_sided_reads = false;
    }
    client_ = must(both(Client::connect(at_client_, uri, how)));
    table_ = must(both(client_->open_table("t", true)));
    both(puts(options.keys, true));
  }
  ~Load() {
    both(client_->close());
    client_.reset();
    if (server_ != nullptr) must(at_server_.run(server_->stop()));
    server_.reset();
    pool_.reset();
    std::filesystem::remove(options_.pool);
  }

  void measure() {
    took_ns_.clear();
    took_ns_.reserve(options_.operations);
    const uint64_t begin = thread_cpu_ns();
    both(puts(options_.operations, false));
    const double spent = static_cast<double>(thread_cpu_ns() - begin);
    std::sort(took_ns_.begin(), took_ns_.end());
    fmt::print(R"({{"uri": "{}", "domain": "{}", "value_bytes": {}, "keys": {}, )"
               R"("cpu_ns": {:.0f}, "p50_ns": {}, "p99_ns": {}}})"
               "\n",
               options_.uri, options_.domain, options_.value_bytes, options_.keys,
               spent / static_cast<double>(options_.operations), took_ns_[took_ns_.size() / 2],
               took_ns_[took_ns_.size() * 99 / 100]);
    std::fflush(stdout);
  }

 private:
  template <typename T>
  T both(Task<T> task) {
    task.start();
    while (!task.done()) {
      at_client_.run_once();
      if (server_ != nullptr) at_server_.run_once();
    }
    return task.take();
  }
  Task<void> puts(uint64_t count, bool in_order) {
    const std::string value(options_.value_bytes, 'v');
    for (uint64_t i = 0; i < count; ++i) {
      const std::string key = key_of(in_order ? i : random_.below(options_.keys));
      const uint64_t begin = at_client_.now_ns();
      must(co_await client_->put(table_, key, value));
      if (!in_order) took_ns_.push_back(at_client_.now_ns() - begin);
    }
  }

  const Options& options_;
  std::unique_ptr<persist::Pool> pool_;
  base::RealClock clock_;
  Executor at_server_{clock_};
  Executor at_client_{clock_};
  std::unique_ptr<Server> server_;
  std::unique_ptr<Client> client_;
  TableId table_{};
  Random random_{1};
  std::vector<uint64_t> took_ns_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "what a durable put costs, in the pool's process or through a fabric\n"
      "example: put_store --value-bytes 1024 --domain none --uri shm://put-store"};
  Options options;
  app.add_option("--pool", options.pool, "the pool's file, which is made and removed");
  app.add_option("--domain", options.domain, "persistence domain to assume: none, adr, eadr")
      ->check(CLI::IsMember({"none", "adr", "eadr"}));
  app.add_option("--uri", options.uri, "where it is served; default: the client opens the pool");
  app.add_option("--keys", options.keys)->check(CLI::PositiveNumber);
  app.add_option("--value-bytes", options.value_bytes);
  app.add_option("--operations", options.operations, "of a turn")->check(CLI::PositiveNumber);
  app.add_option("--turns", options.turns)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  Load load(options);
  for (unsigned turn = 0; turn < options.turns; ++turn) load.measure();
  return 0;
}
