#include "ddio/root_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace pmstore::ddio {
namespace {

const std::string kDevices = "/sys/bus/pci/devices/";

std::optional<PciAddress> last_address(const std::string& path) {
  return parse_pci_address(std::string_view(path).substr(path.rfind('/') + 1));
}

std::optional<int> numa_node_of(const Machine& machine, const PciAddress& address) {
  const auto text = machine.read_text(kDevices + address.text() + "/numa_node");
  if (!text) return std::nullopt;
  int node = -1;
  std::from_chars(text->data(), text->data() + text->size(), node);
  return node < 0 ? std::nullopt : std::optional<int>(node);
}

// The device behind /sys/class/CLASS/NAME/device, when that is a PCI function, or a sub-function of
// one (mlx5_core.sf.4), which is in a folder below it and writes as it does. A network device of
// virtio also has its PCI function one folder higher; that is none of ours. Soft-RoCE has an
// attribute `parent`, and its device may be the real card below it.
std::optional<PciAddress> device_of(const Machine& machine, const std::string& path) {
  if (machine.read_text(path + "/parent")) return std::nullopt;
  const auto target = machine.resolve(path + "/device");
  if (!target) return std::nullopt;
  const size_t name = target->rfind('/') + 1;
  const bool sub_function = name > 1 && target->find(".sf.", name) != target->npos;
  return last_address(sub_function ? target->substr(0, name - 1) : *target);
}

// The first function below the last host bridge in a path like
// /sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0, with the path up to it.
struct Ancestor {
  PciAddress address;
  std::string path;
};
std::optional<Ancestor> first_below_host_bridge(const std::string& path) {
  const size_t bridge = path.rfind("/pci");
  if (bridge == path.npos) return std::nullopt;
  const size_t from = path.find('/', bridge + 1);
  if (from == path.npos) return std::nullopt;
  const size_t to = path.find('/', from + 1);
  if (to == path.npos) return std::nullopt;  // the function itself
  const auto address = parse_pci_address(std::string_view(path).substr(from + 1, to - from - 1));
  if (!address) return std::nullopt;
  return Ancestor{*address, path.substr(0, to)};
}

bool is_bridge(const Machine& machine, const PciAddress& address) {
  const auto type = machine.read_text(kDevices + address.text() + "/class");
  return type && type->starts_with("0x06");
}

std::vector<PciAddress> functions_below(const Machine& machine, const std::string& port_path) {
  std::vector<PciAddress> found;
  const auto names = machine.list(kDevices.substr(0, kDevices.size() - 1));
  if (!names) return found;
  for (const std::string& name : *names) {
    const auto address = parse_pci_address(name);
    const auto path = machine.resolve(kDevices + name);
    if (address && path && path->starts_with(port_path + "/") && !is_bridge(machine, *address)) {
      found.push_back(*address);
    }
  }
  return found;
}

Result<Ancestor> port_of(const Machine& machine, const Rnic& rnic) {
  const std::string what = fmt::format("{} ({})", rnic.name, rnic.address.text());
  PMSTORE_TRY(const std::string path, machine.resolve(kDevices + rnic.address.text()));
  const auto port = first_below_host_bridge(path);
  if (!port) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} is behind no root port: it is part of the root complex, or "
                                  "given to a virtual machine; do this on the host",
                                  what));
  }
  const std::string folder = kDevices + port->address.text();
  const auto vendor = machine.read_text(folder + "/vendor");
  const auto type = machine.read_text(folder + "/class");
  if (!vendor || !type || *vendor != "0x8086" || !type->starts_with("0x0604")) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} is behind {}, which is no root port of Intel's (vendor {}, "
                                  "class {}): nothing is known about its registers",
                                  what, port->address.text(), vendor ? *vendor : "unknown",
                                  type ? *type : "unknown"));
  }
  return *port;
}

}  // namespace

