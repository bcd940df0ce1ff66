#!/usr/bin/env python3
"""usage: check_test.py ROOT: what tools/check shows of what failed, and what it draws."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = ""

CTEST_LOG = """\
Test project /x/build
      Start  1: unit.good
      Start  2: mutants.service
 1/8 Test  #1: unit.good ...........................   Passed    0.12 sec
      Start  3: unit.bad
 2/8 Test  #2: mutants.service .....................***Failed  214.59 sec
drawn: service_mutants --share 0/2
STALE         index.moved: change tests/mutants/service_mutants.txt with the source
redundant     index.other: nothing notices it
%s
NOT CAUGHT    index.missed
caught        index.seen
%s
once more, one at a time, 2 that were not caught:
NOT CAUGHT    index.missed
caught        index.late
FAILED:       index.missed
mutants 979, caught 484, redundant 6, open 0, long 0, in other shares 483, not caught 2

      Start  4: unit.skipped
 3/8 Test  #3: unit.bad ............................***Failed    0.05 sec
[ RUN      ] Bad.IsBad
bad_test.cc:7: Failure
Expected equality of these values:
[  FAILED  ] Bad.IsBad (0 ms)
%s
[  FAILED  ] 1 test, listed below:
      Start  5: unit.ends
 4/8 Test  #4: unit.skipped ........................***Skipped   0.01 sec
the reason why it was skipped
 5/8 Test  #5: unit.ends ...........................***Exception: SegFault  1.00 sec
      Start  6: unit.aborts
 6/8 Test  #6: unit.aborts .........................Subprocess aborted***Exception:   0.02 sec
base/x.cc:9: CHECK(it != nullptr) failed: it is there
      Start  7: unit.killed
 7/8 Test  #7: unit.killed .........................Subprocess killed***Exception:   3.02 sec
      Start  8: unit.off
 8/8 Test  #8: unit.off ............................***Not Run (Disabled)   0.00 sec

25%% tests passed, 5 tests failed out of 7

The following tests FAILED:
	  2 - mutants.service (Failed)
	  3 - unit.bad (Failed)
	  5 - unit.ends (SEGFAULT)
	  6 - unit.aborts (Subprocess aborted)
	  7 - unit.killed (Subprocess killed)
