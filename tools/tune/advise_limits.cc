#include "tools/tune/advise_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace pmstore::tools {
namespace {

constexpr double kXpLine = 256;
constexpr double kLine = 64;
constexpr double kNsPerSecond = 1e9;
// 256 bytes at 2.2 GB/s.
constexpr double kPublishedMediaWriteNs = 115.4;
// Of a RoCE v2 packet: Ethernet with preamble and gap, IPv4, UDP, BTH, RETH and checksums.
constexpr double kRoceHeaderBytes = 98;

// XPLines that the media write for a request: all that it touches.
double media_lines(const MicroPoint& point) {
  const double bytes = micro_bytes(point);
  // Neighbours are merged in the DIMM when a request is part of a line and they follow each other.
  if (point.pattern == MicroPattern::kSequential) return bytes / kXpLine;
  return std::ceil(bytes / kXpLine);
}

}  // namespace

MachineLimits model_limits(const model::Parameters& p) {
  MachineLimits limits;
  limits.link_bytes_per_ns = p.link.bytes_per_ns;
  limits.packet_header_bytes = p.link.header_bytes;
  limits.packet_bytes = p.link.mtu_bytes;
  limits.write_ns = p.rnic.rx_write_ns;
  limits.write_line_ns = p.rnic.rx_write_line_ns;
  limits.two_sided_ns = p.rnic.rx_two_sided_ns;
  limits.atomic_ns = p.rnic.atomic_ns;
  limits.media_write_ns = p.dimm.media_write_ns;
  limits.dimms = p.dimm.per_socket;
  return limits;
}

double parse_link_rate(const std::string& text) {
  char* end = nullptr;
  const double rate = std::strtod(text.c_str(), &end);
  return end != text.c_str() && std::string_view(end).starts_with(" Gb/s") && rate > 0 ? rate / 8
                                                                                       : 0;
}

MachineLimits host_limits(const ddio::Machine& machine, bool rdma,
                          const std::vector<persist::NvmRegion>& regions, const std::string& pool) {
  MachineLimits limits;
  if (const auto devices = machine.list("/sys/class/infiniband"); rdma && devices) {
    for (const std::string& device : *devices) {
      const std::string folder = "/sys/class/infiniband/" + device + "/ports/";
      const auto ports = machine.list(folder);
      for (const std::string& port : ports ? *ports : std::vector<std::string>()) {
        const auto rate = machine.read_text(folder + port + "/rate");
        const auto state = machine.read_text(folder + port + "/state");
        if (!rate || !state || state->find("ACTIVE") == state->npos) continue;
        limits.link_bytes_per_ns = std::max(limits.link_bytes_per_ns, parse_link_rate(*rate));
      }
    }
    limits.packet_header_bytes = kRoceHeaderBytes;
  }
  for (const persist::NvmRegion& region : regions) {
    const bool here = std::any_of(
        region.namespaces.begin(), region.namespaces.end(),
        [&](const persist::NvmNamespace& space) { return !pool.empty() && space.device == pool; });
    if (!here || region.interleaved_dimms == 0) continue;
    limits.media_write_ns = kPublishedMediaWriteNs;
    limits.dimms = region.interleaved_dimms;
  }
  return limits;
}

std::vector<RateLimit> rate_limits(const MachineLimits& limits, const MicroPoint& point) {
  std::vector<RateLimit> found;
  const auto add = [&](std::string name, double ns_each) {
    if (ns_each > 0) found.push_back({std::move(name), kNsPerSecond / ns_each});
  };
  const double bytes = micro_bytes(point);
  if (limits.link_bytes_per_ns > 0) {
    const double packets = std::ceil(bytes / limits.packet_bytes);
    add("link", (bytes + packets * limits.packet_header_bytes) / limits.link_bytes_per_ns);
  }
  if (point.op == MicroOp::kAtomic) {
    add("RNIC's atomics", limits.atomic_ns);
  } else if (!is_one_sided(point)) {
    add("RNIC", limits.two_sided_ns);
  } else {
    add("RNIC", bytes < kLine ? limits.write_ns : limits.write_line_ns);
  }
  if (point.op == MicroOp::kWrite && micro_medium(point) == MicroMedium::kNvm && limits.dimms > 0) {
    const double dimms = point.single_dimm ? 1 : limits.dimms;
    add(fmt::format("media of {} DIMM{}", dimms, dimms == 1 ? "" : "s"),
        media_lines(point) * limits.media_write_ns / dimms);
  }
  std::sort(found.begin(), found.end(),
            [](const RateLimit& a, const RateLimit& b) { return a.per_s < b.per_s; });
  return found;
}

}  // namespace pmstore::tools
