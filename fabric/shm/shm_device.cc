#include "fabric/shm/shm_device.h"

#include "fabric/shm/internal/shm_device.h"

namespace pmstore::fabric {

Result<std::unique_ptr<Device>> open_shm_device(base::Executor& executor) {
  return std::unique_ptr<Device>(new shm::ShmDevice(executor));
}

}  // namespace pmstore::fabric
