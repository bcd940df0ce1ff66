#!/usr/bin/env python3
"""usage: model_bench_test.py BIN: the benchmarks of pmstore in BIN on the modelled machine."""

import json
import os
import subprocess
import sys
import unittest

BIN = ""
SMALLBANK = ["bench", "smallbank", "--hosts", "4", "--clients", "6", "--accounts", "200",
             "--ops", "600"]
KV = ["bench", "kv", "--hosts", "3", "--threads", "4", "--coroutines", "2", "--keys", "200",
      "--ops", "1000"]
FS = ["bench", "fs", "--hosts", "6", "--threads", "5", "--files", "5", "--file-bytes", "256K",
      "--ops", "2000"]


def run(*arguments, model="optane-cx5"):
    words = [os.path.join(BIN, "pmstore"), *arguments, "--model", model]
    return subprocess.run(words, timeout=300, capture_output=True, check=False)


class Model(unittest.TestCase):
    def output(self, *arguments):
        done = run(*arguments, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout

    def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(self):
        for command in (KV, SMALLBANK, FS):
            first = self.output(*command, "--seed", "5")
            self.assertEqual(first, self.output(*command, "--seed", "5"))
            self.assertNotEqual(first, self.output(*command, "--seed", "6"))

    def test_striped_files_are_faster_with_more_data_servers(self):
        striped = ["bench", "fs", "--hosts", "12", "--threads", "8", "--files", "8", "--file-bytes",
                   "1M", "--payload", "256K", "--read-share", "0", "--ops", "800"]

        def rate(servers):
            report = json.loads(self.output(*striped, "--data-servers", servers))
            self.assertEqual(report["config"]["data_servers"], int(servers))
            self.assertTrue(report["audit"]["ok"])
            # Sessions and maps; the writes themselves are one-sided.
            self.assertLess(report["results"][0]["counters"]["server_messages_per_op"], 1)
            return report["results"][0]["rate_per_s"]

        self.assertGreater(rate("4"), 1.5 * rate("1"))
        done = run("bench", "fs", "--hosts", "4", "--data-servers", "4")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"give --hosts 5", done.stderr)

    def test_the_audit_is_exact_with_both_lock_disciplines(self):
        for locks in ("rnic", "cpu"):
            report = json.loads(self.output(*SMALLBANK, "--locks", locks))
            self.assertEqual(report["config"]["locks"], locks)
            self.assertTrue(report["audit"]["ok"])
            self.assertEqual(report["audit"]["workers_different"], 0)
            self.assertGreater(report["results"][0]["ops"], 400)

    def test_rules_are_switched_and_the_one_for_many_cores_refused(self):
        for rule in ("h1", "h3", "h4", "h5", "h6", "h7", "h8", "h9"):
            report = json.loads(self.output(*KV, "--rules", "all,-" + rule))
            self.assertEqual(report["config"]["model"]["rules"], "all,-" + rule)
        landing = json.loads(self.output(*KV, "--rules", "all,-h3"))["config"]["landing"]
        self.assertNotEqual(landing, "memory")
        done = run(*KV, "--rules", "all,-h2")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"rule h2 ", done.stderr)
        self.assertEqual(done.stderr.count(b"\n"), 1)

    def test_every_rule_that_can_be_switched_changes_the_figures(self):
        put = [*KV, "--mix", "put", "--value-bytes", "1024"]

        def figures(*arguments):
            report = json.loads(self.output(*put, *arguments))
            row = report["results"][0]
            reads = sum(dimm["NReadReq"] for dimm in report["model_counters"]["dimms"])
            return row["rate_per_s"], row["counters"], reads

        rate, counters, reads = figures()
        far, _, _ = figures("--rules", "all,-h1")
        self.assertLess(far, rate)
        _, cached, _ = figures("--rules", "all,-h3")
        self.assertGreater(cached["server_messages_per_op"], counters["server_messages_per_op"])
        _, _, locked_in_nvm = figures("--rules", "all,-h8")
        self.assertGreater(locked_in_nvm, reads)
        _, one_by_one, _ = figures("--rules", "all,-h9")
        self.assertGreater(one_by_one["doorbells_per_op"], counters["doorbells_per_op"])
        streamed, _, _ = figures("--locks", "cpu")
        stored, _, _ = figures("--locks", "cpu", "--rules", "all,-h4")
        self.assertLess(stored, streamed)

        def written(value_bytes, rules):
            report = json.loads(self.output(*KV, "--mix", "put", "--value-bytes", value_bytes,
                                            "--rules", rules))
            return report["results"][0]["counters"]["bytes_written_per_op"]

        # Redo entries and records of 1 KiB follow h5, small ones h6.
        self.assertLess(written("1024", "all,-h5"), written("1024", "all"))
        self.assertLess(written("9", "all,-h6"), written("9", "all"))

    def test_rules_that_a_store_always_follows_are_named(self):
        model = json.loads(self.output(*KV, "--rules", "none"))["config"]["model"]
        self.assertEqual(model["kept_rules"], ["h2"])
        done = run(*KV, "--rules", "none")
        self.assertIn(b"a store always follows: h2", done.stdout)

    def test_files_are_read_and_written_one_sided_and_rules_change_the_figures(self):
        def figures(*arguments):
            report = json.loads(self.output(*FS, *arguments))
            self.assertTrue(report["audit"]["ok"])
            row = report["results"][0]
            return row["rate_per_s"], row["counters"], report["config"]["model"]["rules"]

        write = ["--read-share", "0"]
        rate, counters, _ = figures(*write)
        # Beside opens, closes and maps: each worker has its own few of them.
        self.assertLess(counters["server_messages_per_op"], 0.2)
        self.assertLess(counters["doorbells_per_op"], 1.2)
        far, _, _ = figures(*write, "--rules", "all,-h1")
        self.assertLess(far, rate)
        _, cached, rules = figures(*write, "--rules", "all,-h3")
        self.assertGreater(cached["server_messages_per_op"], 0.9)
        self.assertEqual(rules, "all,-h3")
        _, one_by_one, _ = figures(*write, "--rules", "all,-h9")
        self.assertGreater(one_by_one["doorbells_per_op"], 1.8)
        _, counters, _ = figures("--read-share", "1")
        self.assertLess(counters["doorbells_per_op"], 1.2)

    def test_strategies_differ_in_doorbells_and_time(self):
        put = KV + ["--mix", "put"]
        reports = {strategy: json.loads(self.output(*put, "--strategy", strategy))["results"][0]
                   for strategy in ("naive", "outstanding", "doorbell")}
        doorbells = {name: report["counters"]["doorbells_per_op"]
                     for name, report in reports.items()}
        self.assertGreater(doorbells["outstanding"], doorbells["doorbell"])
        self.assertGreater(reports["naive"]["p50_us"], reports["outstanding"]["p50_us"])

    def test_wrong_choices_are_one_line(self):
        for status, pattern, arguments in (
                (2, b"at least 1M", ["--model-pool", "0"]),
                (2, b"excludes", ["--uri", "local:/nowhere"]),
                (2, b"adr or eadr", ["--assume-domain", "none"]),
                (2, b"rule h9", ["--strategy", "doorbell", "--rules", "all,-h9"]),
                (1, b"cannot be read", ["--model-parameters", "/nowhere.toml"])):
            for command in (KV, SMALLBANK, FS):
                done = run(*command, *arguments)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(pattern, done.stderr)
                self.assertEqual(done.stderr.count(b"\n"), 1)
        done = run(*KV, model="optane-cx9")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"optane-cx5", done.stderr)
        # The same without a model: what would be ignored is refused.
        for option, value in (("--hosts", "3"), ("--model-parameters", "/nowhere.toml"),
                              ("--rules", "all,-h3"), ("--model-pool", "1G")):
            done = subprocess.run([os.path.join(BIN, "pmstore"), "bench", "kv", "--uri",
                                   "local:/nowhere", option, value], timeout=300,
                                  capture_output=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(b"--model", done.stderr)


if __name__ == "__main__":
    BIN = sys.argv.pop()
    unittest.main()
