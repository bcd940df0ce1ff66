// The fixture of the fabric scenarios: an executor and a device on this side, a TargetRole on the
// other, and a control connection to it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "tests/scenario/fabric/protocol.h"
#include "tests/scenario/harness.h"

namespace pmstore::scenario {

// A connection without RPC, and what arrived on it.
struct RawLink final : fabric::Receiver {
  std::unique_ptr<fabric::Connection> connection;
  TargetHello hello;
  std::vector<uint32_t> immediates;
  std::optional<Error> disconnected;
  void on_immediate(uint32_t immediate) override { immediates.push_back(immediate); }
  void on_disconnect(const Error& why) override { disconnected = why; }
};

// A connection for calls. Members are destroyed in the order that fabric/rpc.h asks for.
struct RpcLink {
  std::unique_ptr<fabric::RpcClient> rpc;
  std::unique_ptr<fabric::Connection> connection;
  TargetHello hello;
};

class FabricScenario : public testing::Test {
 protected:
  static constexpr size_t kLocalBytes = 4u << 20;

  void SetUp() override;
  void TearDown() override;

  // Runs the executor until `condition` or the time is over; says which.
  bool run_until(const std::function<bool()>& condition, uint64_t timeout_ns);

  std::unique_ptr<RawLink> connect_raw();
  std::unique_ptr<RpcLink> connect_rpc(const fabric::RpcOptions& options = {
                                           .call_timeout_ns = kPatientTimeoutNs});
  Result<std::unique_ptr<fabric::Connection>> connect(ConnectionKind kind,
                                                      const fabric::RemoteRegion& replies);

  // Posts and waits.
  Status execute(fabric::Connection& connection, const fabric::Batch& batch);
  // What `connection` has written to `target` is in its memory on return: a WRITE's completion does
  // not say that, a READ behind it does, where it is ordered.
  void let_land(fabric::Connection& connection, const fabric::RemoteRegion& target);

  // One call, with the answer copied out.
  Result<std::vector<std::byte>> call(RpcLink& link, uint16_t method,
                                      std::span<const std::byte> request,
                                      uint32_t reply_capacity = 4096);
  template <typename Request>
  Result<std::vector<std::byte>> call_with(uint16_t method, const Request& request) {
    return call(*control_, method, std::as_bytes(std::span<const Request, 1>(&request, 1)));
  }
  RawState raw_state(uint64_t id);
  uint64_t target_checksum(uint32_t region, uint64_t offset, uint64_t bytes);
  LiveReply live();
  // The target still answers and does not know of more connections than these.
  void expect_unharmed();

  fabric::LocalBuffer local(size_t offset, size_t bytes) {
    return {memory_.data() + offset, static_cast<uint32_t>(bytes), region_.get()};
  }
  std::byte* at(size_t offset) { return memory_.data() + offset; }
  uint64_t word_at(size_t offset) {
    uint64_t word = 0;
    std::memcpy(&word, at(offset), sizeof(word));
    return word;
  }
  // Fills this side's memory so that every offset and seed differ.
  void fill_local(size_t offset, size_t bytes, uint64_t seed);

  TestClock clock_;
  base::Executor executor_{clock_};
  TestMachine machine_{executor_};
  std::unique_ptr<Target> target_;
  std::unique_ptr<fabric::Device> device_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kLocalBytes);
  std::unique_ptr<fabric::MemoryRegion> region_;
  std::unique_ptr<RpcLink> control_;
  // Where raw connections go instead of the target's own address.
  std::optional<fabric::Uri> way_;
  // For connect(): short where a peer gets lost.
  uint64_t operation_timeout_ns_ = kPatientTimeoutNs;
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

}  // namespace pmstore::scenario
