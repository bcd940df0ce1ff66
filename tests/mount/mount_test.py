#!/usr/bin/env python3
"""usage: mount_test.py BIN: mounting, unmounting, several mounts, and servers that go away."""

import contextlib
import errno
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import unittest

from mounted import PATIENCE, MountedTest, until, why_not


def is_mounted(directory):
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        return any(line.split()[4] == directory for line in table)


def options_of(directory):
    with open("/proc/self/mounts", encoding="utf-8") as table:
        words = [line.split() for line in table]
    return [word for word in words if word[1] == directory][-1]


class Mounting(MountedTest):
    def directory(self, name="mnt"):
        path = os.path.join(self.folder, name)
        os.makedirs(path, exist_ok=True)
        return path

    def in_background(self, directory, *options):
        done = self.pmstore("fs", "mount", self.uri, directory, *options)
        self.addCleanup(subprocess.run, ["umount", "-l", directory], capture_output=True,
                        check=False)
        return done

    def assert_refused(self, done, pattern):
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
        self.assertRegex(done.stderr.decode(), "^pmstore: fs mount '.*': .*" + pattern)
        self.assertEqual(done.stdout, b"")

    def test_in_the_background_it_says_nothing_and_can_be_used_at_once(self):
        self.make_pool()
        self.serve()
        mnt = self.directory()
        for _ in range(3):
            done = self.in_background(mnt)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))
            with open(os.path.join(mnt, "file"), "ab") as file:
                file.write(b"x")
            subprocess.run(["fusermount3", "-u", mnt], timeout=PATIENCE, check=True)
            self.assertFalse(is_mounted(mnt))
        self.assertEqual(self.good("fs", "cat", "--uri", self.uri, "/file"), b"xxx")

    def test_what_mount_tables_show(self):
        mnt, _ = self.mounted_pool("ro,nosuid,nodev,noexec,noatime,_netdev")
        source, _, kind, options, *_ = options_of(mnt)
        self.assertEqual((source, kind), (self.uri, "fuse.pmstore"))
        self.assertLessEqual({"ro", "nosuid", "nodev", "noexec"}, set(options.split(",")))
        with self.assertRaises(OSError) as raised:
            os.mkdir(os.path.join(mnt, "d"))
        self.assertEqual(raised.exception.errno, errno.EROFS)

    def test_what_cannot_be_mounted_is_one_line(self):
        self.make_pool()
        self.serve()
        mnt, _ = self.mount()
        self.assert_refused(self.in_background(mnt), "something is mounted there already")
        self.assert_refused(self.in_background(os.path.join(self.folder, "none")),
                            "No such file or directory")
        self.assert_refused(self.in_background(self.pool), "it is no directory")
        self.uri = "tcp://127.0.0.1:1"
        other = self.directory("other")
        self.assert_refused(self.in_background(other, "--timeout", "2"), "")
        self.assertFalse(is_mounted(other))

    def test_a_pool_without_room_for_files_is_refused(self):
        self.good("pool", "create", self.pool, "--size", "64M")
        self.serve()
        self.assert_refused(self.in_background(self.directory()), "--file-bytes")

    def test_wrong_options_are_wrong_usage(self):
        for option in ("nonsense", "timeo=x", "timeo=-1", "remount", "attr_timeout", "sync=maybe",
                       "sync,sync=fsync"):
            done = self.pmstore("fs", "mount", "tcp://127.0.0.1:1", self.directory(), "-o", option)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(option.split(",")[0].encode(), done.stderr)

    def test_the_helper_of_mount(self):
        self.make_pool()
        self.serve()
        mnt = self.directory()
        helper = os.path.join(os.path.dirname(__file__), "../../tools/mount/mount.pmstore")
        self.addCleanup(subprocess.run, ["umount", "-l", mnt], capture_output=True, check=False)
        done = subprocess.run([helper, self.uri, mnt, "-n", "-o", "rw,nofail,x-systemd.automount"],
                              env={**os.environ, "PATH": self.bin + ":" + os.environ["PATH"]},
                              timeout=PATIENCE, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertTrue(is_mounted(mnt))

    def test_sigterm_unmounts(self):
        mnt, process = self.mounted_pool()
        fd = os.open(os.path.join(mnt, "file"), os.O_WRONLY | os.O_CREAT)
        os.write(fd, b"data")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE), 0)
        with self.assertRaises(OSError) as raised:
            os.close(fd)
        self.assertEqual(raised.exception.errno, errno.ENOTCONN)
        self.assertFalse(is_mounted(mnt))
        self.assertEqual(self.good("fs", "cat", "--uri", self.uri, "/file"), b"data")

    def test_a_directory_with_strange_characters(self):
        self.make_pool()
        self.serve()
        mnt, process = self.mount("a b,c\\d\u00e4")
        os.mkdir(os.path.join(mnt, "d"))
        self.assert_refused(self.in_background(mnt), "something is mounted there already")
        self.unmount(mnt, process)


