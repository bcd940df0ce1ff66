#!/usr/bin/env python3
"""Copies product sources with mutants built in, and writes the table of them.

usage: make_mutants.py ROOT LIST OUTPUT
       make_mutants.py ROOT LIST --stale   only say which are stale; exit status 1 if one is

LIST is mutants.txt or another such list, which says what is mutated. In addition every flush(),
drain() and write() of persistent memory in a file with "barriers FILE" is a mutant: the call is
left out (of a write: its flush). A mutant whose source text has changed is stale: the program that
runs the list then fails, so that the list cannot rot, and the build does not.
"""

import os
import re
import sys

CALL = re.compile(r"(?<![\w.>)])((?:\w+(?:\(\))?(?:\.|->))*(?:memory_?(?:\(\))?)(?:\.|->)"
                  r"(flush|drain|write|write_non_temporal|write_part|write_part_summed|"
                  r"write_fresh_part))\(")
FUNCTION = re.compile(r"^(?:  )?[A-Za-z][\w:<>*&, ]* [*&]?(?:\w+::)*(~?\w+)\(.*[{,]$")


class ListError(Exception):
    pass


def parse(text):
    """The list as [(kind, name or file, fields)]; fields: file, redundant, tests, edits."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line[0] in "<>":
            edits = entries[-1][2]["edits"]
            if line[0] == "<" and (not edits or edits[-1][1]):
                edits.append(([], []))
            edits[-1][line[0] == ">"].append(line[2:])
            continue
        word, _, rest = line.partition(" ")
        if word in ("barriers", "scenarios", "mutant", "plumbing", "redundant", "open", "long"):
            entries.append((word, rest.strip(),
                            {"edits": [], "file": None, "redundant": None, "tests": None}))
        elif word in ("file", "because", "tests"):
            fields = entries[-1][2]
            key = {"file": "file", "because": "redundant", "tests": "tests"}[word]
            fields[key] = (fields[key] + " " if fields[key] and key == "redundant" else "") + rest
        else:
            raise ListError(f"line {number}: {word}: not a word of the list")
    return entries


def closing(text, at):
    """The position behind the parenthesis that closes the one at `at`."""
    depth = 0
    for position in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    raise ListError("a parenthesis is not closed")


def function_at(text, position):
    for line in reversed(text[:position].splitlines()):
        found = FUNCTION.match(line)
        if found:
            return found.group(1)
    return "file"


class Mutator:
    def __init__(self, root):
        self.root, self.sources, self.mutants, self.counts = root, {}, [], {}
        self.stale, self.open, self.long, self.scenarios = set(), set(), set(), []

    def source(self, path):
        if path not in self.sources:
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                self.sources[path] = file.read()
        return self.sources[path]

    def edit(self, path, old, new, name):
        source = self.source(path)
        if source.count(old) != 1:
            self.stale.add(name)
            return
        self.sources[path] = source.replace(old, new)

    def add(self, name, path, redundant=None, tests=None):
        near = [names for prefix, names in self.scenarios if (path or "").startswith(prefix)]
        self.mutants.append((name, redundant, tests or (near[0] if near else "")))
        return len(self.mutants) - 1

    def barriers(self, path, stem):
        source, at = self.source(path), 0
        while True:
            found = CALL.search(source, at)
            if not found:
                break
            begin = found.start(1)
            line = source[source.rfind("\n", 0, begin) + 1:begin]
            if "//" in line:
                at = found.end()
                continue
            end = closing(source, found.end() - 1)
            name = f"{stem}.{function_at(source, begin)}.{found.group(2)}"
            self.counts[name] = self.counts.get(name, 0) + 1
            if self.counts[name] > 1:
                name += str(self.counts[name])
            number = self.add(name, path)
            wrapped = f"(::pmstore::mutation::arm({number}), {source[begin:end]})"
            source = source[:begin] + wrapped + source[end:]
            at = begin + len(wrapped)
        self.sources[path] = source

    def run(self, entries):
        for kind, name, fields in entries:
            if kind == "scenarios":
                self.scenarios.append(tuple(name.split(" ", 1)))
            elif kind == "mutant":
                number = self.add(name, fields["file"], fields["redundant"], fields["tests"])
                for old, new in fields["edits"]:
                    text = "\n".join(new).replace("MUTANT", f"::pmstore::mutation::is({number})")
                    self.edit(fields["file"], "\n".join(old), text, name)
            elif kind == "plumbing":
                for old, new in fields["edits"]:
                    self.edit(fields["file"], "\n".join(old), "\n".join(new), name)
        for kind, name, _ in entries:
            if kind == "barriers":
                path, _, stem = name.partition(" as ")
                self.barriers(path, stem or os.path.splitext(os.path.basename(path))[0])
        names = [name for name, _, _ in self.mutants]
        for kind, name, fields in entries:
            if kind in ("open", "long"):
                (self.open if kind == "open" else self.long).add(name)
                if name not in names:
                    self.stale.add(name)
                    self.add(name, None)
            if kind == "redundant":
                if name not in names:
                    self.stale.add(name)
                    self.add(name, None)
                    continue
                at = names.index(name)
                self.mutants[at] = (name, fields["redundant"], self.mutants[at][2])


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def quoted(text):
    return "nullptr" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def flag(value):
    return "true" if value else "false"


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    root, listed, output = sys.argv[1:]
    mutator = Mutator(root)
    with open(listed, encoding="utf-8") as file:
        mutator.run(parse(file.read()))
    if output == "--stale":
        for name in sorted(mutator.stale):
            print(f"STALE         {name}: change {os.path.relpath(listed, root)} with the source")
        sys.exit(1 if mutator.stale else 0)
    for path, source in mutator.sources.items():
        include = '#include "tests/crash/mutants/mutation.h"\n'
        write(os.path.join(output, path), include + source)
    plumbing = [(name, None, "") for name in sorted(mutator.stale)
                if name not in [mutant[0] for mutant in mutator.mutants]]
    rows = "".join(f"    {{{quoted(name)}, {quoted(why)}, {quoted(near)}, "
                   f"{flag(name in mutator.stale)}, {flag(name in mutator.open)}, "
                   f"{flag(name in mutator.long)}}},\n"
                   for name, why, near in mutator.mutants + plumbing)
    write(os.path.join(output, "mutant_table.cc"),
          '#include "tests/crash/mutants/mutation.h"\n\nnamespace pmstore::mutation {\n\n'
          "std::span<const Mutant> mutants() {\n  static constexpr Mutant kAll[] = {\n" + rows +
          "  };\n  return kAll;\n}\n\n}  // namespace pmstore::mutation\n")
    for path in mutator.sources:
        print(path)


try:
    main()
except ListError as error:
    sys.exit(f"make_mutants.py: {error}")
