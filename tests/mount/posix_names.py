"""mkdir, rmdir, unlink, rename: names."""

import errno
import os

from posix_rules import RENAME_EXCHANGE, RENAME_NOREPLACE, renameat2, scenario


@scenario
def mkdir_makes_an_empty_directory(f):
    f.works(os.mkdir, f("d"), 0o755)
    f.names([], "d")
    f.same(f.stat("d").st_nlink, 2, "links")
    f.same(f.mode("d"), 0o755, "mode")


@scenario
def mkdir_adds_a_link_to_its_parent(f):
    before = os.stat(f.path).st_nlink
    f.mkdir("d")
    f.same(os.stat(f.path).st_nlink, before + 1, "links")
    os.rmdir(f("d"))
    f.same(os.stat(f.path).st_nlink, before, "links after rmdir")


@scenario
def mkdir_applies_the_umask(f):
    os.umask(0o077)
    os.mkdir(f("d"), 0o777)
    f.same(f.mode("d"), 0o700, "mode")


@scenario
def mkdir_fails_when_the_name_is_there(f):
    f.make("file")
    f.mkdir("d")
    os.symlink("nowhere", f("link"))
    for name in ("file", "d", "link"):
        f.fails(errno.EEXIST, os.mkdir, f(name))


@scenario
def mkdir_fails_without_its_parent(f):
    f.fails(errno.ENOENT, os.mkdir, f("no/d"))
    f.make("file")
    f.fails(errno.ENOTDIR, os.mkdir, f("file/d"))


