// What a client knows of the frames of records: learnt when it needs one, given up when it is told.
#include "pmstore/client/frame_regions.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "fabric/local/fault_injection.h"
#include "pmstore/layout/lock_word.h"
#include "tests/unit/pmstore/client_fixture.h"

namespace pmstore {
namespace {

using internal::FrameRegions;

constexpr unsigned kShift = 19;
constexpr uint64_t kFrameBytes = 1 << kShift;
constexpr SlotOffset kInFirst{64 * 4};
constexpr SlotOffset kInSecond{kFrameBytes + 64 * 4};

std::vector<std::byte> answer_of(uint64_t list, const std::vector<NumberedRegion>& regions) {
  std::vector<std::byte> room(sizeof(RegionsReply) + regions.size() * sizeof(NumberedRegion));
  MessageWriter writer(room);
  writer.put(RegionsReply{static_cast<uint32_t>(regions.size()), 0, list});
  for (const NumberedRegion& each : regions) writer.put(each);
  return room;
}

class FrameRegionsAlone : public ::testing::Test {
 protected:
  void SetUp() override {
    hello_.frame_shift = kShift;
    hello_.words.bytes = lock_table_bytes(2 * kFrameBytes);
    hello_.region_list = 4;
    ASSERT_TRUE(frames_.start(hello_, std::as_bytes(std::span(regions_))));
  }
  NumberedRegion number(uint32_t frame) const { return {frame, 0, regions_[frame]}; }

