// Histogram: counts of 64-bit values in log-linear buckets, for latencies in ns.
//
// 64 buckets per power of two, so a quantile is off by less than 1.6% of its value. Fixed memory
// (about 30 KiB), no allocation after construction. One thread writes; merge() after it has
// stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pmstore::base {

class Histogram {
 public:
  Histogram() : buckets_(kBuckets, 0) {}

  void record(uint64_t value) {
    ++buckets_[bucket_of(value)];
    ++count_;
    sum_ += value;
    if (value > max_) max_ = value;
    if (value < min_) min_ = value;
  }

  void merge(const Histogram& other);

  uint64_t count() const { return count_; }
  uint64_t min() const { return count_ == 0 ? 0 : min_; }
  uint64_t max() const { return max_; }
  double mean() const {
    return count_ == 0 ? 0.0 : static_cast<double>(sum_) / static_cast<double>(count_);
  }

  // The value below or at which a share `q` (0 to 1) of the records lies; 0 when empty.
  uint64_t quantile(double q) const;

 private:
  static constexpr unsigned kSubBits = 6;
  static constexpr size_t kBuckets = (64 - kSubBits + 1) << kSubBits;
  static size_t bucket_of(uint64_t value);
  static uint64_t bucket_top(size_t bucket);

  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
  uint64_t max_ = 0;
  uint64_t min_ = UINT64_MAX;
};

}  // namespace pmstore::base

namespace pmstore {
using base::Histogram;
}
