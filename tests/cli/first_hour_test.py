#!/usr/bin/env python3
"""usage: first_hour_test.py BIN: what people meet in their first hour with the programs in BIN."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

BIN = ""


def program(name):
    return os.path.join(BIN, name)


def run(*arguments, stdin=b""):
    return subprocess.run([program("pmstore"), *arguments], input=stdin, timeout=300,
                          capture_output=True, check=False)


def shell(command, **variables):
    """Runs a command that closes descriptors as a shell does."""
    return subprocess.run(["bash", "-c", command], timeout=300, capture_output=True, check=False,
                          env={**os.environ, "BIN": BIN, **variables})


class FirstHour(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-first.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.pool = os.path.join(self.folder, "pool")
        self.uri = "local:" + self.pool

    def make_pool(self):
        done = run("pool", "create", self.pool, "--size", "64M")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_closed_standard_input_is_not_taken_for_an_empty_one(self):
        self.make_pool()
        done = run("log", "create", "--uri", self.uri, "numbers", "--bytes", "1M")
        self.assertEqual(done.returncode, 0, done.stderr)
        for command in ("log append --uri $URI numbers", "kv put --uri $URI name -",
                        "kv txn --uri $URI"):
            done = shell(f'"$BIN/pmstore" {command} <&-', URI=self.uri)
            self.assertEqual(done.returncode, 1, (command, done))
            self.assertRegex(done.stderr.decode(), "^pmstore: .*Bad file descriptor")
        done = run("log", "read", "--uri", self.uri, "numbers")
        self.assertEqual((done.returncode, done.stdout), (0, b""), done)
        self.assertEqual(run("kv", "get", "--uri", self.uri, "name").returncode, 1)

    def test_output_that_cannot_be_written_is_a_failure(self):
        self.make_pool()
        value = "v" * 100000  # more than is kept in memory
        done = run("kv", "put", "--uri", self.uri, "name", value)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run("log", "append", "--uri", self.uri, "lines", "--create", value)
        self.assertEqual(done.returncode, 0, done.stderr)
        for command in ("kv scan --uri $URI", "kv scan --uri $URI --json",
                        "kv get --uri $URI name --raw", "log read --uri $URI lines --json",
                        "log follow --uri $URI lines --wait 0", "--help", "--version"):
            for where in ("/dev/full", "&-"):
                done = shell(f'"$BIN/pmstore" {command} >{where}', URI=self.uri)
                self.assertEqual(done.returncode, 1, (command, where, done))
                self.assertRegex(done.stderr.decode(), "^pmstore: cannot write to standard output")

    def test_follow_that_waits_for_nothing_ends_behind_what_is_there(self):
        self.make_pool()
        done = run("log", "append", "--uri", self.uri, "lines", "--create", "one")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run("log", "follow", "--uri", self.uri, "lines", "--wait", "0")
        self.assertEqual((done.returncode, done.stdout), (0, b"one\n"), done)

    def test_closed_standard_outputs_do_no_harm(self):
        self.make_pool()
        done = shell('"$BIN/pmstore" kv put --uri "$URI" name value <&- >&- 2>&-', URI=self.uri)
        self.assertEqual(done.returncode, 0)
        with subprocess.Popen(["bash", "-c", 'exec "$BIN/pmstored" --pool "$POOL" '
                               '--listen "shm://first-hour-$$" <&- >&- 2>&-'],
                              env={**os.environ, "BIN": BIN, "POOL": self.pool}) as daemon:
            uri = f"shm://first-hour-{daemon.pid}"
            served = shell('for i in {1..600}; do "$BIN/pmstore" kv get --uri "$URI" name && break;'
                           ' sleep 0.1; done 2>/dev/null', URI=uri)
            daemon.send_signal(signal.SIGTERM)
            self.assertEqual(daemon.wait(60), 0)
        self.assertEqual(served.stdout.strip(), b"value", served)

    def serve(self, *options):
        daemon = subprocess.Popen(
            [program("pmstored"), "--pool", self.pool, "--listen", "tcp://127.0.0.1:0", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: (daemon.kill(), daemon.communicate()))
        first = daemon.stdout.readline().decode()
        return daemon, re.search(r"tcp://[0-9.:]+", first)[0]

    def test_a_pool_whose_file_is_cut_short_ends_the_daemon_with_one_line(self):
        self.make_pool()
        daemon, uri = self.serve("--log-level", "error")
        os.truncate(self.pool, 1 << 20)
        run("kv", "put", "--uri", uri, "--timeout", "2", "name", "value")
        self.assertEqual(daemon.wait(60), 1)
        self.assertRegex(daemon.stderr.read().decode(),
                         rf"^pmstored: pool '{self.pool}': byte [0-9]+ has no memory: .*\n$")

    def in_a_small_tmpfs(self, command, size="48M"):
        """Runs it in a mount namespace where the test's folder is a tmpfs of that size."""
        if shell("unshare -m true").returncode != 0:
            self.skipTest("no right to make a mount namespace")
        return shell(f"unshare -m bash -c 'mount -t tmpfs -o size={size} none {self.folder} && "
                     f"{command}'", POOL=self.pool)

    def test_a_pool_that_does_not_fit_its_tmpfs_is_refused_when_it_is_made(self):
        done = self.in_a_small_tmpfs('"$BIN/pmstore" pool create "$POOL" --size 64M')
        self.assertEqual((done.returncode, done.stderr.count(b"\n")), (1, 1), done)
        self.assertIn(b"free some, or make a smaller pool", done.stderr)

    def test_a_large_pool_is_made_with_what_one_extent_can_hold_for_logs(self):
        for size in ("128G", "1T"):
            made = self.in_a_small_tmpfs(
                f'"$BIN/pmstore" pool create "$POOL" --size {size} --sparse && '
                '"$BIN/pmstore" pool check "$POOL"', size="2T")
            self.assertEqual((made.returncode, made.stderr), (0, b""), made)
        wanted = self.in_a_small_tmpfs(
            '"$BIN/pmstore" pool create "$POOL" --size 128G --sparse --log-bytes 20G', size="2T")
        self.assertEqual((wanted.returncode, wanted.stderr.count(b"\n")), (1, 1), wanted)
        self.assertIn(b"one extent, so at most 16 GiB", wanted.stderr)

    def test_a_full_tmpfs_does_no_harm_to_a_pool_with_reserved_blocks(self):
        make = '"$BIN/pmstore" pool create "$POOL" --size 32M'
        fill = '{ head -c 64M /dev/zero >"$POOL.other" || true; } 2>/dev/null'
        use = ('for i in {1..50}; do head -c 120K /dev/zero | '
               '"$BIN/pmstore" kv put --uri "local:$POOL" "$i" - || exit; done')
        done = self.in_a_small_tmpfs(f"{make} && {fill} && {use}")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        sparse = self.in_a_small_tmpfs(f"{make} --sparse && {fill} && {use}")
        self.assertEqual((sparse.returncode, sparse.stderr.count(b"\n")), (1, 1), sparse)
        self.assertRegex(sparse.stderr.decode(), "^pmstore: pool '.*': byte [0-9]+ has no memory: "
                                                 "its file system is full")


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    unittest.main(argv=sys.argv[:1])
