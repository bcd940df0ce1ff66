#!/usr/bin/env python3
"""Canaries: plants one breach at a time in a small tree and expects the checks to find it.

usage: canaries.py
"""

import os
import subprocess
import tempfile
import unittest

import arrows
import awaitables
import documents
import draws
import sentences
import source_tree
import tidy

HERE = os.path.dirname(os.path.abspath(__file__))

CLEAN = {
    "base/clock.h": "#pragma once\n#include <time.h>\n// clock_gettime, _mm_sfence, std::thread\n",
    "base/clock.cc": '#include "base/clock.h"\nint now() { clock_gettime(); return 0; }\n',
    "fabric/device.h": '#pragma once\n#include <infiniband/verbs.h>\n#include "base/clock.h"\n',
    "base/internal/sum.h": "#pragma once\n#include <immintrin.h>\n",
    "persist/internal/flush.h": "#pragma once\n#include <immintrin.h>\n",
    "persist/memory.cc": '#include <libpmem2.h>\n#include "persist/internal/flush.h"\n',
    "log/ring.cc": '#include "fabric/device.h"\nvoid f() { e.sleep_for(1); g("sleep(1)"); }\n',
    "pmstore/server/server.cc": '#include "log/ring.h"\nuint64_t time(int);\n'
        'const char c = \'"\';\n',
    "pmstore/server/state.h": "#pragma once\nnamespace a { base::Task<void> private_call(); }\n",
    "pmstore/client/embedded.cc": '#include "pmstore/server/state.h"\n',
    "log/ring.h": "#pragma once\n",
    "tools/main.cc": '#include "pmstore/types.h"\n#include <thread>\nstd::thread t;\n',
    "pmstore/types.h": "#pragma once\n",
    "tests/unit/x_test.cc": '#include "persist/internal/flush.h"\n#include "tools/cli.h"\n',
    "tools/cli.h": "#pragma once\n",
    "base/result.h": "#pragma once\nenum class ErrorCode {\n  kFull,  // no room\n};\n",
    "docs/operating.md": "| code | means |\n|---|---|\n| Full | no room |\n",
    "docs/README.md": "[operating](operating.md) "
        "[log](log.md) and `log/ring.cc`, `base/*.h`, `build/bin/x`, `a/b`\n",
    "tests/CMakeLists.txt": "# tests/drawn\nadd_test(NAME a.b\n  COMMAND ${S}/tests/drawn "
        "$<TARGET_FILE:b_test> --share {8}/8 --seed {13})\n",
    "tools/check": "  stage cut 5 beside - \\\n    tests/drawn tests/cut --domain {a|b}\n"
        "  shares=([store_scenarios]=3)\n",
    "tests/campaign_steps": "# one\nb every build/tests/b_test\ncuts every tests/cut && "
        "tests/guest/store_scenarios\nshare every build/tests/c_test --share 0/2\n",
    "tests/cut": "#!/bin/bash\n",
    "docs/log.md": "back to the [index](README.md#top)\n",
}

READER = """#pragma once
class Reader {
 public:
  %s
 private:
  base::Task<int> find();
};
"""
CANCELLED = """const ReaderWorld::Case kCases[] = {
    {"%s",
     [](ReaderWorld& world) {}},
};
"""
CLEAN["log/reader.h"] = READER % "base::Task<Result<int>> next();"
CLEAN["log/internal/task.h"] = "#pragma once\nbase::Task<void> secret();\n"
CLEAN["tests/unit/cancellation/r_test.cc"] = CANCELLED % "Reader::next"

DRAWN = "add_test(NAME x.y COMMAND ${S}/tests/drawn %s)\n"

