#!/usr/bin/env python3
"""usage: delegations_test.py BIN: what two mounts of one file system see of each other's files."""

import errno
import fcntl
import json
import mmap
import os
import signal
import sys
import time
import traceback
import unittest

from mounted import MountedTest, why_not


class Delegations(MountedTest):
    def calls(self):
        """How many the server has answered."""
        said = json.loads(self.good("stat", "--uri", self.uri, "--json"))
        return said["store"]["files"]["calls"]

    def two_mounts(self, data):
        one, _ = self.mounted_pool()
        two, process = self.mount("two")
        with open(os.path.join(one, "file"), "wb") as file:
            file.write(data)
        return os.path.join(one, "file"), os.path.join(two, "file"), process

    def open(self, path, flags):
        fd = os.open(path, flags)
        self.addCleanup(os.close, fd)
        return fd

    def test_what_is_cached_is_read_without_the_server(self):
        one, two, _ = self.two_mounts(b"1" * 200_000)
        readers = [self.open(one, os.O_RDONLY), self.open(two, os.O_RDONLY)]
        for reader in readers:
            self.assertEqual(os.pread(reader, 200_000, 0), b"1" * 200_000)
        before, begun = self.calls(), time.monotonic()
        for _ in range(1000):
            for reader in readers:
                self.assertEqual(os.pread(reader, 4096, 50_000), b"1" * 4096)
        # Each mount asks for news a few times a second.
        self.assertLess(self.calls() - before, 20 + 10 * (time.monotonic() - begun))

    def test_what_was_read_is_kept_over_close_and_open(self):
        # A small file lies in its inode, so that each read of the mount is a call.
        one, _, _ = self.two_mounts(b"1" * 3000)

        def open_often(reads):
            before = self.calls()
            for _ in range(200):
                fd = os.open(one, os.O_RDONLY)
                if reads:
                    self.assertEqual(os.pread(fd, 3000, 0), b"1" * 3000)
                os.close(fd)
            return self.calls() - before

        open_often(True)
        # The mount asks for news, too, while files are open.
        self.assertLess(open_often(True) - open_often(False), 100)

    def test_what_another_mount_has_written_is_not_kept(self):
        one, two, _ = self.two_mounts(b"0" * 200_000)
        paths = [one, two]
        times = os.stat(one)
        for i in range(60):
            for path in paths:
                for _ in range(2):
                    with open(path, "rb") as file:
                        self.assertEqual(file.read(), b"%d" % (i % 10) * 200_000)
            with open(paths[i % 2], "r+b") as file:
                file.write(b"%d" % ((i + 1) % 10) * 200_000)
            # Otherwise the kernel forgets what it has read for the new time alone.
            os.utime(paths[i % 2], ns=(times.st_atime_ns, times.st_mtime_ns))

    def test_a_writer_of_another_mount_is_seen_at_once(self):
        one, two, _ = self.two_mounts(b"1" * 200_000)
        reader = self.open(one, os.O_RDWR)
        os.pwrite(reader, b"2" * 8192, 0)
        self.assertEqual(os.pread(reader, 9000, 0), b"2" * 8192 + b"1" * 808)
        writer = self.open(two, os.O_RDWR)
        self.assertEqual(os.pread(writer, 9000, 0), b"2" * 8192 + b"1" * 808)
        for i in range(200):
            text = b"%08d" % i
            os.pwrite(writer, text, 16)
            self.assertEqual(os.pread(reader, 8, 16), text)
            os.pwrite(reader, text, 4100)
            self.assertEqual(os.pread(writer, 8, 4100), text)
        os.ftruncate(writer, 20)
        self.assertEqual(os.pread(reader, 9000, 0), b"2" * 16 + b"0000")

    def test_appends_are_read_where_they_are(self):
        one, two, _ = self.two_mounts(b"")
        files = [self.open(one, os.O_RDWR | os.O_APPEND), self.open(two, os.O_RDWR | os.O_APPEND)]
        readers = [self.open(one, os.O_RDONLY), self.open(two, os.O_RDONLY)]
        expected = b""
        for i in range(100):
            line = b"line %d\n" % i * 20
            os.write(files[i % 2], line)
            expected += line
            for reader in readers:
                self.assertEqual(os.pread(reader, 100_000, 0), expected)

    def test_who_has_a_lock_reads_what_was_written_under_it(self):
        one, two, _ = self.two_mounts(b"%08d" % 0 * 1000)

        def count(path):
            fd = os.open(path, os.O_RDWR)
            with mmap.mmap(fd, 8, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as pages:
                for _ in range(100):
                    fcntl.lockf(fd, fcntl.LOCK_EX)
                    number = int(os.pread(fd, 8, 0))
                    self.assertEqual(pages[:8], b"%08d" % number)
                    os.pwrite(fd, b"%08d" % (number + 1), 0)
                    fcntl.lockf(fd, fcntl.LOCK_UN)
            os.close(fd)

        # Processes, since locks of ranges are theirs.
        children = []
        for path in (one, two):
            pid = os.fork()
            if pid == 0:
                try:
                    count(path)
                    os._exit(0)
                except BaseException:  # pylint: disable=broad-exception-caught
                    traceback.print_exc()
                    os._exit(1)
            children.append(pid)
        for pid in children:
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
        with open(one, "rb") as file:
            self.assertEqual(file.read(8), b"00000200")

    def test_no_map_is_shared_and_written(self):
        one, _, _ = self.two_mounts(b"1" * 10_000)
        writer = self.open(one, os.O_RDWR)
        with self.assertRaises(OSError) as raised:
            mmap.mmap(writer, 10_000)
        self.assertEqual(raised.exception.errno, errno.ENODEV)
        reader = self.open(one, os.O_RDONLY)
        with mmap.mmap(reader, 10_000, prot=mmap.PROT_READ) as pages:
            self.assertEqual(pages[:10], b"1" * 10)

    def test_a_mount_that_has_stopped_keeps_nobody_out_for_ever(self):
        one, two, process = self.two_mounts(b"1" * 10_000)
        stopped = self.open(two, os.O_RDONLY)
        self.assertEqual(os.pread(stopped, 10, 0), b"1" * 10)
        process.send_signal(signal.SIGSTOP)
        try:
            writer = self.open(one, os.O_RDWR)
            os.pwrite(writer, b"2" * 10, 0)
        finally:
            process.send_signal(signal.SIGCONT)
        self.assertEqual(os.pread(stopped, 10, 0), b"2" * 10)


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(f"SKIPPED: {reason}")
        sys.exit(77)
    MountedTest.bin = sys.argv.pop(1)
    unittest.main()
