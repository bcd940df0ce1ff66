#!/usr/bin/env python3
"""usage: campaign_test.py ROOT: tools/check --campaign keeps its time, resumes, and counts."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = ""


class Campaign(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-campaign.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.ran = os.path.join(self.folder, "ran")

    def steps(self, text):
        path = os.path.join(self.folder, "steps")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def campaign(self, *arguments):
        environment = dict(os.environ, PMSTORE_CAMPAIGN_STATE=os.path.join(self.folder, "state"),
                           RAN=self.ran)
        return subprocess.run([os.path.join(ROOT, "tools/check"), "--campaign", *arguments],
                              timeout=600, capture_output=True, text=True, env=environment,
                              check=False)

    def row(self, done, name):
        """Rounds and failures of a step in the table."""
        table = done.stdout.split("\nstep ", 1)[1]
        line = next(each for each in table.splitlines() if each.startswith(name + " "))
        return int(line.split()[1]), int(line.split()[3])

    def words(self):
        with open(self.ran, encoding="utf-8") as file:
            return file.read().split()

    def test_steps_that_run_once_end_before_the_time(self):
        steps = self.steps("# a comment\n\nfirst once echo $round >>$RAN\nsecond once exit 3\n")
        done = self.campaign("1h", "--steps", steps)
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual((self.row(done, "first"), self.row(done, "second")), ((1, 0), (1, 1)))
        self.assertIn("logs/second.0.log", done.stdout)
        self.assertTrue(done.stdout.endswith("\n1 passed, 1 failed\n"), done.stdout)
        self.assertEqual(self.words(), ["0"])

    def test_what_the_time_interrupts_runs_again_and_what_has_ended_does_not(self):
        steps = self.steps("first every echo first$round >>$RAN\n"
                           "hangs every echo hangs$round >>$RAN; [ -e $RAN.go ] || sleep 1000\n"
                           "last every echo last$round >>$RAN; sleep 1000\n")
        done = self.campaign("4s", "--steps", steps)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("interrupted", done.stdout)
        self.assertEqual((self.row(done, "first"), self.row(done, "hangs")), ((1, 0), (0, 0)))
        with open(self.ran + ".go", "w", encoding="utf-8"):
            pass
        done = self.campaign("4s", "--steps", steps)
        self.assertNotIn("new campaign", done.stdout)
        self.assertEqual((self.row(done, "hangs"), self.row(done, "last")), ((1, 0), (0, 0)))
        self.assertEqual(self.words(), ["first0", "hangs0", "hangs0", "last0"])
        done = self.campaign("4s", "--steps", steps, "--fresh")
        self.assertIn("new campaign", done.stdout)
        self.assertEqual(self.words()[4], "first0")

    def test_rounds_follow_one_another_and_a_failed_step_ends_none(self):
        steps = self.steps("fails every exit 1\ncounts every echo $round >>$RAN; sleep 0.2\n")
        done = self.campaign("4s", "--steps", steps)
        self.assertEqual(done.returncode, 1, done)
        rounds = len(self.words())
        self.assertGreater(rounds, 1)
        self.assertEqual(self.words(), [str(number) for number in range(rounds)])
        self.assertGreaterEqual(self.row(done, "fails")[1], rounds)

    def test_other_steps_are_another_campaign(self):
        self.campaign("1h", "--steps", self.steps("one once true\n"))
        done = self.campaign("1h", "--steps", self.steps("one once echo >>$RAN\n"))
        self.assertIn("new campaign", done.stdout)
        self.assertEqual(done.returncode, 0, done)

    def test_a_build_that_fails_ends_it(self):
        done = self.campaign("1h", "--steps", self.steps("build once false\nrest every true\n"))
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("not run yet", done.stdout)

    def test_wrong_usage(self):
        for arguments in ([], ["2"], ["0h"], ["1h", "2h"], ["1h", "--steps", "/absent"],
                          ["1h", "--steps", self.steps("Name once true\n")],
                          ["1h", "--steps", self.steps("# none\n")]):
            done = self.campaign(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("example: ", self.campaign("--help").stdout)

    def test_the_steps_of_the_project_are_steps(self):
        done = self.campaign("--list")
        self.assertEqual(done.returncode, 0, done)
        names = done.stdout.split()
        self.assertEqual(names[0], "build")
        for name in ("mutants", "explorer", "late", "powercut", "cancellation"):
            self.assertIn(name, names)


if __name__ == "__main__":
    ROOT = sys.argv.pop(1)
    unittest.main()
