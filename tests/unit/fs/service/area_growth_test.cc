// Files that need more room than the pool was made with, and give it back.
#include <algorithm>

#include "fs/layout/fs_layout.h"
#include "log/log_client.h"
#include "pmstore/client.h"
#include "tests/unit/fs/service/data_server_pool.h"
#include "tests/unit/fs/service/files_world.h"

namespace pmstore::fs {
namespace {

constexpr uint64_t kMebibyte = 1 << 20;
constexpr size_t kLarge = 8 * kMebibyte;  // of twice the first section

class FilesAreaGrowth : public testing::TestWithParam<persist::Domain> {
 protected:
  static std::string content(size_t bytes, unsigned seed = 1) {
    std::string made(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<char>(seed + i * 7 + i / 4096);
    return made;
  }
  size_t file_extents() const { return world_.extents(persist::ExtentKind::kFileData); }
  // A file with all that files can have.
  void fill(FileSystem& client, const char* path) {
    const auto file = world_.open(client, path);
    const std::string piece = content(kMebibyte);
    int error = 0;
    for (uint64_t at = 0; error == 0; at += kMebibyte) {
      ASSERT_LT(at, 64 * kMebibyte);
      error = number_of(world_.run(file->pwrite(bytes_of(piece), at)));
    }
    EXPECT_EQ(error, ENOSPC);
    ASSERT_TRUE(world_.run(file->close()));
  }
  Status make_log(uint64_t bytes) {
    auto logs = world_.run(log::LogClient::connect(world_.executor(), world_.uri(), {}));
    if (!logs) return logs.error();
    const auto made = world_.run((*logs)->create("log", {.bytes = bytes}));
    return made ? Status{} : Status{made.error()};
  }

  FilesWorld world_{GetParam(), 256 << 10, {}, UINT64_MAX};
};

INSTANTIATE_TEST_SUITE_P(Domains, FilesAreaGrowth,
                         testing::Values(persist::Domain::kNone, persist::Domain::kCpuCache),
                         [](const auto& tested) {
                           return std::string(persist::domain_name(tested.param));
                         });

TEST_P(FilesAreaGrowth, AFileLargerThanTheFirstSectionIsThereAfterACrash) {
  {
    const auto client = world_.connect();
    const auto file = world_.open(*client, "/large");
    for (size_t at = 0; at < kLarge; at += kMebibyte) {
      world_.write(*file, at, content(kMebibyte, static_cast<unsigned>(at / kMebibyte)));
    }
    EXPECT_GT(file_extents(), 1u);
    world_.write(*file, kLarge - 5000, content(4096, 77));
    EXPECT_EQ(world_.read(*file, kLarge - 5000, 4096), content(4096, 77));
  }
  world_.crash();
  world_.start();
  EXPECT_GT(file_extents(), 1u);
  const auto client = world_.connect();
  const auto file = world_.open(*client, "/large");
  for (size_t at = 0; at < kLarge - kMebibyte; at += kMebibyte) {
    ASSERT_EQ(world_.read(*file, at, kMebibyte),
              content(kMebibyte, static_cast<unsigned>(at / kMebibyte)));
  }
  EXPECT_EQ(world_.read(*file, kLarge - 5000, 4096), content(4096, 77));
}

TEST_P(FilesAreaGrowth, WhatRemovedFilesHadIsThereForRecords) {
  const auto client = world_.connect();
  const FileSystemUsage before = world_.usage(*client);
  ASSERT_NO_FATAL_FAILURE(fill(*client, "/large"));
  EXPECT_GT(world_.usage(*client).data_bytes, kLarge);
  ASSERT_TRUE(world_.run(client->remove("/large")));
  world_.let_time_pass(5 * FilesWorld::kLeaseNs);
  EXPECT_EQ(file_extents(), 1u);
  EXPECT_GE(world_.usage(*client).free_bytes + kMebibyte, before.free_bytes);
  // Twice as many bytes as are left to records beside a full area.
  const size_t records = world_.record_extents();
  int names = 0;
  for (; world_.record_extents() < records + 32; ++names) {
    ASSERT_LT(names, 50'000);
    const auto file = world_.open(*client, "/" + std::string(200, 'n') + std::to_string(names));
    ASSERT_NE(file, nullptr);
    ASSERT_TRUE(world_.run(file->close()));
  }
}

// Some units are free, and fewer than the call needs.
TEST_P(FilesAreaGrowth, ACallThatNeedsMoreThanIsLeftGetsASection) {
  FileSystemOptions options = world_.options();
  options.atomic_writes = true;
  const auto client = world_.connect(options);
  const auto all = world_.open(*client, "/all");
  const auto fill_but_a_unit = [&](uint64_t from) {
    const FileSystemUsage usage = world_.usage(*client);
    const uint64_t bytes = usage.free_bytes - usage.growable_bytes - kUnitBytes;
    ASSERT_TRUE(world_.run(all->allocate(AllocateMode::kExtend, from, bytes)));
  };
  ASSERT_NO_FATAL_FAILURE(fill_but_a_unit(0));
  ASSERT_EQ(file_extents(), 1u);
  const auto file = world_.open(*client, "/file");
  world_.write(*file, 0, content(5 * kUnitBytes));
  EXPECT_EQ(file_extents(), 2u);
  ASSERT_NO_FATAL_FAILURE(fill_but_a_unit(16 * kMebibyte));
  ASSERT_EQ(file_extents(), 2u);
  world_.write(*file, 0, content(5 * kUnitBytes, 3));  // at other places
  EXPECT_EQ(file_extents(), 3u);
  EXPECT_EQ(world_.read(*file, 0, 5 * kUnitBytes), content(5 * kUnitBytes, 3));
}

TEST_P(FilesAreaGrowth, AFullPoolRefusesTheWriterAndOthersGoOn) {
  const auto client = world_.connect();
  const auto other = world_.connect();
  const auto small = world_.open(*other, "/small");
  world_.write(*small, 0, content(100'000));
  ASSERT_NO_FATAL_FAILURE(fill(*client, "/large"));
  const FileSystemUsage full = world_.usage(*client);
  EXPECT_EQ(full.growable_bytes, 0u);
  EXPECT_LT(full.free_bytes, kMebibyte);
  world_.write(*small, 50'000, content(4096, 9));
  EXPECT_EQ(world_.read(*small, 50'000, 4096), content(4096, 9));
  EXPECT_NE(world_.open(*other, "/another"), nullptr) << "records have room";
  const auto more = world_.run(small->pwrite(bytes_of(content(kMebibyte)), kMebibyte));
  EXPECT_EQ(number_of(more), ENOSPC);
  EXPECT_NE(more.error().message.find("file data 1"), std::string::npos) << more.error().message;
}

TEST_P(FilesAreaGrowth, WhatRemovedFilesHadIsThereForLogs) {
  const auto client = world_.connect();
  const uint64_t growable = world_.usage(*client).growable_bytes;
  ASSERT_GE(growable, kLarge);
  ASSERT_NO_FATAL_FAILURE(fill(*client, "/large"));
  EXPECT_EQ(make_log(kLarge).code(), ErrorCode::kFull);
  ASSERT_TRUE(world_.run(client->remove("/large")));
  world_.let_time_pass(5 * FilesWorld::kLeaseNs);
  EXPECT_EQ(file_extents(), 1u);
  const Status made = make_log(kLarge);
  EXPECT_TRUE(made) << made.error().to_string();
  EXPECT_LT(world_.usage(*client).growable_bytes, growable - kLarge + kMebibyte);
}

// Room is asked for as a whole before any of it is taken.
TEST_P(FilesAreaGrowth, RoomIsReservedBeyondTheFirstSection) {
  const auto client = world_.connect();
  const auto file = world_.open(*client, "/file");
  const auto made = world_.run(file->allocate(AllocateMode::kExtend, 0, kLarge));
  ASSERT_TRUE(made) << made.error().to_string();
  const size_t extents = file_extents();
  EXPECT_GT(extents, 1u);
  const auto more = world_.run(file->allocate(AllocateMode::kExtend, kLarge, 64 * kMebibyte));
  EXPECT_EQ(number_of(more), ENOSPC);
  EXPECT_EQ(file_extents(), extents) << "what cannot fit takes nothing from others";
  const FileSystemUsage usage = world_.usage(*client);
  EXPECT_GE(usage.growable_bytes, kMebibyte);
  const auto all = world_.run(file->allocate(AllocateMode::kExtend, kLarge, usage.free_bytes));
  EXPECT_TRUE(all) << all.error().to_string();
  world_.write(*file, 100, content(kMebibyte));
  EXPECT_EQ(world_.read(*file, 100, kMebibyte), content(kMebibyte));
}

// A section whose units no record names seems to be empty.
TEST_P(FilesAreaGrowth, NoSectionGoesWhileAWrongRecordHidesWhatIsInUse) {
  Ino hidden{};
  {
    const auto client = world_.connect();
    const auto first = world_.open(*client, "/first");
    const FileSystemUsage usage = world_.usage(*client);
    const uint64_t bytes = usage.free_bytes - usage.growable_bytes;
    ASSERT_TRUE(world_.run(first->allocate(AllocateMode::kExtend, 0, bytes)));
    ASSERT_EQ(file_extents(), 1u);
    const auto second = world_.open(*client, "/second");
    world_.write(*second, 0, content(10'000));
    hidden = second->ino();
    ASSERT_EQ(file_extents(), 2u);
    auto store = world_.run(Client::connect(world_.executor(), world_.uri(), {})).value();
    const auto maps = world_.run(store->open_table(".fs.maps", false)).value();
    ASSERT_TRUE(world_.run(store->put(maps, internal::map_key(hidden, 0), "wrong")));
    world_.run(store->close());
  }
  world_.crash();
  world_.start();
  const auto client = world_.connect();
  world_.let_time_pass(5 * FilesWorld::kLeaseNs);
  EXPECT_EQ(file_extents(), 2u);
  const auto file = world_.open(*client, "/third");
  const auto made = world_.run(file->allocate(AllocateMode::kExtend, 0, kLarge));
  EXPECT_EQ(number_of(made), EIO);
  EXPECT_EQ(file_extents(), 2u);
  world_.stop();
  EXPECT_EQ(file_extents(), 2u);
  world_.start();
}

// ---- with data servers beside the area ----

class FilesAreaBesideOthers : public FilesAreaGrowth {
 protected:
  static constexpr size_t kStriped = 6 * kMebibyte;  // a half of it fits into the first section
  void add() {
    const auto added = world_.run(client_->add_data_server(elsewhere_.uri()));
    ASSERT_TRUE(added) << added.error().to_string();
  }
  std::string write_large(const char* path) {
    std::string text = content(kStriped);
    const auto file = world_.open(*client_, path);
    for (size_t at = 0; at < kStriped; at += kMebibyte) {
      world_.write(*file, at, std::string_view(text).substr(at, kMebibyte));
    }
    return text;
  }
  void expect_there(const char* path, const std::string& text) {
    const auto file = world_.open(*client_, path);
    for (size_t at = 0; at < kStriped; at += kMebibyte) {
      ASSERT_EQ(world_.read(*file, at, kMebibyte), text.substr(at, kMebibyte));
    }
  }

  DataServerPool elsewhere_{world_, "beside", 16 << 20, GetParam()};
  std::unique_ptr<FileSystem> client_ = world_.connect();
};

INSTANTIATE_TEST_SUITE_P(Domains, FilesAreaBesideOthers,
                         testing::Values(persist::Domain::kNone, persist::Domain::kCpuCache),
                         [](const auto& tested) {
                           return std::string(persist::domain_name(tested.param));
                         });

TEST_P(FilesAreaBesideOthers, AFullAreaGrowsWhileADataServerIsAway) {
  ASSERT_NO_FATAL_FAILURE(add());
  elsewhere_.crash();
  world_.let_time_pass(FilesWorld::kLeaseNs);
  const std::string text = write_large("/large");
  EXPECT_GT(file_extents(), 1u);
  expect_there("/large", text);
  elsewhere_.start();
  world_.let_time_pass(FilesWorld::kLeaseNs);
}

TEST_P(FilesAreaBesideOthers, ADrainGrowsTheArea) {
  ASSERT_NO_FATAL_FAILURE(add());
  const std::string text = write_large("/large");
  ASSERT_EQ(file_extents(), 1u) << "half of it is here";
  ASSERT_TRUE(world_.run(client_->drain_data_server(1)));
  world_.let_time_pass(10 * FilesWorld::kLeaseNs);
  EXPECT_GT(file_extents(), 1u);
  EXPECT_EQ(elsewhere_.owner(), AreaOwner{}) << "all of it has gone from there";
  expect_there("/large", text);
}

TEST_P(FilesAreaBesideOthers, AFullAreaGrowsWhileOthersHaveRoom) {
  ASSERT_NO_FATAL_FAILURE(add());
  const std::string one = write_large("/one");
  ASSERT_EQ(file_extents(), 1u);
  const std::string other = write_large("/other");
  EXPECT_GT(file_extents(), 1u);
  expect_there("/one", one);
  expect_there("/other", other);
}

// The pool was made without room for files.
TEST(FilesWithoutRoom, GetItFromTheServerAndKeepIt) {
  FilesWorld world(persist::Domain::kCpuCache, 256 << 10, {}, UINT64_MAX, 0);
  EXPECT_EQ(world.extents(persist::ExtentKind::kFileData), 1u);
  const std::string text(6 * kMebibyte, 't');
  {
    const auto client = world.connect();
    const auto file = world.open(*client, "/file");
    world.write(*file, 0, text);
  }
  world.crash();
  world.start();
  const auto client = world.connect();
  const auto file = world.open(*client, "/file");
  EXPECT_EQ(world.read(*file, 0, text.size()), text);
}

}  // namespace
}  // namespace pmstore::fs
