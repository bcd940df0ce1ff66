#!/usr/bin/env python3
"""usage: programs_test.py BIN FAILING_MSYNC: pmstored and pmstore in BIN, from the outside.

FAILING_MSYNC is the library made from failing_msync.cc.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

BIN = ""
FAILING_MSYNC = ""
LEAVES = [["pool", "create"], ["pool", "info"], ["pool", "check"], ["pool", "limit"],
          ["kv", "get"], ["kv", "put"], ["kv", "del"], ["kv", "scan"], ["kv", "txn"],
          ["kv", "outcome"], ["bench", "kv"], ["bench", "smallbank"], ["bench", "micro"],
          ["bench", "msync"], ["bench", "persist"], ["bench", "ycsb"], ["ddio", "status"],
          ["ddio", "on"], ["ddio", "off"], ["ddio", "restore"], ["doctor"],
          ["tune", "counters"], ["tune", "advise"], ["log", "create"], ["log", "append"],
          ["log", "read"], ["log", "follow"], ["log", "trim"], ["log", "seal"],
          ["log", "delete"], ["log", "list"], ["log", "stat"], ["stat"],
          ["session", "list"], ["session", "kick"], ["fs", "ls"], ["fs", "stat"], ["fs", "df"],
          ["fs", "du"], ["fs", "find"], ["fs", "mkdir"], ["fs", "mv"], ["fs", "ln"], ["fs", "rm"],
          ["fs", "put"], ["fs", "get"], ["fs", "cp"], ["fs", "cat"], ["fs", "check"],
          ["fs", "mount"]]


def run(*arguments, program="pmstore", stdin=b"", env=None):
    everything = {k: v for k, v in os.environ.items() if k != "PMSTORE_URI"}
    everything.update(env or {})
    return subprocess.run([os.path.join(BIN, program), *arguments], input=stdin, timeout=300,
                          capture_output=True, env=everything, check=False)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class Programs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-cli.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.pool = os.path.join(self.folder, "pool")
        self.uri = {"PMSTORE_URI": "local:" + self.pool}

    def make_pool(self, *options):
        done = run("pool", "create", self.pool, "--size", "32M", *options)
        self.assertEqual(done.returncode, 0, done.stderr)

    def kv(self, *arguments, stdin=b""):
        return run("kv", *arguments, stdin=stdin, env=self.uri)

    def assert_fails(self, done, status, pattern):
        self.assertEqual(done.returncode, status, done)
        text = done.stderr.decode()
        self.assertEqual(text.count("\n"), 1, text)
        self.assertRegex(text, pattern)

    def test_every_help_has_an_example(self):
        for leaf in LEAVES:
            done = run(*leaf, "--help")
            self.assertEqual(done.returncode, 0, leaf)
            self.assertIn(b"example: pmstore " + " ".join(leaf[:1]).encode(), done.stdout
                          .replace(b"pmstore kv txn", b"example: pmstore kv"), leaf)
        self.assertIn(b"example: pmstored", run("--help", program="pmstored").stdout)

    def test_version_names_version_and_revision(self):
        for program in ("pmstore", "pmstored"):
            done = run("--version", program=program)
            revision = r"( \(revision [0-9a-f]{12}(-changed)?\))?"
            self.assertRegex(done.stdout.decode(), rf"^{program} \d+\.\d+\.\d+{revision}\n$")

    def test_wrong_usage_is_status_2_and_one_line(self):
        for wrong in ([], ["pol"], ["kv"], ["kv", "get"], ["kv", "get", "--uri", "nonsense", "k"],
                      ["kv", "get", "k"], ["pool", "create", "x", "--size", "12Q"],
                      ["bench", "kv", "--uri", "local:x", "--seconds", "1", "--ops", "5"],
                      ["bench", "kv", "--uri", "local:x", "--mix", "most"],
                      ["kv", "outcome", "--uri", "local:x", "not-a-name"]):
            self.assert_fails(run(*wrong), 2, "^pmstore: wrong usage: .*--help\n$")
        self.assert_fails(run(program="pmstored"), 2, "^pmstored: wrong usage: ")

    def test_uri_on_the_command_line_wins_against_the_environment(self):
        self.make_pool()
        self.kv("put", "k", "old")
        name = "0123456789abcdef0123456789abcdef-42-dd5a"
        for elsewhere in ("local:/nowhere/pool", "nonsense"):
            env = {"PMSTORE_URI": elsewhere}
            uri = ["--uri", self.uri["PMSTORE_URI"]]
            for before, after in ((uri, []), ([], uri)):
                for command in (["kv", "put", "k", "v"], ["kv", "get", "k"], ["kv", "scan"],
                                ["kv", "del", "k"], ["kv", "txn", "-e", "put k v"],
                                ["bench", "kv", "--ops", "9", "--keys", "9"],
                                ["bench", "smallbank", "--ops", "9", "--accounts", "9"]):
                    done = run(*command[:2], *before, *command[2:], *after, env=env)
                    self.assertEqual(done.returncode, 0, (elsewhere, command, done.stderr))
                done = run("kv", "outcome", *before, name, *after, env=env)
                self.assertNotRegex(done.stderr.decode(), "nowhere|nonsense|wrong usage")
            # Commands that have no --uri do not look at it.
            self.assertEqual(run("pool", "info", self.pool, env=env).returncode, 0)
        self.assertEqual(self.kv("get", "k").stdout, b"v\n")
        self.assert_fails(run("kv", "get", "k", env={"PMSTORE_URI": "local:/nowhere/pool"}), 1,
                          "/nowhere/pool")
        self.assert_fails(run("kv", "get", "k", env={"PMSTORE_URI": "nonsense"}), 2, "nonsense")

    def test_values_come_back_as_they_were(self):
        self.make_pool()
        value = bytes(range(256)) * 9
        self.assertEqual(self.kv("put", "k", "-", stdin=value).returncode, 0)
        self.assertEqual(self.kv("get", "k", "--raw").stdout, value)
        with open(os.path.join(self.folder, "v"), "wb") as file:
            file.write(b"from a file")
        self.assertEqual(self.kv("put", "k", "@" + file.name).returncode, 0)
        self.assertEqual(self.kv("get", "k").stdout, b"from a file\n")
        self.assertEqual(self.kv("put", "k", "--literal", "@x").returncode, 0)
        self.assertEqual(self.kv("get", "k").stdout, b"@x\n")
        self.assertEqual(self.kv("del", "k").returncode, 0)
        self.assert_fails(self.kv("get", "k"), 1, "kv get 'k': not found in table 'default'")
        self.assert_fails(self.kv("del", "k"), 1, "not found")

    def test_json_is_valid_whatever_the_bytes(self):
        self.make_pool()
        self.kv("put", "text", "Grüße")
        self.kv("put", b"\xff\xfe", "-", stdin=b"\x80")
        found = json.loads(self.kv("scan", "--json").stdout)
        self.assertCountEqual(found["records"], [
            {"key": "text", "value": "Grüße"},
            {"key": {"base64": "//4="}, "value": {"base64": "gA=="}}])
        self.assertTrue(found["complete"])
        self.assertEqual(json.loads(self.kv("get", "text", "--json").stdout)["value"], "Grüße")
        for command in (["info"], ["check"]):
            json.loads(run("pool", *command, self.pool, "--json").stdout)
        few = json.loads(self.kv("scan", "--json", "--limit", "1").stdout)
        self.assertEqual((len(few["records"]), few["complete"]), (1, False))
        one = json.loads(self.kv("scan", "--json", "--prefix", "te").stdout)
        self.assertEqual(len(one["records"]), 1)

    def test_limits_and_unknown_tables(self):
        self.make_pool()
        self.assert_fails(self.kv("put", "k" * 513, "v"), 1, "513 bytes.*512")
        self.kv("put", "k" * 512, "v")
        self.assertEqual(self.kv("get", "k" * 512).stdout, b"v\n")
        self.assert_fails(self.kv("put", "k", "-", stdin=b"v" * (2**20 + 1)), 1, "1048576 bytes")
        self.assert_fails(self.kv("get", "k", "--table", "nope"), 1, "no table 'nope'")
        self.assert_fails(self.kv("put", "k", "v", "--table", "t" * 48), 1, "47")

    def test_a_script_happens_as_a_whole_or_not_at_all(self):
        self.make_pool()
        self.kv("put", "alice", "100")
        moved = self.kv("txn", stdin=b"check alice 100\nput alice 90\nput bob 10\nget alice\n")
        self.assertEqual(moved.returncode, 0, moved.stderr)
        self.assertRegex(moved.stdout.decode(),
                         r"^alice\t90\ncommitted [0-9a-f]{32}-\d+-[0-9a-f]{4}\n$")
        self.assert_fails(self.kv("txn", "-e", "put alice 0\ncheck bob 11"), 1,
                          "line 2: check 'bob': it is '10', not '11'; nothing was changed")
        self.assert_fails(self.kv("txn", "-e", "put alice 0\ninsert bob 1"), 1,
                          "line 2: insert 'bob': the key is there already")
        self.assert_fails(self.kv("txn", "-e", "put alice 0\ndel carol"), 1, "not there|not found")
        self.assertEqual(self.kv("get", "alice").stdout, b"90\n")
        self.assert_fails(self.kv("txn", "-e", "frob alice"), 1, "line 1: 'frob' is no operation")
        name = re.search(r"committed (\S+)", moved.stdout.decode()).group(1)
        # It is in the shard log still.
        self.assertEqual(self.kv("outcome", name).stdout, b"committed\n")

    def test_bad_pools_are_refused_and_left_alone(self):
        self.make_pool()
        with open(self.pool, "rb") as file:
            good = file.read()
        damaged = bytearray(good)
        damaged[0:64] = b"\xa5" * 64
        for name, content in (("empty", b""), ("foreign", b"not a pool\n" * 9000),
                              ("truncated", good[:20 << 20]), ("damaged", bytes(damaged))):
            path = os.path.join(self.folder, name)
            with open(path, "wb") as file:
                file.write(content)
            before = digest(path)
            for done in (run("pool", "info", path), run("pool", "check", path),
                         run("kv", "get", "--uri", "local:" + path, "k"),
                         run("--pool", path, "--listen", "tcp://127.0.0.1:0", program="pmstored")):
                self.assert_fails(done, 1, name)
            self.assertEqual(digest(path), before, name)
        self.assert_fails(run("pool", "create", self.pool, "--size", "32M"), 1, "pool")
        self.assert_fails(run("pool", "info", os.path.join(self.folder, "none")), 1, "none")
        with open(self.pool, "rb") as file:
            self.assertEqual(file.read(), good)

    def log_extents(self):
        info = json.loads(run("pool", "info", self.pool, "--json").stdout)
        return [extent for extent in info["extents"] if extent["kind"] == "log"]

    def test_a_pool_has_the_log_area_that_was_asked_for(self):
        self.make_pool("--log-bytes", "2M")
        (extent,) = self.log_extents()
        self.assertEqual(extent["bytes"], 2 << 20)
        self.assertIn(b"for log", run("pool", "info", self.pool).stdout)
        checked = json.loads(run("pool", "check", self.pool, "--json").stdout)
        self.assertEqual(checked["logs"]["logs"], 0)
        self.assertEqual(checked["logs"]["area_bytes"], 2 << 20)
        self.assertIn(b"largest log that fits", run("pool", "check", self.pool).stdout)
        # Damage to the area is found, by the check and by a server.
        with open(self.pool, "r+b") as file:
            for copy in (0, 256):
                file.seek(extent["offset"] + copy)
                file.write(b"damage")
        self.assert_fails(run("pool", "check", self.pool), 1, "log area is damaged")
        self.assert_fails(run("--pool", self.pool, "--listen", "tcp://127.0.0.1:0",
                              program="pmstored"), 1, "log area is damaged")

    def test_a_pool_has_the_room_for_files_that_was_asked_for(self):
        self.make_pool("--file-bytes", "4M")
        info = json.loads(run("pool", "info", self.pool, "--json").stdout)
        (extent,) = [each for each in info["extents"] if each["kind"] == "file data"]
        self.assertEqual(extent["bytes"], 4 << 20)
        checked = json.loads(run("pool", "check", self.pool, "--json").stdout)
        self.assertIn(checked["file_bytes"], [units << 16 for units in (62, 63)])
        self.assertIn(b"room for file data", run("pool", "check", self.pool).stdout)
        # Damage to its header is found, by the check and by a server.
        with open(self.pool, "r+b") as file:
            for copy in (0, 256):
                file.seek(extent["offset"] + copy)
                file.write(b"damage")
        self.assert_fails(run("pool", "check", self.pool), 1, "area for files is damaged")
        self.assert_fails(run("--pool", self.pool, "--listen", "tcp://127.0.0.1:0",
                              program="pmstored"), 1, "area for files is damaged")

    def test_a_pool_keeps_its_rules(self):
        self.make_pool("--rules", "none,+h6", "--log-bytes", "2M")

        def info(*more):
            return run("pool", "info", self.pool, *more).stdout
        self.assertEqual(json.loads(info("--json"))["rules"], "all,-h5,-h7")
        self.assertRegex(info().decode(), r"rules +all,-h5,-h7\n")
        for value in ("a", "b" * 3000, "c"):
            self.assertEqual(self.kv("put", "key", value).returncode, 0)
            self.assertEqual(self.kv("get", "key").stdout.decode(), value + "\n")
        self.assertEqual(json.loads(info("--json"))["rules"], "all,-h5,-h7")
        self.assertTrue(json.loads(run("pool", "check", self.pool, "--json").stdout)["sound"])

    def test_a_pool_has_nothing_for_logs_before_its_first_log(self):
        self.make_pool()
        self.assertEqual(self.log_extents(), [])
        self.assertIsNone(json.loads(run("pool", "check", self.pool, "--json").stdout)["logs"])
        os.unlink(self.pool)
        self.assert_fails(run("pool", "create", self.pool, "--size", "32M", "--log-bytes", "64M"),
                          1, r"no room for a log area of 64 MiB \(67108864 bytes\): at most")
        self.assertFalse(os.path.exists(self.pool))

    def test_a_pool_that_is_too_small_leaves_no_file(self):
        small = os.path.join(self.folder, "small")
        self.assert_fails(run("pool", "create", small, "--size", "1M"), 1, "small")
        self.assertFalse(os.path.exists(small))

    def serve(self, *options, env=None):
        server = subprocess.Popen([os.path.join(BIN, "pmstored"), *options],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env={**os.environ, **(env or {})})
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        return server, server.stdout.readline().decode()

    def test_the_daemon_learns_how_its_children_end_whoever_starts_it(self):
        self.make_pool()
        ignoring = ["sh", "-c", "trap '' CHLD; exec \"$@\"", "sh", os.path.join(BIN, "pmstored"),
                    "--pool", self.pool, "--listen", "tcp://127.0.0.1:0"]
        server = subprocess.Popen(ignoring, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.assertRegex(server.stdout.readline().decode(), "^pmstored: serving ")
        with open(f"/proc/{server.pid}/status", encoding="ascii") as file:
            ignored = int(re.search(r"^SigIgn:\s*(\w+)", file.read(), re.M).group(1), 16)
        self.assertFalse(ignored >> (signal.SIGCHLD - 1) & 1, "a child's end is ignored")
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(timeout=300), 0)

    def test_the_daemon_serves_and_ends_in_order(self):
        self.make_pool()
        server, line = self.serve("--pool", self.pool, "--listen", "tcp://127.0.0.1:0")
        self.assertRegex(line, r"^pmstored: serving \S+ at tcp://127.0.0.1:\d+ "
                               r"\(domain none, locks cpu\); recovered 0 transactions in ")
        uri = re.search(r"tcp://\S+", line).group(0)
        self.assertEqual(run("kv", "put", "--uri", uri, "k", "v").returncode, 0)
        self.assert_fails(self.kv("get", "k"), 1, "in use|busy|Busy")
        self.assertIn(b"served by process", run("pool", "info", self.pool).stdout)
        self.assert_fails(run("pool", "check", self.pool), 1, "it is served by process")
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(timeout=300), 0)
        server, line = self.serve("--pool", self.pool, "--listen", "tcp://127.0.0.1:0", "--json")
        recovery = json.loads(line)["recovery"]
        # Everything is in place; the log has at most the marks of a truncation.
        self.assertEqual(recovery["transactions"], 0)
        self.assertLessEqual(recovery["log_entries"], 1)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(timeout=300), 0)
        self.assertEqual(self.kv("get", "k").stdout, b"v\n")

    def test_a_daemon_that_cannot_close_its_pool_is_status_1(self):
        self.make_pool()
        sign = os.path.join(self.folder, "msync-fails")
        for work in (False, True):
            server, line = self.serve("--pool", self.pool, "--listen", "tcp://127.0.0.1:0",
                                      "--log-level", "error",
                                      env={"LD_PRELOAD": FAILING_MSYNC,
                                           "PMSTORE_TEST_MSYNC_FAILS": sign})
            uri = re.search(r"tcp://\S+", line).group(0)
            self.assertEqual(run("kv", "put", "--uri", uri, "k", str(work)).returncode, 0)
            with open(sign, "wb"):
                pass
            if work:  # the failure ends the service
                self.assert_fails(run("kv", "put", "--uri", uri, "k", "lost"), 1, "kv put")
            else:
                server.send_signal(signal.SIGTERM)
            self.assertEqual(server.wait(timeout=300), 1)
            said = server.stderr.read().decode()
            self.assertRegex(said, rf"^pmstored: '{self.pool}' was not closed in order: [^\n]+\n$")
            os.unlink(sign)
            self.assertIn(self.kv("get", "k").stdout, (b"%a\n" % work, b"lost\n"))

    def test_the_config_file_has_the_flags_names(self):
        config = os.path.join(self.folder, "config.toml")

        def configure(text):
            with open(config, "w", encoding="utf-8") as file:
                file.write(text)

        configure(f'pool = "{self.pool}"\ncreate = "32M"\nlisten = ["tcp://127.0.0.1:0"]\n'
                  'lease-ms = 4000\nlocks = "rnic"\n')
        server, line = self.serve("--config", config, "--locks", "cpu", "--json")
        self.assertEqual(json.loads(line)["locks"], "cpu", "flags win")
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(timeout=300), 0)
        for text, pattern in (('pol = "x"', "no key 'pol'; there are pool, listen"),
                              ("pool = [", "line 1"), ("lease-ms = true", "lease-ms"),
                              ('listen = "ftp://x"', "ftp"), ("pool = 1.5", "pool")):
            configure(text)
            done = run("--config", config, "--pool", self.pool, program="pmstored")
            self.assert_fails(done, 2, pattern)
        done = run("--config", os.path.join(self.folder, "none"), program="pmstored")
        self.assert_fails(done, 2, "none")

    def test_benchmarks_print_one_object(self):
        self.make_pool()
        for threads in ("1", "2"):
            done = run("bench", "kv", "--ops", "200", "--keys", "50", "--threads", threads,
                       "--assume-domain", "eadr", "--json", env=self.uri)
            self.assertEqual(done.returncode, 0, done.stderr)
            report = json.loads(done.stdout)
            self.assertEqual(report["config"]["assumed_domain"], "eadr")
            self.assertEqual(sum(result["ops"] for result in report["results"]), 200)
            for result in report["results"]:
                self.assertLessEqual(result["p50_us"], result["p999_us"])
                self.assertIn("doorbells_per_op", result["counters"])
        done = run("bench", "smallbank", "--ops", "300", "--accounts", "20", "--json", env=self.uri)
        self.assertEqual(done.returncode, 0, done.stderr)
        audit = json.loads(done.stdout)["audit"]
        self.assertTrue(audit["ok"])
        self.assertEqual(audit["expected_total"], audit["actual_total"])

    def test_ycsb_runs_every_workload(self):
        self.make_pool()
        for workload, ordered, threads in (("a", [], "1"), ("a", ["--ordered"], "2"),
                                           ("b", [], "1"), ("c", [], "1"),
                                           ("d", ["--load", "ascending"], "2"),
                                           ("e", ["--ordered", "--load", "ascending"], "2"),
                                           ("f", [], "1"), ("mixed-index", ["--ordered"], "1")):
            done = run("bench", "ycsb", "--workload", workload, *ordered, "--ops", "400",
                       "--records", "100", "--threads", threads, "--json", env=self.uri)
            self.assertEqual(done.returncode, 0, done.stderr)
            report = json.loads(done.stdout)
            self.assertEqual(report["config"]["workload"], workload)
            ops = {result["name"]: result["ops"] for result in report["results"]}
            self.assertEqual(sum(ops.values()) + report["conflicts"], 400)
            if workload in ("e", "mixed-index"):
                scan = [each for each in report["results"] if each["name"] == "scan"][0]
                self.assertGreater(scan["records"], 2 * scan["ops"])
        for workload in ("e", "mixed-index"):
            done = run("bench", "ycsb", "--workload", workload, "--ops", "9", env=self.uri)
            self.assert_fails(done, 2, "only an ordered table can be scanned: add --ordered")

    def test_an_audit_that_fails_is_status_1(self):
        self.make_pool()
        run("bench", "smallbank", "--ops", "50", "--accounts", "20", env=self.uri)
        self.kv("put", "--table", "smallbank_savings", "00000003", "+1 1")
        done = run("bench", "smallbank", "--audit-only", "--json", env=self.uri)
        self.assert_fails(done, 1, "the audit failed: the accounts hold")
        self.assertFalse(json.loads(done.stdout)["audit"]["ok"])
        done = run("bench", "smallbank", "--accounts", "30", env=self.uri)
        self.assert_fails(done, 1, "there is a bank of 20 accounts")


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    FAILING_MSYNC = sys.argv.pop(1)
    unittest.main()
