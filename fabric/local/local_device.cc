#include "fabric/local/local_device.h"

namespace pmstore::fabric {

Result<std::unique_ptr<Device>> open_local_device(base::Executor&) {
  return make_error(ErrorCode::kUnsupported, "the local provider is not there yet");
}

}  // namespace pmstore::fabric
