// A thief has seen the id of a client, and numbers of its transactions, which logs and messages
// show; the secret it has not seen.
#include "pmstore/layout/protocol.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

constexpr uint64_t kOwner = 77;
constexpr uint64_t kThief = 78;

// Under both lock disciplines.
class StolenId : public testing::ClientFixture,
                 public ::testing::WithParamInterface<LockDiscipline> {
 protected:
  void SetUp() override {
    ClientFixture::SetUp(GetParam(), kOwner);
    ASSERT_NE(client_, nullptr);
    device_ = std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_));
    rpc_ = std::move(*fabric::RpcClient::create(*device_, {}));
  }
  void TearDown() override {
    rpc_.reset();
    device_.reset();
    ClientFixture::TearDown();
  }

  // A hello that says the owner's id.
  Status come_as_the_owner(const ClientSecret& secret) {
    service::Hello head;
    head.client = numbered::id_of(kOwner);
    head.secret = secret;
    head.reply_region = rpc_->reply_region();
    head.service = service::ServiceId::kStore;
    const auto hello = service::encode(head, service::bytes_of(ClientHello{}));
    fabric::ConnectOptions options;
    options.hello = hello;
    auto connected = run(device_->connect(uri_, options));
    return connected ? Status{} : Status(std::move(connected.error()));
  }
  TxId commit(Client& client, std::string_view value) {
    Transaction tx = client.begin();
    tx.put(table_, "key", value);
    EXPECT_TRUE(run(tx.commit()));
    return tx.id();
  }

  std::unique_ptr<fabric::Device> device_;
  std::unique_ptr<fabric::RpcClient> rpc_;
};
INSTANTIATE_TEST_SUITE_P(Locks, StolenId,
                         ::testing::Values(LockDiscipline::kCpu, LockDiscipline::kRnic),
                         [](const auto& param) {
                           return std::string(discipline_name(param.param));
                         });

TEST_P(StolenId, FencesNobody) {
  commit(*client_, "1");
  for (const ClientSecret& secret : {ClientSecret(), ClientSecret::of_number(kThief)}) {
    EXPECT_EQ(come_as_the_owner(secret).code(), ErrorCode::kAccess);
  }
  commit(*client_, "2");
  EXPECT_EQ(client_->session().reconnects, 0u);
}

// "Aborted" would be a promise about a transaction that its owner may still commit.
TEST_P(StolenId, AsksAsAStranger) {
  TxId next = commit(*client_, "1");
  ++next.sequence;
  auto thief = connect(kThief);
  EXPECT_EQ(run(thief->outcome(next)).code(), ErrorCode::kCommitUnknown);
  EXPECT_EQ(commit(*client_, "2"), next);
  if (GetParam() == LockDiscipline::kCpu) {
    EXPECT_EQ(run(thief->outcome(next)), Outcome::kCommitted);
  }
  run(thief->close());
}

TEST_P(StolenId, OwnerComesBackAfterARestartAndTheThiefDoesNot) {
  const TxId id = commit(*client_, "1");
  client_.reset();  // as a program that was killed
  restart();
  EXPECT_EQ(come_as_the_owner(ClientSecret::of_number(kThief)).code(), ErrorCode::kAccess);
  client_ = connect(kOwner);
  ASSERT_NE(client_, nullptr);
  EXPECT_EQ(client_->id(), id.client);
  EXPECT_EQ(run(client_->outcome(id)), Outcome::kCommitted);
  TxId never = id;
  ++never.sequence;
  EXPECT_EQ(run(client_->outcome(never)), Outcome::kAborted);
  commit(*client_, "2");
}

}  // namespace
}  // namespace pmstore
