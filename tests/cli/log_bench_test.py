#!/usr/bin/env python3
"""usage: log_bench_test.py BIN: pmstore bench log, on real memory and on the modelled machine."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = ""
MODEL = ["--model", "optane-cx5"]


def run(*arguments):
    return subprocess.run([os.path.join(BIN, "pmstore"), "bench", "log", *arguments], timeout=300,
                          capture_output=True, check=False)


def report(*arguments):
    done = run(*arguments, "--json")
    if done.returncode != 0 or done.stderr:
        raise AssertionError(done)
    return json.loads(done.stdout)


class RealMemory(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-log-bench.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.pool = os.path.join(self.folder, "pool")
        subprocess.run([os.path.join(BIN, "pmstore"), "pool", "create", self.pool, "--size", "64M",
                        "--log-bytes", "16M"], check=True, timeout=300, stdout=subprocess.DEVNULL)

    def logs(self, uri):
        done = subprocess.run([os.path.join(BIN, "pmstore"), "log", "list", "--uri", uri, "--json"],
                              check=True, timeout=300, capture_output=True)
        return json.loads(done.stdout)["logs"]

    def check(self, said, appends, batch=1):
        self.assertTrue(said["audit"]["ok"])
        self.assertEqual(said["results"][0]["ops"], appends)
        self.assertEqual(said["audit"]["acknowledged"], appends * batch)
        self.assertEqual(said["audit"]["read"], appends * batch)

    def test_every_way_to_append_in_this_process(self):
        uri = "local:" + self.pool
        for mode in ("exclusive", "shared"):
            for shape in ([], ["--batch", "16"], ["--producers", "3", "--coroutines", "2"],
                          ["--producers", "2", "--threads", "2"]):
                said = report("--uri", uri, "--mode", mode, "--ops", "1800", "--log-bytes", "64K",
                              *shape)
                self.check(said, 1800, 16 if "--batch" in shape else 1)
                # At least 600 entries of 192 bytes do not fit in one log.
                self.assertGreater(said["audit"]["laps"], 1)
                self.assertEqual(self.logs(uri), [])
                if mode == "shared" and "--producers" not in shape:
                    counters = said["results"][0]["counters"]
                    self.assertEqual(counters["server_messages_per_op"], 0.0)

    def test_over_tcp(self):
        server = subprocess.Popen(
            [os.path.join(BIN, "pmstored"), "--pool", self.pool, "--listen", "tcp://127.0.0.1:0",
             "--json"], stdout=subprocess.PIPE)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        uri = json.loads(server.stdout.readline())["listen"][0]
        for mode in ("exclusive", "shared"):
            self.check(report("--uri", uri, "--mode", mode, "--ops", "300", "--producers", "2"),
                       300)
        for poll in ("adaptive", "always", "never"):
            said = report("--uri", uri, "--ops", "100", "--poll", poll)
            self.check(said, 100)
            self.assertEqual(said["config"]["poll"], poll)
        said = run("--uri", uri, "--seconds", "0.2", "--payload", "64").stdout.decode()
        self.assertRegex(said, r"audit: all \d+ acknowledged entries are there, in order")
        self.assertEqual(self.logs(uri), [])

    def test_wrong_choices_are_one_line(self):
        uri = "local:" + self.pool
        for status, pattern, arguments in (
                (2, "names? itself", ["--uri", uri, "--payload", "7"]),
                (2, "--threads", ["--uri", uri, "--threads", "2"]),
                (2, "--strategy", ["--uri", uri, "--mode", "shared", "--strategy", "naive"]),
                (2, "--assume-domain", ["--uri", "tcp://h:1", "--assume-domain", "adr"]),
                (2, "exclusive or shared", ["--uri", uri, "--mode", "both"]),
                (2, "--uri or --model", []),
                (2, "--poll", ["--uri", uri, "--poll", "often"]),
                (2, "--poll", [*MODEL, "--poll", "never"]),
                (2, "rule h9", [*MODEL, "--strategy", "doorbell", "--rules", "all,-h9"]),
                (1, "16128 bytes to", ["--uri", uri, "--log-bytes", "1G"])):
            done = run(*arguments)
            self.assertEqual(done.returncode, status, done)
            self.assertRegex(done.stderr.decode(), pattern)
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)


class Model(unittest.TestCase):
    def test_the_same_seed_gives_the_same_bytes(self):
        arguments = [*MODEL, "--ops", "300", "--producers", "2", "--json"]
        first = run(*arguments).stdout
        self.assertEqual(first, run(*arguments).stdout)
        self.assertTrue(json.loads(first)["audit"]["ok"])

    def test_an_exclusive_append_is_one_doorbell_and_reads_no_nvm_beside_the_flush(self):
        for payload in (64, 128, 256, 1024, 4096):
            for batch in (1, 8):
                said = report(*MODEL, "--ops", "400", "--payload", str(payload), "--batch",
                              str(batch))
                counters = said["results"][0]["counters"]
                self.assertEqual(said["config"]["strategy"], "doorbell")
                self.assertEqual(counters["doorbells_per_op"], 1.0)
                self.assertEqual(counters["round_trips_per_op"], 1.0)
                self.assertEqual(counters["server_messages_per_op"], 0.0)
                self.assertLessEqual(said["nvm"]["reads_beside_flush_per_append"], 0.0)
                self.assertLessEqual(said["nvm"]["write_amplification"], 1.1, (payload, batch))

    def test_padding_is_counted_by_itself(self):
        layout = report(*MODEL, "--ops", "100", "--payload", "64")["layout"]
        self.assertEqual(layout["payload_bytes_per_entry"], 64)
        self.assertEqual(layout["header_bytes_per_entry"], 40)
        self.assertEqual(layout["padding_bytes_per_entry"], 24)
        for mode, rule in (("exclusive", "h6"), ("shared", "h7")):
            arguments = ["--ops", "100", "--payload", "64", "--mode", mode]
            layout = report(*MODEL, *arguments, "--rules", "all,-" + rule)["layout"]
            self.assertEqual(layout["padding_bytes_per_entry"], 0)

    def test_laps_are_not_counted_as_appends(self):
        # The reader's READs of the NVM are many; they count for nothing.
        said = report(*MODEL, "--ops", "400", "--payload", "1024", "--log-bytes", "64K")
        self.assertGreater(said["audit"]["laps"], 3)
        self.assertLessEqual(said["nvm"]["reads_beside_flush_per_append"], 0.0)


if __name__ == "__main__":
    BIN = sys.argv.pop()
    unittest.main()
