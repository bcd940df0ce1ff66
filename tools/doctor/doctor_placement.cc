// Doctor's rows about where things are: RNIC, persistent memory and cores (H1), and who writes to
// the DIMMs (H2).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>

#include "ddio/root_port.h"
#include "tools/doctor/doctor.h"

namespace pmstore::tools {
namespace {

constexpr int kFar = std::numeric_limits<int>::max();

// Numbers of a list like "0-3,8,10-11".
std::set<int> parse_cpus(const std::string& list) {
  std::set<int> cpus;
  const char* at = list.c_str();
  while (*at != '\0') {
    char* end = nullptr;
    const long first = std::strtol(at, &end, 10);
    if (end == at) break;
    long last = first;
    if (*end == '-') {
      at = end + 1;
      last = std::strtol(at, &end, 10);
      if (end == at) break;
    }
    for (long cpu = first; cpu <= last && last - first < 65536; ++cpu) {
      cpus.insert(static_cast<int>(cpu));
    }
    at = *end == ',' ? end + 1 : end;
  }
  return cpus;
}

struct Node {
  std::string cpulist;
  std::set<int> cpus;
  std::map<int, int> distances;  // to each node
  std::optional<int> socket;     // of its cores
};

std::map<int, Node> nodes_of(const ddio::Machine& machine) {
  std::map<int, Node> nodes;
  const auto names = machine.list("/sys/devices/system/node");
  if (!names) return nodes;
  for (const std::string& name : *names) {
    if (!name.starts_with("node") || name.size() < 5 || name[4] < '0' || name[4] > '9') continue;
    nodes[std::atoi(name.c_str() + 4)];
  }
  for (auto& [number, node] : nodes) {
    const std::string folder = fmt::format("/sys/devices/system/node/node{}/", number);
    if (const auto list = machine.read_text(folder + "cpulist")) node.cpulist = *list;
    node.cpus = parse_cpus(node.cpulist);
    if (!node.cpus.empty()) {
      const auto socket =
          machine.read_text(fmt::format("/sys/devices/system/cpu/cpu{}/topology/"
                                        "physical_package_id",
                                        *node.cpus.begin()));
      if (socket) node.socket = std::atoi(socket->c_str());
    }
    // One number for each node that is there, in their order.
    const auto row = machine.read_text(folder + "distance");
    const char* at = row ? row->c_str() : "";
    for (const auto& [other, unused] : nodes) {
      char* end = nullptr;
      const long value = std::strtol(at, &end, 10);
      if (end == at) break;
      node.distances[other] = static_cast<int>(value);
      at = end;
    }
  }
  return nodes;
}

// Whether `device` is the pool's device, or has the pool's file system, or a partition with that
// file system.
bool is_on(const ddio::Machine& machine, const DoctorPool& pool, const std::string& device) {
  if (device.empty()) return false;
  if (device == pool.path || device == pool.real_path) return true;
  if (pool.block_device.empty()) return false;
  const auto disk = machine.resolve("/sys/dev/block/" + pool.block_device);
  const std::string name = device.substr(device.rfind('/'));
  return disk && (*disk + "/").find("/block" + name + "/") != std::string::npos;
}

// The regions that matter: that of the pool that was named, or all.
std::vector<const persist::NvmRegion*> regions_of(const DoctorFacts& facts) {
  std::vector<const persist::NvmRegion*> all, named;
  for (const auto& region : *facts.nvm) {
    all.push_back(&region);
    for (const auto& space : region.namespaces) {
      if (facts.pool && *facts.pool && is_on(*facts.machine, **facts.pool, space.device)) {
        named.push_back(&region);
      }
    }
  }
  return named.empty() ? all : named;
}

class Placement {
 public:
  Placement(const DoctorFacts& facts, Finding& row)
      : machine_(*facts.machine), nodes_(nodes_of(machine_)), row_(row) {}

  size_t nodes() const { return nodes_.size(); }
  void add_rnics();
  void add_regions(const DoctorFacts& facts);
  bool complete() const { return complete_ && !rnics_.empty() && !regions_.empty(); }
  void judge();

 private:
  struct Place {
    std::string name;
    int node;
  };
  std::optional<Place> place_of(const std::string& name, std::optional<int> node);
  bool same_socket(int a, int b) const;
  int distance(int node, int other) const;
  void judge_region(const Place& region);
  void judge_cores();
  void costs(std::string fix);

