#include "service/service.h"

#include <utility>

#include "service/host.h"

namespace pmstore::service {

base::Task<Result<std::unique_ptr<EndpointPart>>> Service::open(Endpoint&) {
  co_return std::unique_ptr<EndpointPart>();
}

void Service::on_persist_write(Session& session, fabric::RpcCall call) {
  host().drop_malformed(session, call);
}

}  // namespace pmstore::service
