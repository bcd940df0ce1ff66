// Large writes at the end of a file: their bytes do not go through the namespace server.
#include <functional>
#include <memory>

#include "fabric/local/fault_injection.h"
#include "fs/file_data_protocol.h"
#include "tests/unit/fs/service/counting_devices.h"
#include "tests/unit/fs/service/data_servers_fixture.h"

namespace pmstore::fs {
namespace {

class FilesExtend : public DataServersTest {
 protected:
  static constexpr size_t kMebibyte = 1 << 20;
  template <typename Action>
  fabric::Counters measured(Action action) {
    const fabric::Counters before = client().counters();
    action();
    return client().counters() - before;
  }
};

TEST_F(FilesExtend, AMebibyteIsTwoSmallMessagesAndOneDoorbell) {
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, content(kMebibyte));  // the session with the data server
  const auto counted = measured([&] { world_.write(*file, kMebibyte, content(kMebibyte, 3)); });
  EXPECT_EQ(counted.server_messages, 2u);
  EXPECT_EQ(counted.round_trips, 3u);
  EXPECT_EQ(file->attributes().size, 2 * kMebibyte);
  EXPECT_EQ(world_.read(*file, 0, 2 * kMebibyte), content(kMebibyte) + content(kMebibyte, 3));
  // mtime is that of the last message: nothing more is told.
  EXPECT_EQ(measured([&] { EXPECT_TRUE(run(file->close())); }).server_messages, 1u);
}

TEST_F(FilesExtend, SmallWritesAndAppendsAreCalls) {
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, content(kMebibyte));
  const auto small = measured([&] { world_.write(*file, kMebibyte, content(1000)); });
  EXPECT_EQ(small.server_messages, 1u);
  const auto append = measured([&] { EXPECT_TRUE(run(file->append(bytes_of(kMany)))); });
  EXPECT_EQ(append.server_messages, 1u);
  const auto gap = measured([&] { world_.write(*file, 3 * kMebibyte, kMany); });
  EXPECT_EQ(gap.server_messages, 1u) << "zeros are between";
}

TEST_F(FilesExtend, AtSeveralServersGoesToEachOfThem) {
  for (int i = 0; i < 3; ++i) add();
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, content(kMebibyte));
  world_.read(*file, 0, kMebibyte);  // sessions with all
  const auto counted = measured([&] { world_.write(*file, kMebibyte, content(kMebibyte, 3)); });
  EXPECT_EQ(counted.server_messages, 2u);
  EXPECT_EQ(world_.read(*file, kMebibyte, kMebibyte), content(kMebibyte, 3));
}

TEST_F(FilesExtend, AFullAreaIsNoSpaceAndTheFileStays) {
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, content(kMebibyte));
  EXPECT_EQ(number_of(run(file->pwrite(bytes_of(content(8 * kMebibyte)), kMebibyte))), ENOSPC);
  EXPECT_EQ(world_.read(*file, 0, kMebibyte), content(kMebibyte));
}

// The other client's calls fall anywhere between reservation and publication.
TEST_F(FilesExtend, WhatAnotherClientDoesMeanwhileIsKept) {
  const auto other = world_.connect();
  const std::string text = content(kMebibyte);
  for (int turns = 0; turns < 60; ++turns) {
    const std::string path = "/file" + std::to_string(turns);
    const auto file = world_.open(client(), path);
    world_.write(*file, 0, content(kMebibyte, 1));
    const auto same = world_.open(*other, path, O_RDWR);
    auto writes = file->pwrite(bytes_of(text), kMebibyte);
    writes.start();
    for (int i = 0; i < turns; ++i) world_.executor().run_once();
    const bool is_over = writes.done();
    const auto appended = run(same->append(bytes_of("behind it")));
    ASSERT_TRUE(appended);
    for (int i = 0; i < 10'000 && !writes.done(); ++i) world_.executor().run_once();
    ASSERT_TRUE(writes.done());
    EXPECT_TRUE(writes.take());
    const std::string got = world_.read(*file, 0, 3 * kMebibyte);
    ASSERT_GE(got.size(), 2 * kMebibyte) << turns;
    EXPECT_EQ(got.substr(kMebibyte, kMebibyte), text) << turns;
    if (is_over) {
      EXPECT_EQ(got.substr(2 * kMebibyte), "behind it") << turns;
    }
    EXPECT_TRUE(run(file->close()) && run(same->close()));
    ASSERT_TRUE(run(client().remove(path)));
    world_.let_time_pass(FilesWorld::kLeaseNs);
  }
}

TEST_F(FilesExtend, OverAStartOfTheServerIsRepeated) {
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, content(kMebibyte));
  for (int turns = 1; turns < 40; turns += 3) {
    const uint64_t size = kMebibyte;
    auto writes = file->pwrite(bytes_of(kMany), size);
    writes.start();
    for (int i = 0; i < turns; ++i) world_.executor().run_once();
    world_.crash();
    world_.start();
    world_.let_time_pass(2 * FilesWorld::kLeaseNs);
    ASSERT_TRUE(writes.done()) << turns;
    EXPECT_TRUE(writes.take()) << turns;
    EXPECT_EQ(world_.read(*file, size, kMany.size() + 1), kMany) << turns;
    ASSERT_TRUE(run(file->truncate(size)));
    world_.let_time_pass(FilesWorld::kLeaseNs);
  }
}

