#!/usr/bin/env python3
"""usage: log_client_test.py BIN CLIENT: a program in C with logs here, over shm and over tcp."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = ""
CLIENT = ""


class Client(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-c.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.pool = os.path.join(self.folder, "pool")
        subprocess.run([os.path.join(BIN, "pmstore"), "pool", "create", self.pool, "--size", "64M",
                        "--log-bytes", "16M"], check=True, timeout=60, stdout=subprocess.DEVNULL)

    def run_client(self, uri):
        done = subprocess.run([CLIENT, uri], timeout=100, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"ok\n", b""))

    def serve(self, listen):
        server = subprocess.Popen(
            [os.path.join(BIN, "pmstored"), "--pool", self.pool, "--listen", listen, "--lease-ms",
             "1000", "--json"], stdout=subprocess.PIPE)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        return json.loads(server.stdout.readline())["listen"][0]

    def test_in_this_process(self):
        self.run_client("local:" + self.pool)

    def test_over_shm(self):
        self.run_client(self.serve(f"shm://pmstore-c-{os.getpid()}"))

    def test_over_tcp(self):
        self.run_client(self.serve("tcp://127.0.0.1:0"))


if __name__ == "__main__":
    CLIENT = sys.argv.pop()
    BIN = sys.argv.pop()
    unittest.main()
