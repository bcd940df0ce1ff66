// Two verbs devices on one executor, as server and client, on the RDMA device of this machine.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "fabric/verbs/verbs_device.h"

namespace pmstore::fabric::verbs {

inline std::vector<std::byte> to_bytes(std::string_view text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}
inline std::string to_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct RecordingReceiver final : Receiver {
  void on_immediate(uint32_t immediate) override { immediates.push_back(immediate); }
  void on_disconnect(const Error& why) override { disconnects.push_back(why); }
  std::vector<uint32_t> immediates;
  std::vector<Error> disconnects;
};

struct RecordingAcceptor final : Acceptor {
  Result<std::vector<std::byte>> on_hello(uint64_t, std::span<const std::byte> hello) override {
    hellos.push_back(to_text(hello));
    if (refusal) return *refusal;
    return answer;
  }
  void on_connected(uint64_t, std::unique_ptr<Connection> connection) override {
    if (receiver != nullptr) connection->set_receiver(receiver);
    connections.push_back(std::move(connection));
  }
  void on_abandoned(uint64_t) override { ++abandoned; }

  std::vector<std::byte> answer = to_bytes("welcome");
  std::optional<Error> refusal;
  Receiver* receiver = nullptr;
  std::vector<std::string> hellos;
  std::vector<std::unique_ptr<Connection>> connections;
  int abandoned = 0;
};

// Memory with its region; 64-byte aligned.
struct Buffer {
  Buffer(Device& device, size_t bytes, Access access)
      : memory(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096))),
        region(device.register_memory({memory.get(), bytes}, access).value()) {
    std::fill_n(memory.get(), bytes, std::byte{0});
  }
  LocalBuffer local(size_t offset, uint32_t bytes) const {
    return {memory.get() + offset, bytes, region.get()};
  }
  RemoteAddress remote(size_t offset) const { return region->remote().at(offset); }
  uint64_t& word(size_t offset) const {
    return *reinterpret_cast<uint64_t*>(memory.get() + offset);
  }
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory;
  std::unique_ptr<MemoryRegion> region;
};

// For what has to happen: a guest on a busy host may stand still for seconds.
inline constexpr uint64_t kPatienceNs = 60'000'000'000;

inline constexpr Access kAll = Access::kRemoteRead | Access::kRemoteWrite | Access::kRemoteAtomic;

class VerbsFixture : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (ibv_device** list = ibv_get_device_list(&count)) ibv_free_device_list(list);
    if (count == 0) GTEST_SKIP() << "no RDMA device; tests/guest/verbs_scenarios has one";
    const char* address = std::getenv("PMSTORE_GUEST_ADDR");
    if (address == nullptr) GTEST_SKIP() << "PMSTORE_GUEST_ADDR does not name its address";
    host_ = address;
    server_ = open_verbs_device(executor_).value();
    client_ = open_verbs_device(executor_).value();
    acceptor_.receiver = &server_receiver_;
    listener_ = server_->listen(Uri{Scheme::kVerbs, host_, 0}, acceptor_).value();
  }

  // With time-outs of kPatienceNs where the options have the usual ones.
  Result<std::unique_ptr<Connection>> connect(ConnectOptions options = {}) {
    const ConnectOptions usual;
    if (options.timeout_ns == usual.timeout_ns) options.timeout_ns = kPatienceNs;
    if (options.operation_timeout_ns == usual.operation_timeout_ns) {
      options.operation_timeout_ns = kPatienceNs;
    }
    return executor_.run(client_->connect(listener_->uri(), options));
  }
  // Both ends, ready.
  void connect_both(ConnectOptions options = {}) {
    auto connection = connect(options);
    ASSERT_TRUE(connection) << connection.error().to_string();
    connection_ = std::move(*connection);
    connection_->set_receiver(&client_receiver_);
    ASSERT_TRUE(run_until([&] { return !acceptor_.connections.empty(); }));
  }
  Status execute(const Batch& batch) { return execute(*connection_, batch); }
  Status execute(Connection& connection, const Batch& batch) {
    return executor_.run(execute_task(connection, batch));
  }
  // Polls until `done`, false after `timeout_ns`.
  template <typename Predicate>
  bool run_until(Predicate done, uint64_t timeout_ns = kPatienceNs) {
    const uint64_t end_ns = executor_.now_ns() + timeout_ns;
    while (!done()) {
      if (executor_.now_ns() > end_ns) return false;
      executor_.run_once();
    }
    return true;
  }

  base::RealClock clock_;
  base::Executor executor_{clock_};
  std::string host_;
  RecordingAcceptor acceptor_;
  RecordingReceiver server_receiver_;
  RecordingReceiver client_receiver_;
  std::unique_ptr<Device> server_;
  std::unique_ptr<Device> client_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Connection> connection_;

  void TearDown() override {
    connection_.reset();
    acceptor_.connections.clear();
    listener_.reset();
  }

 private:
  static base::Task<Status> execute_task(Connection& connection, const Batch& batch) {
    co_return co_await connection.execute(batch);
  }
};

}  // namespace pmstore::fabric::verbs
