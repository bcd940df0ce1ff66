// What a client may do to the memory of a server by itself: each kind of memory is a region of its
// own, with the rights that the lock discipline needs and no others.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "pmstore/client/client_session.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore::testing {
namespace {

using internal::ClientSession;
using internal::OpBuffer;
using internal::SessionRef;

constexpr SlotOffset kSlot{16384};  // no record is there

class RegionRights : public ClientFixture, public ::testing::WithParamInterface<LockDiscipline> {
 protected:
  void SetUp() override { ClientFixture::SetUp(GetParam()); }
  bool rnic() const { return GetParam() == LockDiscipline::kRnic; }
  // A session of its own: what is not allowed breaks the connection.
  bool may(const std::function<void(ClientSession&, OpBuffer&)>& plan) {
    internal::SessionOptions options;
    options.secret = ClientSecret::of_number(7);
    Status done;
    {
      auto session = run(
          ClientSession::open(std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_)),
                              std::make_shared<internal::SessionBook>(), uri_, options));
      if (!session) {
        ADD_FAILURE() << session.error().to_string();
        return false;
      }
      auto buffer = (*session)->buffers().try_take();
      buffer->batch.clear();
      plan(**session, *buffer);
      const std::vector<std::byte> before(region_.bytes().begin(), region_.bytes().end());
      done = run([](ClientSession& with, OpBuffer& to_post) -> Task<Status> {
        co_return co_await with.execute(to_post);
      }(**session, *buffer));
      EXPECT_TRUE(done || std::equal(before.begin(), before.end(), region_.bytes().begin()));
    }
    EXPECT_TRUE(run(client_->put(table_, "alice", "1"))) << "others go on";
    return done.has_value();
  }
  bool may_read(const std::function<fabric::RemoteAddress(ClientSession&)>& where) {
    return may([&](ClientSession& session, OpBuffer& buffer) {
      buffer.batch.read(buffer.word_at(0), where(session));
    });
  }
  bool may_write(const std::function<fabric::RemoteAddress(ClientSession&)>& where) {
    return may([&](ClientSession& session, OpBuffer& buffer) {
      std::memset(buffer.data, 0xee, sizeof(uint64_t));
      buffer.batch.write(buffer.at(0, sizeof(uint64_t)), where(session));
    });
  }
  bool may_swap(const std::function<fabric::RemoteAddress(ClientSession&)>& where) {
    return may([&](ClientSession& session, OpBuffer& buffer) {
      buffer.batch.compare_swap(buffer.word_at(0), where(session), UINT64_MAX, UINT64_MAX);
    });
  }

  static fabric::RemoteAddress record(ClientSession& session) { return session.record_at(kSlot); }
  static fabric::RemoteAddress word(ClientSession& session) { return session.word_at(kSlot); }
  static fabric::RemoteAddress bucket(ClientSession& session) { return session.bucket_at(0); }
  static fabric::RemoteAddress behind(const fabric::RemoteRegion& region) {
    fabric::RemoteAddress address = region.at(0);
    address.address += region.bytes;
    return address;
  }
};
INSTANTIATE_TEST_SUITE_P(Locks, RegionRights,
                         ::testing::Values(LockDiscipline::kCpu, LockDiscipline::kRnic),
                         [](const auto& each) { return std::string(discipline_name(each.param)); });

TEST_P(RegionRights, AllThatAClientNeedsCanBeRead) {
  EXPECT_TRUE(may_read(record));
  EXPECT_TRUE(may_read(word));
  EXPECT_TRUE(may_read(bucket));
}

TEST_P(RegionRights, RecordsAreWrittenByTheirServerUnlessClientsCommitInPlace) {
  EXPECT_EQ(may_write(record), rnic());
  EXPECT_FALSE(may_swap(record));
}

TEST_P(RegionRights, WordsAreSwappedUnderRnicOnlyAndNeverWritten) {
  EXPECT_EQ(may_swap(word), rnic());
  EXPECT_FALSE(may_write(word));
}

TEST_P(RegionRights, TheIndexIsTheServers) {
  EXPECT_FALSE(may_write(bucket));
  EXPECT_FALSE(may_swap(bucket));
}

TEST_P(RegionRights, TheKeyOfOneKindReachesNoOther) {
  EXPECT_FALSE(may_read([](ClientSession& session) { return behind(session.hello().records); }));
  EXPECT_FALSE(may_read([](ClientSession& session) { return behind(session.hello().words); }));
  EXPECT_FALSE(may_read([](ClientSession& session) { return behind(session.hello().buckets); }));
}

class RegionRightsWithoutCommits : public RegionRights {
 protected:
  void SetUp() override {
    server_options_.one_sided_commit = false;
    RegionRights::SetUp();
  }
};
INSTANTIATE_TEST_SUITE_P(Locks, RegionRightsWithoutCommits,
                         ::testing::Values(LockDiscipline::kRnic),
                         [](const auto& each) { return std::string(discipline_name(each.param)); });

TEST_P(RegionRightsWithoutCommits, RecordsAreTheServers) {
  EXPECT_FALSE(may_write(record));
  EXPECT_TRUE(may_swap(word));
}

}  // namespace
}  // namespace pmstore::testing
