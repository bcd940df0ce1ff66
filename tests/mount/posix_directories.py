"""readdir and its kin; statvfs; extended attributes."""

import errno
import os

from posix_rules import scenario


@scenario
def readdir_lists_all_names_once(f):
    names = [f"file{i:04}" for i in range(1500)]
    for name in names:
        f.close(f.open(name, os.O_WRONLY | os.O_CREAT))
    listed = os.listdir(f.path)
    f.same(len(listed), len(names), "number")
    f.same(sorted(listed), names, "names")


@scenario
def readdir_gives_types_and_inodes(f):
    f.make("file")
    f.mkdir("d")
    os.symlink("x", f("link"))
    os.mkfifo(f("fifo"))
    with os.scandir(f.path) as entries:
        found = {e.name: e for e in entries}
    f.true(found["file"].is_file(follow_symlinks=False), "file")
    f.true(found["d"].is_dir(follow_symlinks=False), "directory")
    f.true(found["link"].is_symlink(), "symlink")
    f.true(not found["fifo"].is_file(follow_symlinks=False), "fifo")
    for name, entry in found.items():
        f.same(entry.inode(), f.stat(name).st_ino, f"inode of {name}")


@scenario
def readdir_goes_on_while_entries_are_removed(f):
    for i in range(700):
        f.close(f.open(f"file{i}", os.O_WRONLY | os.O_CREAT))
    seen = []
    with os.scandir(f.path) as entries:
        for entry in entries:
            seen.append(entry.name)
            os.unlink(entry.path)
    f.same(len(seen), 700, "each was seen")
    f.same(len(set(seen)), 700, "once")
    f.names([])


@scenario
def readdir_shows_what_stays_while_others_come_and_go(f):
    stay = {f"stay{i}" for i in range(300)}
    for name in sorted(stay):
        f.make(name)
    seen = []
    with os.scandir(f.path) as entries:
        for count, entry in enumerate(entries):
            seen.append(entry.name)
            if count < 400:
                f.make(f"new{count}")
                if count % 3 == 0:
                    os.unlink(f(f"new{count}"))
    f.same(len(seen), len(set(seen)), "no name twice")
    f.true(stay <= set(seen), "all that stay")


@scenario
def readdir_of_a_removed_directory_is_empty(f):
    f.mkdir("d")
    fd = f.open("d", os.O_RDONLY)
    os.rmdir(f("d"))
    f.same(os.listdir(fd), [], "names")
    f.fails(errno.ENOENT, os.open, "new", os.O_WRONLY | os.O_CREAT, dir_fd=fd)
    f.same(os.fstat(fd).st_nlink, 0, "links")


@scenario
def dot_and_dotdot_are_where_they_should_be(f):
    os.makedirs(f("a/b"))
    f.same(os.stat(f("a/b/.")).st_ino, os.stat(f("a/b")).st_ino, ".")
    f.same(os.stat(f("a/b/..")).st_ino, os.stat(f("a")).st_ino, "..")
    f.same(os.stat(f("a/b/../..")).st_ino, os.stat(f.path).st_ino, "../..")
    f.fails(errno.ENOENT, os.stat, f("a/none/.."))


@scenario
def calls_relative_to_a_directory(f):
    f.mkdir("d")
    fd = f.open("d", os.O_RDONLY)
    f.works(os.mkdir, "sub", dir_fd=fd)
    f.works(os.symlink, "sub", "link", dir_fd=fd)
    f.works(os.rename, "sub", "new", src_dir_fd=fd, dst_dir_fd=fd)
    f.names(["new", "link"], "d")
    os.rename(f("d"), f("moved"))
    f.works(os.mkdir, "after", dir_fd=fd)
    f.true(os.path.isdir(f("moved/after")), "the directory itself, not its name")


@scenario
def a_directory_of_this_process_can_be_renamed(f):
    f.mkdir("d")
    before = os.getcwd()
    try:
        os.chdir(f("d"))
        os.rename(f("d"), f("e"))
        f.same(os.path.basename(os.getcwd()), "e", "name")
        with open("file", "wb") as file:
            file.write(b"data")
    finally:
        os.chdir(before)
    f.content("e/file", b"data")


@scenario
def statvfs_knows_the_room(f):
    is_ = os.statvfs(f.path)
    f.true(is_.f_frsize > 0 and is_.f_blocks > 0, "blocks")
    f.true(is_.f_bavail <= is_.f_bfree <= is_.f_blocks, "free")
    f.same(is_.f_namemax, 255, "names")
    f.true(is_.f_ffree <= is_.f_files, "inodes")


@scenario
def xattrs_are_kept(f):
    f.make("file")
    f.mkdir("d")
    for name in ("file", "d"):
        path = f(name)
        f.same(os.listxattr(path), [], "none at first")
        f.works(os.setxattr, path, "user.one", b"1")
        f.works(os.setxattr, path, "user.two", b"\x00\xff" * 100)
        f.works(os.setxattr, path, "user.empty", b"")
        f.same(sorted(os.listxattr(path)), ["user.empty", "user.one", "user.two"], "names")
        f.same(os.getxattr(path, "user.two"), b"\x00\xff" * 100, "value")
        f.same(os.getxattr(path, "user.empty"), b"", "empty value")
        f.works(os.setxattr, path, "user.one", b"other")
        f.same(os.getxattr(path, "user.one"), b"other", "new value")
        f.works(os.removexattr, path, "user.two")
        f.fails(errno.ENODATA, os.getxattr, path, "user.two")
        f.fails(errno.ENODATA, os.removexattr, path, "user.two")


@scenario
def xattr_flags_are_obeyed(f):
    path = f.make("file")
    f.fails(errno.ENODATA, os.setxattr, path, "user.a", b"1", os.XATTR_REPLACE)
    f.works(os.setxattr, path, "user.a", b"1", os.XATTR_CREATE)
    f.fails(errno.EEXIST, os.setxattr, path, "user.a", b"2", os.XATTR_CREATE)
    f.works(os.setxattr, path, "user.a", b"3", os.XATTR_REPLACE)
    f.same(os.getxattr(path, "user.a"), b"3", "value")


@scenario
def xattrs_have_limits(f):
    path = f.make("file")
    f.fails(errno.ERANGE, os.setxattr, path, "user." + "n" * 251, b"")
    f.fails(errno.E2BIG, os.setxattr, path, "user.a", b"x" * 65537)
    f.fails(errno.EOPNOTSUPP, os.setxattr, path, "nonsense.a", b"")
    f.works(os.setxattr, path, "user." + "n" * 250, b"x")
    f.same(os.getxattr(path, "user." + "n" * 250), b"x", "value")


@scenario
def xattrs_of_a_user_need_rights(f):
    path = f.make("file", b"", 0o600)
    os.setxattr(path, "user.a", b"1")
    f.fails(errno.EACCES, f.as_user, os.getxattr, path, "user.a")
    os.chmod(path, 0o644)
    f.same(f.as_user(os.getxattr, path, "user.a"), b"1", "value")
    f.fails(errno.EACCES, f.as_user, os.setxattr, path, "user.a", b"2")


@scenario
def xattrs_move_with_the_file(f):
    path = f.make("file")
    os.setxattr(path, "user.a", b"1")
    os.rename(path, f("new"))
    f.same(os.getxattr(f("new"), "user.a"), b"1", "value")
    os.link(f("new"), f("other"))
    f.same(os.getxattr(f("other"), "user.a"), b"1", "value by another name")
