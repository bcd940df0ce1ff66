#!/usr/bin/env python3
"""usage: doctor_rows_test.py BIN: what rows of pmstore doctor say, and whether it helps."""

import os
import shutil
import sys
import unittest

import doctor_command
import recorded_machine as recorded

RDMA = [recorded.rdma_facts("mlx5_0"), recorded.rdma_facts("mlx5_1")]


class DoctorRows(doctor_command.DoctorCommand):
    def setUp(self):
        super().setUp()
        self.machine = recorded.well_set_up(self.folder)

    def test_every_thing_that_is_wrong_has_its_remedy(self):
        nvm = []
        for node in (0, 1):
            nvm.append(recorded.nvm_facts(node))
            nvm[node]["namespaces"] = [{"name": f"namespace{node}.0", "mode": "fsdax",
                                        "device": f"/dev/pmem{node}", "bytes": 1 << 39,
                                        "alignment": 4096}]
            recorded.rdma_port(self.machine, f"mlx5_{node}", f"ens{node}f0",
                               gid_type="IB/RoCE v1")
        down = [recorded.rdma_facts(f"mlx5_{node}", port={"active": False, "mtu": 1024})
                for node in (0, 1)]
        recorded.inventory(self.machine, down, nvm)
        rows = self.rows()
        for name in ("nvm-mode", "nvm-alignment", "odp"):
            self.assert_row(rows, name, "costs you", fix="-e namespace0.0 .*-e namespace1.0 ")
        for name, fix in (("link", "set ens0f0 up.*set ens1f0 up"), ("mtu", "ens0f0.*ens1f0"),
                          ("gid", "dev ens0f0.*dev ens1f0")):
            self.assert_row(rows, name, "costs you", fix=fix)

    def test_an_infiniband_port_that_is_down_needs_a_subnet_manager(self):
        down = recorded.rdma_facts("mlx5_0", port={"active": False, "ethernet": False})
        recorded.inventory(self.machine, [down], [recorded.nvm_facts(0)])
        row = self.rows()["link"]
        self.assert_row({"link": row}, "link", "costs you", "not active", "opensm.*mlx5_0/1")
        self.assertNotIn("ip link", row["fix"])

    def test_a_pcie_link_that_does_not_say_is_unknown(self):
        place = self.machine.paths["0000:17:00.0"]
        self.machine.write(f"{place}/current_link_width", "0")
        self.machine.write(f"{place}/current_link_speed", "Unknown")
        rows = self.rows()
        self.assert_row(rows, "link", "unknown", "mlx5_0: its PCIe link is not known", "LnkSta")
        self.assertNotIn("x0", rows["link"]["seen"])
        self.assertIn("100 Gb/sec (4X EDR) (not judged)", rows["link"]["seen"])

    def test_remedies_name_what_is_known(self):
        pool = os.path.join(self.folder, "no pool")
        with open(pool, "wb") as file:
            file.write(bytes(1 << 20))
        self.assert_row(self.rows("--pool", pool), "h5", "unknown", fix=f"pool check {pool}$")
        self.assert_row(self.rows("--pool", pool + "2"), "h5", "unknown", fix=f"ls -l {pool}2,")
        uri = "tcp://127.0.0.1:1"
        self.assert_row(self.rows("--uri", uri, "--timeout", "1"), "uri", "costs you",
                        fix=f"--pool PATH --listen {uri}")
        # A port without any GID still has a network device.
        gids = os.path.join(self.folder, "sys/class/infiniband/mlx5_0/ports/1")
        shutil.rmtree(gids)
        self.assert_row(self.rows(), "gid", "costs you", "mlx5_0: none", "dev ens0f0$")

    def test_what_is_not_known_is_not_ok(self):
        recorded.inventory(self.machine, RDMA, [recorded.nvm_facts(0, dimms=[]),
                                                recorded.nvm_facts(1)])
        rows = self.rows()
        self.assert_row(rows, "health", "unknown", "region0: which DIMMs", "ndctl list -DH")
        path = os.path.join(self.folder, "proc/cpuinfo")
        with open(path, encoding="utf-8") as file:
            lines = [line for line in file if not line.startswith("flags")]
        self.machine.write("proc/cpuinfo", "".join(lines))
        self.assert_row(self.rows(), "h4", "unknown", "no flags", "lscpu")

    def test_mappings_that_were_not_read(self):
        # Root is not told to be root; of a process that is gone nothing is missing.
        os.makedirs(os.path.join(self.folder, "proc/300/maps"))
        fix = "^fuser -v /dev/dax0.0 /dev/dax1.0" if os.geteuid() == 0 else "root"
        self.assert_row(self.rows(), "h2", "unknown", "not seen", fix)
        shutil.rmtree(os.path.join(self.folder, "proc/300"))
        os.symlink("gone", os.path.join(self.folder, "proc/300"))
        self.assert_row(self.rows(), "h2", "ok")
        line = "7f00-7f80 rw-p 00000000 00:00 0 [heap]\n"
        self.machine.write("proc/301/maps", line * ((1 << 20) // len(line) + 1))
        self.assert_row(self.rows(), "h2", "unknown", "more mappings than were read", "fuser -v")

    def test_a_pool_is_found_on_its_region_by_any_name(self):
        # The RNIC is on node 0; what is on region1 is far from it.
        shutil.rmtree(os.path.join(self.folder, "sys/class/infiniband/mlx5_1"))
        pool, link = os.path.join(self.folder, "pool"), os.path.join(self.folder, "link")
        made = self.pmstore("pool", "create", pool, "--size", "32M")
        self.assertEqual(made.returncode, 0, made.stderr)
        os.symlink(pool, link)

        def seen(device, mode, path):
            near = recorded.nvm_facts(0)
            near["namespaces"][0].update(device=device, mode=mode)
            recorded.inventory(self.machine, RDMA[:1], [near, recorded.nvm_facts(1)])
            return self.rows("--pool", path)
        real = os.path.realpath(pool)
        for path in (pool, link):
            self.assert_row(seen(real, "devdax", path), "h1", "ok", "region0 on node 0")
        # A file on the file system of /dev/pmem0, or on a partition of it.
        self.assert_row(seen("/dev/pmem0", "fsdax", pool), "h1", "costs you", "region1")
        number = os.stat(pool).st_dev
        disk = f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
        for device in ("pmem0", "pmem0/pmem0p1"):
            target = f"sys/devices/ndbus0/region0/namespace0.0/block/{device}"
            self.machine.write(f"{target}/size", "1")
            if os.path.islink(os.path.join(self.folder, disk)):
                os.remove(os.path.join(self.folder, disk))
            self.machine.link(disk, target)
            self.assert_row(seen("/dev/pmem0", "fsdax", pool), "h1", "ok", "region0 on node 0")
        self.assert_row(seen("/dev/pmem00", "fsdax", pool), "h1", "costs you", "region1")


if __name__ == "__main__":
    doctor_command.DoctorCommand.BIN = sys.argv.pop()
    unittest.main()
