// Machine: the files and registers of a host that this folder uses: /sys, /proc and /dev, PCI
// configuration space, and model-specific registers. It is either this host or a recording in a
// folder, which replaces the hardware in tests and trials (docs/ddio.md has the format).
//
// Threads: one at a time. Every error message is one line: what, why, what to do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "ddio/pci_address.h"

namespace pmstore::ddio {

class Machine {
 public:
  Machine() = default;
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Whether it is this host.
  virtual bool real() const = 0;
  // The file for noting changes if the user names no other.
  virtual std::string default_state_file() const = 0;

  // Paths are absolute, as on the host. NotFound when there is no such file, else Io.
  // The content, at most 1 MiB of it, without the newline at its end.
  virtual Result<std::string> read_text(const std::string& path) const = 0;
  // The names in a folder, sorted.
  virtual Result<std::vector<std::string>> list(const std::string& path) const = 0;
  // The path without symbolic links.
  virtual Result<std::string> resolve(const std::string& path) const = 0;

  // 32 bits of the function's configuration space; `offset` is a multiple of 4 below 4096. Io when
  // the system refuses, or when only root may read so far.
  virtual Result<uint32_t> read_config(const PciAddress& address, uint32_t offset) const = 0;
  virtual Status write_config(const PciAddress& address, uint32_t offset, uint32_t value) = 0;
  // A model-specific register of a logical CPU.
  virtual Result<uint64_t> read_msr(uint32_t cpu, uint32_t number) const = 0;
  virtual Status write_msr(uint32_t cpu, uint32_t number, uint64_t value) = 0;
};

std::unique_ptr<Machine> this_machine();
// The same code on the files below `root`, which has no slash at its end: for tests.
std::unique_ptr<Machine> machine_below(const std::string& root);
// NotFound when `folder` is not there or has no folder sys.
Result<std::unique_ptr<Machine>> recorded_machine(const std::string& folder);

}  // namespace pmstore::ddio
