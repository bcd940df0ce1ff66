"""open, close: flags, and what they allow."""

import errno
import os
import stat

from posix_rules import scenario


@scenario
def open_creates_a_file_with_its_mode(f):
    fd = f.open("file", os.O_WRONLY | os.O_CREAT, 0o640)
    is_ = os.fstat(fd)
    f.true(stat.S_ISREG(is_.st_mode), "a regular file")
    f.same(is_.st_mode & 0o7777, 0o640, "mode")
    f.same((is_.st_size, is_.st_nlink), (0, 1), "size and links")
    f.same((is_.st_uid, is_.st_gid), (os.geteuid(), os.getegid()), "owner")


@scenario
def open_applies_the_umask(f):
    os.umask(0o027)
    f.close(f.open("file", os.O_WRONLY | os.O_CREAT, 0o777))
    f.same(f.mode("file"), 0o750, "mode")


@scenario
def open_with_a_mode_without_rights_still_gives_them_to_this_descriptor(f):
    fd = f.open("file", os.O_RDWR | os.O_CREAT, 0)
    f.same(os.write(fd, b"data"), 4, "written")
    f.same(os.pread(fd, 4, 0), b"data", "content")
    f.same(f.mode("file"), 0, "mode")


@scenario
def open_of_a_missing_file_fails(f):
    f.fails(errno.ENOENT, os.open, f("file"), os.O_RDONLY)
    f.fails(errno.ENOENT, os.open, f("no/file"), os.O_RDWR | os.O_CREAT)
    f.make("file")
    f.fails(errno.ENOTDIR, os.open, f("file/x"), os.O_RDONLY)
    f.fails(errno.ENOTDIR, os.open, f("file/x"), os.O_RDWR | os.O_CREAT)


@scenario
def o_creat_leaves_what_is_there(f):
    f.make("file", b"data", 0o600)
    fd = f.open("file", os.O_RDWR | os.O_CREAT, 0o777)
    f.same(os.read(fd, 10), b"data", "content")
    f.same(f.mode("file"), 0o600, "mode")


@scenario
def o_excl_refuses_what_is_there(f):
    f.make("file")
    f.mkdir("d")
    os.symlink("nowhere", f("link"))
    for name in ("file", "d", "link"):
        f.fails(errno.EEXIST, os.open, f(name), os.O_RDWR | os.O_CREAT | os.O_EXCL)
    f.works(f.open, "new", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    f.missing("nowhere")


@scenario
def o_creat_through_a_symlink_makes_its_target(f):
    os.symlink("target", f("link"))
    fd = f.open("link", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"data")
    f.content("target", b"data")
    f.same(os.readlink(f("link")), "target", "target")


@scenario
def o_trunc_empties(f):
    for size in (10, 5000, 200_000):
        f.make("file", b"x" * size)
        fd = f.open("file", os.O_WRONLY | os.O_TRUNC)
        f.same(os.fstat(fd).st_size, 0, "size")
        os.write(fd, b"new")
        f.content("file", b"new")
        f.close(fd)


@scenario
def o_append_writes_at_the_end(f):
    f.make("file", b"begin")
    fd = f.open("file", os.O_WRONLY | os.O_APPEND)
    other = f.open("file", os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"-1")
    os.write(other, b"-2")
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, b"-3")
    f.content("file", b"begin-1-2-3")
    f.same(os.lseek(fd, 0, os.SEEK_CUR), 11, "position")


@scenario
def o_append_of_many_writers_loses_nothing(f):
    f.make("file")
    children = []
    for letter in (b"a", b"b", b"c", b"d"):
        child = os.fork()
        if child == 0:
            fd = os.open(f("file"), os.O_WRONLY | os.O_APPEND)
            for _ in range(50):
                os.write(fd, letter * 100)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    with open(f("file"), "rb") as file:
        data = file.read()
    f.same(len(data), 4 * 50 * 100, "size")
    pieces = [data[i:i + 100] for i in range(0, len(data), 100)]
    f.true(all(len(set(piece)) == 1 for piece in pieces), "no write is torn")
    for letter in b"abcd":
        f.same(data.count(letter), 5000, f"bytes of {chr(letter)}")


@scenario
def o_directory_wants_a_directory(f):
    f.make("file")
    f.mkdir("d")
    os.symlink("d", f("link"))
    f.fails(errno.ENOTDIR, os.open, f("file"), os.O_RDONLY | os.O_DIRECTORY)
    f.works(f.open, "d", os.O_RDONLY | os.O_DIRECTORY)
    f.works(f.open, "link", os.O_RDONLY | os.O_DIRECTORY)


@scenario
def o_nofollow_refuses_a_symlink(f):
    f.make("file")
    os.symlink("file", f("link"))
    f.fails(errno.ELOOP, os.open, f("link"), os.O_RDONLY | os.O_NOFOLLOW)
    f.works(f.open, "file", os.O_RDONLY | os.O_NOFOLLOW)


