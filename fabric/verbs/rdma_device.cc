#include "fabric/verbs/internal/rdma_device.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

namespace pmstore::fabric::verbs {

namespace {

constexpr uint32_t kRxeVendor = 0xffffff;  // RXE_VENDOR_ID, Linux drivers/infiniband/sw/rxe
constexpr uint32_t kSiwVendor = 0x626d74;  // SIW_VENDOR_ID, Linux drivers/infiniband/sw/siw

struct DeviceList {
  DeviceList() : devices(ibv_get_device_list(&count)) {}
  ~DeviceList() {
    if (devices != nullptr) ibv_free_device_list(devices);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  std::span<ibv_device*> all() const {
    return {devices, devices == nullptr ? 0 : static_cast<size_t>(count)};
  }
  int count = 0;
  ibv_device** devices;
};

Error no_device() {
  return make_error(
      ErrorCode::kUnsupported,
      "no RDMA device: this machine has none that is usable; add a software one with `rdma link "
      "add rxe0 type rxe netdev eth0` (as root), or use tcp://HOST:PORT or shm://NAME");
}

Error refused(const std::string& name, const std::string& why, const std::string& what_to_do) {
  return make_error(ErrorCode::kUnsupported,
                    "RDMA device " + name + " cannot be used: " + why + "; " + what_to_do);
}

Status query_port(RdmaDevice& device, uint8_t ports) {
  for (uint8_t port = 1; port <= ports; ++port) {
    ibv_port_attr attr{};
    if (ibv_query_port(device.context.get(), port, &attr) != 0) continue;
    if (attr.state != IBV_PORT_ACTIVE) continue;
    device.port = port;
    device.port_lid = attr.lid;
    device.mtu = attr.active_mtu;
    device.max_message_bytes = attr.max_msg_sz;
    return {};
  }
  return refused(device.name, "it has no active port",
                 "bring its network interface up, or choose another with PMSTORE_RDMA_DEVICE");
}

// For loopback any address of the port will do; the IPv4 one of RoCE v2 is there wherever rdma_cm
// works, and link-local ones may be missing.
Status query_gid(RdmaDevice& device) {
  std::vector<ibv_gid_entry> entries(1024);
  const ssize_t count =
      ibv_query_gid_table(device.context.get(), entries.data(), entries.size(), 0);
  const ibv_gid_entry* best = nullptr;
  int best_rank = -1;
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
    if (entry.port_num != device.port || entry.gid_index > UINT8_MAX) continue;
    constexpr uint8_t kIpv4Mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    const bool ipv4 = std::memcmp(entry.gid.raw, kIpv4Mapped, sizeof(kIpv4Mapped)) == 0;
    const int rank = (entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 2 : 0) + (ipv4 ? 1 : 0);
    if (rank > best_rank) {
      best = &entry;
      best_rank = rank;
    }
  }
  if (best == nullptr) {
    return refused(device.name, "its port has no address",
                   "give its network interface an IP address");
  }
  device.gid = best->gid;
  device.gid_index = static_cast<uint8_t>(best->gid_index);
  return {};
}

uint8_t depth(int of_device) { return static_cast<uint8_t>(std::clamp(of_device, 1, 128)); }

Capabilities capabilities_of(const ibv_device_attr& attr, bool cpu_moves_data) {
  Capabilities result;
  switch (attr.atomic_cap) {
    case IBV_ATOMIC_HCA: result.atomics = AtomicScope::kDevice; break;
    case IBV_ATOMIC_GLOB: result.atomics = AtomicScope::kGlobal; break;
    case IBV_ATOMIC_NONE: result.atomics = AtomicScope::kNone; break;
  }
  // The reliable connection of verbs promises these to every posted chain; what it leaves open, an
  // atomic behind a READ, is closed by a fence in the data path.
  result.read_after_read = true;
  result.read_after_write = true;
  result.write_after_write = true;
  result.atomic_after_write = true;
  result.cpu_moves_data = cpu_moves_data;
  return result;
}

Result<RdmaDevice> open_one(ibv_device* listed) {
  RdmaDevice device;
  device.name = ibv_get_device_name(listed);
  if (listed->transport_type != IBV_TRANSPORT_IB) {
    return refused(device.name, "it speaks iWARP, which has no WRITE-with-immediate",
                   "use an InfiniBand or RoCE device, or tcp://HOST:PORT");
  }
  device.context.reset(ibv_open_device(listed));
  if (!device.context) {
    return refused(device.name, std::string("it does not open (") + std::strerror(errno) + ")",
                   "check the permissions of /dev/infiniband/uverbs*");
  }
  ibv_device_attr attr{};
  if (const int error = ibv_query_device(device.context.get(), &attr); error != 0) {
    return refused(device.name, std::string("query failed (") + std::strerror(error) + ")",
                   "check the kernel log");
  }
  PMSTORE_TRY_STATUS(query_port(device, attr.phys_port_cnt));
  PMSTORE_TRY_STATUS(query_gid(device));
  device.max_queue_entries = static_cast<uint32_t>(attr.max_cqe);
  // rxe (Linux 6.1) never sends a fenced request a second time: it waits for all READs
  // and atomics to complete, itself among them. One at a time needs no fence.
  device.max_initiated = attr.vendor_id == kRxeVendor ? 1 : depth(attr.max_qp_init_rd_atom);
  device.max_answered = depth(attr.max_qp_rd_atom);
  device.capabilities =
      capabilities_of(attr, is_cpu_moving_data(listed->ibdev_path, attr.vendor_id));
  return device;
}

}  // namespace

bool is_cpu_moving_data(const std::string& sysfs_path, uint32_t vendor_id) {
  // The vendor alone would do for today's software devices. The parent is looked at as well because
  // a new one is on no list; and the vendor because rxe's parent may be the real card below it.
  if (vendor_id == kRxeVendor || vendor_id == kSiwVendor) return true;
  std::error_code error;
  if (std::filesystem::exists(sysfs_path + "/parent", error)) return true;  // rxe's own attribute
  const auto bus = std::filesystem::canonical(sysfs_path + "/device/subsystem", error);
  return error || bus.filename() != "pci";
}

Result<RdmaDevice> open_rdma_device() {
  const DeviceList list;
  if (list.all().empty()) return no_device();
  if (const char* wanted = std::getenv("PMSTORE_RDMA_DEVICE"); wanted != nullptr && *wanted != 0) {
    for (ibv_device* device : list.all()) {
      if (std::strcmp(ibv_get_device_name(device), wanted) == 0) return open_one(device);
    }
    return refused(wanted, "there is no such device",
                   "set PMSTORE_RDMA_DEVICE to one that ibv_devices lists, or unset it");
  }
  Result<RdmaDevice> first_error = no_device();
  for (ibv_device* device : list.all()) {
    Result<RdmaDevice> opened = open_one(device);
    if (opened) return opened;
    if (device == list.all().front()) first_error = std::move(opened);
  }
  return first_error;
}

}  // namespace pmstore::fabric::verbs