  std::vector<fabric::RemoteRegion> regions_{{4096, kFrameBytes, 1}, {1 << 20, kFrameBytes, 2}};
  ServerHello hello_;
  FrameRegions frames_;
};

TEST_F(FrameRegionsAlone, WhatTheHelloNamesIsHeldToItsEnd) {
  EXPECT_TRUE(frames_.holds(kInFirst, 64));
  EXPECT_TRUE(frames_.holds(SlotOffset{2 * kFrameBytes - 64}, 64));
  EXPECT_FALSE(frames_.holds(SlotOffset{2 * kFrameBytes - 64}, 128));
  EXPECT_FALSE(frames_.holds(SlotOffset{kFrameBytes + 32}, 64)) << "no slot";
  EXPECT_FALSE(frames_.holds(SlotOffset{2 * kFrameBytes}, 64));
  EXPECT_EQ(frames_.at(kInSecond).address, (1u << 20) + 64 * 4);
  EXPECT_TRUE(frames_.knows_later());
  EXPECT_EQ(frames_.confirmed(), 4u);
}

TEST_F(FrameRegionsAlone, AnAnswerThatIsOlderThanAnotherIsIgnored) {
  ASSERT_TRUE(frames_.apply(answer_of(5, {number(0)})));
  EXPECT_FALSE(frames_.holds(kInSecond, 64));
  EXPECT_FALSE(frames_.knows_later());
  EXPECT_EQ(frames_.at(kInSecond).address, (1u << 20) + 64 * 4) << "for what has begun";
  ASSERT_TRUE(frames_.apply(answer_of(4, {number(0), number(1)})));
  EXPECT_FALSE(frames_.holds(kInSecond, 64));
  EXPECT_EQ(frames_.list(), 5u);
  ASSERT_TRUE(frames_.apply(answer_of(6, {number(0), number(1)})));
  EXPECT_TRUE(frames_.holds(kInSecond, 64));
  EXPECT_EQ(frames_.confirmed(), 4u);
}

TEST_F(FrameRegionsAlone, AnAnswerThatMakesNoSenseIsRefused) {
  NumberedRegion large = number(0);
  large.region.bytes += 64;
  NumberedRegion far = number(1);
  far.number = internal::kMostFrames;
  NumberedRegion empty = number(0);
  empty.region.bytes = 0;
  for (const auto& bad :
       std::vector<std::vector<NumberedRegion>>{{large}, {far}, {empty}, {number(1), number(0)}}) {
    EXPECT_FALSE(frames_.apply(answer_of(5, bad)));
  }
  auto cut = answer_of(5, {number(0)});
  cut.pop_back();
  EXPECT_FALSE(frames_.apply(cut));
  EXPECT_EQ(frames_.list(), 4u);
}

TEST_F(FrameRegionsAlone, AHelloThatMakesNoSenseIsRefused) {
  FrameRegions other;
  const auto list = std::as_bytes(std::span(regions_));
  EXPECT_FALSE(other.start(hello_, {})) << "no frame";
  EXPECT_FALSE(other.start(hello_, list.first(list.size() - 1)));
  const std::vector<fabric::RemoteRegion> many(internal::kMostFrames + 1);
  EXPECT_FALSE(other.start(hello_, std::as_bytes(std::span(many))));
  regions_[1].bytes += 64;
  EXPECT_FALSE(other.start(hello_, list));
  hello_.frame_shift = 0;
  EXPECT_FALSE(other.start(hello_, list));
  hello_.records = regions_[0];
  EXPECT_TRUE(other.start(hello_, {}));
  EXPECT_TRUE(other.holds(kInFirst, 64));
  EXPECT_FALSE(other.may_name(SlotOffset{uint64_t{1} << 40}, 0)) << "the server tells of no other";
}

// ---- of a client ----

class FrameRegionsOfAClient : public testing::FakeServerFixture {
 protected:
  void SetUp() override {
    server_->hello.frame_shift = kShift;
    server_->hello.hear_ms = 60'000;
    server_->hello_bytes += 2 * sizeof(fabric::RemoteRegion);  // neither has memory
    server_->place(kInFirst, kTable, "first", "90", 5);
    server_->place(kInSecond, kTable, "second", "90", 5);
    server_->answer = [this](const auto& request, fabric::RpcCall call) {
      answer(request, std::move(call));
    };
    options_.misses = MissPath::kOneSided;
    connect();
  }
  void answer(const testing::FakeServer::Request& request, fabric::RpcCall call) {
    if (request.method == Method::kGet) {
      GetReply head{};
      head.slot = raw(kInSecond);
      head.version = 5;
      head.value_bytes = 2;
      head.found = FoundRecord::kWithValue;
      return call.reply(get_reply(head, "by"));
    }
    if (request.method == Method::kListTables) {
      if (notice_ != 0) call.peer()->set_notice(notice_);
      const uint32_t none = 0;
      return call.reply(std::as_bytes(std::span(&none, 1)));
    }
    if (request.method != Method::kRegions) {
      return testing::FakeServer::answer_plainly(request, std::move(call));
    }
    MessageReader reader(request.body);
    confirmed_.push_back(reader.get<RegionsRequest>().confirmed);
    if (holds_next_) {
      holds_next_ = false;
      held_.emplace(std::move(call));
      return;
    }
    std::vector<NumberedRegion> named;
    if (named_) named.push_back(region_of(*named_));
    call.reply(answer_of(list_, named));
  }
  NumberedRegion region_of(uint32_t frame) const {
    fabric::RemoteRegion region = server_->hello.records;
    region.address += frame * kFrameBytes;
    region.bytes = kFrameBytes;
    return {frame, 0, region};
  }

