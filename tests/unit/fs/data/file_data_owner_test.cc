// The owner's session of FileDataService: whose area it is, and what the owner asks for.
#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "fabric/message.h"
#include "fs/internal/remote_area.h"
#include "tests/unit/fs/data/file_data_fixture.h"

namespace pmstore::fs {
namespace {

using service::Link;

class FileDataOwnerTest : public FileDataTest {
 protected:
  static constexpr uint64_t kFileSystem = 77;

  FileDataOwnerTest() { serve(); }

  void serve() { service_->serve_owner(FileArea::look(pool_.pool()).value()); }
  static AreaOwnerHello hello(uint64_t instance = 1, uint64_t epoch = 1,
                              uint64_t file_system = kFileSystem) {
    AreaOwnerHello made;
    made.instance = instance;
    made.file_system = file_system;
    made.epoch = epoch;
    made.server = 1;
    return made;
  }
  static constexpr uint64_t kSecret = 1000;
  // What the area records of hello().
  static AreaOwner owner_of(uint64_t file_system, uint64_t epoch, uint16_t server) {
    return {file_system, epoch, server, ClientSecret::of_number(kSecret).id()};
  }
  Result<std::unique_ptr<Link>> try_own(const AreaOwnerHello& as, uint64_t secret = kSecret) {
    service::LinkOptions with;
    with.service = service::ServiceId::kFileData;
    with.secret = ClientSecret::of_number(secret);
    auto link = run(Link::open(*device_, uri_, with, service::bytes_of(as)));
    if (link) (*link)->keep_lease();
    return link;
  }
  std::unique_ptr<Link> own(const AreaOwnerHello& as) {
    auto link = try_own(as);
    EXPECT_TRUE(link) << link.error().to_string();
    return link ? std::move(*link) : nullptr;
  }
  static AreaOwnerAnswer answer_of(const Link& link) {
    return fabric::MessageReader(link.body()).get<AreaOwnerAnswer>();
  }
  template <typename T>
  bool ask(Link& link, uint16_t method, const T& body) {
    const auto answered = run(link.call(method, service::bytes_of(body), 0));
    return answered.has_value();
  }
  struct OneWord {
    AreaSetWords head{1, 0};
    AreaWord word;
  };
  AreaOwner recorded() { return FileArea::look(pool_.pool())->owner(); }
  // As the owner would put it into a map.
  MapExtent extent_at(uint64_t unit) {
    const AreaRange place{0, unit * kUnitBytes, kUnitBytes};
    return {0, place, space_->word_at(place.offset)};
  }
};

TEST_F(FileDataOwnerTest, TheAreaRecordsItsOwner) {
  EXPECT_EQ(recorded(), AreaOwner{});
  const auto first = own(hello());
  EXPECT_EQ(recorded(), owner_of(kFileSystem, 1, 1));
  EXPECT_EQ(answer_of(*first).bytes, space_->total_bytes());
  stop();
  start();
  serve();
  EXPECT_EQ(recorded(), owner_of(kFileSystem, 1, 1));
  EXPECT_EQ(try_own(hello(2, 5, kFileSystem + 1)).code(), ErrorCode::kAccess);
  EXPECT_EQ(recorded(), owner_of(kFileSystem, 1, 1));
}

// Its name, its epoch and that of the area are no secrets.
TEST_F(FileDataOwnerTest, AStrangerWhoKnowsTheNamesDoesNotGetTheArea) {
  const auto first = own(hello());
  constexpr uint64_t kStranger = 2000;
  EXPECT_EQ(try_own(hello(2, 9), kStranger).code(), ErrorCode::kAccess);
  EXPECT_FALSE(first->connection().broken());
  EXPECT_EQ(recorded(), owner_of(kFileSystem, 1, 1));
  stop();
  start();
  serve();
  EXPECT_EQ(try_own(hello(2, 9), kStranger).code(), ErrorCode::kAccess) << "it is durable";
  const auto again = own(hello(3, 2));
  EXPECT_EQ(recorded(), owner_of(kFileSystem, 2, 1));
  // One that is given back has no secret any more.
  EXPECT_TRUE(run(again->call(kAreaReleaseMethod, {}, 0)));
  EXPECT_TRUE(try_own(hello(4, 1, kFileSystem + 1), kStranger));
}

// The header as a release before wrote it: its checksum ends in front of the owner's key.
TEST_F(FileDataOwnerTest, AnOwnerOfAnEarlierReleaseBringsItsSecretAtItsNextHello) {
  ASSERT_TRUE(FileArea::open(pool_.pool())->set_owner({kFileSystem, 4, 1, {}}));
  for (size_t copy = 0; copy < 2; ++copy) {
    FileAreaHeader header;
    std::memcpy(&header, pool_.header_copy(copy), sizeof header);
    header.version = kFileAreaVersionWithoutKey;
    header.owner_key[0] = header.owner_key[1] = 99;  // behind its end
    constexpr size_t kFrom = offsetof(FileAreaHeader, version);
    constexpr size_t kEnd = offsetof(FileAreaHeader, owner_key);
    header.crc = base::crc32c(std::as_bytes(std::span(&header, 1)).subspan(kFrom, kEnd - kFrom));
    std::memcpy(pool_.header_copy(copy), &header, sizeof header);
  }
  stop();
  start();
  serve();
  EXPECT_EQ(recorded(), (AreaOwner{kFileSystem, 4, 1, {}}));
  EXPECT_EQ(try_own(hello(1, 3)).code(), ErrorCode::kFenced);
  const auto owner = own(hello(1, 5));
  EXPECT_EQ(recorded(), owner_of(kFileSystem, 5, 1));
  EXPECT_EQ(try_own(hello(2, 9), 2000).code(), ErrorCode::kAccess);
}

TEST_F(FileDataOwnerTest, AnEarlierNamespaceServerIsFenced) {
  const auto first = own(hello(1, 4));
  const auto second = own(hello(2, 5));
  let_time_pass(1);
  EXPECT_TRUE(first->connection().broken());
  EXPECT_EQ(try_own(hello(1, 4)).code(), ErrorCode::kFenced);
  EXPECT_FALSE(second->connection().broken());
  stop();
  start();
  serve();
  EXPECT_EQ(try_own(hello(1, 4)).code(), ErrorCode::kFenced) << "it is durable";
}

// Both pools have as many starts. Which of them stays, its next start says.
TEST_F(FileDataOwnerTest, OfTwoNamespaceServersWithTheSameEpochTheSecondIsFenced) {
  AreaOwnerHello one = hello(1, 4);
  AreaOwnerHello other = hello(2, 4);
  one.start[2] = 1;
  other.start[2] = 2;
  const auto first = own(one);
  EXPECT_EQ(try_own(other).code(), ErrorCode::kFenced);
  EXPECT_EQ(try_own(hello(2, 4)).code(), ErrorCode::kFenced) << "one that draws none";
  EXPECT_FALSE(first->connection().broken());
  stop();
  start();
  serve();
  EXPECT_EQ(try_own(other).code(), ErrorCode::kFenced) << "it is durable";
  EXPECT_TRUE(try_own(one));
  other.epoch = 5;
  EXPECT_TRUE(try_own(other));
  EXPECT_EQ(try_own(one).code(), ErrorCode::kFenced);
}

TEST_F(FileDataOwnerTest, ANewOwnerEndsAllClientsAndRenewsAllWords) {
  const auto first = own(hello(1));
  const auto data = open();
  const MapExtent extent = extent_at(0);
  const auto bytes = some(100);
  EXPECT_EQ(*write(*data, extent, 0, bytes), DataOutcome::kDone);
  // The same one comes again: nothing changes for its clients.
  const auto again = own(hello(1));
  EXPECT_EQ(answer_of(*again).word, 0u);
  EXPECT_EQ(*write(*data, extent, 0, bytes), DataOutcome::kDone);
  const auto second = own(hello(2));
  EXPECT_GT(answer_of(*second).word, extent.generation);
  EXPECT_EQ(service_->clients().size(), 0u);
  EXPECT_EQ(*write(*data, extent, 0, some(100, 9)), DataOutcome::kStaleMap);
  EXPECT_EQ(stored(extent, 0, 100), bytes);
}

// Its data server has started again, and has taken a hello: the words are those of that hello.
TEST_F(FileDataOwnerTest, AnOwnerWhoseAnswerIsLostKnowsTheWordsLater) {
  internal::RemoteAreaOptions with;
  with.secret = ClientSecret::of_number(kSecret);
  with.file_system = kFileSystem;
  with.epoch = 1;
  with.server = 1;
  const auto area = internal::RemoteArea::create(executor_, uri_, with).value();
  ASSERT_TRUE(run(area->connected()));
  for (size_t turns = 1;; ++turns) {
    stop();
    start();
    serve();
    auto lost = area->try_once();
    lost.start();
    for (size_t i = 0; i < turns && !lost.done(); ++i) executor_.run_once();
    const bool ended_before = lost.done();
    lost = {};
    let_time_pass(1);
    EXPECT_TRUE(run(area->connected())) << turns;
    EXPECT_EQ(area->word(0), space_->word_at(0)) << turns;
    if (ended_before) break;
  }
  run(area->close());
}

TEST_F(FileDataOwnerTest, AnOwnerThatIsFencedHearsOfIt) {
  internal::RemoteAreaOptions with;
  with.secret = ClientSecret::of_number(kSecret);
  with.file_system = kFileSystem;
  with.epoch = 1;
  with.server = 1;
  const auto area = internal::RemoteArea::create(executor_, uri_, with).value();
  size_t told = 0;
  area->on_fenced = [&told](const Error& why) {
    EXPECT_EQ(why.code, ErrorCode::kFenced);
    ++told;
  };
  ASSERT_TRUE(run(area->connected()));
  area->keep_connected();
  EXPECT_EQ(told, 0u);
  const auto later = own(hello(2, 2));
  let_time_pass(1000);
  EXPECT_GT(told, 0u);
  EXPECT_FALSE(area->is_connected());
  run(area->close());
}

// Each awaitable of a RemoteArea, destroyed at each of its suspensions.
TEST_F(FileDataOwnerTest, CallsThatAreGivenUpHalfWayLeaveTheAreaUsable) {
  internal::RemoteAreaOptions with;
  with.secret = ClientSecret::of_number(kSecret);
  with.file_system = kFileSystem;
  with.epoch = 1;
  with.server = 1;
  const auto area = internal::RemoteArea::create(executor_, uri_, with).value();
  ASSERT_TRUE(run(area->connected()));
  ASSERT_TRUE(area->claim(0, kUnitBytes));
  const std::vector<std::byte> bytes = some(5000);
  std::vector<std::byte> into(5000);
  const auto make = [&](int which) -> Task<Status> {
    switch (which) {
      case 0: return area->connected();
      case 1: return area->change_words({0, kUnitBytes});
      case 2: return area->write(100, bytes);
      case 3: return area->read(100, into);
      case 4: return area->zero(0, kUnitBytes);
      case 5: return area->landed();
      case 6: return area->clients_ended();
      default: return area->try_once();
    }
  };
  for (int which = 0; which < 8; ++which) {
    bool ended = false;
    for (size_t turns = 0; turns < 40 && !ended; ++turns) {
      auto given_up = make(which);
      given_up.start();
      for (size_t i = 0; i < turns && !given_up.done(); ++i) executor_.run_once();
      ended = given_up.done();
      given_up = {};
      let_time_pass(1);
      ASSERT_TRUE(run(area->write(100, bytes))) << which << " " << turns;
      ASSERT_TRUE(run(area->read(100, into))) << which << " " << turns;
      EXPECT_EQ(into, bytes) << which << " " << turns;
    }
    EXPECT_TRUE(ended) << which;
  }
  run(area->close());
}

TEST_F(FileDataOwnerTest, AnAreaThatIsNotTheRecordedOneIsRefused) {
  internal::RemoteAreaOptions with;
  with.secret = ClientSecret::of_number(kSecret);
  with.file_system = kFileSystem;
  with.server = 1;
  with.area = space_->area().identity() + 1;
  with.patience_ns = 1;
  const auto area = internal::RemoteArea::create(executor_, uri_, with).value();
  EXPECT_EQ(run(area->connected()).code(), ErrorCode::kNotFound);
}

TEST_F(FileDataOwnerTest, TheOwnerSaysWhichWordsChange) {
  const auto owner = own(hello());
  const auto data = open();
  const MapExtent first = extent_at(0), second = extent_at(1);
  OneWord change;
  change.word = {second.place.offset, second.generation + 1};
  EXPECT_TRUE(ask(*owner, kAreaSetWordsMethod, change));
  EXPECT_EQ(*write(*data, first, 0, some(10)), DataOutcome::kDone);
  EXPECT_EQ(*write(*data, second, 0, some(10)), DataOutcome::kStaleMap);
  EXPECT_EQ(*write(*data, extent_at(1), 0, some(10)), DataOutcome::kDone);
}

TEST_F(FileDataOwnerTest, TheOwnerEndsTheSessionsOfOneClientOrOfAll) {
  const auto owner = own(hello());
  const auto data = open();
  options_.secret = ClientSecret::of_number(8);
  const auto other = open();
  ASSERT_EQ(service_->clients().size(), 2u);
  EXPECT_TRUE(ask(*owner, kAreaEndClientMethod, AreaEndClient{ClientSecret::of_number(7).id()}));
  EXPECT_EQ(service_->clients(), std::vector{ClientSecret::of_number(8).id()});
  EXPECT_TRUE(ask(*owner, kAreaEndClientMethod, AreaEndClient{}));
  EXPECT_EQ(service_->clients().size(), 0u);
  EXPECT_FALSE(owner->connection().broken());
}

TEST_F(FileDataOwnerTest, AReleasedAreaIsAnybodys) {
  const auto owner = own(hello());
  EXPECT_EQ(try_own(hello(5, 1, kFileSystem + 1)).code(), ErrorCode::kAccess);
  EXPECT_TRUE(run(owner->call(kAreaReleaseMethod, {}, 0)));
  EXPECT_EQ(recorded(), AreaOwner{});
  const auto other = own(hello(5, 1, kFileSystem + 1));
  EXPECT_EQ(recorded(), owner_of(kFileSystem + 1, 1, 1));
}

TEST_F(FileDataOwnerTest, ZeroingEndsWithTheSessionThatBeganIt) {
  const auto data = open();
  constexpr uint64_t kBytes = kMaxAreaZeroBytes;
  const AreaRange all{0, 0, kBytes};
  const std::vector<std::byte> before = some(kBytes);
  ASSERT_TRUE(run(space_->write(all, before)));
  auto first = own(hello());
  const AreaZero what{0, kBytes};
  auto zeroing = first->call(kAreaZeroMethod, service::bytes_of(what), 0);
  zeroing.start();
  run([](base::Executor& executor) -> Task<void> {
    for (int i = 0; i < 6; ++i) co_await executor.yield();
  }(executor_));
  EXPECT_FALSE(zeroing.done());
  const auto second = own(hello());  // ends the session of the first one
  const size_t zeros = static_cast<size_t>(std::count(
      space_->area().data().begin(), space_->area().data().begin() + kBytes, std::byte{0}));
  let_time_pass(50);
  EXPECT_EQ(static_cast<size_t>(std::count(space_->area().data().begin(),
                                           space_->area().data().begin() + kBytes, std::byte{0})),
            zeros)
      << "nothing is zeroed behind the back of the next one";
  EXPECT_TRUE(ask(*second, kAreaZeroMethod, what));
  std::vector<std::byte> after(kBytes);
  ASSERT_TRUE(run(space_->read(all, after)));
  EXPECT_EQ(after, std::vector<std::byte>(kBytes));
}

TEST_F(FileDataOwnerTest, WhatIsMalformedCostsTheConnection) {
  const uint64_t bytes = space_->total_bytes();
  OneWord crooked, outside, many, reserved;
  crooked.word = {8, 1};
  outside.word = {bytes, 1};
  many.head.count = UINT32_MAX;
  reserved.head.reserved = 1;
  const auto is_refused = [this](uint16_t method, const auto& body) {
    const auto link = own(hello());
    const bool refused = !ask(*link, method, body);
    let_time_pass(1);
    return refused && link->connection().broken();
  };
  for (const OneWord& wrong : {crooked, outside, many, reserved}) {
    EXPECT_TRUE(is_refused(kAreaSetWordsMethod, wrong));
  }
  for (const AreaZero& wrong : {AreaZero{0, 0}, AreaZero{0, kMaxAreaZeroBytes + 1},
                                AreaZero{bytes, 1}, AreaZero{bytes - 1, 2}}) {
    EXPECT_TRUE(is_refused(kAreaZeroMethod, wrong));
  }
  EXPECT_TRUE(is_refused(kAreaEndClientMethod, uint64_t{1}));
  EXPECT_TRUE(is_refused(kAreaReleaseMethod, uint64_t{1}));
  EXPECT_TRUE(is_refused(kDataWriteMethod, uint64_t{1})) << "an owner has maps as a client only";
  EXPECT_EQ(try_own(hello(0)).code(), ErrorCode::kProtocol);
  EXPECT_EQ(try_own(hello(1, 1, 0)).code(), ErrorCode::kProtocol);
  // A client has no say in any of that.
  FileDataHello client;
  client.instance = 1;
  service::LinkOptions with;
  with.service = service::ServiceId::kFileData;
  with.secret = ClientSecret::of_number(7);
  const auto link = run(Link::open(*device_, uri_, with, service::bytes_of(client))).value();
  EXPECT_FALSE(ask(*link, kAreaZeroMethod, AreaZero{0, 64}));
  let_time_pass(1);
  EXPECT_TRUE(link->connection().broken());
}

class FileDataWithoutOwnerTest : public FileDataTest {};

TEST_F(FileDataWithoutOwnerTest, AnAreaWithANamespaceBesideItHasNoOtherOwner) {
  AreaOwnerHello hello;
  hello.instance = hello.file_system = 1;
  hello.server = 1;
  service::LinkOptions with;
  with.service = service::ServiceId::kFileData;
  with.secret = ClientSecret::of_number(1000);
  EXPECT_EQ(run(service::Link::open(*device_, uri_, with, service::bytes_of(hello))).code(),
            ErrorCode::kAccess);
}

// As releases before 2 wrote it: the checksum ends in front of the owner.
TEST(FileAreaOwner, AnAreaWithoutRoomForAnOwnerIsReadAndGetsIt) {
  AreaPool pool;
  for (size_t copy = 0; copy < 2; ++copy) {
    FileAreaHeader header;
    std::memcpy(&header, pool.header_copy(copy), sizeof header);
    header.version = kFileAreaVersionWithoutOwner;
    constexpr size_t kFrom = offsetof(FileAreaHeader, version);
    constexpr size_t kEnd = offsetof(FileAreaHeader, owner);
    header.crc = base::crc32c(std::as_bytes(std::span(&header, 1)).subspan(kFrom, kEnd - kFrom));
    std::memcpy(pool.header_copy(copy), &header, sizeof header);
  }
  {
    const FileArea area = FileArea::open(pool.pool()).value();
    EXPECT_EQ(area.owner(), AreaOwner{});
    EXPECT_FALSE(area.may_have_unknown_owner()) << "nobody has served it before";
  }
  pool.reopen();
  {
    FileArea area = FileArea::open(pool.pool()).value();
    EXPECT_TRUE(area.may_have_unknown_owner());
    EXPECT_TRUE(area.set_owner({9, 3, 2}));
    EXPECT_EQ(area.owner(), (AreaOwner{9, 3, 2}));
    EXPECT_FALSE(area.may_have_unknown_owner());
  }
  pool.reopen();
  const FileArea area = FileArea::open(pool.pool()).value();
  EXPECT_EQ(area.owner(), (AreaOwner{9, 3, 2}));
  EXPECT_EQ(area.identity(), kTestIdentity);
}

}  // namespace
}  // namespace pmstore::fs
