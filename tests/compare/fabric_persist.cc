// What the library adds to a remote persistent write: each operation is done once with verbs alone
// (bare_verbs.h) and once through fabric::Connection, from a coroutine on an executor. They take
// turns within one run, since a machine that others use is a different one a second later. Fails
// when the library's doorbell median is more than --limit percent over the bare one, or when its
// doorbell is not faster than its naive way.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fabric/device.h"
#include "tests/compare/bare_verbs.h"

namespace pmstore {
namespace {

using fabric::Access;
using fabric::Batch;
using fabric::Completion;

struct Options {
  std::string dax;
  uint32_t bytes = 64;
  uint32_t ops = 1000;
  uint32_t warmup = 100;
  uint32_t window = 1024;
  double limit_percent = 10;
  std::string device = "rxe0";
  int gid_index = 1;
};

enum Strategy : size_t { kNaive, kOutstanding, kDoorbell, kStrategies };
constexpr const char* kNames[kStrategies] = {"naive", "outstanding", "doorbell"};

struct Memory {
  std::unique_ptr<fabric::MemoryRegion> target;
  std::unique_ptr<fabric::MemoryRegion> buffer;
};

base::Task<Status> persist(fabric::Connection& connection, Strategy strategy, const Memory& memory,
                           uint64_t offset, uint32_t bytes) {
  const uint32_t read_bytes = std::min<uint32_t>(bytes, 8);
  std::byte* local = memory.buffer->bytes().data();
  const fabric::LocalBuffer source{local, bytes, memory.buffer.get()};
  const fabric::LocalBuffer read_back{local + bytes, read_bytes, memory.buffer.get()};
  const fabric::RemoteRegion& remote = memory.target->remote();
  Batch first;
  first.write(source, remote.at(offset));
  if (strategy == kDoorbell) {
    first.read(read_back, remote.at(offset + bytes - read_bytes));
    co_return co_await connection.execute(first);
  }
  if (strategy == kNaive) {
    PMSTORE_CO_TRY_STATUS(co_await connection.execute(first));
  } else {
    PMSTORE_CO_TRY_STATUS(connection.post(first, nullptr));
  }
  Batch second;
  second.read(read_back, remote.at(offset + bytes - read_bytes));
  co_return co_await connection.execute(second);
}

constexpr yardstick::Strategy kBare[kStrategies] = {
    yardstick::Strategy::naive, yardstick::Strategy::outstanding, yardstick::Strategy::doorbell};

struct Times {
  std::vector<double> bare_us;
  std::vector<double> library_us;
};

base::Task<Status> measure(base::Executor& executor, fabric::Device& device, const Memory& memory,
                           yardstick::PersistentWrite& bare, const Options& options,
                           Times (&times)[kStrategies]) {
  PMSTORE_CO_TRY(const auto connection, co_await device.loopback());
  std::byte* local = memory.buffer->bytes().data();
  const std::byte* target = memory.target->bytes().data();
  for (uint32_t i = 0; i < options.warmup + options.ops; ++i) {
    for (size_t s = 0; s < kStrategies; ++s) {
      const uint32_t slot = i % options.window;
      const uint64_t offset = uint64_t{slot} * options.bytes;
      local[0] = static_cast<std::byte>(i + s);
      const uint64_t begin_ns = executor.now_ns();
      PMSTORE_CO_TRY_STATUS(
          co_await persist(*connection, static_cast<Strategy>(s), memory, offset, options.bytes));
      const uint64_t library_ns = executor.now_ns();
      if (*const_cast<const volatile std::byte*>(target + offset) != local[0]) {
        co_return make_error(ErrorCode::kIo, "a write that completed is not there");
      }
      const uint64_t bare_begin_ns = executor.now_ns();
      bare.run(kBare[s], slot);
      const uint64_t bare_ns = executor.now_ns();
      if (i < options.warmup) continue;
      times[s].library_us.push_back(static_cast<double>(library_ns - begin_ns) / 1000);
      times[s].bare_us.push_back(static_cast<double>(bare_ns - bare_begin_ns) / 1000);
    }
  }
  co_return Status{};
}

double print(const char* by, const char* strategy, std::vector<double>& us) {
  std::sort(us.begin(), us.end());
  const double median = yardstick::percentile(us, 0.50);
  std::printf(
      "{\"by\": \"%s\", \"strategy\": \"%s\", \"p50_us\": %.2f, \"p99_us\": %.2f, \"ops\": %zu}\n",
      by, strategy, median, yardstick::percentile(us, 0.99), us.size());
  return median;
}

Status judge(Times (&times)[kStrategies], double limit_percent) {
  double bare[kStrategies];
  double library[kStrategies];
  for (size_t s = 0; s < kStrategies; ++s) {
    bare[s] = print("bare", kNames[s], times[s].bare_us);
    library[s] = print("library", kNames[s], times[s].library_us);
  }
  const double over_percent = (library[kDoorbell] / bare[kDoorbell] - 1) * 100;
  std::printf("{\"library_over_bare_percent\": %.1f, \"doorbell_of_naive\": %.2f}\n", over_percent,
              library[kDoorbell] / library[kNaive]);
  if (over_percent > limit_percent) {
    return make_error(ErrorCode::kUnsupported, "the library costs too much over bare verbs");
  }
  if (library[kDoorbell] >= library[kNaive]) {
    return make_error(ErrorCode::kUnsupported, "one doorbell is not faster than two round trips");
  }
  return {};
}

Status run(const Options& options) {
  constexpr size_t kDaxAlignment = 2u << 20;
  const size_t wanted = size_t{options.window} * options.bytes;
  const size_t mapped = (wanted + kDaxAlignment - 1) / kDaxAlignment * kDaxAlignment;
  const int fd = open(options.dax.c_str(), O_RDWR | O_CLOEXEC);
  void* mapping =
      fd < 0 ? MAP_FAILED : mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) {
    return make_error(ErrorCode::kIo, options.dax + ": " + std::strerror(errno) +
                                          "; give the path of a device DAX");
  }
  base::RealClock clock;
  base::Executor executor(clock);
  PMSTORE_TRY(const auto device, fabric::open_device(fabric::Scheme::kVerbs, executor));
  std::vector<std::byte> buffer(options.bytes + 64, std::byte{0x5a});
  Memory memory;
  PMSTORE_TRY(memory.target, device->register_memory({static_cast<std::byte*>(mapping), mapped},
                                                     Access::kRemoteRead | Access::kRemoteWrite));
  PMSTORE_TRY(memory.buffer, device->register_memory(buffer, Access::kLocal));
  std::vector<std::byte> bare_buffer(buffer);
  const yardstick::Connection connection = yardstick::set_up(
      options.device, options.gid_index, static_cast<std::byte*>(mapping), mapped, bare_buffer);
  yardstick::PersistentWrite bare(connection, static_cast<std::byte*>(mapping), bare_buffer.data(),
                                  options.bytes);
  Times times[kStrategies];
  PMSTORE_TRY_STATUS(executor.run(measure(executor, *device, memory, bare, options, times)));
  return judge(times, options.limit_percent);
}

}  // namespace
}  // namespace pmstore

