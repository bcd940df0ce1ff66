#include "fabric/ofi/ofi_device.h"

#include "fabric/ofi/internal/shm_device.h"
#include "fabric/ofi/internal/tcp_device.h"

namespace pmstore::fabric {

Result<std::unique_ptr<Device>> open_ofi_device(Scheme scheme, base::Executor& executor) {
  switch (scheme) {
    case Scheme::kTcp: return ofi::TcpDevice::open(executor);
    case Scheme::kShm: return ofi::ShmDevice::open(executor);
    default:
      return make_error(ErrorCode::kInvalidArgument, "libfabric serves tcp:// and shm:// only");
  }
}

}  // namespace pmstore::fabric
