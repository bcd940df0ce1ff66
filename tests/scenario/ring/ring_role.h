// The target of the log scenarios: one ring, granted to whoever connected last.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/device.h"
#include "log/ring.h"
#include "persist/memory.h"
#include "persist/remote_writer.h"
#include "tests/harness/rpc_test_server.h"
#include "tests/scenario/harness.h"

namespace pmstore::scenario {

class RingRole final : public Role, public harness::RpcTestServer {
 public:
  ~RingRole() override;
  Result<fabric::Uri> start(base::Executor& executor, const fabric::Uri& uri,
                            const std::vector<std::string>& args) override;

  // Fences the one before, walks, and lets the new one take the ring over.
  Result<std::vector<std::byte>> on_hello(uint64_t token,
                                          std::span<const std::byte> hello) override;
  void on_call(fabric::RpcPeer& peer, fabric::RpcCall call) override;

 private:
  void read_ring(fabric::RpcCall call);
  void truncate_ring(fabric::RpcCall call);
  void read_tail(fabric::RpcCall call);

  std::vector<std::byte> bytes_;
  std::unique_ptr<persist::Memory> memory_;
  std::optional<persist::PersistService> writes_;
  std::optional<log::Ring> ring_;
  std::unique_ptr<fabric::Device> device_;
  std::unique_ptr<fabric::MemoryRegion> data_;
  alignas(64) uint64_t tail_ = 0;
  std::unique_ptr<fabric::MemoryRegion> tail_region_;
  std::unique_ptr<fabric::Listener> listener_;
};

}  // namespace pmstore::scenario
