#!/usr/bin/env python3
"""usage: doctor_test.py BIN: pmstore doctor on recorded machines, and on this one."""

import json
import os
import shutil
import subprocess
import sys
import unittest

import doctor_command
import recorded_machine as recorded


class Doctor(doctor_command.DoctorCommand):
    def test_on_a_machine_that_is_well_set_up_nothing_costs(self):
        recorded.well_set_up(self.folder)
        rows = self.rows()
        self.assertEqual(self.costs(rows), [])
        self.assert_row(rows, "h3", "ok", "mlx5_0: off; mlx5_1: off")
        self.assert_row(rows, "h9", "ok", "auto chooses doorbell: domain adr, .* in memory; with "
                        "pmstored --ddio off")
        self.assert_row(rows, "h1", "ok", "mlx5_0 to region0: distance 10, cores 0-3 on node 0; "
                        "mlx5_1 to region1: distance 10, cores 4-7 on node 1")
        self.assert_row(rows, "domain", "ok", "region0: adr")
        self.assert_row(rows, "h5", "unknown", "no pool named", "--pool")
        self.assert_row(rows, "flush", "ok", "mlx5_0: its driver reports none; .*not used")
        table = self.pmstore("doctor", "--machine", self.folder)
        self.assertEqual((table.returncode, table.stderr), (0, b""))

    def test_ddio_on(self):
        machine = recorded.well_set_up(self.folder)
        self.assertEqual(self.pmstore("ddio", "on", "--apply", "--rnic", "mlx5_1", "--machine",
                                      self.folder).returncode, 0)
        rows = self.rows()
        self.assertEqual(self.costs(rows), ["h3", "h9"])
        self.assert_row(rows, "h3", "costs you", "mlx5_0: off; mlx5_1: on", "pmstore ddio off")
        self.assert_row(rows, "h9", "costs you", "auto chooses two_sided.*last-level", "ddio off")
        machine.faults("read-config * EACCES")
        rows = self.rows()
        self.assertEqual(self.costs(rows), [])
        self.assert_row(rows, "h3", "unknown", "cannot read")
        self.assert_row(rows, "h9", "unknown", "two_sided.*an unknown place.*may be doorbell",
                        "root|ddio status")

    def test_what_is_not_known_does_not_cost(self):
        machine = recorded.well_set_up(self.folder)
        silent = recorded.nvm_facts(1)
        del silent["domain"]
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0"), recorded.rdma_facts("mlx5_1")],
                           [recorded.nvm_facts(0), silent])
        rows = self.rows()
        self.assertEqual(self.costs(rows), [])
        self.assert_row(rows, "domain", "unknown", "region1: not declared")
        self.assert_row(rows, "h9", "unknown", "not declared.*may be doorbell",
                        "persistence_domain")
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0"), recorded.rdma_facts("mlx5_1")],
                           [recorded.nvm_facts(0), recorded.nvm_facts(1)])
        machine.write(f"{machine.paths['0000:16:02.0']}/device", "0xa190")
        self.assert_row(self.rows(), "h3", "unknown", "chipset")

    def test_an_rnic_behind_the_chipset_does_not_hide_the_others(self):
        machine = recorded.well_set_up(self.folder)
        machine.root_port("0000:00:1c.0", 0, device="0xa190")
        machine.rnic("irdma0", "eno1", "0000:3d:00.0", "0000:00:1c.0", 0)
        rows = self.rows()
        self.assert_row(rows, "h3", "unknown",
                        "mlx5_0: off; mlx5_1: off; irdma0: unknown: .*chipset", "ddio status")
        self.assertEqual(self.pmstore("ddio", "on", "--apply", "--rnic", "mlx5_1", "--machine",
                                      self.folder).returncode, 0)
        self.assert_row(self.rows(), "h3", "costs you", "mlx5_1: on; irdma0: unknown",
                        "pmstore ddio off")

    def test_a_cpu_without_ddio_is_not_sent_to_its_switch(self):
        recorded.well_set_up(self.folder, recorded.AMD)
        self.assert_row(self.rows(), "h3", "unknown", "DDIO is Intel's", "^nothing switches it")

    def test_eadr_needs_no_ddio_off_for_one_sided_writes(self):
        machine = recorded.well_set_up(self.folder, recorded.ICE_LAKE)
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0"), recorded.rdma_facts("mlx5_1")],
                           [recorded.nvm_facts(0, domain="eadr"),
                            recorded.nvm_facts(1, domain="eadr")])
        rows = self.rows()
        self.assert_row(rows, "domain", "ok", "region0: eadr")
        self.assert_row(rows, "h9", "ok", "auto chooses doorbell")
        self.assert_row(rows, "h3", "unknown", "Ice Lake-SP.*firmware",
                        "^look for DDIO in the firmware")

    def test_the_wrong_socket(self):
        machine = recorded.well_set_up(self.folder)
        shutil.rmtree(os.path.join(self.folder, "sys/class/infiniband/mlx5_1"))
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0")], [recorded.nvm_facts(1)])
        rows = self.rows()
        self.assertEqual(self.costs(rows), ["h1"])
        self.assert_row(rows, "h1", "costs you", "mlx5_0 on node 0; region1 on node 1; mlx5_0 to "
                        "region1: distance 21, another socket", "socket 1.*numactl -N 0")
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0")], [recorded.nvm_facts(0)])
        self.assert_row(self.rows(), "h1", "ok")
        machine.write("sys/devices/system/node/node0/cpulist", "")
        self.assert_row(self.rows(), "h1", "costs you", "node 0 has no cores", "numactl")

    def test_halves_of_a_socket_are_one_socket(self):
        # Four nodes on two sockets, as with sub-NUMA clusters: the RNIC is on 0, the memory on 1.
        machine = recorded.RecordedMachine(self.folder, sockets=4, cpus=2)
        recorded.limits(machine)
        machine.root_port("0000:16:02.0", 0, (0x11, 0x200))
        machine.rnic("mlx5_0", "ens0f0", "0000:17:00.0", "0000:16:02.0", 0)
        for cpu in range(8):
            machine.write(f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", cpu // 4)
        for node, row in enumerate(("10 11 21 21", "11 10 21 21", "21 21 10 11", "21 21 11 10")):
            machine.write(f"sys/devices/system/node/node{node}/distance", row)
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0")], [recorded.nvm_facts(1)])
        self.assert_row(self.rows(), "h1", "ok", "mlx5_0 to region1: distance 11, cores 2-3")
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0")], [recorded.nvm_facts(2)])
        self.assert_row(self.rows(), "h1", "costs you", "distance 21, another socket", "socket 1")

    def test_cores_that_may_not_be_used(self):
        machine = recorded.well_set_up(self.folder)
        shutil.rmtree(os.path.join(self.folder, "sys/class/infiniband/mlx5_1"))
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0")], [recorded.nvm_facts(0)])
        status = "CapEff:\t0000000000000000\nCpus_allowed_list:\t{}\nMems_allowed_list:\t0"
        for cpus, verdict in (("0-7", "ok"), ("2,5", "ok"), ("4-7", "costs you")):
            machine.write("proc/self/status", status.format(cpus))
            self.assert_row(self.rows(), "h1", verdict, fix="" if verdict == "ok" else
                            "numactl -N 0 pmstored")
        self.assertIn("cores 4-7 only", self.rows()["h1"]["seen"])

    def test_writers_are_counted(self):
        machine = recorded.well_set_up(self.folder)
        lone = recorded.nvm_facts(0, interleaved_dimms=1)
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0"), recorded.rdma_facts("mlx5_1")],
                           [lone, recorded.nvm_facts(1)])
        maps = "7f00-7f80 {} 00000000 00:06 515 {}\n7f80-7f90 rw-p 00000000 00:00 0 [heap]"
        for pid in range(100, 104):
            machine.write(f"proc/{pid}/maps", maps.format("rw-s", "/dev/dax0.0"))
        machine.write("proc/200/maps", maps.format("r--s", "/dev/dax0.0"))
        machine.write("proc/201/maps", maps.format("rw-s", "/dev/dax0.01"))
        machine.write("proc/202/maps", maps.format("rw-s", "/dev/dax1.0"))
        self.assert_row(self.rows(), "h2", "ok", "region0: 4 processes .*room for 4.*region1: 1 "
                        "process ")
        machine.write("proc/104/maps", maps.format("rw-s", "/dev/dax0.0"))
        self.assert_row(self.rows(), "h2", "costs you", "region0: 5 processes", "fuser -v")

    def test_a_spare_port_costs_nothing(self):
        machine = recorded.RecordedMachine(self.folder)
        recorded.limits(machine)
        machine.root_port("0000:16:02.0", 0, (0x11, 0x200))
        for number in (0, 1):
            machine.rnic(f"mlx5_{number}", f"ens0f{number}", f"0000:17:00.{number}",
                         "0000:16:02.0", 0)
            recorded.rdma_port(machine, f"mlx5_{number}", f"ens0f{number}")
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0"),
                                     recorded.rdma_facts("mlx5_1", port={"active": False})],
                           [recorded.nvm_facts(0)])
        self.assert_row(self.rows(), "link", "ok", "mlx5_1 port 1: not active, another port")

    def test_what_root_would_add_is_said(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to be someone else")
        machine = recorded.well_set_up(self.folder)
        machine.faults("read-config * EACCES")
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0"), recorded.rdma_facts("mlx5_1")],
                           [recorded.nvm_facts(0, dimms=[{"name": "nmem0"}]),
                            recorded.nvm_facts(1)])

        def report(user):
            if user:
                os.chmod(self.folder, 0o755)
            other = {"user": user, "group": user, "extra_groups": []} if user else {}
            try:
                done = subprocess.run([os.path.join(self.BIN, "pmstore"), "doctor", "--json",
                                       "--machine", self.folder], capture_output=True, timeout=300,
                                      check=False, **other)
            except PermissionError:
                self.skipTest("others may not run what is built here")
            return json.loads(done.stdout)
        self.assertEqual(report(None)["root_would_add"], [])
        self.assertEqual(report(65534)["root_would_add"], ["health", "h3", "h9"])
        # What no root sees is not promised.
        machine = recorded.RecordedMachine(self.folder + "/ice", recorded.ICE_LAKE)
        recorded.limits(machine)
        machine.root_port("0000:16:02.0", 0)
        machine.rnic("mlx5_0", "ens0f0", "0000:17:00.0", "0000:16:02.0", 0)
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0")], [recorded.nvm_facts(0)])
        self.folder += "/ice"
        self.assertEqual(report(65534)["root_would_add"], [])
        self.folder = os.path.dirname(self.folder)

    def test_the_sample_in_the_documentation_is_what_is_printed(self):
        machine = recorded.RecordedMachine(self.folder, sockets=1, cpus=2)
        recorded.limits(machine)
        machine.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
        recorded.inventory(machine)
        done = self.pmstore("doctor", "--machine", self.folder)
        self.assertEqual(done.returncode, 1)
        sample = "".join(f"    {line}\n" if line else "\n"
                         for line in done.stdout.decode().splitlines())
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/tuning.md")
        with open(path, encoding="utf-8") as file:
            self.assertIn(f"    $ pmstore doctor\n{sample}", file.read())

    def test_no_rnic(self):
        machine = recorded.RecordedMachine(self.folder)
        recorded.limits(machine, 65536)
        recorded.inventory(machine, [], [recorded.nvm_facts(0)])
        rows = self.rows()
        self.assertEqual(self.costs(rows), ["h9", "rnic"])
        self.assert_row(rows, "rnic", "costs you", "no RDMA device", "modprobe mlx5_ib")
        self.assert_row(rows, "mtu", "unknown", "no RDMA device")
        self.assert_row(rows, "memlock", "ok")
        machine.software_rnic("rxe0")
        recorded.inventory(machine, [recorded.rdma_facts("rxe0", software=True)],
                           [recorded.nvm_facts(0)])
        recorded.limits(machine)
        self.assert_row(self.rows(), "rnic", "costs you", "rxe0 .software")
        self.assert_row(self.rows(), "h9", "costs you", "two_sided.*land in cpu", "hardware")

    def test_auto_s_choice_is_what_the_fabrics_and_the_server_make(self):
        # As negotiate() and the server do: tcp and shm order a READ, and take locks by CPU.
        machine = recorded.well_set_up(self.folder)
        eadr = [recorded.nvm_facts(0, domain="eadr")]
        by_cpu = "auto chooses doorbell: domain eadr, .* in cpu; redo records two_sided, .* locks"
        recorded.inventory(machine, [], eadr)
        self.assert_row(self.rows(), "h9", "ok", by_cpu)
        recorded.inventory(machine, [recorded.rdma_facts("rxe0", software=True)], eadr)
        self.assert_row(self.rows(), "h9", "ok", by_cpu)
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0", atomics="none")],
                           [recorded.nvm_facts(0)])
        self.assert_row(self.rows(), "h9", "ok", "doorbell.*in memory.*locks cpu")
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0")], [recorded.nvm_facts(0)])
        self.assertNotIn("locks cpu", self.rows()["h9"]["seen"])

    def test_auto_s_choice_is_about_memory_that_a_pool_can_use(self):
        machine = recorded.well_set_up(self.folder)
        rdma = [recorded.rdma_facts("mlx5_0"), recorded.rdma_facts("mlx5_1")]

        def space(mode, device="/dev/pmem0"):
            return [{"name": "namespace0.0", "mode": mode, "device": device, "bytes": 1 << 39,
                     "alignment": 2 << 20}]
        for spaces in ([], space("raw"), space("sector"), space("devdax", "")):
            recorded.inventory(machine, rdma, [recorded.nvm_facts(0, namespaces=spaces)])
            self.assert_row(self.rows(), "h9", "costs you", "two_sided: domain none.*no namespace "
                            "that a pool can use", "pool create /dev/dax0.0, once")
        # A pool in a file on it has the region's domain, but clients come by tcp.
        recorded.inventory(machine, rdma, [recorded.nvm_facts(0, namespaces=space("fsdax"))])
        self.assert_row(self.rows(), "h9", "costs you", "two_sided: domain adr, .* in cpu; "
                        "namespace0.0 is fsdax.*tcp", "device DAX, which")
        recorded.inventory(machine, rdma, [recorded.nvm_facts(0, namespaces=space("fsdax"),
                                                              domain="eadr")])
        self.assert_row(self.rows(), "h9", "ok", "doorbell: domain eadr, .* in cpu; .*locks cpu")
        # What is in raw mode has no part in it.
        raw = recorded.nvm_facts(1, namespaces=space("raw", "/dev/pmem1"), domain="none")
        recorded.inventory(machine, rdma, [recorded.nvm_facts(0), raw])
        self.assert_row(self.rows(), "h9", "ok", "doorbell: domain adr, .* in memory")

    def test_no_nvm(self):
        machine = recorded.well_set_up(self.folder)
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0"), recorded.rdma_facts("mlx5_1")])
        rows = self.rows()
        self.assertEqual(self.costs(rows), ["h9", "nvm"])
        self.assert_row(rows, "nvm", "costs you", "no region", "ipmctl create -goal")
        self.assert_row(rows, "h9", "costs you", "two_sided: domain none", "pool create /dev/dax")
        self.assert_row(rows, "h3", "ok", "no persistent memory")

    def test_nvm_that_is_set_up_wrong(self):
        machine = recorded.well_set_up(self.folder)
        space = {"name": "namespace0.0", "device": "/dev/pmem0", "bytes": 1 << 39}
        rdma = [recorded.rdma_facts("mlx5_0"), recorded.rdma_facts("mlx5_1")]
        cases = {
            "nvm-mode": ({"namespaces": []}, "no namespace", "create-namespace -m devdax -r"),
            "nvm-alignment": ({"namespaces": [dict(space, mode="devdax", alignment=4096)]},
                              "4 KiB", "-a 2M"),
            "domain": ({"domain": "none"}, "none: nothing is safe", "firmware"),
            "health": ({"bad_blocks": 3}, "region0: 3 bad blocks", "pool check"),
        }
        for name, (change, seen, fix) in cases.items():
            recorded.inventory(machine, rdma, [recorded.nvm_facts(0, **change),
                                               recorded.nvm_facts(1)])
            self.assert_row(self.rows(), name, "costs you", seen, fix)
        for change in ({"namespaces": [dict(space, mode="raw")]},
                       {"namespaces": [dict(space, mode="fsdax", alignment=2 << 20)]}):
            recorded.inventory(machine, rdma, [recorded.nvm_facts(0, **change)])
            self.assert_row(self.rows(), "nvm-mode", "costs you", "namespace0.0: (raw|fsdax)",
                            "create-namespace -f -e namespace0.0 -m devdax")
        self.assert_row(self.rows(), "odp", "costs you", "cannot be registered", "devdax")
        lone = [recorded.nvm_facts(0, name=f"region{i}", interleaved_dimms=1) for i in range(6)]
        recorded.inventory(machine, rdma, lone)
        self.assert_row(self.rows(), "interleave", "costs you", "6 regions of one DIMM", "ipmctl")
        sick = recorded.nvm_facts(0, dimms=[{"name": "nmem0", "health": "critical"}])
        recorded.inventory(machine, rdma, [sick])
        self.assert_row(self.rows(), "health", "costs you", "nmem0: critical", "replace")
        recorded.inventory(machine, rdma, [recorded.nvm_facts(0, dimms=[{"name": "nmem0"}])])
        self.assert_row(self.rows(), "health", "unknown", "health unknown")

    def test_small_memlock(self):
        machine = recorded.well_set_up(self.folder)
        recorded.limits(machine, 8 << 20)
        rows = self.rows()
        self.assertEqual(self.costs(rows), ["memlock"])
        self.assert_row(rows, "memlock", "costs you", "^8388608 bytes; 687194767360 are needed",
                        "LimitMEMLOCK=infinity")
        machine.write("proc/self/status", "CapEff:\t0000000000004000")
        self.assert_row(self.rows(), "memlock", "ok", "may pin beyond")

    def test_an_rnic_that_is_set_up_wrong(self):
        machine = recorded.well_set_up(self.folder)
        nvm = [recorded.nvm_facts(0), recorded.nvm_facts(1)]
        healthy = recorded.rdma_facts("mlx5_1")
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0", port={"mtu": 1024}), healthy],
                           nvm)
        self.assert_row(self.rows(), "mtu", "costs you", "mlx5_0: 1024 of 4096",
                        "ip link set ens0f0 mtu 4200")
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0", port={"active": False}),
                                     healthy], nvm)
        self.assert_row(self.rows(), "link", "costs you", "not active", "ip link set ens0f0 up")
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0", atomics="none"), healthy], nvm)
        self.assert_row(self.rows(), "atomics", "costs you", "mlx5_0: none", "--locks cpu")
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0", native_flush=True), healthy],
                           nvm)
        self.assert_row(self.rows(), "flush", "ok", "mlx5_0: its driver reports FLUSH; mlx5_1: "
                        "its driver reports none; not used")
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0"), healthy], nvm)
        recorded.rdma_port(machine, "mlx5_0", "ens0f0", gid_type="IB/RoCE v1")
        self.assert_row(self.rows(), "gid", "costs you", "RoCE v1", "ip addr add .* dev ens0f0; "
                        "if mlx5_0 .*rdma_cm/mlx5_0/ports/1/default_roce_mode")
        machine.write("sys/class/infiniband/mlx5_0/ports/1/gids/0", "0000:" * 7 + "0000")
        self.assert_row(self.rows(), "gid", "costs you", "mlx5_0: none", "ip addr add")
        machine.write(f"{machine.paths['0000:17:00.0']}/current_link_width", "8")
        self.assert_row(self.rows(), "link", "costs you", "PCIe x8.*of x16", "slot")
        machine.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
        self.assert_row(self.rows(), "hugepages", "costs you", "madvise", "echo always")

    def test_a_cpu_without_clwb(self):
        machine = recorded.well_set_up(self.folder)
        path = os.path.join(self.folder, "proc/cpuinfo")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        machine.write("proc/cpuinfo", text.replace(" clwb", ""))
        self.assert_row(self.rows(), "h4", "costs you", "ntstore; no clwb", "clwb")

    def test_a_pool_and_a_server_are_examined(self):
        recorded.well_set_up(self.folder)
        pool = os.path.join(self.folder, "pool")
        made = self.pmstore("pool", "create", pool, "--size", "32M")
        self.assertEqual(made.returncode, 0, made.stderr)
        rows = self.rows("--pool", pool)
        self.assert_row(rows, "h5", "ok", "0 not aligned")
        self.assert_row(rows, "h9", "costs you", "domain none", "device DAX")
        self.assert_row(self.rows("--pool", "/nowhere/pool"), "h5", "unknown", "/nowhere/pool",
                        "ls -l")
        with open(pool, "rb") as file:
            before = file.read()
        self.rows("--pool", pool)
        with open(pool, "rb") as file:
            self.assertEqual(file.read(), before)

    def test_a_server_is_reached_as_a_client_would(self):
        recorded.well_set_up(self.folder)
        pool = os.path.join(self.folder, "pool")
        self.pmstore("pool", "create", pool, "--size", "32M")
        server = subprocess.Popen([os.path.join(self.BIN, "pmstored"), "--pool", pool, "--listen",
                                   "tcp://127.0.0.1:0"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        uri = ""
        while not uri:
            line = server.stdout.readline()
            self.assertTrue(line, "pmstored has ended")
            uri = next((word for word in line.split() if word.startswith("tcp://")), "")
        # With a table and without one; no record is made by it.
        tried = ("domain none.*locks cpu, redo two_sided; tried: memory registered, a commit of "
                 "nothing, (READs of records, lock words and index|no READ .*); not tried: "
                 "changing a record")
        self.assert_row(self.rows("--uri", uri), "uri", "ok", tried)
        self.pmstore("kv", "put", "--uri", uri, "name", "value")
        self.assert_row(self.rows("--uri", uri), "uri", "ok", tried)
        records = self.pmstore("kv", "scan", "--uri", uri).stdout.split()
        self.assertEqual(records, [b"name", b"value"])
        self.assert_row(self.rows("--pool", pool), "h5", "unknown", "pool",
                        "stop the program that uses it")
        self.assert_row(self.rows("--uri", "tcp://127.0.0.1:1", "--timeout", "1"), "uri",
                        "costs you", "127.0.0.1", "pmstored")
        wrong = self.pmstore("doctor", "--uri", "local:" + pool)
        self.assertEqual(wrong.returncode, 2, wrong)
        self.assertIn(b"--pool", wrong.stderr)

    def test_this_machine_whatever_it_is(self):
        rows = self.rows(here=True)
        if not os.path.isdir("/sys/class/infiniband"):
            self.assert_row(rows, "rnic", "costs you", "no RDMA device")
        if not os.path.isdir("/sys/bus/nd/devices"):
            self.assert_row(rows, "nvm", "costs you", "no region")

    def test_what_is_no_machine_is_one_line(self):
        for content, pattern in ((None, "no recorded machine"), ("{", "inventory.json"),
                                 ('{"rdma": [{}], "nvm": []}', "inventory.json")):
            if content is not None:
                os.makedirs(os.path.join(self.folder, "sys"), exist_ok=True)
                with open(os.path.join(self.folder, "inventory.json"), "w",
                          encoding="utf-8") as file:
                    file.write(content)
            done = self.pmstore("doctor", "--machine", self.folder)
            self.assertEqual((done.returncode, done.stderr.count(b"\n")), (1, 1), done)
            self.assertRegex(done.stderr.decode(), pattern)


if __name__ == "__main__":
    doctor_command.DoctorCommand.BIN = sys.argv.pop()
    unittest.main()
