// Remote accesses that were not granted: they cost the violator its connection and the target
// nothing.
#include "tests/scenario/fabric/fabric_scenario.h"

namespace pmstore::scenario {
namespace {

using fabric::Batch;
using fabric::RemoteRegion;

class ViolationScenario : public FabricScenario {
 protected:
  void SetUp() override {
    operation_timeout_ns_ = short_timeout_ns();
    FabricScenario::SetUp();
    if (HasFatalFailure()) return;
    for (uint32_t region = 0; region < 4; ++region) before_[region] = sum(region);
    bystander_ = connect_raw();
    ASSERT_NE(bystander_, nullptr);
    fill_local(0, 8192, 99);
  }

  void TearDown() override {
    bystander_.reset();
    FabricScenario::TearDown();
  }

  uint64_t sum(uint32_t region) {
    return target_checksum(region, 0, region == 0 ? kSharedBytes : kOtherBytes);
  }

  // Posts `batch` on a connection of its own and checks that it breaks, that the target's memory is
  // as it was, and that others are still served.
  void expect_refused(const std::function<Batch(const TargetHello&)>& make) {
    auto violator = connect_raw();
    ASSERT_NE(violator, nullptr);
    const Batch batch = make(violator->hello);
    const Status status = execute(*violator->connection, batch);
    ASSERT_FALSE(status) << "the access was let through";
    EXPECT_TRUE(violator->connection->broken());
    EXPECT_TRUE(run_until([&] { return violator->disconnected.has_value(); },
                          with_patience(4 * short_timeout_ns())));
    Batch good;
    good.read(local(16384, 8), violator->hello.shared.at(0));
    Status posted = violator->connection->post(good, nullptr);
    ASSERT_FALSE(posted) << "a broken connection takes nothing";
    EXPECT_EQ(posted.code(), ErrorCode::kDisconnected);
    for (uint32_t region = 0; region < 4; ++region) {
      EXPECT_EQ(sum(region), before_[region]) << "region " << region << " changed";
    }
    ASSERT_TRUE(execute(*bystander_->connection, good)) << "somebody else's connection suffered";
    expect_unharmed();
  }

  std::unique_ptr<RawLink> bystander_;
  uint64_t before_[4];
};

TEST_F(ViolationScenario, WritingBeyondTheEnd) {
  expect_refused([&](const TargetHello& hello) {
    Batch batch;
    batch.write(local(0, 64), hello.shared.at(kSharedBytes - 63));
    return batch;
  });
}

TEST_F(ViolationScenario, WritingBeforeTheStart) {
  expect_refused([&](const TargetHello& hello) {
    Batch batch;
    batch.write(local(0, 64), {hello.shared.address - 1, hello.shared.key});
    return batch;
  });
}

TEST_F(ViolationScenario, AnAddressThatWrapsAround) {
  expect_refused([&](const TargetHello& hello) {
    Batch batch;
    batch.write(local(0, 4096), {UINT64_MAX - 100, hello.shared.key});
    return batch;
  });
}

TEST_F(ViolationScenario, ReadingBeyondTheEnd) {
  expect_refused([&](const TargetHello& hello) {
    Batch batch;
    batch.read(local(0, 4096), hello.shared.at(kSharedBytes - 4095));
    return batch;
  });
}

TEST_F(ViolationScenario, AnUnknownKey) {
  expect_refused([&](const TargetHello& hello) {
    Batch batch;
    batch.write(local(0, 8), {hello.shared.address, hello.shared.key ^ 0x5a5a0000});
    return batch;
  });
}

TEST_F(ViolationScenario, AnotherRegionsKey) {
  expect_refused([&](const TargetHello& hello) {
    Batch batch;
    batch.write(local(0, 8), {hello.shared.address, hello.write_only.key});
    return batch;
  });
}

TEST_F(ViolationScenario, WritingToAReadOnlyRegion) {
  expect_refused([&](const TargetHello& hello) {
    Batch batch;
    batch.write(local(0, 8), hello.read_only.at(0));
    return batch;
  });
}

TEST_F(ViolationScenario, ReadingFromAWriteOnlyRegion) {
  expect_refused([&](const TargetHello& hello) {
    Batch batch;
    batch.read(local(0, 8), hello.write_only.at(0));
    return batch;
  });
}

TEST_F(ViolationScenario, ReadingFromARegionWithoutRemoteAccess) {
  expect_refused([&](const TargetHello& hello) {
    Batch batch;
    batch.read(local(0, 8), hello.no_access.at(0));
    return batch;
  });
}

TEST_F(ViolationScenario, AtomicOnARegionWithoutTheRight) {
  if (control_->connection->capabilities().atomics == fabric::AtomicScope::kNone) {
    GTEST_SKIP() << "this provider has no atomics";
  }
  expect_refused([&](const TargetHello& hello) {
    Batch batch;
    batch.fetch_add(local(0, 8), hello.write_only.at(0), 1);
    return batch;
  });
}

TEST_F(ViolationScenario, MisalignedAtomic) {
  if (control_->connection->capabilities().atomics == fabric::AtomicScope::kNone) {
    GTEST_SKIP() << "this provider has no atomics";
  }
  expect_refused([&](const TargetHello& hello) {
    Batch batch;
    batch.fetch_add(local(0, 8), hello.shared.at(12), 1);
    return batch;
  });
}

TEST_F(ViolationScenario, ABadRequestBehindAGoodOneFailsTheBatch) {
  expect_refused([&](const TargetHello& hello) {
    Batch batch;
    batch.read(local(4096, 64), hello.shared.at(0)).write(local(0, 8), hello.read_only.at(8));
    return batch;
  });
}

TEST_F(ViolationScenario, RandomAddressesAndKeysNeverGetThrough) {
  base::Random random(20240601);
  for (int round = 0; round < 12; ++round) {
    expect_refused([&](const TargetHello& hello) {
      const RemoteRegion& near = round % 3 == 0 ? hello.shared : hello.read_only;
      const uint64_t key = round % 2 == 0 ? near.key : random.next();
      const uint64_t offset = near.bytes - 8 + 1 + random.below(1u << 30);
      Batch batch;
      batch.write(local(0, 8), {near.address + offset, key});
      return batch;
    });
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace pmstore::scenario
