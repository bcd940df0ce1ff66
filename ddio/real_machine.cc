// The host that we run on: sysfs for PCI configuration space, /dev/cpu/N/msr for MSRs.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "ddio/internal/file_tree.h"
#include "ddio/machine.h"

namespace pmstore::ddio {
namespace {

class File {
 public:
  File(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }

 private:
  int fd_;
};

class RealMachine final : public Machine {
 public:
  explicit RealMachine(const std::string& root) : files_(root) {}
  bool real() const override { return true; }
  // Forgotten at a reboot, as the registers are.
  std::string default_state_file() const override { return "/run/pmstore/ddio.state"; }

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
    const std::string what = fmt::format("cannot read {}+{:#x}", address.text(), offset);
    const File file(config_path(address), O_RDONLY);
    if (!file) return files_.refused(what, errno);
    uint32_t value = 0;
    const ssize_t got = ::pread(file.get(), &value, sizeof(value), offset);
    if (got == sizeof(value)) return value;
    if (got < 0) return files_.refused(what, errno);
    // Without root, reads give the first 64 bytes and no error.
    struct stat status {};
    if (fstat(file.get(), &status) == 0 && status.st_size > static_cast<off_t>(offset)) {
      return files_.refused(what, EACCES);
    }
    return make_error(ErrorCode::kIo,
                      what +
                          ": the kernel has no extended configuration space for it: boot "
                          "without pci=nommconf");
  }

  Status write_config(const PciAddress& address, uint32_t offset, uint32_t value) override {
    const std::string what = fmt::format("cannot write {}+{:#x}", address.text(), offset);
    const File file(config_path(address), O_RDWR);
    if (!file) return files_.refused(what, errno);
    const ssize_t put = ::pwrite(file.get(), &value, sizeof(value), offset);
    if (put != sizeof(value)) return files_.refused(what, put < 0 ? errno : EIO);
    return {};
  }

  Result<uint64_t> read_msr(uint32_t cpu, uint32_t number) const override {
    const std::string what = fmt::format("cannot read MSR {:#x} of CPU {}", number, cpu);
    const File file(msr_path(cpu), O_RDONLY);
    if (!file) return no_msr(what, errno);
    uint64_t value = 0;
    const ssize_t got = ::pread(file.get(), &value, sizeof(value), number);
    if (got != sizeof(value)) return files_.refused(what, got < 0 ? errno : EIO);
    return value;
  }

  Status write_msr(uint32_t cpu, uint32_t number, uint64_t value) override {
    const std::string what = fmt::format("cannot write MSR {:#x} of CPU {}", number, cpu);
    const File file(msr_path(cpu), O_RDWR);
    if (!file) return no_msr(what, errno);
    const ssize_t put = ::pwrite(file.get(), &value, sizeof(value), number);
    if (put != sizeof(value)) return files_.refused_msr_write(what, put < 0 ? errno : EIO);
    return {};
  }

 private:
  std::string config_path(const PciAddress& address) const {
    return files_.outside("/sys/bus/pci/devices/" + address.text() + "/config");
  }
  std::string msr_path(uint32_t cpu) const {
    return files_.outside(fmt::format("/dev/cpu/{}/msr", cpu));
  }
  Error no_msr(const std::string& what, int error) const {
    if (error != ENOENT && error != ENXIO) return files_.refused(what, error);
    return make_error(ErrorCode::kIo,
                      what +
                          ": there is no /dev/cpu/N/msr: modprobe msr, or bring that CPU "
                          "online");
  }

  internal::FileTree files_;
};

}  // namespace

std::unique_ptr<Machine> this_machine() { return machine_below(""); }
std::unique_ptr<Machine> machine_below(const std::string& root) {
  return std::make_unique<RealMachine>(root);
}

}  // namespace pmstore::ddio
