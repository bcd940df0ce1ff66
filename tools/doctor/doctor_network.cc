// Doctor's rows about RDMA devices, and what the host grants them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "ddio/root_port.h"
#include "persist/pool.h"
#include "tools/doctor/doctor.h"

namespace pmstore::tools {
namespace {

std::string port_path(const std::string& device, uint32_t port) {
  return fmt::format("/sys/class/infiniband/{}/ports/{}", device, port);
}

std::string file_or(const ddio::Machine& machine, const std::string& path, std::string otherwise) {
  auto text = machine.read_text(path);
  return text ? std::move(*text) : std::move(otherwise);
}

std::string netdev_of(const ddio::Machine& machine, const std::string& device, uint32_t port) {
  const std::string gids = port_path(device, port) + "/gid_attrs/ndevs";
  const auto indices = machine.list(gids);
  for (const std::string& index : indices ? *indices : std::vector<std::string>()) {
    if (auto name = machine.read_text(gids + "/" + index); name && !name->empty()) return *name;
  }
  // Without a GID: that of the same PCI function, or what a software RNIC is on.
  const std::string folder = "/sys/class/infiniband/" + device;
  const auto function = machine.resolve(folder + "/device");
  const auto netdevs = machine.list("/sys/class/net");
  if (function && netdevs) {
    for (const std::string& netdev : *netdevs) {
      const auto other = machine.resolve("/sys/class/net/" + netdev + "/device");
      if (other && *other == *function) return netdev;
    }
  }
  return file_or(machine, folder + "/parent", "NETDEV");
}

Finding no_device(const DoctorFacts& facts, std::string id, std::string title, std::string why) {
  return {std::move(id),     std::move(title),
          Verdict::kUnknown, facts.rdma ? "no RDMA device" : facts.rdma.error().message,
          std::move(why),    "rdma link show"};
}

Finding network_presence(const DoctorFacts& facts) {
  Finding row{"rnic",
              "RNIC present",
              Verdict::kOk,
              "",
              "without one, clients use tcp or shm: the "
              "server's CPU moves every byte",
              ""};
  if (!facts.rdma) {
    row.verdict = Verdict::kUnknown;
    row.seen = facts.rdma.error().message;
    row.fix = "ibv_devinfo";
    return row;
  }
  for (const auto& device : *facts.rdma) append(row.seen, device.name);
  if (facts.rdma->empty()) {
    row.verdict = Verdict::kCosts;
    row.seen = "no RDMA device";
    row.fix =
        "lspci | grep -i mellanox, then modprobe mlx5_ib; for tests without one: rdma link "
        "add rxe0 type rxe netdev eth0";
  } else if (!has_hardware_rnic(facts)) {
    row.verdict = Verdict::kCosts;
    row.seen += " (software)";
    row.why = "a software RNIC moves data with the server's CPU: fit for tests only";
    row.fix = "put in an RNIC and load its driver: modprobe mlx5_ib";
  }
  return row;
}

// The card that a device is a port of: its slot, whatever the function.
std::string slot_of(const ddio::Machine& machine, const std::string& device) {
  const auto target = machine.resolve("/sys/class/infiniband/" + device + "/device");
  if (!target || target->find("/pci") == target->npos) return device;
  return target->substr(0, target->rfind('.'));
}

// Another port of the same card is in use: this one may be spare.
bool has_active_sibling(const DoctorFacts& facts, const std::string& device) {
  const std::string slot = slot_of(*facts.machine, device);
  return std::any_of(facts.rdma->begin(), facts.rdma->end(), [&](const auto& other) {
    return slot_of(*facts.machine, other.name) == slot &&
           std::any_of(other.ports.begin(), other.ports.end(),
                       [](const auto& port) { return port.active; });
  });
}

Finding link(const DoctorFacts& facts) {
  const ddio::Machine& machine = *facts.machine;
  Finding row{"link",
              "link rate",
              Verdict::kOk,
              "",
              "a port that is down or on a slow PCIe link "
              "caps every transfer",
              ""};
  for (const auto& device : *facts.rdma) {
    for (const auto& port : device.ports) {
      append(row.seen,
             fmt::format(
                 "{} port {}: {}", device.name, port.number,
                 port.active
                     ? file_or(machine, port_path(device.name, port.number) + "/rate", "active") +
                           " (not judged)"
                     : "not active"));
      if (port.active) continue;
      if (has_active_sibling(facts, device.name)) {
        row.seen += ", another port of the card is";
        continue;
      }
      row.verdict = Verdict::kCosts;
      append(row.fix,
             port.ethernet
                 ? fmt::format("ip link set {} up, then check the cable: rdma link show {}",
                               netdev_of(machine, device.name, port.number), device.name)
                 : fmt::format("check the cable, and that a subnet manager runs (systemctl start "
                               "opensm): rdma link show {}/{}",
                               device.name, port.number));
    }
    const std::string folder = "/sys/class/infiniband/" + device.name + "/device/";
    const auto width = machine.read_text(folder + "current_link_width");
    const auto most_width = machine.read_text(folder + "max_link_width");
    const auto speed = machine.read_text(folder + "current_link_speed");
    const auto most_speed = machine.read_text(folder + "max_link_speed");
    if (!width || !most_width || !speed || !most_speed) continue;
    // Virtual functions, and cards that sleep, do not say.
    if (*width == "0" || speed->starts_with("Unknown")) {
      append(row.seen, device.name + ": its PCIe link is not known");
      if (row.verdict == Verdict::kOk) row.verdict = Verdict::kUnknown;
      append(row.fix, "lspci -vv | grep LnkSta (of a virtual function: on the host)");
      continue;
    }
    append(row.seen,
           fmt::format("PCIe x{} {} of x{} {}", *width, *speed, *most_width, *most_speed));
    if (*width == *most_width && *speed == *most_speed) continue;
    row.verdict = Verdict::kCosts;
    append(row.fix, fmt::format("move {} to a slot that has all its lanes: lspci -vv | grep LnkSta",
                                device.name));
  }
  return row;
}

Finding mtu(const DoctorFacts& facts) {
  Finding row{"mtu",
              "MTU",
              Verdict::kOk,
              "",
              "small packets: more headers and more work in the "
              "RNIC for transfers above the MTU",
              ""};
  for (const auto& device : *facts.rdma) {
    for (const auto& port : device.ports) {
      append(row.seen,
             fmt::format("{}: {} of {}", device.name, port.mtu_bytes, port.most_mtu_bytes));
      if (port.mtu_bytes >= port.most_mtu_bytes) continue;
      row.verdict = Verdict::kCosts;
      append(row.fix, port.ethernet
                          ? fmt::format("ip link set {} mtu 4200 (and the switch's ports)",
                                        netdev_of(*facts.machine, device.name, port.number))
                          : "set the subnet manager's partition to mtu=5 (4096 bytes)");
    }
  }
  return row;
}

// The best GID of a port, as RDMA connections choose it.
struct Gid {
  int rank = 0;  // 3: RoCE v2 of an IPv4 address, 2: RoCE v2, 1: RoCE v1, 0: none
  std::string text;
};
Gid best_gid(const ddio::Machine& machine, const std::string& port) {
  Gid best;
  const auto names = machine.list(port + "/gids");
  if (!names) return best;
  for (const std::string& index : *names) {
    const std::string gid = file_or(machine, port + "/gids/" + index, "");
    if (gid.find_first_not_of("0:") == gid.npos) continue;
    const std::string type = file_or(machine, port + "/gid_attrs/types/" + index, "");
    const bool mapped = gid.starts_with("0000:0000:0000:0000:0000:ffff:");
    const int rank = type != "RoCE v2" ? 1 : mapped ? 3 : 2;
    if (rank > best.rank) best = {rank, fmt::format("GID {} {} {}", index, type, gid)};
  }
  return best;
}

Finding gid(const DoctorFacts& facts) {
  Finding row{"gid",
              "GID type and index",
              Verdict::kOk,
              "",
              "connections over Ethernet need a RoCE "
              "v2 address: v1 does not pass routers, and without an IP address there is none",
              ""};
  for (const auto& device : *facts.rdma) {
    for (const auto& port : device.ports) {
      if (!port.ethernet) {
        append(row.seen, device.name + ": InfiniBand");
        continue;
      }
      const Gid best = best_gid(*facts.machine, port_path(device.name, port.number));
      append(row.seen, device.name + ": " + (best.rank == 0 ? "none" : best.text));
      if (best.rank >= 2) continue;
      row.verdict = Verdict::kCosts;
      const std::string netdev = netdev_of(*facts.machine, device.name, port.number);
      append(row.fix, fmt::format("ip addr add 10.0.0.1/24 dev {}", netdev));
      if (best.rank == 0) continue;
      // The kernel makes a v2 GID beside each v1 one, where the device has v2.
      append(
          row.fix,
          fmt::format("if {0} has no v2 GID then, its driver has no RoCE v2; what rdma_cm takes: "
                      "modprobe configfs; mkdir /sys/kernel/config/rdma_cm/{0}; echo 'RoCE v2' "
                      "> /sys/kernel/config/rdma_cm/{0}/ports/{1}/default_roce_mode",
                      device.name, port.number));
    }
  }
  return row;
}

Finding atomics(const DoctorFacts& facts) {
  Finding row{"atomics",
              "remote atomics",
              Verdict::kOk,
              "",
              "without them clients cannot lock: every "
              "commit goes through the server's CPU (--locks cpu)",
              ""};
  for (const auto& device : *facts.rdma) {
    const bool none = device.atomics == fabric::AtomicScope::kNone;
    append(row.seen, device.name + (none ? ": none"
                                    : device.atomics == fabric::AtomicScope::kGlobal
                                        ? ": atomic against the CPU too"
                                        : ": atomic against this device only"));
    if (!none) continue;
    row.verdict = Verdict::kCosts;
    row.fix = "pmstored --locks cpu is all that works here; ibv_devinfo -v shows atomic_cap";
  }
  return row;
}

Finding paging(const DoctorFacts& facts) {
  Finding row{"odp",
              "on-demand paging",
              Verdict::kOk,
              "",
              "pmstore pins what it registers, and "
              "memory of an fsdax file system cannot be pinned; device DAX can",
              ""};
  for (const auto& device : *facts.rdma) {
    append(row.seen, device.name + (device.on_demand_paging ? ": yes, not used" : ": no"));
  }
  if (!facts.nvm) return row;
  for (const auto& region : *facts.nvm) {
    for (const auto& space : region.namespaces) {
      if (space.mode != "fsdax") continue;
      row.verdict = Verdict::kCosts;
      append(row.seen, space.name + " is fsdax and cannot be registered");
      append(row.fix,
             fmt::format("ndctl create-namespace -f -e {} -m devdax (its contents are lost)",
                         space.name));
    }
  }
  return row;
}

// Costs nothing either way: what the library lacks, no setting brings.
Finding native_flush(const DoctorFacts& facts) {
  Finding row{"flush", "native FLUSH", Verdict::kOk, "", "", ""};
  for (const auto& device : *facts.rdma) {
    append(row.seen, device.name + (device.native_flush ? ": its driver reports FLUSH"
                                                        : ": its driver reports none"));
  }
  append(row.seen, "not used by pmstore: a READ behind the WRITE does the same");
  return row;
}

// Bytes; nothing when it is unlimited or not known.
std::optional<uint64_t> memlock_limit(const ddio::Machine& machine, bool* known) {
  const std::string limits = file_or(machine, "/proc/self/limits", "");
  const size_t at = limits.find("Max locked memory");
  *known = at != limits.npos;
  if (!*known) return std::nullopt;
  std::istringstream words(limits.substr(at + 17));
  std::string soft;
  words >> soft;
  if (soft == "unlimited") return std::nullopt;
  return std::strtoull(soft.c_str(), nullptr, 10);
}

// CAP_IPC_LOCK, bit 14: who has it may pin beyond the limit.
bool may_pin_anything(const ddio::Machine& machine) {
  const std::string status = file_or(machine, "/proc/self/status", "");
  const size_t at = status.find("CapEff:");
  return at != status.npos && (std::strtoull(status.c_str() + at + 7, nullptr, 16) >> 14 & 1) != 0;
}

Finding memlock(const DoctorFacts& facts) {
  Finding row{"memlock",
              "locked memory",
              Verdict::kOk,
              "",
              "an RNIC pins what it may reach: the pool "
              "and about a quarter of its size for lock words and index",
              ""};
  if (facts.rdma && facts.rdma->empty()) {
    row.seen = "nothing is pinned without an RNIC";
    return row;
  }
  bool known = false;
  const auto limit = memlock_limit(*facts.machine, &known);
  if (!known) {
    row.verdict = Verdict::kUnknown;
    row.seen = "/proc/self/limits cannot be read";
    row.fix = "ulimit -l";
    return row;
  }
  if (!limit || may_pin_anything(*facts.machine)) {
    row.seen =
        limit ? fmt::format("{} bytes, but this user may pin beyond it", *limit) : "unlimited";
    return row;
  }
  uint64_t largest = persist::kMinPoolBytes;
  if (facts.pool && *facts.pool) {
    largest = (**facts.pool).bytes;
  } else if (facts.nvm) {
    for (const auto& region : *facts.nvm) {
      for (const auto& space : region.namespaces) largest = std::max(largest, space.bytes);
    }
  }
  const uint64_t needed = largest + largest / 4;
  row.seen = fmt::format("{} bytes; {} are needed", *limit, needed);
  if (*limit >= needed) return row;
  row.verdict = Verdict::kCosts;
  row.fix =
      "ulimit -l unlimited in the shell that starts pmstored; for good: '* - memlock "
      "unlimited' in /etc/security/limits.conf, or LimitMEMLOCK=infinity in its unit";
  return row;
}

Finding hugepages(const DoctorFacts& facts) {
  Finding row{"hugepages",
              "huge pages",
              Verdict::kOk,
              "",
              "lock words and index are ordinary memory: "
              "in 4 KiB pages each takes an entry of the RNIC's translation cache",
              ""};
  const std::string path = "/sys/kernel/mm/transparent_hugepage/enabled";
  const auto setting = facts.machine->read_text(path);
  row.seen = setting ? "transparent huge pages: " + *setting : setting.error().message;
  if (!setting) {
    row.verdict = Verdict::kUnknown;
    row.fix = "cat " + path;
  } else if (has_hardware_rnic(facts) && setting->find("[always]") == setting->npos) {
    row.verdict = Verdict::kCosts;
    row.fix = "echo always > " + path;
  }
  return row;
}

}  // namespace

bool has_hardware_rnic(const DoctorFacts& facts) {
  return facts.rdma && std::any_of(facts.rdma->begin(), facts.rdma->end(),
                                   [](const auto& device) { return !device.software; });
}

bool has_software_rnic(const DoctorFacts& facts) {
  return facts.rdma && !facts.rdma->empty() && !has_hardware_rnic(facts);
}

void examine_network(const DoctorFacts& facts, std::vector<Finding>& rows) {
  rows.push_back(network_presence(facts));
  const bool any = facts.rdma && !facts.rdma->empty();
  if (any) {
    for (const auto& row : {link(facts), mtu(facts), gid(facts), atomics(facts), paging(facts)}) {
      rows.push_back(row);
    }
    rows.push_back(native_flush(facts));
  } else {
    for (const auto& [id, title] :
         {std::pair("link", "link rate"), std::pair("mtu", "MTU"),
          std::pair("gid", "GID type and index"), std::pair("atomics", "remote atomics"),
          std::pair("odp", "on-demand paging"), std::pair("flush", "native FLUSH")}) {
      rows.push_back(no_device(facts, id, title, "only an RDMA device has it"));
    }
  }
  rows.push_back(memlock(facts));
  rows.push_back(hugepages(facts));
}

}  // namespace pmstore::tools
