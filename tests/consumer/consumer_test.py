#!/usr/bin/env python3
"""usage: consumer_test.py SOURCE BUILD CXX CC: what is installed is enough for other projects."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = BUILD = CXX = CC = ""
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program")


def run(*command, **options):
    done = subprocess.run(command, timeout=600, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


class Consumer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="pmstore-consumer.")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        # Installed, and then moved: nothing in it says where it was.
        first, cls.prefix = (os.path.join(cls.folder, name) for name in ("first", "prefix"))
        run("cmake", "--install", BUILD, "--prefix", first)
        os.rename(first, cls.prefix)
        found = [path for path, _, files in os.walk(cls.prefix) if "pmstore.pc" in files]
        cls.library_folder = os.path.dirname(found[0])

    def setUp(self):
        self.work = tempfile.mkdtemp(dir=self.folder)
        self.uri = "local:" + os.path.join(self.work, "pool")

    def pmstore(self, *arguments):
        return run(os.path.join(self.prefix, "bin", "pmstore"), *arguments)

    def kv(self, verb, *arguments):
        return self.pmstore("kv", verb, "--uri", self.uri, *arguments)

    def make_pool(self):
        self.pmstore("pool", "create", self.uri.removeprefix("local:"), "--size", "64M")

    def pkg_config(self, *arguments):
        environment = {**os.environ,
                       "PKG_CONFIG_PATH": os.path.join(self.library_folder, "pkgconfig")}
        return run("pkg-config", *arguments, env=environment).split()

    def expect_a_transfer_by(self, program):
        self.make_pool()
        self.kv("put", "alice", "100")
        self.kv("put", "bob", "0")
        run(program, self.uri)
        self.assertEqual((self.kv("get", "alice"), self.kv("get", "bob")), ("90\n", "10\n"))

    def expect_a_file_by(self, program):
        pool = os.path.join(self.work, "files")
        self.pmstore("pool", "create", pool, "--size", "64M", "--file-bytes", "16M")
        run(program, "local:" + pool, "/file", "hello")
        self.assertEqual(self.pmstore("fs", "cat", "--uri", "local:" + pool, "/file"),
                         "hello\nhello\n")

    def configure(self, source, *options, **environment):
        build = os.path.join(self.work, "build")
        run("cmake", "-S", source, "-B", build, "-D", f"CMAKE_CXX_COMPILER={CXX}", *options,
            env={**os.environ, **environment})
        return build

    def test_the_helper_of_mount_finds_the_installed_program(self):
        link = os.path.join(self.work, "mount.pmstore")
        os.symlink(os.path.join(self.prefix, "sbin", "mount.pmstore"), link)
        done = subprocess.run([link, "local:/none", os.path.join(self.work, "none")], text=True,
                              env={"PATH": "/usr/bin:/bin"}, timeout=600, capture_output=True,
                              check=False)
        self.assertEqual(done.returncode, 1, done)
        self.assertRegex(done.stderr, "^pmstore: fs mount '.*/none': No such file or directory\n$")

    def test_a_project_finds_the_package(self):
        build = self.configure(PROGRAM, "-D", f"CMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", build)
        self.expect_a_transfer_by(os.path.join(build, "transfer"))
        self.expect_a_file_by(os.path.join(build, "file"))

    def test_a_program_is_built_by_pkg_config(self):
        program = os.path.join(self.work, "transfer")
        run(CXX, "-std=c++20", "-Wall", "-Wextra", "-Werror", os.path.join(PROGRAM, "transfer.cc"),
            "-o", program, *self.pkg_config("--cflags", "--libs", "pmstore"))
        self.expect_a_transfer_by(program)

    def test_a_program_of_files_is_built_by_pkg_config(self):
        program = os.path.join(self.work, "file")
        run(CXX, "-std=c++20", "-Wall", "-Wextra", "-Werror", os.path.join(PROGRAM, "file.cc"),
            "-o", program, *self.pkg_config("--cflags", "--libs", "pmstore"))
        self.expect_a_file_by(program)

    def test_a_program_in_c_is_built_by_pkg_config(self):
        program = os.path.join(self.work, "append")
        run(CC, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
            os.path.join(PROGRAM, "append.c"), "-o", program,
            *self.pkg_config("--cflags", "--libs", "pmstore_c"))
        self.make_pool()
        self.pmstore("log", "create", "--uri", self.uri, "events", "--bytes", "1M")
        run(program, self.uri, "events", "hello",
            env={**os.environ, "LD_LIBRARY_PATH": self.library_folder})
        self.assertEqual(self.pmstore("log", "read", "--uri", self.uri, "events"), "hello\n")

    def test_the_shared_library_exports_its_interface_and_nothing_else(self):
        listed = run("nm", "-D", "--defined-only", "--format=just-symbols",
                     os.path.join(self.library_folder, "libpmstore_c.so"))
        header = read(SOURCE, "bindings", "pmstore_log.h")
        declared = re.findall(r"^(?:pmstore_log_code|void) (pmstore_log_\w+)\(", header, re.M)
        self.assertGreater(len(declared), 10)
        self.assertEqual(sorted(listed.split()), sorted(declared))

    def test_static_libraries_fit_into_a_shared_one_and_export_nothing_there(self):
        library = os.path.join(self.work, "all.so")
        flags = self.pkg_config("--libs", "pmstore")
        ours = [flag for flag in flags if flag.startswith("-lpmstore")]
        run(CXX, "-shared", "-o", library, "-Wl,--whole-archive", f"-L{self.library_folder}", *ours,
            "-Wl,--no-whole-archive", *flags)
        # What templates of the standard library became is the standard library's to say.
        listed = run("nm", "-DC", "--defined-only", "--format=just-symbols", library)
        self.assertEqual(re.findall(r"^(?:.* for )?pmstore::.*", listed, re.M), [])

    def test_an_installed_header_includes_only_what_is_installed(self):
        root, headers = os.path.join(self.prefix, "include", "pmstore"), []
        for path, _, files in os.walk(root):
            headers += [os.path.relpath(os.path.join(path, name), root) for name in files]
        self.assertIn("pmstore/client.h", headers)
        self.assertIn("fs/file_system.h", headers)
        self.assertEqual([name for name in headers if "internal/" in name], [])
        for header in headers:
            for included in re.findall(r'^#include "([^"]+)"', read(root, header), re.M):
                self.assertIn(included, headers, header)

    def test_a_package_of_another_version_is_not_taken(self):
        source = os.path.join(self.work, "source")
        shutil.copytree(PROGRAM, source)
        lists = os.path.join(source, "CMakeLists.txt")
        wanted = read(lists).replace("pmstore 0.1 ", "pmstore 0.2 ")
        with open(lists, "w", encoding="utf-8") as file:
            file.write(wanted)
        with self.assertRaisesRegex(AssertionError, r"requested\s+version \"0\.2\""):
            self.configure(source, "-D", f"CMAKE_PREFIX_PATH={self.prefix}")

    def test_a_missing_dependency_is_named(self):
        with self.assertRaisesRegex(AssertionError, r"pmstore needs libisal"):
            self.configure(PROGRAM, "-D", f"CMAKE_PREFIX_PATH={self.prefix}",
                           PKG_CONFIG_LIBDIR=self.work)

    def test_the_project_is_part_of_another_one(self):
        source = os.path.join(self.work, "source")
        os.mkdir(source)
        shutil.copy(os.path.join(PROGRAM, "transfer.cc"), source)
        with open(os.path.join(source, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write("cmake_minimum_required(VERSION 3.25)\n"
                       "project(outer LANGUAGES C CXX)\n"
                       f"add_subdirectory({SOURCE} pmstore)\n"
                       "add_executable(transfer transfer.cc)\n"
                       "target_link_libraries(transfer PRIVATE pmstore::pmstore)\n"
                       'install(FILES transfer.cc DESTINATION share)\n')
        build = self.configure(source, "-G", "Ninja", "-D", "CMAKE_EXPORT_COMPILE_COMMANDS=ON")
        run("ninja", "-C", build, "pmstore_base")
        # Its programs, tests and installation are not the other project's, nor are its options.
        targets = run("ninja", "-C", build, "-t", "targets", "all")
        self.assertNotRegex(targets, r"pmstored|_test\b|link_base|sanitized_tests")
        self.assertFalse(os.path.exists(os.path.join(build, "bin")))
        commands = read(build, "compile_commands.json")
        self.assertNotIn("-Werror", commands)
        outer = [line for line in commands.splitlines()
                 if '"command"' in line and "transfer.cc" in line]
        self.assertEqual(len(outer), 1)
        self.assertNotRegex(outer[0], r" -W| -f")
        run("cmake", "--install", build, "--prefix", os.path.join(self.work, "prefix"))
        self.assertEqual(os.listdir(os.path.join(self.work, "prefix")), ["share"])

    def test_the_readme_shows_the_program_that_is_built_here(self):
        readme = read(SOURCE, "README.md")
        for name in ("transfer.cc", "CMakeLists.txt"):
            # Without the lines of the other program, which docs/install.md names.
            quoted = "".join("    " + line if line.strip() else line
                             for line in read(PROGRAM, name).splitlines(keepends=True)
                             if not re.search(r"\((file|pmstore_fs) ", line))
            self.assertIn(quoted, readme)


if __name__ == "__main__":
    SOURCE, BUILD, CXX, CC = sys.argv[1:5]
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
