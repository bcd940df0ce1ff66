#!/usr/bin/env python3
"""usage: make_pools.py BIN OUT: makes the pools of an earlier release for convert_test.py.

BIN has the programs of that release. Each pool is compressed, and NAME.json says what is in it.
    killed   its server was killed while clients were writing; a table was dropped, there is a log
    closed   the same, closed in order
    small    one client ring, written by the embedded client
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


def make(bin_folder, folder, out, name, rings, killed):
    def run(*arguments, stdin=b""):
        done = subprocess.run([os.path.join(bin_folder, "pmstore"), *arguments], input=stdin,
                              capture_output=True, check=True)
        return done.stdout.decode()

    pool = os.path.join(folder, name)
    run("pool", "create", pool, "--size", "24M", "--sparse", "--rings", str(rings), "--ring-bytes",
        "64K", "--log-bytes", "2M", "--table", "accounts", "--table", "gone")
    daemon = None
    uri = "local:" + pool
    if rings > 1:
        daemon = subprocess.Popen([os.path.join(bin_folder, "pmstored"), "--pool", pool,
                                   "--listen", "tcp://127.0.0.1:0"], stdout=subprocess.PIPE)
        uri = re.search(r"tcp://[0-9.:]+", daemon.stdout.readline().decode())[0]
    content = {}
    for i in range(20):
        content[f"key{i}"] = f"value {i} " + "x" * (40 * i)
        run("kv", "put", "--uri", uri, "--table", "accounts", f"key{i}", content[f"key{i}"])
        run("kv", "put", "--uri", uri, "--table", "gone", f"key{i}", "dropped")
    run("kv", "del", "--uri", uri, "--table", "accounts", "key7")
    del content["key7"]
    run("table", "drop", "--uri", uri, "gone")
    run("log", "append", "--uri", uri, "orders", "--create", "--bytes", "1M",
        stdin=b"one apple\ntwo pears\n")
    if killed:
        busy = subprocess.Popen([os.path.join(bin_folder, "pmstore"), "bench", "kv", "--uri", uri,
                                 "--keys", "100", "--seconds", "30"], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
        time.sleep(2)
        daemon.send_signal(signal.SIGKILL)
        busy.kill()
        busy.wait()
    elif daemon is not None:
        daemon.terminate()
    if daemon is not None:
        daemon.wait()
    with open(pool, "rb") as data, open(os.path.join(out, name + ".xz"), "wb") as to:
        to.write(lzma.compress(data.read(), preset=9 | lzma.PRESET_EXTREME))
    with open(os.path.join(out, name + ".json"), "w", encoding="utf-8") as to:
        json.dump({"accounts": content, "log": ["one apple", "two pears"], "rings": rings}, to)
        to.write("\n")


def main():
    bin_folder, out = sys.argv[1:3]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        make(bin_folder, folder, out, "killed", 6, True)
        make(bin_folder, folder, out, "closed", 6, False)
        make(bin_folder, folder, out, "small", 1, False)


main()
