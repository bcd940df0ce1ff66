#include "fabric/verbs/verbs_device.h"

namespace pmstore::fabric {

Result<std::unique_ptr<Device>> open_verbs_device(base::Executor&) {
  return make_error(ErrorCode::kUnsupported, "the verbs provider is not there yet");
}

}  // namespace pmstore::fabric
