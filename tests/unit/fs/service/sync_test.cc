// Writes that are durable at fsync(): what they cost, when they are durable before it, and what is
// said of those that a restart of the server may have lost.
#include "fs/internal/dirty_ranges.h"
#include "tests/unit/fs/service/files_world.h"

namespace pmstore::fs {
namespace {

using internal::DirtyRanges;
using persist::RemoteRange;

std::vector<RemoteRange> ranges_of(DirtyRanges& dirty) {
  std::vector<RemoteRange> all;
  for (const auto& server : dirty.take()) {
    all.insert(all.end(), server.ranges.begin(), server.ranges.end());
  }
  return all;
}

TEST(DirtyRanges, WhatMeetsIsOneRange) {
  DirtyRanges dirty;
  dirty.add(0, 1, {100, 50});
  dirty.add(0, 1, {300, 50});
  dirty.add(0, 1, {150, 10});  // touches the first one
  dirty.add(0, 1, {120, 5});   // lies in it
  EXPECT_EQ(dirty.count(), 2u);
  EXPECT_EQ(dirty.bytes(), 110u);
  dirty.add(0, 1, {90, 215});  // covers the first one, and meets the second
  EXPECT_EQ(dirty.bytes(), 260u);
  EXPECT_EQ(ranges_of(dirty), (std::vector<RemoteRange>{{90, 260}}));
  EXPECT_TRUE(dirty.empty());
}

TEST(DirtyRanges, ServersAndTheirStartsKeepApart) {
  DirtyRanges dirty;
  dirty.add(0, 1, {0, 10});
  dirty.add(1, 1, {10, 10});
  dirty.add(0, 2, {10, 10});
  const auto all = dirty.take();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1].start, 2u);
  EXPECT_EQ(all[2].server, 1u);
}

TEST(DirtyRanges, AreFullBehindTheirBounds) {
  DirtyRanges many;
  for (size_t i = 0; i < DirtyRanges::kMostRanges; ++i) many.add(0, 1, {i * 100, 10});
  EXPECT_FALSE(many.full());
  many.add(0, 1, {1'000'000, 1});
  EXPECT_TRUE(many.full());
  DirtyRanges large;
  large.add(0, 1, {0, DirtyRanges::kMostBytes});
  EXPECT_FALSE(large.full());
  large.add(0, 1, {DirtyRanges::kMostBytes, 1});
  EXPECT_TRUE(large.full());
}

// A server whose CPU makes writes durable, so that each step of that is a message.
class FilesSync : public testing::Test {
 protected:
  FilesSync() {
    FileSystemOptions options = world_.options();
    options.sync = DataSync::kFsync;
    options.secret = ClientSecret::of_number(1);
    client_ = world_.connect(options);
    file_ = world_.open(*client_, "/file");
    world_.write(*file_, 0, kMany);
    EXPECT_EQ(world_.read(*file_, 0, 1), "L");  // its map is known
    EXPECT_TRUE(world_.run(file_->fsync()));
  }
  ~FilesSync() override {
    file_.reset();
    world_.run(client_->close());
  }
  template <typename What>
  uint64_t messages_of(What what) {
    const uint64_t before = client_->counters().server_messages;
    what();
    return client_->counters().server_messages - before;
  }
  int fsync(File& file) { return number_of(world_.run(file.fsync())); }
  void restart() {
    world_.crash();
    world_.start();
  }

  FilesWorld world_{persist::Domain::kMemoryController};
  std::unique_ptr<FileSystem> client_;
  std::unique_ptr<File> file_;
};

