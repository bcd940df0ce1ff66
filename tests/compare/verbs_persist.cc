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

#include "tests/compare/bare_verbs.h"

namespace {

using namespace yardstick;

constexpr size_t kDaxAlignment = 2 << 20;  // default alignment of a device DAX namespace

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
  const Connection connection = set_up(options.device, options.gid_index, pmem, mapped, buffer);
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
