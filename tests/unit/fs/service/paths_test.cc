// Calls by path: what they cost in messages, and how a path that leads nowhere ends.
#include "tests/unit/fs/service/files_world.h"

namespace pmstore::fs {
namespace {

class FilesPaths : public testing::Test {
 protected:
  FilesPaths() : client_(world_.connect()) {
    for (const char* each : {"/a", "/a/b", "/a/b/c"}) make_directory(each);
    make("/a/b/c/file");
    EXPECT_TRUE(world_.run(client_->make_symlink("b/c", "/a/short")));
    EXPECT_TRUE(world_.run(client_->make_symlink("/a/short/file", "/link")));
  }
  ~FilesPaths() override { world_.run(client_->close()); }

  void make_directory(std::string_view path) {
    EXPECT_TRUE(world_.run(client_->make_directory(path))) << path;
  }
  void make(std::string_view path) {
    const auto file = world_.open(*client_, path);
    EXPECT_TRUE(world_.run(file->close()));
  }
  // Messages of a call that succeeds.
  template <typename T>
  uint64_t cost(base::Task<T> call) {
    const uint64_t before = client_->counters().server_messages;
    const auto result = world_.run(std::move(call));
    EXPECT_TRUE(result) << result.error().to_string();
    return client_->counters().server_messages - before;
  }
  // Of an open, without the close.
  uint64_t open_cost(std::string_view path, int flags) {
    const uint64_t before = client_->counters().server_messages;
    const auto file = world_.open(*client_, path, flags);
    const uint64_t messages = client_->counters().server_messages - before;
    EXPECT_TRUE(world_.run(file->close()));
    return messages;
  }
  int stat_error(std::string_view path, bool follow = true) {
    return number_of(world_.run(client_->stat(path, follow)));
  }
  Ino ino_of(std::string_view path) {
    const auto found = world_.run(client_->stat(path));
    EXPECT_TRUE(found) << path << ": " << found.error().to_string();
    return found ? found->ino : Ino{};
  }

