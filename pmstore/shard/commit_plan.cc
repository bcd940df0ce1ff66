#include "pmstore/shard/commit_plan.h"

#include "persist/padding.h"

namespace pmstore::internal {

CommitPlan::CommitPlan(uint64_t entry_room_bytes) : kept_bytes_(entry_room_bytes) {
  allocate(entry_room_bytes);
  constexpr size_t kUsualWrites = 16;  // more than these allocate, once
  writes_.reserve(kUsualWrites);
}

void CommitPlan::allocate(uint64_t bytes) {
  memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes + persist::kLineBytes);
  const auto address = reinterpret_cast<uintptr_t>(memory_.get());
  const uint64_t skipped = persist::round_up(address, persist::kLineBytes) - address;
  entry_room_ = {memory_.get() + skipped, bytes};
}

}  // namespace pmstore::internal
