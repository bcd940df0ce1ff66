// shm://, over memory that two processes of one host share. See fabric/device.h for the contract.
#pragma once

#include <memory>

#include "fabric/device.h"

namespace pmstore::fabric {

Result<std::unique_ptr<Device>> open_shm_device(base::Executor& executor);

}  // namespace pmstore::fabric
