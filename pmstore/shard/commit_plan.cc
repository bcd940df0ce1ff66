#include "pmstore/shard/commit_plan.h"

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

}  // namespace pmstore::internal
