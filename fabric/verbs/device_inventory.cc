#include "fabric/verbs/device_inventory.h"

#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "fabric/verbs/internal/rdma_device.h"

namespace pmstore::fabric {
namespace {

// IB_UVERBS_DEVICE_FLUSH_PERSISTENT of Linux 6.2 and later (rdma/ib_user_verbs.h). The library
// hands it on whether it knows FLUSH or not.
constexpr uint64_t kFlushPersistent = uint64_t{1} << 39;

uint32_t bytes_of(ibv_mtu mtu) { return 128u << mtu; }  // IBV_MTU_256 is 1

Error device_error(const std::string& name, const char* what, int error) {
  return make_error(ErrorCode::kIo,
                    fmt::format("cannot {} RDMA device {}: {}: check that /dev/infiniband is there "
                                "and that you may use it",
                                what, name, std::strerror(error)));
}

Result<VerbsDeviceFacts> ask(ibv_device* device) {
  VerbsDeviceFacts found;
  found.name = ibv_get_device_name(device);
  const std::unique_ptr<ibv_context, decltype(&ibv_close_device)> context(ibv_open_device(device),
                                                                          &ibv_close_device);
  if (!context) return device_error(found.name, "open", errno);
  ibv_device_attr_ex attributes{};
  const int failed = ibv_query_device_ex(context.get(), nullptr, &attributes);
  if (failed != 0) return device_error(found.name, "query", failed);
  switch (attributes.orig_attr.atomic_cap) {
    case IBV_ATOMIC_HCA: found.atomics = AtomicScope::kDevice; break;
    case IBV_ATOMIC_GLOB: found.atomics = AtomicScope::kGlobal; break;
    case IBV_ATOMIC_NONE: break;
  }
  found.software = verbs::is_cpu_moving_data(device->ibdev_path, attributes.orig_attr.vendor_id);
  const ibv_odp_caps& paging = attributes.odp_caps;
  found.on_demand_paging = (paging.general_caps & IBV_ODP_SUPPORT) != 0 &&
                           (paging.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_WRITE) != 0;
  found.native_flush = (attributes.device_cap_flags_ex & kFlushPersistent) != 0;
  for (uint32_t number = 1; number <= attributes.orig_attr.phys_port_cnt; ++number) {
    ibv_port_attr port{};
    const int port_failed = ibv_query_port(context.get(), static_cast<uint8_t>(number), &port);
    if (port_failed != 0) return device_error(found.name, "query", port_failed);
    found.ports.push_back({number, port.state == IBV_PORT_ACTIVE,
                           port.link_layer == IBV_LINK_LAYER_ETHERNET, bytes_of(port.active_mtu),
                           bytes_of(port.max_mtu)});
  }
  return found;
}

}  // namespace

Result<std::vector<VerbsDeviceFacts>> list_verbs_devices() {
  int count = 0;
  errno = 0;
  const std::unique_ptr<ibv_device*, decltype(&ibv_free_device_list)> devices(
      ibv_get_device_list(&count), &ibv_free_device_list);
  std::vector<VerbsDeviceFacts> found;
  if (!devices) {
    if (errno == 0 || errno == ENOSYS) return found;  // no RDMA in this kernel
    return make_error(ErrorCode::kIo,
                      fmt::format("cannot list RDMA devices: {}: check that /sys is mounted and "
                                  "/dev/infiniband is there",
                                  std::strerror(errno)));
  }
  for (int i = 0; i < count; ++i) {
    PMSTORE_TRY(auto facts, ask(devices.get()[i]));
    found.push_back(std::move(facts));
  }
  return found;
}

}  // namespace pmstore::fabric