std::vector<Rnic> list_rnics(const Machine& machine, std::vector<std::string>* software) {
  std::vector<Rnic> found;
  const auto names = machine.list("/sys/class/infiniband");
  if (!names) return found;  // no RDMA device, or no driver
  for (const std::string& name : *names) {
    const auto address = device_of(machine, "/sys/class/infiniband/" + name);
    if (address) {
      found.push_back({name, *address, numa_node_of(machine, *address)});
    } else if (software != nullptr) {
      software->push_back(name);
    }
  }
  return found;
}

Result<Rnic> find_rnic(const Machine& machine, const std::string& name) {
  if (const auto address = parse_pci_address(name)) {
    if (!machine.resolve(kDevices + address->text())) {
      return make_error(
          ErrorCode::kNotFound,
          fmt::format("there is no PCI function {}: lspci lists them", address->text()));
    }
    return Rnic{name, *address, numa_node_of(machine, *address)};
  }
  for (const char* type : {"infiniband", "net"}) {
    const std::string path = fmt::format("/sys/class/{}/{}", type, name);
    if (name.empty() || name.find('/') != name.npos || !machine.resolve(path)) continue;
    const auto address = device_of(machine, path);
    if (!address) {
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("{} is no PCI function: a software device writes with a CPU, "
                                    "always into its cache; there is nothing to switch",
                                    name));
    }
    return Rnic{name, *address, numa_node_of(machine, *address)};
  }
  return make_error(ErrorCode::kNotFound,
                    fmt::format("there is no RDMA device, network device or PCI address '{}': "
                                "'rdma link' and 'lspci' list them",
                                name));
}

Status check_port(const Machine& machine, const Cpu& cpu, const PciAddress& port) {
  const auto text = machine.read_text(kDevices + port.text() + "/device");
  const auto id = text ? static_cast<uint32_t>(std::strtoul(text->c_str(), nullptr, 16)) : 0;
  if (cpu.known != nullptr &&
      std::count(cpu.known->root_ports.begin(), cpu.known->root_ports.end(), id) > 0) {
    return {};
  }
  return make_error(ErrorCode::kUnsupported,
                    fmt::format("{} (device {}) is no root port of {}, perhaps one of the chipset: "
                                "its registers are not known; move the device to a slot of the "
                                "CPU's; to try a recipe all the same: --recipe NAME --force",
                                port.text(), text ? *text : "unknown", cpu.text()));
}

KnownPorts find_known_ports(const Machine& machine, const Cpu& cpu, const std::vector<Rnic>& rnics,
                            bool any_port) {
  KnownPorts found;
  for (const Rnic& rnic : rnics) {
    const auto ancestor = port_of(machine, rnic);
    const Status usable = !ancestor  ? Status(ancestor.error())
                          : any_port ? Status()
                                     : check_port(machine, cpu, ancestor->address);
    if (!usable) {
      found.others.push_back({rnic, usable.error()});
      continue;
    }
    auto port = std::find_if(found.ports.begin(), found.ports.end(),
                             [&](const RootPort& one) { return one.address == ancestor->address; });
    if (port == found.ports.end()) {
      found.ports.push_back({ancestor->address,
                             {},
                             functions_below(machine, ancestor->path),
                             numa_node_of(machine, ancestor->address)});
      port = found.ports.end() - 1;
    }
    port->rnics.push_back(rnic);
    std::erase(port->beside, rnic.address);
  }
  std::sort(found.ports.begin(), found.ports.end(),
            [](const RootPort& a, const RootPort& b) { return a.address < b.address; });
  return found;
}

Status check_registers(const Machine& machine, const PciAddress& port) {
  uint32_t at = 0x100;
  // A list of at most 3840 / 4 headers; one that goes round is cut there.
  for (int seen = 0; at >= 0x100 && seen < 960; ++seen) {
    PMSTORE_TRY(const uint32_t header, machine.read_config(port, at));
    if (header == 0 || header == UINT32_MAX) break;
    if (at == kPerfCtrlSts0 || at == kPerfCtrlSts1) {
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("{}+{:#x} is not PERFCTRLSTS here but the header of PCI "
                                    "capability {:#06x}: switch DDIO in the firmware's set-up",
                                    port.text(), at, header & 0xffff));
    }
    at = (header >> 20) & 0xffc;
  }
  return {};
}

}  // namespace pmstore::ddio