# File, its text, and what the finding must say.
BREACHES = [
    (arrows, "base/up.cc", '#include "fabric/device.h"\n', "base/ may not depend on fabric/"),
    (arrows, "fabric/up.cc", '#include "persist/p.h"\n', None),  # also: there is no such file
    (arrows, "log/up.cc", '#include "pmstore/types.h"\n', "log/ may not depend on pmstore/"),
    (arrows, "pmstore/up.cc", '  #  include "tools/cli.h"\n', "may not depend on tools/"),
    (arrows, "tools/up.cc", '#include "tests/unit/x_test.cc"\n', "nobody includes from tests/"),
    (arrows, "log/private.cc", '#include "persist/internal/flush.h"\n', "is private to persist/"),
    (arrows, "pmstore/shard/up.cc", '#include "pmstore/server/state.h"\n',
     "pmstore/shard/ may not depend on pmstore/server/"),
    (arrows, "tools/room.cc", '#include "pmstore/server/state.h"\n', "is private to pmstore/"),
    (arrows, "base/short.cc", '#include "clock.h"\n', "not named from the repository root"),
    (arrows, "base/dots.cc", '#include "../log/ring.h"\n', "not named from the repository root"),
    (arrows, "base/none.cc", '#include "base/none.h"\n', "not a file of the repository"),
    (arrows, "stray/a.cc", "int a;\n", "not a folder of the architecture"),
    (arrows, "base/bare.h", "int a;\n", "without #pragma once"),
    (arrows, "log/ring.h", '#pragma once\n#include "log/ring.h"\n', "include cycle"),
    (arrows, "base/mm.cc", "void f() { _mm_sfence(); }\n", "_mm_sfence"),
    (arrows, "persist/mm.cc", "#include <immintrin.h>\n", "immintrin.h"),
    (arrows, "log/ia.cc", "void f() { __builtin_ia32_clwb(0); }\n", "__builtin_ia32_clwb"),
    (arrows, "pmstore/as.cc", 'void f() { asm volatile(""); }\n', "asm"),
    (arrows, "log/pm.cc", "void f() { pmem_persist(p, 8); }\n", "through persist/"),
    (arrows, "pmstore/pm.cc", "void f() { pmemobj_alloc (p); }\n", "through persist/"),
    (arrows, "tools/pm.cc", "#include <libpmemobj.h>\n", "through persist/"),
    (arrows, "tools/nd.cc", "#include <ndctl/libndctl.h>\n", "found in persist/"),
    (arrows, "log/ibv.cc", "#include <infiniband/verbs.h>\n", "through fabric/"),
    (arrows, "pmstore/th.cc", "std::thread t;\n", "std::thread"),
    (arrows, "log/th.cc", "#include <mutex>\n", "<mutex>"),
    (arrows, "log/sl.cc", "void f() { std::this_thread::sleep_for(x); }\n", "std::this_thread"),
    (arrows, "log/sl.cc", "void f() { sleep(1); }\n", "a coroutine on the executor"),
    (arrows, "pmstore/ck.cc", "void f() { clock_gettime(0, &t); }\n", "the executor's clock"),
    (arrows, "pmstore/ck.cc", "auto t = std::chrono::system_clock::now();\n", "system_clock"),
    (arrows, "pmstore/ck.cc", "auto t = time(nullptr);\n", "the executor's clock"),
    (arrows, "log/rd.cc", "std::random_device d;\n", "seeded source"),
    (tidy, "base/wide.cc", "// " + "x" * 98 + "\n", "columns 101"),
    (tidy, "tools/wide", "#!/bin/sh\n# " + "x" * 99 + "\n", "columns 101"),
    (tidy, "base/long.cc", "int a;\n" * 501, "lines 501"),
    (tidy, "base/fn.cc", "namespace a {\nint f() const {\n" + "\n" * 70 + "}\n}\n", "f() 72"),
    (tidy, "base/ctor.cc", "A::A(int b)\n : b_{b}, c_(b) {\n" + "\n" * 70 + "}\n", "A::A() 72"),
    (tidy, "base/in.cc", "struct S {\n int f() {\n" + "\n" * 70 + "}\n};\n", "f() 72"),
    (tidy, "base/tm.cc", "template <class T>\nT f(T t) {\n" + "\n" * 70 + "}\n", "f() 72"),
    (tidy, tidy.RATCHET, "base/clock.h columns 120\n", "no longer over the limit"),
    (awaitables, "persist/free.h", "#pragma once\nbase::Task<void> flush();\n", "destroys flush"),
    (awaitables, "pmstore/in.h", "#pragma once\nstruct A {\n struct B {\n  virtual"
     " base::Task<C<int>>\n      room() = 0;\n };\n};\n", "destroys A::B::room"),
    (awaitables, "log/awaiter.h", "#pragma once\nclass W {\n public:\n"
     "  fabric::WaitAwaiter wait() {\n    return {};\n  }\n};\n", "destroys W::wait"),
    (awaitables, "log/template.h", "#pragma once\ntemplate <typename T>\n"
     "base::Task<T> again(T t) {\n  return t;\n}\n", "destroys again"),
    (awaitables, "log/reader.h", READER % "Task<int> next();\n  Task<int> next(int);",
     "next is declared 2 times, 1 cancellation tests"),
    (awaitables, "tests/unit/cancellation/more_test.cc", CANCELLED % "Reader::gone, slowly",
     "there is no awaitable Reader::gone"),
    (documents, "docs/log.md", "see `log/none.cc`\n", "there is no log/none.cc"),
    (documents, "docs/log.md", "run:\n\n    tools/none --help\n", "there is no tools/none"),
    (documents, "README.md", "see `tests/*/none*`\n", "there is no tests/*/none*"),
    (documents, "docs/log.md", "[here](none.md)\n", "none.md leads nowhere"),
    (documents, "docs/new.md", "new\n", "does not name new.md"),
    (documents, "docs/log.md", "word " * 49 + "\n", "docs/log.md:1: a sentence of 49 words"),
    (documents, "docs/log.md", "short\n\n* a;\n" + "  word\n" * 48, "docs/log.md:3: a sentence"),
    (documents, "docs/log.md", "| a | b |\n|---|---|\n| c |" + " w" * 49 + " |\n", "log.md:3"),
    (documents, "base/result.h", "#pragma once\nenum E {\n  kFull,  // a\n  kGone,  // b\n};\n",
     "no row for the error Gone"),
    (draws, "tests/x/CMakeLists.txt", DRAWN % "$<TARGET_FILE:b_test> --share {8}/9", "8/9"),
    (draws, "tests/x/CMakeLists.txt", DRAWN % "${S}/tests/cut {8} {13} {2}", "of 8 and of 2"),
    (draws, "tests/x/CMakeLists.txt", DRAWN % "${S}/tests/cut --all", "draws nothing"),
    (draws, "tests/x/CMakeLists.txt", DRAWN % "$<TARGET_FILE:c_test> {3}", "x.y whole: c_test"),
    (draws, "tests/x/CMakeLists.txt", "set(a ${S}/tests/drawn)\n", "not said in one add_test"),
    (draws, "tools/check", "  shares=([cut]=3 [log_scenarios]=2)\n", "log_scenarios whole"),
    (documents, "base/doc.h", "#pragma once\n// docs/none.md\n", "there is no docs/none.md"),
]


