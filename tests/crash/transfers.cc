// One of the coordinators that tests/crash/kill_servers kills: moves money between two servers by
// transactions of both, and audits what they hold.
//
// load   the accounts at both servers
// run    transfers for some seconds. Each coroutine counts its transfers in a record at either
//        server, by the same transactions; the journal says through which one they were
//        acknowledged. It rides through the end of a server and settles what it has in doubt
// leave  a transfer that is prepared at both servers, and its coordinator is gone
// audit  the sum of all accounts, and each count: the same at both servers, at least the journal's
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "fabric/uri.h"
#include "pmstore/client.h"
#include "pmstore/joint_commit.h"

namespace pmstore {
namespace {

constexpr int64_t kFirstBalance = 1000;
constexpr uint64_t kMs = 1'000'000;
// A server that is started again has the time.
constexpr uint64_t kPatienceNs = 120'000 * kMs;
constexpr size_t kServers = 2;

struct Options {
  std::string task;
  std::vector<std::string> uris;
  std::string journal;
  std::string name = "c";
  unsigned accounts = 200;
  unsigned coroutines = 4;
  double seconds = 1;
  uint64_t seed = 1;
};

struct Totals {
  uint64_t moved = 0;
  uint64_t conflicts = 0;
  uint64_t doubts = 0;
  std::string failure;
};

int64_t number_in(const std::string& text) {
  int64_t number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string account(uint64_t number) { return fmt::format("account{}", number); }

class Transfers {
 public:
  Transfers(Executor& executor, Options options)
      : executor_(executor), options_(std::move(options)), random_(options_.seed) {}

  Status connect() {
    ClientOptions with;
    with.call_timeout_ns = 2000 * kMs;
    with.reconnect_timeout_ns = 5000 * kMs;
    for (const std::string& text : options_.uris) {
      PMSTORE_TRY(const fabric::Uri uri, fabric::parse_uri(text));
      PMSTORE_TRY(auto client, executor_.run(connect_to(executor_, uri, with)));
      clients_.push_back(std::move(client));
      PMSTORE_TRY(const TableId table, executor_.run(table_at(executor_, *clients_.back())));
      tables_.push_back(table);
    }
    return {};
  }
  Status load();
  Status run();
  Status leave();
  Status audit();

 private:
  Client& at(size_t server) { return *clients_[server]; }
  static Task<Result<std::unique_ptr<Client>>> connect_to(Executor& executor, fabric::Uri uri,
                                                          ClientOptions with);
  static Task<Result<TableId>> table_at(Executor& executor, Client& client);
  Task<Result<std::string>> read(size_t server, std::string key);
  Task<Status> transfer(std::string count, uint64_t number, uint64_t seed);
  Task<Result<bool>> has_happened(std::string count, uint64_t number);
  Task<void> work(unsigned coroutine);
  Result<bool> is_left();
  Result<std::map<std::string, int64_t>> journal() const;
  Result<int64_t> sum_of(size_t server);
  Status audit_counts();

  Executor& executor_;
  const Options options_;
  Random random_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<TableId> tables_;
  Totals totals_;
  uint64_t until_ns_ = 0;
  int journal_ = -1;
};

// The server may just have been killed.
Task<Result<std::unique_ptr<Client>>> Transfers::connect_to(Executor& executor, fabric::Uri uri,
                                                            ClientOptions with) {
  const uint64_t give_up_ns = executor.now_ns() + kPatienceNs;
  while (true) {
    auto client = co_await Client::connect(executor, uri, with);
    if (client || executor.now_ns() > give_up_ns) co_return std::move(client);
    co_await executor.sleep_for(20 * kMs);
  }
}

Task<Result<TableId>> Transfers::table_at(Executor& executor, Client& client) {
  const uint64_t give_up_ns = executor.now_ns() + kPatienceNs;
  while (true) {
    const auto table = co_await client.open_table("accounts", true);
    if (table || executor.now_ns() > give_up_ns) co_return table;
    co_await executor.sleep_for(20 * kMs);
  }
}

Status Transfers::load() {
  for (size_t server = 0; server < kServers; ++server) {
    for (uint64_t i = 0; i < options_.accounts; ++i) {
      PMSTORE_TRY_STATUS(executor_.run(
          at(server).put(tables_[server], account(i), std::to_string(kFirstBalance))));
    }
  }
  return {};
}

// Others may have it locked for a while.
Task<Result<std::string>> Transfers::read(size_t server, std::string key) {
  const uint64_t give_up_ns = executor_.now_ns() + kPatienceNs;
  while (true) {
    auto value = co_await at(server).get(tables_[server], key);
    if (value) co_return std::move(*value);
    if (value.code() == ErrorCode::kNotFound) co_return std::string("0");
    const bool waits = value.code() == ErrorCode::kConflict ||
                       value.code() == ErrorCode::kDisconnected ||
                       value.code() == ErrorCode::kTimeout;
    if (!waits || executor_.now_ns() > give_up_ns) co_return value.error();
    co_await executor_.sleep_for(5 * kMs);
  }
}

Task<Status> Transfers::transfer(std::string count, uint64_t number, uint64_t seed) {
  Random random(seed);
  const std::string from = account(random.below(options_.accounts));
  const std::string to = account(random.below(options_.accounts));
  const auto amount = static_cast<int64_t>(random.below(100));
  const size_t giver = random.below(kServers);
  std::vector<Transaction> both;
  for (size_t i = 0; i < kServers; ++i) both.push_back(at(i).begin());
  for (size_t i = 0; i < kServers; ++i) {
    const std::string& key = i == giver ? from : to;
    const auto balance = co_await both[i].get(tables_[i], key);
    if (!balance) co_return balance.error();
    const int64_t now = number_in(*balance) + (i == giver ? -amount : amount);
    both[i].put(tables_[i], key, std::to_string(now));
    both[i].put(tables_[i], count, std::to_string(number));
  }
  co_return co_await commit_together(std::move(both));
}

// Of a transfer in doubt: the count is final once it is settled.
Task<Result<bool>> Transfers::has_happened(std::string count, uint64_t number) {
  const uint64_t give_up_ns = executor_.now_ns() + kPatienceNs;
  while (true) {
    std::vector<Client*> clients;
    for (const auto& each : clients_) clients.push_back(each.get());
    const auto settled = co_await settle(std::move(clients));
    const bool all_asked =
        settled && std::all_of(settled->servers.begin(), settled->servers.end(),
                               [](const Status& server) { return server.has_value(); });
    if (all_asked && settled->waiting == 0) break;
    if (executor_.now_ns() > give_up_ns) {
      co_return make_error(ErrorCode::kTimeout, "it cannot be settled");
    }
    co_await executor_.sleep_for(10 * kMs);
  }
  PMSTORE_CO_TRY(const std::string one, co_await read(0, count));
  PMSTORE_CO_TRY(const std::string other, co_await read(1, count));
  if (one != other) {
    co_return make_error(ErrorCode::kBadPool, "half of a transfer: " + one + " and " + other);
  }
  co_return number_in(one) == static_cast<int64_t>(number);
}

Task<void> Transfers::work(unsigned coroutine) {
  const std::string count = fmt::format("{}-{}", options_.name, coroutine);
  uint64_t number = 1;
  while (executor_.now_ns() < until_ns_ && totals_.failure.empty()) {
    const uint64_t seed = random_.next();
    const Status moved = co_await transfer(count, number, seed);
    bool happened = moved.has_value();
    if (!moved && moved.code() == ErrorCode::kCommitUnknown) {
      ++totals_.doubts;
      const auto known = co_await has_happened(count, number);
      if (!known) {
        totals_.failure = known.error().to_string();
        co_return;
      }
      happened = *known;
    } else if (!moved) {
      ++totals_.conflicts;
      co_await executor_.sleep_for(random_.below(5 * kMs));
    }
    if (!happened) continue;
    ++totals_.moved;
    const std::string line = fmt::format("{} {}\n", count, number);
    if (write(journal_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      totals_.failure = "the journal cannot be written";
    }
    ++number;
  }
}

Status Transfers::run() {
  journal_ = open(options_.journal.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (journal_ < 0) return make_error(ErrorCode::kIo, "cannot open " + options_.journal);
  until_ns_ = executor_.now_ns() + static_cast<uint64_t>(options_.seconds * 1e9);
  std::vector<Task<void>> all;
  for (unsigned i = 0; i < options_.coroutines; ++i) all.push_back(work(i));
  for (auto& each : all) each.start();
  executor_.run([](Executor& executor, std::vector<Task<void>>& tasks) -> Task<void> {
    const auto done = [](const Task<void>& each) { return each.done(); };
    while (!std::all_of(tasks.begin(), tasks.end(), done)) co_await executor.sleep_for(kMs);
  }(executor_, all));
  close(journal_);
  fmt::print("{} moved, {} tried again, {} in doubt\n", totals_.moved, totals_.conflicts,
             totals_.doubts);
  if (totals_.failure.empty()) return {};
  return make_error(ErrorCode::kBadPool, totals_.failure);
}

// ---- a coordinator that is gone ----

Result<bool> Transfers::is_left() {
  const std::vector<Client*> clients{&at(0), &at(1)};
  PMSTORE_TRY(const OpenTransactions open, executor_.run(open_transactions(clients)));
  const auto prepared = [](const OpenTransaction& each) { return !each.committed; };
  if (open.transactions.size() == kServers &&
      std::all_of(open.transactions.begin(), open.transactions.end(), prepared)) {
    return true;
  }
  PMSTORE_TRY_STATUS(executor_.run(settle(clients)));
  return false;
}

// The clients go at a random moment of the commit, until that was the right one.
Status Transfers::leave() {
  const uint64_t give_up_ns = executor_.now_ns() + kPatienceNs;
  while (executor_.now_ns() < give_up_ns) {
    {
      Task<Status> moving = transfer("left", 1, random_.next());
      moving.start();
      for (uint64_t turns = random_.below(5000); turns > 0 && !moving.done(); --turns) {
        executor_.run(
            [](Executor& executor) -> Task<void> { co_await executor.yield(); }(executor_));
      }
    }
    clients_.clear();
    tables_.clear();
    PMSTORE_TRY_STATUS(connect());
    PMSTORE_TRY(const bool left, is_left());
    if (left) return {};
  }
  return make_error(ErrorCode::kTimeout, "no moment was the right one");
}

// ---- the audit ----

Result<std::map<std::string, int64_t>> Transfers::journal() const {
  std::map<std::string, int64_t> acknowledged;
  std::ifstream file(options_.journal);
  std::string line;
  while (std::getline(file, line)) {
    const size_t space = line.find(' ');
    // The last line of a process that was killed is whole: one write each.
    if (space == std::string::npos) return make_error(ErrorCode::kBadPool, "the journal: " + line);
    acknowledged[line.substr(0, space)] = number_in(line.substr(space + 1));
  }
  return acknowledged;
}

Result<int64_t> Transfers::sum_of(size_t server) {
  int64_t sum = 0;
  for (uint64_t i = 0; i < options_.accounts; ++i) {
    PMSTORE_TRY(const std::string balance,
                executor_.run(at(server).get(tables_[server], account(i))));
    sum += number_in(balance);
  }
  return sum;
}

Status Transfers::audit_counts() {
  PMSTORE_TRY(const auto acknowledged, journal());
  for (const auto& [count, number] : acknowledged) {
    PMSTORE_TRY(const std::string one, executor_.run(at(0).get(tables_[0], count)));
    PMSTORE_TRY(const std::string other, executor_.run(at(1).get(tables_[1], count)));
    if (one != other || number_in(one) < number || number_in(one) > number + 1) {
      return make_error(ErrorCode::kBadPool,
                        fmt::format("{}: {} and {} are counted, {} were acknowledged", count, one,
                                    other, number));
    }
  }
  return {};
}

Status Transfers::audit() {
  int64_t sum = 0;
  for (size_t server = 0; server < kServers; ++server) {
    PMSTORE_TRY(const int64_t here, sum_of(server));
    sum += here;
  }
  const int64_t first = kFirstBalance * static_cast<int64_t>(kServers * options_.accounts);
  if (sum != first) {
    return make_error(ErrorCode::kBadPool,
                      fmt::format("the accounts have {} together, not {}", sum, first));
  }
  return audit_counts();
}

int run_transfers(Options options) {
  base::RealClock clock;
  Executor executor(clock);
  const std::string task = options.task;
  Transfers transfers(executor, std::move(options));
  Status done = transfers.connect();
  if (done) {
    done = task == "load"    ? transfers.load()
           : task == "run"   ? transfers.run()
           : task == "leave" ? transfers.leave()
                             : transfers.audit();
  }
  if (done) return 0;
  fmt::print(stderr, "transfers: {}: {}\n", task, done.error().to_string());
  return 1;
}

}  // namespace
}  // namespace pmstore

int main(int argc, char** argv) {
  pmstore::Options options;
  CLI::App app{"transfers between two servers, for tests/crash/kill_servers"};
  app.add_option("TASK", options.task)
      ->required()
      ->check(CLI::IsMember({"load", "run", "leave", "audit"}));
  app.add_option("URI", options.uris)->required()->expected(pmstore::kServers);
  app.add_option("--journal", options.journal, "what was acknowledged");
  app.add_option("--name", options.name, "of this process, in the counts");
  app.add_option("--accounts", options.accounts);
  app.add_option("--coroutines", options.coroutines);
  app.add_option("--seconds", options.seconds);
  app.add_option("--seed", options.seed);
  CLI11_PARSE(app, argc, argv);
  return pmstore::run_transfers(std::move(options));
}
