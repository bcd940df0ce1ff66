// A client of a pool in its own process goes by the reserves and limits that the pool keeps.
#include <gtest/gtest.h>

#include <string>

#include "pmstore/server.h"
#include "pmstore/space_rules.h"
#include "tests/unit/pmstore/embedded_fixture.h"

namespace pmstore {
namespace {

class EmbeddedSpace : public testing::EmbeddedFixture {};

TEST_F(EmbeddedSpace, GoesByTheReservesAndLimitsThatThePoolKeeps) {
  run(client_->close());
  constexpr uint64_t kReserve = 30 << 20;
  constexpr uint64_t kLimit = 40 << 20;
  {
    const auto pool = open_pool(path_, {}).value();
    persist::SpaceRules rules;
    rules.of(persist::ExtentKind::kLog) = {kReserve, kLimit};
    rules.of(persist::ExtentKind::kRecords).limit_bytes = kLimit;
    ASSERT_TRUE(keep_space_rules(*pool, rules));
  }
  connect();
  EXPECT_EQ(stat().at("records_limit_bytes"), kLimit);
  EXPECT_EQ(stat().at("logs").at("limit_bytes"), kLimit);
  const std::string value(20'000, 'v');
  Status put;
  for (int i = 0; (put = run(client_->put(table_, "key" + std::to_string(i), value))); ++i) {
  }
  EXPECT_EQ(put.code(), ErrorCode::kFull);
  EXPECT_NE(put.error().message.find("reserved"), std::string::npos) << put.error().message;
  EXPECT_NE(put.error().message.find("30 MiB (31457280 bytes) for log"), std::string::npos)
      << put.error().message;
  // What the options say of one run holds instead.
  run(client_->close());
  options_.most_record_bytes = uint64_t{10} << 20;
  connect();
  EXPECT_EQ(stat().at("records_limit_bytes"), 10 << 20);
  put = run(client_->put(table_, "another", std::string(900'000, 'v')));
  EXPECT_NE(put.error().message.find("limited to 10 MiB"), std::string::npos)
      << put.error().message;
  run(client_->close());
  options_.most_record_bytes = UINT64_MAX;
  connect();
  EXPECT_TRUE(stat().at("records_limit_bytes").is_null()) << "none in this run";
}

TEST_F(EmbeddedSpace, OpensNoPoolWhoseRulesAreDamaged) {
  run(client_->close());
  {
    const auto pool = open_pool(path_, {}).value();
    ASSERT_TRUE(keep_space_rules(*pool, {}));
    for (const uint64_t at : {512, 768}) pool->root()[at + 100] ^= std::byte{1};
  }
  const auto refused = open_pool(path_, {});
  ASSERT_EQ(refused.code(), ErrorCode::kBadPool);
  EXPECT_NE(refused.error().message.find("pmstore pool limit"), std::string::npos);
  {
    const auto pool = persist::Pool::open(path_, {}).value();
    ASSERT_TRUE(keep_space_rules(*pool, {}));
  }
  connect();
}

}  // namespace
}  // namespace pmstore