TEST_F(FilesSync, WritesBelowTheSizeAreNoMessageAndAreVisibleAtOnce) {
  const auto writes = [&] {
    for (uint64_t i = 0; i < 10; ++i) world_.write(*file_, i * 50'000, "visible");
  };
  EXPECT_EQ(messages_of(writes), 0u);
  const auto other = world_.connect();
  const auto same = world_.open(*other, "/file", O_RDONLY);
  EXPECT_EQ(world_.read(*same, 450'000, 7), "visible");
  // All ranges by one, and the new mtime.
  EXPECT_EQ(messages_of([&] { EXPECT_EQ(fsync(*file_), 0); }), 2u);
  EXPECT_EQ(messages_of([&] { EXPECT_EQ(fsync(*file_), 0); }), 0u);
  world_.run(other->close());
}

TEST_F(FilesSync, AnExtendingWriteIsDurableBeforeItsSize) {
  const auto extends = [&] { world_.write(*file_, kMany.size(), "more"); };
  EXPECT_EQ(messages_of(extends), 1u);
  restart();
  EXPECT_EQ(fsync(*file_), 0) << "nothing of it can be lost";
}

TEST_F(FilesSync, FsyncFailsOnceForEachDescriptorWhenTheServerWasStartedAgain) {
  const auto second = world_.open(*client_, "/file");
  const auto untouched = world_.open(*client_, "/other");
  world_.write(*file_, 100, "lost");
  restart();
  EXPECT_EQ(fsync(*file_), EIO);
  EXPECT_EQ(fsync(*file_), 0);
  const auto later = world_.open(*client_, "/file");
  EXPECT_EQ(number_of(world_.run(later->close())), 0);
  EXPECT_EQ(number_of(world_.run(second->close())), EIO);
  EXPECT_EQ(fsync(*untouched), 0);
  world_.write(*file_, 100, "again");
  EXPECT_EQ(fsync(*file_), 0);
}

TEST_F(FilesSync, ALossIsToldAlsoWhenTheBackgroundHasFoundIt) {
  world_.write(*file_, 100, "lost");
  restart();
  world_.let_time_pass(3'000'000'000);
  EXPECT_EQ(number_of(world_.run(file_->close())), EIO);
}

TEST_F(FilesSync, NothingIsLostWithASessionOnly) {
  world_.write(*file_, 100, "kept");
  world_.server().host().kick(ClientSecret::of_number(1).id());
  EXPECT_EQ(fsync(*file_), 0);
  EXPECT_EQ(world_.read(*file_, 100, 4), "kept");
}

TEST_F(FilesSync, SynchronousDescriptorsAndWritesStaySo) {
  const auto synchronous = world_.open(*client_, "/file", O_RDWR | O_DSYNC);
  EXPECT_EQ(messages_of([&] { world_.write(*synchronous, 0, "durable"); }), 1u);
  const auto durable = bytes_of("durable");
  const auto writes = [&] {
    EXPECT_TRUE(world_.run(file_->pwrite(durable, 500, {.sync = DataSync::kAlways})));
  };
  EXPECT_EQ(messages_of(writes), 1u);
  restart();
  EXPECT_EQ(fsync(*file_), 0);
}

TEST_F(FilesSync, AFileThatHasManyDirtyRangesMakesThemDurableByItself) {
  const auto writes = [&] {
    for (uint64_t i = 0; i < DirtyRanges::kMostRanges; ++i) world_.write(*file_, i * 3000, "x");
  };
  EXPECT_EQ(messages_of(writes), 0u);
  // One message has no room for all of them.
  const auto one_more = [&] { world_.write(*file_, 900'000, "x"); };
  EXPECT_EQ(messages_of(one_more), 2u);
  restart();
  EXPECT_EQ(fsync(*file_), 0);
}

// Whichever of both is ahead, and by how much.
TEST_F(FilesSync, AWriteThatEndsWhileItsFileIsFlushedIsMadeDurableLater) {
  const std::vector<std::byte> bytes(64, std::byte{'y'});
  for (size_t turns = 0; turns < 40; ++turns) {
    world_.write(*file_, 100, "first");
    auto writing = file_->pwrite(bytes, 50'000);
    auto flushing = file_->fsync();
    flushing.start();
    for (size_t i = 0; i < turns && !flushing.done(); ++i) world_.executor().run_once();
    writing.start();
    world_.let_time_pass(1'000'000);
    ASSERT_TRUE(flushing.done() && writing.done());
    EXPECT_TRUE(flushing.take());
    EXPECT_TRUE(writing.take());
    world_.let_time_pass(2'200'000'000);
    EXPECT_EQ(messages_of([&] { EXPECT_EQ(fsync(*file_), 0); }), 0u) << turns;
  }
}

TEST_F(FilesSync, DataIsDurableBeforeItsTime) {
  world_.write(*file_, 100, "data");
  // The step, the time, and the question.
  const auto asks = [&] { EXPECT_TRUE(world_.run(client_->get_attributes(file_->ino()))); };
  EXPECT_EQ(messages_of(asks), 3u);
  restart();
  EXPECT_EQ(fsync(*file_), 0);
  world_.write(*file_, 100, "more");
  world_.let_time_pass(1'100'000'000);  // the server is told of the time
  restart();
  EXPECT_EQ(fsync(*file_), 0);
}

}  // namespace
}  // namespace pmstore::fs
