// A server whose records begin to move while a test scans or counts them.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/unit/pmstore/record_extents_fixture.h"

namespace pmstore::testing {

class MovesAmidScans : public RecordExtentsFixture {
 protected:
  // ScanRepeats pauses at least so long before a scan begins again; without pauses no time passes.
  static constexpr uint64_t kLeastPauseNs = 20'000'000;

  void SetUp() override { RecordExtentsFixture::SetUp(LockDiscipline::kCpu); }
  uint64_t moved() const {
    return nlohmann::json::parse(server_->stat_json()).at("frames").at("records_moved");
  }
  static std::string key_at(int i) { return std::to_string(100'000 + i); }
  // Of each `of` records, one stays.
  void fill_and_erase(TableId table, int count, size_t value_bytes, int of) {
    for (int i = 0; i < count; ++i) {
      const std::string value(value_bytes, static_cast<char>('a' + i % 26));
      ASSERT_TRUE(run(client_->put(table, key_at(i), value))) << i;
    }
    for (int i = 0; i < count; ++i) {
      if (i % of == 0) continue;
      ASSERT_TRUE(run(client_->erase(table, key_at(i)))) << i;
    }
  }
  // Moves wait for scans until one has taken a minute. Then they go on with each turn of the
  // executor, and no time passes: this gives back the control behind the first one.
  void wait_for_the_first_move() {
    ASSERT_EQ(moved(), 0u);
    const auto first = run(client_->scan(table_, 0, 4096));
    ASSERT_TRUE(first);
    ASSERT_NE(first->cursor, 0u);
    for (int second = 0; second < 100; ++second) {
      const auto page = run(client_->scan(table_, first->cursor, 4096));
      ASSERT_TRUE(page) << page.error().to_string();
      const uint64_t until_ns = executor_.now_ns() + 1'000'000'000;
      while (executor_.now_ns() < until_ns) {
        if (moved() > 0) return;
        if (!executor_.run_once()) clock_.advance_to(executor_.now_ns() + 50'000'000);
      }
    }
    FAIL() << "nothing moves";
  }
};

}  // namespace pmstore::testing
