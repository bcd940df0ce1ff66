#!/usr/bin/env python3
"""usage: fs_space_test.py BIN: files that take space of the pool by need, and give it back."""

import json
import os
import sys
import time
import unittest

import fs_test


class Sections(fs_test.Files):
    def test_files_take_more_of_the_pool_than_was_reserved_and_give_it_back(self):
        def sections():
            if self.listen:
                return json.loads(self.run_program("pmstore", "stat", "--uri", self.uri,
                                                   "--json").stdout)["store"]["files"]["sections"]
            done = self.run_program("pmstore", "pool", "info", "--json", self.pool)
            return sum(each["extents"] for each in json.loads(done.stdout)["space"]
                       if each["kind"] == "file data")

        self.assertEqual(sections(), 1)
        usage = self.json("df")
        free = usage["free_bytes"]
        self.assertGreater(usage["growable_bytes"], 16 << 20)
        self.assertIn(" of it still to be taken from the pool", self.good("df"))
        content = os.urandom(80 << 20)
        self.put("large", content)
        text = self.run_program("pmstore", "pool", "info", self.pool).stdout.decode()
        more = r", and may take [\d.]+ MiB .* more" if self.listen else ""
        self.assertRegex(text, r"for file data +[\d.]+ MiB .* in [2-9] extents" + more + "\n")
        self.assertEqual(self.fs("cat", "/large").stdout, content)
        self.assertGreater(sections(), 1)
        self.good("check")
        self.good("rm", "/large")
        deadline = time.monotonic() + fs_test.PATIENCE
        while sections() > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(sections(), 1)
        # Names and maps may have taken a piece of the pool.
        self.assertGreater(self.json("df")["free_bytes"] + (20 << 20), free)


class SectionsOverTcp(Sections):
    listen = "tcp://127.0.0.1:0"


class SectionsOverShm(Sections):
    listen = f"shm://pmstore-fs-space-{os.getpid()}"


class RepairedSections(fs_test.Files):
    """The pool is opened by each command."""

    def sections(self):
        done = self.run_program("pmstore", "pool", "info", "--json", self.pool)
        return sum(each["extents"] for each in json.loads(done.stdout)["space"]
                   if each["kind"] == "file data")

    def test_a_repair_loses_no_space_of_any_section(self):
        content = os.urandom(80 << 20)
        self.put("large", content)
        self.put("bad", b"x" * 100_000)
        self.assertGreater(self.sections(), 1)
        # Column and file offset, as docs/files.md has it.
        key = self.json("stat", "bad")["files"][0]["inode"].to_bytes(8, "big") + bytes(10)
        line = "".join(f"\\x{byte:02x}" for byte in key) + "\tshort\n"
        done = self.run_program("pmstore", "kv", "load", "--table", ".fs.maps",
                                stdin=line.encode())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(self.good("check", "--repair"), "(?m)^sound: ")
        self.assertRegex(self.good("check"), "^sound: ")
        self.assertEqual(self.fs("cat", "/large").stdout, content)
        self.good("rm", "/large", "/bad")
        deadline = time.monotonic() + fs_test.PATIENCE
        while self.sections() > 1 and time.monotonic() < deadline:
            self.good("df")  # a start and a stop
        self.assertEqual(self.sections(), 1)


class WithoutFileBytes(fs_test.Files):
    listen = "tcp://127.0.0.1:0"

    def make_pool(self, size="64M", file_bytes="0"):
        super().make_pool(size, file_bytes)

    def serve(self, *options):
        self.uri, self.server = self.start_server(self.pool, self.listen, *options)

    def setUp(self):
        super().setUp()
        self.bad("ls: .*--files", "ls")

    def start_again(self, *options):
        self.server.kill()
        self.server.wait()
        self.serve(*options)

    def test_a_server_gives_files_room_in_any_pool(self):
        self.start_again("--files")
        content = os.urandom(10_000_000)
        self.put("file", content)
        self.start_again()
        self.assertEqual(self.fs("cat", "/file").stdout, content)
        self.good("check")

    def test_a_configuration_file_may_give_them_room_and_bound_them(self):
        self.server.kill()
        self.server.wait()
        config = os.path.join(self.folder, "files.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write('data-server = false\nfiles = true\nfile-limit = "6M"\n')
        self.serve("--config", config)
        self.assertLessEqual(self.json("df")["data_bytes"], 6 << 20)
        self.assertGreater(self.json("df")["data_bytes"], 3 << 20)

    def test_a_data_server_gives_no_room_and_has_no_limit(self):
        for option in (["--files"], ["--file-limit", "1G"]):
            done = self.run_program("pmstored", "--pool", self.pool, "--listen",
                                    "tcp://127.0.0.1:0", "--data-server", *option)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr.decode(), "--data-server.*--files")

    def test_files_do_not_take_more_than_the_limit(self):
        self.start_again("--files", "--file-limit", "6M")
        self.put("small", b"x" * 1_000_000)
        self.bad("put '/large': .* free", "put", "-", "/large", stdin=b"x" * 10_000_000)
        self.start_again("--file-limit", "30M")
        self.put("large", b"x" * 10_000_000)

    def test_a_limit_below_what_files_begin_with_is_named(self):
        self.server.kill()
        self.server.wait()
        done = self.run_program("pmstored", "--pool", self.pool, "--listen",
                                "tcp://127.0.0.1:0", "--files", "--file-limit", "512K")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.decode(),
                         "limited to 524288 bytes.*at least 1 MiB.*--file-limit")
        self.serve("--files")


if __name__ == "__main__":
    fs_test.BIN = sys.argv.pop(1)
    unittest.main()
