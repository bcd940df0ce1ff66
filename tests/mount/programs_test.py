#!/usr/bin/env python3
"""usage: programs_test.py BIN SOURCE: ordinary programs on a mount.

SOURCE is a tree of files to work with.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
import unittest

from mounted import PATIENCE, MountedTest, why_not

SOURCE = ""
FIO = """
[global]
directory={directory}
size=16m
verify=crc32c
verify_fatal=1
time_based=0
ioengine=psync
[random]
rw=randrw
bs=4k-64k
[sequential]
rw=write
bs=1m
[small]
rw=randwrite
bs=512-8k
fsync=16
"""


class OrdinaryPrograms(MountedTest):
    def test_trees_are_copied_compared_packed_and_removed(self):
        mnt, _ = self.mounted_pool()
        self.sh('cp -a "$SOURCE/tools" "$SOURCE/fs" . && diff -r "$SOURCE/tools" tools', mnt,
                SOURCE=SOURCE)
        count = self.sh("find tools -type f | wc -l", mnt)
        self.assertEqual(count, self.sh("find tools -type f | wc -l", SOURCE))
        self.sh("tar --format=posix -cf all.tar tools fs &&"
                " mkdir out && tar xf all.tar -C out &&"
                " diff -r tools out/tools && diff -r fs out/fs", mnt)
        times = "find . -type f -printf '%p %m %s %T@\\n' | sort"
        self.assertEqual(self.sh(times, os.path.join(mnt, "tools")),
                         self.sh(times, os.path.join(mnt, "out/tools")))
        self.sh("mv out/tools out/moved && cp -r out/moved out/tools && mv out/fs here &&"
                " diff -r here fs && rm -r out here tools fs all.tar && test -z \"$(ls -A)\"", mnt)
        self.good("fs", "check", "--uri", self.uri)

    def test_rsync(self):
        if not shutil.which("rsync"):
            self.skipTest("no rsync")
        mnt, _ = self.mounted_pool()
        self.sh('rsync -a "$SOURCE/base" "$SOURCE/tools" . &&'
                ' test -z "$(rsync -ain --checksum "$SOURCE/base" "$SOURCE/tools" .)"', mnt,
                SOURCE=SOURCE)

    def test_git(self):
        mnt, _ = self.mounted_pool()
        names = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a",
                 "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a", "SOURCE": SOURCE}
        self.sh('mkdir one && cd one && git init -q && cp -r "$SOURCE/base" . && git add . &&'
                ' git commit -qm one && echo more >>base/check.h && git commit -qam two &&'
                " git gc -q && cd .. && git clone -q one two && cd two && git fsck --strict &&"
                " git checkout -q HEAD~1 && git status --porcelain && cd .. &&"
                ' ! diff -r one/base "$SOURCE/base" && diff -r two/base "$SOURCE/base"', mnt,
                **names)

    def load(self, path, journal):
        store = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
        store.execute(f"PRAGMA journal_mode={journal}")
        store.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v BLOB)")
        for part in range(20):
            store.execute("BEGIN")
            for i in range(100):
                store.execute("INSERT INTO t VALUES (?, ?)",
                              (part * 100 + i, bytes([i]) * (i * 7)))
            store.execute("DELETE FROM t WHERE k % 3 = 0 AND k < ?", (part * 50,))
            store.execute("ROLLBACK" if part % 5 == 4 else "COMMIT")
        store.execute("VACUUM")
        self.assertEqual(store.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
        count = store.execute("SELECT count(*) FROM t").fetchone()[0]
        store.close()
        return count

    def test_sqlite(self):
        mnt, process = self.mounted_pool()
        counts = [self.load(os.path.join(mnt, journal), journal)
                  for journal in ("DELETE", "TRUNCATE", "PERSIST")]
        self.unmount(mnt, process)
        mnt, _ = self.mount()
        for journal, count in zip(("DELETE", "TRUNCATE", "PERSIST"), counts):
            store = sqlite3.connect(os.path.join(mnt, journal))
            self.assertEqual(store.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
            self.assertEqual(store.execute("SELECT count(*) FROM t").fetchone()[0], count)
            store.close()

    def test_sqlite_with_a_log_that_is_mapped(self):
        """WAL needs a shared map: with `single` only."""
        mnt, _ = self.mounted_pool("allow_other,single")
        self.assertGreater(self.load(os.path.join(mnt, "wal"), "WAL"), 0)

    def test_fio_verifies(self):
        if not shutil.which("fio"):
            self.skipTest("no fio; see tools/install-deps --check")
        mnt, _ = self.mounted_pool()
        job = os.path.join(self.folder, "job")
        with open(job, "w", encoding="ascii") as file:
            file.write(FIO.format(directory=mnt))
        done = subprocess.run(["fio", job], cwd=self.folder, timeout=PATIENCE,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, (done.stdout[-2000:], done.stderr[-2000:]))

    def test_a_program_on_the_mount_runs(self):
        mnt, _ = self.mounted_pool()
        said = self.sh("cp /bin/echo say && ./say hello && printf '#!/bin/sh\\necho script\\n' >s"
                       " && chmod +x s && ./s", mnt)
        self.assertEqual(said, "hello\nscript\n")


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(f"SKIPPED: {reason}")
        sys.exit(77)
    MountedTest.bin, SOURCE = sys.argv[1], sys.argv[2]
    del sys.argv[1:3]
    unittest.main()
