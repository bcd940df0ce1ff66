#!/usr/bin/env python3
"""usage: tx_test.py BIN TRANSFERS: pmstore tx, with two servers and a coordinator that is gone."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = ""
TRANSFERS = ""


def tx(*arguments):
    return subprocess.run([os.path.join(BIN, "pmstore"), "tx", *arguments], timeout=300,
                          capture_output=True, check=False, text=True)


class Tx(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-tx.", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.folder)
        self.servers = []
        self.uris = []
        for name in ("paris", "rome"):
            pool = os.path.join(self.folder, name)
            subprocess.run([os.path.join(BIN, "pmstore"), "pool", "create", pool, "--size", "64M"],
                           check=True, capture_output=True, timeout=300)
            self.start(pool, "tcp://127.0.0.1:0")
        for task in ("load", "leave"):
            subprocess.run([TRANSFERS, task, *self.uris], check=True, timeout=300)

    def start(self, pool, uri):
        server = subprocess.Popen(
            [os.path.join(BIN, "pmstored"), "--pool", pool, "--assume-domain", "adr", "--listen",
             uri, "--log-level", "warning"], stdout=subprocess.PIPE, text=True)
        self.servers.append(server)
        self.addCleanup(self.end, server)
        self.uris.append(re.search("tcp://[^ \n]+", server.stdout.readline()).group())

    @staticmethod
    def end(server):
        server.kill()
        server.wait()
        server.stdout.close()

    def listed(self, *uris):
        return json.loads(tx("list", *uris, "--json").stdout)["transactions"]

    def assert_says(self, done, status, pattern):
        self.assertEqual(done.returncode, status, done)
        self.assertRegex(done.stdout + done.stderr, pattern)

    def force(self, decision, *lost):
        named = [word for pool in lost for word in ("--lost", pool)]
        return tx("force", decision, self.listed(self.uris[0])[0]["transaction"], self.uris[0],
                  *named, "--confirm", "lost-for-ever")

    def test_a_server_that_is_lost_for_ever(self):
        paris, rome = self.listed(*self.uris)
        self.assertEqual((paris["state"], rome["state"]), ("prepared", "prepared"))
        self.servers[1].kill()
        self.servers[1].wait()
        self.assertIn("pool " + rome["pool"], tx("list", self.uris[0]).stdout)
        self.assert_says(tx("settle", self.uris[0]), 1, "1 transaction not decided")
        self.assert_says(self.force("abort", paris["pool"]), 1, "have the pools " + rome["pool"])
        self.assert_says(self.force("commit", rome["pool"]), 0, "committed 1, aborted 0; .* 1 comm")
        self.assert_says(self.force("abort", rome["pool"]), 1, "is committed at one of its servers")
        self.assertEqual([each["state"] for each in self.listed(self.uris[0])], ["committed"])
        self.assert_says(tx("settle", self.uris[0]), 0, "0 not decided, 1 committed and remembered")
        self.assert_says(self.force("forget", rome["pool"]), 0, "0 committed and remembered")
        self.assertEqual(self.listed(self.uris[0]), [])

    def test_what_can_be_settled_is_not_forced(self):
        paris, rome = self.listed(*self.uris)
        done = tx("force", "abort", paris["transaction"], *self.uris, "--lost", rome["pool"],
                  "--confirm", "lost-for-ever")
        self.assert_says(done, 1, "use pmstore tx settle")
        self.assert_says(tx("settle", *self.uris), 0, "committed 1, aborted 0; 0 not decided")
        self.assertEqual(self.listed(*self.uris), [])


if __name__ == "__main__":
    BIN, TRANSFERS = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
