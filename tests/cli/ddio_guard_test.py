#!/usr/bin/env python3
"""usage: ddio_guard_test.py BIN: ddio off for the time of a command, on recorded machines."""

import os
import re
import signal
import subprocess
import sys
import time
import unittest

import recorded_machine as recorded
from ddio_command import DdioCommand, OFF, ON, PORT_0


class DdioGuard(DdioCommand):
    def test_what_was_changed_before_a_command_stays_noted(self):
        machine = recorded.two_sockets(self.folder)
        self.run_ddio("off", "--apply")
        self.run_ddio("on", "--apply", "--", "true")
        self.assertEqual(machine.switches(PORT_0), OFF["rpma"])
        self.run_ddio("restore", "--apply")
        self.assertEqual(machine.switches(PORT_0), ON)

    def test_nobody_else_switches_meanwhile(self):
        machine = recorded.two_sockets(self.folder)
        process = subprocess.Popen(self.words("off", "--apply", "--", "sh", "-c", "echo up; cat"),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b"up\n")
        for command in (["off", "--apply"], ["on", "--apply"], ["restore", "--apply"],
                        ["off", "--apply", "--", "true"]):
            self.fails("another 'pmstore ddio' is at work", *command)
        self.assertEqual(machine.switches(PORT_0), OFF["rpma"])
        process.stdin.close()
        self.assertEqual(process.wait(timeout=300), 0)
        process.stdout.close()
        self.assertEqual(machine.switches(PORT_0), ON)

    def test_it_is_undone_whatever_happened_to_the_note_and_the_register(self):
        machine = recorded.two_sockets(self.folder)
        self.fails("every register is as it was before; cannot read .*damaged", "off", "--apply",
                   "--", "sh", "-c", f"echo x >{self.state_file()}")
        self.assertEqual(machine.switches(PORT_0), ON)
        os.remove(self.state_file())
        self.run_ddio("off", "--apply", "--", "sh", "-c", self.set_bit_5(machine))
        self.assertEqual(machine.switches(PORT_0), (0xb1, 0))
        self.nothing_noted()

    def test_a_command_finds_it_changed_and_leaves_it_as_it_was(self):
        machine = recorded.two_sockets(self.folder)
        config = os.path.join(self.folder, machine.paths[PORT_0], "config.txt")
        done = self.run_ddio("off", "--apply", "--", "sh", "-c", f"grep 0x180 {config}; exit 7",
                             status=7)
        self.assertEqual(done.stdout, b"0x180 0x11\n")
        self.assertEqual(machine.switches(PORT_0), ON)
        self.nothing_noted()
        self.run_ddio("off", "--apply", "--", "sh", "-c", "kill -9 $$", status=137)
        self.assertEqual(machine.switches(PORT_0), ON)
        self.fails("cannot run '/nowhere'", "off", "--apply", "--", "/nowhere")
        self.assertEqual(machine.switches(PORT_0), ON)
        self.run_ddio("off", "--", "true", status=2)
        # What was off before stays off.
        self.run_ddio("off", "--apply")
        self.run_ddio("off", "--apply", "--", "true")
        self.assertEqual(machine.switches(PORT_0), OFF["rpma"])
        self.run_ddio("restore", "--apply")
        self.assertEqual(machine.switches(PORT_0), ON)

    def test_signals_end_the_command_and_the_change(self):
        machine = recorded.two_sockets(self.folder)
        script = "trap 'exit 3' TERM INT QUIT USR1; echo up; while :; do sleep 0.05; done"
        for number, status in ((signal.SIGTERM, 3), (signal.SIGINT, 3), (signal.SIGHUP, 129),
                               (signal.SIGQUIT, 3), (signal.SIGUSR1, 3), (signal.SIGALRM, 142)):
            process = subprocess.Popen(self.words("off", "--apply", "--", "sh", "-c", script),
                                       stdout=subprocess.PIPE)
            self.assertEqual(process.stdout.readline(), b"up\n")
            self.assertEqual(machine.switches(PORT_0), OFF["rpma"])
            process.send_signal(number)
            self.assertEqual(process.wait(timeout=300), status)
            process.stdout.close()
            self.assertEqual(machine.switches(PORT_0), ON)
            self.nothing_noted()

    def wait_until_taken(self, process, number):
        until = time.monotonic() + 300
        pending = 1
        while pending:
            self.assertLess(time.monotonic(), until)
            with open(f"/proc/{process.pid}/status") as status:
                sets = re.findall(r"^(?:Sig|Shd)Pnd:\s*(\w+)$", status.read(), re.MULTILINE)
            pending = sum(int(each, 16) >> (number - 1) & 1 for each in sets)
            time.sleep(0.01)

    def test_a_second_signal_kills_a_command_that_does_not_listen(self):
        machine = recorded.two_sockets(self.folder)
        process = subprocess.Popen(
            self.words("off", "--apply", "--", "sh", "-c",
                       "trap '' TERM; echo up; while :; do sleep 0.05; done"),
            stdout=subprocess.PIPE)
        process.stdout.readline()
        process.terminate()
        self.wait_until_taken(process, signal.SIGTERM)
        self.assertIsNone(process.poll())
        process.terminate()
        self.assertEqual(process.wait(timeout=300), 137)
        process.stdout.close()
        self.assertEqual(machine.switches(PORT_0), ON)

    def test_what_the_caller_ignores(self):
        machine = recorded.two_sockets(self.folder)

        def ignoring(number):
            return lambda: signal.signal(number, signal.SIG_IGN)
        self.run_ddio("off", "--apply", "--", "true", preexec_fn=ignoring(signal.SIGCHLD))
        process = subprocess.Popen(
            self.words("off", "--apply", "--", "sh", "-c",
                       "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done"),
            stdout=subprocess.PIPE, preexec_fn=ignoring(signal.SIGHUP))
        self.assertEqual(process.stdout.readline(), b"up\n")
        process.send_signal(signal.SIGHUP)
        self.wait_until_taken(process, signal.SIGHUP)
        process.terminate()  # the first that counts: the command is asked, not killed
        self.assertEqual(process.wait(timeout=300), 3)
        process.stdout.close()
        self.assertEqual(machine.switches(PORT_0), ON)

    def test_killed_outright_it_is_restored_by_the_note(self):
        machine = recorded.two_sockets(self.folder)
        process = subprocess.Popen(
            self.words("off", "--apply", "--", "sh", "-c", "echo up; sleep 1"),
            stdout=subprocess.PIPE)
        process.stdout.readline()
        process.kill()
        process.wait()
        process.stdout.close()
        self.assertEqual(machine.switches(PORT_0), OFF["rpma"])
        self.run_ddio("restore", "--apply")
        self.assertEqual(machine.switches(PORT_0), ON)


if __name__ == "__main__":
    DdioCommand.BIN = sys.argv.pop()
    unittest.main()
