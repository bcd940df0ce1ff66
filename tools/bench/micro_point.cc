#include "tools/bench/micro_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "fabric/batch.h"
#include "tools/cli/invalid_argument.h"

namespace pmstore::tools {

using persist::Rule;
using persist::WriteStrategy;

namespace {

template <typename T, size_t N>
Result<T> parse_one(std::string_view what, std::string_view text, const std::array<T, N>& all,
                    std::string_view (*name)(T)) {
  std::string names;
  for (size_t i = 0; i < N; ++i) {
    if (text == name(all[i])) return all[i];
    names += fmt::format("{}{}", i == 0 ? "" : i + 1 == N ? " or " : ", ", name(all[i]));
  }
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("{} '{}' is unknown: use {}", what, text, names));
}

constexpr uint32_t kMostPayload = 1u << 20;

// Rule H2 has something to bound: server threads that write to nvm.
bool bounds_writers(const MicroPoint& point) {
  return point.op == MicroOp::kWrite && !is_one_sided(point) && point.medium == MicroMedium::kNvm &&
         point.rules.has(Rule::kH2);
}

}  // namespace

std::string_view op_name(MicroOp op) {
  switch (op) {
    case MicroOp::kWrite: return "write";
    case MicroOp::kRead: return "read";
    case MicroOp::kAtomic: return "atomic";
    case MicroOp::kEcho: return "echo";
  }
  return "?";
}

std::string_view side_name(MicroSide side) { return side == MicroSide::kOneSided ? "one" : "two"; }

std::string_view pattern_name(MicroPattern pattern) {
  return pattern == MicroPattern::kRandom ? "random" : "sequential";
}

std::string_view medium_name(MicroMedium medium) {
  return medium == MicroMedium::kDram ? "dram" : "nvm";
}

Result<MicroOp> parse_op(std::string_view text) {
  return parse_one("operation", text,
                   std::array{MicroOp::kWrite, MicroOp::kRead, MicroOp::kAtomic, MicroOp::kEcho},
                   op_name);
}

Result<MicroSide> parse_side(std::string_view text) {
  return parse_one("side", text, std::array{MicroSide::kOneSided, MicroSide::kTwoSided}, side_name);
}

Result<MicroPattern> parse_pattern(std::string_view text) {
  return parse_one("pattern", text, std::array{MicroPattern::kRandom, MicroPattern::kSequential},
                   pattern_name);
}

Result<MicroMedium> parse_medium(std::string_view text) {
  return parse_one("medium", text, std::array{MicroMedium::kDram, MicroMedium::kNvm}, medium_name);
}

bool is_one_sided(const MicroPoint& point) {
  return point.op != MicroOp::kEcho && point.side == MicroSide::kOneSided;
}

uint32_t micro_unit(const MicroPoint& point) {
  if (point.op == MicroOp::kAtomic) return 8;
  const persist::Rules& rules = point.rules;
  const bool small = point.payload_bytes < persist::kXpLineBytes;
  if (small && rules.has(is_one_sided(point) ? Rule::kH6 : Rule::kH7)) return persist::kLineBytes;
  return rules.has(Rule::kH5) ? persist::kXpLineBytes : 8;
}

uint32_t micro_bytes(const MicroPoint& point) {
  const uint32_t unit = micro_unit(point);
  if (unit == 8) return point.payload_bytes;  // as it is: nothing is padded
  return static_cast<uint32_t>(persist::round_up(point.payload_bytes, unit));
}

bool micro_non_temporal(const MicroPoint& point) {
  return point.rules.has(point.payload_bytes < persist::kXpLineBytes ? Rule::kH7 : Rule::kH4);
}

WriteStrategy micro_strategy(const MicroPoint& point) {
  if (!is_one_sided(point)) return WriteStrategy::kTwoSided;
  if (point.strategy != WriteStrategy::kAuto) return point.strategy;
  return point.rules.has(Rule::kH9) ? WriteStrategy::kDoorbell : WriteStrategy::kOutstanding;
}

uint32_t micro_workers(const MicroPoint& point, uint32_t server_threads) {
  if (!bounds_writers(point)) return server_threads;
  const uint32_t dimms = point.single_dimm ? 1 : uint32_t{kInterleavedDimms};
  return std::min(server_threads, point.writers_per_dimm * dimms);
}

bool micro_has_owners(const MicroPoint& point) {
  return bounds_writers(point) && micro_bytes(point) <= kStripeBytes;
}