// Bytes behind the size that were never published are no part of the file.
TEST_F(FilesExtend, OneThatIsGivenUpChangesNothingOrAll) {
  for (int turns = 0; turns < 40; ++turns) {
    const std::string path = "/file" + std::to_string(turns);
    const auto file = world_.open(client(), path);
    world_.write(*file, 0, content(kMebibyte, 1));
    {
      auto writes = file->pwrite(bytes_of(kMany), kMebibyte);
      writes.start();
      for (int i = 0; i < turns; ++i) world_.executor().run_once();
    }
    world_.let_time_pass(FilesWorld::kLeaseNs / 10);
    const uint64_t size = run(client().get_attributes(file->ino()))->size;
    EXPECT_TRUE(size == kMebibyte || size == kMebibyte + kMany.size()) << size;
    ASSERT_TRUE(run(file->truncate(kMebibyte + 10)));
    EXPECT_EQ(world_.read(*file, kMebibyte, 20),
              size == kMebibyte ? std::string(10, '\0') : kMany.substr(0, 10));
    EXPECT_TRUE(run(file->close()));
    ASSERT_TRUE(run(client().remove(path)));
    world_.let_time_pass(FilesWorld::kLeaseNs);
  }
}

// An empty file that has room behind its size is inline still.
TEST_F(FilesExtend, OneThatIsGivenUpLeavesAnEmptyFileInline) {
  for (int turns = 0; turns < 40; ++turns) {
    const std::string path = "/file" + std::to_string(turns);
    const auto file = world_.open(client(), path);
    {
      auto writes = file->pwrite(bytes_of(kMany), 0);
      writes.start();
      for (int i = 0; i < turns; ++i) world_.executor().run_once();
    }
    world_.let_time_pass(FilesWorld::kLeaseNs / 10);
    if (run(client().get_attributes(file->ino()))->size == 0) {
      EXPECT_TRUE(run(file->append(bytes_of("xx"))));
      EXPECT_EQ(world_.read(*file, 0, 10), "xx") << turns;
      world_.write(*file, 0, "y");
      EXPECT_EQ(world_.read(*file, 0, 10), "yx") << turns;
      EXPECT_EQ(world_.read(*world_.open(*world_.connect(), path), 0, 10), "yx") << turns;
    }
    EXPECT_TRUE(run(file->close()));
    ASSERT_TRUE(run(client().remove(path)));
    world_.let_time_pass(FilesWorld::kLeaseNs);
  }
}

// Breaks the connection of the first large one-sided accesses of clients, and counts the bytes of
// the later ones.
class BreakAccesses final : public fabric::FaultInjector {
 public:
  BreakAccesses(fabric::OpCode op, unsigned count) : op_(op), left_(count) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (!point.connector || point.request.bytes < kLarge) return {};
    if (point.request.op != op_) {
      ++messages_;
      return {};
    }
    if (left_ > 0) {
      if (--left_ == 0 && on_last) on_last();
      return {fabric::Fault::kBreakBefore, 0};
    }
    bytes_ += point.request.bytes;
    return {};
  }
  unsigned left() const { return left_; }
  uint64_t bytes() const { return bytes_; }
  // Large ones of clients.
  unsigned messages() const { return messages_; }
  // With the last connection that breaks.
  std::function<void()> on_last;

 private:
  static constexpr uint32_t kLarge = 100'000;
  const fabric::OpCode op_;
  unsigned left_;
  uint64_t bytes_ = 0;
  unsigned messages_ = 0;
};

