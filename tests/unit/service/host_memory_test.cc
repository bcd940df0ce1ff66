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
    HostOptions options;
    options.message_bytes = HostOptions::kLeastMessageBytes;
    options.observer = &observer_;
    host_ = std::make_unique<Host>(executor_, options);
    host_->add(echo_);
    uri_ = executor_.run(host_->listen({fabric::Scheme::kLocal, "memory", 0})).value();
    device_ = std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_));
  }
  Result<std::unique_ptr<Link>> try_open() {
    LinkOptions options;
    options.service = kEcho;
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

  Events events_;
  Listening observer_{events_};
  EchoService echo_{{.id = kEcho, .name = "echo"}, events_};
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  std::unique_ptr<Host> host_;
  fabric::Uri uri_;
  std::unique_ptr<fabric::Device> device_;
  uint32_t arena_bytes_ = fabric::RpcOptions{}.reply_arena_bytes;
  uint64_t clients_ = 0;
};

TEST_F(HostMemory, WhoHoldsSomeAndWasSilentLongestIsEndedWhenItIsFull) {
  constexpr size_t kLarge = (size_t{2} << 20) - 4096;
  constexpr size_t kHolders = 30;  // of nearly 4 MiB each
  const auto modest = open();
  ASSERT_TRUE(echo(*modest, 1000));
  std::vector<std::unique_ptr<Link>> holders;
  for (size_t i = 0; i < kHolders; ++i) {
    holders.push_back(open());
    ASSERT_TRUE(echo(*holders.back(), kLarge)) << i;
  }
  EXPECT_TRUE(modest->usable()) << "it holds next to nothing";
  size_t ended = 0;
  while (ended < kHolders && !holders[ended]->usable()) ++ended;
  EXPECT_GE(ended, kHolders - (HostOptions::kLeastMessageBytes >> 20) / 4 - 1);
  EXPECT_LE(ended, kHolders - 10);
  for (size_t i = ended; i < kHolders; ++i) EXPECT_TRUE(holders[i]->usable()) << i;
  const auto is_end = [](const std::string& event) { return event.starts_with("ended: "); };
  EXPECT_EQ(static_cast<size_t>(std::count_if(events_.begin(), events_.end(), is_end)), ended);
  EXPECT_EQ(*std::find_if(events_.begin(), events_.end(), is_end), "ended: echo 2 6");
}

TEST_F(HostMemory, WhatAnEndedSessionHeldIsThereForOthers) {
  constexpr size_t kLarge = (size_t{2} << 20) - 4096;
  const auto first = open();
  for (int i = 0; i < 40; ++i) {
    const auto other = open();
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
