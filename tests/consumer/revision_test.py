#!/usr/bin/env python3
"""usage: revision_test.py SOURCE: what tools/cli/revision.cmake says, wherever
the sources are from."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = ""
GIT = ("git", "-c", "user.name=test", "-c", "user.email=test@example.org")


def run(*command, folder):
    return subprocess.run(command, cwd=folder, timeout=300, check=True, capture_output=True,
                          text=True).stdout


class Revision(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="pmstore-revision.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.tree = os.path.join(self.folder, "tree")
        os.makedirs(os.path.join(self.tree, "tools/cli"))
        for name in (".gitattributes", "tools/cli/revision.txt", "tools/cli/revision.cmake"):
            shutil.copy(os.path.join(SOURCE, name), os.path.join(self.tree, name))
        # As in a repository, also where these sources are from an archive.
        text = os.path.join(self.tree, "tools/cli/revision.txt")
        with open(text, "w", encoding="utf-8") as file:
            file.write("$Format:%H$\n")
        self.commit(self.tree)
        self.head = run("git", "rev-parse", "HEAD", folder=self.tree)[:12]

    def commit(self, folder):
        run("git", "init", "-q", folder=folder)
        run(*GIT, "add", ".", folder=folder)
        run(*GIT, "commit", "-q", "-m", "all", folder=folder)

    def said_of(self, tree):
        """(kRevision, kVersion)"""
        output = os.path.join(self.folder, "revision.cc")
        run("cmake", "-DSOURCE=" + tree, "-DVERSION=1.2.3", "-DOUTPUT=" + output, "-P",
            os.path.join(tree, "tools/cli/revision.cmake"), folder=self.folder)
        with open(output, encoding="utf-8") as file:
            return tuple(line.split('"')[1] for line in file if "tools::k" in line)

    def test_a_repository_names_its_commit_and_that_files_differ(self):
        self.assertEqual(self.said_of(self.tree), (self.head, f"1.2.3 (revision {self.head})"))
        with open(os.path.join(self.tree, ".gitattributes"), "a", encoding="utf-8") as file:
            file.write("# changed\n")
        self.assertEqual(self.said_of(self.tree)[0], self.head + "-changed")

    def test_an_archive_names_the_commit_that_it_was_made_of(self):
        # In a folder of another repository, as packagers have it.
        outer = os.path.join(self.folder, "outer")
        archive = os.path.join(self.folder, "pmstore.tar")
        run("git", "archive", "--prefix=outer/pmstore/", "-o", archive, "HEAD", folder=self.tree)
        run("tar", "-xf", archive, folder=self.folder)
        self.commit(outer)
        self.assertEqual(self.said_of(os.path.join(outer, "pmstore")),
                         (self.head, f"1.2.3 (revision {self.head})"))

    def test_a_copy_in_another_repository_has_a_version_only(self):
        shutil.rmtree(os.path.join(self.tree, ".git"))
        self.commit(self.folder)
        self.assertEqual(self.said_of(self.tree), ("unknown", "1.2.3"))


if __name__ == "__main__":
    SOURCE = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