class OneMount(MountedTest):
    def calls(self):
        return json.loads(self.good("stat", "--uri", self.uri, "--json"))["store"]["files"]["calls"]

    def test_a_listing_brings_the_attributes_that_the_kernel_may_believe(self):
        self.make_pool()
        self.serve()
        mnt, _ = self.mount(options="attr_timeout=600,entry_timeout=600")
        names = [f"file{i:02}" for i in range(20)]  # in one page of the kernel
        for i, name in enumerate(names):
            self.good("fs", "put", "--uri", self.uri, "-", "/" + name, stdin=b"x" * i)
        self.assertEqual(sorted(os.listdir(mnt)), names)
        before = self.calls()
        for i, name in enumerate(names):
            at = os.lstat(os.path.join(mnt, name))
            self.assertEqual((at.st_size, at.st_nlink, stat.S_ISREG(at.st_mode)), (i, 1, True))
        self.assertLess(self.calls() - before, len(names) // 2)

    def test_times_that_have_no_number_are_those_at_the_ends(self):
        self.make_pool()
        self.serve()
        mnt, _ = self.mount()
        path = os.path.join(mnt, "file")
        with open(path, "wb"):
            pass
        last = 18_446_744_072
        for given, kept in ((-1, 0), (last, last), (last + 1, last), (2 ** 40, last)):
            os.utime(path, (given, given))
            at = os.stat(path)
            self.assertEqual((at.st_atime_ns, at.st_mtime_ns), (kept * 10 ** 9, kept * 10 ** 9))


class SeveralMounts(MountedTest):
    def test_what_one_has_done_the_other_sees_at_once(self):
        one, _ = self.mounted_pool()
        two, _ = self.mount("two")
        for i in range(100):
            with open(os.path.join(one, "file"), "ab") as file:
                file.write(b"1")
            with open(os.path.join(two, "file"), "ab") as file:
                file.write(b"2")
            self.assertEqual(os.stat(os.path.join(one, "file")).st_size, 2 * i + 2)
        with open(os.path.join(two, "file"), "rb") as file:
            self.assertEqual(file.read(), b"12" * 100)
        os.rename(os.path.join(one, "file"), os.path.join(one, "new"))
        self.assertEqual(os.listdir(two), ["new"])
        os.unlink(os.path.join(two, "new"))
        self.assertEqual(os.listdir(one), [])

    def test_open_files_of_both_see_each_others_writes(self):
        one, _ = self.mounted_pool()
        two, _ = self.mount("two")
        a = os.open(os.path.join(one, "file"), os.O_RDWR | os.O_CREAT)
        b = os.open(os.path.join(two, "file"), os.O_RDWR)
        self.addCleanup(os.close, a)
        self.addCleanup(os.close, b)
        for size in (10, 5000, 300_000):
            os.pwrite(a, b"x" * size, 0)
            self.assertEqual(os.pread(b, size + 1, 0), b"x" * size)
            os.pwrite(b, b"y" * size, 0)
            self.assertEqual(os.pread(a, size + 1, 0), b"y" * size)
            os.ftruncate(a, 3)
            self.assertEqual(os.pread(b, size, 0), b"yyy")

    def test_appends_of_both_never_overlap(self):
        one, _ = self.mounted_pool()
        two, _ = self.mount("two")
        with open(os.path.join(one, "log"), "wb"):
            pass

        def append(folder, letter):
            fd = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_APPEND)
            for _ in range(200):
                os.write(fd, letter * 100)
            os.close(fd)

        threads = [threading.Thread(target=append, args=(folder, letter))
                   for folder, letter in ((one, b"1"), (two, b"2"), (one, b"3"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with open(os.path.join(two, "log"), "rb") as file:
            data = file.read()
        pieces = [data[i:i + 100] for i in range(0, len(data), 100)]
        self.assertEqual(sorted(set(pieces)), [b"1" * 100, b"2" * 100, b"3" * 100])
        self.assertEqual(len(pieces), 600)

    def test_a_file_that_the_other_unlinks_stays_while_it_is_open(self):
        one, _ = self.mounted_pool()
        two, _ = self.mount("two")
        with open(os.path.join(one, "file"), "w+b", buffering=0) as file:
            file.write(b"data" * 5000)
            os.unlink(os.path.join(two, "file"))
            file.seek(0)
            self.assertEqual(file.read(), b"data" * 5000)
            self.assertEqual(os.fstat(file.fileno()).st_nlink, 0)
        self.good("fs", "check", "--uri", self.uri)


    def locked(self, path, lock):
        """Whether another process finds it locked."""
        done = subprocess.run([sys.executable, "-c",
                               "import fcntl, sys; f = open(sys.argv[1], 'r+b');"
                               f"fcntl.{lock}(f, fcntl.LOCK_EX | fcntl.LOCK_NB)", path],
                              stderr=subprocess.DEVNULL, timeout=PATIENCE, check=False)
        return done.returncode != 0

    def test_locks_of_one_keep_the_other_out(self):
        one, process = self.mounted_pool()
        two, _ = self.mount("two")
        path = os.path.join(two, "file")
        for lock in ("flock", "lockf"):
            with open(os.path.join(one, "file"), "w+b") as file:
                getattr(fcntl, lock)(file, fcntl.LOCK_EX)
                self.assertTrue(self.locked(path, lock))
                getattr(fcntl, lock)(file, fcntl.LOCK_UN)
                self.assertFalse(self.locked(path, lock))
                getattr(fcntl, lock)(file, fcntl.LOCK_EX)
            self.assertFalse(self.locked(path, lock))
        holder = open(os.path.join(one, "file"), "r+b")
        fcntl.flock(holder, fcntl.LOCK_EX)
        self.assertTrue(self.locked(path, "flock"))
        process.kill()
        until(lambda: not self.locked(path, "flock"), "the locks of a dead mount are free")
        with contextlib.suppress(OSError):
            holder.close()

    def test_who_waits_for_a_lock_gets_it_or_can_be_ended(self):
        one, _ = self.mounted_pool()
        two, _ = self.mount("two")
        script = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.flock(f, fcntl.LOCK_EX)"
        with open(os.path.join(one, "file"), "w+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            waiting = [subprocess.Popen([sys.executable, "-c", script, os.path.join(two, "file")])
                       for _ in range(2)]
            with self.assertRaises(subprocess.TimeoutExpired):
                waiting[0].wait(1)
            waiting[0].kill()
            self.assertEqual(waiting[0].wait(PATIENCE), -signal.SIGKILL)
            self.assertIsNone(waiting[1].poll())
        self.assertEqual(waiting[1].wait(PATIENCE), 0)


class WaysToWrite(MountedTest):
    SIZE = 300_000

    def written(self, directory):
        path = os.path.join(directory, "file")
        with open(path, "wb") as file:
            file.write(b"0" * self.SIZE)
        return path

    # Of its own: a server that inherits the open file would wait for itself when it closes it.
    WRITER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | int(sys.argv[3]))
os.pwrite(fd, b"1" * 4096, 8192)
print("written", flush=True)
sys.stdin.readline()
try:
    getattr(os, sys.argv[2])(fd)
except OSError as error:
    sys.exit(error.errno)
"""

    def loses(self, path, ends, flags=0):
        """Whether os.fsync or os.close hears that what was written before it may be lost."""
        writer = subprocess.Popen([sys.executable, "-c", self.WRITER, path, ends, str(flags)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(writer.kill)
        self.assertEqual(writer.stdout.readline(), b"written\n")
        self.end_server()
        self.serve()
        writer.communicate(b"\n", timeout=PATIENCE)
        self.assertIn(writer.returncode, (0, errno.EIO))
        return writer.returncode != 0

    def test_with_sync_fsync_a_lost_write_is_said_once(self):
        path = self.written(self.mounted_pool("allow_other,sync=fsync")[0])
        # What was written a second ago is durable already.
        until(lambda: self.loses(path, "fsync"), "an fsync that hears of a loss")
        until(lambda: self.loses(path, "close"), "a close that hears of a loss")
        self.assertFalse(self.loses(path, "fsync", os.O_DSYNC))
        with open(path, "r+b") as file:
            os.fsync(file.fileno())
            self.assertEqual(file.read(8192), b"0" * 8192)

    def test_with_sync_always_nothing_is_lost(self):
        path = self.written(self.mounted_pool()[0])
        self.assertFalse(self.loses(path, "fsync"))
        self.assertFalse(self.loses(path, "close"))

    def test_atomic_writes_are_read_as_a_whole(self):
        path = self.written(self.mounted_pool("allow_other,atomic")[0])
        other = os.path.join(self.mount("two", "allow_other,atomic")[0], "file")
        letters = [bytes([ord("a") + number]) for number in range(20)]

        def writes():
            with open(path, "r+b", buffering=0) as file:
                for letter in letters:
                    os.pwrite(file.fileno(), letter * self.SIZE, 0)

        writer = threading.Thread(target=writes)
        writer.start()
        with open(other, "rb", buffering=0) as file:
            while writer.is_alive():
                found = os.pread(file.fileno(), self.SIZE, 0)
                self.assertEqual(found, found[:1] * self.SIZE)
            writer.join()
            self.assertEqual(os.pread(file.fileno(), self.SIZE, 0), letters[-1] * self.SIZE)


class LostServers(MountedTest):
    def test_a_hard_mount_goes_on_after_the_server_was_killed(self):
        mnt, _ = self.mounted_pool("allow_other,hard")
        written, stop = [], threading.Event()

        def write():
            while not stop.is_set():
                name = f"file{len(written)}"
                with open(os.path.join(mnt, name), "wb") as file:
                    file.write(name.encode() * 1000)
                written.append(name)

        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(3):
            before = len(written)
            until(lambda: len(written) > before + 20, "files are written")
            self.end_server()
            time.sleep(0.2)
            self.serve()
        before = len(written)
        until(lambda: len(written) > before + 20, "files are written again")
        stop.set()
        writer.join(PATIENCE)
        self.assertFalse(writer.is_alive())
        for name in written:
            with open(os.path.join(mnt, name), "rb") as file:
                self.assertEqual(file.read(), name.encode() * 1000, name)
        self.assertEqual(sorted(os.listdir(mnt)), sorted(written))
        self.good("fs", "check", "--uri", self.uri)

    def test_open_files_survive_the_server(self):
        mnt, _ = self.mounted_pool("allow_other,hard")
        with open(os.path.join(mnt, "gone"), "w+b", buffering=0) as file:
            file.write(b"data" * 50_000)
            os.unlink(os.path.join(mnt, "gone"))
            self.end_server()
            self.serve()
            file.write(b"more")
            file.seek(0)
            self.assertEqual(file.read(), b"data" * 50_000 + b"more")
        self.assertEqual(os.listdir(mnt), [])

    def test_a_soft_mount_fails_with_eio(self):
        mnt, process = self.mounted_pool("allow_other,soft,timeo=0.5")
        os.mkdir(os.path.join(mnt, "d"))
        self.end_server()
        for call in (os.listdir, os.stat, lambda p: os.mkdir(os.path.join(p, "new"))):
            with self.assertRaises(OSError) as raised:
                call(os.path.join(mnt, "d"))
            self.assertEqual(raised.exception.errno, errno.EIO)
        self.serve()
        until(lambda: os.access(os.path.join(mnt, "d"), os.F_OK), "the server is found again")
        self.unmount(mnt, process)

    def test_a_program_that_waits_can_be_ended(self):
        mnt, _ = self.mounted_pool("allow_other,hard")
        self.end_server()
        waiting = subprocess.Popen(["ls", mnt], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        with self.assertRaises(subprocess.TimeoutExpired):
            waiting.wait(1)
        waiting.kill()
        self.assertEqual(waiting.wait(PATIENCE), -signal.SIGKILL)

    def test_a_mount_without_its_server_can_be_unmounted(self):
        mnt, process = self.mounted_pool("allow_other,hard")
        self.end_server()
        self.unmount(mnt, process)


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(f"SKIPPED: {reason}")
        sys.exit(77)
    MountedTest.bin = sys.argv.pop(1)
    unittest.main()
