#!/usr/bin/env python3
"""usage: files_load.py write FOLDER
       files_load.py audit FOLDER ROUNDS

A load of all kinds of changes of files, and what must be there afterwards. `write` does round after
round, behind those that it finds in FOLDER, and prints 'rounds acknowledged N' behind each. `audit`
looks that FOLDER has everything that the first ROUNDS rounds have done. A change that a call has
returned from has to be there: nothing here calls fsync.

Round n overwrites block n % BLOCKS of the file `blocks`, appends a record to `appended`, makes file
`kept-n` under another name and renames it, replaces `latest`, and removes file `kept-(n - KEPT)`.
"""

import hashlib
import os
import sys

BLOCKS = 64
BLOCK = 4096
RECORD = 100
KEPT = 20


def content(what, number, size):
    seed = hashlib.sha256(f"{what} {number}".encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]


def kept_size(number):
    # Inline ones, and such with extents.
    return (number * 7919) % 20_000


def begun(folder):
    """How many rounds there were, of which the last one may not have ended."""
    path = os.path.join(folder, "appended")
    return os.path.getsize(path) // RECORD if os.path.exists(path) else 0


def write(folder):
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    number = begun(".")
    blocks = os.open("blocks", os.O_RDWR | os.O_CREAT)
    appended = os.open("appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    # One that a power cut has ended is done once more.
    number = max(number - 1, 0)
    while True:
        one_round(number, blocks, appended)
        number += 1
        print(f"rounds acknowledged {number}", flush=True)


def one_round(number, blocks, appended):
    os.pwrite(blocks, content("block", number, BLOCK), number % BLOCKS * BLOCK)
    if os.fstat(appended).st_size == number * RECORD:
        os.write(appended, content("record", number, RECORD))
    for name, size in ((f"kept-{number}", kept_size(number)), ("latest", 3000)):
        with open("new", "wb", buffering=0) as file:
            file.write(content(name, number, size))
        os.rename("new", name)
    if number >= KEPT and os.path.exists(f"kept-{number - KEPT}"):
        os.unlink(f"kept-{number - KEPT}")


def read(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def audit(folder, rounds):
    """None, or what is wrong. More rounds than were heard of may be there, the last by half."""
    if rounds == 0 and begun(folder) == 0:
        return None
    appended = read(folder, "appended")
    if len(appended) < rounds * RECORD or len(appended) % RECORD != 0:
        return f"`appended` has {len(appended)} bytes after {rounds} rounds"
    rounds = max(rounds, len(appended) // RECORD - 1)
    records = b"".join(content("record", n, RECORD) for n in range(rounds + 1))
    if appended != records[:len(appended)]:
        return "`appended` has other bytes than were appended"
    blocks = read(folder, "blocks")
    for number in range(max(0, rounds - BLOCKS), rounds):
        at = number % BLOCKS * BLOCK
        if at == rounds % BLOCKS * BLOCK:
            continue  # the next round was about to write there
        if blocks[at:at + BLOCK] != content("block", number, BLOCK):
            return f"block {number % BLOCKS} has not what round {number} wrote"
    for number in range(max(0, rounds - KEPT + 1), rounds):
        if read(folder, f"kept-{number}") != content(f"kept-{number}", number, kept_size(number)):
            return f"kept-{number} is not what was written"
    names = {name for name in os.listdir(folder) if name.startswith("kept-")}
    wanted = {f"kept-{number}" for number in range(max(0, rounds - KEPT), rounds + 1)}
    if names - wanted:
        return f"{sorted(names - wanted)[0]} was removed, and is there"
    latest = read(folder, "latest")
    if latest not in (content("latest", rounds - 1, 3000), content("latest", rounds, 3000)):
        return f"`latest` is not of round {rounds - 1}, nor of the one behind it"
    return None


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "write":
        return write(arguments[1])
    if len(arguments) == 3 and arguments[0] == "audit":
        wrong = audit(arguments[1], int(arguments[2]))
        if wrong is None:
            print(f"{arguments[2]} rounds, all there")
        return wrong
    return __doc__


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
