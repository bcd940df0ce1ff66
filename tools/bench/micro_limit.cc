#include "tools/bench/micro_limit.h"

#include <algorithm>
#include <cmath>

namespace pmstore::tools {
namespace {

// Times the last-level cache: of a smaller range, the cache holds a share that can be seen.
constexpr double kRangeOfCaches = 16;
constexpr double kXpLineBytes = 256;

// Headers of requests that go the other way, and what an RPC adds, are left out: the limit is an
// upper bound.
double link_per_s(const model::LinkParameters& link, double bytes) {
  const double packets = std::max(1.0, std::ceil(bytes / link.mtu_bytes));
  return link.bytes_per_ns / (bytes + packets * link.header_bytes) * 1e9;
}

bool reaches_media(const model::Parameters& parameters, const MicroPoint& point) {
  if (point.op != MicroOp::kWrite && point.op != MicroOp::kRead) return false;
  if (micro_medium(point) != MicroMedium::kNvm) return false;
  if (point.pattern != MicroPattern::kRandom) return false;
  double range = static_cast<double>(point.range_bytes);
  if (point.single_dimm) range /= static_cast<double>(kInterleavedDimms);
  return range >= kRangeOfCaches * parameters.llc.kib * 1024;
}

double media_per_s(const model::DimmParameters& dimm, const MicroPoint& point, double bytes) {
  const double line_ns = point.op == MicroOp::kRead ? dimm.media_read_ns : dimm.media_write_ns;
  const double dimms = point.single_dimm ? 1 : dimm.per_socket;
  return dimms / (line_ns * std::ceil(bytes / kXpLineBytes)) * 1e9;
}

}  // namespace

std::optional<MicroLimit> modelled_limit(const model::Parameters& parameters,
                                         const MicroPoint& point) {
  const auto bytes = static_cast<double>(micro_bytes(point));
  const MicroLimit link = {link_per_s(parameters.link, bytes), "link"};
  if (!reaches_media(parameters, point)) return link;
  const MicroLimit media = {media_per_s(parameters.dimm, point, bytes), "NVM media"};
  return media.per_s < link.per_s ? media : link;
}

}  // namespace pmstore::tools
