// Lock discipline rnic: a client remembers a place whose slab has become one of smaller slots.
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

class OldPlace : public testing::ClientFixture {
 protected:
  void SetUp() override { ClientFixture::SetUp(LockDiscipline::kRnic); }
  std::string_view memory() {
    const auto bytes = region_.bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  bool lies_at(size_t place, const std::string& value) {
    return memory().substr(place, value.size()) == value;
  }
};

TEST_F(OldPlace, IsWrittenOnlyAsFarAsItsSlotGoesNow) {
  const std::string old(10'000, 'o');
  ASSERT_TRUE(run(client_->put(table_, "key", old)));
  const size_t place = memory().rfind(old);  // the redo rings are in front of the records
  ASSERT_NE(place, std::string_view::npos);
  // By another one, so that the first one still remembers.
  auto other = connect();
  ASSERT_TRUE(run(other->erase(table_, "key")));
  // Into one slot after the other, until the empty slab is given back and serves smaller records.
  for (int i = 0; i < 4000; ++i) {
    const std::string value = "value " + std::to_string(i) + std::string(1600, 'v');
    const Status put = run(other->put(table_, "key", value));
    ASSERT_TRUE(put) << i << ": " << put.error().to_string();
    if (lies_at(place, value)) break;
    ASSERT_TRUE(run(other->erase(table_, "key")));
    ASSERT_TRUE(run(other->put(table_, "filler" + std::to_string(i), value)));
  }
  const std::string neighbour(1600, 'n');
  ASSERT_TRUE(run(other->put(table_, "bye", neighbour)));
  ASSERT_TRUE(lies_at(place + 2048, neighbour)) << "in the next slot";
  // It fitted the slot of once. There is no room for it: that is said, and nothing is overwritten.
  const Status put = run(client_->put(table_, "key", std::string(5000, 'p')));
  EXPECT_TRUE(put || put.code() == ErrorCode::kFull) << put.error().to_string();
  const auto beside = run(other->get(table_, "bye"));
  ASSERT_TRUE(beside) << beside.error().to_string();
  EXPECT_EQ(*beside, neighbour);
  const auto written = run(other->get(table_, "key"));
  ASSERT_TRUE(written) << written.error().to_string();
  EXPECT_EQ(written->size() == 5000, put.has_value());
  run(other->close());
}

}  // namespace
}  // namespace pmstore
