// Owners of what libibverbs and librdmacm hand out. Each is destroyed by the library's own
// function; members that need each other are declared in the order in which they depend.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <memory>

namespace pmstore::fabric::verbs {

template <auto kDestroy>
struct Destroy {
  template <typename T>
  void operator()(T* object) const {
    kDestroy(object);
  }
};

using ContextHandle = std::unique_ptr<ibv_context, Destroy<&ibv_close_device>>;
using ProtectionDomainHandle = std::unique_ptr<ibv_pd, Destroy<&ibv_dealloc_pd>>;
using QueueHandle = std::unique_ptr<ibv_cq, Destroy<&ibv_destroy_cq>>;
using QueuePairHandle = std::unique_ptr<ibv_qp, Destroy<&ibv_destroy_qp>>;
using RegistrationHandle = std::unique_ptr<ibv_mr, Destroy<&ibv_dereg_mr>>;
using CompletionChannelHandle =
    std::unique_ptr<ibv_comp_channel, Destroy<&ibv_destroy_comp_channel>>;
using ChannelHandle = std::unique_ptr<rdma_event_channel, Destroy<&rdma_destroy_event_channel>>;
using CmIdHandle = std::unique_ptr<rdma_cm_id, Destroy<&rdma_destroy_id>>;

}  // namespace pmstore::fabric::verbs
