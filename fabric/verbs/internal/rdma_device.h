// RdmaDevice: the RDMA device that this process uses, opened, and what it can do.
//
// Every pmstore Device opens it again for itself: a context of its own has doorbell pages of its
// own, so executors never share one. Threads: belongs to one executor.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "fabric/capabilities.h"
#include "fabric/verbs/internal/handles.h"

namespace pmstore::fabric::verbs {

struct RdmaDevice {
  ContextHandle context;
  std::string name;
  uint8_t port = 0;  // the first active one
  uint16_t port_lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  uint32_t max_message_bytes = 0;
  uint32_t max_queue_entries = 0;  // of one completion queue
  // READs and atomics under way on one queue pair, as initiator (1 where the device's fence does
  // not work) and as target.
  uint8_t max_initiated = 0;
  uint8_t max_answered = 0;
  Capabilities capabilities;  // but for max_inline_bytes, which each queue pair has of its own
  // The address for connections of the device to itself.
  uint8_t gid_index = 0;
  ibv_gid gid{};
};

// Opens the device that the environment variable PMSTORE_RDMA_DEVICE names, or else the first one
// with an active port. Unsupported, with what to do, when there is none or it cannot do what this
// provider needs.
Result<RdmaDevice> open_rdma_device();

// True unless the device in `sysfs_path` (/sys/class/infiniband/NAME) is certainly hardware that
// moves data by itself through PCIe. A wrong "true" costs speed, a wrong "false" costs data.
bool is_cpu_moving_data(const std::string& sysfs_path, uint32_t vendor_id);

}  // namespace pmstore::fabric::verbs