  const ddio::Machine& machine_;
  const std::map<int, Node> nodes_;
  Finding& row_;
  std::vector<Place> rnics_, regions_;
  bool complete_ = true;
};

std::optional<Placement::Place> Placement::place_of(const std::string& name,
                                                    std::optional<int> node) {
  append(row_.seen, fmt::format("{} on node {}", name, node ? std::to_string(*node) : "unknown"));
  if (node && nodes_.contains(*node)) return Place{name, *node};
  complete_ = false;
  return std::nullopt;
}

void Placement::add_rnics() {
  for (const auto& rnic : ddio::list_rnics(machine_, nullptr)) {
    if (const auto place = place_of(rnic.name, rnic.numa_node)) rnics_.push_back(*place);
  }
}

void Placement::add_regions(const DoctorFacts& facts) {
  for (const persist::NvmRegion* region : regions_of(facts)) {
    if (const auto place = place_of(region->name, region->numa_node)) regions_.push_back(*place);
  }
}

// Nodes may be parts of a socket (sub-NUMA clusters).
bool Placement::same_socket(int a, int b) const {
  const auto &first = nodes_.at(a).socket, &second = nodes_.at(b).socket;
  return a == b || (first && second && *first == *second);
}

int Placement::distance(int node, int other) const {
  const auto& row = nodes_.at(node).distances;
  const auto at = row.find(other);
  return at == row.end() ? kFar : at->second;
}

void Placement::costs(std::string fix) {
  row_.verdict = Verdict::kCosts;
  if (row_.fix.empty()) row_.fix = std::move(fix);
}

void Placement::judge_region(const Place& region) {
  const Node& node = nodes_.at(region.node);
  const auto nearest =
      std::min_element(rnics_.begin(), rnics_.end(), [&](const Place& a, const Place& b) {
        return std::pair(!same_socket(a.node, region.node), distance(a.node, region.node)) <
               std::pair(!same_socket(b.node, region.node), distance(b.node, region.node));
      });
  const int far = distance(nearest->node, region.node);
  append(row_.seen, fmt::format("{} to {}: distance {}", nearest->name, region.name,
                                far == kFar ? "unknown" : std::to_string(far)));
  if (!same_socket(nearest->node, region.node)) {
    row_.seen += ", another socket";
    costs(fmt::format(
        "move an RNIC to a slot of socket {}, or put the pool on node {} and start "
        "numactl -N {} -m {} pmstored",
        node.socket.value_or(region.node), nearest->node, nearest->node, nearest->node));
    return;
  }
  if (!node.cpus.empty()) {
    row_.seen += fmt::format(", cores {} on node {}", node.cpulist, region.node);
    return;
  }
  row_.seen += fmt::format(", node {} has no cores", region.node);
  costs("put the pool on a node that has cores and an RNIC: numactl --hardware");
}

// Whether a server that is started here would run where the memory is.
void Placement::judge_cores() {
  const auto status = machine_.read_text("/proc/self/status");
  const size_t at = status ? status->find("Cpus_allowed_list:") : std::string::npos;
  if (at == std::string::npos) return;
  const std::string list =
      status->substr(status->find_first_not_of(" \t", at + 18),
                     status->find('\n', at) - status->find_first_not_of(" \t", at + 18));
  const std::set<int> allowed = parse_cpus(list);
  for (const Place& region : regions_) {
    for (const auto& [number, node] : nodes_) {
      if (!same_socket(number, region.node)) continue;
      for (const int cpu : node.cpus) {
        if (allowed.contains(cpu)) return;
      }
    }
  }
  append(row_.seen, fmt::format("programs started here may run on cores {} only", list));
  costs(fmt::format("start pmstored where it may use the cores of node {}: numactl -N {} pmstored",
                    regions_.front().node, regions_.front().node));
}

void Placement::judge() {
  for (const Place& region : regions_) judge_region(region);
  judge_cores();
}

Finding same_socket(const DoctorFacts& facts) {
  Finding row{"h1",
              "H1 one socket",
              Verdict::kOk,
              "",
              "persistent memory of the other socket has about "
              "half the write bandwidth: pool, RNIC and cores belong on one",
              ""};
  Placement placement(facts, row);
  if (placement.nodes() == 1) {
    row.seen = "one NUMA node";
    return row;
  }
  placement.add_rnics();
  if (has_nvm(facts)) placement.add_regions(facts);
  if (placement.complete()) {
    placement.judge();
    return row;
  }
  row.verdict = Verdict::kUnknown;
  append(row.seen, fmt::format("{} NUMA nodes", placement.nodes()));
  row.fix = "numactl --hardware; cat /sys/class/infiniband/*/device/numa_node";
  return row;
}

bool is_gone(const ddio::Machine& machine, const std::string& process) {
  const auto files = machine.list("/proc/" + process);
  return !files && files.code() == ErrorCode::kNotFound;
}

// How many processes have a device mapped so that they can write to it.
struct Writers {
  std::map<std::string, uint32_t> of_device;
  bool all_seen = true;
  bool cut = false;  // somebody has more mappings than are read
};

// The most bytes that read_text() gives, without the newline at the end.
constexpr size_t kMostText = (1 << 20) - 1;

Writers find_writers(const ddio::Machine& machine, const std::set<std::string>& devices) {
  Writers writers;
  const auto names = machine.list("/proc");
  if (!names || devices.empty()) return writers;
  for (const std::string& name : *names) {
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    const auto maps = machine.read_text("/proc/" + name + "/maps");
    if (!maps) {
      // One that has just ended is no writer.
      writers.all_seen &= maps.code() == ErrorCode::kNotFound || is_gone(machine, name);
      continue;
    }
    writers.cut |= maps->size() >= kMostText;
    for (const std::string& device : devices) {
      for (size_t at = 0; (at = maps->find(" " + device, at)) != maps->npos; ++at) {
        const size_t end = at + 1 + device.size();
        const size_t begin = maps->rfind('\n', at) + 1;  // npos + 1 is 0
        const std::string_view line(maps->data() + begin, at - begin);
        const bool whole = end == maps->size() || (*maps)[end] == '\n' || (*maps)[end] == ' ';
        if (!whole || line.find(" rw-s ") == line.npos) continue;
        ++writers.of_device[device];
        break;
      }
    }
  }
  return writers;
}

Finding writers(const DoctorFacts& facts) {
  Finding row{"h2",
              "H2 writers per DIMM",
              Verdict::kOk,
              "",
              "beyond about four CPU writers on one DIMM "
              "its bandwidth falls, by a third at twenty",
              ""};
  if (!has_nvm(facts)) {
    row.verdict = Verdict::kUnknown;
    row.seen = "no persistent memory";
    row.fix = "ndctl list -RD";
    return row;
  }
  std::set<std::string> devices;
  for (const auto& region : *facts.nvm) {
    for (const auto& space : region.namespaces) {
      if (space.mode == "devdax" && !space.device.empty()) devices.insert(space.device);
    }
  }
  Writers writers = find_writers(*facts.machine, devices);
  for (const auto& region : *facts.nvm) {
    uint32_t count = 0;
    std::string used;  // the region's devices that somebody has
    for (const auto& space : region.namespaces) {
      const uint32_t here = writers.of_device[space.device];
      count += here;
      if (here > 0) used += " " + space.device;
    }
    const uint32_t room = 4 * std::max(1u, region.interleaved_dimms);
    append(row.seen,
           fmt::format("{}: {} process{} may write to its device DAX, room for {} writers (each "
                       "pmstored writes with one thread)",
                       region.name, count, count == 1 ? "" : "es", room));
    if (count <= room) continue;
    row.verdict = Verdict::kCosts;
    row.fix = "stop some of them: fuser -v" + used;
  }
  if (writers.all_seen && !writers.cut) return row;
  row.seen += writers.all_seen ? "; a process has more mappings than were read"
                               : "; processes of others were not seen";
  if (row.verdict != Verdict::kOk) return row;
  row.verdict = Verdict::kUnknown;
  // Root may not see it either, for instance in a container.
  std::string look = "fuser -v";
  for (const std::string& device : devices) look += " " + device;
  row.fix = !writers.all_seen && geteuid() != 0 ? kRunAsRoot : look + ", outside of containers";
  return row;
}

}  // namespace

void examine_placement(const DoctorFacts& facts, std::vector<Finding>& rows) {
  rows.push_back(same_socket(facts));
  rows.push_back(writers(facts));
}

}  // namespace pmstore::tools
