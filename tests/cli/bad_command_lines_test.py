#!/usr/bin/env python3
"""usage: bad_command_lines_test.py BIN: the command lines of bad_command_lines.txt are refused:
each in one line, with status 1 or 2, and without harm. bad_input_test.py has what needs a state of
its own."""

import hashlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

BIN = ""
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bad_command_lines.txt")
SECONDS_EACH = 120  # a bound, not a measurement

# Names from base/result.h and of C++ itself: nothing for people.
CODE_NAMES = re.compile(
    r"\bk[A-Z][a-z]\w*|::|terminate called|what\(\)|Traceback|"
    r"\b(InvalidArgument|NotFound|AlreadyExists|Conflict|TooLarge|UnknownTable|BadPool|"
    r"VersionMismatch|Unsupported|Disconnected|CommitUnknown|OutcomeExpired|BackPressure|Io|Fenced|"
    r"Busy|Full|Timeout|Protocol|Access|Trimmed|Sealed|Damaged):")

# Every subcommand, with arguments that it would take.
COMMANDS = """
pool create {new} --size 64M
pool info {pool}
pool check {pool}
kv get key --uri {nobody}
kv put key value --uri {nobody}
kv del key --uri {nobody}
kv scan --uri {nobody}
kv outcome 0123456789abcdef0123456789abcdef-42-dd5a --uri {nobody}
kv txn --uri {nobody}
table list --uri {nobody}
table create name --uri {nobody}
table drop name --uri {nobody}
table stat name --uri {nobody}
session list --uri {nobody}
session kick 0123456789abcdef0123456789abcdef --uri {nobody}
tx list {nobody}
tx settle {nobody}
tx force abort 0123456789abcdef0123456789abcdef-42-dd5a {nobody} --lost 00c0ffee00c0ffee \
--confirm lost-for-ever
bench msync /dev/shm
log create name --uri {nobody}
log append name payload --uri {nobody}
log read name --uri {nobody}
log follow name --uri {nobody}
log trim name --below-index 1 --uri {nobody}
log seal name --uri {nobody}
log delete name --uri {nobody}
log list --uri {nobody}
log stat name --uri {nobody}
log members name --uri {nobody}
log drop-member name tcp://h:1 --uri {nobody}
log add-member name tcp://h:1 --uri {nobody}
bench kv --uri {nobody}
bench log --uri {nobody}
bench smallbank --uri {nobody}
bench micro
bench persist
ddio status
ddio off
ddio on
ddio restore
doctor
tune counters
tune advise
""".strip().splitlines()

# TOML that pmstored refuses, and what it must say.
CONFIGURATIONS = (
    ('pool = 5', "line 1: 'pool': expected a string, found a whole number"),
    ('pool = true', "line 1: 'pool': expected a string, found true or false"),
    ('pool = ["a", "b"]', "line 1: 'pool': expected a string, found a list"),
    ('pool = ""', "line 1: 'pool': the path is empty"),
    ('\nlisten = [1]', "line 2: 'listen': expected a string, or a list of strings, found a whole"),
    ('listen = 1.5', "line 1: 'listen': expected a string, or a list of strings, found a number"),
    ('listen = "7000"', "line 1: 'listen': '7000' is not a server address"),
    ('lease-ms = "abc"', "line 1: 'lease-ms': expected a whole number, found a string"),
    ('lease-ms = 1.5', "line 1: 'lease-ms': expected a whole number, found a number with a fract"),
    ('lease-ms = 1', "line 1: 'lease-ms': '1' is not a whole number from 10 to 3600000"),
    ('[lease-ms]\na = 1', "line 1: 'lease-ms': expected a whole number, found a table"),
    ('lease-ms = 2020-01-01', "line 1: 'lease-ms': expected a whole number, found a date or a"),
    ('json = "maybe"', "line 1: 'json': expected true or false, found a string"),
    ('sparse = 1', "line 1: 'sparse': expected true or false, found a whole number"),
    ('create = 1.5', "line 1: 'create': expected a size, .* found a number with a fraction"),
    ('create = "big"', "line 1: 'create': 'big' is not a size"),
    ('locks = "gpu"', "line 1: 'locks': 'gpu' is not auto, cpu or rnic"),
    ('locks = 3', "line 1: 'locks': expected a string, found a whole number"),
    ('ddio = false', "line 1: 'ddio': expected a string, found true or false"),
    ('\n\nlisen = "x"', "line 3: there is no key 'lisen'; there are pool, listen"),
    ('pool = "x', "line 1: "),
    ('pool = "x"\npool = "y"', "line 2: .*redefine"),
    ('= 3', "line 1: "),
)


def run(words, stdin=b"", **variables):
    environment = {k: v for k, v in os.environ.items() if k != "PMSTORE_URI"}
    environment.update(variables)
    return subprocess.run([os.path.join(BIN, words[0]), *words[1:]], input=stdin,
                          timeout=SECONDS_EACH, capture_output=True, env=environment, check=False)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def split(line):
    """As a shell does, with $'...' for lines."""
    return shlex.split(re.sub(r"\$'([^']*)'",
                              lambda text: "'" + text[1].replace(r"\n", "\n") + "'", line))


