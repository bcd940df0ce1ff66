#!/usr/bin/env python3
"""usage: tune_test.py BIN: pmstore tune on the modelled machine, and on a program like ipmctl."""

import csv
import io
import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import unittest

BIN = ""
# Prints counters that grow by the same with every call. Reads of the media count its writes, too.
FAKE_IPMCTL = """#!/bin/sh
[ "$*" = "show -dimm -performance" ] || { echo "bad arguments: $*"; exit 1; }
n=$(cat "$0.calls" 2>/dev/null || echo 0); n=$((n + 1)); echo $n >"$0.calls"
for dimm in 0x0001 0x0011; do
  printf -- '---DimmID=%s---\\n' $dimm
  printf '   MediaReads=0x%032x\\n   MediaWrites=0x%032x\\n' $((n * 4400)) $((n * 4000))
  printf '   ReadRequests=0x%032x\\n   WriteRequests=0x%032x\\n' $((n * 100)) $((n * 1000))
done
"""


def pmstore(*arguments, stdin=b""):
    return subprocess.run([os.path.join(BIN, "pmstore"), *arguments], input=stdin, timeout=300,
                          capture_output=True, check=False)


class Tune(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-tune.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.ipmctl = os.path.join(self.folder, "ipmctl")
        with open(self.ipmctl, "w", encoding="utf-8") as file:
            file.write(FAKE_IPMCTL)
        os.chmod(self.ipmctl, 0o755)

    def counters(self, *arguments, stdin=b"", status=0):
        done = pmstore("tune", "counters", *arguments, stdin=stdin)
        self.assertEqual(done.returncode, status, done)
        return done

    def on_terminal(self, *arguments, interrupt_after=None):
        """What comes out on a terminal, and the exit status."""
        master, slave = pty.openpty()
        mode = termios.tcgetattr(slave)
        process = subprocess.Popen([os.path.join(BIN, "pmstore"), "tune", "counters", *arguments],
                                   stdin=slave, stdout=slave, stderr=slave)
        shown = b""
        while interrupt_after is not None and shown.count(interrupt_after) < 2:
            shown += os.read(master, 4096)
        if interrupt_after is not None:
            process.send_signal(signal.SIGINT)
        status = process.wait(timeout=300)
        self.assertEqual(termios.tcgetattr(slave), mode)
        os.close(slave)
        while True:
            try:
                shown += os.read(master, 4096)
            except OSError:  # nobody has it open any more
                os.close(master)
                return shown.decode(), status

    def fails(self, pattern, *arguments, stdin=b""):
        done = self.counters(*arguments, stdin=stdin, status=1)
        self.assertEqual(done.stderr.count(b"\n"), 1, done)
        self.assertRegex(done.stderr.decode(), pattern)

    def test_the_model_s_own_counters_come_out(self):
        for rules in ("all", "all,-h3,-h6"):
            done = pmstore("bench", "micro", "--model", "optane-cx5", "--payload", "16", "--rules",
                           rules, "--seconds", "0.0005", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            machine = json.loads(done.stdout)["results"][0]["machine"]
            found = json.loads(self.counters("--report", "-", "--json", stdin=done.stdout).stdout)
            whole = found["dimms"][-1]
            self.assertEqual(whole["dimm"], "all")
            self.assertAlmostEqual(whole["write_amplification"], machine["write_amplification"])
            if machine["nvm_writes_per_op"]:
                self.assertAlmostEqual(whole["reads_per_write"],
                                       machine["nvm_reads_per_op"] / machine["nvm_writes_per_op"])
            self.assertEqual([(one["read_requests"], one["write_requests"],
                               one["media_reads_64b"], one["media_writes_64b"])
                              for one in found["dimms"][:-1]],
                             [(dimm["NReadReq"], dimm["NWriteReq"], 4 * dimm["NMediaRead"],
                               4 * dimm["NMediaWrite"]) for dimm in machine["dimms"]])

    def test_during_a_modelled_measurement_its_own_counters_come_out(self):
        trace = os.path.join(self.folder, "trace")
        bench = [os.path.join(BIN, "pmstore"), "bench", "micro", "--model", "optane-cx5",
                 "--seconds", "0.0005", "--warmup", "0.0005", "--payload", "2048", "--sweep",
                 "rules=all;all,-h3", "--json", "--dimm-trace", trace]
        done = self.counters("--trace", trace, "--json", "--during", "--", *bench)
        report, end = json.JSONDecoder().raw_decode(done.stdout.decode())
        found = json.loads(done.stdout.decode()[end:])
        machines = [result["machine"] for result in report["results"]]
        names = (("read_requests", "NReadReq", 1), ("write_requests", "NWriteReq", 1),
                 ("media_reads_64b", "NMediaRead", 4), ("media_writes_64b", "NMediaWrite", 4))
        self.assertEqual(len(found["dimms"]), 7)
        for number, dimm in enumerate(found["dimms"][:-1]):
            for name, model_name, unit in names:
                self.assertEqual(dimm[name], unit * sum(machine["dimms"][number][model_name]
                                                        for machine in machines), name)
        # One interval for each measurement, which equals the model's own.
        lines = self.counters("--trace", trace, "--json").stdout.splitlines()
        self.assertEqual(len(lines), 2)
        for line, machine in zip(lines, machines):
            whole = json.loads(line)["dimms"][-1]
            self.assertEqual(whole["dimm"], "all")
            self.assertAlmostEqual(whole["write_amplification"], machine["write_amplification"])
            self.assertAlmostEqual(whole["reads_per_write"], machine["nvm_reads_per_op"]
                                   / machine["nvm_writes_per_op"])
        self.assertIn("H3", json.loads(lines[1])["advice"])
        # A trace of an earlier run, and none at all, are not taken for this command's.
        self.fails("has not written", "--trace", trace, "--during", "--", "true")
        self.fails("exit status 7.*has not written", "--trace", trace + "2", "--during", "--", "sh",
                   "-c", "exit 7")
        self.assertEqual(pmstore("bench", "micro", "--dimm-trace", trace).returncode, 2)
        refused = pmstore("bench", "micro", "--model", "optane-cx5", "--seconds", "0.0001",
                          "--medium", "dram", "--dimm-trace", trace)
        self.assertEqual((refused.returncode, refused.stderr.count(b"\n")), (1, 1), refused)

    def test_of_a_report_every_result_has_its_name(self):
        done = pmstore("bench", "micro", "--model", "optane-cx5", "--payload", "16", "--sweep",
                       "rules=all;all,-h6", "--seconds", "0.0002", "--warmup", "0.0002", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        names = [result["name"] for result in json.loads(done.stdout)["results"]]
        self.assertEqual(len(set(names)), 2)
        said = self.counters("--report", "-", "--json", stdin=done.stdout).stdout.splitlines()
        self.assertEqual([json.loads(line)["name"] for line in said], names)
        rows = list(csv.DictReader(io.StringIO(
            self.counters("--report", "-", stdin=done.stdout).stdout.decode())))
        self.assertEqual([row["name"] for row in rows if row["dimm"] == "all"], names)
        report = os.path.join(self.folder, "report")
        with open(report, "wb") as file:
            file.write(done.stdout)
        shown, status = self.on_terminal("--report", report)
        self.assertEqual(status, 0)
        self.assertNotIn("\x1b", shown)  # both stay to be seen
        self.assertEqual([line for line in shown.splitlines() if line in names], names)

    def test_on_a_terminal_each_table_takes_the_place_of_the_last(self):
        shown, status = self.on_terminal("--ipmctl", self.ipmctl, "--interval", "0.01", "--count",
                                         "3")
        self.assertEqual(status, 0)
        tables = shown.split("\x1b[H\x1b[J")
        self.assertEqual(tables[0], "")
        self.assertEqual(len(tables), 4)
        for table in tables[1:]:
            self.assertEqual([line.split()[0] for line in table.splitlines()[:4]],
                             ["DIMM", "0x0001", "0x0011", "all"])
            self.assertIn("4.00", table)
        shown, status = self.on_terminal("--ipmctl", self.ipmctl, "--interval", "0.01",
                                         interrupt_after=b"reads/write")
        self.assertEqual(status, -signal.SIGINT, shown)

    def test_advice_says_no_more_than_the_figures(self):
        def advice(read_requests, write_requests, media_writes):
            readings = ""
            for second, counts in ((0, (0, 0, 0)), (1, (read_requests, write_requests,
                                                        media_writes))):
                readings += f"time {second}\n---DimmID=0x0001---\nMediaReads=0\n"
                for name, value in zip(("ReadRequests", "WriteRequests", "MediaWrites"), counts):
                    readings += f"{name}={value}\n"
            return json.loads(self.counters("--trace", "-", "--json",
                                            stdin=readings.encode()).stdout)["advice"]
        self.assertRegex(advice(0, 999, 99900), "^999 requests to write are too few")
        self.assertRegex(advice(9000, 10000, 20000), "0.90 reads per write: unless the program "
                         "reads as much.*H5")
        self.assertRegex(advice(0, 10000, 40000), "4.0 times.*H5")
        self.assertRegex(advice(0, 10000, 20000), "2.0 times.*H3")
        self.assertRegex(advice(0, 10000, 10500), "1.05 times.*no rule looks broken")

    def test_no_option_is_accepted_and_ignored(self):
        for options in (["--trace", "-", "--count", "2"], ["--report", "-", "--interval", "2"],
                        ["--report", "-", "--ipmctl", self.ipmctl],
                        ["--during", "--count", "2", "--", "true"]):
            self.counters(*options, status=2)

    def test_away_from_a_terminal_it_is_csv(self):
        done = self.counters("--ipmctl", self.ipmctl, "--interval", "0.01", "--count", "3")
        rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
        self.assertEqual([row["dimm"] for row in rows], ["0x0001", "0x0011", "all"] * 3)
        for row in rows[2::3]:
            self.assertEqual((row["read_requests"], row["write_requests"]), ("200", "2000"))
            self.assertEqual((row["write_amplification"], row["reads_per_write"]),
                             ("4.0000", "0.1000"))

    def test_during_a_command_it_counts_once_and_ends_with_its_status(self):
        done = self.counters("--ipmctl", self.ipmctl, "--during", "--json", "--", "sh", "-c",
                             "exit 5", status=5)
        report = json.loads(done.stdout)
        self.assertEqual(report["dimms"][2]["write_requests"], 2000)
        self.assertIn("H5", report["advice"])
        self.fails("cannot run '/nowhere'", "--ipmctl", self.ipmctl, "--during", "--", "/nowhere")
        self.assertEqual(pmstore("tune", "counters", "--during").returncode, 2)
        self.assertEqual(pmstore("tune", "counters", "--", "true").returncode, 2)

    def test_a_trace_is_read_as_it_was_recorded(self):
        trace = b""
        for second in (10, 12):
            trace += b"time %d\n" % second
            trace += subprocess.run([self.ipmctl, "show", "-dimm", "-performance"], check=True,
                                    capture_output=True).stdout
        found = json.loads(self.counters("--trace", "-", "--json", stdin=trace).stdout)
        self.assertEqual((found["seconds"], found["dimms"][2]["media_writes_64b"]), (2, 8000))
        self.fails("no trace: it has fewer than two", "--trace", "-", stdin=trace[:200])

    def test_figures_are_the_same_in_every_form_and_short_intervals_have_digits(self):
        trace = b""
        for second in ("10", "10.0005", "10.0015"):
            trace += b"time %s\n" % second.encode() + subprocess.run(
                [self.ipmctl, "show", "-dimm", "-performance"], check=True,
                capture_output=True).stdout
        rows = list(csv.DictReader(io.StringIO(
            self.counters("--trace", "-", stdin=trace).stdout.decode())))
        said = [json.loads(line) for line in
                self.counters("--trace", "-", "--json", stdin=trace).stdout.splitlines()]
        for interval, seconds, at in ((0, 0.0005, 0.0005), (1, 0.001, 0.0015)):
            row, one = rows[3 * interval + 2], said[interval]
            for found in (row, one):
                self.assertAlmostEqual(float(found["seconds"]), seconds)
                self.assertAlmostEqual(float(found["at"]), at)
            for name, units in (("read_mb_per_s", 200), ("write_mb_per_s", 2000),
                                ("media_read_mb_per_s", 800), ("media_write_mb_per_s", 8000)):
                for found in (row[name], one["dimms"][2][name]):
                    self.assertAlmostEqual(float(found), units * 64 / 1e6 / seconds, places=3)

    def test_dimms_that_change_between_readings_are_not_paired(self):
        with open(self.ipmctl, "w", encoding="utf-8") as file:  # every other call has another order
            file.write(FAKE_IPMCTL.replace("for dimm in 0x0001 0x0011", 'order="0x0001 0x0011"; '
                                           '[ $((n % 2)) = 1 ] || order="0x0011 0x0001"; '
                                           "for dimm in $order"))
        for options in (["--interval", "0.01", "--count", "1"], ["--during", "--", "true"]):
            self.fails("different DIMMs: 0x0001 0x0011, then 0x0011 0x0001", "--ipmctl",
                       self.ipmctl, *options)

    def test_numbers_that_are_none_are_refused(self):
        reading = b"".join(b"%s=1\n" % name for name in (
            b"---DimmID=0x0001---\nMediaReads", b"MediaWrites", b"ReadRequests",
            b"WriteRequests"))
        for time in (b"nan", b"inf"):
            self.fails("is no time", "--trace", "-",
                       stdin=b"time 1\n" + reading + b"time " + time + b"\n" + reading)
        dimm = {"NReadReq": 1, "NWriteReq": 1, "NMediaRead": 1, "NMediaWrite": 1}
        for change, seconds in (({"NReadReq": -1}, 1), ({"NMediaWrite": 1e300}, 1),
                                ({"NMediaRead": 1 << 63}, 1), ({}, 0), ({}, -1)):
            report = {"results": [{"name": "a", "seconds": seconds,
                                   "machine": {"dimms": [dict(dimm, **change)]}}]}
            self.fails("not a (count|duration)", "--report", "-",
                       stdin=json.dumps(report).encode())

    def test_the_library_is_asked_where_there_is_one(self):
        library = os.path.join(BIN, "..", "tests", "unit", "tools", "libfalse_ipmctl.so")
        done = self.counters("--libipmctl", library, "--interval", "0.01", "--count", "2")
        rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
        self.assertEqual([row["dimm"] for row in rows], ["0x0001", "0x0011", "all"] * 2)
        self.assertEqual((rows[2]["write_amplification"], rows[2]["read_amplification"]),
                         ("4.0000", "4.0000"))
        self.fails("cannot load /nowhere/lib.so", "--libipmctl", "/nowhere/lib.so")
        self.counters("--libipmctl", library, "--ipmctl", self.ipmctl, status=2)

    def test_what_cannot_be_asked_is_said(self):
        self.fails("install ipmctl", "--ipmctl", "/nowhere/ipmctl")
        self.fails("cannot understand", "--ipmctl", "/bin/true")
        self.fails("cannot read '/nowhere'", "--trace", "/nowhere")
        self.fails("no report of pmstore bench micro", "--report", "-", stdin=b"{}")

    def test_the_command_that_shows_each_rule_runs_as_it_is_written(self):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/tuning.md")
        with open(path, encoding="utf-8") as file:
            rows = [line.split(" | ") for line in file if line.startswith("| H")
                    and "pmstore bench" in line]
        self.assertEqual([row[0].strip("| ") for row in rows], [f"H{i}" for i in range(1, 10)])
        for row in rows:
            command = shlex.split(row[3].strip(" |\n").strip("`"))
            done = pmstore(*command[1:], "--seconds", "0.0001", "--warmup", "0.0001", "--json")
            self.assertEqual(done.returncode, 0, (command, done.stderr))
            self.assertEqual(len(json.loads(done.stdout)["results"]), 2)

    def advice(self, *arguments):
        done = pmstore("tune", "advise", "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def check_row(self, row, turns):
        """That the verdict is what the figures say."""
        off, on = row["without_per_s"], row["with_per_s"]
        for one in (off, on):
            self.assertLessEqual(one["least"], one["median"])
            self.assertLessEqual(one["median"], one["most"])
            self.assertTrue(turns > 1 or one["least"] == one["most"])
        self.assertAlmostEqual(row["gain"], on["median"] / off["median"])
        apart = on["least"] > off["most"] or off["least"] > on["most"]
        self.assertEqual(row["verdict"], "no difference" if abs(row["gain"] - 1) <= 0.05
                         else "in the noise" if not apart else
                         "pays" if row["gain"] > 1 else "costs", row)
        if row["limits"]:
            lowest = min(limit["per_s"] for limit in row["limits"])
            self.assertAlmostEqual(row["reached"], on["median"] / lowest)

    def test_advise_weighs_every_rule_on_the_model(self):
        report = self.advice("--model", "optane-cx5", "--seconds", "0.0005", "--warmup", "0.001",
                             "--turns", "2")
        rows = report["rules"]
        rules = {row["rule"]: row for row in rows}
        self.assertEqual((sorted(rules), report["turns"], report["medium"]),
                         ([f"h{i}" for i in range(1, 10)], 2, "nvm"))
        # Four threads fill a DIMM with 2,048 B, but not with 256 B.
        self.assertEqual([(row["request"].split()[1], row["verdict"]) for row in rows
                          if row["rule"] == "h2"], [("2,048", "pays"), ("256", "costs")])
        # h9 does not: an idle RNIC fetches the WQEs of a chain, but gets lone ones by doorbell
        # (docs/limits.md).
        for rule in ("h1", "h3", "h5", "h6"):
            self.assertEqual(rules[rule]["verdict"], "pays", rules[rule])
        for row in rows:
            self.check_row(row, 2)
            # Nothing is faster than what bounds it; a half millisecond ends within a request.
            self.assertLess(row["reached"], 1.03, row)
            self.assertEqual("to_dram_per_s" in row, row["rule"] in ("h3", "h5", "h6", "h9"))
            if "to_dram_per_s" in row:
                self.assertGreater(row["to_dram_per_s"]["median"],
                                   0.97 * row["with_per_s"]["median"], row)
        self.assertEqual([limit["name"] for limit in rules["h3"]["limits"]],
                         ["link", "media of 6 DIMMs", "RNIC"])
        self.assertIn("echo", [limit["name"] for limit in rules["h4"]["limits"]])
        self.assertGreater(rules["h6"]["reached"], 0.9)

    def test_advise_on_the_model_is_as_long_as_its_requests_need(self):
        rows = self.advice("--model", "optane-cx5", "--turns", "1")["rules"]
        # What goes through the cache fills it first, or it would seem to cost nothing.
        self.assertEqual([(row["rule"], row["verdict"]) for row in rows if row["rule"] != "h8"],
                         [("h1", "pays"), ("h2", "pays"), ("h2", "costs")]
                         + [(f"h{i}", "pays") for i in range(3, 8)] + [("h9", "costs")])
        gains = {row["rule"]: row["gain"] for row in rows}
        self.assertGreater(gains["h4"], 2)
        self.assertGreater(gains["h7"], 1.1)
        self.assertGreater(gains["h8"], 1.03)

    def test_advise_here_says_what_it_cannot_switch_and_how_much_it_varies(self):
        report = self.advice("--seconds", "0.005", "--range", "1M", "--turns", "3")
        self.assertEqual(report["medium"], "dram")
        rules = {row["rule"]: row for row in report["rules"]}
        self.assertEqual(rules["h1"]["verdict"], "not measured")
        self.assertTrue(rules["h1"]["why"])
        for row in report["rules"]:
            if row["verdict"] != "not measured":
                self.check_row(row, 3)
        self.assertIn("echo", [limit["name"] for limit in rules["h7"]["limits"]])
        self.assertNotIn("to_dram_per_s", rules["h7"])
        self.assertEqual(pmstore("tune", "advise", "--model", "optane-cx9").returncode, 2)
        said = pmstore("tune", "advise", "--seconds", "0.002", "--range", "1M", "--turns", "1")
        for part in (b"pay here: ", b"cost here: ", b"Median of 1 turn,", b"all went to dram: ",
                     b"h1 not measured: "):
            self.assertIn(part, said.stdout)

    def test_advise_tells_an_ordinary_file_from_persistent_memory(self):
        pool = os.path.join(self.folder, "pool")
        short = ["--seconds", "0.001", "--range", "1M", "--turns", "1"]
        for fabric in ("local", "tcp"):  # a server here, and one in a process of its own
            note = self.advice(*short, "--pool", pool, "--fabric", fabric)["note"]
            self.assertIn("ordinary file: this says nothing about persistent memory", note)
        said = pmstore("tune", "advise", *short, "--pool", pool)
        self.assertIn(b"the pool is an ordinary file: this says", said.stdout)
        self.assertIn("all went to dram", self.advice(*short)["note"])
        # No file in the system's memory that is taken for a device.
        folder = "/dev/" if os.geteuid() == 0 else "/dev/no-such-folder/"
        name = folder + os.path.basename(self.folder)
        link = os.path.join(self.folder, "link")
        os.symlink("/dev", link)
        for path in (name, os.path.join(link, os.path.basename(name)), "/dev/shm/.." + name[4:]):
            refused = pmstore("tune", "advise", *short, "--pool", path)
            self.assertEqual((refused.returncode, refused.stderr.count(b"\n")), (1, 1), refused)
            self.assertIn(b"there is no such device, and a file below /dev", refused.stderr)
        here = subprocess.run([os.path.abspath(os.path.join(BIN, "pmstore")), "tune", "advise",
                               *short, "--pool", name[5:]], cwd="/dev", capture_output=True,
                              timeout=300, check=False)
        self.assertEqual((here.returncode, here.stderr.count(b"\n")), (1, 1), here)
        self.assertFalse(os.path.exists(name))

    def test_advise_names_only_options_that_it_has(self):
        options = pmstore("tune", "advise", "--help").stdout.decode()
        for row in self.advice("--seconds", "0.001", "--range", "1M", "--turns", "1")["rules"]:
            # (of other commands, "pmstore bench micro --serve" for instance, there is none here)
            for word in row.get("why", "").replace(":", " ").replace(",", " ").split():
                if word.startswith("--"):
                    self.assertIn(word.rstrip(";."), options, row["why"])
        warmup = options[options.index("\n  --warmup"):].split("\n  --ops")[0]
        self.assertIn("0.01 where", " ".join(warmup.split()))
        self.assertNotIn("0.04", warmup)

    def test_advise_with_a_pool_compares_with_dram(self):
        pool = os.path.join(self.folder, "pool")
        report = self.advice("--seconds", "0.003", "--range", "1M", "--turns", "1", "--pool", pool,
                             "--assume-domain", "adr")
        self.assertEqual(report["medium"], "nvm")
        rules = {row["rule"]: row for row in report["rules"]}
        self.assertNotEqual(rules["h5"]["verdict"], "not measured")
        self.assertIn("to_dram_per_s", rules["h5"])


if __name__ == "__main__":
    BIN = sys.argv.pop()
    unittest.main()
