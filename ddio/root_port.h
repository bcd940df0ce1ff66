// RNICs and the PCIe root ports that they are behind, from sysfs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ddio/machine.h"
#include "ddio/recipe.h"

namespace pmstore::ddio {

// A network device, or any PCI function that a person has named.
struct Rnic {
  std::string name;  // "mlx5_0", "ens1f0", or its address
  PciAddress address;
  std::optional<int> numa_node;  // nothing when the machine does not say
};

// Every RDMA device with a PCI function, by name. `software` gets the names of the others.
std::vector<Rnic> list_rnics(const Machine& machine, std::vector<std::string>* software);
// By name of an RDMA device or of a network device, or by PCI address. NotFound when there is no
// such device; Unsupported for one that is no PCI function, as Soft-RoCE's.
Result<Rnic> find_rnic(const Machine& machine, const std::string& name);

struct RootPort {
  PciAddress address;
  std::vector<Rnic> rnics;         // of those asked for
  std::vector<PciAddress> beside;  // other functions behind it, bridges left out
  std::optional<int> numa_node;
};

// The ports that RNICs are behind, each once, in order of their addresses.
struct KnownPorts {
  struct Other {
    Rnic rnic;
    Error why;
  };
  std::vector<RootPort> ports;
  // Behind none, behind one that is no Intel bridge, or, unless `any_port`, behind one that
  // check_port() refuses.
  std::vector<Other> others;
};
KnownPorts find_known_ports(const Machine& machine, const Cpu& cpu, const std::vector<Rnic>& rnics,
                            bool any_port);

// Unsupported when `port` is none of those that the recipes of `cpu` are known to be for: a port of
// the chipset, or an unknown one.
Status check_port(const Machine& machine, const Cpu& cpu, const PciAddress& port);

// Unsupported when the port's extended capabilities show that PERFCTRLSTS is not where recipes look
// for it; Io when they cannot be read.
Status check_registers(const Machine& machine, const PciAddress& port);

}  // namespace pmstore::ddio
