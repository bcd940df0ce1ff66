"""link, symlink, readlink."""

import errno
import os
import stat

from posix_rules import link_descriptor, scenario


@scenario
def link_gives_a_second_name(f):
    f.make("a", b"data")
    f.works(os.link, f("a"), f("b"))
    f.same(f.stat("a").st_ino, f.stat("b").st_ino, "inode")
    f.same((f.stat("a").st_nlink, f.stat("b").st_nlink), (2, 2), "links")
    with open(f("b"), "ab") as file:
        file.write(b"+")
    f.content("a", b"data+")
    os.chmod(f("b"), 0o600)
    f.same(f.mode("a"), 0o600, "mode")


@scenario
def a_file_lives_until_its_last_name_goes(f):
    f.make("a", b"data")
    os.link(f("a"), f("b"))
    os.unlink(f("a"))
    f.content("b", b"data")
    f.same(f.stat("b").st_nlink, 1, "links")
    os.unlink(f("b"))
    f.names([])


@scenario
def link_refuses_what_is_there(f):
    f.make("a")
    f.make("b", b"b")
    f.mkdir("d")
    for name in ("b", "d", "a"):
        f.fails(errno.EEXIST, os.link, f("a"), f(name))
    f.fails(errno.ENOENT, os.link, f("none"), f("c"))
    f.fails(errno.ENOENT, os.link, f("a"), f("none/c"))
    f.fails(errno.ENOTDIR, os.link, f("a"), f("b/c"))
    f.same(f.stat("a").st_nlink, 1, "links")


@scenario
def link_of_a_directory_is_refused(f):
    f.mkdir("d")
    f.fails(errno.EPERM, os.link, f("d"), f("e"))
    f.names(["d"])


@scenario
def link_of_a_symlink_is_a_second_name_of_it(f):
    os.symlink("nowhere", f("link"))
    f.works(os.link, f("link"), f("other"), follow_symlinks=False)
    f.same(os.readlink(f("other")), "nowhere", "target")
    f.same(f.stat("link").st_nlink, 2, "links")


@scenario
def link_works_for_all_files(f):
    os.mkfifo(f("fifo"))
    f.works(os.link, f("fifo"), f("other"))
    f.true(stat.S_ISFIFO(f.stat("other").st_mode), "a fifo")


@scenario
def link_gives_an_open_file_another_name(f):
    fd = f.open("file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"data")
    f.works(link_descriptor, fd, f("again"))
    os.unlink(f("file"))
    f.content("again", b"data")


@scenario
def symlink_keeps_any_text(f):
    for i, target in enumerate(("x", "/", "../..", "a" * 255, "/".join(["a"] * 2000), "b" * 4095,
                                "\u00e4 \n", "none/such")):
        f.works(os.symlink, target, f(f"link{i}"))
        f.same(os.readlink(f(f"link{i}")), target, "target")
        f.same(f.stat(f"link{i}").st_size, len(target.encode()), "size")
        f.true(stat.S_ISLNK(f.stat(f"link{i}").st_mode), "a symlink")


@scenario
def symlink_refuses_what_is_there(f):
    f.make("file")
    f.fails(errno.EEXIST, os.symlink, "x", f("file"))
    f.fails(errno.ENOENT, os.symlink, "", f("empty"))
    f.fails(errno.ENOENT, os.symlink, "x", f("none/link"))
    f.fails(errno.ENAMETOOLONG, os.symlink, "x" * 4096, f("long"))
    f.fails(errno.EINVAL, os.readlink, f("file"))
    f.fails(errno.ENOENT, os.readlink, f("none"))


@scenario
def symlinks_are_followed(f):
    os.makedirs(f("d/e"))
    f.make("d/e/file", b"data")
    os.symlink("d", f("one"))
    os.symlink("one/e", f("two"))
    os.symlink("two/file", f("three"))
    f.content("three", b"data")
    f.content("two/../e/file", b"data")
    f.same(sorted(os.listdir(f("two"))), ["file"], "names")
    f.make("three", b"new")
    f.content("d/e/file", b"new")
    os.symlink(f("d/e/file"), f("absolute"))
    f.content("absolute", b"new")


@scenario
def symlink_loops_are_noticed(f):
    os.symlink("b", f("a"))
    os.symlink("a", f("b"))
    os.symlink("self", f("self"))
    f.fails(errno.ELOOP, os.stat, f("a"))
    f.fails(errno.ELOOP, os.open, f("self"), os.O_RDONLY)
    f.fails(errno.ELOOP, os.open, f("a/x"), os.O_RDONLY)
    f.works(os.lstat, f("a"))


@scenario
def dangling_symlinks_name_nothing(f):
    os.symlink("none", f("link"))
    f.fails(errno.ENOENT, os.stat, f("link"))
    f.fails(errno.ENOENT, os.open, f("link"), os.O_RDONLY)
    f.fails(errno.ENOENT, os.chmod, f("link"), 0o600)
    f.works(os.lstat, f("link"))
