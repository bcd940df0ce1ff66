// The two ends of verbs_powercut: a server to be cut off from power, and a client that says when
// it has noticed. `serve URI` runs until it is killed. `watch URI` connects twice, stays idle on
// one connection and keeps writing on the other, and ends when both are broken: 0 if in time.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "fabric/device.h"

namespace pmstore::fabric {
namespace {

constexpr size_t kBytes = 4096;
constexpr uint64_t kPatience_ns = 300'000'000'000;  // for the server to boot
constexpr uint64_t kOperation_ns = 10'000'000'000;  // as ConnectOptions has it
// docs/fabric-verbs.md: the operation timeout at the latest, after half of it in silence when idle.
// Two seconds more, of those that this program was awake in: a busy machine may let it stand still.
constexpr uint64_t kBusy_ns = kOperation_ns + 2'000'000'000;
constexpr uint64_t kIdle_ns = kOperation_ns / 2 + kBusy_ns;
constexpr uint64_t kAwake_ns = 50'000'000;  // the most that one turn of the executor counts for

class Server final : public Acceptor {
 public:
  Result<std::vector<std::byte>> on_hello(uint64_t, std::span<const std::byte>) override {
    const RemoteRegion& remote = region->remote();
    std::vector<std::byte> answer(sizeof(remote));
    std::memcpy(answer.data(), &remote, sizeof(remote));
    return answer;
  }
  void on_connected(uint64_t, std::unique_ptr<Connection> connection) override {
    connections.push_back(std::move(connection));
  }
  void on_abandoned(uint64_t) override {}
  std::unique_ptr<MemoryRegion> region;
  std::vector<std::unique_ptr<Connection>> connections;
};

int serve(base::Executor& executor, Device& device, const Uri& uri) {
  std::vector<std::byte> memory(kBytes);
  Server server;
  auto region = device.register_memory(memory, Access::kRemoteRead | Access::kRemoteWrite);
  if (!region) return 1;
  server.region = std::move(*region);
  auto listener = device.listen(uri, server);
  if (!listener) {
    std::printf("%s\n", listener.error().to_string().c_str());
    return 1;
  }
  std::printf("serving\n");
  std::fflush(stdout);
  executor.run_until_stopped();
  return 0;
}

base::Task<Result<std::unique_ptr<Connection>>> reach(base::Executor& executor, Device& device,
                                                      Uri uri) {
  const uint64_t end_ns = executor.now_ns() + kPatience_ns;
  ConnectOptions options;
  options.operation_timeout_ns = kOperation_ns;
  while (true) {
    auto connection = co_await device.connect(uri, options);
    if (connection || executor.now_ns() > end_ns) co_return connection;
    co_await executor.sleep_for(100'000'000);
  }
}

// Until the connection breaks.
base::Task<void> keep_writing(Connection& connection, LocalBuffer from, RemoteRegion to) {
  Batch batch;
  batch.write(from, to.at(0));
  while (co_await connection.execute(batch)) {
  }
}

int watch(base::Executor& executor, Device& device, const Uri& uri) {
  std::vector<std::byte> memory(kBytes);
  auto region = device.register_memory(memory, Access::kLocal);
  auto idle = executor.run(reach(executor, device, uri));
  auto busy = executor.run(reach(executor, device, uri));
  if (!region || !idle || !busy) {
    std::printf("cannot connect to %s\n", uri.to_string().c_str());
    return 1;
  }
  RemoteRegion target;
  std::memcpy(&target, (*busy)->peer_hello().data(), sizeof(target));
  executor.spawn(keep_writing(**busy, {memory.data(), 64, region->get()}, target));
  std::printf("connected\n");
  std::fflush(stdout);
  // The power goes at an unknown moment; the busy one shows it first.
  const uint64_t give_up_ns = executor.now_ns() + 2 * kPatience_ns;
  std::optional<uint64_t> busy_ns;
  std::optional<uint64_t> idle_ns;
  uint64_t written = (*busy)->counters().completions;
  uint64_t looked_ns = executor.now_ns();
  uint64_t silent_ns = 0;  // since the last write that was answered
  bool said = false;
  while ((!busy_ns || !idle_ns) && executor.now_ns() < give_up_ns) {
    executor.run_once();
    const uint64_t now_ns = executor.now_ns();
    silent_ns += std::min(now_ns - looked_ns, kAwake_ns);
    looked_ns = now_ns;
    if ((*busy)->counters().completions != written) {
      written = (*busy)->counters().completions;
      silent_ns = 0;
      if (!said) std::printf("writing\n");
      said = true;
      std::fflush(stdout);
    }
    if (!busy_ns && (*busy)->broken()) busy_ns = silent_ns;
    if (!idle_ns && (*idle)->broken()) idle_ns = silent_ns;
  }
  const bool both = busy_ns && idle_ns;
  const auto ms = [](std::optional<uint64_t> ns) { return ns.value_or(0) / 1'000'000; };
  std::printf("noticed: busy after %lu ms (%s), idle after %lu ms (%s)\n", ms(busy_ns),
              (*busy)->why_broken().to_string().c_str(), ms(idle_ns),
              (*idle)->why_broken().to_string().c_str());
  return both && *busy_ns < kBusy_ns && *idle_ns < kIdle_ns && written > 0 ? 0 : 1;
}

int run(std::string_view role, std::string_view address) {
  const auto uri = parse_uri(address);
  if (!uri) {
    std::fprintf(stderr, "%s\n", uri.error().to_string().c_str());
    return 2;
  }
  base::RealClock clock;
  base::Executor executor(clock);
  auto device = open_device(uri->scheme, executor);
  if (!device) {
    std::fprintf(stderr, "%s\n", device.error().to_string().c_str());
    return 1;
  }
  return role == "serve" ? serve(executor, **device, *uri) : watch(executor, **device, *uri);
}

}  // namespace
}  // namespace pmstore::fabric

int main(int argc, char** argv) {
  const std::string_view role = argc == 3 ? argv[1] : "";
  if (role == "serve" || role == "watch") return pmstore::fabric::run(role, argv[2]);
  std::fprintf(stderr, "usage: %s serve|watch verbs://HOST:PORT\n", argv[0]);
  return 2;
}
