"""read, write, truncate, fallocate, seek, sync, mmap, locks."""

import errno
import fcntl
import mmap
import os
import random

from posix_rules import (FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE, fallocate,
                         scenario)

UNIT = 64 * 1024
# Around the sizes at which something changes: inline data, pages, units, messages.
SIZES = (0, 1, 511, 4095, 4096, 4097, UNIT - 1, UNIT, UNIT + 1, 1 << 20, (1 << 20) + 1, 3_000_000)


def some_bytes(size, seed=1):
    return random.Random(seed).randbytes(size)


@scenario
def what_is_written_is_read(f):
    for size in SIZES:
        data = some_bytes(size)
        f.make("file", data)
        f.content("file", data)
        f.same(f.stat("file").st_size, size, "size")


@scenario
def read_is_short_at_the_end_only(f):
    for size in SIZES[1:]:
        data = some_bytes(size)
        f.make("file", data)
        fd = f.open("file", os.O_RDONLY)
        f.same(os.pread(fd, size + 100, 0), data, "all")
        f.same(os.pread(fd, 100, size), b"", "behind the end")
        f.same(os.pread(fd, 100, size + 5_000_000), b"", "far behind the end")
        f.same(os.pread(fd, 100, size - 1), data[-1:], "the last byte")
        f.close(fd)


@scenario
def pwrite_changes_only_its_bytes(f):
    data = bytearray(some_bytes(300_000))
    f.make("file", data)
    fd = f.open("file", os.O_RDWR)
    for offset, size in ((0, 1), (1, 7), (4095, 2), (UNIT - 3, 6), (100, 100_000), (299_999, 1)):
        new = some_bytes(size, offset)
        f.same(os.pwrite(fd, new, offset), size, "written")
        data[offset:offset + size] = new
        f.same(os.pread(fd, 400_000, 0), bytes(data), f"all after {size} at {offset}")


@scenario
def a_write_behind_the_end_leaves_zeros_between(f):
    for gap in (1, 4096, 5000, UNIT, 300_000):
        f.make("file", b"begin")
        fd = f.open("file", os.O_RDWR)
        os.pwrite(fd, b"end", 5 + gap)
        f.same(os.pread(fd, gap + 100, 0), b"begin" + bytes(gap) + b"end", f"gap {gap}")
        f.close(fd)


@scenario
def a_sparse_file_takes_no_room(f):
    fd = f.open("file", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"x", 1 << 40)
    f.same(os.fstat(fd).st_size, (1 << 40) + 1, "size")
    f.true(os.fstat(fd).st_blocks * 512 < 4 << 20, "blocks")
    f.same(os.pread(fd, 4096, 1 << 39), bytes(4096), "a hole")
    f.same(os.pread(fd, 10, 1 << 40), b"x", "the end")


@scenario
def files_have_a_largest_size(f):
    fd = f.open("file", os.O_RDWR | os.O_CREAT)
    f.fails(errno.EINVAL, os.pwrite, fd, b"x", -1)
    size = 0
    try:
        os.pwrite(fd, b"x", 1 << 60)
        size = (1 << 60) + 1
    except OSError as error:
        f.same(error.errno, errno.EFBIG, "errno")
    f.same(os.fstat(fd).st_size, size, "size")


