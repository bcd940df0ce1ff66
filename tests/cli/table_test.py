#!/usr/bin/env python3
"""usage: table_test.py BIN: pmstore table list | create | drop | stat, over local and tcp."""

import json
import os
import re
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


class Table(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-table.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.pool = os.path.join(self.folder, "pool")
        self.ok("pool", "create", self.pool, "--size", "64M", "--table", "accounts")
        self.uri = ["--uri", "local:" + self.pool]

    def ok(self, *arguments, **options):
        done = run(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def assert_fails(self, done, status, pattern):
        self.assertEqual(done.returncode, status, done)
        text = done.stderr.decode()
        self.assertEqual(text.count("\n"), 1, text)
        self.assertRegex(text, pattern)
        self.assertEqual(done.stdout, b"")

    def serve(self):
        daemon = subprocess.Popen(
            [os.path.join(BIN, "pmstored"), "--pool", self.pool, "--listen", "tcp://127.0.0.1:0"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: (daemon.kill(), daemon.communicate()))
        first = daemon.stdout.readline().decode()
        self.uri = ["--uri", re.search(r"tcp://[0-9.:]+", first)[0]]
        return daemon

    def walk_through(self):
        def table(command, *arguments):
            return ["table", command, *self.uri, *arguments]
        self.assertEqual(self.ok(*table("create", "orders")), "")
        self.assert_fails(run(*table("create", "orders")), 1,
                          "^pmstore: table create 'orders': there is a table 'orders'")
        self.ok("kv", "put", *self.uri, "--table", "orders", "key", "value")
        self.ok("kv", "put", *self.uri, "--table", "accounts", "key", "kept")
        lines = self.ok(*table("list")).splitlines()
        self.assertEqual([line.split() for line in lines],
                         [["table", "id", "kind"], ["accounts", "1", "hash"],
                          ["orders", "2", "hash"]])
        self.assertEqual(len({len(line) for line in lines}), 1, "aligned")
        counted = json.loads(self.ok(*table("stat", "orders", "--json")))
        self.assertEqual(counted, {"table": "orders", "id": 2, "records": 1, "key_bytes": 3,
                                   "value_bytes": 5, "slot_bytes": 64})
        self.assertEqual(self.ok(*table("stat", "orders")).splitlines()[1].split(),
                         ["orders", "2", "1", "3", "5", "64"])
        self.assertEqual(json.loads(self.ok(*table("drop", "orders", "--json"))),
                         {"table": "orders", "dropped": True})
        for command in ("drop", "stat"):
            self.assert_fails(run(*table(command, "orders")), 1,
                              f"^pmstore: table {command} 'orders': no table 'orders'")
        self.assert_fails(run("kv", "get", *self.uri, "--table", "orders", "key"), 1, "no table")
        made = json.loads(self.ok(*table("create", "orders", "--json")))
        self.assertEqual(made, {"table": "orders", "id": 3, "kind": "hash"})
        self.assertEqual(self.ok("kv", "scan", *self.uri, "--table", "orders"), "")
        self.assertEqual(self.ok("kv", "get", *self.uri, "--table", "accounts", "key"), "kept\n")
        self.assertEqual(json.loads(self.ok(*table("list", "--json"))),
                         {"tables": [{"table": "accounts", "id": 1, "kind": "hash"},
                                     {"table": "orders", "id": 3, "kind": "hash"}]})

    def expect_no_old_records(self):
        self.assertEqual(self.ok("kv", "scan", "--uri", "local:" + self.pool, "--table", "orders"),
                         "")
        self.assertRegex(self.ok("pool", "check", self.pool), r"(?m)^records +1$")

    def scan_ranges(self):
        def scan(*arguments):
            text = self.ok("kv", "scan", *self.uri, "--table", "events", *arguments)
            return [line.split("\t")[0] for line in text.splitlines()]
        self.ok("table", "create", *self.uri, "--ordered", "events")
        self.assertEqual(scan(), [])
        script = "".join(f"put e{i * 7 % 100:02} {i}\n" for i in range(100))
        self.ok("kv", "txn", *self.uri, "--table", "events", stdin=script.encode())
        every = [f"e{i:02}" for i in range(100)]
        self.assertEqual(scan(), every)
        self.assertEqual(scan("--reverse"), every[::-1])
        self.assertEqual(scan("--from", "e10", "--to", "e13"), ["e10", "e11", "e12"])
        self.assertEqual(scan("--from", "e10", "--limit", "2"), ["e10", "e11"])
        self.assertEqual(scan("--prefix", "e9", "--reverse", "--limit", "1"), ["e99"])
        self.assertEqual(scan("--from", "f"), [])
        page = json.loads(self.ok("kv", "scan", *self.uri, "--table", "events", "--json",
                                  "--prefix", "e0", "--limit", "1"))
        self.assertEqual(page, {"records": [{"key": "e00", "value": "0"}], "complete": False})

    def test_ordered_table_is_scanned_by_ranges(self):
        self.scan_ranges()
        self.assert_fails(run("kv", "scan", *self.uri, "--table", "accounts", "--reverse"), 1,
                          "^pmstore: kv scan of table 'accounts': a hash table has no order")

    def test_range_of_an_ordered_table_is_erased(self):
        def erase(*arguments):
            return ["kv", "erase-range", *self.uri, "--table", "events", *arguments]
        self.scan_ranges()
        self.assertEqual(self.ok(*erase("--from", "e10", "--to", "e13")), "erased 3 records\n")
        self.assertEqual(self.ok(*erase("--prefix", "e2", "--limit", "1")), "erased 1 record\n")
        self.assertEqual(json.loads(self.ok(*erase("--prefix", "e2", "--limit", "5", "--json"))),
                         {"erased": 5, "complete": False})
        self.assertEqual(json.loads(self.ok(*erase("--prefix", "e2", "--json"))),
                         {"erased": 4, "complete": True})
        self.assertEqual(self.ok(*erase("--from", "f")), "erased 0 records\n")
        for arguments in ([], ["--all", "--from", "e5"]):
            self.assertEqual(run(*erase(*arguments)).returncode, 2, arguments)
        self.assert_fails(run(*erase("--prefix", "")), 1, "say --all if you mean it")
        self.assert_fails(run("kv", "erase-range", *self.uri, "--table", "accounts", "--all"), 1,
                          "a hash table has no order")
        self.assertEqual(self.ok(*erase("--all")), "erased 87 records\n")
        self.assertEqual(self.ok("kv", "scan", *self.uri, "--table", "events"), "")

    def test_pool_check_compares_an_index_with_its_table(self):
        def script(table, text):
            self.ok("kv", "txn", *self.uri, "--table", table, stdin=text.encode())
        def check(index, *arguments):
            return ["pool", "check", self.pool, "--index", index, *arguments]
        self.ok("table", "create", *self.uri, "--ordered", "by_city")
        self.ok("table", "create", *self.uri, "--ordered", "by_mail")
        script("accounts", "put alice romea@b\nput bob osloc@d\nput tiny -\n")
        script("by_city", 'put "rome\\x00\\x01alice" ""\nput "oslo\\x00\\x01bob" ""\n')
        script("by_mail", "put a@b alice\nput c@d bob\n")
        both = check("accounts:by_city:0+4", "--index", "accounts:by_mail:4+3:unique")
        text = self.ok(*both)
        self.assertIn("index 'by_city' of 'accounts': 2 entries\n", text)
        self.assertIn("index 'by_mail' of 'accounts': 2 entries\nsound: ", text)
        self.assertEqual(json.loads(self.ok(*both, "--json"))["indexes"],
                         [{"index": "by_city", "base": "accounts", "entries": 2},
                          {"index": "by_mail", "base": "accounts", "entries": 2}])
        script("accounts", "put bob bernc@d\n")
        done = run(*both)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout.decode(),
                         r"problem: record at offset \d+, of table 'accounts': index 'by_city' "
                         r"lacks its entry")
        self.assertRegex(done.stdout.decode(),
                         r"problem: entry at offset \d+, of index 'by_city': no record of table "
                         r"'accounts' has it")
        self.assert_fails(run(*check("accounts:by_name:0+4")), 1, "no table 'by_name' in this pool")
        self.assert_fails(run(*check("by_city:accounts:0+4")), 1, "it is not an ordered table")

    # Whenever it is killed: what is left is the end of the range, and the pool is sound.
    def test_erasing_a_range_is_killed_amid_its_transactions(self):
        keys = [f"e{i:05}" for i in range(8000)]
        self.ok("table", "create", *self.uri, "--ordered", "events")
        script = "".join(f"put {key} v\n" for key in keys)
        self.ok("kv", "txn", *self.uri, "--table", "events", stdin=script.encode())
        daemon = self.serve()
        with subprocess.Popen([os.path.join(BIN, "pmstore"), "kv", "erase-range", *self.uri,
                               "--table", "events", "--all"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as erasing:
            erasing.stdin = None
            while True:
                stat = json.loads(self.ok("stat", *self.uri, "--json"))
                if stat["store"]["live_records"] < len(keys) or erasing.poll() is not None:
                    break
            daemon.kill()
            daemon.wait()
            erasing.communicate()
        self.assertRegex(self.ok("pool", "check", self.pool), r"(?m)^records ")
        self.serve()
        left = [line.split("\t")[0] for line in
                self.ok("kv", "scan", *self.uri, "--table", "events").splitlines()]
        self.assertEqual(left, keys[len(keys) - len(left):])
        self.assertLess(len(left), len(keys))

    def test_ordered_table_of_a_server_that_is_killed(self):
        daemon = self.serve()
        self.scan_ranges()
        daemon.kill()
        daemon.wait()
        self.serve()
        self.assertEqual(len(self.ok("kv", "scan", *self.uri, "--table", "events",
                                     "--from", "e50").splitlines()), 50)

    def test_tables_of_a_pool_in_this_process(self):
        self.walk_through()
        self.expect_no_old_records()

    def test_tables_of_a_server_that_is_killed(self):
        daemon = self.serve()
        self.walk_through()
        daemon.kill()
        daemon.wait()
        self.expect_no_old_records()

    def test_names_with_control_characters_are_refused_wherever_a_table_is_made(self):
        why = "a table's name has no control characters"
        for name in ("a\nb", "\x1b[2J", "tab\there"):
            self.assert_fails(run("table", "create", *self.uri, name), 1, why)
            self.assert_fails(run("kv", "put", *self.uri, "--table", name, "k", "v"), 1, why)
            self.assert_fails(run("kv", "txn", *self.uri, "--table", name, stdin=b"put a 1\n"), 1,
                              why)
            other = os.path.join(self.folder, "other")
            done = run("pool", "create", other, "--size", "64M", "--table", name)
            self.assertIn(done.returncode, (1, 2))
            self.assertIn(why, done.stderr.decode())
            self.assertFalse(os.path.exists(other))
        self.assertEqual(len(self.ok("table", "list", *self.uri).splitlines()), 2)

    def test_wrong_usage(self):
        for arguments in (["table"], ["table", "drop", *self.uri], ["table", "frob", *self.uri],
                          ["table", "create", *self.uri, "a", "b"], ["table", "list"]):
            self.assertEqual(run(*arguments).returncode, 2, arguments)
        self.assert_fails(run("table", "create", *self.uri, "n" * 48), 1, "1 to 47 bytes")
        self.assert_fails(run("table", "create", *self.uri, ""), 1, "1 to 47 bytes")


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    unittest.main()
