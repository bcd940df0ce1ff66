#!/usr/bin/env python3
"""usage: doctor_test.py BIN: pmstore doctor on recorded machines, and on this one."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "machines"))
import recorded_machine as recorded  # noqa: E402

BIN = ""
ALL = ["rnic", "link", "mtu", "gid", "atomics", "odp", "flush", "memlock", "hugepages", "nvm",
       "nvm-mode", "nvm-alignment", "domain", "interleave", "health", "h1", "h2", "h3", "h4", "h5",
       "h8", "h9"]


class Doctor(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-doctor.")
        self.addCleanup(shutil.rmtree, self.folder)

    def pmstore(self, *arguments):
        return subprocess.run([os.path.join(BIN, "pmstore"), *arguments], capture_output=True,
                              timeout=60, check=False)

    def rows(self, *arguments, here=False):
        place = [] if here else ["--machine", self.folder]
        done = self.pmstore("doctor", "--json", *place, *arguments)
        report = json.loads(done.stdout)
        rows = {row["id"]: row for row in report["rows"]}
        costs = [row for row in report["rows"] if row["verdict"] == "costs you"]
        self.assertEqual(done.returncode, 1 if costs else 0, done.stderr)
        self.assertEqual(done.stderr.count(b"\n"), 1 if costs else 0)
        self.assertEqual([row for row in ALL if row in rows], ALL)
        for row in report["rows"]:
            self.assertTrue(row["seen"], row)
            if row["verdict"] != "ok":
                self.assertTrue(row["why"] and row["fix"], row)
            else:
                self.assertEqual(row["fix"], "", row)
        return rows

    def costs(self, rows):
        return sorted(name for name, row in rows.items() if row["verdict"] == "costs you")

    def assert_row(self, rows, name, verdict, seen=".", fix=""):
        row = rows[name]
        self.assertEqual(row["verdict"], verdict, row)
        self.assertRegex(row["seen"], seen)
        self.assertRegex(row["fix"], fix or ".*")

    def test_on_a_machine_that_is_well_set_up_nothing_costs(self):
        recorded.well_set_up(self.folder)
        rows = self.rows()
        self.assertEqual(self.costs(rows), [])
        self.assert_row(rows, "h3", "ok", "mlx5_0: off; mlx5_1: off")
        self.assert_row(rows, "h9", "ok", "auto chooses doorbell: domain adr, .* in memory; with "
                        "pmstored --ddio off")
        self.assert_row(rows, "h1", "ok", "cores 0-3 on node 0; cores 4-7 on node 1")
        self.assert_row(rows, "domain", "ok", "region0: adr")
        self.assert_row(rows, "h5", "unknown", "no pool named", "--pool")
        table = self.pmstore("doctor", "--machine", self.folder)
        self.assertEqual((table.returncode, table.stderr), (0, b""))

    def test_ddio_on(self):
        machine = recorded.well_set_up(self.folder)
        subprocess.run([os.path.join(BIN, "pmstore"), "ddio", "on", "--apply", "--rnic", "mlx5_1",
                        "--machine", self.folder], check=True, capture_output=True)
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

    def test_eadr_needs_no_ddio_off_for_one_sided_writes(self):
        machine = recorded.well_set_up(self.folder, recorded.ICE_LAKE)
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0"), recorded.rdma_facts("mlx5_1")],
                           [recorded.nvm_facts(0, domain="eadr"),
                            recorded.nvm_facts(1, domain="eadr")])
        rows = self.rows()
        self.assert_row(rows, "domain", "ok", "region0: eadr")
        self.assert_row(rows, "h9", "ok", "auto chooses doorbell")
        self.assert_row(rows, "h3", "unknown", "Ice Lake-SP.*firmware")

    def test_the_wrong_socket(self):
        machine = recorded.well_set_up(self.folder)
        shutil.rmtree(os.path.join(self.folder, "sys/class/infiniband/mlx5_1"))
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0")], [recorded.nvm_facts(1)])
        rows = self.rows()
        self.assertEqual(self.costs(rows), ["h1"])
        self.assert_row(rows, "h1", "costs you", "mlx5_0 on node 0; region1 on node 1; no RNIC on "
                        "node 1, distance 21", "socket 1.*numactl -N 0")
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0")], [recorded.nvm_facts(0)])
        self.assert_row(self.rows(), "h1", "ok")
        machine.write("sys/devices/system/node/node0/cpulist", "")
        self.assert_row(self.rows(), "h1", "costs you", "node 0 has no cores", "numactl")

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
        recorded.inventory(machine, [recorded.rdma_facts("mlx5_0"), healthy], nvm)
        recorded.rdma_port(machine, "mlx5_0", "ens0f0", gid_type="IB/RoCE v1")
        self.assert_row(self.rows(), "gid", "costs you", "RoCE v1", "cma_roce_mode")
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
        server = subprocess.Popen([os.path.join(BIN, "pmstored"), "--pool", pool, "--listen",
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
        self.assert_row(self.rows("--uri", uri), "uri", "ok", "records read not tried")
        self.pmstore("kv", "put", "--uri", uri, "name", "value")
        self.assert_row(self.rows("--uri", uri), "uri", "ok",
                        "domain none.*locks cpu.*records read by (RPC|a READ)")
        self.assert_row(self.rows("--pool", pool), "h5", "unknown", "pool", "stop who uses it")
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
    BIN = sys.argv.pop()
    unittest.main()
