#!/usr/bin/env python3
"""usage: space_rules_test.py BIN: reserves and limits that a pool keeps, and those of one run."""

import json
import os
import re
import struct
import subprocess
import sys
import unittest

import daemon_test
from daemon_test import program, run

MIB = 1 << 20


def crc32c(data, seed):
    crc = ~seed & 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return ~crc & 0xffffffff


class SpaceRules(unittest.TestCase):
    setUp = daemon_test.Daemon.setUp
    path = daemon_test.Daemon.path
    serve = daemon_test.Daemon.serve
    stop = daemon_test.Daemon.stop
    space = daemon_test.Daemon.space
    fill = daemon_test.Daemon.fill

    def assert_one_line(self, said, pattern):
        self.assertEqual(said.count("\n"), 1, said)
        self.assertRegex(said, pattern)

    def test_a_pool_keeps_them_and_shows_them(self):
        text = run("pool", "limit", self.pool, "--log-reserve", "20M", "--record-limit", "40M")
        self.assertRegex(text, r"(?m)^log +reserved 20 MiB \(20971520 bytes\)$")
        self.assertRegex(text, r"(?m)^records +reserved 0 bytes, limited to 40 MiB")
        self.assertRegex(run("pool", "info", self.pool),
                         r"for log +0 bytes in 0 extents, reserved 20 MiB \(20971520 bytes\)\n")
        shown = json.loads(run("pool", "limit", self.pool, "--log-limit", "30M", "--json"))
        kinds = {each["kind"]: each for each in shown["space_rules"]}
        self.assertEqual(kinds["log"]["reserve_bytes"], 20 * MIB)
        self.assertEqual(kinds["log"]["limit_bytes"], 30 * MIB)
        self.assertEqual(kinds["records"]["limit_bytes"], 40 * MIB)
        self.assertIsNone(kinds["file data"]["limit_bytes"])
        run("pool", "limit", self.pool, "--log-limit", "none", "--record-limit", "none")
        self.assertEqual(self.space("log")["reserve_bytes"], 20 * MIB)
        self.assertNotIn("limit_bytes", self.space("log"))
        self.assertNotIn("limit_bytes", self.space("records"))
        run("pool", "check", self.pool)

    def test_records_fill_the_pool_up_to_the_reserve_of_logs_and_logs_go_on(self):
        run("pool", "limit", self.pool, "--log-reserve", "20M")
        daemon, uri, _ = self.serve()
        self.assertEqual(self.space("log")["reserve_bytes"], 20 * MIB)
        said = self.fill(uri, range(20000), status=1)
        self.assert_one_line(said, r"records have [\d.]+ MiB .* of the pool, and of what is free "
                             r"is reserved .*20 MiB \(20971520 bytes\) for log: delete records, "
                             r"or lower the reserve \(pmstore pool limit\)")
        run("kv", "put", "--uri", uri, "key0", "w" * 4000)
        run("log", "create", "--uri", uri, "large", "--bytes", "16M")
        run("log", "append", "--uri", uri, "large", "entry")
        stat = json.loads(run("stat", "--uri", uri, "--json"))
        rules = {each["kind"]: each for each in stat["pool"]["space_rules"]}
        self.assertEqual(rules["log"]["reserve_bytes"], 20 * MIB)
        self.assertRegex(run("stat", "--uri", uri),
                         r"(?m)^space +records [\d.]+ MiB .*; log [\d.]+ MiB .*, reserved 20 MiB")
        said = run("log", "create", "--uri", uri, "other", "--bytes", "16M", status=1)
        self.assert_one_line(said, "no room for a log")
        # What logs free is reserved again, for logs; what records free is everybody's.
        run("log", "delete", "--uri", uri, "large")
        self.fill(uri, range(20000, 40000), status=1)
        run("log", "create", "--uri", uri, "again", "--bytes", "16M")
        self.stop(daemon)
        self.assertRegex(run("pool", "check", self.pool), "(?m)^sound: ")

    def test_an_option_holds_for_one_run_instead_of_what_the_pool_keeps(self):
        run("pool", "limit", self.pool, "--log-reserve", "20M", "--record-limit", "10M")
        daemon, uri, log = self.serve("--log-reserve", "0", "--record-limit", "50M",
                                      "--file-reserve", "5M")
        self.assertNotIn("reserve_bytes", self.space("log"))
        self.assertEqual(self.space("file data")["reserve_bytes"], 5 * MIB)
        self.assertEqual(self.space("records")["limit_bytes"], 50 * MIB)
        self.fill(uri, range(5000))
        self.assertGreater(self.space("records")["bytes"], 10 * MIB)
        said = run("pool", "limit", self.pool, "--log-reserve", "1M", status=1)
        self.assert_one_line(said, f"it is served by process {daemon.pid} at {uri}; stop that")
        self.stop(daemon)
        daemon, uri, log = self.serve()
        log.wait_for(r" warning extents of kind records have .* more than the limit that the "
                     r"pool keeps \(pmstore pool limit\), 10 MiB")
        self.assertEqual(self.space("log")["reserve_bytes"], 20 * MIB)
        self.assertNotIn("reserve_bytes", self.space("file data"))
        self.assert_one_line(self.fill(uri, range(5000, 20000), status=1), "limited to 10 MiB")
        self.stop(daemon)
        daemon, uri, log = self.serve("--record-limit", "none", "--log-reserve", "0")
        self.assertNotIn("limit_bytes", self.space("records"))
        self.fill(uri, range(5000, 6000))

    def test_clients_with_rings_can_write_and_delete_whatever_is_reserved(self):
        uri = ("--uri", "local:" + self.pool, "--locks", "rnic")
        run("kv", "put", *uri, "a", "1")
        for options in (("--record-reserve", "60M"), ("--record-reserve", "0", "--log-reserve",
                                                      "46M")):
            run("pool", "limit", self.pool, *options)
            run("kv", "put", *uri, "b", "1")
            run("kv", "del", *uri, "b")
        run("kv", "put", *uri, "b", "2")
        run("kv", "del", *uri, "a")
        self.assertEqual(run("kv", "get", *uri, "b"), "2\n")

    def test_a_start_without_room_for_files_says_what_to_do(self):
        done = subprocess.run([program("pmstored"), "--pool", self.pool, "--listen",
                               "tcp://127.0.0.1:0", "--files", "--log-reserve", "50M"],
                              capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assert_one_line(done.stderr.decode(), r"no room for files: .* reserved is .*50 MiB "
                             r".*for log.*: lower a reserve \(pmstore pool limit\), or start "
                             "without --files")

    def test_what_cannot_hold_is_refused(self):
        before = run("pool", "info", self.pool)
        for options, why in (
                (("--log-reserve", "60M", "--file-reserve", "60M"), "more than the pool together"),
                (("--log-reserve", "10M", "--log-limit", "9M"),
                 "--log-limit, or a lower --log-reserve"),
                (("--ring-reserve", "60M"), r"for rings, which take at most .*: give a lower "
                 "--ring-reserve, or make a pool with more or larger rings")):
            self.assert_one_line(run("pool", "limit", self.pool, *options, status=1), why)
            done = subprocess.run([program("pmstored"), "--pool", self.pool, "--listen",
                                   "tcp://127.0.0.1:0", *options], capture_output=True, timeout=60,
                                  check=False)
            self.assertEqual(done.returncode, 1)
            self.assert_one_line(done.stderr.decode(), why)
        self.assert_one_line(run("pool", "limit", self.pool, status=2), "give at least one reserve")
        self.assertEqual(run("pool", "info", self.pool), before)

    def keep_anyway(self, ring_bytes):
        """As a program that does not know what rings take."""
        run("pool", "limit", self.pool, "--log-reserve", "1M")
        with open(self.pool, "r+b") as file:
            data = file.read()
            at = -1
            for _ in range(2):
                at = data.index(b"PMSR", at + 1)
                magic, crc = struct.unpack_from("<II", data, at)
                header = bytearray(data[at + 8:at + 128])
                self.assertEqual(crc, crc32c(header, magic))
                struct.pack_into("<Q", header, 24, ring_bytes)
                file.seek(at + 4)
                file.write(struct.pack("<I", crc32c(header, magic)) + header)

    def test_a_pool_that_keeps_too_much_for_rings_is_served_and_mended(self):
        self.keep_anyway(60 * MIB)
        line = (r"the pool keeps a reserve of 60 MiB \(62914560 bytes\) for rings, which take at "
                r"most .*: only that is reserved; set it anew \(pmstore pool limit "
                r"--ring-reserve (\d+)\)")
        self.assertRegex(run("pool", "info", self.pool), r"(?m)^reserves and limits +" + line)
        daemon, uri, log = self.serve()
        said = log.wait_for(" warning " + line)
        most = int(re.search(line, said).group(1))
        self.assertEqual(self.space("rings")["reserve_bytes"], most)
        run("kv", "put", "--uri", uri, "key", "value")
        self.stop(daemon)
        # An option of one run holds instead; one that is too large is refused.
        daemon, uri, log = self.serve("--ring-reserve", "0")
        self.assertNotIn("reserve_bytes", self.space("rings"))
        self.stop(daemon)
        self.assertEqual(log.text().count("the pool keeps a reserve"), 1, "of the run before")
        self.assert_one_line(run("pool", "limit", self.pool, "--log-reserve", "2M", status=1),
                             "for rings, which take at most .*: give a lower --ring-reserve")
        run("pool", "limit", self.pool, "--ring-reserve", str(most))
        self.assertNotIn("reserves and limits", run("pool", "info", self.pool))
        self.assertEqual(self.space("rings")["reserve_bytes"], most)
        daemon, uri, log = self.serve()
        self.assertEqual(run("kv", "get", "--uri", uri, "key"), "value\n")
        self.stop(daemon)

    def test_local_clients_obey_them(self):
        uri = "local:" + self.pool
        run("pool", "limit", self.pool, "--record-limit", "10M")
        self.assert_one_line(self.fill(uri, range(5000), status=1), "limited to 10 MiB")
        run("pool", "limit", self.pool, "--record-limit", "none", "--log-reserve", "30M")
        self.assert_one_line(self.fill(uri, range(20000), status=1), "is reserved .* for log")
        run("pool", "limit", self.pool, "--log-reserve", "0", "--log-limit", "4M")
        said = run("log", "create", "--uri", uri, "large", "--bytes", "8M", status=1)
        self.assert_one_line(said, "or raise --log-limit .*limited to 4 MiB")

    def test_damage_to_both_copies_is_said_and_mended_by_the_command(self):
        run("pool", "limit", self.pool, "--log-reserve", "20M")
        with open(self.pool, "r+b") as file:
            data = file.read()
            at = -1
            for _ in range(2):
                at = data.index(b"PMSR", at + 1)
                file.seek(at + 40)
                file.write(b"damage")
        for command in (["kv", "get", "--uri", "local:" + self.pool, "key"],
                        ["pool", "check", self.pool]):
            self.assertRegex(run(*command, status=1), r"both copies of the reserves and limits .*"
                             r"set them again \(pmstore pool limit\)")
        self.assertIn("reserves and limits", run("pool", "info", self.pool))
        run("pool", "limit", self.pool, "--log-reserve", "10M")
        self.assertEqual(self.space("log")["reserve_bytes"], 10 * MIB)
        self.assertRegex(run("pool", "check", self.pool), "(?m)^sound: ")


if __name__ == "__main__":
    daemon_test.BIN = sys.argv.pop(1)
    unittest.main()
