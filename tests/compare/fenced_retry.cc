// What an RDMA device does with a fenced atomic that it has to send again. Bare verbs, nothing of
// the project: docs/limits.md says why the library does not rely on the fence of Soft-RoCE.
//
// One chain: READ, WRITE with immediate, fetch-and-add. The target has no receive, so it refuses
// the immediate (receiver not ready), and whatever was sent behind it is thrown away there and has
// to be sent again, as behind a lost packet. 0.2 s later the target posts a receive, and the chain
// has to complete within milliseconds. A device whose fence waits for every READ and atomic under
// way, the fenced one itself among them, never completes it.
#include <array>
#include <chrono>
#include <string_view>
#include <thread>

#include "tests/compare/bare_verbs.h"

namespace {

using namespace yardstick;
using std::chrono::steady_clock;

constexpr size_t kBytes = 4096;

struct Options {
  std::string device = "rxe0";
  int gid_index = 1;
  int wait_ms = 3000;
};

struct Variant {
  uint8_t depth;
  bool fence;
};
// As verbs means it; the same without the fence; and what does without it.
constexpr std::array<Variant, 3> kVariants{{{16, true}, {16, false}, {1, false}}};

[[noreturn]] void usage(int status) {
  std::fprintf(
      status != 0 ? stderr : stdout,
      "usage: fenced_retry [OPTION...]\n"
      "\n"
      "Makes a device send a fetch-and-add behind a READ a second time, fenced and not, and\n"
      "prints one JSON object per variant: READs and atomics at a time, whether fenced,\n"
      "whether the chain completed, after how many ms (-1: not), and whether the target's\n"
      "memory was added to.\n"
      "\n"
      "  --device NAME    RDMA device (default rxe0)\n"
      "  --gid-index N    its GID (default 1, the IPv4 one of rxe)\n"
      "  --wait-ms N      how long to wait for the chain (default 3000)\n"
      "\n"
      "Exit status: 0 all completed, 3 one did not; 1 error, 2 wrong usage.\n"
      "example: fenced_retry --device rxe0\n");
  std::exit(status);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--help" || option == "-h") usage(0);
    if (i + 1 == argc) usage(2);
    const char* value = argv[++i];
    if (option == "--device") {
      options.device = value;
    } else if (option == "--gid-index") {
      options.gid_index = std::atoi(value);
    } else if (option == "--wait-ms") {
      options.wait_ms = std::atoi(value);
    } else {
      usage(2);
    }
  }
  if (options.wait_ms <= 0 || options.gid_index < 0) usage(2);
  return options;
}

void post_chain(const Connection& c, std::byte* local, std::byte* remote, bool fence) {
  std::array<ibv_sge, 2> sges{};
  std::array<ibv_send_wr, 3> wrs{};
  for (size_t i = 0; i < sges.size(); ++i) {
    sges[i] = {reinterpret_cast<uint64_t>(local + 8 * i), 8, c.local->lkey};
  }
  wrs[0].opcode = IBV_WR_RDMA_READ;
  wrs[0].sg_list = &sges[0];
  wrs[0].num_sge = 1;
  wrs[1].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  for (size_t i = 0; i < 2; ++i) {
    wrs[i].wr.rdma.remote_addr = reinterpret_cast<uint64_t>(remote);
    wrs[i].wr.rdma.rkey = c.remote->rkey;
    wrs[i].next = &wrs[i + 1];
  }
  wrs[2].opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wrs[2].send_flags = IBV_SEND_SIGNALED;
  if (fence) wrs[2].send_flags |= IBV_SEND_FENCE;
  wrs[2].sg_list = &sges[1];
  wrs[2].num_sge = 1;
  wrs[2].wr.atomic.remote_addr = reinterpret_cast<uint64_t>(remote);
  wrs[2].wr.atomic.rkey = c.remote->rkey;
  wrs[2].wr.atomic.compare_add = 1;
  post(c.initiator, wrs.data());
}

// The receive's completion, which comes first, and the chain's.
double wait_ms(const Connection& c, int longest_ms) {
  const auto begin = steady_clock::now();
  int left = 2;
  while (left > 0) {
    ibv_wc wc{};
    const int count = ibv_poll_cq(c.cq, 1, &wc);
    if (count < 0 || (count == 1 && wc.status != IBV_WC_SUCCESS)) {
      fail("completion", count < 0 ? "poll failed" : ibv_wc_status_str(wc.status),
           "check the device");
    }
    left -= count;
    if (steady_clock::now() - begin > std::chrono::milliseconds(longest_ms)) return -1;
  }
  return std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count();
}

// Whether the chain completed.
bool run(const Options& options, const Variant& variant) {
  alignas(64) std::array<std::byte, kBytes> target{};
  std::vector<std::byte> buffer(kBytes);
  const Connection c = set_up(options.device, options.gid_index, target.data(), kBytes, buffer,
                              {variant.depth, IBV_ACCESS_REMOTE_ATOMIC});
  post_chain(c, buffer.data(), target.data(), variant.fence);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));

  ibv_recv_wr receive{};
  ibv_recv_wr* refused = nullptr;
  if (ibv_post_recv(c.target, &receive, &refused) != 0) {
    fail("ibv_post_recv", "refused", "check the device");
  }
  const double took_ms = wait_ms(c, options.wait_ms);
  const bool executed = *reinterpret_cast<volatile uint64_t*>(target.data()) != 0;
  std::printf(
      "{\"depth\": %d, \"fence\": %s, \"completed\": %s, \"ms\": %.1f, "
      "\"executed\": %s}\n",
      variant.depth, variant.fence ? "true" : "false", took_ms >= 0 ? "true" : "false", took_ms,
      executed ? "true" : "false");
  ibv_destroy_qp(c.initiator);
  ibv_destroy_qp(c.target);
  ibv_dereg_mr(c.local);
  ibv_dereg_mr(c.remote);
  ibv_destroy_cq(c.cq);
  ibv_dealloc_pd(c.pd);
  ibv_close_device(c.context);
  return took_ms >= 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  bool all = true;
  for (const Variant& variant : kVariants) all = run(options, variant) && all;
  return all ? 0 : 3;
}
