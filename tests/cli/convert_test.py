#!/usr/bin/env python3
"""usage: convert_test.py BIN: pools of an earlier release (golden/, made by make_pools.py)."""

import json
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

BIN = ""
GOLDEN = pathlib.Path(__file__).parent / "golden"
# And the version of their catalogs.
POOLS = {"killed": 2, "closed": 2, "small": 2, "v3_killed": 3, "v3_closed": 3, "v3_small": 3,
         "v3_rings": 3, "v4_killed": 4, "v4_closed": 4, "v4_small": 4,
         "v4_rings": 4, "v5_killed": 5, "v5_closed": 5, "v5_small": 5, "v5_rings": 5}
LONG_KEY = "k" * 512


def command(program, *arguments):
    return [os.path.join(BIN, program), *arguments]


def run(*arguments):
    environment = {k: v for k, v in os.environ.items() if k != "PMSTORE_URI"}
    return subprocess.run(command("pmstore", *arguments), timeout=300, capture_output=True,
                          env=environment, check=False)


def with_later_ones(expected):
    """What assert_has() finds where it was called before."""
    return {**expected, "accounts": {**expected["accounts"], "later": "1", LONG_KEY: "long"}}


class Convert(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-convert.")
        self.addCleanup(shutil.rmtree, self.folder)

    def ok(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode()

    def unpack(self, name):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as to:
            to.write(lzma.decompress((GOLDEN / (name + ".xz")).read_bytes()))
        return path, json.loads((GOLDEN / (name + ".json")).read_text(encoding="utf-8"))

    def assert_refused(self, done, path):
        self.assertEqual(done.returncode, 1, done)
        text = done.stderr.decode()
        self.assertEqual(text.count("\n"), 1, text)
        self.assertIn(f"`pmstore pool convert {path}`", text)

    def assert_has(self, path, expected):
        """The records and entries, and that more can be written, with longer keys than before."""
        self.assertIn("sound: ", self.ok("pool", "check", path))
        uri = ["--uri", "local:" + path]
        lines = self.ok("kv", "scan", *uri, "--table", "accounts").splitlines()
        self.assertEqual(dict(line.split("\t") for line in lines), expected["accounts"])
        self.assertEqual(self.ok("log", "read", *uri, "orders").splitlines(), expected["log"])
        tables = self.ok("table", "list", *uri)
        self.assertIn("accounts", tables)
        self.assertNotIn("gone", tables)
        self.ok("kv", "put", *uri, "--table", "accounts", "later", "1")
        self.assertEqual(self.ok("kv", "get", *uri, "--table", "accounts", "later").strip(), "1")
        rings = json.loads(self.ok("pool", "convert", path, "--json"))["rings"]
        for locks in ("cpu", "rnic") if rings > 0 else ("cpu",):
            self.ok("kv", "put", *uri, "--locks", locks, "--table", "accounts", LONG_KEY, "long")
            got = self.ok("kv", "get", *uri, "--table", "accounts", LONG_KEY)
            self.assertEqual(got.strip(), "long")

    def test_is_refused_and_left_as_it_is_until_it_is_converted(self):
        for name, version in POOLS.items():
            path, expected = self.unpack(name)
            before = pathlib.Path(path).read_bytes()
            self.assert_refused(run("pool", "check", path), path)
            self.assert_refused(run("kv", "get", "--uri", "local:" + path, "key1"), path)
            daemon = subprocess.run(
                command("pmstored", "--pool", path, "--listen", "tcp://127.0.0.1:0"), timeout=300,
                capture_output=True, check=False)
            self.assert_refused(daemon, path)
            self.assertEqual(pathlib.Path(path).read_bytes(), before)
            done = json.loads(self.ok("pool", "convert", path, "--json"))
            self.assertEqual(done["from_version"], version)
            self.assertEqual(done["rings_before"], expected["rings"])
            if version < 3:
                self.assertLess(done["rings"], expected["rings"])
            else:
                self.assertEqual(done["rings"], expected["rings"])
            self.assert_has(path, expected)
            self.assertIn("nothing to do", self.ok("pool", "convert", path))

    def test_survives_a_kill_at_any_moment(self):
        for name in ("killed", "v3_rings", "v4_rings", "v5_rings"):
            self.convert_and_kill(name, 7)

    def convert_and_kill(self, name, times):
        pause_s = 0.0
        killed = 0
        while killed < times:
            path, expected = self.unpack(name)
            with subprocess.Popen(command("pmstore", "pool", "convert", path),
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as convert:
                time.sleep(pause_s)
                convert.kill()
                convert.wait()
                killed += 1
                # From the start of the program to its end, however long that takes here.
                pause_s = 0.0 if convert.returncode == 0 else pause_s + 0.002
            self.convert_when_free(path)
            self.assert_has(path, expected)

    def convert_when_free(self, path):
        """A process that was killed may have had a child, which has the pool a moment longer."""
        for _ in range(600):
            done = run("pool", "convert", path)
            if b"in use by another process" not in done.stderr:
                break
            time.sleep(0.1)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_makes_a_converted_copy_and_leaves_the_pool_as_it_is(self):
        for name, version in POOLS.items():
            path, expected = self.unpack(name)
            before = pathlib.Path(path).read_bytes()
            copy = path + ".copy"
            done = json.loads(self.ok("pool", "convert", path, "--to", copy, "--json"))
            self.assertEqual(done["path"], copy)
            self.assertEqual(done["from_version"], version)
            self.assertEqual(pathlib.Path(path).read_bytes(), before)
            self.assert_has(copy, expected)
            again = run("pool", "convert", path, "--to", copy)
            self.assertEqual(again.returncode, 1)
            self.assertIn("it exists", again.stderr.decode())
            self.assert_has(copy, with_later_ones(expected))
        other = path + ".other"
        self.assertIn("nothing to do", self.ok("pool", "convert", copy, "--to", other))
        self.assertIn("sound: ", self.ok("pool", "check", other))

    def test_a_copy_is_complete_or_not_there_after_a_kill_at_any_moment(self):
        path, expected = self.unpack("killed")
        before = pathlib.Path(path).read_bytes()
        copy = path + ".copy"
        pause_s = 0.0
        complete = 0
        while complete < 3:
            with subprocess.Popen(command("pmstore", "pool", "convert", path, "--to", copy),
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as convert:
                time.sleep(pause_s)
                convert.kill()
                convert.wait()
            pause_s += 0.004
            self.assertEqual(pathlib.Path(path).read_bytes(), before)
            if os.path.exists(copy):
                complete += 1
                self.assert_has(copy, expected)
                os.remove(copy)
            else:
                self.assertNotEqual(convert.returncode, 0)

    def test_what_is_no_pool_is_refused(self):
        path = os.path.join(self.folder, "text")
        pathlib.Path(path).write_text("no pool\n" * 5000, encoding="utf-8")
        for more in ([], ["--to", path + ".copy"]):
            done = run("pool", "convert", path, *more)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr.decode().count("\n"), 1)
        self.assertFalse(os.path.exists(path + ".copy"))


if __name__ == "__main__":
    BIN = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
