// The requests and answers of all sessions together take no more than a host has for them.
#include <algorithm>
#include <cstring>
#include <optional>

#include "tests/unit/service/host_fixture.h"

namespace pmstore::service {
namespace {

class HostMemory : public testing::Test {
 protected:
  HostMemory() {
    host_options_.message_bytes = HostOptions::kLeastMessageBytes;
    host_options_.observer = &observer_;
    host_ = std::make_unique<Host>(executor_, host_options_);
    host_->add(echo_);
    host_->add(unlisted_);
    uri_ = executor_.run(host_->listen({fabric::Scheme::kLocal, "memory", 0})).value();
    device_ = std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_));
  }
  ~HostMemory() override {
    held_.clear();
    holders_.clear();
  }
  Result<std::unique_ptr<Link>> try_open(ServiceId service = kEcho) {
    LinkOptions options;
    options.service = service;
    options.rpc.call_timeout_ns = 3'600'000'000'000;
    options.secret = ClientSecret::of_number(++clients_);
    options.rpc.reply_arena_bytes = arena_bytes_;
    return executor_.run(Link::open(*device_, uri_, options, {}));
  }
  std::unique_ptr<Link> open() {
    auto link = try_open();
    EXPECT_TRUE(link) << link.error().to_string();
    return link ? std::move(*link) : nullptr;
  }
  // Sends so many bytes and gets them back; twice as many stay held.
  Status echo(Link& link, size_t bytes) {
    const RequestPrefix prefix = link.prefix();
    std::vector<std::byte> request(sizeof prefix + bytes);
    std::memcpy(request.data(), &prefix, sizeof prefix);
    const auto reply =
        executor_.run(link.rpc().call(kEchoMethod, request, static_cast<uint32_t>(bytes)));
    if (!reply) return reply.error();
    EXPECT_EQ(reply->bytes().size(), bytes);
    return {};
  }

  // An echo of `body` that has been posted, and not been looked at by the host.
  base::Task<Result<fabric::RpcReply>> post_echo(Link& link, std::span<const std::byte> body) {
    const RequestPrefix prefix = link.prefix();
    std::vector<std::byte> request(sizeof prefix + body.size());
    std::memcpy(request.data(), &prefix, sizeof prefix);
    std::memcpy(request.data() + sizeof prefix, body.data(), body.size());
    auto call = link.rpc().call(kEchoMethod, request, static_cast<uint32_t>(body.size()));
    call.start();
    return call;
  }
  // Requests without an answer, of one session after another, until no more is let in.
  void fill() {
    while (holders_.size() < 40) {
      auto link = try_open();
      if (!link) break;
      holders_.push_back(std::move(*link));
      hold(*holders_.back());
    }
    ASSERT_LT(holders_.size(), 40u);
  }

  // A request of so many bytes that gets no answer.
  void hold(Link& link, size_t bytes = kLarge) {
    const RequestPrefix prefix = link.prefix();
    auto request = std::make_unique<std::vector<std::byte>>(sizeof prefix + bytes);
    std::memcpy(request->data(), &prefix, sizeof prefix);
    held_.push_back(link.rpc().call(kHoldMethod, *request, 64));
    requests_.push_back(std::move(request));
    held_.back().start();
    let_time_pass(1);
  }
  void let_time_pass(uint64_t ms) {
    executor_.run([](base::Executor& executor, uint64_t ns) -> base::Task<void> {
      co_await executor.sleep_for(ns);
    }(executor_, ms * 1'000'000));
  }

  static constexpr size_t kLarge = (size_t{2} << 20) - 4096;
  HostOptions host_options_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> requests_;
  std::vector<std::unique_ptr<Link>> holders_;  // of fill()
  std::vector<base::Task<Result<fabric::RpcReply>>> held_;
  Events events_;
  Listening observer_{events_};
  EchoService echo_{{.id = kEcho, .name = "echo"}, events_};
  EchoService unlisted_{{.id = kQuiet, .name = "quiet", .listed = false}, events_};
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  std::unique_ptr<Host> host_;
  fabric::Uri uri_;
  std::unique_ptr<fabric::Device> device_;
  uint32_t arena_bytes_ = fabric::RpcOptions{}.reply_arena_bytes;
  uint64_t clients_ = 0;
};

