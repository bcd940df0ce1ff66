#!/usr/bin/env python3
"""usage: fs_test.py BIN: pmstore fs, over pools in this process and over pmstored."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest

BIN = ""
PATIENCE = 300


class Files(unittest.TestCase):
    listen = None  # local: without a server

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-fs.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.pool = os.path.join(self.folder, "pool")
        self.uri = "local:" + self.pool
        self.make_pool()
        if self.listen:
            self.serve()

    def make_pool(self, size="256M", file_bytes="64M"):
        done = self.run_program("pmstore", "pool", "create", self.pool, "--size", size,
                                "--file-bytes", file_bytes)
        self.assertEqual(done.returncode, 0, done.stderr)

    def serve(self):
        self.uri, self.server = self.start_server(self.pool, self.listen)

    def start_server(self, pool, listen, *options):
        server = subprocess.Popen(
            [os.path.join(BIN, "pmstored"), "--pool", pool, "--listen", listen,
             "--log-level", "error", "--json", *options], stdout=subprocess.PIPE)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        return json.loads(server.stdout.readline())["listen"][0], server

    def run_program(self, program, *arguments, stdin=b"", stdout=subprocess.PIPE):
        return subprocess.run([os.path.join(BIN, program), *arguments], input=stdin,
                              timeout=PATIENCE, stdout=stdout, stderr=subprocess.PIPE,
                              env={**os.environ, "PMSTORE_URI": self.uri}, check=False)

    def fs(self, *arguments, **named):
        return self.run_program("pmstore", "fs", *arguments, **named)

    def good(self, *arguments, stdin=b""):
        done = self.fs(*arguments, stdin=stdin)
        self.assertEqual((done.returncode, done.stderr), (0, b""), done)
        return done.stdout.decode("utf-8", "surrogateescape")

    def json(self, *arguments, status=0):
        done = self.fs(*arguments, "--json")
        self.assertEqual(done.returncode, status, done)
        self.assertEqual(done.stdout.count(b"\n"), 1, done)
        return json.loads(done.stdout)

    def bad(self, pattern, *arguments, lines=1, stdin=b""):
        done = self.fs(*arguments, stdin=stdin)
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual(done.stderr.count(b"\n"), lines, done.stderr)
        self.assertRegex(done.stderr.decode(), "^pmstore: fs " + pattern)
        return done.stdout.decode()

    def local(self, name, data=b"", mode=0o644):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, mode)
        return path

    def put(self, path, data):
        self.good("put", "-", path, stdin=data)


class Commands(Files):
    def test_a_new_file_system_is_empty(self):
        self.assertEqual(self.good("ls"), "")
        self.assertEqual(self.good("find"), "/\n")
        self.assertRegex(self.good("check"), r"^sound: 1 inode, 1 directory, 0 extents\n$")
        usage = self.json("df")
        self.assertEqual((usage["used_bytes"], usage["inodes"]), (0, 1))
        self.assertEqual(usage["free_bytes"], usage["data_bytes"])
        self.assertEqual(self.json("stat", "/")["files"][0]["uid"], os.geteuid())

    def test_pipes_carry_files_of_all_sizes(self):
        for size in (0, 1, 4096, 4097, 70_000, 3_000_000):
            data = os.urandom(size)
            self.put("/file", data)
            self.assertEqual(self.fs("cat", "/file").stdout, data)
            self.assertEqual(self.fs("get", "file", "-").stdout, data)
        self.put("/other", b"+")
        self.assertEqual(self.fs("cat", "/file", "other").stdout, data + b"+")

    def test_ls_sorts_and_shows(self):
        self.good("mkdir", "d", "empty")
        for name in ("b", "a", "d/inside"):
            self.put(name, name.encode())
        self.good("ln", "-s", "a", "link")
        self.assertEqual(self.good("ls"), "a\nb\nd\nempty\nlink\n")
        self.assertEqual(self.good("ls", "a", "d"), "a\n/d:\ninside\n")
        self.assertEqual(self.good("ls", "-r").split("\n"),
                         ["/:", "a", "b", "d", "empty", "link", "", "/d:", "inside", "",
                          "/empty:", ""])
        long = self.good("ls", "-l").split("\n")
        self.assertRegex(long[0], r"^-rw-r--r--  1  \d+  \d+  1  \d{4}-\d\d-\d\d \d\d:\d\d  a$")
        self.assertRegex(long[2], r"^drwxr-xr-x  2  .*  d$")
        self.assertRegex(long[4], r"^lrwxrwxrwx .* link -> a$")
        entries = self.json("ls")["entries"]
        self.assertEqual([e["path"] for e in entries], ["/a", "/b", "/d", "/empty", "/link"])
        self.assertEqual([e["type"] for e in entries],
                         ["regular", "regular", "directory", "directory", "symlink"])

    def test_stat_says_what_is_known(self):
        self.put("file", b"x" * 5000)
        text = self.good("stat", "file")
        self.assertRegex(text, r"(?m)^size +5000 bytes$")
        self.assertRegex(text, r"(?m)^mode +-rw-r--r-- \(0644\)$")
        known = self.json("stat", "file")["files"][0]
        self.assertEqual((known["size_bytes"], known["data_bytes"]), (5000, 65536))
        self.assertEqual((known["uid"], known["links"]), (os.geteuid(), 1))
        self.good("ln", "-s", "file", "link")
        self.assertEqual(self.json("stat", "link")["files"][0]["target"], "file")
        self.assertEqual(self.json("stat", "-L", "link")["files"][0]["size_bytes"], 5000)
        self.bad("stat '/none': .*No such file or directory", "stat", "none")

    def test_mkdir(self):
        self.good("mkdir", "a")
        self.bad("mkdir '/a': .*exists", "mkdir", "a")
        self.bad("mkdir '/x/y': .*No such file", "mkdir", "x/y")
        self.assertEqual(self.json("mkdir", "-p", "a/b/c")["made"], 2)
        self.assertEqual(self.json("mkdir", "-p", "a/b/c")["made"], 0)
        self.good("mkdir", "--mode", "0700", "private")
        self.assertEqual(self.json("stat", "private")["files"][0]["mode"], "0700")
        self.put("file", b"")
        self.bad("mkdir '/file/d': .*[Nn]ot a directory", "mkdir", "-p", "file/d")

    def test_mv(self):
        self.good("mkdir", "d")
        self.put("a", b"a")
        self.put("b", b"b")
        self.good("mv", "a", "b", "d")
        self.assertEqual(self.good("find", "d"), "/d\n/d/a\n/d/b\n")
        self.bad("mv '/d/a': to '/d/b': .*exists", "mv", "-n", "d/a", "d/b")
        self.good("mv", "--exchange", "d/a", "d/b")
        self.assertEqual(self.good("cat", "d/a"), "b")
        self.good("mv", "d/a", "d/b")
        self.assertEqual(self.good("cat", "d/b"), "b")
        self.bad("mv '/d': .*into itself", "mv", "d", "d/x")
        self.bad("mv '/none': .*No such file", "mv", "none", "x")
        self.bad("mv '/d/b': .*[Nn]ot a directory", "mv", "d", "d", "d/b")

    def test_links(self):
        self.put("file", b"data")
        self.good("ln", "file", "hard")
        self.good("ln", "-s", "../any text", "soft")
        self.assertEqual(self.json("stat", "hard")["files"][0]["links"], 2)
        self.assertEqual(self.json("stat", "soft")["files"][0]["target"], "../any text")
        self.bad("ln '/file': .*exists", "ln", "hard", "file")

    def test_rm(self):
        self.good("mkdir", "-p", "d/e/f", "keep")
        for name in ("a", "b", "d/x", "d/e/y", "d/e/f/z"):
            self.put(name, b"")
        self.good("rm", "a", "b")
        self.bad("rm '/d': it is a directory; give -r", "rm", "d")
        self.bad("rm '/a': .*No such file", "rm", "a")
        self.good("rm", "-f", "a")
        self.assertEqual(self.json("rm", "-r", "d")["removed"], 6)
        self.bad("rm '/': the root cannot be removed", "rm", "-r", "/")
        self.assertEqual(self.good("ls"), "keep\n")

    def test_find_and_du(self):
        self.good("mkdir", "-p", "a/b")
        self.put("a/one.txt", b"1" * 10)
        self.put("a/b/two.txt", b"2" * 100_000)
        self.good("ln", "a/one.txt", "a/again.txt")
        self.good("ln", "-s", "one.txt", "a/link")
        self.assertEqual(self.good("find", "--name", "*.txt"),
                         "/a/again.txt\n/a/b/two.txt\n/a/one.txt\n")
        self.assertEqual(self.good("find", "a", "--type", "d"), "/a\n/a/b\n")
        self.assertEqual(self.good("find", "--type", "l", "-0"), "/a/link\0")
        self.assertEqual(self.good("du", "-s", "a"), "131072\t100017\t/a\n")
        self.assertEqual([s["path"] for s in self.json("du", "a")["sums"]],
                         ["/a/b", "/a/one.txt", "/a/again.txt", "/a/link", "/a"])

    def test_hostile_names_are_escaped(self):
        names = ["new\nline", "\x1b[31mred", "tab\there", "\udcff\udcfe", "back\\slash", "-rf", " "]
        source = os.path.join(self.folder, "source")
        for i, name in enumerate(names):
            self.local(os.path.join("source", name), b"%d" % i)
        self.good("put", "-r", source, "/hostile")
        text = self.good("ls", "/hostile")
        self.assertEqual(len(text.splitlines()), len(names))
        self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f\x7f]")
        self.assertIn("new\\x0aline", text)
        self.assertIn("\\xff\\xfe", text)
        found = self.json("find", "/hostile", "--type", "f")["entries"]
        self.assertIn({"base64": "L2hvc3RpbGUv//4="}, [e["path"] for e in found])
        raw = self.good("find", "/hostile", "-0", "--type", "f").split("\0")[:-1]
        self.assertEqual(sorted(raw), sorted("/hostile/" + name for name in names))
        self.bad(r"cat '/no\\x0asuch': ", "cat", "no\nsuch")
        self.good("get", "-r", "/hostile", os.path.join(self.folder, "back"))
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "back"))), sorted(names))
        self.assertEqual(self.fs("cat", "--", "/hostile/-rf").stdout, b"5")

    def test_wrong_usage(self):
        for arguments in (("mv", "a"), ("ln", "a"), ("put", "a"), ("mkdir",), ("rm",), ("cat", ""),
                          ("mkdir", "--mode", "888", "d"), ("find", "--type", "x"),
                          ("mv", "-n", "--exchange", "a", "b")):
            done = self.fs(*arguments)
            self.assertEqual(done.returncode, 2, done)
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)

    def test_a_closed_output_is_an_error(self):
        self.put("file", b"x" * 1_000_000)
        with open("/dev/full", "wb") as full:
            for arguments in (("cat", "file"), ("get", "file", "-"), ("ls", "-l"), ("find",)):
                done = self.fs(*arguments, stdout=full)
                self.assertEqual(done.returncode, 1, done)
                self.assertRegex(done.stderr.decode(), "cannot write to standard output")


class Copies(Files):
    def tree(self, name="tree"):
        os.makedirs(os.path.join(self.folder, name, "empty"))
        for path, size in (("one", 1), ("d/two", 4096), ("d/e/three", 70_000), ("big", 5_000_000)):
            self.local(os.path.join(name, path), os.urandom(size), 0o640)
        os.symlink("d/two", os.path.join(self.folder, name, "link"))
        os.symlink("nowhere", os.path.join(self.folder, name, "dangling"))
        return os.path.join(self.folder, name)

    def assert_same(self, one, two):
        done = subprocess.run(["diff", "-r", "--no-dereference", one, two], check=False)
        self.assertEqual(done.returncode, 0)

    def test_trees_go_there_and_back(self):
        tree = self.tree()
        counts = self.json("put", "-r", tree, "/")
        self.assertEqual(counts, {"files": 4, "directories": 4, "symlinks": 2,
                                  "bytes": 5_074_097, "failures": 0})
        self.good("cp", "-r", "/tree", "/copy")
        self.good("get", "-r", "/copy", os.path.join(self.folder, "back"))
        self.assert_same(tree, os.path.join(self.folder, "back"))
        self.good("put", "-r", tree, "/")  # over what is there
        self.good("check")

    def test_preserve_keeps_mode_and_times(self):
        tree = self.tree()
        for path, _, names in os.walk(tree):
            for name in names:
                os.utime(os.path.join(path, name), ns=(10**9, 2 * 10**9 + 7),
                         follow_symlinks=False)
        os.chmod(os.path.join(tree, "d"), 0o500)
        os.utime(os.path.join(tree, "d"), ns=(3, 4))
        self.good("put", "-rp", tree, "/kept")
        self.good("get", "-rp", "/kept", os.path.join(self.folder, "back"))
        for path in ("one", "d", "d/two", "link", "big"):
            a = os.lstat(os.path.join(tree, path))
            b = os.lstat(os.path.join(self.folder, "back", path))
            self.assertEqual((a.st_mode, a.st_mtime_ns), (b.st_mode, b.st_mtime_ns), path)
        os.chmod(os.path.join(tree, "d"), 0o700)

    def test_files_go_into_directories(self):
        one, two = self.local("one", b"1"), self.local("two", b"2")
        self.good("mkdir", "d")
        self.good("put", one, two, "/d")
        self.assertEqual(self.good("ls", "d"), "one\ntwo\n")
        self.bad("put '/x': .*", "put", one, two, "/x")
        self.good("get", "d/one", "d/two", self.folder)
        self.bad("put '.*/none': .*No such file", "put", os.path.join(self.folder, "none"), "/d")
        self.bad("put '.*': it is a directory; give -r", "put", self.folder, "/d")

    def test_a_copy_onto_itself_is_refused(self):
        self.put("file", b"data")
        self.good("mkdir", "d")
        self.bad("cp '/file': '/file' is the same file", "cp", "file", "file")
        self.bad("cp '/d': '/d/x' is inside of it", "cp", "-r", "d", "d/x")
        self.assertEqual(self.good("cat", "file"), "data")

    def test_what_cannot_be_copied_is_counted_and_the_rest_is(self):
        tree = self.tree()
        os.mkfifo(os.path.join(tree, "fifo"))
        self.bad("put '.*/fifo': it is left out", "put", "-r", tree, "/tree")
        self.assertEqual(self.json("put", "-r", tree, "/more", status=1)["failures"], 1)
        self.assertEqual(self.good("ls", "/tree"), "big\nd\ndangling\nempty\nlink\none\n")

    def test_many_failures_are_not_many_lines(self):
        for i in range(50):
            os.mkfifo(os.path.join(self.folder, f"fifo{i}"))
        os.remove(self.local("x"))
        sources = [os.path.join(self.folder, f"fifo{i}") for i in range(50)]
        self.good("mkdir", "d")
        done = self.fs("put", *sources, "/d")
        self.assertEqual(done.returncode, 1)
        lines = done.stderr.decode().splitlines()
        self.assertEqual(len(lines), 21)
        self.assertRegex(lines[-1], "50 failed; the first 20 are above")

    def test_a_full_store_leaves_no_part(self):
        # More than the pool has.
        big = self.local("big", b"x" * (300 << 20))
        self.bad("put '.*/big': to '/big': .* free", "put", big, "/big")
        self.bad("put '/pipe': .* free", "put", "-", "/pipe",
                 stdin=b"x" * (300 << 20))
        self.assertEqual(self.good("ls"), "")
        self.good("check")
        # What is removed is cleaned before it is free: by a server in the background, by a command
        # that opens the pool itself before it ends.
        deadline = time.monotonic() + (PATIENCE if self.listen else 0)
        while self.json("df")["used_bytes"] > 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        while self.json("df")["quarantined_bytes"] > 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(self.json("df")["used_bytes"], 0)
        self.put("small", b"x" * 1_000_000)
        self.good("check")

    def test_a_full_disk_leaves_no_part(self):
        self.put("file", b"x" * 100_000)
        self.bad("get '/file': to '/dev/full': No space left on device", "get", "/file",
                 "/dev/full")
        self.bad("get '/file': to '.*/no/x': No such file", "get", "/file",
                 os.path.join(self.folder, "no/x"))

    def test_put_makes_files_of_the_user_with_the_umask(self):
        tool = self.local("tool", b"#!/bin/sh\n", 0o777)
        self.good("put", tool, "/tool")
        known = self.json("stat", "/tool")["files"][0]
        self.assertEqual((known["mode"], known["uid"]), ("0755", os.geteuid()))
        back = os.path.join(self.folder, "back")
        self.good("get", "/tool", back)
        self.assertEqual(stat.S_IMODE(os.stat(back).st_mode), 0o755)


class Refusals(Files):
    def make_pool(self, size="64M", file_bytes="0"):
        super().make_pool(size, file_bytes)

    def test_a_pool_without_room_for_files_says_how_to_have_it(self):
        for command in (("ls",), ("df",), ("check",)):
            self.bad(f"{command[0]}: .*--file-bytes", *command)


class DataServers(Files):
    listen = "tcp://127.0.0.1:0"

    def setUp(self):
        super().setUp()
        self.data = []  # [pool, uri, process]
        for name in ("one", "two"):
            pool = os.path.join(self.folder, name)
            done = self.run_program("pmstore", "pool", "create", pool, "--size", "128M",
                                    "--file-bytes", "32M")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.data.append([pool, *self.start_server(pool, self.listen, "--data-server")])

    def servers(self):
        return {each["index"]: each for each in self.json("data", "list")["servers"]}

    def put_random(self, path, size=8_000_000):
        content = os.urandom(size)
        self.good("put", self.local("source", content), path)
        return content

    def check(self, path, content):
        done = self.fs("cat", path)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(done.stdout, content)

    def test_files_are_striped_over_servers_that_are_added_and_drained(self):
        for pool in self.data:
            self.good("data", "add", pool[1])
        content = self.put_random("/striped")
        for server in self.servers().values():
            self.assertGreater(server["used_bytes"], len(content) // 4, server)
        self.check("/striped", content)
        self.good("check")
        self.good("data", "drain", "--wait", "1")
        self.assertEqual(self.servers()[1]["state"], "gone")
        self.check("/striped", content)
        self.good("check")
        # Its pool is as good as new: it has files of its own.
        self.data[0][2].kill()
        self.data[0][2].wait()
        uri, _ = self.start_server(self.data[0][0], self.listen)
        self.good("put", "--uri", uri, self.local("other", b"other"), "/other")

    def test_a_server_that_was_killed_is_used_again_when_it_is_back(self):
        pool, uri, process = self.data[0]
        self.good("data", "add", uri)
        self.good("data", "drain", "0")
        content = self.put_random("/file")
        process.kill()
        process.wait()
        self.bad("cat '/file': ", "cat", "/file")
        self.good("mkdir", "/meanwhile")
        self.start_server(pool, uri)
        self.check("/file", content)
        self.good("check")

    def test_the_list_and_the_data_are_there_when_the_namespace_server_was_killed(self):
        self.good("data", "add", self.data[0][1])
        content = self.put_random("/file")
        self.server.kill()
        self.server.wait()
        self.serve()
        self.assertEqual(self.servers()[1]["uri"], self.data[0][1])
        self.check("/file", content)
        self.good("rm", "/file")
        self.good("check")

    def test_a_drain_that_cannot_go_on_says_why_and_its_wait_ends(self):
        for pool in self.data:
            self.good("data", "add", pool[1])
        self.good("data", "drain", "--wait", "0")
        self.put_random("/large", 40_000_000)  # more than one of them has
        self.bad(r"data drain 1: .*it still has .*free for file data", "data", "drain", "--wait",
                 "--patience", "1", "1")
        self.assertRegex(self.servers()[1]["problem"], "inode [0-9]+ at [0-9]+: .*free")
        self.assertRegex(self.good("data", "list"), "draining .*\n +.*free for file data")
        self.good("data", "drain", "--undo", "1")
        self.assertEqual(self.servers()[1]["problem"], "")

    def test_what_is_no_data_server_is_refused(self):
        self.bad("data add nowhere: .*tcp://", "data", "add", "nowhere")
        self.bad("data add .*: its area is data server 0", "data", "add", self.uri)
        self.good("data", "add", self.data[0][1])
        self.bad("data add .*: its area is data server 1", "data", "add", self.data[0][1])
        self.bad("data drain 7: there is no data server 7", "data", "drain", "7")
        self.bad("ls: .*namespace server", "ls", "--uri", self.data[0][1])


class CommandsOverTcp(Commands):
    listen = "tcp://127.0.0.1:0"


class CopiesOverTcp(Copies):
    listen = "tcp://127.0.0.1:0"


class CopiesOverShm(Copies):
    listen = f"shm://pmstore-fs-{os.getpid()}"


class RefusalsOverTcp(Refusals):
    listen = "tcp://127.0.0.1:0"


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    unittest.main()