// What was posted in the lost session arrives no more when another one is there; calls do not look
// whether something arrives behind them.
TEST_F(FilesExtend, BehindALostSessionCallsWaitForTheNextOne) {
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, content(kMebibyte));
  ASSERT_EQ(world_.stat("data_sessions"), 1u);
  const std::string text = content(kMebibyte, 3);
  BreakAccesses breaks(fabric::OpCode::kWrite, 1);
  {
    const fabric::ScopedFaultInjector injected(breaks);
    world_.write(*file, kMebibyte, text);
  }
  EXPECT_EQ(breaks.left(), 0u);
  EXPECT_EQ(breaks.bytes(), 0u) << "the rest is a call";
  EXPECT_EQ(world_.stat("data_sessions"), 1u);
  EXPECT_EQ(world_.read(*file, kMebibyte, kMebibyte), text);
}

TEST_F(FilesExtend, AnOverwriteThatHasLostManySessionsGoesOnOneSidedBehindOneCall) {
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, content(3 * kMebibyte));
  const std::string text = content(3 * kMebibyte, 5);
  BreakAccesses breaks(fabric::OpCode::kWrite, 16);
  {
    const fabric::ScopedFaultInjector injected(breaks);
    world_.write(*file, 0, text);
  }
  EXPECT_EQ(breaks.left(), 0u);
  EXPECT_EQ(breaks.bytes(), 2 * kMebibyte) << "one MiB was a call";
  EXPECT_EQ(world_.stat("data_sessions"), 1u);
  EXPECT_EQ(world_.read(*file, 0, 3 * kMebibyte), text);
}

TEST_F(FilesExtend, AnOverwriteThatEndsWithACallHasANewSessionBefore) {
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, content(kMebibyte));
  const std::string text = content(kMebibyte, 5);
  BreakAccesses breaks(fabric::OpCode::kWrite, 16);
  {
    const fabric::ScopedFaultInjector injected(breaks);
    world_.write(*file, 0, text);
  }
  EXPECT_EQ(breaks.left(), 0u);
  EXPECT_EQ(world_.stat("data_sessions"), 1u);
  EXPECT_EQ(world_.read(*file, 0, kMebibyte), text);
}

// A client that gets no other session with its data server when it has lost the last of several.
class FilesExtendWithoutNextSession : public FilesExtend {
 protected:
  void SetUp() override {
    FileSystemOptions with = world_.options();
    with.devices = &devices_;
    alone_ = world_.connect(with);
    file_ = world_.open(*alone_, "/file");
    world_.write(*file_, 0, content(kMebibyte));
    world_.read(*file_, 0, kMebibyte);
    ASSERT_EQ(world_.stat("data_sessions"), 1u);
  }
  void TearDown() override { run(alone_->close()); }
  // The write is no call either, which would not see what arrives behind it.
  void expect_no_call(uint64_t offset, unsigned sessions) {
    const std::string text = content(kMebibyte, 5);
    BreakAccesses breaks(fabric::OpCode::kWrite, sessions);
    breaks.on_last = [&] { registrations_.refuses_connects = true; };
    {
      const fabric::ScopedFaultInjector injected(breaks);
      EXPECT_EQ(number_of(run(file_->pwrite(bytes_of(text), offset))), EIO);
    }
    EXPECT_EQ(breaks.left(), 0u);
    EXPECT_EQ(breaks.bytes(), 0u);
    EXPECT_EQ(breaks.messages(), 0u);
    registrations_.refuses_connects = false;
    world_.write(*file_, offset, text);
    EXPECT_EQ(world_.read(*file_, offset, kMebibyte), text);
  }

  Registrations registrations_;
  CountingDevices devices_{registrations_};
  std::unique_ptr<FileSystem> alone_;
  std::unique_ptr<File> file_;
};

