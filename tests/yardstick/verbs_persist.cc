// Yardstick: what a remote persistent write costs with verbs and nothing else.
//
// Initiator and target are one process: a reliable connection of a device to itself, the target
// memory being a device DAX mapping.  That is the least any library has to do, so the library's own
// figures, taken in the same run on the same machine, are compared with these.
//
// Each operation makes `bytes` bytes durable on a target whose RNIC writes end in the persistence
// domain once a READ behind them has completed (eADR, or ADR with DDIO off):
//   naive        post WRITE, wait, post READ, wait       two round trips
//   outstanding  post WRITE, post READ, wait for READ    one round trip, two doorbells
//   doorbell     post WRITE -> READ as one chain, wait   one round trip, one doorbell
// Only the READ is signaled where WRITE is not waited for.
//
// One thread, busy-polling.  Writes go round a window of `--window` slots, so that they are not all
// to one line.

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr size_t kDaxAlignment = 2 << 20;  // default alignment of a device DAX namespace
constexpr uint8_t kPort = 1;

struct Options {
  std::string device = "rxe0";
  std::string dax;
  int gid_index = 1;
  uint32_t bytes = 64;
  uint32_t ops = 1000;
  uint32_t warmup = 100;
  uint32_t window = 1024;
  std::string strategy = "all";
};

[[noreturn]] void fail(const char* what, const char* why, const char* what_to_do) {
  std::fprintf(stderr, "verbs_persist_yardstick: %s: %s; %s\n", what, why, what_to_do);
  std::exit(1);
}

[[noreturn]] void usage(int status) {
  std::fprintf(
      status ? stderr : stdout,
      "usage: verbs_persist_yardstick [OPTION...]\n"
      "\n"
      "Measures remote persistent writes over one loopback connection with verbs alone and\n"
      "prints one JSON object per strategy: {\"strategy\", \"p50_us\", \"p99_us\", \"ops\"}.\n"
      "\n"
      "  --dax PATH        target memory, a device DAX (default $PMSTORE_DAX)\n"
      "  --device NAME     RDMA device (default rxe0)\n"
      "  --gid-index N     its GID (default 1, the IPv4 one of rxe)\n"
      "  --bytes N         bytes per write (default 64)\n"
      "  --ops N           operations measured per strategy (default 1000)\n"
      "  --warmup N        operations before that (default 100)\n"
      "  --window N        slots that the writes go round (default 1024)\n"
      "  --strategy NAME   naive, outstanding, doorbell or all (default all)\n"
      "\n"
      "Overwrites the first window x bytes of PATH.\n"
      "example: verbs_persist_yardstick --dax /dev/dax0.0 --ops 1000\n");
  std::exit(status);
}

uint32_t number(std::string_view option, const char* text) {
  char* end = nullptr;
  const unsigned long value = std::strtoul(text, &end, 10);
  if (*text == '\0' || *end != '\0' || value > (1U << 30)) {
    fail(std::string(option).c_str(), "not a number up to 2^30", "see --help");
  }
  return static_cast<uint32_t>(value);
}

Options parse(int argc, char** argv) {
  Options options;
  if (const char* dax = std::getenv("PMSTORE_DAX")) {
    options.dax = dax;
  }
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--help" || option == "-h") {
      usage(0);
    }
    if (i + 1 == argc) {
      usage(2);
    }
    const char* value = argv[++i];
    if (option == "--dax") {
      options.dax = value;
    } else if (option == "--device") {
      options.device = value;
    } else if (option == "--gid-index") {
      options.gid_index = static_cast<int>(number(option, value));
    } else if (option == "--bytes") {
      options.bytes = number(option, value);
    } else if (option == "--ops") {
      options.ops = number(option, value);
    } else if (option == "--warmup") {
      options.warmup = number(option, value);
    } else if (option == "--window") {
      options.window = number(option, value);
    } else if (option == "--strategy") {
      options.strategy = value;
    } else {
      usage(2);
    }
  }
  constexpr std::array<std::string_view, 4> kNames{"naive", "outstanding", "doorbell", "all"};
  if (std::find(kNames.begin(), kNames.end(), options.strategy) == kNames.end()) {
    usage(2);
  }
  if (options.bytes == 0 || options.ops == 0 || options.window == 0) {
    usage(2);
  }
  return options;
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

