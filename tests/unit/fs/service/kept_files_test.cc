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

// What the program had cached before is dropped only when an open gives it a file.
TEST_F(KeptOverCloseAndOpen, IsNothingOfAnOpenThatWasGivenUp) {
  make(*one_.files, "/file", kSome);
  keeps(one_);
  EXPECT_TRUE(keeps(one_));
  make(*two_.files, "/file", "new");
  {
    Opening opening;
    begin_open(opening, *one_.files, "/file", O_RDONLY);
    ASSERT_FALSE(opening.result);
  }
  world_.let_time_pass(FilesWorld::kLeaseNs / 10);
  EXPECT_FALSE(keeps(one_));
  EXPECT_TRUE(keeps(one_));
  make(*two_.files, "/file", "newer");
  world_.open(*one_.files, "/file", O_RDONLY).reset();
  world_.let_time_pass(FilesWorld::kLeaseNs / 10);
  EXPECT_FALSE(keeps(one_)) << "the file was given, and not used";
}

TEST_F(KeptOverCloseAndOpen, IsNothingOfAnOpenThatIsNotUsedYet) {
  make(*one_.files, "/file", kSome);
  make(*two_.files, "/file", kSome);
  const auto first = world_.open(*one_.files, "/file", O_RDONLY);
  EXPECT_FALSE(first->keeps_cache());
  const auto second = world_.open(*one_.files, "/file", O_RDONLY);
  EXPECT_FALSE(second->keeps_cache()) << "the first may not have dropped what was cached";
  EXPECT_EQ(world_.read(*first, 0, 10), kSome.substr(0, 10));
  const auto third = world_.open(*one_.files, "/file", O_RDONLY);
  EXPECT_TRUE(third->keeps_cache());
  for (File* const file : {first.get(), second.get(), third.get()}) {
    EXPECT_TRUE(world_.run(file->close()));
  }
}

TEST_F(KeptOverCloseAndOpen, IsNothingThatAWriteOfAnotherClientMayChangeLater) {
  make(*one_.files, "/file", kSome);
  {
    const auto file = world_.open(*one_.files, "/file", O_RDWR);
    auto write = file->pwrite(bytes_of("x"), 0);
    write.start();
    ASSERT_FALSE(write.done());
  }
  world_.let_time_pass(1'000'000);
  EXPECT_FALSE(keeps(two_));
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_FALSE(keeps(two_)) << "it has landed only now, as far as the server knows";
  EXPECT_TRUE(keeps(two_));
}

// It may land whenever the data server is back.
TEST_F(KeptOverCloseAndOpen, IsNotWhatAWriteThatWasGivenUpMayChange) {
  make(*one_.files, "/file", kSome);
  {
    const auto file = world_.open(*one_.files, "/file", O_RDWR);
    auto write = file->pwrite(bytes_of("x"), 0);
    write.start();
    ASSERT_FALSE(write.done());
  }
  keeps(one_);
  EXPECT_FALSE(keeps(one_));
  world_.let_time_pass(2 * FilesWorld::kLeaseNs);
  keeps(one_);
  EXPECT_TRUE(keeps(one_)) << "it has landed";
}

TEST_F(KeptOverCloseAndOpen, IsRightBehindAWriteThatWasRefused) {
  make(*one_.files, "/file", kSome);
  {
    const auto file = world_.open(*one_.files, "/file", O_RDWR);
    const std::string large(kMaxMessageData + 1, 'x');
    const WriteOptions atomic{.sync = {}, .atomic = true};
    EXPECT_EQ(number_of(world_.run(file->pwrite(bytes_of(large), 0, atomic))), EINVAL);
    EXPECT_TRUE(world_.run(file->close()));
  }
  keeps(one_);
  EXPECT_TRUE(keeps(one_));
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
