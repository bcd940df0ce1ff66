#!/usr/bin/env python3
"""usage: load_test.py BIN: pmstore kv load, and kv get of several keys."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = ""


def run(*arguments, stdin=b""):
    environment = {k: v for k, v in os.environ.items() if k != "PMSTORE_URI"}
    return subprocess.run([os.path.join(BIN, "pmstore"), *arguments], input=stdin, timeout=300,
                          capture_output=True, env=environment, check=False)


class Load(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-load.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.uri = self.pool("pool")

    def pool(self, name):
        path = os.path.join(self.folder, name)
        self.ok("pool", "create", path, "--size", "64M")
        return ["--uri", "local:" + path]

    def ok(self, *arguments, **options):
        done = run(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def assert_fails(self, done, pattern):
        self.assertEqual(done.returncode, 1, done)
        text = done.stderr.decode()
        self.assertEqual(text.count("\n"), 1, text)
        self.assertRegex(text, pattern)

    def test_what_scan_prints_is_loaded_as_it_was(self):
        self.ok("kv", "put", *self.uri, "plain", "value")
        self.ok("kv", "put", *self.uri, "tab\tin the key", "a\\b\nc\td")
        self.ok("kv", "put", *self.uri, "bytes", "-", stdin=bytes(range(256)))
        self.ok("kv", "put", *self.uri, "empty", "")
        printed = self.ok("kv", "scan", *self.uri)
        other = self.pool("other")
        self.assertEqual(self.ok("kv", "load", *other, stdin=printed.encode()),
                         "wrote 4 records in 1 transaction\n")
        self.assertEqual(sorted(self.ok("kv", "scan", *other).splitlines()),
                         sorted(printed.splitlines()))
        got = run("kv", "get", *other, "bytes", "--raw")
        self.assertEqual(got.stdout, bytes(range(256)))

    def test_each_transaction_takes_what_the_redo_log_has_room_for(self):
        for value_bytes in (10, 1000):
            count = 4_000_000 // (value_bytes + 60)
            path = os.path.join(self.folder, "records")
            with open(path, "w", encoding="ascii") as file:
                for i in range(count):
                    file.write(f"{i}\t{'v' * value_bytes}\n")
            done = json.loads(self.ok("kv", "load", *self.uri, path, "--json"))
            self.assertEqual(done["records"], count)
            # About 43% of a shard log of 2 MiB are 0.9 MB. A small record has as many bytes again
            # around it there.
            self.assertLessEqual(done["transactions"], 12)
            self.assertGreaterEqual(done["transactions"], 3)
        self.assertEqual(self.ok("kv", "get", *self.uri, "7"), "v" * 1000 + "\n")

    def test_a_wrong_line_is_named_and_what_is_before_it_is_written(self):
        for line, why in (("no tab", "line 3: it has no tab"), ("\tno key", "line 3: .*key"),
                          ("k\t\\q", "line 3: an unknown escape"),
                          ("k" * 513 + "\tv", "line 3: ")):
            done = run("kv", "load", *self.uri, "--table", "t",
                       stdin=f"a\t1\nb\t2\n{line}\nc\t3\n".encode())
            self.assert_fails(done, f"{why}.*; the first 2 records are written")
            self.assertEqual(len(self.ok("kv", "scan", *self.uri, "--table", "t").splitlines()), 2)
        self.assert_fails(run("kv", "load", *self.uri, "/nowhere"), "'/nowhere'")

    def test_it_makes_the_table(self):
        self.ok("kv", "load", *self.uri, "--table", "o", "--ordered", stdin=b"b\t2\na\t1")
        self.assertEqual(self.ok("kv", "scan", *self.uri, "--table", "o"), "a\t1\nb\t2\n")
        self.assertEqual(self.ok("kv", "load", *self.uri, "--table", "e", stdin=b""),
                         "wrote 0 records in 0 transactions\n")

    def test_several_keys_are_got_at_a_time(self):
        self.ok("kv", "load", *self.uri, stdin=b"a\t1\nb\tt\\tt\nc\t3\n")
        self.assertEqual(self.ok("kv", "get", *self.uri, "c", "b", "a"), "c\t3\nb\tt\\x09t\na\t1\n")
        done = run("kv", "get", *self.uri, "a", "x", "y")
        self.assert_fails(done, "'x', 'y' not found in table 'default'")
        self.assertEqual(done.stdout, b"a\t1\n")
        done = run("kv", "get", *self.uri, "a", "x", "--json")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(json.loads(done.stdout)["records"],
                         [{"key": "a", "value": "1"}, {"key": "x", "value": None}])
        self.assert_fails(run("kv", "get", *self.uri, "a", "b", "--raw"), "one key")


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    unittest.main()
