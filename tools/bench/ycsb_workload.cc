#include "tools/bench/ycsb_workload.h"

#include <cmath>

#include "base/check.h"

namespace pmstore::tools {

std::string_view ycsb_operation_name(YcsbOperation operation) {
  switch (operation) {
    case YcsbOperation::kRead: return "read";
    case YcsbOperation::kUpdate: return "update";
    case YcsbOperation::kInsert: return "insert";
    case YcsbOperation::kScan: return "scan";
    case YcsbOperation::kReadModifyWrite: return "read_modify_write";
  }
  return "";
}

const std::vector<YcsbWorkload>& ycsb_workloads() {
  static const std::vector<YcsbWorkload> all = {
      {.name = "a", .percent = {50, 50}},
      {.name = "b", .percent = {95, 5}},
      {.name = "c", .percent = {100}},
      {.name = "d", .percent = {95, 0, 5}, .latest = true},
      {.name = "e", .percent = {0, 0, 5, 95}, .shortest_scan = 1, .longest_scan = 100},
      {.name = "f", .percent = {50, 0, 0, 0, 50}},
      {.name = "mixed-index",
       .percent = {90, 0, 0, 10},
       .shortest_scan = 64,
       .longest_scan = 64,
       .short_keys = true,
       .value_bytes = 8}};
  return all;
}

Zipfian::Zipfian(uint64_t count) : count_(count), zeta_(0) {
  PMSTORE_CHECK(count > 0, "a rank is chosen from some");
  // From the small ones on: else they would be lost in the sum.
  for (uint64_t i = count; i > 0; --i) zeta_ += std::pow(static_cast<double>(i), -kTheta);
  second_ = 1.0 + std::pow(0.5, kTheta);
  alpha_ = 1.0 / (1.0 - kTheta);
  eta_ = (1.0 - std::pow(2.0 / static_cast<double>(count), 1.0 - kTheta)) / (1.0 - second_ / zeta_);
}

uint64_t Zipfian::rank(Random& random) const {
  const double u = random.uniform();
  const double at = u * zeta_;
  if (at < 1.0 || count_ == 1) return 0;
  if (at < second_ || count_ == 2) return 1;
  const double rank = static_cast<double>(count_) * std::pow(eta_ * u - eta_ + 1.0, alpha_);
  return std::min(static_cast<uint64_t>(rank), count_ - 1);
}

void YcsbRecords::end_insert(uint64_t record) {
  const std::lock_guard lock(mutex_);
  ahead_.insert(record);
  uint64_t there = there_.load(std::memory_order_relaxed);
  while (!ahead_.empty() && *ahead_.begin() == there) {
    ahead_.erase(ahead_.begin());
    ++there;
  }
  there_.store(there, std::memory_order_release);
}

uint64_t YcsbSteps::choose() {
  const uint64_t rank = popular_.rank(random_);
  const uint64_t there = records_.there();
  if (workload_.latest) return there - 1 - std::min(rank, there - 1);
  // Of the records that were there at the start: a popular one stays popular while others come.
  return base::mix64(rank) % popular_.count();
}

YcsbStep YcsbSteps::next() {
  uint64_t drawn = random_.below(100);
  size_t operation = 0;
  while (drawn >= workload_.percent[operation]) drawn -= workload_.percent[operation++];
  YcsbStep step{static_cast<YcsbOperation>(operation), 0, 0};
  if (step.operation == YcsbOperation::kInsert) {
    step.record = records_.begin_insert();
    return step;
  }
  step.record = choose();
  if (step.operation == YcsbOperation::kScan) {
    const uint64_t lengths = workload_.longest_scan - workload_.shortest_scan + 1;
    step.records = workload_.shortest_scan + static_cast<uint32_t>(random_.below(lengths));
  }
  return step;
}

std::string_view YcsbKeys::write(uint64_t record, char (&room)[kLongest]) const {
  // A bijection: different records have different keys.
  const uint64_t number = ascending_ ? record : base::mix64(record);
  if (short_) {
    for (size_t i = 0; i < 8; ++i) room[i] = static_cast<char>(number >> (56 - 8 * i));
    return {room, 8};
  }
  for (size_t i = 0; i < 16; ++i) room[i] = "0123456789abcdef"[number >> (60 - 4 * i) & 15];
  return {room, 16};
}

}  // namespace pmstore::tools
