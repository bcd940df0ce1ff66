#!/usr/bin/env python3
"""Checks that what the documents name exists, and that docs/README.md names every document.

In Markdown: the targets of relative links, and each word in backticks that looks like a path of
the repository (its first part is one of the folders). In C++ comments: each docs/NAME.md. Also
that sentences are short (sentences.py), and that docs/operating.md has a row for each code of the
error table.

usage: documents.py [ROOT]
"""

import glob
import os
import re
import sys

import sentences
import source_tree

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE = re.compile(r"`([^`\n]+)`|^(?: {4}|\t)\s*(\S.*)$", re.MULTILINE)
DOCUMENT = re.compile(r"\bdocs/[\w-]+\.md\b")
INDEX = os.path.join("docs", "README.md")
ERRORS = os.path.join("base", "result.h")
ERROR_CODE = re.compile(r"^  k(\w+),  // ", re.MULTILINE)
OPERATING = os.path.join("docs", "operating.md")


def folders_of(root):
    return {name for name in os.listdir(root)
            if os.path.isdir(os.path.join(root, name)) and name not in source_tree.SKIPPED_FOLDERS}


def paths_in(text, folders):
    """(position, path) of each word that looks like a path of the repository."""
    for code in CODE.finditer(text):
        group = 1 if code.group(1) else 2
        for word in re.finditer(r"[\w./*-]+", code.group(group)):
            before = code.group(group)[:word.start()][-1:]
            path = word.group().rstrip(".")
            if "/" in path and path.split("/", 1)[0] in folders and before not in ("<", "$", "/"):
                yield code.start(group) + word.start(), path


def codes_without_a_row(root):
    if not os.path.exists(os.path.join(root, ERRORS)):
        return []
    rows = source_tree.read(root, OPERATING)
    return [f"{OPERATING}: has no row for the error {code}"
            for code in ERROR_CODE.findall(source_tree.read(root, ERRORS))
            if f"\n| {code} | " not in rows]


def check(root):
    findings, folders = [], folders_of(root)
    for path in source_tree.files(root, ".md"):
        text = source_tree.read(root, path)

        def report(position, why):
            findings.append(f"{path}:{source_tree.line_of(text, position)}: {why}")

        for position, named in paths_in(text, folders):
            if not glob.glob(os.path.join(root, named)):
                report(position, f"there is no {named}")
        for link in LINK.finditer(text):
            if "://" not in link.group(1) and not os.path.exists(
                    os.path.join(root, os.path.dirname(path), link.group(1))):
                report(link.start(), f"the link to {link.group(1)} leads nowhere")
    for path in source_tree.files(root, source_tree.CXX_SUFFIXES):
        text = source_tree.read(root, path)
        for named in DOCUMENT.finditer(text):
            if not os.path.exists(os.path.join(root, named.group())):
                line = source_tree.line_of(text, named.start())
                findings.append(f"{path}:{line}: there is no {named.group()}")
    index = source_tree.read(root, INDEX) if os.path.exists(os.path.join(root, INDEX)) else ""
    for path in source_tree.files(root, ".md"):
        name = os.path.basename(path)
        if os.path.dirname(path) == "docs" and path != INDEX and f"({name})" not in index:
            findings.append(f"{INDEX}: does not name {name}")
    return findings + sentences.check(root) + codes_without_a_row(root)


if __name__ == "__main__":
    sys.exit(source_tree.main(check, "things to mend in the documents"))
