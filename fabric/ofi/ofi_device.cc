#include "fabric/ofi/ofi_device.h"

namespace pmstore::fabric {

Result<std::unique_ptr<Device>> open_ofi_device(Scheme, base::Executor&) {
  return make_error(ErrorCode::kUnsupported, "the ofi provider is not there yet");
}

}  // namespace pmstore::fabric
