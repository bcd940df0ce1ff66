// A loopback connection and remote persistent writes with verbs and nothing else: what the programs
// of this folder measure against, and what shows how a device behaves. It uses no code of the
// project on purpose. Errors end the program.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace yardstick {

constexpr uint8_t kPort = 1;

[[noreturn]] inline void fail(const char* what, const char* why, const char* what_to_do) {
  std::fprintf(stderr, "yardstick: %s: %s; %s\n", what, why, what_to_do);
  std::exit(1);
}

struct Connection {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* initiator = nullptr;
  ibv_qp* target = nullptr;
  ibv_mr* local = nullptr;
  ibv_mr* remote = nullptr;
};

inline ibv_context* open_device(const std::string& name) {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i) {
    if (name == ibv_get_device_name(devices[i])) {
      context = ibv_open_device(devices[i]);
    }
  }
  if (devices != nullptr) {
    ibv_free_device_list(devices);
  }
  if (context == nullptr) {
    fail(name.c_str(), "no such RDMA device", "see ibv_devices and give --device");
  }
  return context;
}

// READs and atomics under way at a time, and what a connection may do besides READ and WRITE.
struct Shape {
  uint8_t depth = 1;
  int more_rights = 0;  // IBV_ACCESS_*
};

inline void connect(ibv_qp* qp, uint32_t peer, const ibv_gid& gid, const ibv_port_attr& port,
                    int gid_index, Shape shape) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = kPort;
  attr.qp_access_flags =
      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | static_cast<unsigned>(shape.more_rights);
  if (ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0) {
    fail("queue pair", "INIT refused", "check the device");
  }
  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = port.active_mtu;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = shape.depth;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = kPort;
  attr.ah_attr.dlid = port.lid;
  attr.ah_attr.grh.dgid = gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index);
  attr.ah_attr.grh.hop_limit = 1;
  if (ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0) {
    fail("queue pair", "RTR refused", "check --gid-index (ibv_devinfo -v)");
  }
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = shape.depth;
  if (ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) != 0) {
    fail("queue pair", "RTS refused", "check the device");
  }
}

inline Connection set_up(const std::string& device, int gid_index, std::byte* pmem,
                         size_t pmem_bytes, std::vector<std::byte>& buffer, Shape shape = {}) {
  Connection c;
  c.context = open_device(device);
  c.pd = ibv_alloc_pd(c.context);
  c.cq = ibv_create_cq(c.context, 16, nullptr, nullptr, 0);
  if (c.pd == nullptr || c.cq == nullptr) {
    fail("RDMA device", "no protection domain or completion queue", "check the device");
  }
  ibv_qp_init_attr init{};
  init.send_cq = c.cq;
  init.recv_cq = c.cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {.max_send_wr = 16,
              .max_recv_wr = 1,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  c.initiator = ibv_create_qp(c.pd, &init);
  c.target = ibv_create_qp(c.pd, &init);
  if (c.initiator == nullptr || c.target == nullptr) {
    fail("RDMA device", "no queue pair", "check the device");
  }
  ibv_port_attr port{};
  ibv_gid gid{};
  if (ibv_query_port(c.context, kPort, &port) != 0 ||
      ibv_query_gid(c.context, kPort, gid_index, &gid) != 0) {
    fail("RDMA device", "no such port or GID", "check --gid-index");
  }
  connect(c.initiator, c.target->qp_num, gid, port, gid_index, shape);
  connect(c.target, c.initiator->qp_num, gid, port, gid_index, shape);
  c.local = ibv_reg_mr(c.pd, buffer.data(), buffer.size(), IBV_ACCESS_LOCAL_WRITE);
  c.remote = ibv_reg_mr(c.pd, pmem, pmem_bytes,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                            shape.more_rights);
  if (c.local == nullptr || c.remote == nullptr) {
    fail("memory region", std::strerror(errno),
         "raise ulimit -l; fsdax files cannot be registered");
  }
  return c;
}

inline void wait_completion(ibv_cq* cq) {
  ibv_wc wc{};
  int count = 0;
  while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) {
  }
  if (count < 0 || wc.status != IBV_WC_SUCCESS) {
    fail("completion", count < 0 ? "poll failed" : ibv_wc_status_str(wc.status),
         "check the device");
  }
}

inline void post(ibv_qp* qp, ibv_send_wr* wr) {
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(qp, wr, &bad) != 0) {
    fail("ibv_post_send", "refused", "check the device");
  }
}

enum class Strategy { naive, outstanding, doorbell };

// A WRITE of one slot and a READ of its last bytes, ready to be posted for any slot.
class PersistentWrite {
 public:
  PersistentWrite(const Connection& c, std::byte* pmem, std::byte* buffer, uint32_t bytes)
      : connection_(c), pmem_(reinterpret_cast<uint64_t>(pmem)), bytes_(bytes) {
    const uint64_t local = reinterpret_cast<uint64_t>(buffer);
    read_bytes_ = std::min<uint32_t>(bytes, 8);
    write_sge_ = {.addr = local, .length = bytes, .lkey = c.local->lkey};
    read_sge_ = {.addr = local + bytes, .length = read_bytes_, .lkey = c.local->lkey};
    write_.sg_list = &write_sge_;
    write_.num_sge = 1;
    write_.opcode = IBV_WR_RDMA_WRITE;
    write_.wr.rdma.rkey = c.remote->rkey;
    read_.sg_list = &read_sge_;
    read_.num_sge = 1;
    read_.opcode = IBV_WR_RDMA_READ;
    read_.send_flags = IBV_SEND_SIGNALED;
    read_.wr.rdma.rkey = c.remote->rkey;
  }
  PersistentWrite(const PersistentWrite&) = delete;
  PersistentWrite& operator=(const PersistentWrite&) = delete;

  void run(Strategy strategy, uint32_t slot) {
    write_.wr.rdma.remote_addr = pmem_ + uint64_t{slot} * bytes_;
    read_.wr.rdma.remote_addr = write_.wr.rdma.remote_addr + bytes_ - read_bytes_;
    write_.send_flags = strategy == Strategy::naive ? IBV_SEND_SIGNALED : 0;
    write_.next = strategy == Strategy::doorbell ? &read_ : nullptr;
    post(connection_.initiator, &write_);
    if (strategy == Strategy::naive) {
      wait_completion(connection_.cq);
    }
    if (strategy != Strategy::doorbell) {
      post(connection_.initiator, &read_);
    }
    wait_completion(connection_.cq);
  }

 private:
  const Connection& connection_;
  uint64_t pmem_;
  uint32_t bytes_;
  uint32_t read_bytes_ = 0;
  ibv_sge write_sge_{};
  ibv_sge read_sge_{};
  ibv_send_wr write_{};
  ibv_send_wr read_{};
};

inline double percentile(const std::vector<double>& sorted, double fraction) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(fraction * last + 0.5)];
}

}  // namespace yardstick
