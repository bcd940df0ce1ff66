#!/usr/bin/env python3
"""Checks sizes: lines of at most 100 columns, files of 500 lines, C++ functions of 70.

What is over a limit today is listed in tidy_ratchet.txt and may not grow; an entry that is no
longer needed must go.

usage: tidy.py [ROOT]
"""

import os
import re
import sys

import source_tree

MOST_COLUMNS = 100
MOST_FILE_LINES = 500
MOST_FUNCTION_LINES = 70
RATCHET = os.path.join("tests", "structure", "tidy_ratchet.txt")
SUFFIXES = (".h", ".cc", ".py", ".sh", ".cmake", "CMakeLists.txt")

_SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum|extern)\b")


def is_source(root, path):
    """Also scripts without a suffix."""
    if path.endswith(SUFFIXES):
        return True
    if "." in os.path.basename(path):
        return False
    with open(os.path.join(root, path), "rb") as file:
        return file.read(2) == b"#!"


def matching_brace(code, opening):
    depth = 0
    for position in range(opening, len(code)):
        if code[position] == "{":
            depth += 1
        elif code[position] == "}":
            depth -= 1
            if depth == 0:
                return position
    return len(code) - 1


def name_of(statement):
    """What is called the function whose head this is."""
    test = re.search(r"\bTEST(?:_[FP])?\s*\(\s*(\w+)\s*,\s*(\w+)", statement)
    if test:
        return f"{test.group(1)}.{test.group(2)}"
    named = re.search(r"(\w+)\s*=\s*\[", statement) or \
        re.search(r"((?:\w+::)*operator\s*[^\s\w(]+|~?[\w:]+)\s*\(", statement)
    return named.group(1) if named else "unnamed"


def functions(code):
    """(name, first line, last line) of every function body, those of classes included."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", code, flags=re.MULTILINE)
    found, position, start = [], 0, 0
    while position < len(code):
        character = code[position]
        if character in ";}":
            start = position + 1
        elif character == "{":
            statement = code[start:position]
            head = re.sub(r"template\s*<[^{]*?>\s*(?=class|struct|\w)", "", statement)
            is_function = "(" in statement and not _SCOPE.match(head.strip()) and \
                not statement.rstrip().endswith("=")
            if is_function:
                end = matching_brace(code, position)
                following = code[end + 1:].lstrip()[:1]
                if following not in (",", "{"):  # not the {} of a member in an initializer list
                    found.append((name_of(statement), source_tree.line_of(code, position),
                                  source_tree.line_of(code, end)))
                    start = end + 1
                position = end
            else:
                if not _SCOPE.search(statement):  # an initializer
                    position = matching_brace(code, position)
                start = position + 1
        position += 1
    return found


def over_limits(root):
    """What is too large: {(path, item): size}."""
    over = {}
    for path in source_tree.files(root, ""):
        if not is_source(root, path):
            continue
        text = source_tree.read(root, path)
        lines = text.splitlines()
        longest = max((len(line) for line in lines), default=0)
        if longest > MOST_COLUMNS:
            over[path, "columns"] = longest
        if len(lines) > MOST_FILE_LINES:
            over[path, "lines"] = len(lines)
        if path.endswith(source_tree.CXX_SUFFIXES):
            for name, first, last in functions(source_tree.code_of(text)):
                size = last - first + 1
                if size > MOST_FUNCTION_LINES:
                    over[path, name + "()"] = max(size, over.get((path, name + "()"), 0))
    return over


def known_exceptions(root):
    known = {}
    if not os.path.exists(os.path.join(root, RATCHET)):
        return known
    for line in source_tree.read(root, RATCHET).splitlines():
        if line and not line.startswith("#"):
            path, item, size = line.split()
            known[path, item] = int(size)
    return known


def check(root):
    over, known = over_limits(root), known_exceptions(root)
    findings = []
    for (path, item), size in sorted(over.items()):
        most = known.get((path, item))
        if most is None:
            findings.append(f"{path}: {item} {size}: over the limit")
        elif size > most:
            findings.append(f"{path}: {item} {size}: has grown from {most}")
    for path, item in sorted(set(known) - set(over)):
        findings.append(f"{RATCHET}: {path} {item}: no longer over the limit; remove the line")
    return findings


if __name__ == "__main__":
    sys.exit(source_tree.main(check, "sizes to mend"))