@scenario
def a_directory_cannot_be_opened_for_writing(f):
    f.mkdir("d")
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC | os.O_RDWR):
        f.fails(errno.EISDIR, os.open, f("d"), flags)
    fd = f.open("d", os.O_RDONLY)
    f.fails(errno.EISDIR, os.read, fd, 10)
    f.works(os.fsync, fd)


@scenario
def descriptors_allow_what_they_were_opened_for(f):
    f.make("file", b"data")
    reader = f.open("file", os.O_RDONLY)
    writer = f.open("file", os.O_WRONLY)
    f.fails(errno.EBADF, os.write, reader, b"x")
    f.fails(errno.EBADF, os.read, writer, 1)
    f.fails(errno.EINVAL, os.ftruncate, reader, 0)
    f.fails(errno.EBADF, os.pwrite, reader, b"x", 0)
    f.fails(errno.EBADF, os.pread, writer, 1, 0)
    f.content("file", b"data")


@scenario
def descriptors_keep_their_own_positions(f):
    f.make("file", b"0123456789")
    one, two = f.open("file", os.O_RDONLY), f.open("file", os.O_RDONLY)
    f.same(os.read(one, 3), b"012", "first")
    f.same(os.read(two, 5), b"01234", "second")
    f.same(os.read(one, 3), b"345", "first again")
    copy = os.dup(one)
    f.same(os.read(copy, 2), b"67", "a copy shares the position")
    f.same(os.read(one, 2), b"89", "also the other way")
    os.close(copy)


@scenario
def rights_are_checked_at_open_only(f):
    path = f.make("file", b"data", 0o666)

    def use():
        fd = os.open(path, os.O_RDWR)
        os.write(ready, b"x")
        os.read(go, 1)
        os.pwrite(fd, b"DATA", 0)
        return os.pread(fd, 10, 0)

    wait, ready = os.pipe()
    go, start = os.pipe()
    f.opened += [wait, ready, go, start]
    child = os.fork()
    if child == 0:
        os.read(wait, 1)
        os.chmod(path, 0)
        os.write(start, b"x")
        os._exit(0)
    f.same(f.as_user(use), b"DATA", "content")
    os.waitpid(child, 0)
    f.same(f.mode("file"), 0, "mode")


@scenario
def open_files_see_a_rename(f):
    fd = f.open("old", os.O_RDWR | os.O_CREAT)
    os.rename(f("old"), f("new"))
    os.write(fd, b"data")
    f.content("new", b"data")
    f.same(os.fstat(fd).st_ino, f.stat("new").st_ino, "inode")


@scenario
def many_files_are_open_at_once(f):
    fds = [f.open(f"file{i}", os.O_RDWR | os.O_CREAT) for i in range(200)]
    for i, fd in enumerate(fds):
        os.write(fd, b"%d" % i)
    f.same([int(os.pread(fd, 10, 0)) for fd in fds], list(range(200)), "contents")


@scenario
def tmpfile_or_refused(f):
    """O_TMPFILE: where it is not possible, programs are told so and use a name."""
    try:
        fd = os.open(f.path, os.O_RDWR | os.O_TMPFILE)
    except OSError as error:
        f.true(error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL), f"errno {error}")
        return
    f.opened.append(fd)
    f.same(os.fstat(fd).st_nlink, 0, "links")


@scenario
def mknod_makes_other_files(f):
    f.works(os.mkfifo, f("fifo"), 0o600)
    f.true(stat.S_ISFIFO(f.stat("fifo").st_mode), "a fifo")
    f.works(os.mknod, f("socket"), stat.S_IFSOCK | 0o600)
    f.true(stat.S_ISSOCK(f.stat("socket").st_mode), "a socket")
    f.works(os.mknod, f("file"), stat.S_IFREG | 0o600)
    f.true(stat.S_ISREG(f.stat("file").st_mode), "a file")
    f.works(os.mknod, f("null"), stat.S_IFCHR | 0o600, os.makedev(1, 3))
    f.same(f.stat("null").st_rdev, os.makedev(1, 3), "device")
    f.works(os.mknod, f("disk"), stat.S_IFBLK | 0o600, os.makedev(259, 70000))
    f.same(f.stat("disk").st_rdev, os.makedev(259, 70000), "large device")
    for name in ("fifo", "socket", "file", "null"):
        f.same(f.mode(name), 0o600, f"mode of {name}")
        f.fails(errno.EEXIST, os.mknod, f(name), stat.S_IFREG | 0o600)


@scenario
def a_fifo_carries_data(f):
    os.mkfifo(f("fifo"))
    child = os.fork()
    if child == 0:
        fd = os.open(f("fifo"), os.O_WRONLY)
        os.write(fd, b"through")
        os._exit(0)
    fd = f.open("fifo", os.O_RDONLY)
    f.same(os.read(fd, 100), b"through", "what came")
    os.waitpid(child, 0)
