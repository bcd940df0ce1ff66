// Doctor's rows about the rules H1 to H9, and what holds for a pool and a server that were named.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "ddio/control.h"
#include "persist/strategy.h"
#include "tools/cli/bytes_text.h"
#include "tools/doctor/doctor.h"

namespace pmstore::tools {
namespace {

using persist::Domain;
using persist::WriteLanding;

// The landing of the RNICs' writes; nothing when it cannot be found out.
struct Landing {
  std::optional<WriteLanding> where;
  std::string seen;
  std::string problem;
  std::string fix;  // how to find it out
};

// The advice for registers that the system does not let this program read.
std::string reading_fix() { return geteuid() == 0 ? "pmstore ddio status" : kRunAsRoot; }

// The advice where no recipe tells the meaning of the registers.
std::string recipe_fix(const ddio::Cpu& cpu) {
  if (cpu.virtual_machine) return "pmstore ddio status on the host that runs this virtual machine";
  return cpu.vendor == "GenuineIntel"
             ? "look for DDIO in the firmware's set-up; when it is off, pmstored --ddio off"
             : "nothing switches it on this CPU: rely on eADR, or on pmstored --locks cpu";
}

Landing find_landing(const DoctorFacts& facts) {
  const ddio::Machine& machine = *facts.machine;
  if (!has_hardware_rnic(facts)) {
    return {WriteLanding::kCpu,
            has_software_rnic(facts) ? "a software RNIC writes with a CPU, into its cache"
                                     : "no RNIC: a CPU writes",
            "", ""};
  }
  const std::string look = "pmstore ddio status";
  const auto cpu = ddio::identify_cpu(machine);
  if (!cpu) {
    return {std::nullopt, "the CPU is unknown", cpu.error().message, "cat /proc/cpuinfo"};
  }
  const auto recipe = ddio::choose_recipe(*cpu, "", false);
  if (!recipe) return {std::nullopt, cpu->text(), recipe.error().message, recipe_fix(*cpu)};
  const auto known =
      ddio::find_known_ports(machine, *cpu, ddio::list_rnics(machine, nullptr), false);
  if (known.ports.empty() && known.others.empty()) {
    return {std::nullopt, "no RNIC in sysfs", "the PCI functions of the RNICs were not found",
            "ls -l /sys/class/infiniband/*/device"};
  }
  Landing landing{WriteLanding::kMemory, "", "", ""};
  bool cached = false;
  const auto unknown = [&](const std::string& rnic, const Error& why, const std::string& fix) {
    append(landing.seen, rnic + ": unknown");
    if (landing.problem.empty()) landing.fix = fix;
    append(landing.problem, why.message);
    landing.where.reset();
  };
  for (const auto& port : known.ports) {
    const std::string& name = port.rnics.front().name;
    const auto values = ddio::read_port(machine, port.address);
    if (!values) {
      unknown(name, values.error(), reading_fix());
      continue;
    }
    const auto state = ddio::state_of(*values, **recipe);
    append(landing.seen, fmt::format("{}: {}", name, ddio::ddio_state_name(state)));
    cached |= state != ddio::DdioState::kOff;
  }
  for (const auto& other : known.others) unknown(other.rnic.name, other.why, look);
  if (cached) landing.where = WriteLanding::kLastLevelCache;
  return landing;
}

Finding device_cache(const DoctorFacts& facts, const Landing& landing) {
  Finding row{"h3",
              "H3 DDIO",
              Verdict::kOk,
              landing.seen,
              "with DDIO on, one-sided writes land in the "
              "cache: not durable under ADR, and large ones cost twice the media writes",
              ""};
  if (!has_nvm(facts)) {
    row.seen += "; no persistent memory to write to";
    return row;
  }
  if (!landing.where) {
    row.verdict = Verdict::kUnknown;
    row.seen += ": " + landing.problem;
    row.fix = landing.fix;
  } else if (*landing.where == WriteLanding::kLastLevelCache) {
    row.verdict = Verdict::kCosts;
    row.fix = "pmstore ddio off --apply, and pmstored --ddio off";
  }
  return row;
}

Finding instructions(const DoctorFacts& facts) {
  Finding row{"h4",
              "H4 CPU stores",
              Verdict::kOk,
              "",
              "large writes bypass the cache with streaming "
              "stores; small ones are written back with clwb, which keeps the line",
              ""};
  const auto cpuinfo = facts.machine->read_text("/proc/cpuinfo");
  if (!cpuinfo) {
    row.verdict = Verdict::kUnknown;
    row.seen = cpuinfo.error().message;
    row.fix = "cat /proc/cpuinfo";
    return row;
  }
  const size_t at = cpuinfo->find("\nflags");
  if (at == cpuinfo->npos) {
    row.verdict = Verdict::kUnknown;
    row.seen = "/proc/cpuinfo has no flags";
    row.fix = "lscpu";
    return row;
  }
  const std::string flags = cpuinfo->substr(at + 1, cpuinfo->find('\n', at + 1) - at) + " ";
  const auto has = [&](const char* name) {
    return flags.find(fmt::format(" {} ", name)) != flags.npos ||
           flags.find(fmt::format(" {}\n", name)) != flags.npos;
  };
  for (const auto& [flag, what] :
       {std::pair("sse2", "ntstore"), std::pair("clwb", "clwb"),
        std::pair("clflushopt", "clflushopt"), std::pair("avx512f", "AVX-512")}) {
    append(row.seen, fmt::format("{}{}", has(flag) ? "" : "no ", what));
  }
  if (has("clwb")) return row;
  row.verdict = Verdict::kCosts;
  row.fix = "a CPU with clwb (Skylake-SP or Zen 2, or later); in a virtual machine: -cpu host";
  return row;
}

void pool_rows(const DoctorFacts& facts, std::vector<Finding>& rows) {
  Finding layout{"h5",
                 "H5-H7 pool layout",
                 Verdict::kOk,
                 "",
                 "data that is not aligned to the medium's 256 "
                 "bytes is read before it is written",
                 ""};
  if (!facts.pool) {
    layout.verdict = Verdict::kUnknown;
    layout.seen = "no pool named";
    layout.fix = "pmstore doctor --pool PATH";
  } else if (!*facts.pool) {
    layout.verdict = Verdict::kUnknown;
    layout.seen = facts.pool->error().message;
    const ErrorCode code = facts.pool->code();
    layout.fix = code == ErrorCode::kBusy ? "stop the program that uses it, then run this again"
                 : code == ErrorCode::kBadPool
                     ? "pmstore pool check " + printable(facts.pool_path)
                     : "ls -l " + printable(facts.pool_path) + ", then run this again";
  } else {
    const DoctorPool& pool = **facts.pool;
    layout.seen = fmt::format(
        "{}: {} extents, {} not aligned to 256 bytes; the rest pmstore keeps itself: its "
        "format, which was checked, pads slots to 64 and 256 bytes",
        pool.path, pool.extents, pool.misaligned_extents);
    if (pool.misaligned_extents > 0) {
      layout.verdict = Verdict::kCosts;
      layout.fix = "make it anew: pmstore pool create";
    }
  }
  rows.push_back(layout);
  rows.push_back({"h8", "H8 locks", Verdict::kOk,
                  "lock words are in the server's DRAM, whatever the pool is on", "", ""});
}

// The memory of the named pool, or memory that a pool could use.
struct Target {
  std::optional<Domain> domain = Domain::kNone;  // nothing where a region does not say
  std::string unregistrable;                     // the fsdax namespace, where an RNIC cannot reach
  std::string seen;                              // what else is said of it
};

// The weakest domain of the regions that have a namespace in `mode`; false when none has.
bool take_mode(const DoctorFacts& facts, std::string_view mode, Target& target) {
  bool any = false;
  std::optional<Domain> weakest;
  for (const auto& region : *facts.nvm) {
    for (const auto& space : region.namespaces) {
      if (space.mode != mode || space.device.empty()) continue;
      if (mode == "fsdax" && target.unregistrable.empty()) target.unregistrable = space.name;
      weakest = any ? std::min(weakest, region.domain) : region.domain;  // nothing is the least
      any = true;
    }
  }
  if (any) target.domain = weakest;
  return any;
}

// Device DAX before a file system with DAX: an RNIC reaches it. Other modes give a pool no more
// than an ordinary file has.
Target target_of(const DoctorFacts& facts) {
  Target target;
  if (facts.pool && *facts.pool) {
    const DoctorPool& pool = **facts.pool;
    target.domain = pool.domain;
    if (pool.medium == "fsdax") target.unregistrable = pool.path;
  } else if (has_nvm(facts) && !take_mode(facts, "devdax", target) &&
             !take_mode(facts, "fsdax", target)) {
    target.seen = "no namespace that a pool can use (row NVM mode)";
  }
  return target;
}

// A device that a pool may be put on.
std::string dax_device(const DoctorFacts& facts) {
  if (!has_nvm(facts)) return "/dev/dax0.0, once there is persistent memory";
  for (const auto& region : *facts.nvm) {
    for (const auto& space : region.namespaces) {
      if (space.mode == "devdax" && !space.device.empty()) return space.device;
    }
  }
  return "/dev/dax0.0, once there is device DAX (row NVM mode)";
}

// Of an RNIC in hardware, without which the server takes lock words by its CPU.
bool has_remote_atomics(const DoctorFacts& facts) {
  return facts.rdma && std::any_of(facts.rdma->begin(), facts.rdma->end(), [](const auto& device) {
           return !device.software && device.atomics != fabric::AtomicScope::kNone;
         });
}

std::string strategy_fix(const DoctorFacts& facts, const Target& target) {
  if (target.domain == Domain::kNone) {
    return "put the pool on device DAX: pmstore pool create " + dax_device(facts);
  }
  if (has_hardware_rnic(facts) && !target.unregistrable.empty()) {
    return "put the pool on device DAX, which an RNIC can register (row NVM mode)";
  }
  if (has_hardware_rnic(facts)) return "pmstore ddio off --apply, and pmstored --ddio off";
  return "only an RNIC in hardware with DDIO off, or eADR, makes one-sided writes durable";
}

Finding strategy(const DoctorFacts& facts, const Landing& landing) {
  Finding row{"h9",
              "H9 remote write",
              Verdict::kOk,
              "",
              "WRITE and READ with one doorbell are one round "
              "trip without the server's CPU; two-sided needs it for every write",
              ""};
  const Target target = target_of(facts);
  const auto& domain = target.domain;
  const bool reached = has_hardware_rnic(facts) && target.unregistrable.empty();
  const auto where = reached ? landing.where : WriteLanding::kCpu;
  // The promises of every fabric: verbs, and tcp and shm, which clients use without an RNIC.
  fabric::Capabilities fabric;
  fabric.read_after_read = fabric.read_after_write = fabric.write_after_write = true;
  fabric.cpu_moves_data = !reached;
  const auto choose = [&](Domain assumed, WriteLanding lands) {
    const persist::PersistCapability server{assumed, lands, false};
    return persist::negotiate(persist::WriteStrategy::kAuto, server, fabric);
  };
  const auto chosen =
      choose(domain.value_or(Domain::kNone), where.value_or(WriteLanding::kLastLevelCache));
  const auto hoped =
      choose(domain.value_or(Domain::kCpuCache), where.value_or(WriteLanding::kMemory));
  if (!chosen || !hoped) {
    row.verdict = Verdict::kUnknown;
    row.seen = (chosen ? hoped : chosen).error().message;
    row.fix = "pmstore bench persist";
    return row;
  }
  row.seen =
      fmt::format("auto chooses {}: domain {}, writes land in {}", persist::strategy_name(*chosen),
                  domain ? persist::domain_name(*domain) : "not declared, taken for none",
                  where ? persist::landing_name(*where) : "an unknown place, taken for the cache");
  if (!target.seen.empty()) append(row.seen, target.seen);
  if (has_hardware_rnic(facts) && !reached) {
    append(row.seen, target.unregistrable +
                         " is fsdax, which an RNIC cannot register: clients use "
                         "tcp or shm");
  }
  if (*chosen != *hoped) {
    row.verdict = Verdict::kUnknown;
    row.seen += fmt::format("; it may be {}", persist::strategy_name(*hoped));
    row.fix = domain ? landing.fix : "cat /sys/bus/nd/devices/region*/persistence_domain";
    return row;
  }
  // A server assumes that DDIO is on unless an option says otherwise.
  if (where == WriteLanding::kMemory && domain == Domain::kMemoryController) {
    row.seen += "; with pmstored --ddio off";
  }
  if (*chosen != persist::WriteStrategy::kTwoSided) {
    // The server's choice, and what a client does of it, where --locks does not say otherwise.
    if (!reached || !has_remote_atomics(facts)) {
      append(row.seen, "redo records two_sided, since locks cpu");
    }
    return row;
  }
  row.verdict = Verdict::kCosts;
  row.fix = strategy_fix(facts, target);
  return row;
}

void session_row(const DoctorFacts& facts, std::vector<Finding>& rows) {
  if (!facts.session) return;
  Finding row{
      "uri",
      "server reached",
      Verdict::kOk,
      "",
      "a client must connect, register memory, and reach the pool in every way that it uses",
      ""};
  if (*facts.session) {
    const DoctorSession& session = **facts.session;
    row.seen = fmt::format("{}: domain {}, writes land in {}, locks {}, redo {}; tried: {}",
                           session.uri, session.domain, session.landing, session.locks,
                           session.strategy, session.tried);
  } else {
    const ErrorCode code = facts.session->code();
    const std::string uri = printable(facts.server_uri);
    row.verdict = Verdict::kCosts;
    row.seen = facts.session->error().message;
    row.fix = code == ErrorCode::kTimeout || code == ErrorCode::kDisconnected
                  ? fmt::format(
                        "start it, and check address and firewall: pmstored --pool {} "
                        "--listen {}",
                        facts.pool_path.empty() ? "PATH" : printable(facts.pool_path), uri)
                  : "do what it says, then pmstore doctor --uri " + uri;
  }
  rows.push_back(row);
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "ok";
    case Verdict::kCosts: return "costs you";
    case Verdict::kUnknown: return "unknown";
  }
  return "?";
}

void examine_rules(const DoctorFacts& facts, std::vector<Finding>& rows) {
  const Landing landing = find_landing(facts);
  examine_placement(facts, rows);
  rows.push_back(device_cache(facts, landing));
  rows.push_back(instructions(facts));
  pool_rows(facts, rows);
  rows.push_back(strategy(facts, landing));
  session_row(facts, rows);
}

std::vector<Finding> examine(const DoctorFacts& facts) {
  std::vector<Finding> rows;
  examine_network(facts, rows);
  examine_nvm(facts, rows);
  examine_rules(facts, rows);
  return rows;
}

}  // namespace pmstore::tools
