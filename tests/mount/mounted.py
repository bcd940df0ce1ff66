"""A pool, its server, and mounts of its files, for tests; nothing of them outlives a test."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

PATIENCE = 300  # seconds; no test depends on how fast the machine is


def why_not():
    """Why nothing can be mounted here, or None."""
    if os.geteuid() != 0:
        return "these tests are about several users, so they need root"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse: {error.strerror}"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["mount", "--bind", folder, folder], capture_output=True,
                              check=False)
        if done.returncode != 0:
            return "this machine or container may not mount: " + done.stderr.decode().strip()
        subprocess.run(["umount", folder], check=False)
    return None


def until(condition, what):
    """Waits until it is true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {PATIENCE} s: {what}")
        time.sleep(0.01)


class MountedTest(unittest.TestCase):
    bin = ""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-mount.")
        os.chmod(self.folder, 0o755)
        self.addCleanup(shutil.rmtree, self.folder)
        self.pool = os.path.join(self.folder, "pool")
        self.server = None
        self.uri = None

    # ---- programs ----

    def pmstore(self, *arguments, stdin=b""):
        return subprocess.run([os.path.join(self.bin, "pmstore"), *arguments], input=stdin,
                              timeout=PATIENCE, capture_output=True, check=False)

    def good(self, *arguments, stdin=b""):
        done = self.pmstore(*arguments, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def sh(self, script, folder, **names):
        """Runs a script of the shell in `folder`; it has to succeed."""
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder,
                              timeout=PATIENCE, capture_output=True, check=False,
                              env={**os.environ, **names})
        self.assertEqual(done.returncode, 0, (done.stdout[-2000:], done.stderr[-2000:]))
        return done.stdout.decode()

    # ---- the server ----

    def make_pool(self, size="600M", file_bytes="256M"):
        self.good("pool", "create", self.pool, "--size", size, "--file-bytes", file_bytes)

    def serve(self, listen="tcp://127.0.0.1:0"):
        """Starts the server, at its former address when it had one."""
        self.server = subprocess.Popen(
            [os.path.join(self.bin, "pmstored"), "--pool", self.pool, "--listen",
             self.uri or listen, "--log-level", "warning", "--json"], stdout=subprocess.PIPE)
        self.addCleanup(self.end_server)
        self.uri = json.loads(self.server.stdout.readline())["listen"][0]

    def end_server(self, how=signal.SIGKILL):
        if self.server is None:
            return None
        server, self.server = self.server, None
        server.send_signal(how)
        status = server.wait()
        server.stdout.close()
        return status

    # ---- mounts ----

    def mount(self, name="mnt", options="allow_other", uri=None):
        """Gives the directory and the process in the foreground."""
        directory = os.path.join(self.folder, name)
        os.makedirs(directory, exist_ok=True)
        process = subprocess.Popen(
            [os.path.join(self.bin, "pmstore"), "fs", "mount", uri or self.uri, directory, "-f",
             "-o", options], stdout=subprocess.PIPE)
        self.addCleanup(self.end_mount, directory, process)
        said = process.stdout.readline()
        self.assertIn(b"is mounted at", said)
        return directory, process

    @staticmethod
    def end_mount(directory, process):
        """Whatever state it is in."""
        subprocess.run(["umount", "-l", directory], capture_output=True, check=False)
        process.kill()
        process.wait()
        process.stdout.close()

    def unmount(self, directory, process):
        """In order."""
        done = subprocess.run(["fusermount3", "-u", directory], capture_output=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(process.wait(PATIENCE), 0)

    def mounted_pool(self, options="allow_other"):
        self.make_pool()
        self.serve()
        return self.mount(options=options)
