// The space that records of files have taken goes back to the pool when the files are gone.
#include "tests/unit/fs/service/files_world.h"

namespace pmstore::fs {
namespace {

constexpr uint64_t kFrameBytes = 256 << 10;

std::string path_of(int i) { return "/" + std::string(200, 'f') + std::to_string(i); }

// A start connects the server's own client, which stays as long as the server does.
TEST(FilesRecordSpace, ThatWasTakenBeforeAStartGoesBackBehindIt) {
  FilesWorld world(persist::Domain::kCpuCache, kFrameBytes);
  int files = 0;
  {
    const auto client = world.connect();
    for (; world.record_extents() < 3; ++files) {
      ASSERT_LT(files, 10'000);
      const auto file = world.open(*client, path_of(files));
      ASSERT_TRUE(world.run(file->close()));
    }
    world.run(client->close());
  }
  world.stop();
  world.start();
  ASSERT_EQ(world.record_extents(), 3u);
  const auto client = world.connect();
  for (int i = 0; i < files; ++i) ASSERT_TRUE(world.run(client->remove(path_of(i)))) << i;
  world.let_time_pass(FilesWorld::kLeaseNs);
  // One may stay, so that the next record needs none.
  EXPECT_LE(world.record_extents(), 2u);
  world.run(client->close());
}

}  // namespace
}  // namespace pmstore::fs
