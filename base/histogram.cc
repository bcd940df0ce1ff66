#include "base/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace pmstore::base {

[[gnu::hot]] size_t Histogram::bucket_of(uint64_t value) {
  if (value < (1u << kSubBits)) return value;
  const unsigned exponent = 63 - static_cast<unsigned>(std::countl_zero(value));
  const unsigned shift = exponent - kSubBits;
  return ((static_cast<size_t>(shift) + 1) << kSubBits) +
         ((value >> shift) & ((1u << kSubBits) - 1));
}

uint64_t Histogram::bucket_top(size_t bucket) {
  if (bucket < (1u << kSubBits)) return bucket;
  const unsigned shift = static_cast<unsigned>(bucket >> kSubBits) - 1;
  const uint64_t base = (bucket & ((1u << kSubBits) - 1)) + (1u << kSubBits);
  return (base << shift) + ((uint64_t{1} << shift) - 1);
}

void Histogram::merge(const Histogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
  min_ = std::min(min_, other.min_);
}

uint64_t Histogram::quantile(double q) const {
  if (count_ == 0) return 0;
  const auto rank = static_cast<uint64_t>(std::ceil(q * static_cast<double>(count_)));
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank && seen > 0) return std::clamp(bucket_top(i), min(), max_);
  }
  return max_;
}

}  // namespace pmstore::base
