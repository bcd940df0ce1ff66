#include "persist/remote_writer.h"

namespace pmstore::persist {

void PersistService::on_call(fabric::RpcCall call, uint64_t, uint64_t) {
  call.reply_error(make_error(ErrorCode::kUnsupported, "two-sided persistent writes are not there yet"));
}

}  // namespace pmstore::persist
