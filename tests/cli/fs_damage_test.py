#!/usr/bin/env python3
"""usage: fs_damage_test.py BIN: pmstore fs over damaged records, and at the bounds of a server."""

import os
import subprocess
import sys
import time
import unittest

import fs_test


class Damage(fs_test.Files):
    """Records of the tables, written by the commands for records."""

    def write_record(self, table, key, value):
        line = "".join(f"\\x{byte:02x}" for byte in key) + "\t" + value + "\n"
        done = self.run_program("pmstore", "kv", "load", "--table", table, stdin=line.encode())
        self.assertEqual(done.returncode, 0, done.stderr)

    def inode_key(self, path):
        return self.json("stat", path)["files"][0]["inode"].to_bytes(8, "big")

    def test_a_damaged_inode_is_named_and_the_rest_is_listed(self):
        self.good("mkdir", "d")
        for name in ("a", "bad", "z"):
            self.put("d/" + name, name.encode())
        self.write_record(".fs.inodes", self.inode_key("d/bad"), "short")
        self.assertEqual(self.bad("ls '/d/bad': .*fs check", "ls", "d"), "a\nz\n")
        self.assertEqual(self.bad("find '/d/bad': .*fs check", "find", "d"), "/d\n/d/a\n/d/z\n")
        self.assertEqual(self.bad("du '/d/bad': .*fs check", "du", "-s", "d"), "0\t2\t/d\n")
        copy = os.path.join(self.folder, "copy")
        self.bad("get '/d/bad': .*fs check", "get", "-r", "/d", copy)
        self.assertEqual(sorted(os.listdir(copy)), ["a", "z"])

    def test_a_wrong_map_costs_its_file_until_it_is_repaired(self):
        for name in ("bad", "good"):
            self.put(name, name.encode() * 30_000)
        key = self.inode_key("bad")
        # Column and file offset, as docs/files.md has it.
        self.write_record(".fs.maps", key + bytes(10), "short")
        uri = self.uri
        self.uri, server = self.start_server(self.pool, "tcp://127.0.0.1:0")
        self.assertEqual(self.fs("cat", "/good").stdout, b"good" * 30_000)
        self.bad("cat '/bad': .*fs check --repair", "cat", "/bad")
        self.bad("put '-': .*fs check --repair|put '/more': .*fs check --repair", "put", "-",
                 "/more", stdin=b"x" * 100_000)
        self.assertRegex(self.fs("check").stdout.decode(), "(?m)^inode [0-9]+: .*extent")
        self.bad("check: --repair changes records .*; stop the server and repair its pool with "
                 "--uri local:POOL\n$", "check", "--repair")
        self.bad("check: ", "check", "--repair", "--uri", uri)  # the server has it
        server.terminate()
        self.assertEqual(server.wait(), 0)
        self.uri = uri
        self.assertRegex(self.good("check", "--repair"),
                         "(?m)^repaired: inode [0-9]+: .*the file lost that extent")
        self.assertRegex(self.good("check"), "^sound: ")
        self.assertEqual(self.fs("cat", "/bad").stdout, bytes(90_000))
        self.assertEqual(self.fs("cat", "/good").stdout, b"good" * 30_000)
        self.put("more", b"x" * 100_000)


class Bounds(fs_test.Files):
    def test_no_more_inodes_than_the_server_allows(self):
        self.uri, _ = self.start_server(self.pool, "tcp://127.0.0.1:0", "--max-inodes", "3")
        self.good("mkdir", "a", "b")
        self.bad("mkdir '/c': ", "mkdir", "c")
        self.assertRegex(self.good("df"), r"(?m)^inodes +3 of 3$")
        self.good("rm", "-r", "b")
        deadline = time.monotonic() + fs_test.PATIENCE
        while self.json("df")["inodes"] > 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.good("mkdir", "c")

    def test_no_more_open_files_than_the_server_allows(self):
        self.uri, _ = self.start_server(self.pool, "tcp://127.0.0.1:0", "--max-opens", "1")
        writer = subprocess.Popen([os.path.join(fs_test.BIN, "pmstore"), "fs", "put", "--uri",
                                   self.uri, "-", "/one"], stdin=subprocess.PIPE)
        self.addCleanup(writer.wait)
        self.addCleanup(writer.kill)
        writer.stdin.write(b"x" * 4_000_000)  # more than it reads before it opens the file
        deadline = time.monotonic() + fs_test.PATIENCE
        while self.fs("stat", "/one").returncode != 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.bad("put .*: as many files are open", "put", "-", "/two", stdin=b"x")
        writer.stdin.close()
        self.assertEqual(writer.wait(), 0)
        self.put("/two", b"x")

    def test_a_configuration_file_may_bound_names(self):
        config = os.path.join(self.folder, "bounds.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write('data-server = false\nmax-inodes = 3\nmax-opens = 8\n')
        done = self.run_program("pmstored", "--pool", "/missing/pool", "--listen",
                                "tcp://127.0.0.1:0", "--config", config)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/missing/pool", done.stderr.decode())

    def test_a_data_server_has_no_names_to_bound(self):
        done = self.run_program("pmstored", "--pool", self.pool, "--listen", "tcp://127.0.0.1:0",
                                "--data-server", "--max-inodes", "3")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr.decode(), "--max-inodes|--data-server")


if __name__ == "__main__":
    fs_test.BIN = sys.argv.pop(1)
    unittest.main()
