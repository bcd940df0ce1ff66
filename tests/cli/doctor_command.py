"""DoctorCommand: pmstore doctor on a recorded machine, for tests."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

ALL = ["rnic", "link", "mtu", "gid", "atomics", "odp", "flush", "memlock", "hugepages", "nvm",
       "nvm-mode", "nvm-alignment", "domain", "interleave", "health", "h1", "h2", "h3", "h4", "h5",
       "h8", "h9"]


class DoctorCommand(unittest.TestCase):
    BIN = ""  # where the programs are

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-doctor.")
        self.addCleanup(shutil.rmtree, self.folder)

    def pmstore(self, *arguments):
        return subprocess.run([os.path.join(self.BIN, "pmstore"), *arguments], capture_output=True,
                              timeout=300, check=False)

    def rows(self, *arguments, here=False):
        place = [] if here else ["--machine", self.folder]
        done = self.pmstore("doctor", "--json", *place, *arguments)
        report = json.loads(done.stdout)
        rows = {row["id"]: row for row in report["rows"]}
        costs = [row for row in report["rows"] if row["verdict"] == "costs you"]
        self.assertEqual(done.returncode, 1 if costs else 0, done.stderr)
        self.assertEqual(done.stderr.count(b"\n"), 1 if costs else 0)
        self.assertEqual([row for row in ALL if row in rows], ALL)
        for row in report["rows"]:
            self.assertTrue(row["seen"], row)
            if row["verdict"] != "ok":
                self.assertTrue(row["why"] and row["fix"], row)
            else:
                self.assertEqual(row["fix"], "", row)
        return rows

    def costs(self, rows):
        return sorted(name for name, row in rows.items() if row["verdict"] == "costs you")

    def assert_row(self, rows, name, verdict, seen=".", fix=""):
        row = rows[name]
        self.assertEqual(row["verdict"], verdict, row)
        self.assertRegex(row["seen"], seen)
        self.assertRegex(row["fix"], fix or ".*")
