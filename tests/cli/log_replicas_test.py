#!/usr/bin/env python3
"""usage: log_replicas_test.py BIN FAILING_MSYNC: pmstore log and bench log with replicas on several
pmstoreds.

FAILING_MSYNC is the library made from failing_msync.cc.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BIN = ""
FAILING_MSYNC = ""


def run(*arguments, stdin=b"", uri=None):
    everything = {k: v for k, v in os.environ.items() if k != "PMSTORE_URI"}
    if uri:
        everything["PMSTORE_URI"] = uri
    return subprocess.run([os.path.join(BIN, "pmstore"), *arguments], input=stdin, timeout=300,
                          capture_output=True, env=everything, check=False)


class Servers(unittest.TestCase):
    SCHEME = "tcp"
    COUNT = 3
    MORE = ("--lease-ms", "60000")  # options of pmstored

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-replicas.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.processes = {}
        self.addCleanup(self.kill_all)
        self.uris = [self.first_uri(i) for i in range(self.COUNT)]
        for i in range(self.COUNT):
            done = run("pool", "create", self.pool(i), "--size", "48M", "--log-bytes", "16M")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.start(i)

    def pool(self, i):
        return os.path.join(self.folder, f"pool{i}")

    def first_uri(self, i):
        if self.SCHEME == "tcp":
            return "tcp://127.0.0.1:0"
        return f"shm://{os.path.basename(self.folder)}.{i}"

    def start(self, i, **env):
        server = subprocess.Popen(
            [os.path.join(BIN, "pmstored"), "--pool", self.pool(i), "--listen", self.uris[i],
             "--json", *self.MORE], stdout=subprocess.PIPE, env={**os.environ, **env})
        self.processes[i] = server
        self.uris[i] = json.loads(server.stdout.readline())["listen"][0]

    def kill(self, i):
        server = self.processes.pop(i)
        server.send_signal(signal.SIGKILL)
        server.wait()
        server.stdout.close()

    def kill_all(self):
        for i in list(self.processes):
            self.kill(i)

    def replicas(self, *which):
        return [word for i in which for word in ("--replica", self.uris[i])]

    def log(self, *arguments, at=(0,), stdin=b""):
        # On a busy machine a server may not run for seconds; one that is gone is noticed at once.
        return run("log", *arguments, "--timeout", "100", *self.replicas(*at), stdin=stdin)

    def good(self, *arguments, at=(0,), stdin=b""):
        done = self.log(*arguments, at=at, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def follower(self, name, *arguments, at):
        """pmstore log follow, in the background; it ends with the test at the latest."""
        process = subprocess.Popen(
            [os.path.join(BIN, "pmstore"), "log", "follow", name, *arguments, *self.replicas(*at),
             "--timeout", "100"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def members(self, name, at=(0,)):
        return json.loads(self.log("members", name, "--json", at=at).stdout)

    def assert_fails(self, done, status, pattern):
        self.assertEqual(done.returncode, status, done)
        self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
        self.assertRegex(done.stderr.decode(), pattern)

    def assert_equal_replicas(self, name, which):
        """A replica that is current is read at the server that is named first."""
        contents = [json.loads(self.good("read", name, "--json", at=(i,)))["entries"]
                    for i in which]
        for other in contents[1:]:
            self.assertEqual(contents[0], other)
        return contents[0]


class Story(Servers):
    def write_until_killed(self, victim):
        """Appends while a replica is killed; gives the last acknowledged index."""
        writer = subprocess.Popen(
            [os.path.join(BIN, "pmstore"), "log", "append", "orders", "--json", "--batch", "4",
             "--timeout", "100", *self.replicas(0)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        def feed(pipe):
            try:
                for i in range(10_000_000):
                    pipe.write(b"entry %d\n" % (i + 1))
            except BrokenPipeError:
                pass
        feeder = threading.Thread(target=feed, args=(writer.stdin,))
        feeder.start()
        until = time.monotonic() + 600
        while self.members("orders")["servers"][0]["next_index"] < 500:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        self.kill(victim)
        said = writer.stdout.read()
        why = writer.stderr.read().decode()
        writer.wait(300)
        feeder.join()
        for pipe in (writer.stdin, writer.stdout, writer.stderr):
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        self.assertEqual(writer.returncode, 1)
        self.assertEqual(why.count("\n"), 1, why)
        self.assertIn(self.uris[victim], why)
        self.assertRegex(why, r"(has not confirmed it|may or may not be there).* entries before it "
                              "are durable on every replica; .*pmstore log drop-member orders")
        return json.loads(said)["last_index"]

    def test_the_first_replica_is_named_when_it_is_lost(self):
        self.good("create", "orders", "--bytes", "4M", "--when-full", "trim-oldest", at=(0, 1, 2))
        self.assertGreater(self.write_until_killed(0), 400)

    def test_a_replica_killed_dropped_and_added_again(self):
        self.good("create", "orders", "--bytes", "4M", "--when-full", "trim-oldest", at=(0, 1, 2))
        acknowledged = self.write_until_killed(1)
        self.assertGreater(acknowledged, 400)
        # Nothing goes on by itself.
        for command in (["append", "orders", "x"], ["read", "orders"], ["members", "orders"],
                        ["trim", "orders", "--below-index", "2"], ["seal", "orders"]):
            self.assert_fails(self.log(*command), 1,
                              self.uris[1] + ".*pmstore log drop-member orders")
        self.assertEqual([s["state"] for s in self.members("orders")["servers"]],
                         ["not confirmed", "missing", "not confirmed"])

        said = json.loads(self.good("drop-member", "orders", self.uris[1], "--steal", "--json"))
        self.assertEqual(said, {"log": "orders", "membership": 2,
                                "replicas": [self.uris[0], self.uris[2]]})
        entries = self.assert_equal_replicas("orders", (0, 2))
        self.assertGreaterEqual(entries[-1]["index"], acknowledged)
        for before, entry in zip([None] + entries, entries):
            self.assertEqual(entry["payload"], "entry %d" % entry["index"])
            self.assertTrue(before is None or entry["index"] == before["index"] + 1)
        self.good("append", "orders", "while it is away")

        # It comes back with what it had, and is not believed; it says who the others are.
        self.start(1)
        self.good("append", "orders", "it is back", at=(1,))
        states = {s["uri"]: s["state"] for s in self.members("orders", at=(1,))["servers"]}
        self.assertEqual(states, {self.uris[0]: "current", self.uris[1]: "dropped",
                                  self.uris[2]: "current"})
        self.assert_fails(self.log("add-member", "orders", self.uris[1]), 1, "already; --replace")
        self.good("add-member", "orders", self.uris[1], "--replace")
        after = self.members("orders", at=(1,))
        self.assertTrue(after["agreed"])
        self.assertEqual(after["membership"], 3)
        self.assertEqual(after["replicas"], [self.uris[0], self.uris[2], self.uris[1]])
        self.good("append", "orders", "all three have this")
        entries = self.assert_equal_replicas("orders", (0, 1, 2))
        self.assertEqual([e["payload"] for e in entries[-3:]],
                         ["while it is away", "it is back", "all three have this"])
        # All of them crash; everything is there on all.
        self.kill_all()
        for i in range(3):
            self.start(i)
        self.good("append", "orders", "after the crash of all")
        again = self.assert_equal_replicas("orders", (0, 1, 2))
        self.assertEqual(again[:-1], entries)


class StoryOverShm(Story):
    SCHEME = "shm"


class Commands(Servers):
    def test_one_log_from_its_creation_to_its_end(self):
        lines = b"".join(b"line %d\n" % i for i in range(300))
        self.good("append", "log", "--create", at=(0, 1, 2), stdin=lines)
        for i in range(3):
            self.assertEqual(self.good("read", "log", at=(i,)), lines)
        said = json.loads(self.good("stat", "log", "--json"))
        self.assertEqual((said["membership"], said["replicas"]), (1, self.uris))
        self.good("trim", "log", "--below-index", "100", at=(2,))
        lsn = self.assert_equal_replicas("log", (0, 1, 2))[0]["lsn"]
        self.assertEqual(lsn, self.assert_equal_replicas("log", (0, 1, 2))[0]["lsn"])
        self.assertEqual(self.members("log")["servers"][2]["start_lsn"], lsn)
        self.good("seal", "log", at=(1,))
        self.good("seal", "log")
        self.assertTrue(all(s["sealed"] for s in self.members("log")["servers"]))
        self.assertEqual(self.good("follow", "log", "--from-lsn", str(lsn)).count(b"\n"), 201)
        self.assert_fails(self.log("append", "log", "x"), 1, "sealed")
        self.good("delete", "log", at=(2,))
        for i in range(3):
            self.assert_fails(self.log("read", "log", at=(i,)), 1, "there is no log 'log'")

    def test_trimming_and_following_while_somebody_appends(self):
        self.good("create", "news", at=(0, 1))
        holder = subprocess.Popen(
            [os.path.join(BIN, "pmstore"), "log", "append", "news", *self.replicas(0)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(holder.kill)
        follower = self.follower("news", "--limit", "5", at=(1,))
        for i in range(5):
            holder.stdin.write(b"item %d\n" % i)
            holder.stdin.flush()
            self.assertEqual(follower.stdout.readline(), b"item %d\n" % i)
        self.assertEqual(follower.wait(300), 0)
        self.good("trim", "news", "--below-index", "3")
        self.assert_fails(self.log("append", "news", "x"), 1, "--steal takes the log over")
        self.assert_fails(self.log("delete", "news"), 1, "producer")
        self.good("append", "news", "--steal", "stolen")
        _, why = holder.communicate(b"too late\n", timeout=300)
        self.assertEqual(holder.returncode, 1)
        self.assertRegex(why.decode(), "another producer has .*5 entries before it are durable")
        self.assertEqual(self.good("read", "news", at=(1,)), b"item 2\nitem 3\nitem 4\nstolen\n")

    def test_a_follower_goes_on_elsewhere_when_its_replica_is_dropped(self):
        self.good("append", "news", "--create", "before", at=(0, 1, 2))
        follower = self.follower("news", "--limit", "3", at=(2,))
        self.assertEqual(follower.stdout.readline(), b"before\n")
        self.good("drop-member", "news", self.uris[2])
        self.good("append", "news", "without it")
        self.assertEqual(follower.stdout.readline(), b"without it\n")
        self.good("append", "news", "the last")
        self.assertEqual(follower.wait(300), 0)
        self.assertEqual(follower.stdout.read(), b"the last\n")

    def test_too_few_that_stay_go_on_only_by_force(self):
        self.good("append", "log", "one", "--create", at=(0, 1, 2))
        self.kill(0)
        self.kill(1)
        gone = ["drop-member", "log", self.uris[0], self.uris[1]]
        self.assert_fails(self.log(*gone, at=(2,)), 1, "gone for good \\(--gone\\)")
        self.assertEqual(self.good(*gone, "--gone", at=(2,)).decode(),
                         f"membership 2: {self.uris[2]}\n")
        self.assertEqual(self.good("read", "log", at=(2,)), b"one\n")

    def test_a_drop_behind_an_interrupted_one_is_refused(self):
        self.good("append", "log", "one", "--create", at=(0, 1, 2))
        sign = os.path.join(self.folder, "msync-fails")
        # The second one's medium fails: at one of these moments only the first one has recorded it.
        for calls in range(100):
            self.kill(1)
            self.start(1, LD_PRELOAD=FAILING_MSYNC, PMSTORE_TEST_MSYNC_FAILS=sign)
            with open(sign, "w", encoding="ascii") as file:
                file.write(str(calls))
            interrupted = self.log("drop-member", "log", self.uris[2], "--steal")
            self.assert_fails(interrupted, 1, self.uris[1])
            os.unlink(sign)
            if self.members("log", at=(0,))["servers"][0]["membership"] == 2:
                break
        self.kill(1)
        refused = self.log("drop-member", "log", self.uris[1], at=(0, 2))
        self.assertEqual(refused.stdout, b"")
        self.assert_fails(refused, 1,
                          "membership 2 was interrupted.*pmstore log append.*\\(--gone\\)")
        self.start(1)
        self.good("append", "log", "two")
        self.assertEqual(self.members("log")["replicas"], self.uris[:2])
        self.good("drop-member", "log", self.uris[1])
        self.assertEqual(self.good("read", "log"), b"one\ntwo\n")

    def test_an_interrupted_delete_is_finished(self):
        self.good("create", "log", at=(0, 1, 2))
        done = run("log", "delete", "log", "--uri", self.uris[1], "--this-replica")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.good("delete", "log", at=(0,))
        self.assert_fails(self.log("members", "log", at=(2,)), 1, "there is no log")

    def test_wrong_input(self):
        one, two, three = self.uris
        self.good("create", "log", at=(0, 1))
        again = self.log("create", "log", at=(0, 1))
        self.assert_fails(again, 1, "there is a replicated log 'log' already")
        self.assert_fails(self.log("create", "twice", at=(0, 0)), 2, f"{one} is given twice")
        alias = one.replace("127.0.0.1", "localhost")
        done = run("log", "create", "alias", "--replica", one, "--replica", alias)
        self.assert_fails(done, 1, f"{one} and {alias} are the same pool")
        self.assert_fails(self.log("stat", "alias"), 1, "there is no log 'alias'")
        done = run("log", "add-member", "log", alias, "--replica", one)
        self.assert_fails(done, 1, f"{one} and {alias} are the same pool")
        # The same name on other servers is another log.
        done = run("log", "create", "log", "--uri", three)
        self.assertEqual(done.returncode, 0, done.stderr)
        for command in (["append", "log", "x"], ["read", "log"], ["delete", "log"]):
            self.assert_fails(self.log(*command, at=(0, 2)), 1, f"{three}: .*another log")
        self.assert_fails(self.log("add-member", "log", three), 1, "already")
        self.assert_fails(self.log("add-member", "log", three, "--replace"), 1,
                          f"{three}: it has another log of that name")
        self.assert_fails(self.log("append", "log", "x", at=(2,)), 1, "is not replicated")
        # One server of a replicated log is not the log.
        for command in (["append", "log", "x"], ["read", "log"], ["follow", "log"],
                        ["trim", "log", "--below-index", "1"], ["seal", "log"], ["delete", "log"]):
            done = run("log", *command, uri=one)
            self.assert_fails(done, 1, f"use --replica {one} instead of --uri")
        self.assert_fails(self.log("drop-member", "log", three), 1, f"{three} is no replica")
        self.assert_fails(self.log("add-member", "log", two), 1, "it is a replica")
        self.assert_fails(self.log("members", "nobody"), 1, "there is no log 'nobody'")
        for wrong in (["create", "x", "--replica", one, "--uri", two], ["create", "x"],
                      ["create", "x", "--replica", "ftp://x"], ["drop-member", "log", "--uri", one],
                      ["delete", "log", "--replica", one, "--this-replica"],
                      ["read", "log", "--replica", one, "--assume-domain", "adr"]):
            self.assert_fails(run("log", *wrong), 2, "wrong usage")
        self.assert_fails(run("log", "append", "log", "x", "--steal", "--uri", one), 2,
                          "--steal requires")

    def test_a_stale_member_alone_is_refused(self):
        self.good("append", "log", "old", "--create", at=(0, 1, 2))
        self.kill(2)
        self.good("drop-member", "log", self.uris[2])
        self.good("append", "log", "new")
        self.start(2)
        self.assertEqual(self.good("read", "log", at=(2,)), b"old\nnew\n")
        self.kill(0)
        self.kill(1)
        self.assert_fails(self.log("read", "log", at=(2,)), 1,
                          f"({self.uris[0]}|{self.uris[1]}): nobody answers")

    def test_servers_are_asked_at_the_same_time(self):
        silent = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
        for each in silent:
            each.settimeout(250)
            self.addCleanup(each.close)
        ports = ["tcp://127.0.0.1:%d" % each.getsockname()[1] for each in silent]
        asking = subprocess.Popen(
            [os.path.join(BIN, "pmstore"), "log", "members", "log", "--timeout", "300",
             *[word for port in ports for word in ("--replica", port)]],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(asking.wait)
        self.addCleanup(asking.kill)
        # One after the other, the second one would not be asked before the first has timed out.
        for each in silent:
            asked, _ = each.accept()
            self.addCleanup(asked.close)
        self.assertIsNone(asking.poll())


class Bench(Servers):
    COUNT = 2

    def test_every_replica_is_checked(self):
        for shape in ([], ["--producers", "3", "--threads", "2", "--coroutines", "2",
                           "--batch", "4"]):
            done = run("bench", "log", "--ops", "600", "--log-bytes", "64K", "--json", *shape,
                       *self.replicas(0, 1))
            self.assertEqual(done.returncode, 0, done.stderr)
            said = json.loads(done.stdout)
            batch = 4 if shape else 1
            self.assertTrue(said["audit"]["ok"])
            self.assertEqual(said["config"]["replicas"], self.uris)
            self.assertEqual(said["results"][0]["ops"], 600)
            self.assertEqual(said["audit"]["read"], 2 * 600 * batch)
            self.assertEqual(said["audit"]["acknowledged"], 2 * 600 * batch)
            self.assertGreater(said["audit"]["laps"], 1)
            self.assertGreaterEqual(said["results"][0]["counters"]["round_trips_per_op"], 2)
            for uri in self.uris:
                left = json.loads(run("log", "list", "--uri", uri, "--json").stdout)["logs"]
                self.assertEqual(left, [])

    def test_wrong_options(self):
        both = self.replicas(0, 1)
        for wrong, pattern in (([*both, "--mode", "shared"], "has one producer"),
                               ([*both, "--model", "optane-cx5"], "model has one server"),
                               ([*both, *self.replicas(1)], "is given twice"),
                               ([*both, "--uri", self.uris[0]], "--replica excludes --uri"),
                               ([*both, "--assume-domain", "adr"], "give it to pmstored")):
            self.assert_fails(run("bench", "log", "--ops", "10", *wrong), 2, pattern)


class LongLeases(Servers):
    MORE = ("--lease-ms", "100000")

    def test_a_follower_ends_when_the_log_is_deleted_and_made_again(self):
        self.good("append", "news", "--create", "before", at=(0, 1, 2))
        follower = self.follower("news", at=(2,))
        self.assertEqual(follower.stdout.readline(), b"before\n")
        # No moment in between at which there is none: the follower would say so instead.
        follower.send_signal(signal.SIGSTOP)
        self.good("delete", "news")
        self.good("append", "news", "--create", "another log's", at=(0, 1, 2))
        follower.send_signal(signal.SIGCONT)
        out, why = follower.communicate(timeout=300)
        self.assertEqual((follower.returncode, out), (1, b""))
        self.assertEqual(why.count(b"\n"), 1, why)
        self.assertRegex(why.decode(), "the log news was deleted")


class Lonely(Servers):
    """A follower gives up when nobody knows more for 30 s. Meanwhile the other tests run."""

    def setUp(self):
        super().setUp()
        self.good("append", "news", "--create", "before", at=(0, 1, 2))
        self.waiting = self.follower("news", at=(2,))
        self.assertEqual(self.waiting.stdout.readline(), b"before\n")
        self.kill(0)
        self.kill(1)

    def end(self):
        out, why = self.waiting.communicate(timeout=300)
        self.assertEqual((self.waiting.returncode, out, why.count(b"\n")), (1, b"", 1), why)
        self.assertRegex(why.decode(), f"({self.uris[0]}|{self.uris[1]}).*drop it")


def setUpModule():
    TheLast.lonely = Lonely("end")
    unittest.addModuleCleanup(TheLast.lonely.doCleanups)
    TheLast.lonely.setUp()


class TheLast(unittest.TestCase):  # in the order of names
    def test_a_follower_ends_when_its_replica_is_dropped_and_nobody_knows_more(self):
        self.lonely.end()


class FilesThatServersName(Servers):
    COUNT = 1

    def test_only_the_one_who_reads_may_name_a_path_of_this_machine(self):
        pool = os.path.join(self.folder, "here")
        run("pool", "create", pool, "--size", "32M", "--log-bytes", "8M")
        here = ["--replica", "local:" + pool]
        done = run("log", "append", "log", "--create", *self.replicas(0), *here, stdin=b"one\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_fails(self.log("read", "log"), 1,
                          f"local:{pool}: {self.uris[0]} names it .* path of this machine")
        done = run("log", "read", "log", *self.replicas(0), *here)
        self.assertEqual((done.returncode, done.stdout), (0, b"one\n"), done.stderr)


class LocalPools(unittest.TestCase):
    def test_replicas_in_this_process(self):
        with tempfile.TemporaryDirectory(prefix="pmstore-replicas.") as folder:
            pools = [os.path.join(folder, name) for name in ("a", "b")]
            for pool in pools:
                run("pool", "create", pool, "--size", "32M", "--log-bytes", "8M")
            both = [w for pool in pools for w in ("--replica", "local:" + pool)]
            done = run("log", "append", "log", "--create", *both, stdin=b"one\ntwo\n")
            self.assertEqual(done.returncode, 0, done.stderr)
            for pool in pools:
                done = run("log", "read", "log", "--replica", "local:" + pool)
                self.assertEqual(done.stdout, b"one\ntwo\n", done.stderr)
            done = run("bench", "log", "--ops", "200", "--producers", "2", "--json",
                       "--assume-domain", "eadr", *both)
            self.assertEqual(done.returncode, 0, done.stderr)
            counters = json.loads(done.stdout)["results"][0]["counters"]
            self.assertEqual(counters["doorbells_per_op"], 2.0)
            self.assertEqual(counters["server_messages_per_op"], 0.0)

    def test_what_a_pool_is_called_does_not_make_gone_the_advice(self):
        with tempfile.TemporaryDirectory(prefix="pmstore-replicas.") as folder:
            both = []
            for name in ("here", "gone for good"):
                pool = os.path.join(folder, name)
                run("pool", "create", pool, "--size", "32M", "--log-bytes", "8M")
                both += ["--replica", "local:" + pool]
                done = run("log", "create", "log", *both[-2:])
                self.assertEqual(done.returncode, 0, done.stderr)
            refused = run("log", "drop-member", "log", "local:/nowhere", *both)
            self.assertEqual(refused.returncode, 1)
            self.assertRegex(refused.stderr.decode(), "gone for good have different logs")
            self.assertNotIn("--gone", refused.stderr.decode())


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    FAILING_MSYNC = sys.argv.pop(1)
    unittest.main()
