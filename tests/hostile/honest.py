"""Honest clients beside an attack."""

import json
import subprocess
import threading
import time

from recorded_session import Failed


class Honest:
    """`pmstore bench kv`, and new clients one after another."""

    def __init__(self, server, options, attack):
        self.server, self.options, self.attack = server, options, attack
        self.failed = None
        self.newcomers = 0
        self.slowest = 0.0
        self.result = None

    def work(self):
        try:
            text = self.server.pmstore(
                "bench", "kv", "--uri", self.server.uri, "--seconds", str(self.options.seconds),
                "--keys", "1000", "--timeout", str(self.options.patience), "--json",
                timeout=self.options.seconds + 20 * self.options.patience)
            self.result = json.loads(text)
        except (Failed, subprocess.TimeoutExpired) as why:
            self.failed = str(why)

    def come_in(self, until):
        while time.monotonic() < until and not self.failed:
            start = time.monotonic()
            command = self.attack.newcomer()
            try:
                self.come_in_once(command, start + self.options.patience)
            except (Failed, subprocess.TimeoutExpired) as why:
                self.failed = str(why)
                return
            self.newcomers += 1
            self.slowest = max(self.slowest, time.monotonic() - start)
            time.sleep(0.05)

    def come_in_once(self, command, until):
        """Again while a lock is in the way: the server frees it."""
        while True:
            try:
                return self.server.pmstore(*command, "--uri", self.server.uri, "--timeout",
                                           str(self.options.patience))
            except Failed as why:
                if "another transaction" not in str(why) or time.monotonic() >= until:
                    raise

    def run(self, attack=None):
        """Both, beside the attack's steps; gives the p99 in milliseconds."""
        if attack:
            attack.begin()
        until = time.monotonic() + self.options.seconds
        threads = [threading.Thread(target=self.work),
                   threading.Thread(target=self.come_in, args=(until,))]
        for each in threads:
            each.start()
        while any(each.is_alive() for each in threads):
            if attack:
                attack.step()
            else:
                time.sleep(0.01)
        if self.failed:
            raise Failed(self.failed)
        return max(find(self.result, "p99_us")) / 1e3


def find(value, name):
    """All numbers of that name, however deep."""
    if isinstance(value, dict):
        own = [v for k, v in value.items() if k == name and isinstance(v, (int, float))]
        return own + [n for v in value.values() for n in find(v, name)]
    if isinstance(value, list):
        return [n for v in value for n in find(v, name)]
    return []
