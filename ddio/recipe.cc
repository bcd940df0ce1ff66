#include "ddio/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace pmstore::ddio {
namespace {

const std::vector<CpuFamily>& families() {
  static const std::vector<CpuFamily> table = {
      {"GenuineIntel",
       6,
       {85},
       "Skylake-SP, Cascade Lake-SP or Cooper Lake-SP",
       "rpma",
       true,
       {0x2030, 0x2031, 0x2032, 0x2033},  // pci.ids: Sky Lake-E PCI Express Root Port A to D
       "the register is in Intel's Xeon Scalable datasheet, volume 2 (May 2019, page 68), and "
       "published tools switch it there"},
      {"GenuineIntel",
       6,
       {45, 62, 63, 79, 86},
       "Xeon E5, E7 or D before Skylake-SP",
       "",
       false,
       {},
       "the datasheets have the register at the same offset, but no published tool was tried "
       "there"},
      {"GenuineIntel",
       6,
       {106, 108},
       "Ice Lake-SP",
       "",
       false,
       {},
       "0x180 holds a capability header there and does not change (ddio-bench, issue 3); DDIO can "
       "be switched only for the whole machine, in the firmware's set-up (rpma, pull request "
       "1638)"},
      {"GenuineIntel",
       6,
       {143, 207},
       "Sapphire Rapids or Emerald Rapids",
       "",
       false,
       {},
       "no published tool switches it; look for DDIO in the firmware's set-up"},
      {"AuthenticAMD",
       0,
       {},
       "AMD",
       "",
       false,
       {},
       "DDIO is Intel's; AMD publishes no register that keeps the writes of one device out of the "
       "cache"},
  };
  return table;
}

uint32_t number_after(const std::string& cpuinfo, const std::string& key) {
  const size_t at = cpuinfo.find(key);
  if (at == cpuinfo.npos) return 0;
  const size_t colon = cpuinfo.find(':', at);
  return colon == cpuinfo.npos
             ? 0
             : static_cast<uint32_t>(std::strtoul(cpuinfo.c_str() + colon + 1, nullptr, 10));
}

std::string text_after(const std::string& cpuinfo, const std::string& key) {
  const size_t at = cpuinfo.find(key);
  if (at == cpuinfo.npos) return {};
  const size_t colon = cpuinfo.find(": ", at);
  const size_t end = cpuinfo.find('\n', at);
  return colon == cpuinfo.npos || colon > end ? std::string()
                                              : cpuinfo.substr(colon + 2, end - colon - 2);
}

}  // namespace

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> table = {
      {"rpma",
       {{kPerfCtrlSts0, kUseAllocatingFlowWr | kNoSnoopOpWrEn, 0},
        {kPerfCtrlSts1, kTphDis, kTphDis}},
       {{kPerfCtrlSts0, kUseAllocatingFlowWr | kNoSnoopOpWrEn, kUseAllocatingFlowWr},
        {kPerfCtrlSts1, kTphDis, 0}},
       "ddio.sh of Intel's librpma (2020), which quotes the register's description"},
      {"no-snoop",
       {{kPerfCtrlSts0, kUseAllocatingFlowWr | kNoSnoopOpWrEn, kNoSnoopOpWrEn}},
       {{kPerfCtrlSts0, kUseAllocatingFlowWr | kNoSnoopOpWrEn, kUseAllocatingFlowWr}},
       "a benchmark of RDMA to NVM with the r2 library; the comments of ddio-bench (2020) agree"},
      {"bit7",
       {{kPerfCtrlSts0, kUseAllocatingFlowWr, 0}},
       {{kPerfCtrlSts0, kUseAllocatingFlowWr, kUseAllocatingFlowWr}},
       "ddio-bench, change-ddio.c (Farshin et al., USENIX ATC 2020)"},
  };
  return table;
}

Result<const Recipe*> named_recipe(std::string_view name) {
  std::string names;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) return &recipe;
    names.append(names.empty() ? "" : ", ").append(recipe.name);
  }
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("recipe '{}' is unknown: use one of {}", name, names));
}

std::string Cpu::text() const {
  return fmt::format("{} ({} family {} model {})", known != nullptr ? known->name : "unknown CPU",
                     vendor, family, model);
}

Result<Cpu> identify_cpu(const Machine& machine) {
  PMSTORE_TRY(const std::string cpuinfo, machine.read_text("/proc/cpuinfo"));
  Cpu cpu;
  cpu.vendor = text_after(cpuinfo, "vendor_id");
  cpu.family = number_after(cpuinfo, "cpu family");
  cpu.model = number_after(cpuinfo, "model\t");
  cpu.model_name = text_after(cpuinfo, "model name");
  if (cpu.vendor.empty()) {
    return make_error(ErrorCode::kIo, "/proc/cpuinfo names no vendor: is this an x86 machine?");
  }
  cpu.virtual_machine =
      (text_after(cpuinfo, "flags\t") + " ").find(" hypervisor ") != std::string::npos;
  for (const CpuFamily& family : families()) {
    const bool any_model = family.models.empty();
    if (family.vendor == cpu.vendor && (any_model || family.family == cpu.family) &&
        (any_model || std::count(family.models.begin(), family.models.end(), cpu.model) > 0)) {
      cpu.known = &family;
      break;
    }
  }
  return cpu;
}

Result<const Recipe*> choose_recipe(const Cpu& cpu, std::string_view name, bool force) {
  const bool has_own = cpu.known != nullptr && !cpu.known->recipe.empty() && !cpu.virtual_machine;
  if (!name.empty()) {
    PMSTORE_TRY(const Recipe* const recipe, named_recipe(name));
    if (has_own || force) return recipe;
  } else if (has_own) {
    return named_recipe(cpu.known->recipe);
  }
  if (cpu.virtual_machine) {
    return make_error(
        ErrorCode::kUnsupported,
        "this is a virtual machine, whose root ports are the hypervisor's and not the "
        "CPU's: do this on the host; to try a recipe all the same: --recipe NAME "
        "--force");
  }
  return make_error(
      ErrorCode::kUnsupported,
      fmt::format("no recipe is known to work on {}: {}; to try one all the same: --recipe NAME "
                  "--force",
                  cpu.text(),
                  cpu.known != nullptr ? cpu.known->known : "nothing is known about this CPU"));
}

}  // namespace pmstore::ddio
