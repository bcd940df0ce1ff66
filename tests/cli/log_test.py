#!/usr/bin/env python3
"""usage: log_test.py BIN: pmstore log, over pools in this process and over pmstored."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BIN = ""


def run(*arguments, stdin=b"", uri=None):
    everything = {k: v for k, v in os.environ.items() if k != "PMSTORE_URI"}
    if uri:
        everything["PMSTORE_URI"] = uri
    return subprocess.run([os.path.join(BIN, "pmstore"), *arguments], input=stdin, timeout=300,
                          capture_output=True, env=everything, check=False)


class Logs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-log.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.pool = os.path.join(self.folder, "pool")
        self.uri = "local:" + self.pool

    def make_pool(self, *options):
        done = run("pool", "create", self.pool, "--size", "64M", "--log-bytes", "32M", *options)
        self.assertEqual(done.returncode, 0, done.stderr)

    def serve(self, listen="tcp://127.0.0.1:0"):
        server = subprocess.Popen(
            [os.path.join(BIN, "pmstored"), "--pool", self.pool, "--listen", listen,
             "--lease-ms", "60000", "--json"], stdout=subprocess.PIPE)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.uri = json.loads(server.stdout.readline())["listen"][0]
        return server

    def log(self, *arguments, stdin=b""):
        return run("log", *arguments, "--timeout", "100", stdin=stdin, uri=self.uri)

    def good(self, *arguments, stdin=b""):
        done = self.log(*arguments, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def stat(self, name):
        return json.loads(self.good("stat", name, "--json"))

    def assert_fails(self, done, status, pattern):
        self.assertEqual(done.returncode, status, done)
        self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
        self.assertRegex(done.stderr.decode(), pattern)

    def test_lines_come_back_in_order(self):
        self.make_pool()
        for serve in (False, True):
            if serve:
                self.serve()
            name = f"lines-{serve}"
            lines = b"".join(b"line %d\n" % i for i in range(1000))
            said = self.good("append", name, "--create", stdin=lines)
            self.assertRegex(said.decode(), r"^appended 1000 entries, index 1 to 1000; ")
            self.assertEqual(self.good("read", name), lines)
            self.assertEqual(self.good("append", name, "one more").split()[1], b"1")
            some = self.good("read", name, "--from-index", "1000", "--limit", "2")
            self.assertEqual(some, b"line 999\none more\n")

    def test_what_comes_before_a_wrong_entry_is_appended(self):
        self.make_pool()
        done = self.log("append", "some", "--create", stdin=b"one\ntwo\n\nfour\n")
        self.assert_fails(done, 1, r"entry 3 of the input is empty; .* 2 entries before it are")
        self.assertRegex(done.stdout.decode(), "^appended 2 entries, index 1 to 2; ")
        self.assertEqual(self.good("read", "some"), b"one\ntwo\n")
        self.assertRegex(self.good("append", "some", "x").decode(), "^appended 1 entry, index 3; ")

    def test_an_lsn_at_which_nothing_begins_is_no_damage(self):
        self.make_pool()
        self.good("append", "log", "--create", stdin=b"one\ntwo\n")
        for command in ("read", "follow"):
            done = self.log(command, "log", "--from-lsn", "5")
            self.assert_fails(done, 1, "no entry begins at lsn 5")
            self.assertEqual(done.stdout, b"")
        self.assertEqual(self.good("read", "log", "--from-lsn", "64"), b"two\n")

    def test_bytes_of_all_kinds_and_sizes(self):
        self.make_pool()
        entries = [b"x", bytes(range(256)), b"\n\n", os.urandom(70_000), os.urandom(1 << 20)]
        framed = b"".join(len(e).to_bytes(4, "little") + e for e in entries)
        self.good("append", "raw", "--create", "--bytes", "4M", "--framing", "length",
                  stdin=framed)
        self.assertEqual(self.good("read", "raw", "--framing", "length"), framed)
        self.assertEqual(self.good("read", "raw", "--framing", "whole"), b"".join(entries))
        first = json.loads(self.good("read", "raw", "--json", "--limit", "2"))["entries"]
        self.assertEqual(first[0], {"lsn": 0, "index": 1, "payload": "x"})
        self.assertEqual(list(first[1]["payload"]), ["base64"])

    def test_exclusive_producers(self):
        self.make_pool()
        self.serve()
        self.good("create", "mine")
        lines = b"".join(b"%d\n" % i for i in range(500))
        self.good("append", "mine", "--exclusive", stdin=lines)
        self.assertEqual(self.good("read", "mine"), lines)
        # While one holds the log nobody else appends; who steals it fences the first.
        environment = {**os.environ, "PMSTORE_URI": self.uri}
        holder = subprocess.Popen(
            [os.path.join(BIN, "pmstore"), "log", "append", "mine", "--exclusive"], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(holder.kill)
        while not self.stat("mine")["exclusive"]:
            time.sleep(0.01)
        self.assert_fails(self.log("append", "mine", "no"), 1,
                          "an exclusive producer has this log")
        self.assert_fails(self.log("append", "mine", "--exclusive", "no"), 1,
                          "another producer has this log")
        self.good("append", "mine", "--exclusive", "--steal", "stolen")
        _, why = holder.communicate(b"too late\n", timeout=300)
        self.assertEqual(holder.returncode, 1)
        self.assertRegex(why.decode(), "another .*has the log")
        self.assertEqual(self.good("read", "mine"), lines + b"stolen\n")

    def test_commands_ride_through_a_restart_of_the_server(self):
        self.make_pool()
        server = self.serve()
        self.good("create", "l")

        def start(*arguments):
            command = subprocess.Popen(
                [os.path.join(BIN, "pmstore"), "log", *arguments, "--uri", self.uri,
                 "--ride-through", "120"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.addCleanup(command.stdout.close)
            self.addCleanup(command.wait)
            self.addCleanup(command.kill)
            return command

        follower = start("follow", "l", "--limit", "2")
        producer = start("append", "l")
        producer.stdin.write(b"before\n")
        producer.stdin.flush()
        self.assertEqual(follower.stdout.readline(), b"before\n")
        server.kill()
        server.wait()
        self.serve(self.uri)
        producer.stdin.write(b"behind\n")
        producer.stdin.close()
        self.assertIn(b"2 entries, index 1 to 2", producer.stdout.read())
        self.assertEqual(producer.wait(), 0)
        self.assertEqual(follower.stdout.readline(), b"behind\n")
        self.assertEqual(follower.wait(), 0)

    def test_what_was_acknowledged_survives_a_kill(self):
        self.make_pool()
        for exclusive in ([], ["--exclusive"]):
            server = self.serve()
            name = "kill" + "".join(exclusive)
            self.good("create", name, "--bytes", "8M",
                      "--when-full", "trim-oldest")
            environment = {**os.environ, "PMSTORE_URI": self.uri}
            writer = subprocess.Popen(
                [os.path.join(BIN, "pmstore"), "log", "append", name, "--json", "--batch", "4",
                 "--timeout", "100", *exclusive], env=environment, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

            def feed(pipe):
                try:
                    for i in range(10_000_000):
                        pipe.write(b"entry %d\n" % (i + 1))
                except BrokenPipeError:
                    pass
            feeder = threading.Thread(target=feed, args=(writer.stdin,))
            feeder.start()
            while self.stat(name)["next_index"] < 1000:
                time.sleep(0.01)
            server.send_signal(signal.SIGKILL)
            said = writer.stdout.read()
            why = writer.stderr.read().decode()
            writer.wait(300)
            feeder.join()
            writer.stdout.close()
            writer.stderr.close()
            try:
                writer.stdin.close()
            except BrokenPipeError:
                pass
            server.wait()
            self.assertEqual(writer.returncode, 1)
            self.assertRegex(why, r"\Apmstore: log append .*; [0-9]+ entries before it are")
            acknowledged = json.loads(said)["last_index"]
            self.assertGreater(acknowledged, 900)
            self.uri = "local:" + self.pool
            found = json.loads(self.good("read", name, "--json"))["entries"]
            self.assertGreaterEqual(found[-1]["index"], acknowledged)
            for before, entry in zip([None] + found, found):
                self.assertEqual(entry["payload"], "entry %d" % entry["index"])
                if before:
                    self.assertEqual(entry["index"], before["index"] + 1)

    def test_follow_sees_entries_as_they_come(self):
        self.make_pool()
        self.serve()
        self.good("create", "news")
        environment = {**os.environ, "PMSTORE_URI": self.uri}
        follower = subprocess.Popen(
            [os.path.join(BIN, "pmstore"), "log", "follow", "news", "--limit", "4"],
            env=environment, stdout=subprocess.PIPE)
        self.addCleanup(follower.stdout.close)
        self.addCleanup(follower.kill)
        for i in range(4):
            self.good("append", "news", *(["--exclusive"] if i % 2 else []), "item %d" % i)
            self.assertEqual(follower.stdout.readline(), b"item %d\n" % i)
        self.assertEqual(follower.wait(300), 0)
        self.assertEqual(self.good("follow", "news", "--from-tail", "--wait", "0.3"), b"")
        self.good("seal", "news")
        self.assertEqual(self.good("follow", "news").count(b"\n"), 4)

    def test_full_logs(self):
        self.make_pool()
        lines = b"".join(b"%0200d\n" % i for i in range(400))
        self.good("create", "bounded", "--bytes", "64K")
        self.assert_fails(self.log("append", "bounded", "--batch", "16", stdin=lines), 1,
                          r"the log is full: .* \d+ entries before it are durable")
        kept = self.stat("bounded")["next_index"] - 1
        self.assertGreater(kept, 100)
        self.good("trim", "bounded", "--below-index", "50")
        self.assertEqual(self.good("read", "bounded").split()[0], b"%0200d" % 49)
        self.good("append", "bounded", "there is room again")
        self.good("create", "window", "--bytes", "64K", "--when-full", "trim-oldest")
        self.good("append", "window", stdin=lines)
        left = self.good("read", "window").splitlines()
        self.assertEqual(left, lines.splitlines()[-len(left):])

    def test_names_are_listed_sealed_and_deleted(self):
        self.make_pool()
        for name in ("b", "a/x"):
            self.good("create", name)
        logs = json.loads(self.good("list", "--json"))["logs"]
        self.assertEqual(sorted(each["log"] for each in logs), ["a/x", "b"])
        self.assert_fails(self.log("create", "b"), 1, "there is a log 'b' already")
        self.good("append", "b", "last words")
        self.good("seal", "b")
        self.assertTrue(self.stat("b")["sealed"])
        self.assert_fails(self.log("append", "b", "more"), 1, "sealed")
        self.assertEqual(self.good("read", "b"), b"last words\n")
        self.good("delete", "b")
        self.assert_fails(self.log("read", "b"), 1, "there is no log 'b'")
        self.assertNotIn(b"b ", self.good("list"))

    def test_bad_input(self):
        self.make_pool()
        self.good("create", "log")
        self.assert_fails(self.log("append", "nobody", "x"), 1, "there is no log 'nobody'")
        self.assert_fails(self.log("create", "two words"), 1, "name")
        self.assert_fails(self.log("create", "small", "--bytes", "100"), 1,
                          "a log of 100 bytes is too small: use 16128 bytes to")
        self.assert_fails(self.log("create", "huge", "--bytes", "1G"), 1,
                          "a log of 1 GiB .* is too large|no room")
        self.assert_fails(self.log("append", "log", stdin=b"a\n\nb\n"), 1, "entry 2.*is empty")
        self.assert_fails(self.log("append", "log", "--framing", "length", stdin=b"\5\0\0\0abc"), 1,
                          "only 3 follow")
        self.assert_fails(self.log("append", "log", stdin=b"x" * ((1 << 20) + 1)), 1,
                          "more than 1048576 bytes")
        self.assert_fails(self.log("read", "log", "--from-lsn", "7"), 1, "7")
        for wrong in (["append"], ["trim", "log"], ["append", "log", "--steal", "x"],
                      ["append", "log", "--batch", "0"], ["read", "log", "--framing", "words"],
                      ["create", "x", "--when-full", "never"]):
            self.assert_fails(self.log(*wrong), 2, "wrong usage")

    def test_logs_take_space_of_a_pool_when_they_need_it_and_give_it_back(self):
        pool = os.path.join(self.folder, "by-need")
        uri = ["--uri", "local:" + pool]

        def free():
            return json.loads(run("pool", "info", pool, "--json").stdout)["free_bytes"]

        def for_logs():
            space = json.loads(run("pool", "info", pool, "--json").stdout)["space"]
            return next(each for each in space if each["kind"] == "log")
        self.assertEqual(run("pool", "create", pool, "--size", "64M").returncode, 0)
        at_first = free()
        self.assertEqual(run("log", "list", *uri).returncode, 0)
        self.assertEqual((for_logs()["extents"], free()), (0, at_first))
        self.assert_fails(run("log", "create", "x", "--bytes", "1G", *uri), 1, "what the pool has")
        self.assert_fails(run("log", "create", "x", "--bytes", "60M", *uri), 1,
                          "the largest that fits has")
        for name in ("a", "b"):
            made = run("log", "create", name, "--bytes", "12M", *uri)
            self.assertEqual(made.returncode, 0, made)
            self.assertEqual(run("log", "append", name, *uri, stdin=b"one\n").returncode, 0)
        self.assertEqual(for_logs()["extents"], 3)
        self.assertGreater(for_logs()["bytes"], 24 << 20)
        self.assertLess(free(), at_first)
        self.assertEqual(run("log", "delete", "a", *uri).returncode, 0)
        self.assertEqual(for_logs()["extents"], 2)
        self.assertEqual(run("log", "read", "b", *uri).stdout, b"one\n")
        self.assertEqual(run("log", "delete", "b", *uri).returncode, 0)
        # The directory stays.
        self.assertEqual(for_logs()["extents"], 1)
        self.assertGreater(free(), at_first - (4 << 20))
        self.assertTrue(json.loads(run("pool", "check", pool, "--json").stdout)["sound"])


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    unittest.main()