uint32_t micro_owner(const MicroPoint& point, uint32_t workers, uint64_t stream, uint64_t dimm) {
  const uint64_t writers = std::min(point.writers_per_dimm, workers);
  return static_cast<uint32_t>((dimm * writers + stream % writers) % workers);
}

MicroMedium micro_medium(const MicroPoint& point) {
  if (point.op != MicroOp::kAtomic) return point.medium;
  return point.rules.has(Rule::kH8) ? MicroMedium::kDram : MicroMedium::kNvm;
}

Status check_point(const MicroPoint& point) {
  if (point.payload_bytes == 0 || point.payload_bytes > kMostPayload) {
    return invalid_argument(
        fmt::format("a payload of {} bytes: use 1 to {}", point.payload_bytes, kMostPayload));
  }
  if (point.op == MicroOp::kAtomic && point.payload_bytes != 8) {
    return invalid_argument("an atomic has 8 bytes: use --payload 8");
  }
  if (point.op == MicroOp::kAtomic && point.side != MicroSide::kOneSided) {
    return invalid_argument("an atomic is one-sided: use --side one");
  }
  if (point.op == MicroOp::kEcho && point.side != MicroSide::kTwoSided) {
    return invalid_argument("an echo is two-sided: use --side two");
  }
  if (point.persistent && point.op != MicroOp::kWrite) {
    return invalid_argument(fmt::format(
        "--persistent is about writes, not about {}: use --op write", op_name(point.op)));
  }
  if (point.persistent && point.medium != MicroMedium::kNvm) {
    return invalid_argument("dram survives no power cut: persistent writes need --medium nvm");
  }
  if (point.strategy != WriteStrategy::kAuto && !point.persistent) {
    return invalid_argument(
        "--strategy says how a write becomes durable: use it with --persistent");
  }
  if (point.strategy != WriteStrategy::kAuto &&
      (point.strategy == WriteStrategy::kTwoSided) == is_one_sided(point)) {
    return invalid_argument(fmt::format("strategy {} is not possible with --side {}",
                                        persist::strategy_name(point.strategy),
                                        side_name(point.side)));
  }
  if (point.strategy != WriteStrategy::kAuto && point.named_rules.has(Rule::kH9)) {
    return invalid_argument(
        "rule h9 chooses the strategy, and it is given, too: leave one of them out");
  }
  if (point.batch == 0 || point.batch > fabric::Batch::kMaxWorkRequests) {
    return invalid_argument(
        fmt::format("a batch of {}: use 1 to {}", point.batch, fabric::Batch::kMaxWorkRequests));
  }
  if (point.batch > 1 && (!is_one_sided(point) || point.persistent)) {
    return invalid_argument("--batch is for one-sided requests that are not --persistent");
  }
  if (point.window == 0 || point.window % point.batch != 0) {
    return invalid_argument(
        fmt::format("a window of {}: use a multiple of the batch ({}), at least one", point.window,
                    point.batch));
  }
  if (point.clients == 0 || point.connections == 0 || point.server_threads == 0 ||
      point.writers_per_dimm == 0) {
    return invalid_argument(
        "clients, connections, server threads and writers on a DIMM are at least 1");
  }
  const uint64_t needed = point.single_dimm ? kStripeBytes * kInterleavedDimms
                                            : persist::round_up(micro_bytes(point), 256);
  if (point.range_bytes < needed) {
    return invalid_argument(fmt::format("a range of {} bytes is too small: use at least {}",
                                        point.range_bytes, needed));
  }
  if (point.single_dimm && micro_bytes(point) > kStripeBytes) {
    return invalid_argument(
        fmt::format("{} bytes span several DIMMs: with --single-dimm use at most {}",
                    micro_bytes(point), kStripeBytes));
  }
  return {};
}

std::string point_text(const MicroPoint& point) {
  if (point.op == MicroOp::kEcho) return fmt::format("echo of {} B", point.payload_bytes);
  return fmt::format("{}-sided {} B {}{} {} {}, {}{}", side_name(point.side), point.payload_bytes,
                     point.persistent ? "persistent " : "", op_name(point.op),
                     point.op == MicroOp::kRead ? "from" : "to", medium_name(micro_medium(point)),
                     pattern_name(point.pattern), point.single_dimm ? ", one DIMM" : "");
}

}  // namespace pmstore::tools
