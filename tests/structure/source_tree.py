"""The repository's source files, and their code without comments and strings."""

import os
import re
import sys

SKIPPED_FOLDERS = {"build", ".git", "__pycache__"}
CXX_SUFFIXES = (".h", ".cc")

_TOKEN = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | R"(?P<tag>[^()\s\\]*)\(.*?\)(?P=tag)" |
        "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+'(?!\w)""",
    re.DOTALL | re.VERBOSE)


def files(root, suffixes):
    """Paths relative to root, sorted, of the files that end so; '' is every file."""
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(
            name for name in subfolders
            if name not in SKIPPED_FOLDERS and not os.path.islink(os.path.join(folder, name)))
        for name in names:
            if name.endswith(suffixes):
                found.append(os.path.relpath(os.path.join(folder, name), root))
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def code_of(text):
    """C++ text with comments and literals blanked out; every line keeps its number.

    The file name of an #include stays, because it is what some rules are about.
    """

    def blank(match):
        token = match.group()
        if token[0] == '"' or token[0] == "R":
            line_start = text.rfind("\n", 0, match.start()) + 1
            if re.match(r"\s*#\s*include\b", text[line_start:match.start()]):
                return token
            return '""' + "\n" * token.count("\n")
        if token[0] == "'":
            return "0"
        return " " + "\n" * token.count("\n")

    return _TOKEN.sub(blank, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def main(check, what):
    """Runs check(root), prints its findings, and gives the exit status.

    Without an argument the root is that of the tree in which this file is.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(here))
    findings = check(root)
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} {what}")
    return 1 if findings else 0
