#!/usr/bin/env python3
"""usage: ddio_test.py BIN: pmstore ddio on recorded machines, with injected failures."""

import json
import os
import subprocess
import sys
import unittest

import recorded_machine as recorded
from ddio_command import DdioCommand, OFF, ON, PORT_0, PORT_1


class Ddio(DdioCommand):
    # --- what each recipe does

    def test_every_recipe_switches_exactly_its_bits_there_and_back(self):
        for recipe, bits in OFF.items():
            with self.subTest(recipe):
                folder = self.folder
                self.folder = os.path.join(folder, recipe)
                machine = recorded.two_sockets(self.folder)
                self.assertEqual(self.states("--recipe", recipe), {PORT_0: "on", PORT_1: "on"})
                self.run_ddio("off", "--recipe", recipe)  # a dry run
                self.assertEqual(machine.switches(PORT_0), ON)
                self.nothing_noted()
                self.run_ddio("off", "--recipe", recipe, "--apply")
                self.assertEqual([machine.switches(p) for p in (PORT_0, PORT_1)], [bits, bits])
                self.assertEqual(set(self.states("--recipe", recipe).values()), {"off"})
                self.run_ddio("on", "--recipe", recipe, "--apply")
                self.assertEqual([machine.switches(p) for p in (PORT_0, PORT_1)], [ON, ON])
                self.nothing_noted()
                self.run_ddio("off", "--recipe", recipe, "--apply")
                self.run_ddio("restore")  # a dry run
                self.assertEqual(machine.switches(PORT_0), bits)
                self.run_ddio("restore", "--apply")
                self.assertEqual([machine.switches(p) for p in (PORT_0, PORT_1)], [ON, ON])
                self.nothing_noted()
                self.folder = folder

    def test_one_recipe_s_off_is_partly_off_for_another(self):
        recorded.two_sockets(self.folder)
        self.run_ddio("off", "--recipe", "bit7", "--apply")
        self.assertEqual(self.states("--recipe", "rpma"), {PORT_0: "partly", PORT_1: "partly"})
        self.assertEqual(self.states("--recipe", "bit7"), {PORT_0: "off", PORT_1: "off"})

    def test_what_firmware_had_set_is_what_restore_gives(self):
        machine = recorded.RecordedMachine(self.folder)
        odd = (0x59, 0x80000200)
        machine.root_port(PORT_0, 0, odd)
        machine.rnic("mlx5_0", "ens0", "0000:17:00.0", PORT_0, 0)
        self.run_ddio("on", "--apply")
        self.assertEqual(machine.switches(PORT_0), (0xd1, 0x80000000))
        self.run_ddio("off", "--apply")
        self.run_ddio("restore", "--apply")
        self.assertEqual(machine.switches(PORT_0), odd)
        self.assertIn(b"nothing to restore", self.run_ddio("restore", "--apply").stdout)

    # --- which port

    def test_an_rnic_is_named_in_three_ways(self):
        machine = recorded.two_sockets(self.folder)
        for name in ("mlx5_1", "ens1f0", "0000:af:00.0", "af:00.0"):
            self.assertEqual(self.states("--rnic", name), {PORT_1: "on"})
        self.run_ddio("off", "--rnic", "ens1f0", "--apply")
        self.assertEqual(machine.switches(PORT_0), ON)
        self.assertEqual(machine.switches(PORT_1), OFF["rpma"])
        self.fails("no RDMA device, network device or PCI address 'mlx5_7'",
                   "status", "--rnic", "mlx5_7")

    def test_behind_a_switch_there_is_one_port_and_it_says_who_shares_it(self):
        machine = recorded.behind_switch(self.folder)
        self.assertEqual(self.states(), {"0000:16:00.0": "on"})
        done = self.run_ddio("off", "--rnic", "mlx5_0", "--apply", "--json")
        self.assertEqual(json.loads(done.stdout)["also_affected"], ["0000:1a:00.0", "0000:1b:00.0"])
        self.assertEqual(machine.switches("0000:16:00.0"), OFF["rpma"])

    def test_without_an_rnic_or_with_a_software_one_it_says_so(self):
        machine = recorded.RecordedMachine(self.folder)
        self.fails("no RDMA device", "status")
        machine.software_rnic("rxe0")
        self.fails("software RNIC", "off", "--apply")
        self.fails("no PCI function", "off", "--rnic", "rxe0")
        machine.root_port("0000:50:01.0", 0)
        machine.rnic("rxe1", "ens7", "0000:51:00.0", "0000:50:01.0", 0)
        machine.write("sys/class/infiniband/rxe1/parent", "ens7")  # Soft-RoCE over a real card
        self.fails("software RNIC", "off", "--apply")
        self.fails("no PCI function", "off", "--rnic", "rxe1")
        machine.function("0000:00:05.0", "pci0000:00", "0x020000", 0)
        self.fails("behind no root port", "off", "--rnic", "00:05.0")
        machine.root_port("0000:40:01.0", 0, vendor="0x1022")
        machine.function("0000:41:00.0", "0000:40:01.0", "0x020000", 0)
        self.fails("no root port of Intel's", "status", "--rnic", "41:00.0")

    def test_a_port_of_the_chipset_is_left_alone(self):
        machine = recorded.RecordedMachine(self.folder)
        machine.root_port("0000:00:1c.0", 0, device="0xa190")
        machine.function("0000:02:00.0", "0000:00:1c.0", "0x020000", 0)
        for command in (["status"], ["off", "--apply"], ["off", "--apply", "--force"]):
            self.fails("device 0xa190. is no root port of Skylake.*chipset",
                       *command, "--rnic", "02:00.0")
        self.assertEqual(machine.switches("0000:00:1c.0"), ON)
        self.run_ddio("off", "--apply", "--rnic", "02:00.0", "--recipe", "bit7", "--force")
        self.assertEqual(machine.switches("0000:00:1c.0"), OFF["bit7"])

    # --- which CPU

    def test_the_root_ports_of_a_virtual_machine_are_not_the_cpu_s(self):
        machine = recorded.two_sockets(self.folder)
        path = os.path.join(self.folder, "proc/cpuinfo")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        machine.write("proc/cpuinfo", text.replace("avx512f", "avx512f hypervisor"))
        for command in (["status"], ["off", "--apply"], ["off", "--apply", "--recipe", "rpma"]):
            self.fails("virtual machine.*on the host", *command)
        self.assertEqual(machine.switches(PORT_0), ON)

    def test_other_cpus_are_refused_with_what_is_known(self):
        for cpu, known in ((recorded.ICE_LAKE, "Ice Lake-SP.*firmware"), (recorded.AMD, "AMD"),
                           (recorded.HASWELL, "before Skylake")):
            folder = self.folder
            self.folder = os.path.join(folder, str(cpu[2]))
            machine = recorded.two_sockets(self.folder, cpu)
            for command in (["status"], ["off", "--apply"], ["off", "--apply", "--force"],
                            ["off", "--apply", "--recipe", "bit7"]):
                self.fails(known, *command)
            self.assertEqual(machine.switches(PORT_0), ON)
            self.run_ddio("off", "--apply", "--recipe", "bit7", "--force")
            self.assertEqual(machine.switches(PORT_0), OFF["bit7"])
            self.folder = folder
        machine.write("proc/cpuinfo", "vendor_id\t: CentaurHauls\ncpu family\t: 7\nmodel\t\t: 1")
        self.folder = machine.folder
        self.fails("nothing is known about this CPU", "status")
        self.fails("recipe 'bit8' is unknown.*rpma", "status", "--recipe", "bit8", "--force")

    def test_a_capability_in_place_of_the_register_is_never_written(self):
        machine = recorded.RecordedMachine(self.folder, recorded.ICE_LAKE)
        # As in issue 3 of ddio-bench, on a Xeon Silver 4314.
        machine.root_port(PORT_0, 0, (0x1901000b, 0), {0x148: 0x1801000d, 0x190: 0x0001000d})
        machine.rnic("mlx5_0", "ens0", "0000:17:00.0", PORT_0, 0)
        self.fails("not PERFCTRLSTS here but the header of PCI capability 0x000b",
                   "off", "--apply", "--force", "--recipe", "bit7")
        self.assertEqual(machine.switches(PORT_0), (0x1901000b, 0))

    # --- failures: the registers are as they were, and it says so

    def test_failures_leave_everything_as_it_was(self):
        cases = {
            "read-config * EACCES": "cannot read 0000:16:02.0",
            "write-config * EPERM": "cannot write .* as it was before",
            "write-config * ignore": "ignored the write .*firmware.* as it was before",
            f"write-config {PORT_0}+0x184 EIO": "0x184: Input/output error.* as it was before",
            f"write-config {PORT_1}+0x180 ignore": "ignored the write.* as it was before",
            f"write-config {PORT_1}+0x184 mangle 0 1": "is 0x10200 after .* as it was before",
        }
        machine = recorded.two_sockets(self.folder)
        for fault, pattern in cases.items():
            with self.subTest(fault):
                machine.faults(fault)
                self.fails(pattern, "off", "--apply")
                self.assertEqual([machine.switches(p) for p in (PORT_0, PORT_1)], [ON, ON])
                self.nothing_noted()

    def test_lockdown_is_named(self):
        machine = recorded.two_sockets(self.folder)
        machine.write("sys/kernel/security/lockdown", "none [integrity] confidentiality")
        machine.faults("write-config * EPERM")
        self.fails("locked down.*Secure Boot.* as it was before", "off", "--apply")

    def test_what_cannot_be_set_back_is_said_and_stays_noted(self):
        machine = recorded.two_sockets(self.folder)
        machine.faults(f"write-config {PORT_1}+0x180 EIO", f"write-config {PORT_0}+0x184 EIO 1")
        self.fails("setting back has failed too.*0x184.*restore", "off", "--apply")
        self.assertEqual(machine.switches(PORT_0), (recorded.ON_0, 0x200))
        machine.faults()
        self.run_ddio("restore", "--apply")
        self.assertEqual(machine.switches(PORT_0), ON)
        self.nothing_noted()

    def test_nothing_is_changed_when_it_cannot_be_noted(self):
        machine = recorded.two_sockets(self.folder)
        self.fails("state", "off", "--apply", "--state", "/proc/nowhere/ddio.state")
        os.mkdir(self.state_file() + ".new")
        self.fails("cannot write", "off", "--apply")
        self.assertEqual(machine.switches(PORT_0), ON)

    def test_without_root_status_says_what_is_missing(self):
        machine = recorded.two_sockets(self.folder)
        machine.faults("read-config * EACCES")
        done = self.run_ddio("status", "--json", status=1)
        self.assertEqual(json.loads(done.stdout)["ports"][0]["ddio"], "unknown")
        self.assertRegex(done.stderr.decode(), "root")

    def test_what_another_program_changed_is_not_overwritten(self):
        machine = recorded.two_sockets(self.folder)
        self.run_ddio("off", "--apply")
        path = os.path.join(self.folder, machine.paths[PORT_0], "config.txt")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace("0x180 0x11", "0x180 0x31"))
        self.fails("another program has changed it; nothing was changed", "restore", "--apply")
        self.assertEqual(machine.switches(PORT_1), OFF["rpma"])
        self.run_ddio("restore", "--apply", "--force")
        self.assertEqual([machine.switches(p) for p in (PORT_0, PORT_1)], [ON, ON])

    def test_bits_of_others_stay_as_others_set_them(self):
        machine = recorded.two_sockets(self.folder)
        self.run_ddio("off", "--apply")
        subprocess.run(self.set_bit_5(machine), shell=True, check=True)
        self.assertEqual(machine.switches(PORT_0), (0x31, 0x200))
        self.run_ddio("on", "--apply")
        self.assertEqual(machine.switches(PORT_0), (0xb1, 0))
        self.nothing_noted()
        self.run_ddio("off", "--recipe", "bit7", "--apply")
        self.run_ddio("off", "--recipe", "no-snoop", "--apply")
        self.run_ddio("restore", "--apply")
        self.assertEqual(machine.switches(PORT_0), (0xb1, 0))

    def test_a_register_that_came_out_wrong_is_noted_as_it_is(self):
        machine = recorded.two_sockets(self.folder)
        machine.faults(f"write-config {PORT_0}+0x184 mangle 0 1",
                       f"write-config {PORT_0}+0x184 EIO")
        self.fails("setting back has failed too.*restore", "off", "--apply")
        self.assertEqual(machine.switches(PORT_0), (recorded.ON_0, 0x10200))
        machine.faults()
        self.run_ddio("restore", "--apply")
        self.assertEqual(machine.switches(PORT_0), ON)
        self.nothing_noted()

    def test_a_damaged_note_is_refused_and_a_reboot_forgotten(self):
        machine = recorded.two_sockets(self.folder)
        self.run_ddio("off", "--apply")
        machine.write("proc/sys/kernel/random/boot_id", "4f0f0c0e-boot-2")
        for port in (PORT_0, PORT_1):
            machine.set_switches(port, ON)
        self.assertIn(b"before the last boot", self.run_ddio("restore", "--apply").stdout)
        self.assertEqual(machine.switches(PORT_0), ON)
        self.nothing_noted()
        self.run_ddio("off", "--apply")
        for port in (PORT_0, PORT_1):
            machine.set_switches(port, ON)
        self.run_ddio("on", "--apply")
        self.assertNotEqual(self.changed_by_us(), [])
        machine.write("proc/sys/kernel/random/boot_id", "4f0f0c0e-boot-3")
        self.assertEqual(self.changed_by_us(), [])
        machine.write("proc/sys/kernel/random/boot_id", "4f0f0c0e-boot-2")
        with open(self.state_file(), "r+b") as file:
            file.seek(20)
            file.write(b"x")
        self.fails("damaged", "restore", "--apply")
        self.fails("damaged", "off", "--apply")
        self.assertEqual(machine.switches(PORT_0), ON)

    def test_what_a_boot_has_not_reset_is_not_called_reset(self):
        machine = recorded.two_sockets(self.folder)
        self.run_ddio("off", "--apply")
        machine.write("proc/sys/kernel/random/boot_id", "4f0f0c0e-boot-2")
        machine.set_switches(PORT_1, ON)
        for words in (["restore"], ["restore", "--apply"]):
            self.fails(f"{PORT_0}.0x180 is 0x11 as we left it, but .* booted .*--force", *words)
        self.assertEqual(machine.switches(PORT_0), OFF["rpma"])
        self.run_ddio("restore", "--apply", "--force")
        self.assertEqual([machine.switches(p) for p in (PORT_0, PORT_1)], [ON, ON])
        self.nothing_noted()

    def test_what_an_earlier_boot_left_stays_of_that_boot_while_it_cannot_be_read(self):
        machine = recorded.two_sockets(self.folder)
        self.run_ddio("off", "--apply")
        machine.write("proc/sys/kernel/random/boot_id", "4f0f0c0e-boot-2")
        machine.set_switches(PORT_1, ON)
        machine.faults(f"read-config {PORT_0}+0x180 EIO", f"read-config {PORT_0}+0x184 EIO")
        self.fails("cannot restore all", "restore", "--apply")
        machine.faults()
        self.fails("booted since", "restore", "--apply")
        machine.set_switches(PORT_0, (0x99, 0))  # reset to what nobody here has seen
        self.assertIn(b"before the last boot", self.run_ddio("restore", "--apply").stdout)
        self.assertEqual(machine.switches(PORT_0), (0x99, 0))
        self.nothing_noted()

    def test_what_cannot_be_read_stays_noted_and_the_rest_is_restored(self):
        for words in ([], ["--force"]):
            machine = recorded.two_sockets(os.path.join(self.folder, "-".join(["m", *words])))
            self.folder = machine.folder
            self.run_ddio("on", "--ways", "4", "--recipe", "rpma", "--apply")
            self.run_ddio("off", "--apply")
            # The CPU is offline now.
            msr = os.path.join(self.folder, "dev/cpu/4/msr.txt")
            os.rename(msr, msr + ".away")
            self.fails("cannot restore all of DDIO: .*4.*stays noted", "restore", "--apply", *words)
            self.assertEqual([machine.switches(p) for p in (PORT_0, PORT_1)], [ON, ON])
            self.assertEqual(machine.msr(0), "0x600")
            self.assertEqual([one["register"] for one in self.changed_by_us()], ["cpu4+msr0xc8b"])
            os.rename(msr + ".away", msr)
            self.run_ddio("restore", "--apply", *words)
            self.assertEqual(machine.msr(4), "0x600")
            self.nothing_noted()
            self.folder = os.path.dirname(self.folder)

    def test_one_failed_reading_leaves_no_register_changed(self):
        machine = recorded.two_sockets(self.folder)
        failed = 0
        for skip in range(40):
            machine.faults(f"read-config {PORT_0}+0x180 EIO {skip} 1")
            done = subprocess.run(self.words("off", "--apply", "--", "true"), timeout=300,
                                  capture_output=True, check=False)
            failed += done.returncode
            self.assertEqual(machine.switches(PORT_0), ON, done)
            machine.faults()
            self.nothing_noted()
            if done.returncode:
                self.assertNotIn(b"has failed", done.stderr)
        self.assertGreater(failed, 3)

    def test_what_can_no_longer_be_read_is_written_back_and_stays_noted(self):
        machine = recorded.two_sockets(self.folder)
        for skip in range(40):
            machine.faults(f"read-config {PORT_0}+0x180 EIO {skip}")
            done = subprocess.run(self.words("off", "--apply", "--", "true"), timeout=300,
                                  capture_output=True, check=False)
            machine.faults()
            self.assertEqual(machine.switches(PORT_0), ON, done)
            self.run_ddio("restore", "--apply")
            self.assertEqual(machine.switches(PORT_0), ON)
            self.nothing_noted()
            if done.returncode == 0:
                break
        self.assertGreater(skip, 3)
        self.assertEqual(done.returncode, 0)

    # --- RNICs that cannot be switched beside those that can

    def test_one_behind_the_chipset_does_not_hide_the_others(self):
        machine = recorded.two_sockets(self.folder)
        machine.root_port("0000:00:1c.0", 0, device="0xa190")
        machine.rnic("irdma0", "eno1", "0000:3d:00.0", "0000:00:1c.0", 0)
        done = self.run_ddio("status", "--json", status=1)
        ports = json.loads(done.stdout)["ports"]
        self.assertEqual([port["ddio"] for port in ports], ["on", "on", "unknown"])
        self.assertIn("chipset", ports[2]["error"])
        shown = self.run_ddio("status", status=1).stdout.decode()
        self.assertRegex(shown, r"(?m)^- +irdma0\(0000:3d:00.0\) +- +unknown")
        self.assertRegex(shown, r"(?m)^0000:16:02.0 +mlx5_0\(0000:17:00.0\) +- +on ")
        self.fails("chipset.*the others can be switched: --rnic mlx5_0 --rnic mlx5_1", "off",
                   "--apply")
        self.assertEqual(machine.switches(PORT_0), ON)
        self.run_ddio("off", "--rnic", "mlx5_0", "--rnic", "mlx5_1", "--apply")
        self.assertEqual([machine.switches(p) for p in (PORT_0, PORT_1)], [OFF["rpma"]] * 2)

    def test_a_sub_function_is_behind_its_card_s_port(self):
        machine = recorded.RecordedMachine(self.folder)
        machine.root_port(PORT_0, 0)
        machine.function("0000:17:00.0", PORT_0, "0x020000", 0)
        sub = f"{machine.paths['0000:17:00.0']}/mlx5_core.sf.4"
        machine.write(f"{sub}/sfnum", 88)
        machine.link("sys/class/infiniband/mlx5_2/device", sub)
        self.assertEqual(self.states(), {PORT_0: "on"})

    # --- ways of the cache

    def test_ways_are_those_of_every_socket(self):
        machine = recorded.two_sockets(self.folder)
        self.run_ddio("on", "--ways", "4", "--apply")
        self.assertEqual([machine.msr(cpu) for cpu in (0, 4)], ["0x780", "0x780"])
        self.assertEqual(machine.msr(1), "0x600")  # the register is the socket's
        self.run_ddio("restore", "--apply")
        self.assertEqual([machine.msr(cpu) for cpu in (0, 4)], ["0x600", "0x600"])
        self.fails("the last-level cache has 11", "on", "--ways", "12")
        for effect, why in (("ignore", "ignored the write.*leave --ways out"),
                            ("mangle 0 1", "IIO LLC WAYS is on other CPUs; leave --ways out"),
                            ("EIO", "cannot write")):
            machine.faults(f"write-msr 4+0xc8b {effect}")
            self.fails(f"{why}.* as it was before", "on", "--ways", "4", "--apply")
            self.assertEqual([machine.msr(cpu) for cpu in (0, 4)], ["0x600", "0x600"])
        machine.faults("write-msr 4+0xc8b EPERM")
        self.fails("cannot write 4.* as it was before", "on", "--ways", "4", "--apply")
        self.assertEqual([machine.msr(cpu) for cpu in (0, 4)], ["0x600", "0x600"])

    def test_a_kernel_that_forbids_writes_to_msrs_is_named(self):
        machine = recorded.two_sockets(self.folder)
        machine.faults("write-msr * EPERM")
        self.fails("although you are root|try it as root", "on", "--ways", "4", "--apply")
        machine.write("sys/module/msr/parameters/allow_writes", "off")
        self.fails("msr.allow_writes=off.*echo on > .* as it was before", "on", "--ways", "4",
                   "--apply")
        # It says nothing of the root port's own registers.
        machine.faults("write-config * EPERM")
        self.fails("although you are root|try it as root", "off", "--apply")
        self.nothing_noted()

    def test_ways_that_cannot_be_read_are_unknown(self):
        machine = recorded.two_sockets(self.folder, ways=None)
        self.assertRegex(self.run_ddio("status").stdout.decode(),
                         "ways of the last-level cache: unknown: cannot read")
        self.assertIn("llc_ways_error", json.loads(self.run_ddio("status", "--json").stdout))
        self.fails("cannot read 0.0xc8b", "on", "--ways", "4")
        for cpu in range(8):
            os.remove(os.path.join(machine.folder, f"sys/devices/system/cpu/cpu{cpu}/topology",
                                   "physical_package_id"))
        self.fails("no CPU .* says which socket", "on", "--ways", "4")

    def test_what_is_no_machine_is_refused(self):
        self.fails("no recorded machine", "status")


if __name__ == "__main__":
    DdioCommand.BIN = sys.argv.pop()
    unittest.main()
