// The nouns of the log service: what a log is called, how it is made, what is known of it.
// Plain values.
//
// An LSN names the place of an entry in its log: it only grows, is the same on every replica and
// survives restarts. An entry's index counts the entries of its log from 1 on, without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pmstore::log {

inline constexpr size_t kMaxLogNameBytes = 120;
inline constexpr size_t kMaxEntryBytes = 1u << 20;
inline constexpr size_t kMaxReplicas = 4;  // of one log, the first included
inline constexpr size_t kMaxBatchEntries = 256;

// What an append does when the log has no room.
enum class FullPolicy : uint8_t {
  kBackPressure = 1,  // fails with BackPressure until somebody trims
  kTrimOldest = 2,    // the oldest entries go, an eighth of the log at a time
};
std::string_view full_policy_name(FullPolicy policy);  // "back-pressure", "trim-oldest"
Result<FullPolicy> parse_full_policy(std::string_view text);

struct LogOptions {
  // Of persistent memory, for entries with their headers and padding; rounded up to 256. An entry
  // is at most a little under half of it.
  uint64_t bytes = 8u << 20;
  FullPolicy when_full = FullPolicy::kBackPressure;
  // What tells this log from others that had its name, or will have it. 0: who makes it draws one
  // at random. Tests give one.
  uint64_t identity = 0;
};

// One damaged range of a log: lost to its medium, for good.
struct DamagedRange {
  uint64_t from_lsn = 0;
  uint64_t to_lsn = 0;  // where the next whole entry is, or the tail
  bool operator==(const DamagedRange&) const = default;
};

struct LogInfo {
  uint64_t id = 0;  // never reused in a pool; 0 is no log
  std::string name;
  uint64_t bytes = 0;
  FullPolicy when_full = FullPolicy::kBackPressure;
  bool sealed = false;
  bool exclusive = false;             // a producer holds the lease
  uint64_t start_lsn = 0;             // of the oldest entry
  uint64_t tail_lsn = 0;              // behind the newest durable entry
  uint64_t next_index = 1;            // of the next entry
  uint32_t incarnation = 0;           // raised by each producer that took the log over
  uint64_t membership = 1;            // epoch of the replicas' membership
  std::vector<std::string> replicas;  // their URIs, in order; empty: not replicated
  bool agreed = false;                // all of them are known to have recorded that membership
  uint64_t identity = 0;              // the same on all replicas; 0: of an earlier version
  std::vector<DamagedRange> damaged;  // found when the pool was opened
};

// One replica's part of a replicated log, as it is made.
struct ReplicaPlace {
  std::vector<std::string> replicas;  // URIs of all members, in order; empty: not replicated
  size_t self = 0;                    // which of them this one is
  uint64_t membership = 1;
  uint64_t begin_lsn = 0;    // where its first entry will be
  uint64_t begin_index = 1;  // the index of that
};

// Is nothing left of it but its name? Then `damaged` is one range without end, and all that can be
// done is to delete it.
bool is_lost(const LogInfo& info);

// 1 to kMaxLogNameBytes printable characters without space, '/' allowed. InvalidArgument.
Status check_log_name(std::string_view name);

// Where one appended entry is.
struct Appended {
  uint64_t lsn = 0;
  uint64_t next_lsn = 0;
  uint64_t index = 0;
};

}  // namespace pmstore::log
