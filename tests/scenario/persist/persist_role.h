// The target of the persist scenarios: a pool, one extent of it granted to every client, the
// two-sided service, and control calls that tell what arrived.
//
// Arguments: the domain to assume ("none", "adr", "eadr"), or "detected". The pool is the device
// $PMSTORE_DAX where that is set (its content is lost), else a file that is gone when the role is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fabric/device.h"
#include "persist/pool.h"
#include "persist/remote_writer.h"
#include "tests/harness/rpc_test_server.h"
#include "tests/scenario/harness.h"

namespace pmstore::scenario {

inline constexpr uint64_t kGrantedBytes = 8u << 20;
inline constexpr char kDetected[] = "detected";

struct PersistHello {
  fabric::RemoteRegion replies;  // of the client
};

struct PersistAnswer {
  fabric::RemoteRegion granted;
  fabric::RemoteRegion requests;
  persist::Domain domain;
  persist::WriteLanding landing;
  uint8_t native_flush;
};

enum PersistMethod : uint16_t { kContentSum = 1, kPersistStats = 2, kClear = 3 };

struct ContentRange {
  uint64_t offset;
  uint64_t bytes;
};

class PersistRole final : public Role, public harness::RpcTestServer {
 public:
  ~PersistRole() override;
  Result<fabric::Uri> start(base::Executor& executor, const fabric::Uri& uri,
                            const std::vector<std::string>& args) override;

  Result<std::vector<std::byte>> on_hello(uint64_t token,
                                          std::span<const std::byte> hello) override;
  void on_call(fabric::RpcPeer& peer, fabric::RpcCall call) override;

 private:
  Status open_pool(const std::string& domain);
  void reply_sum(fabric::RpcCall call);

  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<persist::PersistService> service_;
  persist::Extent granted_{};
  std::unique_ptr<fabric::Device> device_;
  std::unique_ptr<fabric::MemoryRegion> region_;
  std::unique_ptr<fabric::Listener> listener_;
};

}  // namespace pmstore::scenario
