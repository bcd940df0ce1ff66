// UnnoticingDevices: opens devices of the local provider that say, as an RNIC does, that they
// notice no dead peers. What listens on them gives its clients leases.
#pragma once

#include <memory>

#include "fabric/local/local_device.h"

namespace pmstore::harness {

class UnnoticingDevices final : public fabric::DeviceOpener {
 public:
  Result<std::unique_ptr<fabric::Device>> open(fabric::Scheme scheme,
                                               base::Executor& executor) override {
    PMSTORE_CHECK(scheme == fabric::Scheme::kLocal, "only the local provider can be told to");
    return fabric::open_local_device(executor, {.notices_dead_peers = false});
  }
};

}  // namespace pmstore::harness
