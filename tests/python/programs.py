"""Runs programs of a test under mgrun, or without it."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

BIN = os.environ["MULTIGRAIN_TEST_BIN"]


class ProgramTest(unittest.TestCase):
    """A test whose programs are texts; each is a file of its own."""

    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="multigrain-python-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, text, name="program.py"):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(textwrap.dedent(text))
        return path

    def start(self, words, environment=None, **options):
        own = {**os.environ, **(environment or {})}
        return subprocess.run(words, env=own, capture_output=True, text=True, timeout=300, cwd=self.folder, **options)

    def mgrun(self, text, nodes=2, per_node=1, options=(), python=(sys.executable,), arguments=(), **others):
        """Runs the program on the nodes, and returns how it ended."""
        run = (os.path.join(BIN, "mgrun"), "-n", str(nodes), "-c", str(per_node), *options, "--", *python)
        return self.start((*run, self.file(text), *arguments), **others)

    def output_of(self, text, *arguments, **options):
        """The same for a program that must end well; returns what it printed."""
        ended = self.mgrun(text, *arguments, **options)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""), ended.stdout)
        return ended.stdout


# Machines of one node, of nodes of one processor, and of nodes of several.
MACHINES = ((1, 2), (3, 1), (2, 2))