  FilesWorld world_;
  std::unique_ptr<FileSystem> client_;
};

TEST_F(FilesPaths, LookingUpIsOneMessage) {
  EXPECT_EQ(cost(client_->stat("/")), 1u);
  EXPECT_EQ(cost(client_->stat("/a")), 1u);
  EXPECT_EQ(cost(client_->stat("/a/b/c/file")), 1u);
  EXPECT_EQ(cost(client_->stat("//a/./b/../b/c//file")), 1u);
  EXPECT_EQ(cost(client_->stat("/a/b/c/")), 1u);
  EXPECT_EQ(cost(client_->stat("/link", false)), 1u);
}

TEST_F(FilesPaths, EachSymlinkIsOneMessageMore) {
  EXPECT_EQ(cost(client_->stat("/a/short/file")), 2u);
  EXPECT_EQ(cost(client_->stat("/link")), 3u);
  EXPECT_EQ(ino_of("/link"), ino_of("/a/b/c/file"));
}

TEST_F(FilesPaths, CallsThatChangeNamesAreOneMessageAndOneTransaction) {
  const auto commits = [&] {
    return nlohmann::json::parse(world_.server().stat_json())["commits"].get<uint64_t>();
  };
  const uint64_t before = commits();
  EXPECT_EQ(open_cost("/a/b/c/new", O_RDWR | O_CREAT), 1u);
  EXPECT_EQ(open_cost("/a/b/c/newer", O_RDWR | O_CREAT | O_EXCL), 1u);
  EXPECT_EQ(cost(client_->make_directory("/a/b/c/d")), 1u);
  EXPECT_EQ(cost(client_->rename("/a/b/c/new", "/a/b/c/old")), 1u);
  EXPECT_EQ(cost(client_->remove("/a/b/c/old")), 1u);
  EXPECT_EQ(cost(client_->rename("/a/b/c/newer", "/a/../a/b//.././moved")), 1u);
  EXPECT_EQ(commits() - before, 6u);
  // Behind a look at what it is.
  EXPECT_EQ(cost(client_->remove("/a/b/c/d")), 1u);
  EXPECT_LE(commits() - before, 8u);
  // That is there already.
  EXPECT_EQ(open_cost("/a/b/c/file", O_RDWR | O_CREAT), 1u);
}

// The server knows the directories of the first call, and what others change of them.
TEST_F(FilesPaths, AChangedDirectoryOnTheWayCountsForTheNextCall) {
  make("/a/b/c/first");
  const auto other = world_.connect();
  ASSERT_TRUE(world_.run(other->rename("/a/b", "/a/moved")));
  const auto open_error = [&](std::string_view path) {
    return number_of(world_.run(client_->open(path, O_RDWR | O_CREAT)));
  };
  EXPECT_EQ(open_error("/a/b/c/second"), ENOENT);
  EXPECT_EQ(number_of(world_.run(client_->rename("/a/b/c/first", "/a/b/c/new"))), ENOENT);
  EXPECT_EQ(number_of(world_.run(client_->remove("/a/b/c/first"))), ENOENT);
  EXPECT_EQ(cost(client_->rename("/a/moved/c/first", "/a/moved/c/new")), 1u);
  ASSERT_TRUE(world_.run(other->make_symlink("moved", "/a/b")));
  make("/a/b/c/second");
  EXPECT_EQ(ino_of("/a/b/c/second"), ino_of("/a/moved/c/second"));
  world_.run(other->close());
}

TEST_F(FilesPaths, OtherCallsAreOneMessageMore) {
  make("/a/moved");
  EXPECT_EQ(open_cost("/a/b/c/file", O_RDWR), 2u);
  EXPECT_EQ(cost(client_->make_symlink("file", "/a/b/c/symlink")), 2u);
  EXPECT_EQ(cost(client_->list("/a/b/c")), 2u);
  EXPECT_EQ(cost(client_->make_link("/a/moved", "/a/b/moved")), 2u);
}

TEST_F(FilesPaths, APathThatTheServerCannotWalkIsOneMessageMoreThanItsWalk) {
  EXPECT_EQ(open_cost("/a/short/new", O_RDWR | O_CREAT), 4u);
  EXPECT_EQ(cost(client_->make_directory("/a/short/d")), 4u);
  EXPECT_EQ(cost(client_->remove("/a/short/d")), 4u);
  EXPECT_EQ(ino_of("/a/b/c/new"), ino_of("/a/short/new"));
  // The symlink itself is removed, and a new file is made where another one leads.
  EXPECT_EQ(cost(client_->remove("/link")), 1u);
  EXPECT_TRUE(world_.run(client_->make_symlink("b/none", "/a/dangling")));
  EXPECT_EQ(open_cost("/a/dangling", O_RDWR | O_CREAT), 4u);
  EXPECT_EQ(ino_of("/a/b/none"), ino_of("/a/dangling"));
}

TEST_F(FilesPaths, ErrorsOfChangesAreThoseOfTheNameThatEndsThem) {
  const auto open_error = [&](std::string_view path, int flags) {
    return number_of(world_.run(client_->open(path, flags, 0644)));
  };
  const auto remove_error = [&](std::string_view path) {
    return number_of(world_.run(client_->remove(path)));
  };
  const std::string long_name(kMaxNameBytes + 1, 'n');
  constexpr int kMakes = O_RDWR | O_CREAT;
  EXPECT_EQ(open_error("/none/new", kMakes), ENOENT);
  EXPECT_EQ(open_error("/a/b/c/file/new", kMakes), ENOTDIR);
  EXPECT_EQ(open_error("/a/" + long_name, kMakes), ENAMETOOLONG);
  EXPECT_EQ(open_error("/a/b", kMakes), EISDIR);
  EXPECT_EQ(open_error("/a/b", kMakes | O_EXCL), EEXIST);
  EXPECT_EQ(open_error("/link", kMakes | O_EXCL), EEXIST);
  EXPECT_EQ(open_error("/link", kMakes | O_NOFOLLOW), ELOOP);
  EXPECT_EQ(open_error("/a/new/", kMakes), EISDIR);
  EXPECT_EQ(remove_error("/a/none"), ENOENT);
  EXPECT_EQ(remove_error("/none/file"), ENOENT);
  EXPECT_EQ(remove_error("/a/b/c/file/x"), ENOTDIR);
  EXPECT_EQ(remove_error("/a/b"), ENOTEMPTY);
  EXPECT_EQ(remove_error("/a/."), EBUSY);
}

TEST_F(FilesPaths, TheNamespaceSendsItsStoreNoMessages) {
  const uint64_t before = world_.stat("store_messages");
  make("/a/b/c/new");
  EXPECT_TRUE(world_.run(client_->rename("/a/b/c/new", "/a/b/old")));
  EXPECT_TRUE(world_.run(client_->remove("/a/b/old")));
  EXPECT_TRUE(world_.run(client_->list("/a")));
  EXPECT_EQ(world_.stat("store_messages"), before);
}

TEST_F(FilesPaths, DeepPathsAreWalkedInParts) {
  std::string path;
  for (size_t i = 0; i < 2 * kMaxWalkedNames; ++i) {
    path += "/d";
    make_directory(path);
  }
  EXPECT_EQ(cost(client_->stat(path)), 2u);
  EXPECT_EQ(cost(client_->stat(path + "/..")), 3u);
  EXPECT_EQ(stat_error(path + "/none"), ENOENT);
  std::string all_the_room;
  while (all_the_room.size() + 2 < kMaxPathBytes) all_the_room += "/.";
  EXPECT_EQ(stat_error(all_the_room), 0);
  EXPECT_EQ(stat_error(all_the_room + "/."), ENAMETOOLONG);
}

TEST_F(FilesPaths, ErrorsAreThoseOfTheNameThatEndsIt) {
  const std::string long_name(kMaxNameBytes + 1, 'n');
  EXPECT_EQ(stat_error("/none"), ENOENT);
  EXPECT_EQ(stat_error("/none/file"), ENOENT);
  EXPECT_EQ(stat_error("/none/.."), ENOENT);
  EXPECT_EQ(stat_error("/none/" + long_name), ENOENT);
  EXPECT_EQ(stat_error("/a/" + long_name), ENAMETOOLONG);
  EXPECT_EQ(stat_error("/a/b/c/file/"), ENOTDIR);
  EXPECT_EQ(stat_error("/a/b/c/file/x"), ENOTDIR);
  EXPECT_EQ(stat_error("/a/b/c/file/.."), ENOTDIR);
  EXPECT_EQ(stat_error("/link/x"), ENOTDIR);
  EXPECT_EQ(stat_error("a"), EINVAL);
  EXPECT_EQ(stat_error(""), ENOENT);
}

TEST_F(FilesPaths, ADirectoryIsMadeAlsoWithASlashAtItsEnd) {
  const auto error = [&](std::string_view path) {
    return number_of(world_.run(client_->make_directory(path)));
  };
  EXPECT_EQ(error("/a/new//"), 0);
  EXPECT_EQ(error("/a/new/"), EEXIST);
  EXPECT_EQ(error("/a/b/c/file/"), EEXIST);
  EXPECT_EQ(error("/a/b/c/file/x"), ENOTDIR);
  EXPECT_EQ(error("/a/short/"), EEXIST);
  EXPECT_EQ(error("/"), EEXIST);
  EXPECT_EQ(error("/none/new/"), ENOENT);
}

TEST_F(FilesPaths, WhoHasWrittenSeesTheNewMtime) {
  const auto file = world_.open(*client_, "/a/b/c/file");
  world_.write(*file, 0, kSome);
  const uint64_t before = world_.run(client_->stat("/a/b/c/file"))->mtime_ns;
  world_.let_time_pass(1'000'000'000);
  world_.write(*file, 4096, "one-sided");
  EXPECT_GT(world_.run(client_->stat("/a/b/c/file"))->mtime_ns, before);
  EXPECT_TRUE(world_.run(file->close()));
}

TEST_F(FilesPaths, SymlinksEndAfterForty) {
  for (int i = 1; i <= 41; ++i) {
    const std::string target = i == 1 ? "/a/b" : "s" + std::to_string(i - 1);
    EXPECT_TRUE(world_.run(client_->make_symlink(target, "/s" + std::to_string(i))));
  }
  EXPECT_EQ(ino_of("/s40"), ino_of("/a/b"));
  EXPECT_EQ(stat_error("/s41"), ELOOP);
  EXPECT_EQ(stat_error("/s41/c"), ELOOP);
  EXPECT_EQ(stat_error("/s41", false), 0);
}

TEST_F(FilesPaths, SymlinksLeadAnywhere) {
  EXPECT_TRUE(world_.run(client_->make_symlink("/", "/a/root")));
  EXPECT_TRUE(world_.run(client_->make_symlink("..", "/a/b/up")));
  EXPECT_TRUE(world_.run(client_->make_symlink("none", "/a/dangling")));
  EXPECT_TRUE(world_.run(client_->make_symlink("b/c/file/", "/a/no-directory")));
  EXPECT_EQ(ino_of("/a/root"), kRootIno);
  EXPECT_EQ(ino_of("/a/root/a"), ino_of("/a"));
  EXPECT_EQ(ino_of("/a/b/up"), ino_of("/a"));
  EXPECT_EQ(ino_of("/a/short/.."), ino_of("/a/b"));
  EXPECT_EQ(stat_error("/a/dangling"), ENOENT);
  EXPECT_EQ(stat_error("/a/no-directory"), ENOTDIR);
  // It is made where the symlink leads.
  make("/a/dangling");
  EXPECT_EQ(ino_of("/a/none"), ino_of("/a/dangling"));
  EXPECT_EQ(number_of(world_.run(client_->remove("/a/root/"))), EBUSY);
}

TEST_F(FilesPaths, EveryDirectoryIsSearchedWithPermission) {
  FileSystemOptions with = world_.options();
  with.caller = {1000, 1000, {}};
  const auto other = world_.connect(with);
  const auto error = [&](std::string_view path) {
    return number_of(world_.run(other->stat(path)));
  };
  EXPECT_EQ(error("/a/b/c/file"), 0);
  AttributeChange closed;
  closed.set = AttributeChange::kMode;
  closed.mode = 0700;
  EXPECT_TRUE(world_.run(client_->set_attributes({}, ino_of("/a/b"), closed)));
  EXPECT_EQ(error("/a/b/c/file"), EACCES);
  EXPECT_EQ(error("/a/b/c"), EACCES);
  EXPECT_EQ(error("/a/b/none"), EACCES);
  EXPECT_EQ(error("/a/b/.."), EACCES);
  EXPECT_EQ(error("/link"), EACCES);
  EXPECT_EQ(error("/a/b"), 0);
  EXPECT_EQ(number_of(world_.run(other->open("/a/b/new", O_RDWR | O_CREAT))), EACCES);
  world_.run(other->close());
}

TEST_F(FilesPaths, BothPathsOfARenameAreFollowed) {
  make("/a/b/c/one");
  const Ino one = ino_of("/a/b/c/one");
  EXPECT_EQ(cost(client_->rename("/a/short/one", "/a/short/two")), 5u);
  EXPECT_EQ(ino_of("/a/b/c/two"), one);
  EXPECT_TRUE(world_.run(client_->rename("/a/b/c/two", "/a/b/c/../three")));
  EXPECT_EQ(ino_of("/a/b/three"), one);
  const auto rename_error = [&](std::string_view from, std::string_view to) {
    return number_of(world_.run(client_->rename(from, to)));
  };
  EXPECT_EQ(rename_error("/a/b/three", "/a/b/"), ENOTDIR);
  EXPECT_EQ(rename_error("/a/b/three", "/a/b/."), EBUSY);
  EXPECT_EQ(rename_error("/a/b/three", "/a/b/four/"), ENOTDIR);
  EXPECT_EQ(rename_error("/a/b/none", "/a/b/four"), ENOENT);
  EXPECT_EQ(rename_error("/a/b/three", "/a/b/" + std::string(kMaxNameBytes + 1, 'n')),
            ENAMETOOLONG);
  // The first path's error comes first.
  EXPECT_EQ(rename_error("/a/b/none", "/a/b/c/file/x"), ENOENT);
  EXPECT_EQ(rename_error("/a/b/c/file/x", "/none/x"), ENOTDIR);
  EXPECT_EQ(rename_error("/a/b/three", "/none/x"), ENOENT);
  EXPECT_EQ(rename_error("/", "/a/b/x"), EBUSY);
  EXPECT_EQ(rename_error("/a/b/three", "/"), EBUSY);
}

}  // namespace
}  // namespace pmstore::fs