int main(int argc, char** argv) {
  CLI::App app{
      "Measures remote persistent writes over a loopback connection, with bare verbs and through\n"
      "the library in turns. Overwrites the first window x bytes of the target.\n"
      "example: tests/guest/run --domain eadr -- build/bin/fabric_persist_yardstick"};
  pmstore::Options options;
  app.add_option("--dax", options.dax, "target memory, a device DAX")
      ->envname("PMSTORE_DAX")
      ->required();
  app.add_option("--bytes", options.bytes, "bytes per write")->check(CLI::Range(1, 1 << 20));
  app.add_option("--ops", options.ops, "operations measured")->check(CLI::Range(1, 1 << 24));
  app.add_option("--warmup", options.warmup, "operations before that");
  app.add_option("--window", options.window, "slots written in turn")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--limit", options.limit_percent, "percent that the library may cost over bare");
  app.add_option("--device", options.device, "RDMA device")->envname("PMSTORE_RDMA_DEVICE");
  app.add_option("--gid-index", options.gid_index, "its GID, for the bare side")
      ->envname("PMSTORE_GID_INDEX");
  CLI11_PARSE(app, argc, argv);
  const pmstore::Status status = pmstore::run(options);
  if (status) return 0;
  std::fprintf(stderr, "fabric_persist_yardstick: %s\n", status.error().to_string().c_str());
  return 1;
}
