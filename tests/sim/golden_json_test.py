#!/usr/bin/env python3
"""usage: golden_json_test.py BIN [--record]: benchmarks of the modelled machine print the same
bytes on every host and every time: those that tests/sim/golden has.

A change of these files is a change of the model, or of code under test that sends other requests:
say why in the commit. --record writes them anew."""

import difflib
import os
import re
import subprocess
import sys

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
BENCHES = {
    "micro_one_sided": ["micro", "--payload", "200", "--seconds", "0.0001", "--warmup", "0.0001",
                        "--sweep", "rules=all;all,-h3;none"],
    "micro_two_sided": ["micro", "--side", "two", "--payload", "200", "--seconds", "0.0001",
                        "--warmup", "0.0001", "--sweep", "rules=all;all,-h4;none"],
    "smallbank": ["smallbank", "--hosts", "3", "--clients", "4", "--coroutines", "2",
                  "--accounts", "1000", "--seconds", "0.01"],
}


def printed(program, arguments):
    done = subprocess.run([program, "bench", *arguments, "--model", "optane-cx5", "--seed", "1",
                           "--json"], capture_output=True, timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"pmstore bench {' '.join(arguments)}: status {done.returncode}: "
                 f"{done.stderr.decode()}")
    # Which sources it was built from is all that may differ.
    text, revisions = re.subn(r'"revision":"[^"]*"', '"revision":""', done.stdout.decode())
    assert revisions == 1, text
    return text


def by_line(text):
    return re.sub(r"([,{\[])", r"\1\n", text).splitlines()


def main():
    record = "--record" in sys.argv
    program = os.path.join(sys.argv[1], "pmstore")
    different = []
    for name, arguments in BENCHES.items():
        path = os.path.join(GOLDEN, name + ".json")
        text = printed(program, arguments)
        if record:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        with open(path, encoding="utf-8") as file:
            wanted = file.read()
        for turn, now in enumerate((text, printed(program, arguments))):
            if now == wanted:
                continue
            different.append(f"{name}, run {turn + 1}")
            print("\n".join(list(difflib.unified_diff(by_line(wanted), by_line(now), path,
                                                      different[-1], lineterm="", n=1))[:40]))
    if different:
        sys.exit(f"other bytes than recorded: {'; '.join(different)}; when that is meant, record "
                 f"them anew: {sys.argv[0]} {sys.argv[1]} --record")
    print(f"{len(BENCHES)} benchmarks, twice each: byte for byte as recorded")


if __name__ == "__main__":
    main()
