"""DdioCommand: pmstore ddio on a recorded machine, for tests."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

import recorded_machine as recorded

# Of recorded_machine.two_sockets(); how DDIO's two registers are on, and off by each recipe.
PORT_0, PORT_1 = "0000:16:02.0", "0000:ae:00.0"
ON = (recorded.ON_0, recorded.ON_1)
OFF = {"rpma": (0x11, 0x200), "no-snoop": (0x19, 0), "bit7": (0x11, 0)}


class DdioCommand(unittest.TestCase):
    BIN = ""  # where the programs are

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-ddio.")
        self.addCleanup(shutil.rmtree, self.folder)

    def words(self, *arguments):
        command = list(arguments)
        at = command.index("--") if "--" in command else len(command)
        return [os.path.join(self.BIN, "pmstore"), "ddio", *command[:at], "--machine", self.folder,
                *command[at:]]

    def run_ddio(self, *arguments, status=0, **options):
        done = subprocess.run(self.words(*arguments), capture_output=True, timeout=300, check=False,
                              **options)
        self.assertEqual(done.returncode, status, done)
        if status == 1:
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
            self.assertTrue(done.stderr.startswith(b"pmstore: "), done.stderr)
        return done

    def fails(self, pattern, *arguments, **options):
        self.assertRegex(self.run_ddio(*arguments, status=1, **options).stderr.decode(), pattern)

    def states(self, *arguments):
        report = json.loads(self.run_ddio("status", "--json", *arguments).stdout)
        return {port["port"]: port["ddio"] for port in report["ports"]}

    def changed_by_us(self):
        return json.loads(self.run_ddio("status", "--json").stdout)["changed_by_us"]

    def state_file(self):
        return os.path.join(self.folder, "ddio.state")

    def nothing_noted(self):
        self.assertFalse(os.path.exists(self.state_file()))

    def set_bit_5(self, machine):
        """What another program does to a register that is off."""
        path = os.path.join(self.folder, machine.paths[PORT_0], "config.txt")
        return f"sed -i 's/^0x180 0x11/0x180 0x31/' {path}"