@scenario
def write_moves_the_position(f):
    fd = f.open("file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"0123")
    f.same(os.lseek(fd, 0, os.SEEK_CUR), 4, "position")
    os.lseek(fd, 2, os.SEEK_SET)
    os.write(fd, b"ab")
    f.same(os.pread(fd, 10, 0), b"01ab", "content")
    f.same(os.lseek(fd, -1, os.SEEK_END), 3, "from the end")
    f.same(os.lseek(fd, 10, os.SEEK_END), 14, "behind the end")
    f.fails(errno.EINVAL, os.lseek, fd, -1, os.SEEK_SET)
    f.same(os.fstat(fd).st_size, 4, "lseek changes no size")


@scenario
def vectors_are_read_and_written_as_one(f):
    fd = f.open("file", os.O_RDWR | os.O_CREAT)
    f.same(os.writev(fd, [b"one", b"", b"two"]), 6, "written")
    f.same(os.pwritev(fd, [b"A", b"B"], 1), 2, "written at")
    one, two = bytearray(2), bytearray(10)
    f.same(os.preadv(fd, [one, two], 0), 6, "read")
    f.same(bytes(one + two[:4]), b"oABtwo", "content")


@scenario
def a_write_of_nothing_changes_nothing(f):
    f.make("file", b"data")
    fd = f.open("file", os.O_RDWR)
    f.same(os.write(fd, b""), 0, "written")
    f.same(os.pwrite(fd, b"", 100), 0, "written behind the end")
    f.same(os.fstat(fd).st_size, 4, "size")


@scenario
def random_writes_agree_with_a_model(f):
    chance = random.Random(7)
    model = bytearray()
    fd = f.open("file", os.O_RDWR | os.O_CREAT)
    for step in range(150):
        what = chance.randrange(5)
        offset = chance.randrange(400_000)
        if what <= 2:
            new = chance.randbytes(chance.choice((1, 100, 4096, 10_000, 70_000)))
            model.extend(bytes(max(0, offset + len(new) - len(model))))
            model[offset:offset + len(new)] = new
            os.pwrite(fd, new, offset)
        elif what == 3:
            size = chance.randrange(400_000)
            model.extend(bytes(max(0, size - len(model))))
            del model[size:]
            os.ftruncate(fd, size)
        got = os.pread(fd, 5000, offset)
        f.true(got == bytes(model[offset:offset + 5000]), f"step {step} at {offset}")
    f.same(os.pread(fd, 1_000_000, 0) == bytes(model), True, "all")


@scenario
def truncate_cuts(f):
    data = some_bytes(200_000)
    for size in (0, 1, 4096, 4097, UNIT, UNIT + 1, 199_999):
        f.make("file", data)
        f.works(os.truncate, f("file"), size)
        f.content("file", data[:size])


@scenario
def truncate_grows_with_zeros(f):
    for size in (10, 4096, 5000, UNIT, UNIT + 1, 3_000_000):
        f.make("file", b"begin")
        f.works(os.truncate, f("file"), size)
        f.content("file", b"begin" + bytes(size - 5))


@scenario
def what_truncate_cut_never_comes_back(f):
    data = some_bytes(200_000)
    for cut in (10, 5000, UNIT, 100_001):
        f.make("file", data)
        os.truncate(f("file"), cut)
        os.truncate(f("file"), 200_000)
        f.content("file", data[:cut] + bytes(200_000 - cut))
        f.make("file", data)
        os.truncate(f("file"), cut)
        fd = f.open("file", os.O_WRONLY)
        os.pwrite(fd, b"end", 190_000)
        f.content("file", data[:cut] + bytes(190_000 - cut) + b"end")
        f.close(fd)


@scenario
def truncate_refuses_what_is_no_file(f):
    f.mkdir("d")
    f.fails(errno.EISDIR, os.truncate, f("d"), 0)
    f.fails(errno.ENOENT, os.truncate, f("none"), 0)
    f.make("file")
    f.fails(errno.ENOTDIR, os.truncate, f("file/x"), 0)
    fd = f.open("file", os.O_RDWR)
    f.fails(errno.EINVAL, os.ftruncate, fd, -1)


@scenario
def fallocate_grows_the_file(f):
    f.make("file", b"data")
    fd = f.open("file", os.O_RDWR)
    f.works(fallocate, fd, 0, 0, 300_000)
    f.same(os.fstat(fd).st_size, 300_000, "size")
    f.true(os.fstat(fd).st_blocks * 512 >= 300_000, "blocks")
    f.same(os.pread(fd, 300_000, 0), b"data" + bytes(299_996), "content")
    f.works(fallocate, fd, 0, 0, 10)
    f.same(os.fstat(fd).st_size, 300_000, "it never shrinks")


@scenario
def fallocate_can_keep_the_size(f):
    f.make("file", b"data")
    fd = f.open("file", os.O_RDWR)
    f.works(fallocate, fd, FALLOC_KEEP_SIZE, 0, 1_000_000)
    f.same(os.fstat(fd).st_size, 4, "size")
    f.same(os.pread(fd, 100, 0), b"data", "content")
    os.pwrite(fd, b"x", 500_000)
    f.same(os.pread(fd, 499_996, 4), bytes(499_996), "zeros between")


@scenario
def fallocate_punches_holes(f):
    data = some_bytes(500_000)
    for offset, size in ((0, 100), (100, UNIT), (UNIT, UNIT), (UNIT - 5, UNIT + 10),
                         (100_000, 399_999), (0, 500_000)):
        f.make("file", data)
        fd = f.open("file", os.O_RDWR)
        f.works(fallocate, fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, offset, size)
        wanted = bytearray(data)
        wanted[offset:offset + size] = bytes(min(size, 500_000 - offset))
        f.same(os.pread(fd, 600_000, 0) == bytes(wanted), True, f"content, {size} at {offset}")
        f.same(os.fstat(fd).st_size, 500_000, "size")
        f.close(fd)


@scenario
def a_punched_hole_gives_room_back(f):
    f.make("file", some_bytes(1 << 20))
    fd = f.open("file", os.O_RDWR)
    before = os.fstat(fd).st_blocks
    fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 0, 1 << 19)
    f.true(os.fstat(fd).st_blocks <= before - (1 << 19) // 512 + 8, "blocks")


@scenario
def fallocate_zeroes_or_is_not_supported(f):
    f.make("file", some_bytes(200_000))
    fd = f.open("file", os.O_RDWR)
    try:
        fallocate(fd, FALLOC_ZERO_RANGE, 1000, 100_000)
    except OSError as error:
        f.same(error.errno, errno.EOPNOTSUPP, "errno")
        return
    f.same(os.pread(fd, 100_000, 1000), bytes(100_000), "zeros")
    f.same(os.fstat(fd).st_size, 200_000, "size")


@scenario
def fallocate_refuses_what_makes_no_sense(f):
    f.make("file")
    fd, reader = f.open("file", os.O_RDWR), f.open("file", os.O_RDONLY)
    f.fails(errno.EINVAL, fallocate, fd, 0, -1, 10)
    f.fails(errno.EINVAL, fallocate, fd, 0, 0, 0)
    f.fails(errno.EBADF, fallocate, reader, 0, 0, 10)
    f.fails(errno.EOPNOTSUPP, fallocate, fd, FALLOC_PUNCH_HOLE, 0, 10)
    f.fails(errno.EFBIG, fallocate, fd, 0, (1 << 63) - 10, 100)


@scenario
def seek_finds_data_and_holes(f):
    fd = f.open("file", os.O_RDWR | os.O_CREAT)
    f.fails(errno.ENXIO, os.lseek, fd, 0, os.SEEK_DATA)
    os.pwrite(fd, bytes(range(256)) * 512, 4 << 20)
    size = (4 << 20) + 131_072
    data = f.works(os.lseek, fd, 0, os.SEEK_DATA)
    f.true(data <= 4 << 20, "data begins not too late")
    f.true(os.lseek(fd, 4 << 20, os.SEEK_DATA) == 4 << 20, "data at data")
    hole = os.lseek(fd, 4 << 20, os.SEEK_HOLE)
    f.true((4 << 20) < hole <= size, "a hole at the end, at the latest")
    f.fails(errno.ENXIO, os.lseek, fd, size, os.SEEK_DATA)
    f.fails(errno.ENXIO, os.lseek, fd, size + 1, os.SEEK_HOLE)


@scenario
def sync_calls_succeed(f):
    fd = f.open("file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"data")
    f.works(os.fsync, fd)
    f.works(os.fdatasync, fd)
    f.works(os.fsync, f.open(".", os.O_RDONLY))
    for flag in (os.O_SYNC, os.O_DSYNC):
        other = f.open("file", os.O_RDWR | flag)
        f.same(os.write(other, b"more"), 4, "written")


@scenario
def a_private_map_shows_the_file(f):
    data = some_bytes(300_000)
    f.make("file", data)
    fd = f.open("file", os.O_RDONLY)
    with mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as pages:
        f.same(pages[:] == data, True, "content")
    with mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as pages:
        pages[0:4] = b"mine"
        f.same(pages[0:4], b"mine", "own pages")
    f.same(os.pread(fd, 4, 0), data[:4], "the file is unchanged")


@scenario
def copies_inside_the_kernel(f):
    data = some_bytes(2_000_000)
    f.make("file", data)
    source = f.open("file", os.O_RDONLY)
    target = f.open("copy", os.O_RDWR | os.O_CREAT)
    done = 0
    while done < len(data):
        done += f.works(os.copy_file_range, source, target, len(data) - done)
    f.content("copy", data)
    sent = f.open("sent", os.O_RDWR | os.O_CREAT)
    done = 0
    while done < len(data):
        done += f.works(os.sendfile, sent, source, done, len(data) - done)
    f.content("sent", data)


def locked_elsewhere(path, lock, kind):
    """Whether another process gets the lock."""
    child = os.fork()
    if child == 0:
        fd = os.open(path, os.O_RDWR)
        try:
            lock(fd, kind | fcntl.LOCK_NB)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


@scenario
def flock_excludes_others(f):
    path = f.make("file")
    one, two = f.open("file", os.O_RDWR), f.open("file", os.O_RDWR)
    f.works(fcntl.flock, one, fcntl.LOCK_EX)
    f.fails(errno.EAGAIN, fcntl.flock, two, fcntl.LOCK_EX | fcntl.LOCK_NB)
    f.fails(errno.EAGAIN, fcntl.flock, two, fcntl.LOCK_SH | fcntl.LOCK_NB)
    f.true(locked_elsewhere(path, fcntl.flock, fcntl.LOCK_EX), "another process has to wait")
    f.works(fcntl.flock, one, fcntl.LOCK_SH)
    f.works(fcntl.flock, two, fcntl.LOCK_SH | fcntl.LOCK_NB)
    f.works(fcntl.flock, one, fcntl.LOCK_UN)
    f.works(fcntl.flock, two, fcntl.LOCK_EX | fcntl.LOCK_NB)
    f.close(two)
    f.works(fcntl.flock, one, fcntl.LOCK_EX | fcntl.LOCK_NB)


@scenario
def fcntl_locks_exclude_other_processes(f):
    path = f.make("file", b"0123456789")
    fd = f.open("file", os.O_RDWR)

    def taken(first, size, kind=fcntl.LOCK_EX):
        return locked_elsewhere(path, lambda d, k: fcntl.lockf(d, k, size, first), kind)

    f.works(fcntl.lockf, fd, fcntl.LOCK_EX, 4, 2)
    f.true(taken(2, 4), "the range")
    f.true(taken(5, 10), "what touches it")
    f.true(not taken(0, 2), "what is before it")
    f.true(not taken(6, 0), "what is behind it")
    f.works(fcntl.lockf, fd, fcntl.LOCK_UN, 2, 3)
    f.true(not taken(3, 2), "the middle is free")
    f.true(taken(2, 1) and taken(5, 1), "both sides are not")
    f.works(fcntl.lockf, fd, fcntl.LOCK_UN)
    f.works(fcntl.lockf, fd, fcntl.LOCK_SH)
    f.true(taken(0, 1) and not taken(0, 1, fcntl.LOCK_SH), "shared")


@scenario
def fcntl_locks_end_with_any_close(f):
    path = f.make("file")
    fd = f.open("file", os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    other = f.open("file", os.O_RDWR)
    f.true(locked_elsewhere(path, fcntl.lockf, fcntl.LOCK_EX), "locked")
    f.close(other)
    f.true(not locked_elsewhere(path, fcntl.lockf, fcntl.LOCK_EX), "free")
