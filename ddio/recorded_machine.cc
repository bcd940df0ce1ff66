// A machine recorded in a folder: its files as on the host, registers as text, and faults.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "ddio/internal/file_tree.h"
#include "ddio/machine.h"

namespace pmstore::ddio {
namespace {

// One line of the file `faults`: OPERATION WHERE EFFECT [SKIP [TIMES]].
struct Fault {
  std::string operation;  // read-config, write-config, read-msr, write-msr
  std::string where;      // "0000:16:02.0+0x180", "0+0xc8b", or "*"
  std::string effect;    // EPERM, EACCES, EIO, ignore (the write does nothing), mangle (bit 16 too)
  mutable int skip = 0;  // operations that still go well
  mutable int times = -1;  // operations that it hits then; -1: all
};

class RecordedMachine final : public Machine {
 public:
  explicit RecordedMachine(const std::string& root) : files_(root) {
    std::ifstream lines(files_.outside("/faults"));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      Fault fault;
      if (!(words >> fault.operation >> fault.where >> fault.effect)) continue;
      if (words >> fault.skip) words >> fault.times;
      faults_.push_back(fault);
    }
  }

  bool real() const override { return false; }
  std::string default_state_file() const override { return files_.outside("/ddio.state"); }

  Result<std::string> read_text(const std::string& path) const override {
    return files_.read_text(path);
  }
  Result<std::vector<std::string>> list(const std::string& path) const override {
    return files_.list(path);
  }
  Result<std::string> resolve(const std::string& path) const override {
    return files_.resolve(path);
  }

  Result<uint32_t> read_config(const PciAddress& address, uint32_t offset) const override {
    auto value = read("read-config", config_path(address), address.text(), offset);
    if (!value) return std::move(value.error());
    return static_cast<uint32_t>(*value);
  }
  Status write_config(const PciAddress& address, uint32_t offset, uint32_t value) override {
    return write("write-config", config_path(address), address.text(), offset, value);
  }
  Result<uint64_t> read_msr(uint32_t cpu, uint32_t number) const override {
    return read("read-msr", msr_path(cpu), std::to_string(cpu), number);
  }
  Status write_msr(uint32_t cpu, uint32_t number, uint64_t value) override {
    return write("write-msr", msr_path(cpu), std::to_string(cpu), number, value);
  }

 private:
  using Registers = std::map<uint32_t, uint64_t>;

  static std::string config_path(const PciAddress& address) {
    return "/sys/bus/pci/devices/" + address.text() + "/config.txt";
  }
  static std::string msr_path(uint32_t cpu) { return fmt::format("/dev/cpu/{}/msr.txt", cpu); }

  // What happens to this operation, if anything.
  std::optional<std::string> fault(const std::string& operation, const std::string& where) const {
    for (const Fault& one : faults_) {
      if (one.operation != operation || (one.where != "*" && one.where != where)) continue;
      if (one.skip > 0) {
        --one.skip;
      } else if (one.times != 0) {
        if (one.times > 0) --one.times;
        return one.effect;
      }
    }
    return std::nullopt;
  }

  static int number_of(const std::string& effect) {
    return effect == "EPERM" ? EPERM : effect == "EACCES" ? EACCES : EIO;
  }

  Result<Registers> registers(const std::string& path, const std::string& what) const {
    const auto text = files_.read_text(path);
    if (!text) return make_error(ErrorCode::kIo, what + ": it is not in the recorded machine");
    Registers found;
    std::istringstream lines(*text);
    for (std::string offset, value; lines >> offset >> value;) {
      found[static_cast<uint32_t>(std::strtoul(offset.c_str(), nullptr, 0))] =
          std::strtoull(value.c_str(), nullptr, 0);
    }
    return found;
  }

  Result<uint64_t> read(const char* operation, const std::string& path, const std::string& device,
                        uint32_t offset) const {
    const std::string target = fmt::format("{}+{:#x}", device, offset);
    const std::string what = "cannot read " + target;
    if (const auto effect = fault(operation, target)) {
      return files_.refused(what, number_of(*effect));
    }
    PMSTORE_TRY(const Registers known, registers(path, what));
    const auto at = known.find(offset);
    if (at == known.end()) {
      return make_error(ErrorCode::kIo, what + ": it is not in the recorded machine");
    }
    return at->second;
  }

  Status write(const char* operation, const std::string& path, const std::string& device,
               uint32_t offset, uint64_t value) {
    const std::string target = fmt::format("{}+{:#x}", device, offset);
    const std::string what = "cannot write " + target;
    if (const auto effect = fault(operation, target)) {
      if (*effect == "ignore") return {};
      if (*effect != "mangle") {
        const int error = number_of(*effect);
        return std::string_view(operation) == "write-msr" ? files_.refused_msr_write(what, error)
                                                          : files_.refused(what, error);
      }
      value ^= 1 << 16;
    }
    PMSTORE_TRY(Registers known, registers(path, what));
    known[offset] = value;
    std::ofstream file(files_.outside(path), std::ios::trunc);
    for (const auto& [at, content] : known) file << fmt::format("{:#x} {:#x}\n", at, content);
    file.close();
    if (!file) return make_error(ErrorCode::kIo, what + ": the recorded machine is not writable");
    return {};
  }

  internal::FileTree files_;
  std::vector<Fault> faults_;
};

}  // namespace

Result<std::unique_ptr<Machine>> recorded_machine(const std::string& folder) {
  std::error_code error;
  const auto root = std::filesystem::canonical(folder, error);
  if (error || !std::filesystem::is_directory(root / "sys")) {
    return make_error(ErrorCode::kNotFound,
                      fmt::format("'{}' is no recorded machine: it has no folder sys; docs/ddio.md "
                                  "says what one is",
                                  folder));
  }
  return std::make_unique<RecordedMachine>(root.string());
}

}  // namespace pmstore::ddio
