"""utimensat, and what changes times."""

import errno
import os
import time

from posix_rules import FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, USER, fallocate, scenario

# Some file systems keep times by the tick of the kernel.
TICK = 0.02


def times(path):
    is_ = os.lstat(path)
    return is_.st_mtime_ns, is_.st_ctime_ns


def changes(f, path, call, *arguments, mtime=False, ctime=True):
    """Checks which of the two times a call changes."""
    before = times(path)
    time.sleep(TICK)
    call(*arguments)
    after = times(path)
    what = f"{getattr(call, '__name__', 'call')}{arguments} on {os.path.basename(path)}"
    f.same(after[0] > before[0], mtime, f"mtime of {what}")
    f.same(after[1] > before[1], ctime, f"ctime of {what}")


@scenario
def utime_sets_both_times(f):
    path = f.make("file")
    for atime, mtime in ((1, 2), (1_000_000_007, 1_000_000_009), (4_000_000_000 * 10**9 + 123, 5)):
        f.works(os.utime, path, ns=(atime, mtime))
        is_ = os.stat(path)
        f.same((is_.st_atime_ns, is_.st_mtime_ns), (atime, mtime), "times")
    f.fails(errno.ENOENT, os.utime, f("none"), ns=(1, 1))


@scenario
def utime_of_a_symlink_itself(f):
    f.make("file")
    os.symlink("file", f("link"))
    before = os.stat(f("file")).st_mtime_ns
    f.works(os.utime, f("link"), ns=(7, 8), follow_symlinks=False)
    f.same(f.stat("link").st_mtime_ns, 8, "mtime of the link")
    f.same(os.stat(f("file")).st_mtime_ns, before, "mtime of the file")


@scenario
def utime_needs_the_right(f):
    path = f.make("file", b"", 0o666)
    f.works(f.as_user, os.utime, path)
    f.fails(errno.EPERM, f.as_user, lambda: os.utime(path, ns=(1, 1)))
    os.chmod(path, 0o644)
    f.fails(errno.EACCES, f.as_user, os.utime, path)
    os.chown(path, USER, USER)
    f.works(f.as_user, lambda: os.utime(path, ns=(1, 1)))


@scenario
def new_files_have_the_present_time(f):
    before = time.time() - 1
    f.make("file")
    f.mkdir("d")
    os.symlink("x", f("link"))
    for name in ("file", "d", "link"):
        is_ = f.stat(name)
        for when in (is_.st_atime, is_.st_mtime, is_.st_ctime):
            f.true(before <= when <= time.time() + 1, f"times of {name}")


@scenario
def write_changes_mtime_and_ctime(f):
    path = f.make("file", b"data" * 50_000)
    fd = f.open("file", os.O_RDWR)
    changes(f, path, os.pwrite, fd, b"x", 0, mtime=True)
    changes(f, path, os.pwrite, fd, b"x", 1_000_000, mtime=True)
    changes(f, path, os.pread, fd, 10, 0, ctime=False)
    changes(f, path, os.fsync, fd, ctime=False)


@scenario
def write_to_a_small_file_changes_times(f):
    path = f.make("file", b"data")
    fd = f.open("file", os.O_RDWR | os.O_APPEND)
    changes(f, path, os.write, fd, b"x", mtime=True)


@scenario
def times_stay_after_the_last_write(f):
    path = f.make("file", b"data" * 50_000)
    fd = f.open("file", os.O_RDWR)
    os.pwrite(fd, b"x", 0)
    first = times(path)
    time.sleep(TICK)
    f.close(fd)
    f.same(times(path), first, "times after close")
    os.utime(path, ns=(5, 6))
    fd = f.open("file", os.O_RDWR)
    f.close(fd)
    f.same(os.stat(path).st_mtime_ns, 6, "mtime after open and close")


@scenario
def utime_after_a_write_stays(f):
    path = f.make("file", b"data" * 50_000)
    fd = f.open("file", os.O_RDWR)
    os.pwrite(fd, b"x", 0)
    os.utime(fd, ns=(5, 6))
    f.same(os.fstat(fd).st_mtime_ns, 6, "mtime while it is open")
    f.close(fd)
    f.same(os.stat(path).st_mtime_ns, 6, "mtime after close")


