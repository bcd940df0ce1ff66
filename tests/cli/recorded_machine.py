"""Recorded machines (docs/ddio.md) for tests, made in a folder: sockets, root ports, RNICs."""

import json
import os

SKYLAKE = ("GenuineIntel", 6, 85)
ICE_LAKE = ("GenuineIntel", 6, 106)
HASWELL = ("GenuineIntel", 6, 63)
AMD = ("AuthenticAMD", 25, 17)
CPU_NAMES = {SKYLAKE: "Intel(R) Xeon(R) Gold 6240 CPU @ 2.60GHz",
             ICE_LAKE: "Intel(R) Xeon(R) Silver 4314 CPU @ 2.40GHz",
             HASWELL: "Intel(R) Xeon(R) CPU E5-2650 v3 @ 2.30GHz",
             AMD: "AMD EPYC 9654 96-Core Processor"}
FLAGS = "fpu sse2 clflush clflushopt clwb avx512f"
# PERFCTRLSTS_0 and _1 as firmware leaves them: DDIO on.
ON_0, ON_1 = 0x00000091, 0x00000000


class RecordedMachine:
    """Two sockets with four CPUs each, unless said otherwise, and no device."""

    def __init__(self, folder, cpu=SKYLAKE, sockets=2, cpus=4, ways=0x600):
        self.folder = folder
        self.paths = {}  # of PCI functions, by address
        blocks = []
        for number in range(sockets * cpus):
            blocks.append(f"processor\t: {number}\nvendor_id\t: {cpu[0]}\ncpu family\t: {cpu[1]}\n"
                          f"model\t\t: {cpu[2]}\nmodel name\t: {CPU_NAMES[cpu]}\n"
                          f"flags\t\t: {FLAGS}\n")
            place = f"sys/devices/system/cpu/cpu{number}"
            self.write(f"{place}/topology/physical_package_id", number // cpus)
            self.write(f"{place}/cache/index3/ways_of_associativity", 11)
            if ways is not None:
                self.write(f"dev/cpu/{number}/msr.txt", f"0xc8b {ways:#x}")
        self.write("proc/cpuinfo", "\n".join(blocks))
        self.write("proc/sys/kernel/random/boot_id", "4f0f0c0e-boot-1")
        for node in range(sockets):
            place = f"sys/devices/system/node/node{node}"
            self.write(f"{place}/cpulist", f"{node * cpus}-{node * cpus + cpus - 1}")
            self.write(f"{place}/distance",
                       " ".join("10" if other == node else "21" for other in range(sockets)))
        self.write("sys/kernel/security/lockdown", "[none] integrity confidentiality")
        os.makedirs(os.path.join(folder, "sys/bus/pci/devices"), exist_ok=True)

    def write(self, path, content):
        whole = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        with open(whole, "w", encoding="utf-8") as file:
            file.write(f"{content}\n")

    def link(self, path, target):
        whole = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        os.symlink(os.path.relpath(os.path.join(self.folder, target), os.path.dirname(whole)),
                   whole)

    def function(self, address, parent, pci_class, node, vendor="0x15b3", config=None):
        """A PCI function; `parent` is the address of a bridge or a host bridge as 'pci0000:16'."""
        above = self.paths.get(parent, f"sys/devices/{parent}")
        path = self.paths[address] = f"{above}/{address}"
        self.write(f"{path}/vendor", vendor)
        self.write(f"{path}/class", pci_class)
        self.write(f"{path}/numa_node", node)
        if config is not None:
            self.write(f"{path}/config.txt", "\n".join(f"{at:#x} {value:#x}"
                                                       for at, value in sorted(config.items())))
        self.link(f"sys/bus/pci/devices/{address}", path)
        return address

    def root_port(self, address, node, values=(ON_0, ON_1), capabilities=None, vendor="0x8086",
                  device="0x2030"):
        config = {0x100: 0x1480000b, 0x148: 0x0001000d, 0x180: values[0], 0x184: values[1]}
        config.update(capabilities or {})
        self.function(address, f"pci0000:{address[5:7]}", "0x060400", node, vendor, config)
        self.write(f"{self.paths[address]}/device", device)
        return address

    def rnic(self, name, netdev, address, parent, node):
        self.function(address, parent, "0x020000", node)
        self.rdma(name, address)
        self.link(f"sys/class/net/{netdev}/device", self.paths[address])

    def rdma(self, name, address):
        self.link(f"sys/class/infiniband/{name}/device", self.paths[address])

    def software_rnic(self, name):
        self.write(f"sys/class/infiniband/{name}/node_type", "1: CA")

    def registers(self, address):
        """{offset: value} of what is recorded now."""
        with open(os.path.join(self.folder, self.paths[address], "config.txt"),
                  encoding="utf-8") as file:
            return {int(at, 16): int(value, 16) for at, value in map(str.split, file)}

    def set_switches(self, address, values):
        registers = self.registers(address)
        registers[0x180], registers[0x184] = values
        self.write(f"{self.paths[address]}/config.txt",
                   "\n".join(f"{at:#x} {value:#x}" for at, value in sorted(registers.items())))

    def everything(self):
        """{"ADDRESS+OFFSET": value} of every register of the machine, MSRs as "cpuN+OFFSET"."""
        found = {}
        for address in self.paths:
            if os.path.exists(os.path.join(self.folder, self.paths[address], "config.txt")):
                for at, value in self.registers(address).items():
                    found[f"{address}+{at:#x}"] = value
        folder = os.path.join(self.folder, "dev/cpu")
        for cpu in os.listdir(folder) if os.path.isdir(folder) else ():
            found[f"cpu{cpu}+0xc8b"] = int(self.msr(cpu), 16)
        return found

    def switches(self, address):
        registers = self.registers(address)
        return registers[0x180], registers[0x184]

    def msr(self, cpu):
        with open(os.path.join(self.folder, f"dev/cpu/{cpu}/msr.txt"), encoding="utf-8") as file:
            return dict(line.split() for line in file)["0xc8b"]

    def faults(self, *lines):
        self.write("faults", "\n".join(lines))


def two_sockets(folder, cpu=SKYLAKE, **options):
    """One RNIC on each socket."""
    machine = RecordedMachine(folder, cpu, **options)
    for node, (port, address) in enumerate((("0000:16:02.0", "0000:17:00.0"),
                                            ("0000:ae:00.0", "0000:af:00.0"))):
        machine.root_port(port, node)
        machine.rnic(f"mlx5_{node}", f"ens{node}f0", address, port, node)
    return machine


def behind_switch(folder):
    """Two RNICs and an NVMe disk behind one switch."""
    machine = RecordedMachine(folder)
    machine.root_port("0000:16:00.0", 0)
    machine.function("0000:17:00.0", "0000:16:00.0", "0x060400", 0, "0x10b5")
    for number, slot in enumerate(("0000:18:04.0", "0000:18:08.0", "0000:18:0c.0")):
        machine.function(slot, "0000:17:00.0", "0x060400", 0, "0x10b5")
        address = f"0000:{0x19 + number:02x}:00.0"
        if number == 2:
            machine.function(address, slot, "0x010802", 0, "0x144d")
        else:
            machine.rnic(f"mlx5_{number}", f"ens{number}", address, slot, 0)
    return machine


def two_ports_and_a_switch(folder):
    """A card of two functions on one socket, a card behind a switch on the other."""
    machine = RecordedMachine(folder)
    machine.root_port("0000:16:02.0", 0)
    for number in (0, 1):
        machine.rnic(f"mlx5_{number}", f"ens0f{number}", f"0000:17:00.{number}", "0000:16:02.0", 0)
    machine.root_port("0000:ae:00.0", 1, device="0x2031")
    machine.function("0000:af:00.0", "0000:ae:00.0", "0x060400", 1, "0x10b5")
    machine.function("0000:b0:04.0", "0000:af:00.0", "0x060400", 1, "0x10b5")
    machine.rnic("mlx5_2", "ens1", "0000:b1:00.0", "0000:b0:04.0", 1)
    # A port with no RNIC behind it, which is nobody's business.
    machine.root_port("0000:3a:00.0", 0)
    machine.function("0000:3b:00.0", "0000:3a:00.0", "0x010802", 0, "0x144d")
    return machine


UNLIMITED = "unlimited"


def limits(machine, memlock=UNLIMITED):
    """What /proc/self has about memory that may be pinned; without CAP_IPC_LOCK."""
    machine.write("proc/self/limits",
                  f"Max locked memory         {memlock:<20} {memlock:<20} bytes")
    machine.write("proc/self/status", "Name:\tpmstore\nCapEff:\t0000000000000000")
    machine.write("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never")


def rdma_port(machine, name, netdev, rate="100 Gb/sec (4X EDR)", gid_type="RoCE v2"):
    port = f"sys/class/infiniband/{name}/ports/1"
    machine.write(f"{port}/rate", rate)
    machine.write(f"{port}/gid_attrs/ndevs/0", netdev)
    machine.write(f"{port}/gid_attrs/types/0", gid_type)
    machine.write(f"{port}/gids/0", "0000:0000:0000:0000:0000:ffff:0a00:0001")


def inventory(machine, rdma=(), nvm=()):
    machine.write("inventory.json", json.dumps({"rdma": list(rdma), "nvm": list(nvm)}))


def rdma_facts(name, **changes):
    port = {"mtu": 4096, "most_mtu": 4096}
    port.update(changes.pop("port", {}))
    return {"name": name, "ports": [port], **changes}


def nvm_facts(node, mode="devdax", **changes):
    number = node
    region = {"name": f"region{number}", "bytes": 6 << 37, "numa_node": node,
              "interleaved_dimms": 6, "domain": "adr",
              "dimms": [{"name": f"nmem{6 * number + i}", "health": "ok"} for i in range(6)],
              "namespaces": [{"name": f"namespace{number}.0", "mode": mode,
                              "device": f"/dev/dax{number}.0", "bytes": 1 << 39,
                              "alignment": 2 << 20}]}
    region.update(changes)
    return region


def well_set_up(folder, cpu=SKYLAKE):
    """Two sockets with Optane and a ConnectX-5 each, DDIO off."""
    machine = RecordedMachine(folder, cpu)
    limits(machine)
    for node, (port, address) in enumerate((("0000:16:02.0", "0000:17:00.0"),
                                            ("0000:ae:00.0", "0000:af:00.0"))):
        machine.root_port(port, node, (0x11, 0x200))
        machine.rnic(f"mlx5_{node}", f"ens{node}f0", address, port, node)
        rdma_port(machine, f"mlx5_{node}", f"ens{node}f0")
        for name, value in (("current_link_speed", "8.0 GT/s PCIe"), ("current_link_width", "16"),
                            ("max_link_speed", "8.0 GT/s PCIe"), ("max_link_width", "16")):
            machine.write(f"{machine.paths[address]}/{name}", value)
    inventory(machine, [rdma_facts("mlx5_0"), rdma_facts("mlx5_1")], [nvm_facts(0), nvm_facts(1)])
    return machine