def plant(root, tree):
    for path, text in tree.items():
        os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)


class Canaries(unittest.TestCase):

    def test_a_clean_tree_has_no_findings(self):
        with tempfile.TemporaryDirectory() as root:
            plant(root, CLEAN)
            for module in (arrows, awaitables, tidy, documents, draws):
                self.assertEqual(module.check(root), [], module.__name__)

    def test_every_breach_is_found_and_nothing_else(self):
        for module, path, text, says in BREACHES:
            with self.subTest(path=path, says=says), tempfile.TemporaryDirectory() as root:
                plant(root, {**CLEAN, path: text})
                findings = module.check(root)
                self.assertEqual(len(findings), 1, findings)
                self.assertIn(says or path, findings[0])
                for other in {arrows, awaitables, tidy, documents, draws} - {module}:
                    self.assertEqual(other.check(root), [], other.__name__)

    def test_a_longer_cycle_is_found_once(self):
        with tempfile.TemporaryDirectory() as root:
            plant(root, {
                f"log/{a}.h": f'#pragma once\n#include "log/{b}.h"\n' for a, b in ("ab", "bc", "ca")
            })
            self.assertEqual(arrows.check(root), [
                "include cycle: log/a.h -> log/b.h -> log/c.h -> log/a.h"])

    def test_the_ratchet_holds_and_does_not_give(self):
        for size, found in ((105, []), (120, []), (121, ["has grown from 120"])):
            with tempfile.TemporaryDirectory() as root:
                plant(root, {tidy.RATCHET: "# known\nbase/a.h columns 120\n",
                             "base/a.h": "/" * size + "\n"})
                findings = tidy.check(root)
                self.assertEqual(len(findings), len(found))
                for finding, says in zip(findings, found):
                    self.assertIn(says, finding)

    def test_functions_are_told_from_other_braces(self):
        code = source_tree.code_of("""
            namespace a { enum class E { kA, kB }; struct S { int x{1}; int f() { return x; } }; }
            const int table[] = {1, 2, 3};
            template <typename T> class C { C() : a_{1}, b_(2) { g({3}); } ~C() {} };
            extern "C" { int h(int a) { if (a) { return 1; } return 2; } }
            bool operator==(S a, S b) { return a.x == b.x; }
            auto l = [](int a) { return a; };
            TEST_F(A, B) { f(); }
        """)
        self.assertEqual([name for name, _, _ in tidy.functions(code)],
                         ["f", "C", "~C", "h", "operator==", "l", "A.B"])

    def test_awaitables_are_told_from_other_uses_of_tasks(self):
        code = source_tree.code_of("""
            namespace a::internal { base::Task<void> hidden(); }
            enum class E { kA, kB };
            inline Status use(base::Task<int> task) { base::Task<int> local(); return {}; }
            class C : public D { Task<int> secret(); public: base::Task<void> lease;
              explicit C(std::vector<base::Task<int>> tasks) : tasks_(std::move(tasks)) {}
              struct Inner { [[nodiscard]] Task<Result<std::map<int, B<C>>>> inside(); };
              static base::Task<Status> made(int a = {}, Task<int> b = {});
              protected: Task<int> near(); };
            auto f = [](Task<int> task) { return task; };
            base::Task<void> free(std::function<Task<int>(int)> each);
        """)
        self.assertEqual([name for name, _ in awaitables.awaitables(code)],
                         ["C::Inner::inside", "C::made", "free"])

    def test_sentences_are_told_from_other_text(self):
        text = """# Head
            One two. Three `a.b c` (four
            five.) Six: seven 1.5 - it is
            so:

                code. code

            * item; of
              two lines

                  code. code
            1. next
            | cell. more | other |
            |---|---|
            ```
            code
            ```
        """.replace("\n" + " " * 12, "\n")
        self.assertEqual([(line, len(words)) for line, words in sentences.sentences(text)],
                         [(1, 1), (2, 2), (2, 5), (3, 6), (8, 4), (12, 1), (13, 1), (13, 1),
                          (13, 1)])

    def test_stale_mutants_are_found(self):
        program = os.path.join(HERE, "../crash/mutants/make_mutants.py")
        mutants = "".join(f"mutant {name}\nfile a.cc\n< {text}\n> {text}  // MUTANT\n"
                          for name, text in (("a", "int a;"), ("b", "int b;"), ("c", "int c;")))
        for source, stale in (("int a;\nint b;\nint c;\n", []), ("int a;\nint c;\n", ["b"]),
                              ("int a;\nint b;\nint a;\n", ["a", "c"])):
            with tempfile.TemporaryDirectory() as root:
                plant(root, {"a.cc": source, "list.txt": mutants})
                done = subprocess.run([program, root, os.path.join(root, "list.txt"), "--stale"],
                                      check=False, capture_output=True, text=True)
                self.assertEqual(done.returncode, 1 if stale else 0, done)
                self.assertEqual([line.split(":")[0].split() for line in
                                  done.stdout.splitlines()], [["STALE", name] for name in stale])
                self.assertEqual(sorted(os.listdir(root)), ["a.cc", "list.txt"])

    def test_style_finds_what_is_not_formatted(self):
        with tempfile.TemporaryDirectory() as root:
            plant(root, {".clang-format": "BasedOnStyle: Google\n", "a.cc": "int  a ;\n",
                         "script": "#!/bin/bash\ncd $1\n"})
            for kind in ("cxx", "shell"):
                status = subprocess.run([os.path.join(HERE, "style.sh"), root, kind], check=False,
                                        capture_output=True).returncode
                self.assertNotEqual(status, 0, kind)
            plant(root, {"a.cc": "int a;\n", "script": "#!/bin/bash\ncd \"$1\" || exit\n"})
            for kind in ("cxx", "shell"):
                subprocess.run([os.path.join(HERE, "style.sh"), root, kind], check=True,
                               capture_output=True)


if __name__ == "__main__":
    unittest.main()
