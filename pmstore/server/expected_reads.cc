#include "pmstore/server/expected_reads.h"

#include <utility>

#include "base/check.h"

namespace pmstore::internal {

bool ExpectedReads::add(TableId table, std::string_view key) {
  if (is_ordered(table)) return false;
  if (count_ == kMost) ask();
  PMSTORE_CHECK(count_ < kMost, "a part has a bound");
  IndexKey& kept = keys_[count_++];
  kept = IndexKey::of(table, key);
  kept.key = {};
  store_.prefetch_bucket(kept);
  return true;
}

void ExpectedReads::ask() {
  const size_t count = std::exchange(count_, 0);
  for (size_t i = 0; i < count; ++i) store_.prefetch_record(keys_[i]);
}

}  // namespace pmstore::internal
