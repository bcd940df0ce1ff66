// OrderedTables: two clients at an ordered table.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/scenario/store/store_scenario.h"

namespace pmstore::scenario {

using Keys = std::vector<std::string>;

class OrderedTables : public StoreScenario {
 protected:
  void SetUp() override {
    StoreScenario::SetUp();
    if (client_ == nullptr) return;
    other_ = connect();
    const auto made = run(client_->create_table("ordered", TableKind::kOrdered));
    ASSERT_TRUE(made) << made.error().to_string();
    table_ = *made;
  }
  void TearDown() override {
    if (other_ != nullptr) run(other_->close());
    other_.reset();
    StoreScenario::TearDown();
  }
  // All keys of the range, by pages of `most`.
  Task<Result<Keys>> keys_of(Transaction& tx, KeyRange range,
                             ScanDirection direction = ScanDirection::kForward,
                             uint32_t most = UINT32_MAX) {
    TransactionScan scan = tx.scan(table_, std::move(range), direction);
    Keys keys;
    for (;;) {
      PMSTORE_CO_TRY(const RecordPage page, co_await scan.next(most));
      if (page.empty()) co_return std::move(keys);
      for (const RecordRef record : page) keys.emplace_back(record.key);
    }
  }
  Keys scan(Transaction& tx, KeyRange range, ScanDirection direction = ScanDirection::kForward,
            uint32_t most = UINT32_MAX) {
    const auto keys = run(keys_of(tx, std::move(range), direction, most));
    EXPECT_TRUE(keys) << keys.error().to_string();
    return keys ? *keys : Keys{};
  }
  void fill(int count) {
    for (int i = 0; i < count; ++i) {
      const std::string key = "k" + std::to_string(1000 + i);
      ASSERT_TRUE(put(*client_, key, "v" + std::to_string(i)));
    }
  }
  std::unique_ptr<Client> other_;
};

}  // namespace pmstore::scenario
