// The library's side of verbs_persist_yardstick: the same remote persistent writes through
// fabric::Connection, from a coroutine on an executor, over a connection of the device to itself.
// Same output, so that the two are compared line by line; compare_verbs does that.
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

base::Task<Status> measure(base::Executor& executor, fabric::Device& device, const Memory& memory,
                           const Options& options, std::vector<double> (&us)[kStrategies]) {
  PMSTORE_CO_TRY(const auto connection, co_await device.loopback());
  std::byte* local = memory.buffer->bytes().data();
  const std::byte* target = memory.target->bytes().data();
  for (uint32_t i = 0; i < options.warmup + options.ops; ++i) {
    for (size_t s = 0; s < kStrategies; ++s) {
      local[0] = static_cast<std::byte>(i + s);
      const uint64_t offset = uint64_t{i % options.window} * options.bytes;
      const uint64_t begin_ns = executor.now_ns();
      PMSTORE_CO_TRY_STATUS(
          co_await persist(*connection, static_cast<Strategy>(s), memory, offset, options.bytes));
      const auto took_ns = static_cast<double>(executor.now_ns() - begin_ns);
      if (*const_cast<const volatile std::byte*>(target + offset) != local[0]) {
        co_return make_error(ErrorCode::kIo, "a write that completed is not there");
      }
      if (i >= options.warmup) us[s].push_back(took_ns / 1000);
    }
  }
  co_return Status{};
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
  std::vector<double> us[kStrategies];
  PMSTORE_TRY_STATUS(executor.run(measure(executor, *device, memory, options, us)));
  for (size_t s = 0; s < kStrategies; ++s) {
    std::sort(us[s].begin(), us[s].end());
    const auto at = [&](double fraction) {
      return us[s][static_cast<size_t>(fraction * static_cast<double>(us[s].size() - 1) + 0.5)];
    };
    std::printf("{\"strategy\": \"%s\", \"p50_us\": %.2f, \"p99_us\": %.2f, \"ops\": %u}\n",
                kNames[s], at(0.50), at(0.99), options.ops);
  }
  return {};
}

}  // namespace
}  // namespace pmstore

int main(int argc, char** argv) {
  CLI::App app{
      "Measures remote persistent writes through fabric::Connection over one loopback\n"
      "connection. Overwrites the first window x bytes of the target.\n"
      "example: fabric_persist_yardstick --dax /dev/dax0.0"};
  pmstore::Options options;
  app.add_option("--dax", options.dax, "target memory, a device DAX")
      ->envname("PMSTORE_DAX")
      ->required();
  app.add_option("--bytes", options.bytes, "bytes per write")->check(CLI::Range(1, 1 << 20));
  app.add_option("--ops", options.ops, "operations measured")->check(CLI::Range(1, 1 << 24));
  app.add_option("--warmup", options.warmup, "operations before that");
  app.add_option("--window", options.window, "slots written in turn")
      ->check(CLI::Range(1, 1 << 20));
  CLI11_PARSE(app, argc, argv);
  const pmstore::Status status = pmstore::run(options);
  if (status) return 0;
  std::fprintf(stderr, "fabric_persist_yardstick: %s\n", status.error().to_string().c_str());
  return 1;
}
