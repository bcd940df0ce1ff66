// The workloads of the Yahoo! Cloud Serving Benchmark (Cooper et al., SoCC 2010), and a mix of gets
// and short scans as a secondary index sees it: which operation comes next, on which record.
//
// Records are numbered from 0 on, in the order in which they are inserted. Popular ones are chosen
// by a Zipfian distribution with theta 0.99 (Gray et al., SIGMOD 1994), and their ranks scattered
// over all records by a hash; in workload d the latest record is the most popular one.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace pmstore::tools {

enum class YcsbOperation : uint8_t { kRead, kUpdate, kInsert, kScan, kReadModifyWrite };
inline constexpr size_t kYcsbOperations = 5;
std::string_view ycsb_operation_name(YcsbOperation operation);

struct YcsbWorkload {
  std::string_view name;
  uint32_t percent[kYcsbOperations];  // of each YcsbOperation; their sum is 100
  bool latest = false;                // what was inserted last is most popular
  uint32_t shortest_scan = 0;         // records; lengths between are equally probable
  uint32_t longest_scan = 0;
  bool short_keys = false;  // 8 bytes, and not 16 digits
  uint32_t value_bytes = 64;

  bool scans() const { return longest_scan > 0; }
};
// In the order of their names; a to f, and mixed-index.
const std::vector<YcsbWorkload>& ycsb_workloads();

// Ranks from 0 on, 0 being the most probable one.
class Zipfian {
 public:
  static constexpr double kTheta = 0.99;
  // `count` is at least 1. Takes time in proportion to it.
  explicit Zipfian(uint64_t count);
  uint64_t rank(Random& random) const;
  uint64_t count() const { return count_; }

 private:
  uint64_t count_;
  double zeta_;
  double alpha_;
  double eta_;
  double second_;  // up to here of [0, zeta) it is rank 1
};

// Which records there are, for all who insert. Threads: any.
class YcsbRecords {
 public:
  explicit YcsbRecords(uint64_t loaded) : next_(loaded), there_(loaded) {}
  // The number of a new record.
  uint64_t begin_insert() { return next_.fetch_add(1, std::memory_order_relaxed); }
  // It is there. (An insert that fails for another reason than a conflict ends the bench.)
  void end_insert(uint64_t record);
  // All records below have been inserted.
  uint64_t there() const { return there_.load(std::memory_order_acquire); }

 private:
  std::atomic<uint64_t> next_;
  std::atomic<uint64_t> there_;
  std::mutex mutex_;
  std::set<uint64_t> ahead_;  // inserted, and above there_
};

struct YcsbStep {
  YcsbOperation operation;
  uint64_t record;   // of a scan: the first one, in the order of keys
  uint32_t records;  // of a scan: so many
};

// The steps of one worker. All it borrows must outlive it.
class YcsbSteps {
 public:
  YcsbSteps(const YcsbWorkload& workload, const Zipfian& popular, YcsbRecords& records,
            uint64_t seed)
      : workload_(workload), popular_(popular), records_(records), random_(seed) {}
  YcsbStep next();

 private:
  uint64_t choose();

  const YcsbWorkload& workload_;
  const Zipfian& popular_;
  YcsbRecords& records_;
  Random random_;
};

// The keys of the records: in the order of their numbers, or scattered.
class YcsbKeys {
 public:
  static constexpr size_t kLongest = 16;
  YcsbKeys(const YcsbWorkload& workload, bool ascending)
      : short_(workload.short_keys), ascending_(ascending) {}
  // In `room`, which it is valid with.
  std::string_view write(uint64_t record, char (&room)[kLongest]) const;

 private:
  const bool short_;
  const bool ascending_;
};

}  // namespace pmstore::tools
