#!/usr/bin/env python3
"""Checks who includes whom and who uses what: docs/architecture.md says why.

usage: arrows.py [ROOT]
"""

import os
import re
import sys

import source_tree

# Each folder and those that it may include from, beside itself. tests/ may include anything.
ARROWS = {
    "base": set(),
    "fabric": {"base"},
    "persist": {"base", "fabric"},
    "model": {"base", "fabric", "persist"},
    "service": {"base", "fabric", "persist"},
    "log": {"base", "fabric", "persist", "service"},
    "bindings": {"base", "fabric", "persist", "service", "log"},
    "pmstore": {"base", "fabric", "persist", "service", "log"},
    "fs": {"base", "fabric", "persist", "service", "log", "pmstore"},
    "ddio": {"base"},
    "tools": {"base", "fabric", "persist", "model", "service", "log", "pmstore", "fs",
              "ddio"},
}
# Rooms: subfolders with arrows of their own, private to their folder.
ROOMS = {
    "pmstore": {
        "layout": set(),
        "shard": {"layout"},
        "server": {"layout", "shard"},
        # In process, a client is its own server (client/embedded.h).
        "client": {"layout", "shard", "server"},
    },
}
COROUTINES_ONLY = {"service", "log", "pmstore", "fs"}

# Pattern, folders where it is allowed (beside tests), why it is not allowed elsewhere.
USES = [
    (r"immintrin\.h|x86intrin\.h|\b_mm\d*_\w+|\b__builtin_ia32_\w+|\basm\b|\b__asm__\b",
     {"persist/internal", "base/internal"}, "CPU instructions are named by intent, in internal/"),
    (r"<libpmem\w*\.h>|<libpmemobj[/\w]*\.h>|\bpmem(?:2|obj|pool)?_\w+\s*\(|"
     r"\bPMEMobjpool\b|\bPOBJ_\w+",
     {"persist"}, "every store to persistent memory goes through persist/"),
    (r"<ndctl/|<daxctl/|\b(?:ndctl|daxctl)_\w+\s*\(",
     {"persist"}, "persistence domains are found in persist/"),
    (r"<infiniband/|<rdma/|\bibv_\w+\s*\(|\brdma_\w+\s*\(",
     {"fabric"}, "networks are reached through fabric/"),
]
# Invariant 9: time, waiting and chance are the executor's.
NOT_IN_COROUTINES = [
    (r"\bstd::(?:this_thread|j?thread|async|(?:shared_)?mutex|condition_variable|future)\b",
     "nothing here starts threads or blocks"),
    (r"<(?:thread|mutex|future|condition_variable|shared_mutex|semaphore|pthread\.h)>",
     "nothing here starts threads or blocks"),
    (r"\b(?:usleep|nanosleep|pthread_create|sched_yield)\s*\(|(?<![\w.>:])sleep\s*\(",
     "waiting is a coroutine on the executor"),
    (r"\b(?:clock_gettime|gettimeofday)\s*\(|\b(?:system|steady|high_resolution)_clock\b|"
     r"(?<![\w.>])(?:std::)?time\s*\(\s*(?:0|NULL|nullptr)\s*\)",
     "time comes from the executor's clock"),
    (r"\bstd::(?:random_device|mt19937(?:_64)?)\b|(?<![\w.>])s?rand\s*\(",
     "chance comes from the executor's seeded source"),
]
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


def top_of(path):
    return path.split(os.sep, 1)[0] if os.sep in path else ""


def room_of(path):
    """The room of a folder with rooms; None of others, and of what lies beside the rooms."""
    parts = path.split(os.sep)
    return parts[1] if len(parts) == 3 and parts[0] in ROOMS else None


def check_include(root, path, included):
    """Why `path` may not include "included", or None."""
    own, other = top_of(path), top_of(included)
    if not os.path.isfile(os.path.join(root, included)):
        if os.path.isfile(os.path.join(root, os.path.dirname(path), included)):
            return f'"{included}" is not named from the repository root'
        return f'"{included}" is not a file of the repository; use <> for libraries'
    room = room_of(included)
    if own == other and room and room_of(path) not in (None, room):
        if room not in ROOMS[own][room_of(path)]:
            return f'{own}/{room_of(path)}/ may not depend on {own}/{room}/ ("{included}")'
    if own == "tests" or own == other:
        return None
    if other not in ARROWS:
        return f"nobody includes from {other or 'the root'}/"
    if own in ARROWS and other not in ARROWS[own]:
        return f'{own}/ may not depend on {other}/ ("{included}")'
    if room or "internal" in included.split(os.sep):
        return f'"{included}" is private to {other}/'
    return None


def allowed_in(path, folders):
    return top_of(path) == "tests" or any(path.startswith(folder + os.sep) for folder in folders)


def cycles(graph):
    """Each include cycle once, as the list of its files."""
    state, stack, found = {}, [], []

    def visit(path):
        state[path] = "open"
        stack.append(path)
        for target in graph.get(path, ()):
            if state.get(target) == "open":
                found.append(stack[stack.index(target):] + [target])
            elif target not in state:
                visit(target)
        stack.pop()
        state[path] = "done"

    for path in sorted(graph):
        if path not in state:
            visit(path)
    return found


def check(root):
    findings, graph = [], {}
    for path in source_tree.files(root, source_tree.CXX_SUFFIXES):
        code = source_tree.code_of(source_tree.read(root, path))

        def report(position, why):
            findings.append(f"{path}:{source_tree.line_of(code, position)}: {why}")

        own = top_of(path)
        if own not in ARROWS and own not in ("tests", "cmake"):
            report(0, f"{own or 'the root'}/ is not a folder of the architecture; add it to ARROWS")
        if path.endswith(".h") and not re.search(r"^\s*#\s*pragma once\b", code, re.MULTILINE):
            report(0, "a header without #pragma once")
        for match in INCLUDE.finditer(code):
            if match.group(1):
                graph.setdefault(path, []).append(match.group(1))
                why = check_include(root, path, match.group(1))
                if why:
                    report(match.start(1), why)
        for pattern, folders, why in USES:
            if not allowed_in(path, folders):
                for match in re.finditer(pattern, code):
                    report(match.start(), f"{match.group().strip()}: {why}")
        if own in COROUTINES_ONLY:
            for pattern, why in NOT_IN_COROUTINES:
                for match in re.finditer(pattern, code):
                    report(match.start(), f"{match.group().strip()}: {why}")
    findings += ["include cycle: " + " -> ".join(cycle) for cycle in cycles(graph)]
    return findings


if __name__ == "__main__":
    sys.exit(source_tree.main(check, "breaches of the architecture"))