  uint64_t list_ = 0;
  std::optional<uint32_t> named_ = 1;
  uint16_t notice_ = 0;
  bool holds_next_ = false;
  std::optional<fabric::RpcCall> held_;
  std::vector<uint64_t> confirmed_;  // by each request for frames
};

TEST_F(FrameRegionsOfAClient, AFrameIsAskedForWhenItIsFirstNeeded) {
  EXPECT_EQ(*get("second"), "90");
  EXPECT_EQ(confirmed_, std::vector<uint64_t>{0});
  const auto spent = cost([&] { EXPECT_EQ(*get("second"), "90"); });
  EXPECT_EQ(spent.server_messages, 0u);
}

TEST_F(FrameRegionsOfAClient, AFrameWithoutARegionIsReadByTheServerAndAskedForLater) {
  named_ = 0;
  EXPECT_EQ(*get("second"), "by");
  EXPECT_EQ(*get("second"), "by");
  EXPECT_EQ(confirmed_.size(), 1u);
  let_time_pass(FrameRegions::kAskAgainNs);
  EXPECT_EQ(*get("second"), "by");
  EXPECT_EQ(confirmed_.size(), 2u);
}

TEST_F(FrameRegionsOfAClient, AFrameThatIsNotThereKeepsNoOtherFromBeingAskedFor) {
  named_.reset();
  EXPECT_EQ(*get("second"), "by");
  named_ = 0;
  EXPECT_EQ(*get("first"), "90");
  EXPECT_EQ(confirmed_.size(), 2u);
  EXPECT_EQ(*get("second"), "by");
  EXPECT_EQ(confirmed_.size(), 2u);
}

TEST_F(FrameRegionsOfAClient, AListIsConfirmedWhenWhatWasUnderWayHasEnded) {
  ASSERT_EQ(*get("second"), "90");
  // It waits for the answer, and has its buffer.
  holds_next_ = true;
  Task<Result<std::string>> under_way = client_->get(kTable, "first");
  under_way.start();
  let_time_pass(10'000);
  ASSERT_TRUE(held_);
  confirmed_.clear();
  list_ = 1;
  named_ = 0;
  notice_ = 2;
  ASSERT_TRUE(run(client_->list_tables()));
  let_time_pass(10'000'000);
  EXPECT_EQ(confirmed_, std::vector<uint64_t>{0}) << "it has asked, and has not confirmed";
  EXPECT_EQ(*get("second"), "by") << "what the list has not is accessed no more";
  std::exchange(held_, std::nullopt)->reply(answer_of(0, {region_of(1)}));
  let_time_pass(10'000'000);
  ASSERT_TRUE(under_way.done());
  EXPECT_EQ(*under_way.take(), "90");
  EXPECT_EQ(confirmed_.back(), 1u);
  EXPECT_EQ(*get("second"), "by") << "the older answer was ignored";
}

TEST_F(FrameRegionsOfAClient, AListIsConfirmedBehindTheReadOfAnOperationThatWasDestroyed) {
  ASSERT_EQ(*get("second"), "90");
  fabric::FailNthRequest delay(1, fabric::FaultSide::kConnector,
                               {fabric::Fault::kDelay, 1'000'000'000});
  {
    const fabric::ScopedFaultInjector installed(delay);
    Task<Result<std::string>> destroyed = client_->get(kTable, "second");
    destroyed.start();
    ASSERT_TRUE(delay.fired());
    ASSERT_FALSE(destroyed.done());
  }
  confirmed_.clear();
  list_ = 1;
  named_ = 0;
  notice_ = 2;
  ASSERT_TRUE(run(client_->list_tables()));
  let_time_pass(10'000'000);
  EXPECT_EQ(confirmed_, std::vector<uint64_t>{0});
  let_time_pass(2'000'000'000);
  EXPECT_EQ(confirmed_.back(), 1u);
}

TEST_F(FrameRegionsOfAClient, AListThatComesMeanwhileIsConfirmedToo) {
  ASSERT_EQ(*get("second"), "90");
  confirmed_.clear();
  list_ = 1;
  notice_ = 2;
  holds_next_ = true;
  ASSERT_TRUE(run(client_->list_tables()));
  let_time_pass(10'000);
  ASSERT_TRUE(held_);
  list_ = 2;
  std::exchange(held_, std::nullopt)->reply(answer_of(1, {region_of(1)}));
  let_time_pass(10'000'000);
  EXPECT_EQ(confirmed_, (std::vector<uint64_t>{0, 1, 2}));
}

TEST_F(FrameRegionsOfAClient, AServerThatDoesNotAnswerCostsTheSession) {
  ASSERT_EQ(*get("second"), "90");
  notice_ = 2;
  holds_next_ = true;
  ASSERT_TRUE(run(client_->list_tables()));
  let_time_pass(10'000);
  ASSERT_TRUE(held_);
  std::exchange(held_, std::nullopt)->reply_error(make_error(ErrorCode::kIo, "no"));
  let_time_pass(10'000);
  EXPECT_EQ(*get("second"), "90");
  EXPECT_EQ(client_->session().reconnects, 1u);
}

TEST_F(FrameRegionsOfAClient, ASessionMayEndWhileItFollows) {
  notice_ = 2;
  holds_next_ = true;
  ASSERT_TRUE(run(client_->list_tables()));
  let_time_pass(10'000);
  ASSERT_TRUE(held_);
  client_.reset();
  std::exchange(held_, std::nullopt)->reply(answer_of(1, {region_of(0)}));
  let_time_pass(10'000'000);
  EXPECT_EQ(confirmed_.size(), 1u);
}

}  // namespace
}  // namespace pmstore
