#include "fabric/device.h"

#include "fabric/local/local_device.h"
#include "fabric/shm/shm_device.h"
#include "fabric/tcp/tcp_device.h"
#include "fabric/verbs/verbs_device.h"

namespace pmstore::fabric {

Result<std::unique_ptr<Device>> open_device(Scheme scheme, base::Executor& executor) {
  switch (scheme) {
    case Scheme::kLocal: return open_local_device(executor);
    case Scheme::kTcp: return open_tcp_device(executor);
    case Scheme::kShm: return open_shm_device(executor);
    case Scheme::kVerbs: return open_verbs_device(executor);
  }
  return make_error(ErrorCode::kInvalidArgument, "unknown fabric scheme");
}

Result<std::unique_ptr<Device>> open_device(Scheme scheme, base::Executor& executor,
                                            DeviceOpener* devices) {
  return devices == nullptr ? open_device(scheme, executor) : devices->open(scheme, executor);
}

}  // namespace pmstore::fabric
