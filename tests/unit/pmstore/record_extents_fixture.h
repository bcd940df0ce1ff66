// A server whose records take extents of a small frame each, with a client that fills and empties
// them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore::testing {

class RecordExtentsFixture : public ClientFixture {
 protected:
  static constexpr uint64_t kFrameBytes = 256 << 10;

  void SetUp(LockDiscipline discipline) {
    format_.frame_bytes = kFrameBytes;
    ClientFixture::SetUp(discipline);
  }
  size_t extents() const {
    const auto& all = pool_->info().extents;
    return static_cast<size_t>(std::count_if(all.begin(), all.end(), [](const auto& extent) {
      return extent.kind == persist::ExtentKind::kRecords;
    }));
  }
  static std::string key_of(int i) { return "key" + std::to_string(i); }
  static std::string value_of(int i) { return std::string(1500, static_cast<char>('a' + i % 26)); }
  void fill(size_t most_extents) {
    for (count_ = 0; extents() < most_extents; ++count_) {
      ASSERT_TRUE(run(client_->put(table_, key_of(count_), value_of(count_))));
    }
    ASSERT_TRUE(run(client_->put(table_, key_of(count_), value_of(count_))));
    ++count_;
    let_time_pass(1'000'000);
  }
  void expect_there(Client& client) {
    for (int i = 0; i < count_; ++i) {
      const auto got = run(client.get(table_, key_of(i)));
      ASSERT_TRUE(got) << i << ": " << got.error().to_string();
      EXPECT_EQ(*got, value_of(i));
    }
  }
  void erase_all(Client& client) {
    for (int i = 0; i < count_; ++i) ASSERT_TRUE(run(client.erase(table_, key_of(i)))) << i;
    look_again();
  }
  // What the server does beside its answers begins with an answer, and the next one tells of it.
  void look_again() {
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(run(client_->list_tables()));
      let_time_pass(10'000'000);
    }
  }
  uint64_t served_gets() const {
    const std::string stat = server_->stat_json();
    const std::string name = R"("gets": )";
    return std::stoull(stat.substr(stat.find(name) + name.size()));
  }

  // Time passes for the server; a client whose executor runs within its operations only sees none.
  void be_away(double leases) {
    clock_.advance_to(executor_.now_ns() +
                      static_cast<uint64_t>(leases * static_cast<double>(lease_ns())));
  }
  uint64_t lease_ns() const { return uint64_t{server_options_.lease_ms} * 1'000'000; }
  // What reading all of them costs.
  uint64_t messages_to_read_all(Client& client) {
    const uint64_t before = client.counters().server_messages;
    expect_there(client);
    return client.counters().server_messages - before;
  }

  int count_ = 0;
};

}  // namespace pmstore::testing
