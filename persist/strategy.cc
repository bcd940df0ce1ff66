#include "persist/strategy.h"

#include <fmt/format.h>

#include <optional>
#include <string>

namespace pmstore::persist {
namespace {

constexpr WriteStrategy kAll[] = {WriteStrategy::kAuto,        WriteStrategy::kNaive,
                                  WriteStrategy::kOutstanding, WriteStrategy::kDoorbell,
                                  WriteStrategy::kFlush,       WriteStrategy::kTwoSided};

// Why WRITE + READ would not be durable, and what would change it; nothing when it would.
std::optional<std::string> why_not_one_sided(const PersistCapability& server,
                                             const fabric::Capabilities& fabric) {
  PersistCapability seen = server;
  // Whatever the server believes about its RNIC, this connection's bytes are stored by a CPU.
  if (fabric.cpu_moves_data) seen.landing = WriteLanding::kCpu;
  if (seen.domain == Domain::kNone) {
    return "one-sided persistent writes are not durable here: domain none, the pool is an ordinary "
           "file; use two_sided or auto, or put the pool on device DAX";
  }
  if (!seen.one_sided_durable()) {
    return fmt::format(
        "one-sided persistent writes are not durable here: domain {} with writes landing in a CPU "
        "cache ({}); use two_sided or auto, or {}",
        domain_name(seen.domain), seen.landing == WriteLanding::kCpu ? "software RNIC" : "DDIO on",
        seen.landing == WriteLanding::kCpu ? "use an RNIC that writes memory itself"
                                           : "turn DDIO off");
  }
  if (!fabric.read_after_write) {
    return "one-sided persistent writes are not durable here: this fabric does not order a READ "
           "after "
           "the WRITEs before it; use two_sided or auto, or connect by verbs";
  }
  return std::nullopt;
}

std::optional<std::string> why_not_flush(const PersistCapability& server,
                                         const fabric::Capabilities& fabric) {
  if (server.domain == Domain::kNone) {
    return "flush is not durable here: domain none, the pool is an ordinary file; use two_sided or "
           "auto, or put the pool on device DAX";
  }
  if (!server.native_flush || !fabric.native_flush) {
    return fmt::format("flush is not possible here: {} has no native FLUSH; use auto",
                       server.native_flush ? "this side's RDMA library or device" : "the server");
  }
  return std::nullopt;
}

}  // namespace

std::string_view strategy_name(WriteStrategy strategy) {
  switch (strategy) {
    case WriteStrategy::kAuto: return "auto";
    case WriteStrategy::kNaive: return "naive";
    case WriteStrategy::kOutstanding: return "outstanding";
    case WriteStrategy::kDoorbell: return "doorbell";
    case WriteStrategy::kFlush: return "flush";
    case WriteStrategy::kTwoSided: return "two_sided";
  }
  return "?";
}

Result<WriteStrategy> parse_strategy(std::string_view text) {
  for (WriteStrategy strategy : kAll) {
    if (text == strategy_name(strategy)) return strategy;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("write strategy '{}' is unknown: use auto, naive, outstanding, "
                                "doorbell, flush or two_sided",
                                text));
}

std::string_view landing_name(WriteLanding landing) {
  switch (landing) {
    case WriteLanding::kMemory: return "memory";
    case WriteLanding::kLastLevelCache: return "last-level cache";
    case WriteLanding::kCpu: return "cpu";
  }
  return "?";
}

Result<WriteStrategy> negotiate(WriteStrategy wanted, const PersistCapability& server,
                                const fabric::Capabilities& fabric) {
  const auto no_one_sided = why_not_one_sided(server, fabric);
  const auto no_flush = why_not_flush(server, fabric);
  switch (wanted) {
    case WriteStrategy::kAuto:
      if (!no_flush) return WriteStrategy::kFlush;
      return no_one_sided ? WriteStrategy::kTwoSided : WriteStrategy::kDoorbell;
    case WriteStrategy::kTwoSided: return wanted;
    case WriteStrategy::kFlush:
      if (no_flush) return make_error(ErrorCode::kUnsupported, *no_flush);
      return wanted;
    case WriteStrategy::kNaive:
    case WriteStrategy::kOutstanding:
    case WriteStrategy::kDoorbell:
      if (no_one_sided) return make_error(ErrorCode::kUnsupported, *no_one_sided);
      return wanted;
  }
  return make_error(ErrorCode::kInvalidArgument, "no such write strategy: use auto");
}

}  // namespace pmstore::persist