ibv_context* open_device(const std::string& name) {
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

void connect(ibv_qp* qp, uint32_t peer, const ibv_gid& gid, const ibv_port_attr& port,
             int gid_index) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = kPort;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  if (ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0) {
    fail("queue pair", "INIT refused", "check the device");
  }
  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = port.active_mtu;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = 1;
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
  attr.max_rd_atomic = 1;
  if (ibv_modify_qp(qp, &attr,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) != 0) {
    fail("queue pair", "RTS refused", "check the device");
  }
}

Connection set_up(const Options& options, std::byte* pmem, size_t pmem_bytes,
                  std::vector<std::byte>& buffer) {
  Connection c;
  c.context = open_device(options.device);
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
      ibv_query_gid(c.context, kPort, options.gid_index, &gid) != 0) {
    fail("RDMA device", "no such port or GID", "check --gid-index");
  }
  connect(c.initiator, c.target->qp_num, gid, port, options.gid_index);
  connect(c.target, c.initiator->qp_num, gid, port, options.gid_index);
  c.local = ibv_reg_mr(c.pd, buffer.data(), buffer.size(), IBV_ACCESS_LOCAL_WRITE);
  c.remote = ibv_reg_mr(c.pd, pmem, pmem_bytes,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
  if (c.local == nullptr || c.remote == nullptr) {
    fail("memory region", std::strerror(errno),
         "raise ulimit -l; fsdax files cannot be registered");
  }
  return c;
}

void wait_completion(ibv_cq* cq) {
  ibv_wc wc{};
  int count = 0;
  while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) {
  }
  if (count < 0 || wc.status != IBV_WC_SUCCESS) {
    fail("completion", count < 0 ? "poll failed" : ibv_wc_status_str(wc.status),
         "check the device");
  }
}

void post(ibv_qp* qp, ibv_send_wr* wr) {
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

double percentile(const std::vector<double>& sorted, double fraction) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(fraction * last + 0.5)];
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (options.dax.empty()) {
    fail("no target memory", "neither --dax nor PMSTORE_DAX is given", "give --dax /dev/dax0.0");
  }
  const size_t wanted = size_t{options.window} * options.bytes;
  const size_t mapped = (wanted + kDaxAlignment - 1) / kDaxAlignment * kDaxAlignment;
  const int fd = open(options.dax.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    fail(options.dax.c_str(), std::strerror(errno), "give the path of a device DAX");
  }
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) {
    fail(options.dax.c_str(), std::strerror(errno), "use a smaller --window or --bytes");
  }
  auto* pmem = static_cast<std::byte*>(mapping);
  std::vector<std::byte> buffer(size_t{options.bytes} + 64, std::byte{0x5a});
  const Connection connection = set_up(options, pmem, mapped, buffer);
  PersistentWrite write(connection, pmem, buffer.data(), options.bytes);

  constexpr std::array<std::pair<const char*, Strategy>, 3> kStrategies{
      {{"naive", Strategy::naive},
       {"outstanding", Strategy::outstanding},
       {"doorbell", Strategy::doorbell}}};
  // In turns, so that a slow moment of the machine is not charged to one strategy.
  std::array<std::vector<double>, kStrategies.size()> us;
  for (uint32_t i = 0; i < options.warmup + options.ops; ++i) {
    for (size_t s = 0; s < kStrategies.size(); ++s) {
      if (options.strategy != "all" && options.strategy != kStrategies[s].first) {
        continue;
      }
      buffer[0] = static_cast<std::byte>(i + s);
      const uint32_t slot = i % options.window;
      const auto begin = std::chrono::steady_clock::now();
      write.run(kStrategies[s].second, slot);
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - begin;
      const volatile std::byte& landed = pmem[size_t{slot} * options.bytes];
      if (landed != buffer[0]) {
        fail("target memory", "a write that completed is not there", "check the device");
      }
      if (i >= options.warmup) {
        us[s].push_back(took.count());
      }
    }
  }
  for (size_t s = 0; s < kStrategies.size(); ++s) {
    if (us[s].empty()) {
      continue;
    }
    std::sort(us[s].begin(), us[s].end());
    std::printf("{\"strategy\": \"%s\", \"p50_us\": %.2f, \"p99_us\": %.2f, \"ops\": %u}\n",
                kStrategies[s].first, percentile(us[s], 0.50), percentile(us[s], 0.99),
                options.ops);
  }
  return 0;
}
