// Host: whom it accepts, what it passes on, and in which order a session ends.
#include <cstring>

#include "tests/unit/service/host_fixture.h"

namespace pmstore::service {
namespace {

using ::testing::Test;

TEST_F(HostFixture, HelloFindsItsService) {
  const auto echo = open(7);
  const auto quiet = open(8, kQuiet);
  EXPECT_EQ(echo_.sessions(), 1u);
  EXPECT_EQ(quiet_.sessions(), 1u);
  EXPECT_EQ(call(*echo, kEchoMethod, "text"), "text");
  EXPECT_EQ(call(*quiet, kEchoMethod, "other"), "other");
  EXPECT_EQ(echo->body().size(), std::strlen("welcome"));
  EXPECT_EQ(echo->welcome().epoch, 5u);
  EXPECT_EQ(echo->welcome().lease_ms, 0u) << "the fabric notices when it is gone";
  EXPECT_EQ(echo_.counters().sessions, 1u);
  EXPECT_EQ(echo_.counters().calls, 1u);
}

TEST_F(HostFixture, RefusalsSayWhyAndAreObserved) {
  host_->decline(ServiceId{3}, make_error(ErrorCode::kUnsupported, "create it with --threes"));
  EXPECT_EQ(try_open(7, kEcho, "no").error().message, "it said no");
  EXPECT_EQ(try_open(7, kEcho, "nonsense").code(), ErrorCode::kProtocol);
  EXPECT_EQ(try_open(7, ServiceId{3}).error().message, "create it with --threes");
  EXPECT_EQ(try_open(7, ServiceId{4}).code(), ErrorCode::kUnsupported);
  Hello nobody;
  nobody.service = kEcho;
  EXPECT_EQ(host_->on_hello(*host_->endpoints()[0], 1'000'000, encode(nobody, {})).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(events_, (Events{"refused: echo 7 NotFound", "refused: echo 7 Protocol",
                             "refused: unknown 7 Unsupported", "refused: unknown 7 Unsupported",
                             "refused: echo 1000 InvalidArgument"}));
  EXPECT_EQ(echo_.sessions(), 0u);
}

TEST_F(HostFixture, SessionEndsWithItsConnectionOnce) {
  open(7).reset();
  let_time_pass(1);
  EXPECT_EQ(events_, (Events{"begins: echo 7", "service: 7", "ended: echo 7 1"}));
  EXPECT_EQ(echo_.sessions(), 0u);
  EXPECT_TRUE(echo_.last.expired());
}

TEST_F(HostFixture, GoodbyeMakesItAnOrderlyEnd) {
  auto link = open(7);
  EXPECT_TRUE(run(link->call(kGoodbyeMethod, {}, 0)));
  link.reset();
  let_time_pass(1);
  EXPECT_EQ(events_.back(), "ended: echo 7 0");
}

TEST_F(HostFixture, PlacesAreBounded) {
  std::vector<std::unique_ptr<Link>> links;
  for (uint64_t i = 1; i <= 3; ++i) links.push_back(open(i));
  EXPECT_EQ(try_open(4).code(), ErrorCode::kBackPressure);
  EXPECT_TRUE(try_open(4, kQuiet)) << "places of another service";
  links.pop_back();
  let_time_pass(1);
  EXPECT_TRUE(try_open(4));
}

TEST_F(HostFixture, QuietOneGivesWay) {
  const auto first = open(1, kQuiet);
  const auto second = open(2, kQuiet);
  EXPECT_TRUE(call(*first, kEchoMethod));
  const auto third = open(3, kQuiet);
  EXPECT_TRUE(usable(*first));
  EXPECT_FALSE(usable(*second));
  EXPECT_TRUE(usable(*third));
}

TEST_F(HostFixture, HellosThatNeverConnectKeepNobodyOut) {
  const auto rpc = std::move(*fabric::RpcClient::create(*device_, {}));
  Endpoint& endpoint = *host_->endpoints()[0];
  const auto say_hello = [&](uint64_t token) {
    Hello hello;
    hello.secret = ClientSecret::of_number(token);
    hello.client = hello.secret.id();
    hello.reply_region = rpc->reply_region();
    hello.service = kEcho;
    return host_->on_hello(endpoint, token, encode(hello, {}));
  };
  constexpr uint64_t kFirst = 1'000'000;  // beyond those of the listener
  for (uint64_t token = kFirst; token < kFirst + 3; ++token) ASSERT_TRUE(say_hello(token));
  const auto first = open(1);
  EXPECT_FALSE(host_->has_handshake(endpoint, kFirst)) << "the oldest gives way";
  EXPECT_TRUE(host_->has_handshake(endpoint, kFirst + 1));
  // Those that are connected do not.
  const std::unique_ptr<Link> others[] = {open(2), open(3)};
  EXPECT_EQ(say_hello(kFirst + 3).code(), ErrorCode::kBackPressure);
  EXPECT_TRUE(usable(*first));
}

TEST_F(HostFixture, HelloOfOneServiceKeepsItsPlaceFromAnother) {
  const auto rpc = std::move(*fabric::RpcClient::create(*device_, {}));
  Endpoint& endpoint = *host_->endpoints()[0];
  Hello hello;
  hello.secret = ClientSecret::of_number(1);
  hello.client = hello.secret.id();
  hello.reply_region = rpc->reply_region();
  hello.service = kQuiet;
  ASSERT_TRUE(host_->on_hello(endpoint, 1'000'000, encode(hello, {})));
  const std::unique_ptr<Link> all[] = {open(1), open(2), open(3)};
  EXPECT_EQ(try_open(4).code(), ErrorCode::kBackPressure);
  EXPECT_TRUE(host_->has_handshake(endpoint, 1'000'000));
}

TEST_F(HostFixture, FailureIsToldOnce) {
  host_->tell_failure(make_error(ErrorCode::kIo, "the disk is gone"));
  host_->tell_failure(make_error(ErrorCode::kIo, "the disk is gone"));
  EXPECT_EQ(events_, (Events{"failure: the disk is gone"}));
}

TEST_F(HostFixture, AbandonedHandshakeGivesItsPlaceBack) {
  const auto rpc = std::move(*fabric::RpcClient::create(*device_, {}));
  Hello hello;
  hello.secret = ClientSecret::of_number(1);
  hello.client = hello.secret.id();
  hello.reply_region = rpc->reply_region();
  hello.service = kEcho;
  Endpoint& endpoint = *host_->endpoints()[0];
  ASSERT_TRUE(host_->on_hello(endpoint, 1'000'000, encode(hello, {})));
  EXPECT_EQ(echo_.sessions(), 1u);
  host_->on_abandoned(endpoint, 1'000'000);
  EXPECT_EQ(echo_.sessions(), 0u);
  EXPECT_EQ(events_, (Events{"service: 1"})) << "it was never observed";
}

TEST_F(HostFixture, RequestOfAnotherEpochIsRefusedAndTheSessionStays) {
  const auto link = open(7);
  const auto request = with_prefix(*link, "text");
  echo_.epoch_now = 6;
  EXPECT_EQ(call_raw(*link, kEchoMethod, request).code(), ErrorCode::kDisconnected);
  EXPECT_EQ(call_raw(*link, kPingMethod, with_prefix(*link, "")).code(), ErrorCode::kDisconnected);
  echo_.epoch_now = 5;
  EXPECT_EQ(call_raw(*link, kEchoMethod, request), "text");
}

TEST_F(HostFixture, ServiceIsToldOfRequestsThatWaitTogether) {
  const auto link = open(7);
  EXPECT_EQ(call(*link, kEchoMethod, "alone"), "alone");
  EXPECT_TRUE(echo_.waiting.empty());
  const auto first = with_prefix(*link, "one");
  const auto second = with_prefix(*link, "two");
  auto one = link->rpc().call(kEchoMethod, first, 256);
  auto two = link->rpc().call(kFailingMethod, second, 256);
  one.start();
  two.start();
  let_time_pass(1);
  ASSERT_TRUE(one.done() && two.done());
  EXPECT_TRUE(one.take());
  EXPECT_EQ(two.take().code(), ErrorCode::kNotFound);
  EXPECT_EQ(echo_.waiting, (std::vector<std::string>{std::to_string(kEchoMethod) + " one",
                                                     std::to_string(kFailingMethod) + " two"}));
}

TEST_F(HostFixture, ServiceIsNotToldOfARequestWithoutAPrefix) {
  const auto link = open(7);
  const auto good = with_prefix(*link, "good");
  const std::vector<std::byte> bad(3);
  auto first = link->rpc().call(kEchoMethod, good, 256);
  auto second = link->rpc().call(kEchoMethod, bad, 256);
  first.start();
  second.start();
  let_time_pass(1);
  ASSERT_TRUE(first.done() && second.done());
  EXPECT_TRUE(first.take());
  EXPECT_EQ(second.take().code(), ErrorCode::kProtocol);
  EXPECT_EQ(echo_.waiting, std::vector<std::string>{std::to_string(kEchoMethod) + " good"});
  EXPECT_EQ(echo_.counters().malformed, 1u);
}

TEST_F(HostFixture, MalformedRequestsCostTheConnection) {
  const auto good = open(1);
  const std::pair<uint16_t, size_t> bad[] = {{kEchoMethod, 0},  {kEchoMethod, 7},
                                             {kPingMethod, 17}, {kGoodbyeMethod, 17},
                                             {0x0999, 16},      {persist::kPersistWriteMethod, 64}};
  uint64_t count = 0;
  for (const auto& [method, bytes] : bad) {
    const auto link = open(2);
    std::vector<std::byte> request(bytes);
    const RequestPrefix prefix = link->prefix();
    if (bytes > 0) std::memcpy(request.data(), &prefix, std::min(bytes, sizeof prefix));
    EXPECT_EQ(call_raw(*link, method, request).code(), ErrorCode::kProtocol) << method;
    EXPECT_FALSE(usable(*link));
    EXPECT_EQ(echo_.counters().malformed, ++count);
    EXPECT_EQ(events_.back(), "ended: echo 2 3");
  }
  EXPECT_EQ(call(*good, kEchoMethod, "text"), "text");
}

// A client that only sends pings tells it as well.
TEST_F(HostFixture, EachRequestSaysThroughWhichNumberItsClientKnowsAllOutcomes) {
  const auto known = std::make_shared<uint64_t>(0);
  const auto link = open(1, kEcho, "", known);
  const auto told = [&] { return echo_.last.lock()->known_through; };
  EXPECT_EQ(call(*link, kEchoMethod, "text"), "text");
  EXPECT_EQ(told(), 0u);
  *known = 4;
  EXPECT_EQ(call(*link, kPingMethod), "");
  EXPECT_EQ(told(), 4u);
  *known = 3;
  EXPECT_EQ(call(*link, kEchoMethod, "text"), "text");
  EXPECT_EQ(told(), 4u) << "what was known stays known";
  *known = 5;
  EXPECT_EQ(call(*link, kGoodbyeMethod), "");
  EXPECT_EQ(told(), 5u);
  EXPECT_EQ(echo_.known, (std::vector<uint64_t>{4, 5})) << "each only once";
}

TEST_F(HostFixture, NumberThatAClientCannotKnowIsMalformed) {
  const auto known = std::make_shared<uint64_t>(EchoService::kLastNumber + 1);
  const auto link = open(1, kEcho, "", known);
  EXPECT_EQ(call(*link, kEchoMethod, "text").code(), ErrorCode::kProtocol);
  EXPECT_FALSE(usable(*link));
}

TEST_F(HostFixture, ErrorOfAServiceIsAnAnswer) {
  const auto link = open(1);
  EXPECT_EQ(call(*link, kFailingMethod).code(), ErrorCode::kNotFound);
  EXPECT_TRUE(usable(*link));
}

TEST_F(HostFixture, KickEndsTheListedSessionsOfOneClient) {
  const std::unique_ptr<Link> links[] = {open(7), open(7), open(8), open(7, kQuiet)};
  EXPECT_EQ(host_->kick(numbered::id_of(9)), 0u);
  EXPECT_EQ(host_->kick(numbered::id_of(7)), 2u);
  EXPECT_FALSE(usable(*links[0]));
  EXPECT_FALSE(usable(*links[1]));
  EXPECT_TRUE(usable(*links[2]));
  EXPECT_TRUE(usable(*links[3]));
  EXPECT_EQ(events_.back(), "ended: echo 7 5");
}

TEST_F(HostFixture, ReportsAreOfListedSessions) {
  const auto first = open(7);
  const auto hidden = open(9, kQuiet);
  const auto second = open(8);
  EXPECT_TRUE(call(*second, kEchoMethod));
  const auto reports = host_->reports();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].client, numbered::id_of(7));
  EXPECT_EQ(reports[0].kind, "echo");
  EXPECT_EQ(reports[0].via, uri_.to_string());
  EXPECT_EQ(reports[0].calls, 0u);
  EXPECT_EQ(reports[1].calls, 1u);
  EXPECT_EQ(reports[1].commits, 77u);
}

TEST_F(HostFixture, SessionMayEndItselfWhileItIsServed) {
  const auto link = open(7);
  echo_.look = [&](Session& session) { host_->end(session, SessionEnd::kReplaced); };
  EXPECT_FALSE(call(*link, kLookMethod));
  EXPECT_TRUE(echo_.last.expired());
  EXPECT_EQ(events_.back(), "ended: echo 7 4");
}

TEST_F(HostFixture, NewSessionMayEndAnOlderOne) {
  const auto before = open(7);
  const auto after = open(7, kEcho, "ends");
  EXPECT_FALSE(usable(*before));
  EXPECT_TRUE(usable(*after));
  EXPECT_EQ(echo_.sessions(), 1u);
}

// What waits for a drain is answered before any session ends.
TEST_F(HostFixture, WhatWaitsIsAnsweredBeforeASessionEnds) {
  const auto link = open(7);
  const auto request = with_prefix(*link, "");
  auto waiting = link->rpc().call(kHoldMethod, request, 64);
  waiting.start();
  let_time_pass(1);
  ASSERT_EQ(echo_.held.size(), 1u);
  EXPECT_EQ(host_->kick(numbered::id_of(7)), 1u);
  let_time_pass(1);
  ASSERT_TRUE(waiting.done());
  EXPECT_TRUE(waiting.take());
}

TEST_F(HostFixture, StopAnswersEndsAndRefuses) {
  const auto link = open(7);
  const auto request = with_prefix(*link, "");
  auto waiting = link->rpc().call(kHoldMethod, request, 64);
  waiting.start();
  let_time_pass(1);
  ASSERT_EQ(echo_.held.size(), 1u);
  Endpoint& endpoint = *host_->endpoints()[0];
  host_->stop();
  let_time_pass(1);
  ASSERT_TRUE(waiting.done());
  EXPECT_TRUE(waiting.take());
  EXPECT_FALSE(link->usable());
  EXPECT_EQ(events_.back(), "service: 7 stops") << "no observer is told";
  Hello hello;
  hello.secret = ClientSecret::of_number(7);
  hello.client = hello.secret.id();
  hello.service = kEcho;
  EXPECT_EQ(host_->on_hello(endpoint, 1, encode(hello, {})).code(), ErrorCode::kDisconnected);
}

TEST_F(HostFixture, ShutDownTellsNobody) {
  const auto link = open(7);
  const size_t told = events_.size();
  host_->shut_down();
  EXPECT_EQ(events_.size(), told);
  EXPECT_FALSE(usable(*link));
  EXPECT_EQ(echo_.sessions(), 0u);
  host_->stop();  // as a server does that is stopped twice
}

}  // namespace
}  // namespace pmstore::service