@scenario
def truncate_changes_mtime_and_ctime(f):
    path = f.make("file", b"data")
    changes(f, path, os.truncate, path, 2, mtime=True)
    changes(f, path, os.truncate, path, 100_000, mtime=True)
    fd = f.open("file", os.O_RDWR)
    changes(f, path, os.ftruncate, fd, 1, mtime=True)


@scenario
def open_with_o_trunc_changes_times(f):
    path = f.make("file", b"data")
    changes(f, path, lambda: f.open("file", os.O_WRONLY | os.O_TRUNC), mtime=True)


@scenario
def fallocate_changes_times(f):
    path = f.make("file", b"data" * 50_000)
    fd = f.open("file", os.O_RDWR)
    changes(f, path, fallocate, fd, 0, 0, 1_000_000, mtime=True)
    changes(f, path, fallocate, fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 0, 100_000, mtime=True)


@scenario
def attributes_change_ctime_only(f):
    path = f.make("file")
    changes(f, path, os.chmod, path, 0o600)
    changes(f, path, os.chown, path, USER, USER)
    changes(f, path, os.link, path, f("other"))
    changes(f, path, os.unlink, f("other"))
    changes(f, path, os.setxattr, path, "user.a", b"1")
    changes(f, path, os.removexattr, path, "user.a")


@scenario
def entries_change_the_times_of_their_directory(f):
    d = f.mkdir("d")
    e = f.mkdir("e")
    changes(f, d, f.make, "d/file", mtime=True)
    changes(f, d, os.mkdir, f("d/sub"), mtime=True)
    changes(f, d, os.symlink, "x", f("d/link"), mtime=True)
    changes(f, d, os.link, f("d/file"), f("d/hard"), mtime=True)
    changes(f, d, os.rename, f("d/hard"), f("d/harder"), mtime=True)
    changes(f, d, os.rename, f("d/harder"), f("e/hard"), mtime=True)
    changes(f, e, os.unlink, f("e/hard"), mtime=True)
    changes(f, d, os.rmdir, f("d/sub"), mtime=True)
    changes(f, d, os.chmod, f("d/file"), 0o600, ctime=False)
    changes(f, d, os.listdir, d, ctime=False)


def is_read(f, path, how, *arguments):
    """Checks that a call changes st_atime, where that is not later than the other times."""
    os.utime(path, ns=(1, time.time_ns()), follow_symlinks=False)
    begun = time.time_ns()
    how(*arguments)
    is_ = os.lstat(path)
    f.true(is_.st_atime_ns > begun - 1_000_000_000, f"{how.__name__} changes atime of {path}")
    f.same(os.lstat(path).st_mtime_ns, is_.st_mtime_ns, "mtime")


@scenario
def reads_change_atime(f):
    path = f.make("file", b"data" * 50_000)
    fd = f.open("file", os.O_RDWR)
    for _ in range(3):
        is_read(f, path, os.pread, fd, 10, 0)
        is_read(f, path, os.pread, fd, 10, 100_000)
    small = f.make("small", b"data")
    is_read(f, small, os.pread, f.open("small", os.O_RDONLY), 10, 0)
    d = f.mkdir("d")
    f.make("d/file")
    is_read(f, d, os.listdir, d)
    os.symlink("file", f("link"))
    is_read(f, f("link"), os.readlink, f("link"))


@scenario
def noatime_leaves_atime(f):
    path = f.make("file", b"data")
    fd = f.open("file", os.O_RDONLY | os.O_NOATIME)
    os.utime(path, ns=(1, 2))
    f.same(os.pread(fd, 10, 0), b"data", "bytes")
    f.same(os.stat(path).st_atime_ns, 1, "atime")


@scenario
def failed_calls_change_no_times(f):
    path = f.make("file")
    d = f.mkdir("d")

    def all_fail():
        f.fails(errno.EEXIST, os.mkdir, f("d"))
        f.fails(errno.ENOENT, os.unlink, f("d/none"))
        f.fails(errno.EISDIR, os.rename, path, d)
        f.fails(errno.EEXIST, os.link, path, f("file"))

    changes(f, path, all_fail, ctime=False)
    changes(f, d, all_fail, ctime=False)
    changes(f, f.path, all_fail, ctime=False)
