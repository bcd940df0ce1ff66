// An id follows from a secret, and a host lets in who has the secret.
#include "service/identity.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/unit/service/host_fixture.h"

namespace pmstore::service {
namespace {

TEST(Identity, IdFollowsFromTheSecret) {
  // Golden: a client that comes back under a later release must still be the same one.
  EXPECT_EQ(ClientSecret::of_number(7).id().to_string(), "bca112e9988ac6592f8fc66365de909b");
  EXPECT_FALSE(ClientSecret::of_number(7).empty());
  EXPECT_TRUE(ClientSecret().empty());
}

TEST(Identity, SecretsOfTheSystemDiffer) {
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) {
    const ClientSecret secret = ClientSecret::random();
    EXPECT_FALSE(secret.empty());
    EXPECT_TRUE(secret.id().is_somebody());
    ids.insert(secret.id().to_string());
  }
  EXPECT_EQ(ids.size(), 100u);
}

TEST(Identity, IdIsReadBackFromItsText) {
  for (const ClientId id : {ClientId(), ClientId(7), ClientId(1, UINT64_MAX), numbered::id_of(7)}) {
    EXPECT_EQ(parse_client_id(id.to_string()).value(), id);
  }
  const std::string good = numbered::id_of(7).to_string();
  for (const std::string& text :
       {std::string(), good + "0", good.substr(1), "g" + good.substr(1), good.substr(1) + " "}) {
    EXPECT_EQ(parse_client_id(text).code(), ErrorCode::kInvalidArgument) << text;
  }
}

class StolenId : public HostFixture {
 protected:
  static constexpr uint64_t kOwner = 7;

  // A hello of its own making, with an id that it has seen.
  Result<std::vector<std::byte>> say(const ClientSecret& secret, ClientId id) {
    Hello hello;
    hello.client = id;
    hello.secret = secret;
    hello.reply_region = rpc_->reply_region();
    hello.service = kEcho;
    return host_->on_hello(*host_->endpoints()[0], ++token_, encode(hello, bytes_of("ends")));
  }
  void SetUp() override {
    HostFixture::SetUp();
    rpc_ = std::move(*fabric::RpcClient::create(*device_, {}));
  }
  void TearDown() override {
    rpc_.reset();
    HostFixture::TearDown();
  }
  static std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
  }

  std::unique_ptr<fabric::RpcClient> rpc_;
  uint64_t token_ = 1'000'000;  // beyond those of the listener
};

// The hello asks the service to end the sessions of its client.
TEST_F(StolenId, WithoutItsSecretIsRefusedInOneLineAndEndsNobody) {
  const auto owner = open(kOwner);
  const ClientId id = numbered::id_of(kOwner);
  const ClientSecret other = ClientSecret::of_number(8);
  for (const ClientSecret& secret : {ClientSecret(), other, ClientSecret::random()}) {
    const auto answer = say(secret, id);
    ASSERT_EQ(answer.code(), ErrorCode::kAccess);
    EXPECT_EQ(answer.error().message,
              "the secret is not that of client " + id.to_string() +
                  ": connect with the secret that it was made with, or as a new client");
    EXPECT_EQ(events_.back(), "refused: echo 7 Access");
  }
  // Half of an id is not the id.
  EXPECT_EQ(say(ClientSecret::of_number(kOwner), {id.low, id.high + 1}).code(), ErrorCode::kAccess);
  EXPECT_EQ(say(ClientSecret::of_number(kOwner), {id.low + 1, id.high}).code(), ErrorCode::kAccess);
  EXPECT_TRUE(usable(*owner));
  EXPECT_TRUE(call(*owner, kEchoMethod));
  EXPECT_EQ(echo_.sessions(), 1u);
  ASSERT_TRUE(say(ClientSecret::of_number(kOwner), id));
  EXPECT_FALSE(usable(*owner)) << "its owner has come back";
}

}  // namespace
}  // namespace pmstore::service
