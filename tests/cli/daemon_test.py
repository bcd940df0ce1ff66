#!/usr/bin/env python3
"""usage: daemon_test.py BIN: the log, the signals and the statistics of the pmstored in BIN."""

import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

BIN = ""
PATIENCE_S = 120


def program(name):
    return os.path.join(BIN, name)


def run(*arguments, stdin=b"", status=0):
    done = subprocess.run([program("pmstore"), *arguments], input=stdin, timeout=300,
                          capture_output=True, check=False)
    assert done.returncode == status, (arguments, done)
    return (done.stdout if status == 0 else done.stderr).decode()


class Log:
    """The lines of a log file as they come."""

    def __init__(self, path):
        self.path = path
        self.file = open(path, encoding="utf-8")
        self.lines = []

    def wait_for(self, pattern):
        """The first line that matches; lines before it are kept in self.lines."""
        for line in self.lines:
            if re.search(pattern, line):
                return line
        watch = subprocess.Popen(["tail", "-n", "+1", "-F", self.path], stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, bufsize=0)
        self.lines = []
        try:
            while select.select([watch.stdout], [], [], PATIENCE_S)[0]:
                line = watch.stdout.readline().decode()
                self.lines.append(line)
                if re.search(pattern, line):
                    return line
        finally:
            watch.kill()
            watch.communicate()
        raise AssertionError(f"no line matches {pattern!r}: {self.lines}")

    def text(self):
        with open(self.path, encoding="utf-8") as file:
            return file.read()

    def close(self):
        self.file.close()


