// What the in-process fabric costs: a batch of two 64-byte READs, and an RPC with a 16-byte
// request, both with client and server on one executor. Prints nanoseconds of this thread's
// processor time, which a busy machine disturbs less than the clock; `local_fabric [ROUNDS]`.
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/executor.h"
#include "fabric/device.h"
#include "fabric/rpc.h"

namespace {

using namespace pmstore;

uint64_t processor_ns() {
  timespec ts;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(ts.tv_nsec);
}

class Server final : public fabric::Acceptor, public fabric::RpcHandler {
 public:
  explicit Server(fabric::Device& device) : device_(device) {}
  ~Server() override { peer_.reset(); }

  Result<std::vector<std::byte>> on_hello(uint64_t, std::span<const std::byte> hello) override {
    fabric::RemoteRegion replies;
    std::memcpy(&replies, hello.data(), sizeof(replies));
    PMSTORE_TRY(peer_, fabric::RpcPeer::create(device_, {}, replies, *this));
    std::vector<std::byte> answer(sizeof(fabric::RemoteRegion));
    std::memcpy(answer.data(), &peer_->request_region(), answer.size());
    return answer;
  }
  void on_connected(uint64_t, std::unique_ptr<fabric::Connection> connection) override {
    peer_->attach(std::move(connection));
  }
  void on_abandoned(uint64_t) override { peer_.reset(); }
  void on_call(fabric::RpcPeer&, fabric::RpcCall call) override { call.reply(call.request()); }
  void on_peer_gone(fabric::RpcPeer&, const Error&) override { peer_.reset(); }

 private:
  fabric::Device& device_;
  std::unique_ptr<fabric::RpcPeer> peer_;
};

base::Task<uint64_t> time_reads(fabric::Connection& connection, fabric::LocalBuffer to,
                                fabric::RemoteRegion from, uint64_t rounds) {
  const uint64_t start = processor_ns();
  const fabric::LocalBuffer second{to.data + 64, 64, to.region};
  for (uint64_t i = 0; i < rounds; ++i) {
    fabric::Batch batch;
    batch.read(to, from.at((i * 128) & 0xfff)).read(second, from.at((i * 64) & 0xfff));
    Status done = co_await connection.execute(batch);
    PMSTORE_CHECK(done.has_value(), "the yardstick's READs are within the region");
  }
  co_return processor_ns() - start;
}

base::Task<uint64_t> time_calls(fabric::RpcClient& client, uint64_t rounds) {
  const uint64_t start = processor_ns();
  const std::vector<std::byte> request(16);
  for (uint64_t i = 0; i < rounds; ++i) {
    Result<fabric::RpcReply> reply = co_await client.call(1, request, 16);
    PMSTORE_CHECK(reply.has_value(), "the yardstick's server answers");
  }
  co_return processor_ns() - start;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000;
  base::RealClock clock;
  base::Executor executor(clock);
  auto server_device = std::move(*fabric::open_device(fabric::Scheme::kLocal, executor));
  auto client_device = std::move(*fabric::open_device(fabric::Scheme::kLocal, executor));
  std::vector<std::byte> memory(8192);
  auto target = std::move(*server_device->register_memory(memory, fabric::Access::kRemoteRead));
  std::vector<std::byte> buffer(8192);
  auto local = std::move(*client_device->register_memory(buffer, fabric::Access::kLocal));
  {
    Server server(*server_device);
    const fabric::Uri uri{fabric::Scheme::kLocal, "yardstick", 0};
    auto listener = std::move(*server_device->listen(uri, server));
    auto client = std::move(*fabric::RpcClient::create(*client_device, {}));
    fabric::ConnectOptions options;
    options.hello = std::as_bytes(std::span(&client->reply_region(), 1));
    auto connection = std::move(*executor.run(client_device->connect(uri, options)));
    fabric::RemoteRegion requests;
    std::memcpy(&requests, connection->peer_hello().data(), sizeof(requests));
    PMSTORE_CHECK(client->attach(*connection, requests).has_value(), "the ring is usable");
    const uint64_t reads = executor.run(
        time_reads(*connection, {buffer.data(), 64, local.get()}, target->remote(), rounds));
    const uint64_t calls = executor.run(time_calls(*client, rounds));
    std::printf("{\"read_batch_of_2_ns\": %.1f, \"rpc_call_ns\": %.1f}\n",
                static_cast<double>(reads) / static_cast<double>(rounds),
                static_cast<double>(calls) / static_cast<double>(rounds));
    connection.reset();
  }
  local.reset();
  target.reset();
  return 0;
}
