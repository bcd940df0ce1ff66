#include "fs/internal/reserve.h"

#include <fmt/format.h>

#include <string>

#include "base/check.h"
#include "fs/layout/fs_layout.h"

namespace pmstore::fs::internal {
namespace {

std::string key_of(unsigned number) {
  std::string key = fmt::format("spare{:03}", number);
  PMSTORE_CHECK(key.size() == freed_key(0).size(), "a spare record has the size of others");
  return key;
}

}  // namespace

Task<Status> Reserve::spend() {
  const auto body = [this](Transaction& transaction) -> Task<Status> {
    for (unsigned number = 0; number < kRecords; ++number) {
      const std::string key = key_of(number);
      const auto there = co_await transaction.get(tables_.super, key);
      if (there) transaction.erase(tables_.super, key);
      if (!there && there.code() != ErrorCode::kNotFound) co_return there.error();
    }
    co_return Status{};
  };
  is_spent_ = true;
  ++spends_;
  Status done = co_await retry(client_, body);
  ++spends_;
  co_return std::move(done);
}

Task<Status> Reserve::restore() {
  const std::string value(sizeof(MapRecord), '\0');
  static_assert(sizeof(MapRecord) == sizeof(OrphanRecord));
  const auto body = [&](Transaction& transaction) -> Task<Status> {
    for (unsigned number = 0; number < kRecords; ++number) {
      const std::string key = key_of(number);
      const auto there = co_await transaction.get(tables_.super, key);
      if (!there && there.code() != ErrorCode::kNotFound) co_return there.error();
      if (!there) transaction.put(tables_.super, key, value);
    }
    co_return Status{};
  };
  const uint64_t before = spends_;
  const Status done = co_await retry(client_, body);
  // One that was spent meanwhile has lost some of them again.
  if (done && spends_ == before) is_spent_ = false;
  co_return done;
}

}  // namespace pmstore::fs::internal
