// A record that the medium has changed while the server runs is never given out as a value.
#include <algorithm>

#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

class DamagedRecord : public testing::ClientFixture, public ::testing::WithParamInterface<size_t> {
 protected:
  void SetUp() override {
    ClientFixture::SetUp(LockDiscipline::kCpu);
    ASSERT_TRUE(run(client_->put(table_, "good", "fine")));
    const std::string value(GetParam(), 'v');
    ASSERT_TRUE(run(client_->put(table_, "bad", value)));
    // Its last byte, in place: the redo ring has another copy.
    const auto memory = region_.bytes();
    const auto bytes = std::as_bytes(std::span(value));
    const auto found = std::find_end(memory.begin(), memory.end(), bytes.begin(), bytes.end());
    ASSERT_NE(found, memory.end());
    found[static_cast<ptrdiff_t>(value.size()) - 1] = std::byte{'w'};
  }
};
INSTANTIATE_TEST_SUITE_P(ValueBytes, DamagedRecord, ::testing::Values(40, 5000, 20'000),
                         ::testing::PrintToStringParamName());

TEST_P(DamagedRecord, IsNotReadAsAValue) {
  EXPECT_EQ(run(client_->get(table_, "bad")).code(), ErrorCode::kDamaged);
  Transaction tx = client_->begin();
  EXPECT_EQ(run(tx.get(table_, "bad")).code(), ErrorCode::kDamaged);
  EXPECT_EQ(*run(client_->get(table_, "good")), "fine");
}

TEST_P(DamagedRecord, IsNotSkippedByAScan) {
  EXPECT_EQ(run(client_->scan(table_, 0)).code(), ErrorCode::kDamaged);
}

TEST_P(DamagedRecord, IsMendedByAWriteAndGoneAfterAnErase) {
  ASSERT_TRUE(run(client_->put(table_, "bad", "new")));
  EXPECT_EQ(*run(client_->get(table_, "bad")), "new");
  ASSERT_TRUE(run(client_->erase(table_, "bad")));
  const auto page = run(client_->scan(table_, 0));
  ASSERT_TRUE(page) << page.error().to_string();
  EXPECT_EQ(page->records.size(), 1u);
}

}  // namespace
}  // namespace pmstore
