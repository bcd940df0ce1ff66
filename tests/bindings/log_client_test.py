#!/usr/bin/env python3
"""usage: log_client_test.py BIN CLIENT REPLICATED_CLIENT: C programs and their logs."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = ""
CLIENT = ""
REPLICATED_CLIENT = ""


class Client(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-c.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.pool = self.make_pool("pool")

    def make_pool(self, name):
        pool = os.path.join(self.folder, name)
        subprocess.run([os.path.join(BIN, "pmstore"), "pool", "create", pool, "--size", "64M",
                        "--log-bytes", "16M"], check=True, timeout=300, stdout=subprocess.DEVNULL)
        return pool

    def start_client(self, *uris):
        client = subprocess.Popen([CLIENT if len(uris) == 1 else REPLICATED_CLIENT, *uris],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        return client

    def expect_ok(self, client):
        said, why = client.communicate(timeout=300)
        self.assertEqual((client.returncode, said, why), (0, b"ok\n", b""))

    def run_client(self, *uris):
        self.expect_ok(self.start_client(*uris))

    def serve(self, listen, pool=None):
        server = subprocess.Popen(
            [os.path.join(BIN, "pmstored"), "--pool", pool or self.pool, "--listen", listen,
             "--lease-ms", "5000", "--json"], stdout=subprocess.PIPE)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        return json.loads(server.stdout.readline())["listen"][0]

    def test_in_this_process_over_shm_and_over_tcp(self):
        # At the same time, since each is silent for longer than the lease.
        clients = [self.start_client(uri) for uri in (
            "local:" + self.pool,
            self.serve(f"shm://pmstore-c-{os.getpid()}", self.make_pool("shm")),
            self.serve("tcp://127.0.0.1:0", self.make_pool("tcp")))]
        for client in clients:
            self.expect_ok(client)

    def test_replicas_over_shm(self):
        name = f"shm://pmstore-c-{os.getpid()}"
        self.run_client(self.serve(name + "a"), self.serve(name + "b", self.make_pool("other")))

    def test_replicas_over_tcp(self):
        any_port = "tcp://127.0.0.1:0"
        self.run_client(self.serve(any_port), self.serve(any_port, self.make_pool("other")))

    def log(self, *arguments):
        done = subprocess.run([os.path.join(BIN, "pmstore"), "log", *arguments], timeout=300,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_following_moves_when_its_replica_is_dropped(self):
        any_port = "tcp://127.0.0.1:0"
        one, two = self.serve(any_port), self.serve(any_port, self.make_pool("other"))
        self.log("append", "c/moved", "--create", "before", "--replica", one, "--replica", two)
        client = subprocess.Popen([REPLICATED_CLIENT, "follow", two], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        said = client.stdout.readline()
        self.log("drop-member", "c/moved", two, "--replica", one)
        self.log("append", "c/moved", "after", "--replica", one)
        rest, why = client.communicate(timeout=300)
        self.assertEqual((client.returncode, said + rest, why), (0, b"first\nok\n", b""))


if __name__ == "__main__":
    REPLICATED_CLIENT = sys.argv.pop()
    CLIENT = sys.argv.pop()
    BIN = sys.argv.pop()
    unittest.main()
