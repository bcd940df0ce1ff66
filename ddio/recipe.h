// Recipe: the register bits that switch DDIO for the devices behind a root port. Published tools
// disagree, so there are several recipes, each with its source, and a table of CPU families with
// the recipe of each. docs/ddio.md compares them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ddio/machine.h"

namespace pmstore::ddio {

// Bits of a 32-bit register of the root port.
struct RegisterEdit {
  uint32_t offset;
  uint32_t mask;
  uint32_t value;  // within mask
};

struct Recipe {
  std::string_view name;
  std::vector<RegisterEdit> off;  // DDIO is off exactly when all of these hold
  std::vector<RegisterEdit> on;
  std::string_view source;
};

// PERFCTRLSTS_0, and PERFCTRLSTS_1 behind it.
inline constexpr uint32_t kPerfCtrlSts0 = 0x180;
inline constexpr uint32_t kPerfCtrlSts1 = 0x184;
inline constexpr uint32_t kUseAllocatingFlowWr = 1 << 7;
inline constexpr uint32_t kNoSnoopOpWrEn = 1 << 3;
inline constexpr uint32_t kTphDis = 1 << 9;  // of PERFCTRLSTS_1
// IIO LLC WAYS: one bit for each way of the last-level cache into which devices may allocate.
inline constexpr uint32_t kIioLlcWays = 0xC8B;

const std::vector<Recipe>& recipes();
// InvalidArgument naming those that there are.
Result<const Recipe*> named_recipe(std::string_view name);

struct CpuFamily {
  std::string_view vendor;  // as in /proc/cpuinfo
  uint32_t family;
  std::vector<uint32_t> models;  // none: all
  std::string_view name;
  std::string_view recipe;  // the one taken when none is named; empty: none is known to work
  bool llc_ways;            // whether kIioLlcWays is known to work
  // PCI device ids of the CPU's own root ports, which have the registers. Others of Intel's are the
  // chipset's, which have not.
  std::vector<uint32_t> root_ports;
  std::string_view known;  // what is known, for people
};

struct Cpu {
  std::string vendor;
  uint32_t family = 0;
  uint32_t model = 0;
  std::string model_name;
  const CpuFamily* known = nullptr;  // of the table; null: not in it
  bool virtual_machine = false;      // whose root ports are a hypervisor's
  // "Ice Lake-SP (GenuineIntel family 6 model 106)".
  std::string text() const;
};

// From /proc/cpuinfo. Io when that says no vendor.
Result<Cpu> identify_cpu(const Machine& machine);

// The recipe for `cpu`: `name`, or the family's own when empty. Unsupported, saying what is known,
// when the family has none, or in a virtual machine, and not both a name and `force` are given;
// InvalidArgument for an unknown name.
Result<const Recipe*> choose_recipe(const Cpu& cpu, std::string_view name, bool force);

}  // namespace pmstore::ddio
