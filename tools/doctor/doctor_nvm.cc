// Doctor's rows about persistent memory.
#include <fmt/format.h>
#include <unistd.h>

#include <map>

#include "tools/doctor/doctor.h"

namespace pmstore::tools {
namespace {

constexpr uint64_t kHugePage = 2 << 20;

double gib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

Finding nvm_presence(const DoctorFacts& facts) {
  Finding row{
      "nvm", "NVM present", Verdict::kOk, "", "on an ordinary file each commit waits for msync",
      ""};
  if (!facts.nvm) {
    row.verdict = Verdict::kUnknown;
    row.seen = facts.nvm.error().message;
    row.fix = "ndctl list -R";
    return row;
  }
  for (const auto& region : *facts.nvm) {
    append(row.seen, fmt::format("{}: {:.1f} GiB", region.name, gib(region.bytes)));
  }
  if (facts.nvm->empty()) {
    row.verdict = Verdict::kCosts;
    row.seen = "no region of persistent memory";
    row.fix =
        "put in DIMMs and set them up: ipmctl create -goal PersistentMemoryType=AppDirect; "
        "for tests: memmap=4G!4G on the kernel's command line";
  }
  return row;
}

Finding mode(const DoctorFacts& facts) {
  Finding row{"nvm-mode",
              "NVM mode",
              Verdict::kOk,
              "",
              "an RNIC can register device DAX, but not an "
              "fsdax file system; raw and sector mode have no direct access",
              ""};
  const bool has_rnic = facts.rdma && !facts.rdma->empty();
  for (const auto& region : *facts.nvm) {
    if (region.namespaces.empty()) {
      append(row.seen, region.name + ": no namespace");
      row.verdict = Verdict::kCosts;
      append(row.fix, fmt::format("ndctl create-namespace -m devdax -r {}", region.name));
    }
    for (const auto& space : region.namespaces) {
      append(row.seen, fmt::format("{}: {} {}", space.name, space.mode, space.device));
      if (space.mode == "devdax" || (space.mode == "fsdax" && !has_rnic)) continue;
      row.verdict = Verdict::kCosts;
      append(row.fix,
             fmt::format("ndctl create-namespace -f -e {} -m devdax (its contents are lost)",
                         space.name));
    }
  }
  return row;
}

Finding alignment(const DoctorFacts& facts) {
  Finding row{"nvm-alignment",
              "NVM alignment",
              Verdict::kOk,
              "",
              "below 2 MiB the CPU and the RNIC "
              "translate 4 KiB pages: many more entries in their caches",
              ""};
  for (const auto& region : *facts.nvm) {
    for (const auto& space : region.namespaces) {
      if (space.mode != "devdax" && space.mode != "fsdax") continue;
      append(row.seen, fmt::format("{}: {} KiB", space.name, space.alignment >> 10));
      if (space.alignment >= kHugePage) continue;
      row.verdict = Verdict::kCosts;
      append(row.fix,
             fmt::format("ndctl create-namespace -f -e {} -m {} -a 2M (its contents are lost)",
                         space.name, space.mode));
    }
  }
  if (row.seen.empty()) row.seen = "no namespace with direct access";
  return row;
}

Finding domain(const DoctorFacts& facts) {
  Finding row{"domain",
              "persistence domain",
              Verdict::kOk,
              "",
              "how far a store must have travelled to "
              "survive a power cut",
              ""};
  for (const auto& region : *facts.nvm) {
    const char* meaning = "not declared";
    if (!region.domain) {
      if (row.verdict == Verdict::kOk) row.verdict = Verdict::kUnknown;
      row.fix = fmt::format("cat /sys/bus/nd/devices/{}/persistence_domain", region.name);
    } else {
      switch (*region.domain) {
        case persist::Domain::kCpuCache: meaning = "eadr: CPU caches are inside"; break;
        case persist::Domain::kMemoryController: meaning = "adr: caches must be flushed"; break;
        case persist::Domain::kNone:
          meaning = "none: nothing is safe in a power cut";
          row.verdict = Verdict::kCosts;
          row.fix = "switch ADR on in the firmware's set-up";
          break;
      }
    }
    append(row.seen, fmt::format("{}: {}", region.name, meaning));
  }
  return row;
}

Finding interleave(const DoctorFacts& facts) {
  Finding row{"interleave",
              "interleave set",
              Verdict::kOk,
              "",
              "one Optane DIMM writes about 2 GB/s; "
              "interleaved in stripes of 4 KiB they add up",
              ""};
  std::map<int, int> alone;  // regions of one DIMM, by NUMA node
  for (const auto& region : *facts.nvm) {
    append(row.seen, fmt::format("{}: {} DIMM{}", region.name, region.interleaved_dimms,
                                 region.interleaved_dimms == 1 ? "" : "s"));
    if (region.interleaved_dimms == 1) ++alone[region.numa_node.value_or(0)];
  }
  for (const auto& [node, regions] : alone) {
    if (regions < 2) continue;
    row.verdict = Verdict::kCosts;
    append(row.seen, fmt::format("{} regions of one DIMM each on node {}", regions, node));
    row.fix =
        "ipmctl create -goal PersistentMemoryType=AppDirect (interleaved; all data on the DIMMs "
        "is lost), then reboot";
  }
  return row;
}

Finding health(const DoctorFacts& facts) {
  Finding row{"health",
              "health, bad blocks",
              Verdict::kOk,
              "",
              "a DIMM that fails, and blocks that "
              "cannot be read, lose records",
              ""};
  for (const auto& region : *facts.nvm) {
    if (region.dimms.empty()) {
      append(row.seen, region.name + ": which DIMMs it is made of is not known");
      if (row.verdict == Verdict::kOk) row.verdict = Verdict::kUnknown;
      if (row.fix.empty()) row.fix = fmt::format("ndctl list -DH -r {}", region.name);
    }
    for (const auto& dimm : region.dimms) {
      append(row.seen, dimm.name + ": " + dimm.health.value_or("health unknown"));
      if (!dimm.health) {
        if (row.verdict == Verdict::kOk) row.verdict = Verdict::kUnknown;
        if (row.fix.empty()) {
          row.fix = geteuid() != 0
                        ? kRunAsRoot
                        : fmt::format("ndctl list -DH -d {} (no answer to us){}", dimm.name,
                                      facts.no_ipmctl.empty() ? "" : "; " + facts.no_ipmctl);
        }
      } else if (*dimm.health != "ok") {
        row.verdict = Verdict::kCosts;
        row.fix = fmt::format("replace it: ndctl list -DH -d {}", dimm.name);
      }
    }
    append(row.seen, fmt::format("{}: {} bad blocks", region.name, region.bad_blocks));
    if (region.bad_blocks == 0) continue;
    row.verdict = Verdict::kCosts;
    row.fix = fmt::format(
        "ndctl list -r {} -M, then pmstore pool check; ndctl clear-errors drops "
        "what was in them",
        region.name);
  }
  return row;
}

}  // namespace

bool has_nvm(const DoctorFacts& facts) { return facts.nvm && !facts.nvm->empty(); }

void examine_nvm(const DoctorFacts& facts, std::vector<Finding>& rows) {
  rows.push_back(nvm_presence(facts));
  if (has_nvm(facts)) {
    for (const auto& row :
         {mode(facts), alignment(facts), domain(facts), interleave(facts), health(facts)}) {
      rows.push_back(row);
    }
    return;
  }
  for (const auto& [id, title] :
       {std::pair("nvm-mode", "NVM mode"), std::pair("nvm-alignment", "NVM alignment"),
        std::pair("domain", "persistence domain"), std::pair("interleave", "interleave set"),
        std::pair("health", "health, bad blocks")}) {
    rows.push_back({id, title, Verdict::kUnknown, "no persistent memory",
                    "only persistent memory has it", "ndctl list -RN"});
  }
}

}  // namespace pmstore::tools
