// The target of the fabric scenarios: memory with several rights, an echo, and control calls.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fabric/device.h"
#include "tests/harness/rpc_test_server.h"
#include "tests/scenario/fabric/protocol.h"
#include "tests/scenario/fabric/target_cpu.h"
#include "tests/scenario/harness.h"

namespace pmstore::scenario {

class TargetRole final : public Role, public harness::RpcTestServer {
 public:
  ~TargetRole() override;
  Result<fabric::Uri> start(base::Executor& executor, const fabric::Uri& uri,
                            const std::vector<std::string>& args) override;

  Result<std::vector<std::byte>> on_hello(uint64_t token,
                                          std::span<const std::byte> hello) override;
  void on_connected(uint64_t token, std::unique_ptr<fabric::Connection> connection) override;
  void on_abandoned(uint64_t token) override;

  void on_call(fabric::RpcPeer& peer, fabric::RpcCall call) override;
  void on_peer_gone(fabric::RpcPeer& peer, const Error& why) override;

 private:
  struct Memory {
    std::vector<std::byte> bytes;
    std::unique_ptr<fabric::MemoryRegion> region;
  };
  // One raw connection; stays known by its id after it is gone.
  struct Raw final : fabric::Receiver {
    TargetRole* role = nullptr;
    std::unique_ptr<fabric::Connection> connection;
    RawState state{0, 0, 0};
    void on_immediate(uint32_t immediate) override;
    void on_disconnect(const Error& why) override;
  };

  Status add_memory(size_t bytes, fabric::Access access);
  uint64_t checksum(const ChecksumRequest& what) const;
  void serve_memory(fabric::RpcCall call);
  void serve_raw(fabric::RpcCall call);
  void send_to_raw(fabric::RpcCall call);
  void serve_cpu(fabric::RpcCall call);

  base::Executor* executor_ = nullptr;
  std::unique_ptr<fabric::Device> device_;
  std::vector<Memory> memory_;  // indexed as ChecksumRequest::region, then the send buffer
  std::map<uint64_t, Raw> raws_;
  std::vector<fabric::RpcCall> held_;
  std::vector<fabric::RpcCall> never_answered_;
  std::unique_ptr<TargetCpu> cpu_;
  uint64_t lost_ = 0;
  std::unique_ptr<fabric::Listener> listener_;
};

}  // namespace pmstore::scenario
