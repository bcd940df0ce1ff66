#include "fabric/ofi/ofi_device.h"

#include "fabric/ofi/internal/shm_device.h"

namespace pmstore::fabric {

Result<std::unique_ptr<Device>> open_ofi_device(base::Executor& executor) {
  return ofi::ShmDevice::open(executor);
}

}  // namespace pmstore::fabric