// Nearly 2 MiB of a request that has no answer yet.
TEST_F(HostMemory, WhoHoldsSomeAndIsSilentLongestIsEndedWhenItIsFull) {
  constexpr size_t kHolders = 40;
  const auto modest = open();
  ASSERT_TRUE(echo(*modest, 1000));
  std::vector<std::unique_ptr<Link>> holders;
  for (size_t i = 0; i < kHolders; ++i) {
    if (auto link = try_open()) {
      holders.push_back(std::move(*link));
      hold(*holders.back());
    } else {
      EXPECT_EQ(link.code(), ErrorCode::kBackPressure);
    }
  }
  EXPECT_GT(holders.size(), 30u);
  EXPECT_LT(holders.size(), 36u) << "64 MiB are full then";
  for (const auto& each : holders) EXPECT_TRUE(each->usable()) << "it may be at work";
  let_time_pass(2 * host_options_.lease_ms);
  const auto late = open();
  ASSERT_TRUE(late);
  EXPECT_TRUE(modest->usable()) << "it holds next to nothing";
  size_t ended = 0;
  while (ended < holders.size() && !holders[ended]->usable()) ++ended;
  EXPECT_GE(ended, 3u);
  EXPECT_LE(ended, 8u);
  for (size_t i = ended; i < holders.size(); ++i) EXPECT_TRUE(holders[i]->usable()) << i;
  const auto is_end = [](const std::string& event) { return event.starts_with("ended: "); };
  EXPECT_EQ(static_cast<size_t>(std::count_if(events_.begin(), events_.end(), is_end)), ended);
  EXPECT_EQ(*std::find_if(events_.begin(), events_.end(), is_end), "ended: echo 2 6");
}

TEST_F(HostMemory, WhoWorksIsNotEndedHoweverMuchItHolds) {
  fill();
  for (int i = 0; i < 20; ++i) {
    let_time_pass(host_options_.lease_ms / 5);
    for (const auto& each : holders_) ASSERT_TRUE(echo(*each, 10));
  }
  EXPECT_EQ(try_open().code(), ErrorCode::kBackPressure);
  for (const auto& each : holders_) EXPECT_TRUE(each->usable());
}

TEST_F(HostMemory, WhoIsSilentInThisProcessGivesItBack) {
  std::vector<std::unique_ptr<Link>> links;
  for (int i = 0; i < 60; ++i) {
    auto link = try_open();
    if (!link) let_time_pass(2 * host_options_.lease_ms);
    links.push_back(link ? std::move(*link) : open());
    ASSERT_TRUE(echo(*links.back(), kLarge)) << i;
  }
  for (const auto& each : links) EXPECT_TRUE(each->usable());
}

// In this process a request is in the ring before its immediate is looked at. Whichever of the
// three the host looks at first: it takes nothing of the others' requests.
TEST_F(HostMemory, ARequestThatHasArrivedStaysWholeWhenItIsFull) {
  const auto working = open();
  const auto first = open();
  const auto last = open();
  for (Link* const link : {first.get(), last.get()}) ASSERT_TRUE(echo(*link, kLarge));
  fill();
  let_time_pass(2 * host_options_.lease_ms);
  const std::vector<std::byte> body(16 * 1024, std::byte{0x5a});
  std::vector<base::Task<Result<fabric::RpcReply>>> calls;
  for (Link* const link : {first.get(), working.get(), last.get()}) {
    calls.push_back(post_echo(*link, body));
  }
  let_time_pass(1);
  for (auto& call : calls) {
    ASSERT_TRUE(call.done());
    const auto reply = call.take();
    ASSERT_TRUE(reply) << reply.error().to_string();
    const auto got = reply->bytes();
    EXPECT_TRUE(std::equal(got.begin(), got.end(), body.begin(), body.end()));
  }
  EXPECT_FALSE(holders_.front()->usable()) << "it was full, and this one was silent";
}

TEST_F(HostMemory, WhatAnEndedSessionHeldIsThereForOthers) {
  const auto first = open();
  for (int i = 0; i < 40; ++i) {
    const auto other = open();
    ASSERT_TRUE(other);
    ASSERT_TRUE(echo(*other, kLarge)) << i;
    ASSERT_TRUE(echo(*first, kLarge)) << i;
  }
  EXPECT_TRUE(first->usable());
}

// None of them holds so much that it is ended for it.
TEST_F(HostMemory, ManyThatHoldALittleKeepNewOnesOutWithAClearError) {
  constexpr size_t kSmall = 31 * 1024;
  arena_bytes_ = 64 * 1024;
  std::vector<std::unique_ptr<Link>> links;
  std::optional<Error> refused;
  while (!refused && links.size() < 1200) {
    auto link = try_open();
    if (!link) {
      refused = link.error();
      break;
    }
    links.push_back(std::move(*link));
    ASSERT_TRUE(echo(*links.back(), kSmall));
  }
  ASSERT_TRUE(refused) << "the host takes any number of messages";
  EXPECT_EQ(refused->code, ErrorCode::kBackPressure);
  EXPECT_NE(refused->message.find("--message-memory"), std::string::npos) << refused->message;
  EXPECT_GT(links.size(), 1000u);
  for (const auto& each : links) EXPECT_TRUE(each->usable());
  EXPECT_TRUE(try_open(kQuiet)) << "an administrator";
  links.resize(links.size() - 20);
  EXPECT_TRUE(try_open()) << "some have gone";
}

TEST(HostOptions, TooLittleMemoryForMessagesIsRefused) {
  HostOptions options;
  EXPECT_TRUE(options.check());
  options.message_bytes = HostOptions::kLeastMessageBytes - 1;
  EXPECT_EQ(options.check().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pmstore::service
