// Hostile clients of a host: hellos and requests that were changed anywhere, handshakes that are
// left, and sessions that do both.
//
// Whatever came: the host answers or refuses each hello, forgets what was left, keeps within its
// bounds, and an honest client beside it is served. That the generator has teeth is checked, too:
// it was refused for every reason that the decoder has, and accepted often.
#include <cstring>
#include <map>

#include "base/random.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/unit/service/host_fixture.h"

namespace pmstore::service {
namespace {

constexpr uint64_t kRounds = 20'000;

class ServiceFuzz : public HostFixture {
 protected:
  std::vector<std::byte> mutated_hello(base::Random& random, const fabric::RemoteRegion& replies) {
    Hello hello;
    hello.secret = ClientSecret::of_number(100 + random.below(10));
    hello.client = hello.secret.id();
    hello.reply_region = replies;
    hello.service = random.below(2) == 0 ? kEcho : kQuiet;
    const std::string_view bodies[] = {"", "", "", "no", "ends", "nonsense"};
    const std::string_view body = bodies[random.below(std::size(bodies))];
    std::vector<std::byte> bytes = encode(hello, std::as_bytes(std::span(body)));
    if (random.below(3) == 0) return bytes;
    switch (random.below(6)) {
      case 0: bytes.resize(random.below(bytes.size() + 1)); break;
      case 1: bytes.resize(bytes.size() + random.below(fabric::kMaxHelloBytes)); break;
      case 2: std::memset(bytes.data() + offsetof(Hello, client), 0, sizeof hello.client); break;
      case 3: bytes[offsetof(Hello, service)] = std::byte(random.next()); break;
      default: bytes[random.below(bytes.size())] ^= std::byte(1u << random.below(8));
    }
    return bytes;
  }
};

TEST_F(ServiceFuzz, AHostSurvivesHostileHellos) {
  base::Random random(4711);
  const auto rpc = std::move(*fabric::RpcClient::create(*device_, {}));
  const auto honest = open(1);
  Endpoint& endpoint = *host_->endpoints()[0];
  std::map<ErrorCode, uint64_t> refused;
  uint64_t accepted = 0;
  uint64_t token = 1'000'000;
  for (uint64_t round = 0; round < fuzz::rounds(kRounds); ++round) {
    ++token;
    const auto answer =
        host_->on_hello(endpoint, token, mutated_hello(random, rpc->reply_region()));
    EXPECT_EQ(host_->has_handshake(endpoint, token), answer.has_value());
    accepted += answer.has_value();
    if (!answer) ++refused[answer.code()];
    // Some are left; the rest stay until others need their places.
    if (random.below(4) == 0) host_->on_abandoned(endpoint, token - random.below(8));
    EXPECT_LE(echo_.sessions(), echo_.traits().max_sessions);
    EXPECT_LE(quiet_.sessions(), quiet_.traits().max_sessions);
    if (round % 1000 == 0) {
      EXPECT_EQ(call(*honest, kEchoMethod, "text"), "text");
    }
    events_.clear();
  }
  EXPECT_GT(accepted, 0u);
  for (const ErrorCode code :
       {ErrorCode::kVersionMismatch, ErrorCode::kProtocol, ErrorCode::kInvalidArgument,
        ErrorCode::kUnsupported, ErrorCode::kNotFound}) {
    EXPECT_GT(refused[code], 0u) << base::error_name(code);
  }
}

TEST_F(ServiceFuzz, AHostSurvivesHostileRequests) {
  base::Random random(4712);
  const auto honest = open(1);
  std::unique_ptr<Link> link;
  std::map<ErrorCode, uint64_t> refused;
  uint64_t answered = 0;
  const uint16_t methods[] = {
      kEchoMethod, kFailingMethod, kPingMethod, kGoodbyeMethod, persist::kPersistWriteMethod,
      0x0999};
  for (uint64_t round = 0; round < fuzz::rounds(kRounds / 10); ++round) {
    if (link == nullptr || !link->usable()) link = open(7);
    ASSERT_NE(link, nullptr);
    auto request = with_prefix(*link, random.below(2) == 0 ? "" : "body");
    if (random.below(4) == 0) request.resize(random.below(request.size() + 1));
    if (random.below(4) == 0 && !request.empty()) {
      request[random.below(request.size())] ^= std::byte(1u << random.below(8));
    }
    const auto reply = call_raw(*link, methods[random.below(std::size(methods))], request);
    answered += reply.has_value();
    if (!reply) ++refused[reply.code()];
    let_time_pass(1);
    EXPECT_EQ(link->usable(), reply || reply.code() != ErrorCode::kProtocol);
    if (round % 100 == 0) {
      EXPECT_EQ(call(*honest, kEchoMethod, "text"), "text");
    }
    events_.clear();
  }
  EXPECT_GT(answered, 0u);
  for (const ErrorCode code :
       {ErrorCode::kProtocol, ErrorCode::kDisconnected, ErrorCode::kNotFound}) {
    EXPECT_GT(refused[code], 0u) << base::error_name(code);
  }
}

}  // namespace
}  // namespace pmstore::service
