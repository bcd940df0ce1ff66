// shm://, over libfabric. See fabric/device.h for the contract.
#pragma once

#include <memory>

#include "fabric/device.h"

namespace pmstore::fabric {

Result<std::unique_ptr<Device>> open_ofi_device(base::Executor& executor);

}  // namespace pmstore::fabric