Errors while running CTest
skipped: Some.Case
"""


def many(word, count=400):
    return "\n".join(f"caught        {word}.{number}" for number in range(count))


class Failures(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-check.")
        self.addCleanup(shutil.rmtree, self.folder)

    def shown(self, text):
        path = os.path.join(self.folder, "stage.log")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([os.path.join(ROOT, "tests/failures"), path], timeout=600,
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertLess(len(lines), 250)
        return lines

    def test_of_each_failed_test_what_says_why_and_its_end(self):
        log = CTEST_LOG % (many("early"), many("late"), many("other"))
        lines = self.shown(log)
        heads = [line for line in lines if line.startswith("-- ")]
        self.assertEqual([head.split(":")[0] for head in heads],
                         ["-- mutants.service", "-- unit.bad", "-- unit.ends", "-- unit.aborts",
                          "-- unit.killed"])
        for line in ("FAILED:       index.missed",
                     "base/x.cc:9: CHECK(it != nullptr) failed: it is there",
                     "bad_test.cc:7: Failure",
                     "Expected equality of these values:", "caught        late.399",
                     "STALE         index.moved: change tests/mutants/service_mutants.txt with the "
                     "source"):
            self.assertIn(line, lines)
        self.assertTrue(any(line.startswith("mutants 979, ") for line in lines))
        for line in ("caught        early.0", "caught        late.0", "skipped: Some.Case",
                     "the reason why it was skipped"):
            self.assertNotIn(line, lines)

    def test_many_failures_are_cut(self):
        missed = "\n".join(f"FAILED:       m.{number} {'x' * 1000}" for number in range(500))
        lines = self.shown(CTEST_LOG % (missed, many("late"), many("other")))
        self.assertIn("[  FAILED  ] 1 test, listed below:", lines)
        self.assertTrue(any("lines more that say what failed" in line for line in lines))
        self.assertLessEqual(max(map(len, lines)), 300)
        tests = "".join(f" {n}/99 Test #{n}: t.{n} ....***Failed 0.01 sec\n{many('x')}\n"
                        for n in range(1, 99))
        lines = self.shown(tests)
        self.assertIn("-- t.1: ***Failed 0.01 sec", lines)
        self.assertTrue(lines[-1].startswith("-- and ") and lines[-1].endswith(" t.98"), lines[-1])

    def test_a_stage_without_tests_of_ctest(self):
        lines = self.shown("FAILED: a.o\nc++ -c a.cc\na.cc:3:1: error: x\n" + many("y"))
        self.assertIn("a.cc:3:1: error: x", lines)
        self.assertIn("caught        y.399", lines)
        lines = self.shown("      Start 1: unit.endless\n      Start 2: unit.good\n"
                           " 1/2 Test #2: unit.good ....   Passed    0.12 sec\n")
        self.assertEqual(lines[0], "not ended: unit.endless")

    def test_wrong_usage(self):
        for arguments in ([], ["/absent"]):
            done = subprocess.run([os.path.join(ROOT, "tests/failures"), *arguments], timeout=600,
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1))


class Check(unittest.TestCase):
    """tools/check in a tree with a guest of its own."""

    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="pmstore-check.")
        self.addCleanup(shutil.rmtree, self.root)
        for path in ("tools/check", "tests/drawn", "tests/failures"):
            os.makedirs(os.path.join(self.root, os.path.dirname(path)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, path), os.path.join(self.root, path))

    def check(self, script, *arguments):
        path = os.path.join(self.root, "tests/guest/selftest")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/bash\n" + script)
        os.chmod(path, 0o755)
        return subprocess.run([os.path.join(self.root, "tools/check"), *arguments], timeout=600,
                              capture_output=True, text=True, check=False,
                              env=dict(os.environ, PMSTORE_TEST_DRAW="0"))

    def test_what_failed_is_before_the_last_line(self):
        log = CTEST_LOG % (many("early"), many("late"), many("other"))
        done = self.check(f"cat <<'END'\n{log}END\nexit 8\n", "--only", "testbed")
        self.assertEqual(done.returncode, 1, done)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[-1], "2 passed, 5 failed")
        begin = lines.index("== what failed in testbed:")
        self.assertGreater(begin, len(lines) - 200)
        self.assertEqual(lines[begin + 1], "-- mutants.service: ***Failed  214.59 sec")
        self.assertIn("NOT CAUGHT    index.missed", lines[begin:])
        self.assertTrue(lines[begin - 2].startswith("slowest: testbed"), lines[begin - 2])

    def test_nothing_failed(self):
        done = self.check("echo fine", "--only", "testbed")
        self.assertEqual(done.returncode, 0, done)
        self.assertNotIn("what failed", done.stdout)
        self.assertTrue(done.stdout.endswith("\n1 passed, 0 failed\n"), done.stdout)

    def test_each_sanitizer_and_each_half_of_asan_is_drawn(self):
        # 2, 3 and 5: what tools/check says of its draws.
        with open(os.path.join(ROOT, "tools/check"), encoding="utf-8") as file:
            text = file.read()
        template = ["{asan|tsan|asan}", "{2}/2", "{5}/5"]
        for each in template:
            self.assertIn(f"'{each}'", text)
        drawn = set()
        for number in range(30):
            done = subprocess.run([os.path.join(ROOT, "tests/drawn"), "echo", *template],
                                  timeout=600, capture_output=True, text=True, check=True,
                                  env=dict(os.environ, PMSTORE_TEST_DRAW=str(number)))
            drawn.add(tuple(done.stdout.splitlines()[-1].split()))
        expected = {(sanitizer, f"{half}/2", f"{points}/5") for sanitizer in ("asan", "tsan")
                    for half in range(2) for points in range(5)}
        self.assertEqual(drawn, expected)


if __name__ == "__main__":
    ROOT = sys.argv.pop(1)
    unittest.main()
