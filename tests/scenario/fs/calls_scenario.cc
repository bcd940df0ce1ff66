// Every call of a FileSystem, on every provider.
#include "tests/scenario/fs/fs_scenario.h"

namespace pmstore::scenario {
namespace {

using fs::Attributes;
using fs::FileType;
using fs::Ino;
using fs::kRootIno;

class FilesCallsScenario : public FilesScenario {
 protected:
  void SetUp() override { start_server(); }
};

TEST_F(FilesCallsScenario, NewFileSystemIsAnEmptyDirectory) {
  const auto root = run(client_->stat("/"));
  ASSERT_TRUE(root) << root.error().to_string();
  EXPECT_EQ(root->ino, kRootIno);
  EXPECT_EQ(root->type, FileType::kDirectory);
  EXPECT_EQ(names(*client_, "/"), std::vector<std::string>());
  EXPECT_NE(client_->identity(), 0u);
}

TEST_F(FilesCallsScenario, WhatIsWrittenIsReadByEverybody) {
  const auto file = open("/one");
  ASSERT_NE(file, nullptr);
  write(*file, 0, "hello");
  write(*file, 5, " world");
  EXPECT_EQ(read(*file, 0, 100), "hello world");
  EXPECT_EQ(read(*file, 6, 3), "wor");
  EXPECT_EQ(read(*file, 11, 10), "");
  const auto other = connect();
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(read(*other, "/one"), "hello world");
  run(other->close());
  EXPECT_TRUE(run(file->close()));
}

TEST_F(FilesCallsScenario, LargeFilesAreWrittenAndReadInParts) {
  const std::string all = text_of((3u << 20) + 12'345, 'x');
  const auto file = open("/large");
  ASSERT_NE(file, nullptr);
  write(*file, 0, all);
  EXPECT_EQ(read(*file, 0, all.size() + 10), all);
  // One-sided, where the map is known.
  const std::string middle = text_of(1u << 20, 'y');
  write(*file, 777, middle);
  EXPECT_EQ(read(*file, 0, 777), all.substr(0, 777));
  EXPECT_EQ(read(*file, 777, middle.size()), middle);
  EXPECT_EQ(read(*file, 777 + middle.size(), 5000), all.substr(777 + middle.size(), 5000));
  const auto other = connect();
  ASSERT_NE(other, nullptr);
  std::string expected = all;
  expected.replace(777, middle.size(), middle);
  EXPECT_EQ(read(*other, "/large"), expected);
  run(other->close());
}

TEST_F(FilesCallsScenario, HolesReadAsZeros) {
  const auto file = open("/sparse");
  ASSERT_NE(file, nullptr);
  write(*file, 1'000'000, "end");
  EXPECT_EQ(read(*file, 999'990, 20), std::string(10, '\0') + "end");
  EXPECT_EQ(read(*file, 10, 100), std::string(100, '\0'));
  write(*file, 500'000, "middle");
  EXPECT_EQ(read(*file, 499'998, 10), std::string(2, '\0') + "middle" + std::string(2, '\0'));
}

TEST_F(FilesCallsScenario, AppendersNeverOverlap) {
  const auto one = open("/log");
  const auto client = connect();
  const auto two = open(*client, "/log");
  ASSERT_TRUE(one != nullptr && two != nullptr);
  uint64_t end = 0;
  for (int i = 0; i < 10; ++i) {
    for (const auto& [file, text] : {std::pair{one.get(), "aaaa"}, std::pair{two.get(), "bbbb"}}) {
      const std::string_view line = text;
      const auto appended = run(file->append(std::as_bytes(std::span(line))));
      ASSERT_TRUE(appended) << appended.error().to_string();
      EXPECT_EQ(*appended, end) << "it says where the bytes are";
      end += line.size();
    }
  }
  std::string expected;
  for (int i = 0; i < 10; ++i) expected += "aaaabbbb";
  EXPECT_EQ(read(*one, 0, 1000), expected);
  EXPECT_EQ(read(*two, 0, 1000), expected);
  run(client->close());
}

TEST_F(FilesCallsScenario, NamesAreMadeMovedAndRemoved) {
  EXPECT_TRUE(run(client_->make_directory("/d")));
  EXPECT_EQ(number_of(run(client_->make_directory("/d"))), EEXIST);
  EXPECT_TRUE(run(client_->make_directory("/d/e")));
  ASSERT_NE(open("/d/e/file"), nullptr);
  EXPECT_TRUE(run(client_->make_link("/d/e/file", "/d/link")));
  EXPECT_EQ(run(client_->stat("/d/link"))->links, 2u);
  EXPECT_TRUE(run(client_->rename("/d/e/file", "/moved")));
  EXPECT_EQ(number_of(run(client_->stat("/d/e/file"))), ENOENT);
  EXPECT_EQ(run(client_->stat("/moved"))->ino, run(client_->stat("/d/link"))->ino);
  EXPECT_EQ(number_of(run(client_->remove("/d"))), ENOTEMPTY);
  EXPECT_TRUE(run(client_->remove("/d/e")));
  EXPECT_TRUE(run(client_->remove("/d/link")));
  EXPECT_TRUE(run(client_->remove("/d")));
  EXPECT_EQ(names(*client_, "/"), std::vector<std::string>{"moved"});
  EXPECT_EQ(number_of(run(client_->remove("/d"))), ENOENT);
}

TEST_F(FilesCallsScenario, SymlinksAreFollowed) {
  EXPECT_TRUE(run(client_->make_directory("/d")));
  EXPECT_TRUE(run(client_->make_symlink("d", "/to-d")));
  EXPECT_TRUE(run(client_->make_symlink("../to-d/file", "/d/to-file")));
  const auto file = open("/to-d/file");
  ASSERT_NE(file, nullptr);
  write(*file, 0, "text");
  EXPECT_EQ(read(*client_, "/d/to-file"), "text");
  EXPECT_EQ(run(client_->stat("/to-d", false))->type, FileType::kSymlink);
  EXPECT_EQ(run(client_->stat("/to-d"))->type, FileType::kDirectory);
  EXPECT_TRUE(run(client_->make_symlink("loop", "/loop")));
  EXPECT_EQ(number_of(run(client_->stat("/loop"))), ELOOP);
  EXPECT_EQ(number_of(run(client_->open("/to-d", O_RDONLY | O_NOFOLLOW))), ELOOP);
  EXPECT_TRUE(run(client_->stat("/d/../to-d/./file")));
}

TEST_F(FilesCallsScenario, OpenHonoursItsFlags) {
  EXPECT_EQ(number_of(run(client_->open("/none", O_RDONLY))), ENOENT);
  const auto file = open("/file");
  ASSERT_NE(file, nullptr);
  write(*file, 0, "text");
  EXPECT_EQ(number_of(run(client_->open("/file", O_RDWR | O_CREAT | O_EXCL))), EEXIST);
  EXPECT_EQ(number_of(run(client_->open("/file", O_RDONLY | O_DIRECTORY))), ENOTDIR);
  EXPECT_EQ(number_of(run(client_->open("/file/x", O_RDONLY))), ENOTDIR);
  const auto reader = open("/file", O_RDONLY);
  EXPECT_EQ(number_of(run(reader->pwrite(std::as_bytes(std::span("x", 1)), 0))), EBADF);
  const auto emptied = open("/file", O_WRONLY | O_TRUNC);
  ASSERT_NE(emptied, nullptr);
  EXPECT_EQ(read(*file, 0, 10), "");
  std::byte byte{};
  EXPECT_EQ(number_of(run(emptied->pread({&byte, 1}, 0))), EBADF);
  EXPECT_TRUE(run(emptied->close()));
  EXPECT_EQ(number_of(run(emptied->fsync())), EBADF);
}

TEST_F(FilesCallsScenario, TruncationAndHolesFreeSpace) {
  const auto file = open("/file");
  ASSERT_NE(file, nullptr);
  const std::string text = text_of(1u << 20, 'q');
  write(*file, 0, text);
  const auto shorter = run(file->truncate(100'000));
  ASSERT_TRUE(shorter) << shorter.error().to_string();
  EXPECT_EQ(shorter->size, 100'000u);
  EXPECT_EQ(read(*file, 0, 1u << 20), text.substr(0, 100'000));
  ASSERT_TRUE(run(file->truncate(200'000)));
  EXPECT_EQ(read(*file, 99'990, 1000), text.substr(99'990, 10) + std::string(990, '\0'));
  const auto punched = run(file->allocate(fs::AllocateMode::kPunchHole, 1000, 50'000));
  ASSERT_TRUE(punched) << punched.error().to_string();
  EXPECT_EQ(read(*file, 0, 1000), text.substr(0, 1000));
  EXPECT_EQ(read(*file, 1000, 50'000), std::string(50'000, '\0'));
  EXPECT_EQ(read(*file, 51'000, 10), text.substr(51'000, 10));
  const auto room = run(file->allocate(fs::AllocateMode::kExtend, 0, 500'000));
  ASSERT_TRUE(room) << room.error().to_string();
  EXPECT_EQ(room->size, 500'000u);
}

TEST_F(FilesCallsScenario, AttributesAndTheirRights) {
  const auto file = open("/file");
  ASSERT_NE(file, nullptr);
  const fs::Caller root;
  const fs::Caller user{1000, 1000, {}};
  fs::AttributeChange change;
  change.set = fs::AttributeChange::kMode;
  change.mode = 0600;
  EXPECT_EQ(number_of(run(client_->set_attributes(user, file->ino(), change))), EPERM);
  const auto changed = run(client_->set_attributes(root, file->ino(), change));
  ASSERT_TRUE(changed) << changed.error().to_string();
  EXPECT_EQ(changed->mode, 0600);
  EXPECT_EQ(number_of(run(client_->access(user, file->ino(), R_OK))), EACCES);
  EXPECT_EQ(number_of(run(client_->open_file(user, file->ino(), O_RDONLY))), EACCES);
  EXPECT_TRUE(run(client_->access(root, file->ino(), R_OK | W_OK)));
  change.set = fs::AttributeChange::kMtime;
  change.mtime_ns = 12'345;
  EXPECT_EQ(run(client_->set_attributes(root, file->ino(), change))->mtime_ns, 12'345u);
  EXPECT_EQ(run(client_->get_attributes(file->ino()))->mtime_ns, 12'345u);
  EXPECT_EQ(number_of(run(client_->get_attributes(Ino{999'999}))), ESTALE);
}

TEST_F(FilesCallsScenario, ExtendedAttributes) {
  const auto file = open("/file");
  ASSERT_NE(file, nullptr);
  const fs::Caller root;
  const std::string value = text_of(1000, 'v');
  const auto bytes = std::as_bytes(std::span(value));
  EXPECT_TRUE(run(client_->set_xattr(root, file->ino(), "user.a", bytes, fs::XattrMode::kSet)));
  EXPECT_EQ(number_of(run(
                client_->set_xattr(root, file->ino(), "user.a", bytes, fs::XattrMode::kCreate))),
            EEXIST);
  EXPECT_TRUE(run(client_->set_xattr(root, file->ino(), "user.b", {}, fs::XattrMode::kSet)));
  const auto got = run(client_->get_xattr(root, file->ino(), "user.a"));
  ASSERT_TRUE(got) << got.error().to_string();
  EXPECT_TRUE(std::equal(got->begin(), got->end(), bytes.begin(), bytes.end()));
  EXPECT_EQ(*run(client_->list_xattrs(root, file->ino())),
            (std::vector<std::string>{"user.a", "user.b"}));
  EXPECT_TRUE(run(client_->remove_xattr(root, file->ino(), "user.a")));
  EXPECT_EQ(number_of(run(client_->get_xattr(root, file->ino(), "user.a"))), ENODATA);
}

TEST_F(FilesCallsScenario, DirectoriesAreListedInPages) {
  EXPECT_TRUE(run(client_->make_directory("/d")));
  std::vector<std::string> expected;
  for (int i = 0; i < 300; ++i) {
    expected.push_back("name-" + std::string(200, 'n') + std::to_string(1000 + i));
    fs::NewFile file;
    file.mode = 0644;
    const auto parent = run(client_->stat("/d"));
    ASSERT_TRUE(run(client_->make({}, parent->ino, expected.back(), file)));
  }
  EXPECT_EQ(names(*client_, "/d"), expected);
  const Ino ino = run(client_->stat("/d"))->ino;
  EXPECT_EQ(*run(client_->parent_of(ino)), kRootIno);
  const auto usage = run(client_->usage());
  ASSERT_TRUE(usage) << usage.error().to_string();
  EXPECT_EQ(usage->inodes, 302u);
}

TEST_F(FilesCallsScenario, UnlinkedFileLivesUntilItsLastClose) {
  const auto file = open("/file");
  ASSERT_NE(file, nullptr);
  const std::string text = text_of(200'000, 'u');
  write(*file, 0, text);
  const auto other = connect();
  EXPECT_TRUE(run(other->remove("/file")));
  EXPECT_EQ(read(*file, 0, text.size()), text);
  EXPECT_EQ(run(client_->get_attributes(file->ino()))->links, 0u);
  const Ino ino = file->ino();
  EXPECT_TRUE(run(file->close()));
  // It is deleted in the background.
  for (int i = 0; i < 10'000 && run(client_->get_attributes(ino)); ++i) let_time_pass(1'000'000);
  EXPECT_EQ(number_of(run(client_->get_attributes(ino))), ESTALE);
  run(other->close());
}

TEST_F(FilesCallsScenario, MtimeFollowsOneSidedWrites) {
  const auto file = open("/file");
  ASSERT_NE(file, nullptr);
  write(*file, 0, text_of(100'000, 'm'));
  fs::AttributeChange change;
  change.set = fs::AttributeChange::kMtime;
  change.mtime_ns = 1;
  ASSERT_TRUE(run(client_->set_attributes({}, file->ino(), change)));
  write(*file, 4096, text_of(4096, 'n'));
  EXPECT_TRUE(run(file->fsync()));
  const auto other = connect();
  EXPECT_GT(run(other->get_attributes(file->ino()))->mtime_ns, 1u);
  run(other->close());
}

}  // namespace
}  // namespace pmstore::scenario
