// What a client has cached of a file that it closes, and may use when it opens the file again.
#include <fcntl.h>

#include <string>

#include "tests/unit/fs/service/delegations_fixture.h"

namespace pmstore::fs {
namespace {

class KeptOverCloseAndOpen : public FilesDelegations {
 protected:
  bool keeps(Client& client) {
    const auto file = world_.open(*client.files, "/file", O_RDONLY);
    EXPECT_TRUE(file->was_delegated());
    const bool kept = file->keeps_cache();
    EXPECT_TRUE(world_.run(file->close()));
    return kept;
  }
  Client one_{world_};
  Client two_{world_};
};

TEST_F(KeptOverCloseAndOpen, IsWhatNobodyCouldChange) {
  make(*one_.files, "/file", kSome);
  EXPECT_FALSE(keeps(one_)) << "it has written the file past its cache";
  EXPECT_TRUE(keeps(one_));
  EXPECT_FALSE(keeps(two_)) << "it never had anything of it";
  EXPECT_TRUE(keeps(two_));
  EXPECT_TRUE(keeps(one_)) << "others have read it";
  make(*two_.files, "/other", kSome);
  EXPECT_TRUE(keeps(one_));
}

TEST_F(KeptOverCloseAndOpen, IsNothingThatAnotherClientCouldChange) {
  make(*one_.files, "/file", kSome);
  EXPECT_FALSE(keeps(one_));
  make(*two_.files, "/file", "new");
  EXPECT_FALSE(keeps(one_));
  EXPECT_TRUE(keeps(one_));
  EXPECT_TRUE(world_.run(world_.open(*two_.files, "/file", O_WRONLY)->close()));
  EXPECT_FALSE(keeps(one_)) << "it may have written, and have died before it said so";
  const Ino ino = world_.run(two_.files->stat("/file"))->ino;
  const AttributeChange cut{.set = AttributeChange::kSize, .size = 10};
  EXPECT_TRUE(keeps(one_));
  EXPECT_TRUE(world_.run(two_.files->set_attributes({}, ino, cut)));
  EXPECT_FALSE(keeps(one_));
  // While it has the file open.
  const auto file = world_.open(*one_.files, "/file", O_RDONLY);
  EXPECT_TRUE(file->keeps_cache());
  EXPECT_TRUE(world_.run(world_.open(*two_.files, "/file", O_WRONLY)->close()));
  EXPECT_TRUE(world_.run(file->close()));
  EXPECT_FALSE(keeps(one_));
}

TEST_F(KeptOverCloseAndOpen, IsNothingThatTheClientHasChangedItself) {
  make(*one_.files, "/file", kSome);
  const auto changes = [&](auto change) {
    keeps(one_);
    EXPECT_TRUE(keeps(one_));
    const auto file = world_.open(*one_.files, "/file", O_RDWR);
    EXPECT_TRUE(world_.run(change(*file)));
    EXPECT_TRUE(world_.run(file->close()));
    EXPECT_FALSE(keeps(one_));
  };
  changes([](File& file) { return file.pwrite(bytes_of("x"), 0); });
  changes([](File& file) { return file.append(bytes_of("x")); });
  changes([](File& file) { return file.truncate(1000); });
  changes([](File& file) { return file.allocate(AllocateMode::kZeroRange, 0, 100); });
  keeps(one_);
  EXPECT_TRUE(world_.run(world_.open(*one_.files, "/file", O_RDWR | O_TRUNC)->close()));
  EXPECT_FALSE(keeps(one_));
}

// It may land whenever the data server is back.
TEST_F(KeptOverCloseAndOpen, IsNeverWhatAWriteThatWasGivenUpMayChange) {
  make(*one_.files, "/file", kSome);
  {
    const auto file = world_.open(*one_.files, "/file", O_RDWR);
    auto write = file->pwrite(bytes_of("x"), 0);
    write.start();
    ASSERT_FALSE(write.done());
  }
  keeps(one_);
  EXPECT_FALSE(keeps(one_));
}

TEST_F(KeptOverCloseAndOpen, IsNothingThatAnotherStartOfTheServerKnew) {
  make(*one_.files, "/file", kSome);
  keeps(one_);
  EXPECT_TRUE(keeps(one_));
  world_.crash();
  world_.start();
  world_.let_time_pass(2 * FilesWorld::kLeaseNs);
  EXPECT_FALSE(keeps(one_));
  EXPECT_TRUE(keeps(one_));
}

}  // namespace
}  // namespace pmstore::fs
