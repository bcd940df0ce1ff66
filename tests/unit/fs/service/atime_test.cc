// Times of access of clients that keep them.
#include "tests/unit/fs/service/files_world.h"

namespace pmstore::fs {
namespace {

class FilesAtime : public testing::Test {
 protected:
  static constexpr uint64_t kSecond = 1'000'000'000;
  FileSystemOptions with_atime() {
    FileSystemOptions options = world_.options();
    options.atime = true;
    return options;
  }
  Attributes stat(FileSystem& client, const File& file) {
    return world_.run(client.get_attributes(file.ino())).value();
  }
  FilesWorld world_;
};

TEST_F(FilesAtime, ReadIsToldWithinASecondAndOnce) {
  const auto reader = world_.connect(with_atime());
  const auto other = world_.connect();
  const auto file = world_.open(*reader, "/file");
  world_.write(*file, 0, kSome);
  world_.let_time_pass(10 * kSecond);
  const uint64_t before_ns = stat(*other, *file).atime_ns;
  const uint64_t read_ns = world_.executor().now_ns();
  EXPECT_EQ(world_.read(*file, 0, 10), kSome.substr(0, 10));
  EXPECT_EQ(stat(*other, *file).atime_ns, before_ns) << "nobody waits for it";
  world_.let_time_pass(kSecond + kSecond / 10);
  const Attributes after = stat(*other, *file);
  EXPECT_GE(after.atime_ns, read_ns);
  EXPECT_LT(after.atime_ns, read_ns + kSecond / 10) << "the time of the read";
  EXPECT_GT(after.atime_ns, after.mtime_ns);
  // It is later than the other times now.
  EXPECT_EQ(world_.read(*file, 0, 10), kSome.substr(0, 10));
  world_.let_time_pass(2 * kSecond);
  EXPECT_EQ(stat(*other, *file).atime_ns, after.atime_ns);
  // A day later it is old.
  world_.let_time_pass(25 * 3600 * kSecond);
  EXPECT_EQ(world_.read(*file, 0, 10), kSome.substr(0, 10));
  world_.let_time_pass(2 * kSecond);
  EXPECT_GT(stat(*other, *file).atime_ns, after.atime_ns + 24 * 3600 * kSecond);
  world_.run(reader->close());
  world_.run(other->close());
}

TEST_F(FilesAtime, ReadBehindAWriteOfTheSameClientCounts) {
  const auto client = world_.connect(with_atime());
  const auto file = world_.open(*client, "/file");
  world_.write(*file, 0, kSome);
  for (int i = 0; i < 3; ++i) {
    world_.let_time_pass(5 * kSecond);
    world_.write(*file, 0, "x");  // one-sided
    world_.let_time_pass(5 * kSecond);
    EXPECT_EQ(world_.read(*file, 0, 1), "x");
    const Attributes now = stat(*client, *file);
    EXPECT_GT(now.atime_ns, now.mtime_ns) << i;
  }
  world_.run(client->close());
}

TEST_F(FilesAtime, NothingIsToldOfReadsWithoutIt) {
  const auto plain = world_.connect();
  const auto client = world_.connect(with_atime());
  const auto file = world_.open(*plain, "/file");
  world_.write(*file, 0, kSome);
  const auto quiet = world_.open(*client, "/file", O_RDONLY | O_NOATIME);
  world_.let_time_pass(kSecond);
  const uint64_t before_ns = stat(*plain, *file).atime_ns;
  EXPECT_EQ(world_.read(*file, 0, 10), kSome.substr(0, 10));
  EXPECT_EQ(world_.read(*quiet, 0, 10), kSome.substr(0, 10));
  EXPECT_EQ(world_.read(*quiet, kSome.size(), 10), "");
  world_.let_time_pass(3 * kSecond);
  EXPECT_EQ(stat(*plain, *file).atime_ns, before_ns);
  world_.run(client->close());
  world_.run(plain->close());
}

}  // namespace
}  // namespace pmstore::fs
