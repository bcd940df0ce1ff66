#include "pmstore/shard/commit_plan.h"

#include "base/check.h"
#include "persist/padding.h"

namespace pmstore::internal {

CommitPlan::CommitPlan(uint64_t entry_room_bytes)
    : memory_(std::make_unique_for_overwrite<std::byte[]>(entry_room_bytes + persist::kLineBytes)) {
  const auto address = reinterpret_cast<uintptr_t>(memory_.get());
  const uint64_t skipped = persist::round_up(address, persist::kLineBytes) - address;
  entry_room_ = {memory_.get() + skipped, entry_room_bytes};
  constexpr size_t kUsualWrites = 64;  // more than these allocate, once
  writes_.reserve(kUsualWrites);
}

void CommitPlan::begin(uint64_t client, uint64_t sequence) {
  PMSTORE_CHECK(state_ == State::kFree && writes_.empty(),
                "a plan is of one transaction at a time");
  state_ = State::kPlanning;
  client_ = client;
  sequence_ = sequence;
}

void CommitPlan::prepared(uint64_t payload_bytes) {
  PMSTORE_CHECK(state_ == State::kPlanning && !writes_.empty(), "a plan is prepared once");
  state_ = State::kPrepared;
  payload_bytes_ = payload_bytes;
}

void CommitPlan::clear() {
  PMSTORE_CHECK(state_ != State::kFree, "a plan is applied or given up once");
  writes_.clear();
  state_ = State::kFree;
}

}  // namespace pmstore::internal
