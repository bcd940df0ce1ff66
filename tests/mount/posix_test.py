#!/usr/bin/env python3
"""usage: posix_test.py BIN: the rules of POSIX on mounts, as on a file system of the kernel."""

import json
import os
import subprocess
import sys
import unittest

from mounted import PATIENCE, MountedTest, why_not

HERE = os.path.dirname(os.path.abspath(__file__))
ENOUGH = 400  # assertions


def rules(directory, *scenarios):
    done = subprocess.run([sys.executable, os.path.join(HERE, "posix_run.py"), directory,
                           *scenarios], timeout=PATIENCE, capture_output=True, check=False)
    text = done.stdout.decode() + done.stderr.decode()
    return done.returncode, text, json.loads(done.stdout.splitlines()[-1])


class Posix(MountedTest):
    def test_the_rules_are_those_of_a_file_system_of_the_kernel(self):
        if not os.path.isdir("/dev/shm"):
            self.skipTest("no tmpfs at /dev/shm")
        status, text, _ = rules("/dev/shm")
        self.assertEqual(status, 0, text)

    def check(self, directory, *scenarios):
        status, text, said = rules(directory, *scenarios)
        self.assertEqual(status, 0, text)
        self.assertGreaterEqual(said["assertions"], ENOUGH)

    def test_a_mount(self):
        self.check(self.mounted_pool()[0])

    def test_a_single_mount(self):
        # A read of what the kernel has in memory is not noticed (docs/mount.md).
        self.check(self.mounted_pool("allow_other,single")[0], "-reads_change_atime")

    def test_a_mount_that_is_durable_at_fsync(self):
        self.check(self.mounted_pool("allow_other,sync=fsync")[0])

    def test_a_mount_whose_writes_are_atomic(self):
        self.check(self.mounted_pool("allow_other,atomic")[0])

    def test_a_mount_without_a_server(self):
        self.make_pool()
        directory, process = self.mount(uri="local:" + self.pool)
        self.check(directory)
        self.unmount(directory, process)
        self.good("fs", "check", "--uri", "local:" + self.pool)


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(f"SKIPPED: {reason}")
        sys.exit(77)
    MountedTest.bin = sys.argv.pop(1)
    unittest.main()
