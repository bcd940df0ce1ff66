#!/usr/bin/env python3
"""usage: ddio_registers_test.py BIN: what pmstore ddio leaves in every register of recorded
machines, on several topologies and with every failure."""

import os
import shutil
import sys
import unittest

import recorded_machine as recorded
from ddio_command import DdioCommand, OFF, ON, PORT_0, PORT_1

RECIPES = ("rpma", "no-snoop", "bit7")
# By topology: the root ports with an RNIC behind them.
TOPOLOGIES = {recorded.two_sockets: (PORT_0, PORT_1), recorded.behind_switch: ("0000:16:00.0",),
              recorded.two_ports_and_a_switch: (PORT_0, PORT_1)}
# The bits of each recipe, (mask, value) of 0x180 and of 0x184, from docs/ddio.md.
BITS = {("rpma", "off"): ((0x88, 0), (0x200, 0x200)), ("rpma", "on"): ((0x88, 0x80), (0x200, 0)),
        ("no-snoop", "off"): ((0x88, 0x08), (0, 0)), ("no-snoop", "on"): ((0x88, 0x80), (0, 0)),
        ("bit7", "off"): ((0x80, 0), (0, 0)), ("bit7", "on"): ((0x80, 0x80), (0, 0))}
# As firmware may have left them.
FOUND = (ON, (0x00000011, 0x200), (0x7fff7f59, 0x80000200), (0x00010088, 0x7ffffdff))


class DdioRegisters(DdioCommand):
    def test_on_every_topology_exactly_the_expected_bits_change(self):
        top = self.folder
        for build, ports in TOPOLOGIES.items():
            states = FOUND if build is recorded.two_sockets else FOUND[:1]
            for number, found in enumerate(states):
                self.folder = os.path.join(top, f"{build.__name__}{number}")
                machine = build(self.folder)
                for port in ports:
                    machine.set_switches(port, found)
                for recipe in RECIPES:
                    with self.subTest(build=build.__name__, found=found, recipe=recipe):
                        self.walk(machine, ports, recipe)
        self.folder = top

    def walk(self, machine, ports, recipe):
        """Through every command; after each, every register of the machine is as expected."""
        before = machine.everything()

        def expected(switch):
            values = dict(before)
            for port in ports:
                for place, (mask, value) in zip(("0x180", "0x184"), BITS[recipe, switch]):
                    name = f"{port}+{place}"
                    values[name] = values[name] & ~mask | value
            return values

        for command in (["status"], ["off"], ["on"], ["restore"]):  # dry runs
            self.run_ddio(*command, *(["--recipe", recipe] if command != ["restore"] else []))
            self.assertEqual(machine.everything(), before, command)
        for first, second in (("off", "on"), ("on", "off")):
            for switch in (first, second):
                self.run_ddio(switch, "--apply", "--recipe", recipe)
                self.assertEqual(machine.everything(), expected(switch))
                self.assertEqual(set(self.states("--recipe", recipe).values()), {switch})
            self.run_ddio("restore", "--apply")
            self.assertEqual(machine.everything(), before)
            self.nothing_noted()
        seen = os.path.join(self.folder, "seen")
        self.run_ddio("off", "--apply", "--recipe", recipe, "--", "cp", "-r",
                      os.path.join(self.folder, "sys"), seen)
        self.assertEqual(machine.everything(), before)
        for port in ports:
            path = os.path.join(self.folder, machine.paths[port].replace("sys/", "seen/", 1))
            with open(os.path.join(path, "config.txt"), encoding="utf-8") as file:
                values = {int(at, 16): int(value, 16) for at, value in map(str.split, file)}
            wanted = expected("off")
            self.assertEqual((values[0x180], values[0x184]),
                             (wanted[f"{port}+0x180"], wanted[f"{port}+0x184"]))
        shutil.rmtree(seen)

    # What fails every write: no permission, lockdown, a write that is ignored, an error.
    FAILURES = {"EPERM": "although you are root|try it as root",
                "EACCES": "although you are root|try it as root", "lockdown": "locked down",
                "ignore": "ignored the write", "EIO": "Input/output error"}

    def fail_writes(self, machine, failure, where="*", skip=""):
        machine.write("sys/kernel/security/lockdown",
                      "none [integrity] confidentiality" if failure == "lockdown" else "[none] x")
        effect = "EPERM" if failure == "lockdown" else failure
        machine.faults(f"write-config {where} {effect} {skip}")

    def test_every_failure_of_every_command_leaves_the_registers_as_they_were(self):
        top = self.folder
        for build, ports in TOPOLOGIES.items():
            self.folder = os.path.join(top, build.__name__)
            machine = build(self.folder)
            found = machine.everything()
            ran = os.path.join(self.folder, "ran")
            for failure, pattern in self.FAILURES.items():
                # The last register fails: the others have been changed, and are set back.
                for where in ("*", f"{ports[-1]}+0x184"):
                    with self.subTest(build=build.__name__, failure=failure, where=where):
                        self.fail_writes(machine, failure, where)
                        for tail in ([], ["--", "touch", ran]):
                            self.fails(f"({pattern}).*as it was before", "off", "--apply", *tail)
                            self.assertEqual(machine.everything(), found)
                            self.nothing_noted()
                        self.assertFalse(os.path.exists(ran))
                        machine.faults()
                        self.run_ddio("off", "--apply")
                        off = machine.everything()
                        self.fail_writes(machine, failure, where)
                        self.fails(f"({pattern}).*as it was before", "on", "--apply")
                        self.assertEqual(machine.everything(), off)
                        self.fails(f"setting back has failed.*({pattern})", "restore", "--apply")
                        if where == "*":
                            self.assertEqual(machine.everything(), off)
                        self.assertNotEqual(self.changed_by_us(), [])
                        machine.faults()
                        self.run_ddio("restore", "--apply")
                        self.assertEqual(machine.everything(), found)
                        self.nothing_noted()
        self.folder = top

    def test_a_change_that_cannot_be_undone_after_the_command_is_said_and_noted(self):
        machine = recorded.two_sockets(self.folder)
        for failure, pattern in self.FAILURES.items():
            with self.subTest(failure):
                self.fail_writes(machine, failure, skip="4")  # as many as `off` makes
                self.fails(f"cannot undo.*({pattern}).*restore", "off", "--apply", "--", "true")
                self.assertEqual([machine.switches(p) for p in (PORT_0, PORT_1)],
                                 [OFF["rpma"], OFF["rpma"]])
                machine.faults()
                self.run_ddio("restore", "--apply")
                self.assertEqual([machine.switches(p) for p in (PORT_0, PORT_1)], [ON, ON])
                self.nothing_noted()


if __name__ == "__main__":
    DdioCommand.BIN = sys.argv.pop()
    unittest.main()
