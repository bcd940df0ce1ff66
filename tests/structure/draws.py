#!/usr/bin/env python3
"""Checks that what is drawn from the commit (tests/drawn) leaves nothing out in the long run.

The shares that a command draws are all the shares that there are: "{8}/8", never "{8}/9". Numbers
that one command draws have no common factor; otherwise some of them would never meet. And a step
of the campaign runs the same program, whole.

usage: draws.py [ROOT]
"""

import itertools
import math
import os
import re
import sys

import source_tree

CHECK = os.path.join("tools", "check")
STEPS = os.path.join("tests", "campaign_steps")

_TEST = re.compile(r"add_test\(\s*NAME\s+([^\s()]+)([^()]*tests/drawn[^()]*)\)")
_STAGE = re.compile(r"^\s*stage +(\S+)(.*tests/drawn .*)$", re.MULTILINE)
_SHARED_STAGE = re.compile(r"\[(\w+)\]=(\d+)")  # of the table `shares`
_DRAW = re.compile(r"\{(\d+|[a-z_]+(?:\|[a-z_]+)+)\}(?:/(\d+))?")
_PROGRAM = re.compile(r"tests/drawn\s+(?:\$<TARGET_FILE:(\w+)>|\S*?([\w.]+)(?=\s|$))")
_WITH_SHARE = re.compile(r"--share|--skip-long|tests/drawn|PMSTORE_TEST_DRAW")


def commands(root):
    """(place, test or stage, command) of each that draws; no name where there is none."""
    for path in source_tree.files(root, "CMakeLists.txt"):
        text = re.sub("#[^\n]*", "", source_tree.read(root, path))
        for test in _TEST.finditer(text):
            place = f"{path}:{source_tree.line_of(text, test.start())}"
            yield place, test.group(1), test.group(2)
        if text.count("tests/drawn") != len(_TEST.findall(text)):
            yield path, "", ""
    if os.path.exists(os.path.join(root, CHECK)):
        text = source_tree.read(root, CHECK).replace("\\\n", "  ")
        for stage in _STAGE.finditer(text):
            if "$script" not in stage.group(2):
                yield CHECK, stage.group(1), stage.group(2)
        for stage, number in _SHARED_STAGE.findall(text):
            yield CHECK, stage, f"tests/drawn tests/guest/{stage} --share {{{number}}}/{number}"


def whole_steps(root):
    if not os.path.exists(os.path.join(root, STEPS)):
        return []
    lines = source_tree.read(root, STEPS).splitlines()
    return [line for line in lines if not line.startswith("#") and not _WITH_SHARE.search(line)]


def check(root):
    findings = []
    steps = whole_steps(root)
    for place, name, command in commands(root):
        if not name:
            findings.append(f"{place}: tests/drawn is not said in one add_test()")
            continue
        sizes = []
        for number, of in _DRAW.findall(command):
            sizes.append(int(number) if number.isdigit() else len(number.split("|")))
            if of and of != number:
                findings.append(f"{place}: {name} never draws some of its shares {number}/{of}")
        if not sizes:
            findings.append(f"{place}: {name} draws nothing")
        for one, other in itertools.combinations(sizes, 2):
            if math.gcd(one, other) != 1:
                findings.append(f"{place}: {name} draws of {one} and of {other}, not all pairs")
        program = _PROGRAM.search(command)
        program = program and (program.group(1) or program.group(2))
        if not program or not any(re.search(rf"\b{program}\b", step) for step in steps):
            findings.append(f"{place}: no step of {STEPS} runs {name} whole: {program}")
    return findings


if __name__ == "__main__":
    sys.exit(source_tree.main(check, "draws to mend"))
