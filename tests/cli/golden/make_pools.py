#!/usr/bin/env python3
"""usage: make_pools.py BIN OUT [PREFIX]: makes the pools of an earlier release for convert_test.py.

BIN has the programs of that release. Each pool is compressed, and NAME.json says what is in it.
    killed   its server was killed while clients were writing; a table was dropped, there is a log
    closed   the same, closed in order
    small    one client ring, written by the embedded client
    rings    six rings; killed while the embedded client was writing under lock discipline rnic;
             only of releases that have a shard log, whose pools have a PREFIX: v3_, v4_, v5_
"""

import json
import lzma
import os
import re
import signal
import subprocess
import sys
import tempfile
import time


class Maker:
    def __init__(self, bin_folder, folder, out, prefix):
        self.bin = bin_folder
        self.folder = folder
        self.out = out
        self.prefix = prefix

    def run(self, *arguments, stdin=b""):
        done = subprocess.run([os.path.join(self.bin, "pmstore"), *arguments], input=stdin,
                              capture_output=True, check=True)
        return done.stdout.decode()

    def fill(self, uri, *locks):
        """What is in the table `accounts` afterwards."""
        content = {}
        for i in range(20):
            key, value = f"key{i}", f"value {i} " + "x" * (40 * i)
            content[key] = value
            self.run("kv", "put", "--uri", uri, *locks, "--table", "accounts", key, value)
            self.run("kv", "put", "--uri", uri, *locks, "--table", "gone", key, "dropped")
        self.run("kv", "del", "--uri", uri, *locks, "--table", "accounts", "key7")
        del content["key7"]
        self.run("table", "drop", "--uri", uri, "gone")
        self.run("log", "append", "--uri", uri, "orders", "--create", "--bytes", "1M",
                 stdin=b"one apple\ntwo pears\n")
        return content

    def write_until_killed(self, uri, *locks, daemon=None):
        busy = subprocess.Popen([os.path.join(self.bin, "pmstore"), "bench", "kv", "--uri", uri,
                                 *locks, "--keys", "100", "--seconds", "30"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(2)
        if daemon is not None:
            daemon.send_signal(signal.SIGKILL)
        busy.kill()
        busy.wait()

    def make(self, name, rings, *, served=False, killed=False, locks=()):
        pool = os.path.join(self.folder, name)
        self.run("pool", "create", pool, "--size", "24M", "--sparse", "--rings", str(rings),
                 "--ring-bytes", "64K", "--log-bytes", "2M", "--table", "accounts", "--table",
                 "gone")
        daemon = None
        uri = "local:" + pool
        if served:
            daemon = subprocess.Popen([os.path.join(self.bin, "pmstored"), "--pool", pool,
                                       "--listen", "tcp://127.0.0.1:0"], stdout=subprocess.PIPE)
            uri = re.search(r"tcp://[0-9.:]+", daemon.stdout.readline().decode())[0]
        content = self.fill(uri, *locks)
        if killed:
            self.write_until_killed(uri, *locks, daemon=daemon)
        elif daemon is not None:
            daemon.terminate()
        if daemon is not None:
            daemon.wait()
        self.keep(pool, name, {"accounts": content, "log": ["one apple", "two pears"],
                               "rings": rings})

    def keep(self, pool, name, expected):
        path = os.path.join(self.out, self.prefix + name)
        with open(pool, "rb") as data, open(path + ".xz", "wb") as to:
            to.write(lzma.compress(data.read(), preset=9 | lzma.PRESET_EXTREME))
        with open(path + ".json", "w", encoding="utf-8") as to:
            json.dump(expected, to)
            to.write("\n")


def main():
    bin_folder, out = sys.argv[1:3]
    prefix = sys.argv[3] if len(sys.argv) > 3 else ""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        maker = Maker(bin_folder, folder, out, prefix)
        maker.make("killed", 6, served=True, killed=True)
        maker.make("closed", 6, served=True)
        maker.make("small", 1)
        if prefix:
            maker.make("rings", 6, killed=True, locks=("--locks", "rnic"))


main()
