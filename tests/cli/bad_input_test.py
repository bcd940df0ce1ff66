#!/usr/bin/env python3
"""usage: bad_input_test.py BIN: what pmstore and pmstored refuse: one line, status 1 or 2, and
everything as it was."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

BIN = ""
TABLE_ENTRIES = 1024  # in the root area, docs/store.md
POOL_HEADER_AND_TABLE = 256 + 64 * 32  # before the root area, docs/pool.md


def run(*arguments, program="pmstore", stdin=b""):
    environment = {k: v for k, v in os.environ.items() if k != "PMSTORE_URI"}
    return subprocess.run([os.path.join(BIN, program), *arguments], input=stdin, timeout=300,
                          capture_output=True, env=environment, check=False)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class BadInput(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-bad.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.pool = os.path.join(self.folder, "pool")
        self.local = ["--uri", "local:" + self.pool]

    def ok(self, *arguments, **options):
        done = run(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def assert_fails(self, done, status, pattern):
        self.assertEqual(done.returncode, status, done)
        text = done.stderr.decode()
        self.assertEqual(text.count("\n"), 1, text)
        self.assertRegex(text, pattern)

    def make_pool(self, size="64M", *options):
        self.ok("pool", "create", self.pool, "--size", size, "--table", "t", *options)

    def fill(self):
        script = "".join(f"put key{i} {'v' * (1 + i * 40 % 500)}\n" for i in range(200))
        self.ok("kv", "txn", *self.local, stdin=script.encode())
        self.ok("log", "create", *self.local, "journal", "--bytes", "1M")
        self.ok("log", "append", *self.local, "journal", stdin=b"one\ntwo\n")

    def serve(self):
        """A server of the pool, and its URI."""
        server = subprocess.Popen(
            [os.path.join(BIN, "pmstored"), "--pool", self.pool, "--listen",
             "tcp://127.0.0.1:0", "--json"], stdout=subprocess.PIPE)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        return server, json.loads(server.stdout.readline())["listen"][0]

    def leave_as_a_crash_does(self):
        """The next start reads the headers of slabs: it has no checkpoint."""
        server, _ = self.serve()
        server.kill()
        server.wait()

    def places(self):
        """Where things are in the pool's file."""
        info = json.loads(self.ok("pool", "info", self.pool, "--json"))
        extents = {extent["kind"]: extent for extent in info["extents"]}
        with open(self.pool, "rb") as file:
            content = file.read()
        root = content.index(b"PMSTPOOL") + POOL_HEADER_AND_TABLE
        # Of rings of clients there are none: nobody has come under lock discipline rnic.
        self.assertNotIn("rings", extents)
        slab = extents["records"]["offset"]
        log = extents["shard log"]["offset"]
        return {"catalog": [root, root + 256], "table": [root + TABLE_ENTRIES],
                "shard log": [log, log + 128],
                "slab": [slab, slab + 64],
                "log area": [extents["log"]["offset"], extents["log"]["offset"] + 256]}

    def users(self):
        """All that open a pool to use it."""
        serve = ["--pool", self.pool, "--listen", "tcp://127.0.0.1:0"]
        return (lambda: run(*serve, program="pmstored"),
                lambda: run("kv", "get", *self.local, "key1"),
                lambda: run("bench", "kv", *self.local, "--ops", "10", "--keys", "10"),
                lambda: run("bench", "kv", *self.local, "--ops", "10", "--keys", "10",
                            "--threads", "2"))

    def test_a_pool_that_is_refused_for_its_store_is_untouched(self):
        self.make_pool("64M", "--shard-log-bytes", "4M")  # so that it has an extent of its own
        self.fill()
        self.leave_as_a_crash_does()
        with open(self.pool, "rb") as file:
            good = file.read()
        for what, offsets in self.places().items():
            with open(self.pool, "wb") as file:
                file.write(good)
            with open(self.pool, "r+b") as file:
                for offset in offsets:
                    file.seek(offset)
                    file.write(b"damage" * 5)
            before = digest(self.pool)
            for use in (*self.users(), lambda: run("pool", "check", self.pool)):
                self.assert_fails(use(), 1, "damaged|neither copy")
                self.assertEqual(digest(self.pool), before, what)
            if what == "log area":
                self.assert_fails(run("log", "list", *self.local), 1, "damaged")
                self.assertEqual(digest(self.pool), before, what)

    def test_checking_changes_nothing(self):
        self.make_pool()
        self.fill()
        before = digest(self.pool)
        said = self.ok("pool", "check", self.pool).splitlines()
        self.assertEqual(said[-1], "sound: 200 records in 2 tables, 2 entries in 1 log")
        self.assertTrue(json.loads(self.ok("pool", "check", self.pool, "--json"))["sound"])
        self.assertEqual(digest(self.pool), before)

    def test_a_server_that_cannot_listen_closes_its_pool_in_order(self):
        self.make_pool()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            done = run("--pool", self.pool, "--listen",
                       f"tcp://127.0.0.1:{taken.getsockname()[1]}", program="pmstored")
        self.assert_fails(done, 1, "choose a free port")
        self.assertTrue(json.loads(self.ok("pool", "check", self.pool, "--json"))["clean"])

    def tables(self):
        """Which of some tables there are."""
        return [name for name in ("t", "new") if run("kv", "scan", *self.local, "--table",
                                                     name).returncode == 0]

    def test_a_pool_is_created_with_all_that_was_asked_for_or_not_at_all(self):
        for wrong in ("", "n" * 48):
            done = run("pool", "create", self.pool, "--size", "32M", "--table", "t", "--table",
                       wrong)
            self.assert_fails(done, 1, "1 to 47 bytes")
            self.assertEqual(os.listdir(self.folder), [])
        self.ok("pool", "create", self.pool, "--size", "32M", "--table", "t", "--table", "t")
        self.assertEqual(self.tables(), ["t"])

    def test_a_device_that_is_not_there_does_not_become_a_file_of_its_name(self):
        # (somebody who is not root could make none there anyway)
        name = "/dev/" + os.path.basename(self.folder)
        what = "there is no such device, and a file below /dev is no persistent memory"
        self.assert_fails(run("pool", "create", name, "--size", "32M"), 1, what)
        self.assert_fails(run("--pool", name, "--create", "32M", "--listen", "tcp://127.0.0.1:0",
                              program="pmstored"), 1, what)
        self.assertFalse(os.path.exists(name))

    def test_what_is_refused_makes_no_table(self):
        self.make_pool("32M")
        new = [*self.local, "--table", "new"]
        self.assert_fails(run("kv", "put", *new, "k" * 513, "v"), 1, "513 bytes.*512")
        self.assert_fails(run("kv", "put", *new, "", "v"), 1, "at least one byte")
        script = f"put a 1\nput {'k' * 513} 1\n"
        self.assert_fails(run("kv", "txn", *new, stdin=script.encode()), 1, "line 2: .*512")
        large = f"put a 1\nput b {'v' * (2**20 + 1)}\n"
        self.assert_fails(run("kv", "txn", *new, stdin=large.encode()), 1, "line 2: .*1048576")
        self.assertEqual(self.tables(), ["t"])

    def test_what_no_redo_ring_takes_makes_no_table(self):
        self.ok("pool", "create", self.pool, "--size", "32M", "--ring-bytes", "64K",
                "--shard-log-bytes", "80K", "--table", "t")
        half = f"{'v' * 20000}"
        for discipline, option in (("cpu", "--shard-log-bytes"), ("rnic", "--ring-bytes")):
            new = [*self.local, "--locks", discipline, "--table", "new"]
            done = run("kv", "put", *new, "k", "v" * 40000)
            self.assert_fails(done, 1, f"redo log.*{option}")
            script = f"put a {half}\nput b {half}\n"
            done = run("kv", "txn", *new, stdin=script.encode())
            self.assert_fails(done, 1, f"redo log.*{option}")
            self.assertEqual(self.tables(), ["t"])
            # What is overwritten or deleted in the script itself is not written.
            script = f"put a {half}\nput a {half}\nput b {half}\ndel b\n"
            self.ok("kv", "txn", *new[:-1], "t", stdin=script.encode())

    def test_a_creation_that_is_killed_leaves_nothing(self):
        before = time.monotonic()
        self.make_pool("64M")
        takes = time.monotonic() - before
        os.unlink(self.pool)
        for step in range(40):
            child = subprocess.Popen(
                [os.path.join(BIN, "pmstore"), "pool", "create", self.pool, "--size", "64M",
                 "--table", "t"], stdout=subprocess.DEVNULL)
            time.sleep(takes * step / 32)
            child.kill()
            child.wait()
            if os.path.exists(self.pool):
                self.ok("pool", "check", self.pool)
                self.assertEqual(self.tables(), ["t"])
                os.unlink(self.pool)
            self.assertEqual(os.listdir(self.folder), [])

    def test_options_that_would_do_nothing_are_refused(self):
        self.make_pool("32M")
        for command in (["kv", "get", "k"], ["kv", "scan"], ["log", "list"],
                        ["bench", "kv", "--ops", "1"], ["bench", "smallbank", "--ops", "1"]):
            done = run(*command, "--uri", "tcp://127.0.0.1:1", "--assume-domain", "adr")
            self.assert_fails(done, 2, "--assume-domain: only with local:PATH; .*pmstored")
        self.ok("kv", "scan", *self.local, "--table", "t", "--assume-domain", "adr")
        for wrong in ("-1", "99999999999999999999", "some"):
            self.assert_fails(run("kv", "scan", *self.local, "--limit", wrong), 2,
                              f"--limit: '{wrong}' is not a whole number from 1 to ")
        self.ok("kv", "scan", *self.local, "--table", "t", "--limit", "1")
        done = run("--pool", self.pool, "--listen", "local:name", program="pmstored")
        self.assert_fails(done, 2, "--listen: 'local:name' could be reached from inside")
        bench = ["bench", "kv", *self.local, "--ops", "9", "--keys", "9", "--assume-domain", "eadr"]
        self.assert_fails(run(*bench, "--strategy", "doorbell"), 1,
                          "strategy doorbell has no use at a server whose lock discipline is cpu")
        self.ok(*bench, "--strategy", "doorbell", "--locks", "rnic")
        self.assert_fails(run(*bench, "--strategy", "flush", "--locks", "rnic"), 1,
                          "flush is not possible here: the server has no native FLUSH; use auto")

    def test_damaged_records_are_told_of_in_process(self):
        self.ok("pool", "create", self.pool, "--size", "32M", "--shard-log-bytes", "16K", "--table",
                "t")
        table = [*self.local, "--table", "t"]
        self.ok("kv", "put", *table, "victim", "a value that is damaged")
        # Once its redo record has left the small log, nothing repairs it.
        for _ in range(6):
            self.ok("kv", "put", *table, "large", "x" * 5000)
        self.ok("kv", "del", *table, "large")
        self.ok("kv", "put", *table, "other", "whole")
        with open(self.pool, "r+b") as file:
            content = file.read()
            file.seek(0)
            file.write(content.replace(b"that is damaged", b"that iz damaged"))
        # A start after an orderly stop reads no record. One that was seen to be damaged makes the
        # next start read all of them.
        self.assert_fails(run("kv", "get", *table, "victim"), 1,
                          "the record at offset 256 of the records fails its checksum")
        warning = r"pmstore: warning: 1 damaged records: their media lost data.*pool check\n"
        done = run("kv", "get", *table, "victim")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.decode(), f"^{warning}pmstore: kv get 'victim': not found")
        done = run("kv", "scan", *table)
        self.assertEqual((done.returncode, done.stdout), (0, b"other\twhole\n"))
        self.assertRegex(done.stderr.decode(), f"^{warning}$")
        for threads in ("1", "2"):
            done = run("bench", "kv", *self.local, "--ops", "9", "--keys", "9", "--threads",
                       threads)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr.decode(), f"^{warning}$")
        done = run("pool", "check", self.pool)
        self.assert_fails(done, 1, f"^pmstore: pool '{self.pool}' is damaged: 1 problem, the first")
        self.assertEqual(done.stdout.decode().splitlines()[-1], "damaged: 1 problem")

    def test_a_file_that_is_there_is_not_made_a_journal(self):
        self.make_pool("32M")
        journal = os.path.join(self.folder, "journal")
        with open(journal, "wb") as file:
            file.write(b"precious")
        bank = ["bench", "smallbank", *self.local, "--accounts", "20", "--ops", "50", "--journal"]
        self.assert_fails(run(*bank, journal), 1, "journal '.*' exists: name a new file")
        with open(journal, "rb") as file:
            self.assertEqual(file.read(), b"precious")
        other = ["bench", "smallbank", *self.local, "--accounts", "30", "--ops", "50"]
        self.ok(*bank[:-1])
        self.assert_fails(run(*other, "--journal", journal + "3"), 1, "a bank of 20 accounts")
        self.ok(*bank, journal + "3")
        self.assert_fails(run("bench", "smallbank", "--uri", "local:/nowhere/pool", "--journal",
                              journal + "2"), 1, "nowhere")
        self.assertFalse(os.path.exists(journal + "2"))
        self.ok(*bank, journal + "2")
        self.ok("bench", "smallbank", *self.local, "--audit-only", "--journal", journal + "2")

    def test_a_server_that_dies_ends_the_bank_at_once(self):
        self.make_pool()
        server, uri = self.serve()
        self.ok("bench", "smallbank", "--uri", uri, "--accounts", "100", "--ops", "50")

        def ledger_records():
            done = self.ok("kv", "scan", "--uri", uri, "--table", "smallbank_ledger", "--json")
            return len(json.loads(done)["records"])
        before = ledger_records()
        bank = subprocess.Popen(
            [os.path.join(BIN, "pmstore"), "bench", "smallbank", "--uri", uri, "--seconds", "800",
             "--timeout", "250"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(bank.stdout.close)
        self.addCleanup(bank.stderr.close)
        # In its middle: when its own record is in the ledger.
        started = time.monotonic()
        while ledger_records() == before:
            self.assertLess(time.monotonic() - started, 600)
            time.sleep(0.01)
        server.kill()
        killed = time.monotonic()
        status = bank.wait(timeout=300)
        # At once, also on a busy machine: a client that waits for its time-outs takes longer.
        self.assertLess(time.monotonic() - killed, 200)
        self.assertEqual(status, 1)
        text = bank.stderr.read().decode()
        self.assertEqual(text.count("\n"), 1, text)
        self.assertIn("--ride-through SECONDS", text)


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    unittest.main()
