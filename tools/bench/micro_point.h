// MicroPoint: one measurement of the remote-access benchmark, as plain data.
//
// What is measured: `clients` clients, each with `connections` connections, each with `window`
// requests outstanding, all towards one memory, in a closed loop. docs/bench.md says what each rule
// means here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "persist/rules.h"
#include "persist/strategy.h"

namespace pmstore::tools {

enum class MicroOp : uint8_t {
  kWrite,
  kRead,
  kAtomic,  // one-sided fetch-and-add of 8 bytes
  kEcho,    // an RPC that touches no memory: the peak rate of two-sided requests
};
enum class MicroSide : uint8_t { kOneSided, kTwoSided };
enum class MicroPattern : uint8_t { kRandom, kSequential };
enum class MicroMedium : uint8_t { kDram, kNvm };

std::string_view op_name(MicroOp op);                 // write, read, atomic, echo
std::string_view side_name(MicroSide side);           // one, two
std::string_view pattern_name(MicroPattern pattern);  // random, sequential
std::string_view medium_name(MicroMedium medium);     // dram, nvm
// InvalidArgument naming the valid ones.
Result<MicroOp> parse_op(std::string_view text);
Result<MicroSide> parse_side(std::string_view text);
Result<MicroPattern> parse_pattern(std::string_view text);
Result<MicroMedium> parse_medium(std::string_view text);

// The interleaving of a socket's DIMMs, as Optane platforms do it.
inline constexpr uint64_t kStripeBytes = 4096;
inline constexpr uint64_t kInterleavedDimms = 6;

struct MicroPoint {
  MicroOp op = MicroOp::kWrite;
  MicroSide side = MicroSide::kOneSided;
  MicroPattern pattern = MicroPattern::kRandom;
  MicroMedium medium = MicroMedium::kDram;
  // Writes: durable before they count. One-sided by `strategy`; two-sided, the server drains.
  bool persistent = false;
  // kAuto: by rule H9, kDoorbell or kOutstanding.
  persist::WriteStrategy strategy = persist::WriteStrategy::kAuto;
  uint32_t payload_bytes = 64;
  uint64_t range_bytes = 64u << 20;  // of the target memory, from its start
  bool single_dimm = false;          // only every sixth 4 KiB stripe
  uint32_t clients = 1;
  uint32_t connections = 1;  // of each client
  uint32_t window = 16;      // outstanding requests on each connection
  uint32_t batch = 1;        // one-sided requests that complete together
  uint32_t server_threads = 1;
  uint32_t writers_per_dimm = 4;  // the bound of rule H2
  persist::Rules rules = persist::Rules::all();
  // Those that the user has switched by name: refused where they cannot be.
  persist::Rules named_rules = persist::Rules::none();
  // Not set: as the machine is; on a modelled one, as rule H3 says.
  std::optional<bool> ddio;
  std::optional<persist::Domain> domain;  // assumed of nvm; not set: the one detected
  uint64_t seed = 1;
  uint64_t warmup_ns = 100'000'000;
  bool default_warmup = true;  // a place may know better
  uint64_t measured_ns = 1'000'000'000;
  uint64_t ops = 0;  // 0: by time; else so many are measured, after a tenth as warm-up
};

// InvalidArgument, naming what is possible, when the point makes no sense on any fabric.
Status check_point(const MicroPoint& point);

bool is_one_sided(const MicroPoint& point);
// The unit that requests are aligned and padded to, by rules H5 to H7. A small write whose own rule
// is off while H5 is on takes H5's unit ("H5 instead of H6"). Atomics: 8.
uint32_t micro_unit(const MicroPoint& point);
// The bytes that one request moves.
uint32_t micro_bytes(const MicroPoint& point);
// Two-sided writes: the server's CPU stores past its caches (H7 below 256 bytes, else H4).
bool micro_non_temporal(const MicroPoint& point);
// How the persistent writes of this point are made.
persist::WriteStrategy micro_strategy(const MicroPoint& point);
// How many of the server's threads take requests, after rule H2.
uint32_t micro_workers(const MicroPoint& point, uint32_t server_threads);
// Rule H2 where the DIMM of each address is known: requests go to the threads that may write to
// their DIMM. Only where the CPU writes nvm, and at most a stripe with a request.
bool micro_has_owners(const MicroPoint& point);
// The thread of micro_workers() that takes the requests of this stream for this DIMM, with H2: each
// DIMM has at most writers_per_dimm threads, and each thread as few DIMMs as that allows.
uint32_t micro_owner(const MicroPoint& point, uint32_t workers, uint64_t stream, uint64_t dimm);
// The medium of the requests; rule H8 decides that of atomics.
MicroMedium micro_medium(const MicroPoint& point);
// "one-sided 64 B write to nvm, random"
std::string point_text(const MicroPoint& point);

}  // namespace pmstore::tools
