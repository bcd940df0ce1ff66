#!/usr/bin/env python3
"""usage: sqlite_load.py write FILE WRITER SECONDS [JOURNAL]
       sqlite_load.py audit FILE [WRITER:COUNT]...

A write load on a database, and what must be in it afterwards. `write` inserts rows in transactions,
behind those that WRITER, a number, has there already, and prints 'writer WRITER acknowledged COUNT'
behind each: so many rows. SECONDS may be 0: until it is ended. `audit` runs the integrity check,
and looks that each WRITER's first COUNT rows are there, and no transaction by half.
"""

import hashlib
import sqlite3
import sys
import time

PER_TRANSACTION = 10
BUSY_SECONDS = 300


def value_of(number):
    seed = hashlib.sha256(str(number).encode()).digest()
    return seed * (1 + number % 40)


def connect(path):
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)


def write(path, writer, seconds, journal):
    store = connect(path)
    store.execute(f"PRAGMA journal_mode={journal}")
    store.execute("PRAGMA synchronous=FULL")
    store.execute("CREATE TABLE IF NOT EXISTS t (k INTEGER PRIMARY KEY, v BLOB, touched INTEGER)")
    first = writer << 32
    count = store.execute("SELECT count(*) FROM t WHERE k >= ? AND k < ?",
                          (first, first + (1 << 32))).fetchone()[0]
    end = time.monotonic() + seconds
    while seconds == 0 or time.monotonic() < end:
        store.execute("BEGIN IMMEDIATE")
        for i in range(first + count, first + count + PER_TRANSACTION):
            store.execute("INSERT INTO t VALUES (?, ?, 0)", (i, value_of(i)))
        # Pages in the midst of the file change, too.
        store.execute("UPDATE t SET touched = touched + 1 WHERE k >= ? AND k < ?",
                      (first + count // 2, first + count // 2 + 5))
        store.execute("COMMIT")
        count += PER_TRANSACTION
        print(f"writer {writer} acknowledged {count}", flush=True)
    store.close()


def audit(path, wanted):
    store = connect(path)
    said = store.execute("PRAGMA integrity_check").fetchall()
    if said != [("ok",)]:
        return f"the integrity check says {said[:3]}"
    counts = {}
    for number, value in store.execute("SELECT k, v FROM t ORDER BY k"):
        writer = number >> 32
        expected = (writer << 32) + counts.get(writer, 0)
        if number != expected:
            return f"row {expected} is missing before row {number}"
        if value != value_of(number):
            return f"row {number} has another value"
        counts[writer] = counts.get(writer, 0) + 1
    for writer, count in counts.items():
        if count % PER_TRANSACTION != 0:
            return f"a transaction of writer {writer} is there by half: it has {count} rows"
    for writer, count in wanted:
        if counts.get(writer, 0) < count:
            return f"writer {writer} has {counts.get(writer, 0)} rows; acknowledged: {count}"
    print(f"{sum(counts.values())} rows of {len(counts)} writers, all that were acknowledged")
    return None


def main(arguments):
    if len(arguments) in (4, 5) and arguments[0] == "write":
        journal = arguments[4] if len(arguments) == 5 else "DELETE"
        write(arguments[1], int(arguments[2]), float(arguments[3]), journal)
        return None
    if len(arguments) >= 2 and arguments[0] == "audit":
        pairs = [each.split(":") for each in arguments[2:]]
        return audit(arguments[1], [(int(one), int(other)) for one, other in pairs])
    return __doc__


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
