// Two ends of the local provider for unit tests: an acceptor that keeps what it is given, and
// helpers.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "fabric/device.h"
#include "fabric/memory_region.h"

namespace pmstore::fabric {

inline constexpr Access kEverything =
    Access::kRemoteRead | Access::kRemoteWrite | Access::kRemoteAtomic;

// Accepts everybody and keeps the connections.
struct KeepingAcceptor final : Acceptor {
  std::vector<std::unique_ptr<Connection>> connections;
  std::vector<uint64_t> abandoned;
  std::vector<std::byte> answer;
  std::optional<Error> refusal;
  Receiver* receiver = nullptr;

  Result<std::vector<std::byte>> on_hello(uint64_t, std::span<const std::byte>) override {
    if (refusal) return Error(*refusal);
    return answer;
  }
  void on_connected(uint64_t, std::unique_ptr<Connection> connection) override {
    connection->set_receiver(receiver);
    connections.push_back(std::move(connection));
  }
  void on_abandoned(uint64_t token) override { abandoned.push_back(token); }
};

struct RecordingReceiver final : Receiver {
  std::vector<uint32_t> immediates;
  std::vector<std::pair<uint32_t, size_t>> told;  // of which, and how many had come before
  std::vector<Error> disconnects;
  void on_immediate(uint32_t immediate) override { immediates.push_back(immediate); }
  void on_waiting(uint32_t immediate, std::span<const std::byte> data) override {
    EXPECT_TRUE(data.empty()) << "it is in memory already";
    told.emplace_back(immediate, immediates.size());
  }
  void on_disconnect(const Error& why) override { disconnects.push_back(why); }
};

inline Uri fresh_local_uri() {
  static int serial = 0;
  return {Scheme::kLocal, "unit-" + std::to_string(++serial), 0};
}

// Registered memory of one device.
struct Memory {
  std::vector<std::byte> bytes;
  std::unique_ptr<MemoryRegion> region;
  Memory(Device& device, size_t size, Access access) : bytes(size) {
    auto registered = device.register_memory(bytes, access);
    EXPECT_TRUE(registered);
    if (registered) region = std::move(*registered);
  }
  LocalBuffer at(size_t offset, size_t size) {
    return {bytes.data() + offset, static_cast<uint32_t>(size), region.get()};
  }
  RemoteAddress remote(size_t offset) const { return region->remote().at(offset); }
  uint64_t word(size_t offset) const {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + offset, sizeof(value));
    return value;
  }
  void set_word(size_t offset, uint64_t value) {
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
  }
};

inline std::unique_ptr<Device> open_local(base::Executor& executor) {
  auto device = open_device(Scheme::kLocal, executor);
  EXPECT_TRUE(device);
  return device ? std::move(*device) : nullptr;
}

// A connected pair on one executor, in virtual time.
class LocalPair : public testing::Test {
 protected:
  LocalPair() {
    server_memory_ = std::make_unique<Memory>(*server_, 64 << 10, kEverything);
    client_memory_ = std::make_unique<Memory>(*client_, 64 << 10, kEverything);
    acceptor_.receiver = &server_receiver_;
    auto listener = server_->listen(uri_, acceptor_);
    EXPECT_TRUE(listener);
    listener_ = std::move(*listener);
    connection_ = connect();
    EXPECT_NE(connection_, nullptr);
    connection_->set_receiver(&client_receiver_);
    EXPECT_EQ(acceptor_.connections.size(), 1u);
  }

  std::unique_ptr<Connection> connect() {
    ConnectOptions options;
    auto made = executor_.run(client_->connect(uri_, options));
    EXPECT_TRUE(made);
    return made ? std::move(*made) : nullptr;
  }

  void turns(int count) {
    for (int i = 0; i < count; ++i) executor_.run_once();
  }

  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  std::unique_ptr<Device> server_ = open_local(executor_);
  std::unique_ptr<Device> client_ = open_local(executor_);
  const Uri uri_ = fresh_local_uri();
  RecordingReceiver server_receiver_;
  RecordingReceiver client_receiver_;
  std::unique_ptr<Memory> server_memory_;
  std::unique_ptr<Memory> client_memory_;
  KeepingAcceptor acceptor_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace pmstore::fabric
