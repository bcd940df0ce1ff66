// Clients that lock records of a server and do not go on: for tests/hostile/hostile_clients.
//
// Each locks one key, as the coordinator of a transaction of several servers does, and then sleeps,
// or goes on asking. The server frees such a lock after ServerOptions::lock_ms, so each locks again
// after a while. Says "holding N" when N have locked, once; ends when its standard input ends.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/commit_message.h"
#include "pmstore/layout/protocol.h"

namespace {

using namespace pmstore;
using base::Task;
using internal::ClientSession;
using internal::SessionRef;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kRoundNs = 3000 * kMs;  // longer than a server lets a lock be held
constexpr uint64_t kPauseNs = 20 * kMs;
constexpr uint64_t kLongestStartNs = 120'000 * kMs;

struct Options {
  std::string uri;
  std::string table;
  unsigned clients = 64;
  bool asks = false;
};

[[noreturn]] void fail(const std::string& what, const std::string& why) {
  fmt::print(stderr, "lock_holders: {}: {}\n", what, why);
  std::fflush(stderr);
  _exit(1);
}

class Holders {
 public:
  Holders(base::Executor& executor, const Options& options)
      : executor_(executor), options_(options) {}

  // For ever; each locks the key "held" and its number.
  Task<void> run() {
    auto uri = fabric::parse_uri(options_.uri);
    if (!uri) fail(options_.uri, uri.error().message);
    for (unsigned i = 0; i < options_.clients; ++i) executor_.spawn(hold(*uri, i));
    const uint64_t give_up_ns = executor_.now_ns() + kLongestStartNs;
    while (holding_ < options_.clients) {
      if (executor_.now_ns() >= give_up_ns) fail("locks", fmt::format("only {} hold", holding_));
      co_await executor_.sleep_for(kPauseNs);
    }
    fmt::print("holding {}\n", holding_);
    std::fflush(stdout);
    pollfd input{STDIN_FILENO, POLLIN, 0};
    while (poll(&input, 1, 0) == 0) co_await executor_.sleep_for(kPauseNs);
  }

 private:
  Task<SessionRef> open(const fabric::Uri& uri, const ClientSecret& secret) {
    auto device = fabric::open_device(uri.scheme, executor_);
    if (!device) fail(options_.uri, device.error().message);
    internal::SessionOptions how;
    how.secret = secret;
    how.call_timeout_ns = how.connect_timeout_ns = 60'000 * kMs;
    auto opened = co_await ClientSession::open(std::move(*device),
                                               std::make_shared<internal::SessionBook>(), uri, how);
    if (!opened) fail("a session", opened.error().to_string());
    co_return std::move(*opened);
  }

  Task<TableId> find_table(ClientSession& session) {
    std::array<std::byte, 256> room;
    MessageWriter request(room);
    request.put(session.prefix());
    request.put(OpenTableRequest{0, static_cast<uint8_t>(options_.table.size()), {}});
    request.put_bytes(options_.table);
    const auto answer = co_await session.rpc().call(static_cast<uint16_t>(Method::kOpenTable),
                                                    request.message(), sizeof(OpenTableReply));
    if (!answer) fail(options_.table, answer.error().to_string());
    MessageReader reader(answer->bytes());
    co_return static_cast<TableId>(reader.get<OpenTableReply>().table);
  }

  Task<void> hold(fabric::Uri uri, unsigned number) {
    const ClientSecret secret = ClientSecret::random();
    const SessionRef session = co_await open(uri, secret);
    const TableId table = co_await find_table(*session);
    const std::string key = fmt::format("held{}", number);
    bool has_held = false;
    for (uint64_t round = 0;; ++round) {
      const bool holds = co_await lock(*session, secret.id(), table, key, round);
      if (holds && !std::exchange(has_held, true)) ++holding_;
      const uint64_t until_ns = executor_.now_ns() + kRoundNs;
      while (executor_.now_ns() < until_ns) {
        if (options_.asks) co_await ask(*session);
        co_await executor_.sleep_for(kPauseNs);
      }
    }
  }

  // False: an honest client has the record just now.
  Task<bool> lock(ClientSession& session, ClientId client, TableId table, std::string_view key,
                  uint64_t number) {
    std::array<std::byte, 512> room;
    MessageWriter request(room);
    request.put(session.prefix());
    request.put(LockRequest{});
    const internal::CommitWrite write{WriteKind::kPut, table, 0, 0, key, "hostile"};
    put_commit(request, internal::CommitView{client,
                                             session.hello().next_sequence + number,
                                             {},
                                             {},
                                             internal::CommitWrites(std::span(&write, 1)),
                                             1});
    const auto locked =
        co_await session.rpc().call(static_cast<uint16_t>(Method::kLock), request.message(), 64);
    if (!locked && locked.code() != ErrorCode::kConflict)
      fail("a lock", locked.error().to_string());
    co_return locked.has_value();
  }

  Task<void> ask(ClientSession& session) {
    std::array<std::byte, 64> room;
    MessageWriter request(room);
    request.put(session.prefix());
    const auto answer = co_await session.rpc().call(service::kPingMethod, request.message(), 0);
    if (!answer) fail("a ping", answer.error().to_string());
  }

  base::Executor& executor_;
  const Options& options_;
  unsigned holding_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("clients that lock records and do not go on", "lock_holders");
  Options options;
  app.add_option("--uri", options.uri, "of the server")->required();
  app.add_option("--table", options.table, "a table that is there")->required();
  app.add_option("--clients", options.clients, "so many")->check(CLI::Range(1, 4000));
  app.add_flag("--asks", options.asks, "they ping meanwhile");
  app.footer("example: lock_holders --uri tcp://127.0.0.1:7000 --table t --clients 8");
  CLI11_PARSE(app, argc, argv);
  base::RealClock clock;
  base::Executor executor(clock);
  Holders holders(executor, options);
  executor.run(holders.run());
  return 0;
}