class Daemon(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-daemon.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.pool = self.path("pool")
        run("pool", "create", self.pool, "--size", "64M", "--table", "default")

    def path(self, name):
        return os.path.join(self.folder, name)

    def config(self, **settings):
        with open(self.path("config"), "w", encoding="utf-8") as file:
            for key, value in settings.items():
                file.write(f"{key.replace('_', '-')} = {json.dumps(value)}\n")
        return self.path("config")

    def serve(self, *options, environment=None, log=True, files=None):
        """A daemon, its URI and its log, which is a file unless `log` is false. `files`: its soft
        and its hard limit of open files."""
        if log:
            options = ("--log-file", self.path("log"), *options)
        daemon = subprocess.Popen(
            [program("pmstored"), "--pool", self.pool, "--listen", "tcp://127.0.0.1:0", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ,
                                                                 **(environment or {})},
            preexec_fn=files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, files)))
        self.addCleanup(lambda: (daemon.kill(), daemon.communicate()))
        first = daemon.stdout.readline().decode()
        self.assertRegex(first, "^pmstored: serving ")
        found = None
        if log:
            found = Log(self.path("log"))
            self.addCleanup(found.close)
        return daemon, re.search(r"tcp://[0-9.:]+", first)[0], found

    def stop(self, daemon):
        daemon.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.wait(PATIENCE_S), 0)

    # ---- the log ----

    def test_start_addresses_and_stop_are_one_line_each(self):
        daemon, uri, log = self.serve()
        run("kv", "put", "--uri", uri, "name", "value")
        self.stop(daemon)
        lines = log.text().splitlines()
        stamp = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info "
        for line, rest in zip(lines, ("pmstored .* starts with pool ", "recovered 0 transactions",
                                      f"listening at {uri}$", "stopped in order by SIGTERM$")):
            self.assertRegex(line, stamp + rest)
        self.assertEqual(len(lines), 4, lines)
        self.assertEqual(daemon.stderr.read(), b"")

    def test_start_after_an_orderly_stop_uses_what_it_left(self):
        daemon, uri, _ = self.serve()
        run("kv", "put", "--uri", uri, "name", "value")
        self.stop(daemon)
        self.assertRegex(run("pool", "info", self.pool), r"checkpoint +current")
        for command in ("info", "check"):
            report = json.loads(run("pool", command, "--json", self.pool))
            self.assertEqual(report["checkpoint"], "current")
        daemon, uri, log = self.serve()
        log.wait_for(r"recovered 0 transactions .* from the checkpoint; live records: 1$")
        recovery = json.loads(run("stat", "--json", "--uri", uri))["recovery"]
        self.assertTrue(recovery["from_checkpoint"])
        self.assertEqual(run("kv", "get", "--uri", uri, "name"), "value\n")
        daemon.kill()
        daemon.wait(PATIENCE_S)
        self.assertEqual(json.loads(run("pool", "info", "--json", self.pool))["checkpoint"], "none")

    def test_mends_headers_of_slabs_behind_a_checkpoint(self):
        daemon, uri, _ = self.serve()
        run("kv", "put", "--uri", uri, "name", "value")
        self.stop(daemon)
        with open(self.pool, "r+b") as pool:
            content = pool.read()
            first = content.index(b"PSLB")
            self.assertEqual(content.find(b"PSLB", first + 1), -1, "one slab, written once")
            pool.seek(first)
            pool.write(b"Z" * 64)
        daemon, uri, log = self.serve()
        log.wait_for(" warning 1 headers of slabs had a damaged copy, .*; 1 had lost the newest")
        headers = json.loads(run("stat", "--json", "--uri", uri))["recovery"]["headers"]
        self.assertEqual(headers, {"all_seen": True, "mended": 1, "lost": 1})
        daemon.kill()
        daemon.wait(PATIENCE_S)
        daemon, uri, log = self.serve()
        self.assertEqual(run("kv", "get", "--uri", uri, "name"), "value\n")
        headers = json.loads(run("stat", "--json", "--uri", uri))["recovery"]["headers"]
        self.assertEqual(headers, {"all_seen": True, "mended": 0, "lost": 0})

    def test_says_whether_sockets_share_system_calls(self):
        daemon, _, log = self.serve("--log-level", "debug", "--io-uring", "never")
        log.wait_for(" debug each tcp socket has its own system calls: no io_uring")
        self.stop(daemon)
        _, _, log = self.serve("--log-level", "debug")
        log.wait_for(r" debug (tcp sockets share system calls: io_uring|each tcp socket has)")

    def test_levels_filter(self):
        daemon, uri, log = self.serve("--log-level", "error")
        run("kv", "put", "--uri", uri, "name", "value")
        self.stop(daemon)
        self.assertEqual(log.text(), "")
        daemon, uri, log = self.serve("--log-level", "debug")
        run("kv", "put", "--uri", uri, "name", "value")
        log.wait_for(f" debug store session [0-9a-f]{{32}} at {uri} connected")
        log.wait_for(" debug store session [0-9a-f]{32} .* ended in order")

    def test_tcp_on_other_than_loopback_is_warned_of(self):
        _, _, log = self.serve("--listen", "tcp://0.0.0.0:0")
        log.wait_for(r" warning tcp://0\.0\.0\.0:\d+ can be reached from other machines, without "
                     "authentication and encryption")
        self.assertEqual(log.text().count(" warning "), 1)

    def test_as_many_clients_as_the_hard_limit_of_open_files_allows(self):
        daemon, _, _ = self.serve(files=(200, 900))
        self.assertEqual(resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE), (900, 900))

    def test_a_limit_of_open_files_for_few_clients_is_warned_of(self):
        _, _, log = self.serve(files=(200, 900))
        log.wait_for(r" warning the limit of open files has room for 7\d\d clients over tcp, fewer "
                     "than 4096; raise it")
        self.assertEqual(log.text().count(" warning "), 1)

    def test_a_flood_from_one_address_lets_others_in(self):
        daemon, uri, _ = self.serve()
        port = int(uri.rsplit(":", 1)[1])
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limit)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
        flood = []
        self.addCleanup(lambda: [silent.close() for silent in flood])
        for _ in range(min(1200, limit[1] // 2)):
            flood.append(socket.create_connection(("127.0.0.1", port),
                                                  source_address=("127.0.0.9", 0)))
        for count in range(10):
            for silent in flood[:50]:
                silent.close()
            flood[:50] = [socket.create_connection(("127.0.0.1", port),
                                                   source_address=("127.0.0.9", 0))
                          for _ in range(50)]
            run("kv", "put", "--uri", uri, f"name{count}", "value")
        self.stop(daemon)

    def test_lines_for_the_journal_begin_with_their_priority(self):
        reader, writer = os.pipe()
        status = os.fstat(writer)
        with open(reader, "rb") as said:
            daemon = subprocess.Popen(
                [program("pmstored"), "--pool", self.pool, "--listen", "tcp://127.0.0.1:0",
                 "--listen", "tcp://0.0.0.0:0"], stdout=subprocess.DEVNULL, stderr=writer,
                env={**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
            os.close(writer)
            self.addCleanup(lambda: (daemon.kill(), daemon.communicate()))
            first = said.readline().decode()
            self.assertRegex(first, "^<6>pmstored .* starts with pool ")
            for line in said:
                if line.startswith(b"<4>tcp://0.0.0.0:"):
                    break
            else:
                self.fail("no warning with priority 4")

    def test_standard_error_that_is_not_the_journal_has_no_priorities(self):
        daemon, _, _ = self.serve(environment={"JOURNAL_STREAM": "1:1"}, log=False)
        self.stop(daemon)
        self.assertRegex(daemon.stderr.read().decode(), r"^\d{4}-.*Z info pmstored ")

    def test_a_log_on_a_full_disk_does_not_stop_the_service(self):
        daemon, uri, _ = self.serve("--log-level", "debug", "--log-file", "/dev/full", log=False)
        run("kv", "put", "--uri", uri, "name", "value")
        self.assertEqual(run("kv", "get", "--uri", uri, "name"), "value\n")
        self.stop(daemon)

    def test_a_reader_of_standard_error_that_goes_does_not_stop_the_service(self):
        daemon, uri, _ = self.serve("--log-level", "debug", log=False)
        daemon.stderr.close()
        run("kv", "put", "--uri", uri, "name", "value")
        self.assertEqual(run("kv", "get", "--uri", uri, "name"), "value\n")
        daemon.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.wait(PATIENCE_S), 0)
        daemon.stderr = None

    # ---- SIGHUP ----

    def test_sighup_opens_the_log_again_and_goes_on_serving(self):
        daemon, uri, log = self.serve()
        os.rename(self.path("log"), self.path("log.1"))
        daemon.send_signal(signal.SIGHUP)
        moved = Log(self.path("log.1"))
        self.addCleanup(moved.close)
        log.wait_for("SIGHUP: log opened again; no setting changed")
        run("kv", "put", "--uri", uri, "name", "value")
        self.assertNotIn("SIGHUP", moved.text())
        self.stop(daemon)
        self.assertIn("stopped in order", log.text())

    def test_sighup_rereads_what_may_change_and_names_what_may_not(self):
        config = self.config(log_level="info", lease_ms=5000)
        daemon, uri, log = self.serve("--config", config)
        self.config(log_level="debug", lease_ms=7000, outcome_retention_ms=1234)
        daemon.send_signal(signal.SIGHUP)
        line = log.wait_for("SIGHUP: log opened again")
        self.assertIn("log-level is 'debug', was 'info'", line)
        self.assertIn("outcome-retention-ms is '1234', was '30000'", line)
        log.wait_for(" warning SIGHUP: lease-ms stays '5000': '7000' needs a restart")
        run("kv", "put", "--uri", uri, "name", "value")
        log.wait_for(" debug store session .* connected")

    def test_sighup_with_a_bad_file_changes_nothing(self):
        config = self.config(log_level="info")
        daemon, uri, log = self.serve("--config", config)
        for bad in ('log-level = "debug"\nlease-ms = "long"\n', 'log-level = "debug"\nnothing', ''):
            if bad:
                with open(config, "w", encoding="utf-8") as file:
                    file.write(bad)
            else:
                os.remove(config)
            before = log.text().count("SIGHUP")
            daemon.send_signal(signal.SIGHUP)
            log.lines = []
            log.wait_for(" error SIGHUP: every setting stays as it is: ")
            while log.text().count("SIGHUP") == before:
                select.select([], [], [], 0.01)
        run("kv", "put", "--uri", uri, "name", "value")
        self.stop(daemon)
        self.assertNotIn(" debug ", log.text())
        self.assertEqual(log.text().count("SIGHUP"), 3)

    # ---- statistics and sessions ----

    def stat(self, uri):
        return json.loads(run("stat", "--uri", uri, "--json"))

    def test_stat_counts(self):
        _, uri, _ = self.serve()
        before = self.stat(uri)
        self.assertEqual(before["store"]["sessions"], 0)  # it is none itself
        for i in range(5):
            run("kv", "put", "--uri", uri, f"key{i}", "value")
        run("log", "append", "--uri", uri, "numbers", "--create", stdin=b"1\n2\n3\n")
        after = self.stat(uri)
        self.assertEqual(after["store"]["commits"] - before["store"]["commits"], 5)
        self.assertEqual(after["store"]["live_records"], 5)
        self.assertEqual(after["store"]["sessions_total"], 5)
        self.assertEqual(after["store"]["logs"]["entries_total"], 3)
        self.assertEqual(after["listen"], [uri])
        self.assertEqual(after["rates"]["commits"], 0)
        text = run("stat", "--uri", uri)
        self.assertRegex(text, r"(?m)^records +5; \d+ bytes used, \d+ free$")
        self.assertRegex(text, r"(?m)^logs +1 with 3 entries; ")

    def test_watch_prints_a_line_for_each_sample_where_there_is_no_terminal(self):
        _, uri, _ = self.serve()
        lines = run("stat", "--uri", uri, "--watch", "0.01", "--count", "3").splitlines()
        self.assertEqual(len(lines), 3)
        for line in lines:
            self.assertRegex(line, "^sessions 0, commits 0/s, .*free [0-9]+ bytes$")
        run("stat", "--uri", uri, "--watch", "--count", "1")

    def test_stat_needs_a_server(self):
        self.assertIn("has no server", run("stat", "--uri", "local:" + self.pool, status=2))
        self.assertIn("no such session",
                      run("session", "kick", "--uri", self.serve()[1], 32 * "1", status=1))

    def test_stat_of_a_server_all_of_whose_places_are_taken(self):
        _, uri, _ = self.serve("--most-clients", "1")
        client = self.stay_connected(uri)
        self.assertIn("all 1 client places of this server are taken",
                      run("kv", "get", "--uri", uri, "name", status=1))
        self.assertEqual(self.stat(uri)["store"]["sessions"], 1)
        client.kill()

    def stay_connected(self, uri):
        client = subprocess.Popen([program("pmstore"), "bench", "kv", "--uri", uri, "--seconds",
                                   "600", "--mix", "put"], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
        self.addCleanup(lambda: (client.kill(), client.communicate()))
        while not self.sessions(uri) or self.stat(uri)["rates"]["commits"] == 0:
            self.assertIsNone(client.poll())
        return client

    def sessions(self, uri):
        return json.loads(run("session", "list", "--uri", uri, "--json"))["sessions"]

    def test_kick_ends_a_session_and_the_log_says_so(self):
        _, uri, log = self.serve()
        client = self.stay_connected(uri)
        listed = self.sessions(uri)
        self.assertEqual([(s["kind"], s["via"]) for s in listed], [("store", uri)])
        self.assertGreater(listed[0]["transactions"], 0)
        name = listed[0]["id"]
        self.assertIn(name, run("session", "list", "--uri", uri))
        self.assertEqual(run("session", "kick", "--uri", uri, name),
                         f"ended 1 session of {name}\n")
        self.assertEqual(client.wait(PATIENCE_S), 1)
        log.wait_for(f" warning store session {name} at {uri} fenced: an administrator ended it")
        self.assertEqual(self.sessions(uri), [])

    def test_client_that_is_killed_is_gone_at_once(self):
        # Not by its lease.
        _, uri, log = self.serve("--lease-ms", "3600000")
        client = self.stay_connected(uri)
        name = self.sessions(uri)[0]["id"]
        client.kill()
        log.wait_for(f" info store session {name} at {uri} disconnected")
        self.assertEqual(self.sessions(uri), [])

    def test_refused_sessions_are_in_the_log(self):
        _, uri, log = self.serve()
        run("kv", "get", "--uri", uri, "--locks", "rnic", "name", status=1)
        log.wait_for(f" warning store session [0-9a-f]{{32}} at {uri} refused: this server's lock "
                     "discipline is cpu")

    # ---- pools that are served ----

    def test_info_of_a_served_pool_comes_from_its_server(self):
        alone = json.loads(run("pool", "info", self.pool, "--json"))
        daemon, uri, _ = self.serve()
        served = json.loads(run("pool", "info", self.pool, "--json"))
        self.assertEqual(served.pop("served"), {"pid": daemon.pid, "listen": [uri]})
        for member in ("path", "medium", "format_version", "bytes", "domain", "extents"):
            self.assertEqual(served[member], alone[member])
        self.assertIn(f"served by process {daemon.pid} at {uri}",
                      run("pool", "info", self.pool))
        os.link(self.pool, self.path("other name"))
        self.assertIn(uri, run("pool", "info", self.path("other name")))
        daemon.kill()
        daemon.wait()
        self.assertNotIn("served", run("pool", "info", self.pool))

    # ---- limits ----

    def space(self, kind):
        info = json.loads(run("pool", "info", self.pool, "--json"))
        return next(each for each in info["space"] if each["kind"] == kind)

    def fill(self, uri, lines, status=0):
        return run("kv", "load", "--uri", uri, status=status,
                   stdin="".join(f"key{i}\t{'v' * 4000}\n" for i in lines).encode())

    def test_records_take_no_more_than_their_limit(self):
        daemon, uri, log = self.serve("--record-limit", "10M", "--log-limit", "4M")
        self.assertEqual(self.space("records")["limit_bytes"], 10 << 20)
        self.assertEqual(self.space("log")["limit_bytes"], 4 << 20)
        self.assertRegex(run("pool", "info", self.pool),
                         r"for records +[\d.]+ MiB .* in 1 extent, limited to 10 MiB")
        said = self.fill(uri, range(5000), status=1)
        self.assertRegex(said, r"records have [\d.]+ MiB .*limited to 10 MiB .*--record-limit")
        self.assertEqual(said.count("\n"), 1, said)
        self.assertLessEqual(self.space("records")["bytes"], 10 << 20)
        self.assertGreater(self.space("records")["extents"], 1)
        run("kv", "put", "--uri", uri, "key0", "w" * 4000)
        run("kv", "del", "--uri", uri, "key1")
        run("kv", "put", "--uri", uri, "more", "w" * 4000)
        said = run("log", "create", "--uri", uri, "large", "--bytes", "8M", status=1)
        self.assertRegex(said, "--log-limit.*limited to 4 MiB")
        self.stop(daemon)
        # Less than there is: nothing is lost, and the log says it.
        daemon, uri, log = self.serve("--record-limit", "1M")
        log.wait_for(r" warning extents of kind records have .* more than --record-limit 1 MiB")
        self.assertEqual(run("kv", "get", "--uri", uri, "key0"), "w" * 4000 + "\n")
        run("kv", "put", "--uri", uri, "key0", "v" * 4000)
        self.stop(daemon)
        daemon, uri, _ = self.serve("--record-limit", "40M")
        self.fill(uri, range(5000))
        self.stop(daemon)
        self.assertRegex(run("pool", "check", self.pool), "(?m)^sound: 5001 records")

    def test_records_have_what_is_kept_for_them_from_the_beginning(self):
        os.remove(self.pool)
        said = run("pool", "create", self.pool, "--size", "64M", "--record-bytes", "1G", status=1)
        self.assertIn("of records at once", said)
        run("pool", "create", self.pool, "--size", "64M", "--record-bytes", "20M", "--table",
            "default")
        self.assertGreaterEqual(self.space("records")["bytes"], 20 << 20)
        self.assertEqual(self.space("records")["extents"], 1)
        daemon, uri, _ = self.serve()
        said = run("log", "create", "--uri", uri, "large", "--bytes", "50M", status=1)
        self.assertIn("no room for a log", said)
        self.stop(daemon)

    # ---- the service manager ----

    def manager(self):
        """A socket as systemd has it, and its name."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(listener.close)
        listener.settimeout(PATIENCE_S)
        listener.bind(self.path("notify"))
        return listener, self.path("notify")

    def test_a_service_manager_is_told_when_the_pool_is_served_and_when_it_stops(self):
        listener, name = self.manager()
        daemon, uri, _ = self.serve(environment={"NOTIFY_SOCKET": name})
        self.assertRegex(listener.recv(4096).decode(),
                         rf"^STATUS=opens pool {self.pool}\nEXTEND_TIMEOUT_USEC=\d+\n$")
        self.assertEqual(listener.recv(4096).decode(),
                         f"READY=1\nSTATUS=serves pool {self.pool} at {uri}\n")
        self.stop(daemon)
        self.assertRegex(listener.recv(4096).decode(), r"^STOPPING=1\nSTATUS=stops in order")

    def test_a_service_manager_of_a_start_that_fails_is_never_told_that_it_serves(self):
        listener, name = self.manager()
        daemon, _, _ = self.serve()
        done = subprocess.run([program("pmstored"), "--pool", self.pool, "--listen",
                               "tcp://127.0.0.1:0"], capture_output=True, check=False,
                              timeout=PATIENCE_S, env={**os.environ, "NOTIFY_SOCKET": name})
        self.assertEqual(done.returncode, 1)
        self.assertRegex(listener.recv(4096).decode(), "^STATUS=opens pool ")
        listener.setblocking(False)
        self.assertRaises(BlockingIOError, listener.recv, 4096)
        self.stop(daemon)

    def test_check_of_a_served_pool_says_what_to_do(self):
        daemon, uri, _ = self.serve()
        said = run("pool", "check", self.pool, status=1)
        self.assertIn(f"served by process {daemon.pid} at {uri}; stop that server", said)
        self.assertEqual(said.count("\n"), 1)
        self.stop(daemon)
        run("pool", "check", self.pool)


if __name__ == "__main__":
    BIN = sys.argv.pop(1)
    unittest.main()