class BadCommandLines(unittest.TestCase):
    def setUp(self):
        folder = tempfile.mkdtemp(prefix="pmstore-lines.", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, folder)
        names = {name: os.path.join(folder, name)
                 for name in ("pool", "used", "new", "missing", "text", "empty", "folder")}
        for name in ("pool", "used"):
            self.ok(["pmstore", "pool", "create", names[name], "--size", "64M"])
        self.used = ["--uri", "local:" + names["used"]]
        self.ok(["pmstore", "kv", "put", *self.used, "a", "1"])
        self.ok(["pmstore", "log", "append", *self.used, "journal", "--create", "one"])
        os.mkdir(names["folder"])
        for name, content in (("text", b"not = [a pool\n"), ("empty", b"")):
            with open(names[name], "wb") as file:
                file.write(content)
        taken = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(taken.close)
        free = socket.create_server(("127.0.0.1", 0))
        names["taken"] = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        names["nobody"] = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        free.close()
        self.folder = folder
        self.names = names
        self.before = self.state()
        self.tried = set()

    def ok(self, words):
        done = run(words)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def state(self):
        return (sorted(os.listdir(self.folder)), digest(self.names["pool"]),
                digest(self.names["text"]), self.ok(["pmstore", "kv", "scan", *self.used]),
                self.ok(["pmstore", "log", "read", *self.used, "journal"]))

    def refused(self, words, status, pattern):
        self.tried.add(tuple(words))
        with self.subTest(command=" ".join(words)):
            done = run(words)
            text = done.stderr.decode()
            self.assertEqual((done.returncode, done.stdout), (status, b""), text)
            self.assertRegex(text, rf"\A{words[0]}: [^\n]+\n\Z")
            self.assertRegex(text, pattern)
            self.assertNotRegex(text, CODE_NAMES)

    def filled(self, text):
        return text.format(**self.names)

    def pattern(self, text):
        return text.format(**{name: re.escape(value) for name, value in self.names.items()})

    def assert_unharmed(self, lines):
        self.assertGreaterEqual(len(self.tried), lines)
        self.assertEqual(self.state(), self.before)
        self.ok(["pmstore", "pool", "check", self.names["used"]])

    def test_the_table(self):
        with open(TABLE, encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if not line.startswith("#")]
        for line in lines:
            status, rest = line.split(" | ", 1)
            pattern, command = rest.rsplit(" | ", 1)
            self.refused(split(self.filled(command)), int(status), self.pattern(pattern))
        self.assert_unharmed(200)

    def test_every_command_refuses_what_it_does_not_take(self):
        for line in COMMANDS:
            words = ["pmstore", *split(self.filled(line))]
            whole = " ".join(words[:2 if words[1] == "doctor" else 3])
            self.refused([*words, "--nonsense"], 2,
                         f"no option '--nonsense'.*; see {whole} --help\n")
            self.refused([*words, "--json", "--json"], 2, "--json is given twice; ")
            self.refused([*words, "--json=yes"], 2, "--json takes no value; ")
        self.assert_unharmed(3 * len(COMMANDS))

    def test_configurations(self):
        path = os.path.join(self.folder, "empty")
        for text, pattern in CONFIGURATIONS:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            self.tried.add(text)
            self.refused(["pmstored", "--config", path], 2, pattern)
        self.assert_unharmed(len(CONFIGURATIONS))


    def test_a_uri_that_is_given_is_seen_also_when_the_environment_has_the_same(self):
        for bench in ("kv", "smallbank", "log"):
            done = run(["pmstore", "bench", bench, "--model", "optane-cx5", *self.used],
                       PMSTORE_URI=self.used[1])
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(b"--model excludes --uri", done.stderr)


class GoodCommandLines(unittest.TestCase):
    """What people try, and what works."""

    def test_help_and_version_are_also_words(self):
        for words, same in ((["help"], ["--help"]), (["version"], ["--version"]),
                            (["help", "kv", "get"], ["kv", "get", "--help"])):
            done = run(["pmstore", *words])
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertEqual(done.stdout, run(["pmstore", *same]).stdout)
            self.assertNotEqual(done.stdout, b"")

    def test_help_is_given_whatever_else_is_wrong_behind_it(self):
        done = run(["pmstore", "kv", "get", "--help", "--nonsense"])
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"pmstore kv get", done.stdout)

    def test_a_number_with_zeros_before_it_is_decimal_and_an_empty_script_is_a_script(self):
        with tempfile.TemporaryDirectory(prefix="pmstore-lines.", dir="/dev/shm") as folder:
            pool = os.path.join(folder, "pool")
            uri = ["--uri", "local:" + pool]
            script = "".join(f"put key{i} value\n" for i in range(12)).encode()
            run(["pmstore", "pool", "create", pool, "--size", "16M"])
            self.assertEqual(run(["pmstore", "kv", "txn", *uri], stdin=script).returncode, 0)
            done = run(["pmstore", "kv", "scan", *uri, "--limit", "010"])
            self.assertEqual((done.returncode, done.stdout.count(b"\n")), (0, 10), done)
            done = run(["pmstore", "kv", "txn", *uri, "-e", ""], stdin=b"put other value")
            self.assertEqual(done.stdout, b"committed, nothing written\n", done)


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    unittest.main(argv=sys.argv[:1])
