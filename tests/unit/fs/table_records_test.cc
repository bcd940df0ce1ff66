// Records of a table with damage that move while they are seen.
#include "fs/internal/table_records.h"

#include <algorithm>
#include <map>
#include <string>

#include "tests/unit/pmstore/moves_amid_scans.h"

namespace pmstore::fs::internal {
namespace {

class TableRecords : public testing::MovesAmidScans {
 protected:
  // In place: the redo record has another copy.
  void damage(std::string_view value) {
    const auto memory = region_.bytes();
    const auto bytes = std::as_bytes(std::span(value));
    const auto found = std::find_end(memory.begin(), memory.end(), bytes.begin(), bytes.end());
    ASSERT_NE(found, memory.end());
    found[static_cast<ptrdiff_t>(value.size()) - 1] = std::byte{'!'};
  }
};

TEST_F(TableRecords, AroundDamageEachIsSeenOnceAlsoWhereTheyMove) {
  constexpr int kCount = 2000;
  constexpr int kOf = 4;
  const TableId table = *run(client_->create_table("ordered", TableKind::kOrdered));
  ASSERT_TRUE(run(client_->put(table, "1", "damaged value")));
  fill_and_erase(table, kCount, 1400, kOf);
  damage("damaged value");
  // Scans of the other table keep moves waiting.
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(run(client_->put(table_, key_at(i), std::string(1400, 'x'))));
  }
  wait_for_the_first_move();
  const uint64_t begun_ns = executor_.now_ns();
  std::map<std::string, int> seen;
  const auto note = [&](const RecordRef& record) { ++seen[std::string(record.key)]; };
  const auto damaged = run(see_records(*client_, table, note));
  ASSERT_TRUE(damaged) << damaged.error().to_string();
  EXPECT_EQ(*damaged, 1u);
  EXPECT_GE(executor_.now_ns() - begun_ns, kLeastPauseNs) << "it has begun again";
  EXPECT_EQ(seen.size(), kCount / kOf + 0u);
  for (int i = 0; i < kCount; i += kOf) EXPECT_EQ(seen[key_at(i)], 1) << i;
}

}  // namespace
}  // namespace pmstore::fs::internal
