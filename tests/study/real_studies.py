"""Runs mgstudy with mgrun and the workloads themselves, for the tests that do."""

import json
import os
import subprocess
import tempfile
import unittest

BIN = os.environ["MULTIGRAIN_TEST_BIN"]


class RealStudies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="multigrain-study-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name

    def study(self, kind, program, *options):
        result = subprocess.run(
            [
                f"{BIN}/mgstudy",
                kind,
                "-p",
                "8",
                *options,
                "-q",
                "--no-report",
                "--json",
                "-",
                "--",
                f"{BIN}/workloads/{program[0]}",
                *program[1:],
            ],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=1500,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)
