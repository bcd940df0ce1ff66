#!/usr/bin/env python3
"""Checks that a cancellation test destroys every awaitable of store, log, service, persist and
file data.

An awaitable is a public function of a public header that gives a Task or an awaiter. A test is an
entry of a table in tests/unit/cancellation: {"Class::function", [](SomeWorld& world) ...}; what
comes behind a comma in the name tells several of one function apart. There are at least as many as
the function has overloads, and none of a function that is no longer there.

usage: awaitables.py [ROOT]
"""

import os
import re
import sys

import arrows
import source_tree

FOLDERS = ("pmstore", "log", "service", "persist")
# Of fs/, what such tables test as a whole.
HEADERS = (os.path.join("fs", "file_data.h"),)
TESTS = os.path.join("tests", "unit", "cancellation")

_TABLE_ENTRY = re.compile(r'\{"([\w:]+?)(?:, [^"]*)?",\s*\[\]\(\w+World& world\)')
_SCOPE = re.compile(r"^(?:template\s*<[^{]*>\s*)?(namespace|class|struct|union)\b\s*([\w:]*)")
_ACCESS = re.compile(r"\s*\b(public|protected|private)\s*:(?!:)")
_RESULT = re.compile(r"\b(?:Task\s*(?=<)|\w*Awaiter\b)")
_NAME = re.compile(r"\s*&?\s*(\w+)\s*\(")


def behind_angle_brackets(text, position):
    """Where the template arguments end that begin at `position`; there, if none do."""
    depth = 0
    for at in range(position, len(text)):
        depth += {"<": 1, ">": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1 if at > position else position
    return len(text)


def awaitable_in(statement):
    """The name and place of the function that it declares, if that gives a Task or an awaiter."""
    parameters = statement.find("(")
    for result in _RESULT.finditer(statement):
        if result.start() > parameters:
            return None
        name = _NAME.match(statement, behind_angle_brackets(statement, result.end()))
        if name:
            return name.group(1), result.start()
    return None


def awaitables(code):
    """(name with its classes, position) of each public one; `code` is without comments."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda line: " " * len(line.group()), code,
                  flags=re.MULTILINE)
    found, scopes, position, start, hidden = [], [], 0, 0, 0
    while position < len(code):
        character = code[position]
        access = _ACCESS.match(code, start) if position == start else None
        if access:
            if scopes:
                scopes[-1][1] = access.group(1) == "public"
            position = start = access.end()
            continue
        if character in ";{}":
            statement = code[start:position]
            visible = all(public for _, public, _ in scopes) and hidden == 0
            declared = awaitable_in(statement) if visible and character != "}" else None
            if declared:
                classes = [name for name, _, is_class in scopes if is_class]
                found.append(("::".join(classes + [declared[0]]), start + declared[1]))
            if character == "{":
                scope = _SCOPE.match(statement.strip())
                if scope and hidden == 0:
                    kind, name = scope.groups()
                    internal = kind == "namespace" and name.split("::")[-1] == "internal"
                    scopes.append([name, kind != "class" and not internal, kind != "namespace"])
                else:  # a body, an initializer, an enum
                    hidden += 1
            elif character == "}":
                if hidden > 0:
                    hidden -= 1
                elif scopes:
                    scopes.pop()
            start = position + 1
        position += 1
    return found


def declared_in(root):
    """{name: [place of each declaration]}"""
    declared = {}
    for path in source_tree.files(root, ".h"):
        folders = path.split(os.sep)[:-1]
        if path not in HEADERS and (not folders or folders[0] not in FOLDERS):
            continue
        if "internal" in folders or arrows.room_of(path):
            continue
        code = source_tree.code_of(source_tree.read(root, path))
        for name, position in awaitables(code):
            place = f"{path}:{source_tree.line_of(code, position)}"
            declared.setdefault(name, []).append(place)
    return declared


def tested_in(root):
    """{name: [place of each test]}"""
    tested = {}
    for path in source_tree.files(root, "_test.cc"):
        if os.path.dirname(path) != TESTS:
            continue
        text = source_tree.read(root, path)
        for entry in _TABLE_ENTRY.finditer(text):
            place = f"{path}:{source_tree.line_of(text, entry.start())}"
            tested.setdefault(entry.group(1), []).append(place)
    return tested


def check(root):
    declared, tested = declared_in(root), tested_in(root)
    findings = []
    for name, places in sorted(declared.items()):
        tests = tested.get(name, [])
        if not tests:
            findings.append(f"{places[0]}: no cancellation test destroys {name}")
        elif len(tests) < len(places):
            findings.append(f"{places[0]}: {name} is declared {len(places)} times, "
                            f"{len(tests)} cancellation tests destroy it")
    for name in sorted(set(tested) - set(declared)):
        findings.append(f"{tested[name][0]}: there is no awaitable {name}")
    return findings


if __name__ == "__main__":
    sys.exit(source_tree.main(check, "awaitables to test"))
