#!/usr/bin/env python3
"""usage: posix_run.py DIRECTORY [SCENARIO...]: the rules of POSIX, on any directory.

-SCENARIO leaves one out.
Prints each scenario that fails, and one line of JSON at the end. Needs root, since some rules are
about other users. Exit status: 0 all rules hold, 1 some do not, 2 wrong usage.
"""

import json
import os
import shutil
import sys
import tempfile

import posix_data
import posix_directories
import posix_links
import posix_names
import posix_open
import posix_rights
import posix_times
from posix_rules import SCENARIOS, run_one

PARTS = (posix_names, posix_open, posix_data, posix_links, posix_directories, posix_rights,
         posix_times)


def main():
    if len(sys.argv) < 2 or not os.path.isdir(sys.argv[1]) or not PARTS:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    directory = os.path.realpath(sys.argv[1])
    root = tempfile.mkdtemp(prefix="posix.", dir=directory)
    os.chmod(root, 0o755)
    wanted = {name for name in sys.argv[2:] if not name.startswith("-")}
    left_out = {name[1:] for name in sys.argv[2:] if name.startswith("-")}
    failed, assertions, count = [], 0, 0
    for function in SCENARIOS:
        if function.__name__ in left_out or (wanted and function.__name__ not in wanted):
            continue
        done, why = run_one(function, root)
        assertions += done
        count += 1
        if why:
            failed.append(function.__name__)
            print(f"{function.__name__}: {why}")
    shutil.rmtree(root, ignore_errors=True)
    print(json.dumps({"scenarios": count, "assertions": assertions, "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
