// Permissions, owners, times, link limits, extended attributes.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "fs/layout/fs_layout.h"
#include "tests/unit/fs/namespace_fixture.h"

namespace pmstore::fs {
namespace {

using Change = AttributeChange;

class Rules : public NamespaceTest {
 protected:
  int change(const Caller& caller, Ino ino, const Change& what) {
    return number(run(fs().set_attributes(caller, ino, what)));
  }
  int chmod(const Caller& caller, Ino ino, uint16_t mode) {
    return change(caller, ino, {.set = Change::kMode, .mode = mode});
  }
  int chown(const Caller& caller, Ino ino, uint32_t uid) {
    return change(caller, ino, {.set = Change::kUid, .uid = uid});
  }
  int chgrp(const Caller& caller, Ino ino, uint32_t gid) {
    return change(caller, ino, {.set = Change::kGid, .gid = gid});
  }
  int access(const Caller& caller, Ino ino, int mask) {
    return number(run(fs().access(caller, ino, mask)));
  }
  int open(const Caller& caller, Ino ino, int flags) {
    return number(run(fs().open_file(caller, ino, flags, OpenOwner{1})));
  }
  int set_xattr(const Caller& caller, Ino ino, std::string_view name, std::string_view value,
                XattrMode mode = XattrMode::kSet) {
    return number(run(fs().set_xattr(caller, ino, name, as_bytes(value), mode)));
  }
  const Caller alice_ = {1000, 1000, {50}};
  const Caller bob_ = {1001, 1001, {}};
};

TEST_F(Rules, AccessIsThatOfTheFirstClassThatFits) {
  const Ino home = directory("home", kRootIno, 0777);
  const Ino f = file("f", home, 0640, alice_);
  EXPECT_EQ(stat(f).uid, 1000u);
  EXPECT_EQ(access(alice_, f, R_OK | W_OK), 0);
  EXPECT_EQ(access(alice_, f, X_OK), EACCES);
  EXPECT_EQ(access(bob_, f, R_OK), EACCES);
  EXPECT_EQ(access({5, 1000, {}}, f, R_OK), 0);
  EXPECT_EQ(access({5, 5, {1000}}, f, W_OK), EACCES);
  EXPECT_EQ(access(root(), f, R_OK | W_OK), 0);
  EXPECT_EQ(access(root(), f, X_OK), EACCES);
  EXPECT_EQ(chmod(alice_, f, 0077), 0);
  EXPECT_EQ(access(alice_, f, R_OK), EACCES) << "the owner is not among the others";
  EXPECT_EQ(access(root(), f, X_OK), 0);
  EXPECT_EQ(open(alice_, f, O_RDONLY), EACCES);
  EXPECT_EQ(open(bob_, f, O_RDWR), 0);
  EXPECT_EQ(open(root(), home, O_RDONLY), 0);
  EXPECT_EQ(open(root(), home, O_WRONLY), EISDIR);
}

TEST_F(Rules, DirectoriesAreSearchedAndWrittenWithPermission) {
  const Ino d = directory("d", kRootIno, 0700, root());
  EXPECT_EQ(chown(root(), d, 1000), 0);
  const Ino f = file("f", d, 0644, alice_);
  EXPECT_EQ(lookup_error("f", d, bob_), EACCES);
  EXPECT_EQ(chmod(alice_, d, 0755), 0);
  EXPECT_EQ(lookup_error("f", d, bob_), 0);
  EXPECT_EQ(make_error_of(d, "g", bob_), EACCES);
  EXPECT_EQ(make_error_of(d, "f", bob_), EEXIST);
  EXPECT_EQ(unlink("f", d, bob_), EACCES);
  EXPECT_EQ(rename(d, "f", d, "g", RenameMode::kReplace, bob_), EACCES);
  EXPECT_EQ(number(run(fs().link(bob_, f, d, "l"))), EACCES);
  EXPECT_EQ(chmod(alice_, d, 0711), 0);
  EXPECT_EQ(number(run(fs().read_directory(bob_, d, 0, 10, false))), EACCES);
}

TEST_F(Rules, AWalkEndsWhereALookupWould) {
  const Ino d = directory("d", kRootIno, 0755, root());
  const Ino e = directory("e", d, 0700, root());
  const Ino f = file("f", e, 0644, root());
  NewFile symlink{.type = FileType::kSymlink, .mode = 0777, .target = "e/f"};
  ASSERT_TRUE(run(fs().make(root(), d, "s", symlink)));
  // The inodes of the names, and the errno behind them.
  using Way = std::pair<std::vector<Ino>, int>;
  const auto walk = [&](const Caller& caller, Ino start, std::string_view path) {
    const auto walked = run(fs().walk(caller, start, path));
    EXPECT_TRUE(walked);
    Way way;
    for (const Attributes& each : walked->found) way.first.push_back(each.ino);
    if (walked->error) way.second = walked->error->number;
    return way;
  };
  EXPECT_EQ(walk(root(), kRootIno, "d/e/f"), (Way{{d, e, f}, 0}));
  EXPECT_EQ(walk(root(), d, "e/../e/./f"), (Way{{e, d, e, e, f}, 0}));
  EXPECT_EQ(walk(root(), kRootIno, "../d"), (Way{{kRootIno, d}, 0}));
  EXPECT_EQ(walk(root(), kRootIno, "d/e/none"), (Way{{d, e}, ENOENT}));
  EXPECT_EQ(walk(root(), kRootIno, "d/none/f"), (Way{{d}, ENOENT}));
  EXPECT_EQ(walk(root(), kRootIno, "d//e"), (Way{{d}, ENOENT}));
  EXPECT_EQ(walk(root(), d, "e/f/x"), (Way{{e, f}, ENOTDIR}));
  EXPECT_EQ(walk(root(), d, "e/" + std::string(256, 'n')), (Way{{e}, ENAMETOOLONG}));
  EXPECT_EQ(walk(bob_, kRootIno, "d/e/f"), (Way{{d, e}, EACCES}));
  EXPECT_EQ(walk(bob_, kRootIno, "d/e/.."), (Way{{d, e}, EACCES}));
  const auto at_symlink = run(fs().walk(bob_, kRootIno, "d/s/none"));
  ASSERT_TRUE(at_symlink);
  EXPECT_EQ(at_symlink->found.size(), 2u);
  EXPECT_EQ(at_symlink->target, "e/f");
  EXPECT_FALSE(at_symlink->error);
  EXPECT_EQ(number(run(fs().walk(root(), Ino{999'999}, "x"))), ESTALE);
  std::string dots;
  for (int i = 0; i < 100; ++i) dots += "./";
  EXPECT_EQ(run(fs().walk(root(), d, dots))->found.size(), kMaxWalkedNames);
}

TEST_F(Rules, InAStickyDirectoryOnlyOwnersRemove) {
  const Ino tmp = directory("tmp", kRootIno, 01777);
  file("f", tmp, 0666, alice_);
  file("g", tmp, 0666, bob_);
  EXPECT_EQ(unlink("f", tmp, bob_), EPERM);
  EXPECT_EQ(rename(tmp, "f", tmp, "h", RenameMode::kReplace, bob_), EPERM);
  EXPECT_EQ(rename(tmp, "g", tmp, "f", RenameMode::kReplace, bob_), EPERM);
  EXPECT_EQ(unlink("f", tmp, alice_), 0);
  EXPECT_EQ(unlink("g", tmp, root()), 0);
  const Ino own = directory("own", kRootIno, 01777);
  EXPECT_EQ(chown(root(), own, 1000), 0);
  file("h", own, 0666, bob_);
  EXPECT_EQ(unlink("h", own, alice_), 0) << "or the owner of the directory";
}

TEST_F(Rules, ASetgidDirectoryGivesItsGroup) {
  const Ino d = directory("d", kRootIno, 02777);
  EXPECT_EQ(chgrp(root(), d, 50), 0);
  EXPECT_EQ(stat(d).mode, 02777) << "of a directory it stays";
  const Ino f = file("f", d, 0644, bob_);
  EXPECT_EQ(stat(f).gid, 50u);
  const Ino inner = directory("inner", d, 0755, bob_);
  EXPECT_EQ(stat(inner).gid, 50u);
  EXPECT_EQ(stat(inner).mode, 02755);
  const Ino g = file("g", d, 02755, bob_);
  EXPECT_EQ(stat(g).mode, 0755) << "bob is not in that group";
  const Ino h = file("h", d, 02755, alice_);
  EXPECT_EQ(stat(h).mode, 02755);
}

TEST_F(Rules, ChmodIsTheOwners) {
  const Ino d = directory("d", kRootIno, 0777);
  const Ino f = file("f", d, 0644, alice_);
  EXPECT_EQ(chmod(bob_, f, 0777), EPERM);
  EXPECT_EQ(chmod(alice_, f, 06755), 0);
  EXPECT_EQ(stat(f).mode, 06755);
  EXPECT_EQ(chgrp(root(), f, 77), 0);
  EXPECT_EQ(chmod(alice_, f, 02755), 0);
  EXPECT_EQ(stat(f).mode, 0755) << "alice is not in the file's group";
}

TEST_F(Rules, ChownIsRoots) {
  const Ino d = directory("d", kRootIno, 0777);
  const Ino f = file("f", d, 0644, alice_);
  EXPECT_EQ(chown(alice_, f, 1001), EPERM);
  EXPECT_EQ(chown(alice_, f, 1000), 0);
  EXPECT_EQ(chown(bob_, f, 1001), EPERM);
  EXPECT_EQ(chgrp(alice_, f, 50), 0);
  EXPECT_EQ(chgrp(alice_, f, 51), EPERM);
  EXPECT_EQ(chmod(alice_, f, 06755), 0);
  EXPECT_EQ(chown(root(), f, 1001), 0);
  EXPECT_EQ(stat(f).mode, 0755) << "a new owner does not inherit set-id bits";
  EXPECT_EQ(chmod(root(), f, 02644), 0);
  EXPECT_EQ(chown(root(), f, 1000), 0);
  EXPECT_EQ(stat(f).mode, 02644) << "without group execution it is no set-id bit";
}

TEST_F(Rules, WritingAndTruncatingTakeSetIdBits) {
  const Ino f = file("f");
  EXPECT_EQ(chmod(root(), f, 06755), 0);
  EXPECT_EQ(write(f, 0, "x"), 0);
  EXPECT_EQ(stat(f).mode, 0755);
  EXPECT_EQ(chmod(root(), f, 06755), 0);
  EXPECT_EQ(truncate(f, 0), 0);
  EXPECT_EQ(stat(f).mode, 0755);
  const Ino d = directory("d", kRootIno, 0777);
  const Ino g = file("g", d, 0644, alice_);
  EXPECT_EQ(truncate(g, 5, bob_), EACCES);
  EXPECT_EQ(truncate(g, 5, alice_), 0);
  EXPECT_EQ(truncate(d, 5), EISDIR);
  EXPECT_EQ(truncate(g, kMaxFileBytes + 1, alice_), EFBIG);
  EXPECT_EQ(truncate(g, kMaxFileBytes, alice_), 0);
  EXPECT_EQ(number(run(fs().write(g, std::nullopt, as_bytes("x")))), EFBIG);
}

TEST_F(Rules, TimesAreSetByTheirOwnerAndToNowByWriters) {
  const Ino d = directory("d", kRootIno, 0777);
  const Ino f = file("f", d, 0666, alice_);
  now_ns_ = 5'000'000;
  EXPECT_EQ(change(bob_, f, {.set = Change::kMtime, .mtime_ns = 1}), EPERM);
  EXPECT_EQ(change(bob_, f, {.set = Change::kMtimeNow}), EPERM) << "not both";
  EXPECT_EQ(change(bob_, f, {.set = Change::kMtimeNow | Change::kAtimeNow | Change::kMtime}),
            EPERM);
  EXPECT_EQ(change(bob_, f, {.set = Change::kMtimeNow | Change::kAtimeNow}), 0);
  EXPECT_EQ(stat(f).mtime_ns, 5'000'000u);
  EXPECT_EQ(chmod(alice_, f, 0644), 0);
  EXPECT_EQ(change(bob_, f, {.set = Change::kMtimeNow | Change::kAtimeNow}), EACCES);
  now_ns_ = 6'000'000;
  EXPECT_EQ(
      change(alice_, f, {.set = Change::kMtime | Change::kAtime, .atime_ns = 1, .mtime_ns = 2}), 0);
  EXPECT_EQ(stat(f).atime_ns, 1u);
  EXPECT_EQ(stat(f).mtime_ns, 2u);
  EXPECT_EQ(stat(f).ctime_ns, 6'000'000u);
}

TEST_F(Rules, TimesFollowChanges) {
  const Ino d = directory("d");
  now_ns_ = 2'000'000;
  const Ino f = file("f", d);
  EXPECT_EQ(stat(d).mtime_ns, 2'000'000u);
  EXPECT_EQ(stat(f).created_ns, 2'000'000u);
  now_ns_ = 3'000'000;
  EXPECT_EQ(write(f, 0, "x"), 0);
  EXPECT_EQ(stat(f).mtime_ns, 3'000'000u);
  EXPECT_EQ(stat(d).mtime_ns, 2'000'000u);
  now_ns_ = 4'000'000;
  EXPECT_EQ(chmod(root(), f, 0600), 0);
  EXPECT_EQ(stat(f).mtime_ns, 3'000'000u);
  EXPECT_EQ(stat(f).ctime_ns, 4'000'000u);
  now_ns_ = 5'000'000;
  ASSERT_TRUE(run(fs().link(root(), f, d, "g")));
  EXPECT_EQ(stat(f).ctime_ns, 5'000'000u);
  now_ns_ = 6'000'000;
  ASSERT_TRUE(run(fs().touch(f, {.written = true})));
  EXPECT_EQ(stat(f).mtime_ns, 6'000'000u);
  now_ns_ = 7'000'000;
  EXPECT_EQ(unlink("g", d), 0);
  EXPECT_EQ(stat(f).ctime_ns, 7'000'000u);
  EXPECT_EQ(stat(d).mtime_ns, 7'000'000u);
}

TEST_F(Rules, DeviceFilesAreRoots) {
  const Ino d = directory("d", kRootIno, 0777);
  EXPECT_EQ(make_error_of(d, "n", alice_, FileType::kCharDevice), EPERM);
  EXPECT_EQ(make_error_of(d, "p", alice_, FileType::kFifo), 0);
  const auto made =
      run(fs().make(root(), d, "n", {.type = FileType::kBlockDevice, .device = 0x801}));
  ASSERT_TRUE(made);
  EXPECT_EQ(made->device, 0x801u);
  EXPECT_EQ(open(root(), made->ino, O_RDONLY), ENXIO);
}

TEST_F(Rules, AnExistingFileIsOpenedInsteadOfMade) {
  const Ino d = directory("d", kRootIno, 0777);
  const Ino f = file("f", d, 0600, alice_);
  EXPECT_EQ(write(f, 0, "text"), 0);
  const auto create = [&](const Caller& caller, int flags) {
    return run(fs().make(caller, d, "f", {.exclusive = false, .open_flags = flags}, OpenOwner{1}));
  };
  EXPECT_EQ(number(create(bob_, O_RDONLY)), EACCES);
  const auto opened = create(alice_, O_RDWR);
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->ino, f);
  EXPECT_EQ(opened->size, 4u);
  EXPECT_EQ(create(alice_, O_RDWR | O_TRUNC)->size, 0u);
  directory("sub", d);
  EXPECT_EQ(number(run(fs().make(root(), d, "sub", {.exclusive = false}))), EISDIR);
}

TEST_F(Rules, InodesHaveABound) {
  options_.max_inodes = 3;
  restart();
  file("a");
  file("b");
  EXPECT_EQ(make_error_of(kRootIno, "c"), ENOSPC);
  EXPECT_EQ(unlink("a"), 0);
  EXPECT_EQ(make_error_of(kRootIno, "c"), 0);
}

TEST_F(Rules, OpensHaveABound) {
  options_.max_opens = 1;
  restart();
  const Ino f = file("f"), g = file("g");
  EXPECT_EQ(open(root(), f, O_RDONLY), 0);
  EXPECT_EQ(open(root(), f, O_RDONLY), 0);
  EXPECT_EQ(open(root(), g, O_RDONLY), ENFILE);
  EXPECT_EQ(number(run(fs().make(root(), kRootIno, "h", {}, OpenOwner{1}))), ENFILE);
  EXPECT_EQ(lookup_error("h"), ENOENT);
}

TEST_F(Rules, ExtendedAttributesHaveClasses) {
  const Ino f = file("f", kRootIno, 0644);
  EXPECT_EQ(set_xattr(root(), f, "user.a", "1"), 0);
  EXPECT_EQ(set_xattr(root(), f, "user.a", "2", XattrMode::kCreate), EEXIST);
  EXPECT_EQ(set_xattr(root(), f, "user.b", "2", XattrMode::kReplace), ENODATA);
  EXPECT_EQ(set_xattr(bob_, f, "user.a", "2"), EACCES);
  EXPECT_EQ(set_xattr(bob_, f, "trusted.a", "2"), EPERM);
  EXPECT_EQ(set_xattr(root(), f, "trusted.a", ""), 0);
  EXPECT_EQ(set_xattr(root(), f, "system.posix_acl_access", "2"), EOPNOTSUPP);
  EXPECT_EQ(set_xattr(root(), f, "user.", "2"), EINVAL);
  EXPECT_EQ(set_xattr(root(), f, "user.a", std::string(kMaxXattrBytes + 1, 'v')), E2BIG);
  EXPECT_EQ(as_text(*run(fs().get_xattr(bob_, f, "user.a"))), "1");
  EXPECT_EQ(number(run(fs().get_xattr(bob_, f, "trusted.a"))), ENODATA);
  EXPECT_EQ(*run(fs().list_xattrs(bob_, f)), std::vector<std::string>{"user.a"});
  EXPECT_EQ(run(fs().list_xattrs(root(), f))->size(), 2u);
  EXPECT_EQ(number(run(fs().remove_xattr(root(), f, "user.x"))), ENODATA);
  ASSERT_TRUE(run(fs().remove_xattr(root(), f, "trusted.a")));
  ASSERT_TRUE(run(fs().remove_xattr(root(), f, "user.a")));
  EXPECT_EQ(set_xattr(root(), f, "user.big", std::string(kMaxXattrBytes, 'v')), 0);
  EXPECT_EQ(unlink("f"), 0);
  settle();
  EXPECT_EQ(number(run(fs().get_attributes(f))), ESTALE);
  const auto info = run(client_->list_tables());
  for (const TableInfo& table : *info) {
    if (table.name == ".fs.xattrs") {
      EXPECT_EQ(run(client_->table_usage(table.id))->records, 0u);
    }
  }
}

TEST_F(Rules, RenamingANameToAnotherOfItsInodeNeedsNoPermission) {
  const Ino f = file("f");
  ASSERT_TRUE(run(fs().link(root(), f, kRootIno, "l")));
  EXPECT_EQ(rename(kRootIno, "f", kRootIno, "l", RenameMode::kReplace, user(5)), 0);
  EXPECT_EQ(rename(kRootIno, "f", kRootIno, "l", RenameMode::kNoReplace, user(5)), EEXIST);
  EXPECT_EQ(names(kRootIno), (std::vector<std::string>{"f", "l"}));
}

TEST_F(Rules, ListingsHaveAnEnd) {
  file("f");
  EXPECT_EQ(number(run(fs().read_directory(root(), kRootIno, 0, 0, false))), EINVAL);
  const auto behind = run(fs().read_directory(root(), kRootIno, UINT64_MAX, 10, false));
  ASSERT_TRUE(behind);
  EXPECT_TRUE(behind->empty());
}

TEST_F(Rules, ASearchNeedsItsPermissionAlsoToMake) {
  const Ino d = directory("d", kRootIno, 0722);
  file("f", d, 0666);
  const auto create = [&](const char* name) {
    return number(run(fs().make(bob_, d, name, {.exclusive = false}, OpenOwner{1})));
  };
  EXPECT_EQ(create("f"), EACCES);
  EXPECT_EQ(create("new"), EACCES);
  EXPECT_EQ(unlink("f", d, bob_), EACCES);
  EXPECT_EQ(rename(d, "f", d, "g", RenameMode::kReplace, bob_), EACCES);
  EXPECT_EQ(number(run(fs().link(bob_, lookup("f", d), d, "l"))), EACCES);
  const Ino open = directory("open", kRootIno, 0777);
  file("f", open, 0666);
  EXPECT_EQ(rename(open, "f", d, "h", RenameMode::kReplace, bob_), EACCES);
  EXPECT_EQ(rename(d, "f", open, "h", RenameMode::kReplace, bob_), EACCES);
}

TEST_F(Rules, BothDirectoriesOfARenameAreWritten) {
  const Ino closed = directory("closed", kRootIno, 0755);
  const Ino open = directory("open", kRootIno, 0777);
  file("f", closed, 0666);
  file("g", open, 0666);
  EXPECT_EQ(rename(closed, "f", open, "h", RenameMode::kReplace, bob_), EACCES);
  EXPECT_EQ(rename(open, "g", closed, "h", RenameMode::kReplace, bob_), EACCES);
}

TEST_F(Rules, ADirectoryThatMovesIsWritten) {
  const Ino a = directory("a", kRootIno, 0777), b = directory("b", kRootIno, 0777);
  directory("closed", a, 0755);
  directory("other", b, 0755);
  EXPECT_EQ(rename(a, "closed", a, "same", RenameMode::kReplace, bob_), 0);
  EXPECT_EQ(rename(a, "same", b, "closed", RenameMode::kReplace, bob_), EACCES);
  file("f", a, 0666);
  EXPECT_EQ(rename(a, "f", b, "other", RenameMode::kExchange, bob_), EACCES);
  EXPECT_EQ(rename(a, "f", b, "f", RenameMode::kReplace, bob_), 0);
}

TEST_F(Rules, AMoveIntoAStickyDirectoryReplacesOnlyOwnFiles) {
  const Ino tmp = directory("tmp", kRootIno, 01777), d = directory("d", kRootIno, 0777);
  file("f", tmp, 0666, alice_);
  file("f", d, 0666, bob_);
  EXPECT_EQ(rename(d, "f", tmp, "f", RenameMode::kReplace, bob_), EPERM);
  EXPECT_EQ(rename(d, "f", tmp, "g", RenameMode::kReplace, bob_), 0);
}

TEST_F(Rules, ModesHaveNoOtherBits) {
  const auto made = run(fs().make(root(), kRootIno, "f", {.mode = 0107644}));
  ASSERT_TRUE(made);
  EXPECT_EQ(made->mode, 07644);
  EXPECT_EQ(chmod(root(), made->ino, 0100600), 0);
  EXPECT_EQ(stat(made->ino).mode, 0600);
  // Together they leave the mode that was asked for.
  EXPECT_EQ(
      change(root(), made->ino, {.set = Change::kMode | Change::kUid, .mode = 04755, .uid = 1000}),
      0);
  EXPECT_EQ(stat(made->ino).mode, 04755);
  EXPECT_EQ(make_error_of(kRootIno, std::string("a\0b", 3)), EINVAL);
}

TEST_F(Rules, WhatIsOpenedInsteadOfMadeIsOpenOnce) {
  options_.max_opens = 2;
  restart();
  const Ino f = file("f"), g = file("g");
  const auto create = [&] {
    return number(run(fs().make(root(), kRootIno, "f", {.exclusive = false}, OpenOwner{1})));
  };
  EXPECT_EQ(create(), 0);
  EXPECT_EQ(create(), 0);
  EXPECT_EQ(number(run(fs().make(root(), kRootIno, "f", {.exclusive = true}, OpenOwner{1}))),
            EEXIST);
  EXPECT_EQ(open(root(), g, O_RDONLY), 0);
  EXPECT_TRUE(run(fs().close_file(f, OpenOwner{1})));
  EXPECT_TRUE(run(fs().close_file(f, OpenOwner{1})));
  EXPECT_EQ(number(run(fs().close_file(f, OpenOwner{1}))), EBADF);
  EXPECT_EQ(number(run(fs().close_file(g, OpenOwner{2}))), EBADF);
}

// 65,000 are too many for a test: their count is written to the record.
TEST_F(Rules, LinksHaveABound) {
  const auto set_links = [&](Ino ino, uint32_t links) {
    const TableId inodes = *run(client_->open_table(".fs.inodes"));
    const std::string key = internal::ino_key(ino);
    internal::Inode inode = *internal::decode_inode(ino, *run(client_->get(inodes, key)));
    inode.attributes.links = links;
    ASSERT_TRUE(run(client_->put(inodes, key, internal::encode(inode))));
  };
  const Ino full = directory("full"), other = directory("other"), f = file("f");
  directory("d", other);
  directory("e", full);
  file("g", full);
  set_links(full, kMaxLinks);
  set_links(f, kMaxLinks);
  EXPECT_EQ(make_error_of(full, "d", {}, FileType::kDirectory), EMLINK);
  EXPECT_EQ(make_error_of(full, "x"), 0);
  EXPECT_EQ(number(run(fs().link(root(), f, kRootIno, "l"))), EMLINK);
  EXPECT_EQ(rename(other, "d", full, "d"), EMLINK);
  EXPECT_EQ(rename(full, "g", other, "d", RenameMode::kExchange), EMLINK);
  EXPECT_EQ(rename(other, "d", full, "e"), 0) << "one goes for it";
}

TEST_F(Rules, NothingNewIsMadeOfWhatIsKeptToRemove) {
  const Ino large = file("large"), other = file("other");
  file("gone");
  for (uint64_t i = 0; i < 60; ++i) ASSERT_EQ(write(large, 2 * i * kUnitBytes, "x"), 0);
  const std::string text(4000, 't');
  unsigned made = 0;
  for (int error = 0; error == 0; ++made) {
    const std::string name = "f" + std::to_string(made);
    error = make_error_of(kRootIno, name);
    if (error == 0) error = write(lookup(name), 0, text);
  }
  // Attributes take the slots that are too small for files.
  for (int size = 256; size > 0; size /= 2) {
    int error = 0;
    for (unsigned i = 0; error == 0; ++i) {
      const std::string name = "user." + std::to_string(size) + "_" + std::to_string(i % 100);
      const Ino ino = lookup("f" + std::to_string(i / 100));
      error = set_xattr(root(), ino, name, std::string(static_cast<size_t>(size), 'v'));
    }
    EXPECT_EQ(error, ENOSPC);
  }
  const uint64_t used = space_.used_bytes();
  EXPECT_EQ(allocate(other, AllocateMode::kKeepSize, 0, kUnitBytes), ENOSPC);
  EXPECT_EQ(space_.used_bytes(), used);
  // It frees little, and records more than fits: now the reserve is spent.
  space_.uncleanable_below = space_.total_bytes();
  EXPECT_EQ(truncate(large, 0), 0);
  EXPECT_EQ(unlink("gone"), 0);  // what it had is free
  EXPECT_EQ(make_error_of(kRootIno, "new"), ENOSPC);
  EXPECT_EQ(number(run(fs().link(root(), other, kRootIno, "new"))), ENOSPC);
  EXPECT_EQ(set_xattr(root(), other, "user.a", "1"), ENOSPC);
  EXPECT_EQ(allocate(other, AllocateMode::kExtend, 0, 100'000), ENOSPC);
  EXPECT_EQ(stat(other).size, 0u);
  space_.uncleanable_below = 0;
  for (unsigned i = 0; i < made; ++i) unlink("f" + std::to_string(i));
  settle();
  EXPECT_EQ(make_error_of(kRootIno, "new"), 0);
  EXPECT_EQ(number(run(fs().link(root(), other, kRootIno, "newer"))), 0);
}

}  // namespace
}  // namespace pmstore::fs
