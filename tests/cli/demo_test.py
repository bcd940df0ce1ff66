#!/usr/bin/env python3
"""usage: demo_test.py BIN: the parts of tools/demo, with the programs in BIN."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = ""
TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
REPORT = os.path.join(TOOLS, "demo_report.sh")
LOG = """-- Configuring done
[3/185] Building CXX object log/CMakeFiles/pmstore_log.dir/writer.cc.o
[12/185] Building CXX object log/CMakeFiles/pmstore_log.dir/internal/reader.cc.o
"""


def shell(script, *arguments):
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", f". {shlex.quote(REPORT)}; {script}",
                           "bash", *arguments], capture_output=True, text=True, timeout=300,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Demo(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-demo-test.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.log = os.path.join(self.folder, "log")

    def write_log(self, text):
        with open(self.log, "w", encoding="ascii") as file:
            file.write(text)

    def test_the_state_of_a_build_is_a_sentence(self):
        for text, state in (
                (LOG, "12 of 185 built, last target pmstore_log: reader.cc"),
                ("", ""), ("-- Configuring done\n", ""),
                ("[185/185] Linking CXX executable bin/pmstore\n",
                 "185 of 185 built, last linked pmstore"),
                ("[7/9] Generating x\nwarning: y\n", "7 of 9 built")):
            self.write_log(text)
            self.assertEqual(shell('build_state "$1"', self.log), state)

    def test_a_build_without_a_terminal_is_told_of(self):
        for text, state in ((LOG, "12 of 185 built, last target pmstore_log: reader.cc"),
                            ("", "the build starts")):
            self.write_log(text)
            with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as builder:
                follow = subprocess.Popen(
                    ["bash", "-c", f'. {shlex.quote(REPORT)}; follow_build "$@"', "bash",
                     str(builder.pid), self.log, "0.01", "the build starts"],
                    stdout=subprocess.PIPE, text=True)
                lines = [follow.stdout.readline() for _ in range(2)]
                builder.stdin.close()
                builder.wait(300)
                follow.communicate(timeout=300)
                self.assertEqual(follow.returncode, 0)
            for line in lines:
                self.assertRegex(line, r"^ +\d+ s: " + re.escape(state) + "\n$")

    def explain(self, medium, msync_us):
        return shell('explain_time "$@"', "/somewhere", medium, msync_us, "16000", "8000", "4000",
                     "745")

    def test_the_summary_says_what_takes_the_time(self):
        disk = self.explain("a disk (ext2/ext3)", "100")
        self.assertIn("msync there     100.0 us (median), 2.0 of them for each transaction", disk)
        self.assertRegex(disk, r"msync on this disk is what takes the time: about 80% of it")
        self.assertIn("or 596 of the 745 us", disk)
        # The disk was slower when it was measured alone: no share above all of it.
        slow = self.explain("a disk (ext2/ext3)", "500")
        self.assertRegex(slow, r"is what takes the time: about all of the\n +745 us")
        self.assertNotIn("%", slow)
        fast = self.explain("a disk (xfs)", "10")
        self.assertIn("msync on this disk takes part of the time: about 8%", fast)
        self.assertNotIn("what takes the time", fast)
        memory = self.explain("memory (tmpfs)", "1")
        self.assertIn("msync writes nothing here", memory)
        self.assertIn("lost at a reboot", memory)

    def test_the_medium_is_named(self):
        self.assertRegex(shell('medium_of "$1"', "/dev/shm"), r"^memory \(tmpfs\)$")
        self.assertRegex(shell('medium_of "$1"', "/"), r"^(a disk|memory) \(.+\)$")

    def test_what_to_try_next_works_as_printed(self):
        text = shell('try_next "$@"', os.path.join(TOOLS, "demo"), BIN, self.folder,
                     "memory (tmpfs)")
        lines = [line.strip() for line in text.splitlines()]
        self.assertIn("--dir /var/tmp", lines[-1])
        # The last one is the demo again, of which only the option is looked at.
        done = subprocess.run(["bash", "-e"], input="\n".join(lines[:-1]), capture_output=True,
                              text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("\n100\n", "\n" + done.stdout)
        self.assertIn("audit: ok", done.stdout)
        self.assertEqual(os.listdir(self.folder), [])
        elsewhere = shell('try_next "$@"', "demo", BIN, self.folder, "a disk (xfs)")
        self.assertIn("demo --dir /dev/shm", elsewhere)

    def test_options_that_cannot_be_are_refused_before_anything_is_built(self):
        for arguments, why in ((["--dir", "/nowhere"], "give a folder"),
                               (["--dir"], "give a folder"), (["--dirs"], "no such option"),
                               (["--fabric", "verbs"], "give tcp or shm")):
            done = subprocess.run([os.path.join(TOOLS, "demo"), *arguments], capture_output=True,
                                  text=True, timeout=300, check=False)
            self.assertEqual(done.returncode, 2, done)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(why, done.stderr)


class Msync(unittest.TestCase):
    def run_bench(self, *arguments):
        return subprocess.run([os.path.join(BIN, "pmstore"), "bench", "msync", *arguments],
                              capture_output=True, text=True, timeout=300, check=False)

    def test_it_measures_and_leaves_nothing_behind(self):
        with tempfile.TemporaryDirectory(prefix="pmstore-msync.") as folder:
            done = self.run_bench(folder, "--ops", "600", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r'"bench":"msync".*"ops":600,"p50_us":[0-9.]+')
            self.assertEqual(os.listdir(folder), [])
            text = self.run_bench(folder, "--ops", "3").stdout
            self.assertRegex(text, r"^msync of a page in .*: half of 3 within [0-9.]+ us, ")

    def test_bad_input_is_one_line(self):
        for status, pattern, arguments in ((1, "'/nowhere': No such file", ["/nowhere"]),
                                           (2, "folder", []), (2, "--ops", ["/tmp", "--ops", "0"])):
            done = self.run_bench(*arguments)
            self.assertEqual(done.returncode, status, done)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertRegex(done.stderr, pattern)


if __name__ == "__main__":
    BIN = os.path.abspath(sys.argv.pop())
    unittest.main(verbosity=2)