TEST_F(FilesExtendWithoutNextSession, AWriteAtTheEndFails) { expect_no_call(kMebibyte, 1); }

// It would end with a call.
TEST_F(FilesExtendWithoutNextSession, AnOverwriteThatHasLostManySessionsFails) {
  expect_no_call(0, 16);
}

TEST_F(FilesExtend, AReadThatHasLostManySessionsGoesOnOneSidedBehindOneCall) {
  const auto file = world_.open(client(), "/file");
  const std::string text = content(3 * kMebibyte);
  world_.write(*file, 0, text);
  BreakAccesses breaks(fabric::OpCode::kRead, 16);
  {
    const fabric::ScopedFaultInjector injected(breaks);
    EXPECT_EQ(world_.read(*file, 0, 3 * kMebibyte), text);
  }
  EXPECT_EQ(breaks.left(), 0u);
  EXPECT_EQ(breaks.bytes(), 2 * kMebibyte) << "one MiB was a call";
}

// The units of the reservation are moved before, while, or after the client writes there.
TEST_F(FilesExtend, ADataServerThatIsDrainedBesideAReservationLosesNothing) {
  DataServerPool& pool = make();
  const std::string before = content(kMebibyte, 1);
  const std::string text = content(kMebibyte, 7);
  for (int turns = 0; turns < 80; turns += 2) {
    const auto added = run(client().add_data_server(pool.uri()));
    ASSERT_TRUE(added) << added.error().to_string();
    const std::string path = "/file" + std::to_string(turns);
    const auto file = world_.open(client(), path);
    world_.write(*file, 0, before);
    world_.read(*file, 0, kMebibyte);  // sessions with both
    auto writes = file->pwrite(bytes_of(text), kMebibyte);
    writes.start();
    for (int i = 0; i < turns; ++i) world_.executor().run_once();
    drain(*added);
    for (int i = 0; i < 100'000 && !writes.done(); ++i) world_.executor().run_once();
    ASSERT_TRUE(writes.done()) << turns;
    EXPECT_TRUE(writes.take()) << turns;
    EXPECT_EQ(world_.read(*file, 0, 3 * kMebibyte), before + text) << turns;
    wait_until_gone(*added);
    EXPECT_EQ(extents_at(*file, *added), 0u) << turns;
    EXPECT_EQ(world_.read(*file, 0, 3 * kMebibyte), before + text) << turns;
    ASSERT_TRUE(run(file->close()) && run(client().remove(path)));
    world_.let_time_pass(2 * FilesWorld::kLeaseNs);
  }
}

// Takes all sessions that the data server at `uri` admits.
class Crowd {
 public:
  Crowd(FilesWorld& world, const fabric::Uri& uri) : raw_(world) {
    for (uint64_t i = 1; i <= kMostDataSessions; ++i) {
      const FileDataHello hello{0, i};
      auto came = raw_.try_connect(service::ServiceId::kFileData, service::bytes_of(hello), uri);
      if (!came) {
        refused_ = came.code();
        break;
      }
      (*came)->keep_lease();
      links_.push_back(std::move(*came));
    }
  }
  std::optional<ErrorCode> refused() const { return refused_; }

 private:
  static constexpr uint64_t kMostDataSessions = 1100;
  RawClient raw_;
  std::vector<std::unique_ptr<service::Link>> links_;
  std::optional<ErrorCode> refused_;
};

TEST_F(FilesExtend, WithoutASessionItIsMadeByCalls) {
  const auto file = world_.open(client(), "/file");
  const Crowd crowd(world_, world_.uri());
  ASSERT_EQ(crowd.refused(), ErrorCode::kBackPressure);
  const std::string text = content(kMebibyte);
  world_.write(*file, 0, text);
  world_.write(*file, kMebibyte, text);
  EXPECT_EQ(run(client().get_attributes(file->ino()))->size, 2 * kMebibyte);
}

TEST_F(FilesExtend, ASmallerFreeRestIsUsedByCalls) {
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, content(kMebibyte));
  EXPECT_EQ(number_of(run(file->pwrite(bytes_of(content(4 * kMebibyte)), kMebibyte))), ENOSPC);
  EXPECT_GT(run(client().get_attributes(file->ino()))->size, 2 * kMebibyte);
}

}  // namespace
}  // namespace pmstore::fs
