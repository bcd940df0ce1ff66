#include "tools/tune/dimm_source.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "tools/cli/bytes_text.h"
#include "tools/tune/ipmctl_library.h"

namespace pmstore::tools {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class LibrarySource final : public DimmSource {
 public:
  explicit LibrarySource(std::unique_ptr<IpmctlLibrary> library) : library_(std::move(library)) {}

  Result<DimmSample> read() override {
    PMSTORE_TRY(const auto dimms, library_->dimms());
    if (dimms.empty()) {
      return make_error(ErrorCode::kNotFound,
                        "libipmctl knows no DIMM of persistent memory here: use --trace or "
                        "--report");
    }
    DimmSample sample{now_seconds(), {}};
    for (const auto& dimm : dimms) {
      PMSTORE_TRY(DimmReading reading, library_->counters(dimm));
      sample.dimms.push_back(std::move(reading));
    }
    return sample;
  }

 private:
  const std::unique_ptr<IpmctlLibrary> library_;
};

class ProgramSource final : public DimmSource {
 public:
  explicit ProgramSource(std::string program) : program_(std::move(program)) {}

  Result<DimmSample> read() override {
    const std::string what = fmt::format("cannot ask '{}'", program_);
    const std::string command = fmt::format("'{}' show -dimm -performance 2>&1", program_);
    FILE* const pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return make_error(ErrorCode::kIo, what + ": no more processes");
    std::string said;
    char piece[4096];
    while (const size_t got = fread(piece, 1, sizeof(piece), pipe)) said.append(piece, got);
    const int status = pclose(pipe);
    if (status != 0) {
      return make_error(
          ErrorCode::kIo,
          fmt::format("{}: {}: install ipmctl or libipmctl5, run as root, or use --trace or "
                      "--report",
                      what, printable(said.substr(0, said.find('\n')))));
    }
    auto dimms = parse_ipmctl(said);
    if (!dimms) {
      return make_error(ErrorCode::kIo,
                        fmt::format("cannot understand '{}': {}", program_, dimms.error().message));
    }
    return DimmSample{now_seconds(), std::move(*dimms)};
  }

 private:
  const std::string program_;
};

}  // namespace

Result<std::unique_ptr<DimmSource>> open_dimm_source(const std::string& library,
                                                     const std::string& program) {
  if (program.find('\'') != program.npos) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("cannot ask '{}': a name without quotes, please", program));
  }
  if (program.empty()) {
    auto loaded = IpmctlLibrary::open(library);
    if (loaded) {
      return std::unique_ptr<DimmSource>(std::make_unique<LibrarySource>(std::move(*loaded)));
    }
    // A library that was named must be there.
    if (loaded.code() != ErrorCode::kNotFound || library != kIpmctlLibrary) {
      return std::move(loaded.error());
    }
  }
  return std::unique_ptr<DimmSource>(
      std::make_unique<ProgramSource>(program.empty() ? "ipmctl" : program));
}

}  // namespace pmstore::tools
