// pmstore bench msync: how long a page takes to the disk, on the file system of a folder.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "tools/bench/bench_options.h"
#include "tools/bench/micro_options.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/revision.h"

namespace pmstore::tools {
namespace {

constexpr std::string_view kBenchMsync = "bench msync";
constexpr size_t kMsyncPages = 256;
constexpr size_t kMsyncPageBytes = 4096;

struct MsyncCommand {
  std::string folder;
  uint64_t times = 300;
  bool json = false;
};

Error msync_error(const std::string& folder, std::string_view advice) {
  return make_error(ErrorCode::kIo,
                    fmt::format("'{}': {}; {}", printable(folder), std::strerror(errno), advice));
}

// A file without a name, so that nothing is left behind, whose blocks are all there.
Result<base::FileDescriptor> open_nameless(const std::string& folder) {
  std::string path = folder + "/pmstore-msync-XXXXXX";
  base::FileDescriptor file(mkostemp(path.data(), O_CLOEXEC));
  if (!file) return msync_error(folder, "name a folder that is there and can be written");
  unlink(path.c_str());
  const int failed = posix_fallocate(file.get(), 0, kMsyncPages * kMsyncPageBytes);
  if (failed == 0) return file;
  errno = failed;
  return msync_error(folder, "1 MiB is needed there");
}

Result<Histogram> measure_msync(const MsyncCommand& command) {
  PMSTORE_TRY(const base::FileDescriptor file, open_nameless(command.folder));
  void* const mapped = mmap(nullptr, kMsyncPages * kMsyncPageBytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return msync_error(command.folder, "it cannot be mapped");
  const base::RealClock clock;
  Histogram taken_ns;
  Result<Histogram> result = Histogram();
  // As in a pool in use: the blocks have been written before, so that only data goes to the disk.
  std::memset(mapped, 1, kMsyncPages * kMsyncPageBytes);
  if (msync(mapped, kMsyncPages * kMsyncPageBytes, MS_SYNC) != 0) {
    result = msync_error(command.folder, "check the disk");
  }
  for (uint64_t i = 0; result && i < command.times; ++i) {
    char* const page = static_cast<char*>(mapped) + i % kMsyncPages * kMsyncPageBytes;
    std::memset(page, static_cast<int>(i / kMsyncPages + 2), 64);
    const uint64_t begin_ns = clock.now_ns();
    if (msync(page, kMsyncPageBytes, MS_SYNC) != 0) {
      result = msync_error(command.folder, "check the disk");
    }
    taken_ns.record(clock.now_ns() - begin_ns);
  }
  munmap(mapped, kMsyncPages * kMsyncPageBytes);
  if (result) result = std::move(taken_ns);
  return result;
}

int bench_msync(const MsyncCommand& command) {
  const Result<Histogram> taken_ns = measure_msync(command);
  if (!taken_ns) return fail_command(kBenchMsync, taken_ns.error());
  if (command.json) {
    const auto us = [&](double q) { return static_cast<double>(taken_ns->quantile(q)) / 1000; };
    print_json({{"bench", "msync"},
                {"revision", kRevision},
                {"folder", json_bytes(command.folder)},
                {"ops", command.times},
                {"p50_us", us(0.5)},
                {"p99_us", us(0.99)}});
  } else {
    print_text(fmt::format("msync of a page in {}: half of {} within {} us, 99% within {} us\n",
                           printable(command.folder), command.times,
                           us_text(taken_ns->quantile(0.5)), us_text(taken_ns->quantile(0.99))));
  }
  return kDone;
}

}  // namespace

void add_bench_msync(CLI::App& bench, Invocation& invocation) {
  auto command = std::make_shared<MsyncCommand>();
  CLI::App* const app = bench.add_subcommand(
      "msync", "how long an msync takes in a folder: what a commit waits for in a pool there");
  app->add_option("folder", command->folder, "where a pool is, or would be")->required();
  app->add_option("--ops", command->times, "how many are measured")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000}))
      ->capture_default_str();
  app->add_flag("--json", command->json, "print one JSON object");
  app->footer(
      "Each writes 64 bytes to a page of a file that has no name and is gone at the end. On tmpfs\n"
      "(/dev/shm) nothing is written anywhere: its files are lost at a reboot.\n"
      "example: pmstore bench msync /tmp\n"
      "example: pmstore bench msync /dev/shm --ops 1000 --json");
  app->callback(
      [command, &invocation] { invocation.run = [command] { return bench_msync(*command); }; });
}

}  // namespace pmstore::tools