@scenario
def names_have_255_bytes(f):
    for letter in ("n", "\u00e4"):
        longest = letter * (255 // len(letter.encode()))
        f.works(os.mkdir, f(longest))
        f.true(longest in os.listdir(f.path), "it is listed")
        f.works(os.rmdir, f(longest))
    for call in (os.mkdir, os.stat, os.unlink, os.rmdir):
        f.fails(errno.ENAMETOOLONG, call, f("n" * 256))
    f.make("file")
    f.fails(errno.ENAMETOOLONG, os.rename, f("file"), f("n" * 256))
    f.fails(errno.ENAMETOOLONG, os.link, f("file"), f("n" * 256))
    f.fails(errno.ENAMETOOLONG, os.symlink, "x", f("n" * 256))


@scenario
def names_are_any_bytes(f):
    for name in (b"new\nline", b"\x01\x02", b"\xff\xfe", b" blank ", b"-option", b"back\\slash",
                 b"\xe2\x80\xae", b"*", b"...", b"~"):
        path = os.path.join(os.fsencode(f.path), name)
        with open(path, "wb") as file:
            file.write(name)
        f.true(name in os.listdir(os.fsencode(f.path)), f"{name!r} is listed")
        with open(path, "rb") as file:
            f.same(file.read(), name, "content")
        f.works(os.unlink, path)


@scenario
def names_differ_by_case(f):
    f.make("a", b"small")
    f.make("A", b"large")
    f.content("a", b"small")
    f.content("A", b"large")


@scenario
def paths_of_4096_bytes_are_too_long(f):
    f.fails(errno.ENAMETOOLONG, os.stat, f("a/" * 2048 + "b"))


@scenario
def deep_directories_are_reached(f):
    path = f.path
    for _ in range(40):
        path = os.path.join(path, "deeper")
        os.mkdir(path)
    with open(os.path.join(path, "file"), "wb") as file:
        file.write(b"deep")
    f.same(os.stat(os.path.join(path, "file")).st_size, 4, "size")
    f.same(os.path.realpath(os.path.join(path, *[".."] * 40)), os.path.realpath(f.path), "..")


@scenario
def rmdir_removes_an_empty_directory(f):
    f.mkdir("d")
    f.works(os.rmdir, f("d"))
    f.missing("d")


@scenario
def rmdir_refuses_what_is_not_an_empty_directory(f):
    f.mkdir("d")
    f.make("d/file")
    f.fails(errno.ENOTEMPTY, os.rmdir, f("d"))
    f.fails(errno.ENOTDIR, os.rmdir, f("d/file"))
    f.fails(errno.ENOENT, os.rmdir, f("none"))
    os.symlink("d", f("link"))
    f.fails(errno.ENOTDIR, os.rmdir, f("link"))
    f.fails(errno.EINVAL, os.rmdir, f("d/."))
    f.content("d/file", b"")


@scenario
def unlink_removes_a_name(f):
    f.make("file")
    f.works(os.unlink, f("file"))
    f.missing("file")
    f.fails(errno.ENOENT, os.unlink, f("file"))


@scenario
def unlink_of_a_directory_is_refused(f):
    f.mkdir("d")
    f.fails(errno.EISDIR, os.unlink, f("d"))
    f.true(os.path.isdir(f("d")), "it is still there")


@scenario
def unlink_removes_a_symlink_not_its_target(f):
    f.make("file", b"data")
    os.symlink("file", f("link"))
    f.works(os.unlink, f("link"))
    f.missing("link")
    f.content("file", b"data")


@scenario
def unlinked_but_open_files_live(f):
    fd = f.open("file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"data")
    os.unlink(f("file"))
    f.missing("file")
    f.same(os.fstat(fd).st_nlink, 0, "links")
    f.same(os.pread(fd, 10, 0), b"data", "content")
    f.same(os.pwrite(fd, b"more" * 5000, 4), 20000, "written")
    f.same(os.fstat(fd).st_size, 20004, "size")
    f.works(os.ftruncate, fd, 2)
    f.same(os.pread(fd, 10, 0), b"da", "content after ftruncate")
    f.make("file", b"new")
    f.same(os.pread(fd, 10, 0), b"da", "the old one, although a new one is there")
    f.content("file", b"new")


@scenario
def rename_gives_a_new_name(f):
    f.make("old", b"data")
    ino = f.stat("old").st_ino
    f.works(os.rename, f("old"), f("new"))
    f.missing("old")
    f.content("new", b"data")
    f.same(f.stat("new").st_ino, ino, "inode")


@scenario
def rename_replaces_a_file(f):
    f.make("a", b"a")
    f.make("b", b"b")
    f.works(os.rename, f("a"), f("b"))
    f.content("b", b"a")
    f.names(["b"])


@scenario
def rename_keeps_what_was_replaced_while_it_is_open(f):
    f.make("a", b"a")
    f.make("b", b"b")
    fd = f.open("b", os.O_RDONLY)
    os.rename(f("a"), f("b"))
    f.same(os.pread(fd, 10, 0), b"b", "content of the old one")
    f.same(os.fstat(fd).st_nlink, 0, "its links")


@scenario
def rename_to_itself_does_nothing(f):
    f.make("a", b"a")
    f.works(os.rename, f("a"), f("a"))
    os.link(f("a"), f("b"))
    f.works(os.rename, f("a"), f("b"))
    f.names(["a", "b"])
    f.same(f.stat("a").st_nlink, 2, "links")


@scenario
def rename_moves_between_directories(f):
    f.mkdir("x")
    f.mkdir("y")
    f.make("x/file", b"data")
    f.works(os.rename, f("x/file"), f("y/moved"))
    f.names([], "x")
    f.content("y/moved", b"data")


@scenario
def rename_of_a_directory_changes_its_parent(f):
    f.mkdir("x")
    f.mkdir("y")
    f.mkdir("x/d")
    f.make("x/d/file", b"data")
    f.works(os.rename, f("x/d"), f("y/d"))
    f.content("y/d/file", b"data")
    f.same(os.stat(f("y/d/..")).st_ino, f.stat("y").st_ino, "..")
    f.same((f.stat("x").st_nlink, f.stat("y").st_nlink), (2, 3), "links")


@scenario
def rename_replaces_an_empty_directory(f):
    f.mkdir("a")
    f.make("a/file", b"data")
    f.mkdir("b")
    f.works(os.rename, f("a"), f("b"))
    f.content("b/file", b"data")
    f.missing("a")


@scenario
def rename_refuses_a_target_that_does_not_fit(f):
    f.mkdir("d")
    f.mkdir("full")
    f.make("full/file")
    f.make("file")
    f.fails(errno.ENOTEMPTY, os.rename, f("d"), f("full"))
    f.fails(errno.EISDIR, os.rename, f("file"), f("d"))
    f.fails(errno.ENOTDIR, os.rename, f("d"), f("file"))
    f.fails(errno.ENOENT, os.rename, f("none"), f("new"))
    f.fails(errno.ENOENT, os.rename, f("file"), f("none/new"))
    f.fails(errno.ENOTDIR, os.rename, f("file"), f("file2/new") if f.make("file2") else "")
    f.names(["d", "full", "file", "file2"])


@scenario
def rename_never_makes_a_loop(f):
    os.makedirs(f("a/b/c"))
    f.fails(errno.EINVAL, os.rename, f("a"), f("a/x"))
    f.fails(errno.EINVAL, os.rename, f("a"), f("a/b/c/x"))
    f.fails(errno.EINVAL, os.rename, f("a/b"), f("a/b/c/x"))
    f.fails(errno.ENOTEMPTY, os.rename, f("a/b"), f("a"))
    f.names(["a"])


@scenario
def rename_moves_a_symlink_itself(f):
    f.make("file", b"data")
    os.symlink("file", f("link"))
    f.works(os.rename, f("link"), f("moved"))
    f.same(os.readlink(f("moved")), "file", "target")
    f.works(os.rename, f("file"), f("moved"))
    f.content("moved", b"data")


@scenario
def rename_noreplace_refuses_what_is_there(f):
    f.make("a", b"a")
    f.make("b", b"b")
    f.fails(errno.EEXIST, renameat2, f("a"), f("b"), RENAME_NOREPLACE)
    f.content("b", b"b")
    f.works(renameat2, f("a"), f("c"), RENAME_NOREPLACE)
    f.names(["b", "c"])


@scenario
def rename_exchange_swaps_two_names(f):
    f.make("a", b"a")
    f.mkdir("d")
    f.make("d/file", b"inside")
    f.works(renameat2, f("a"), f("d"), RENAME_EXCHANGE)
    f.content("d", b"a")
    f.content("a/file", b"inside")
    f.fails(errno.ENOENT, renameat2, f("a"), f("none"), RENAME_EXCHANGE)
    f.fails(errno.EINVAL, renameat2, f("a"), f("d"), RENAME_EXCHANGE | RENAME_NOREPLACE)


@scenario
def rename_exchange_across_directories_keeps_parents(f):
    os.makedirs(f("x/one"))
    os.makedirs(f("y/two"))
    f.works(renameat2, f("x/one"), f("y/two"), RENAME_EXCHANGE)
    f.same(os.stat(f("x/one/..")).st_ino, f.stat("x").st_ino, "x/one/..")
    f.same(os.stat(f("y/two/..")).st_ino, f.stat("y").st_ino, "y/two/..")
    f.fails(errno.EINVAL, renameat2, f("x"), f("x/one"), RENAME_EXCHANGE)


@scenario
def a_name_can_be_used_again(f):
    for i in range(5):
        f.make("file", b"%d" % i)
        f.content("file", b"%d" % i)
        os.unlink(f("file"))
        f.mkdir("file")
        os.rmdir(f("file"))
    f.missing("file")
