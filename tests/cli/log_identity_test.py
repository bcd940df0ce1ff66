#!/usr/bin/env python3
"""usage: log_identity_test.py BIN: how pmstore log members tells logs of one name apart."""

import re
import sys
import unittest

import log_replicas_test


class Identities(log_replicas_test.Servers):
    def standings(self, at):
        """The log's identity, and each server's state and identity, as printed in both ways."""
        said = self.members("log", at=at)
        standings = {s["uri"]: (s["state"], s.get("identity", "-")) for s in said["servers"]}
        lines = self.log("members", "log", at=at).stdout.decode().splitlines()
        head, *rows = [re.split("  +", line) for line in lines[-1 - len(standings):]]
        self.assertEqual(head[:3], ["server", "state", "identity"])
        self.assertEqual({row[0]: tuple(row[1:3]) for row in rows}, standings)
        return said["identity"], [standings[uri] for uri in self.uris]

    def test_a_server_that_has_another_log_shows_its_identity(self):
        self.good("append", "log", "old", "--create", at=(0, 1, 2))
        old, before = self.standings((0,))
        self.assertEqual(before, [("current", old)] * 3)
        self.kill(2)
        self.good("drop-member", "log", self.uris[2])
        self.good("delete", "log")
        self.good("append", "log", "new", "--create", at=(0, 1))
        self.start(2)
        new, after = self.standings((0, 2))
        self.assertEqual(after, [("current", new)] * 2 + [("has another log", old)])
        for identity in (old, new):
            self.assertRegex(identity, "^[0-9a-f]{16}$")
        self.assertNotEqual(old, new)

    def test_all_logs_are_shown_when_it_is_not_known_which_is_meant(self):
        self.good("append", "log", "--create", at=(0,), stdin=b"one\n")
        self.good("append", "log", "--create", at=(1,), stdin=b"one\ntwo\n")
        first, second = [self.members("log", at=(i,))["identity"] for i in range(2)]
        self.assertNotEqual(first, second)
        self.kill(2)
        at = (0, 1, 2)
        self.assert_fails(self.log("members", "log", at=at), 1, "different logs of that name")
        self.assertEqual(self.standings(at), (None, [("unclear", first), ("unclear", second),
                                                     ("missing", "-")]))
        said = self.members("log", at=at)
        self.assertEqual((said["membership"], said["replicas"], said["agreed"]), (0, [], False))
        self.assertEqual([s.get("next_index") for s in said["servers"]], [2, 3, None])

    def test_where_nobody_has_the_log_nothing_is_shown(self):
        done = self.log("members", "log", "--json")
        self.assertEqual(done.stdout, b"")
        self.assert_fails(done, 1, "there is no log 'log'")


if __name__ == "__main__":
    log_replicas_test.BIN = sys.argv.pop(1)
    unittest.main()
