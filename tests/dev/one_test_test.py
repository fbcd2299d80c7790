"""tools/dev/test: what a name stands for, seeds, and what is said of failures. In a build directory of its own, with a program that
is a shell script in the place of a GoogleTest program."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "dev" / "test"

# Prints the cases that it was asked for. Fails with odd seeds if it is asked for the case Fails.
PROGRAM = """#!/bin/sh
echo "arguments: $*, seed $MULTIGRAIN_TEST_SEED, variable $OF_CTEST"
case "$*" in *Fails*) exit $((MULTIGRAIN_TEST_SEED % 2)) ;; esac
"""

CTEST = """
add_test([=[some_test.Suite.Holds]=] {program} --gtest_filter=Suite.Holds)
add_test([=[some_test.Suite.Fails]=] {program} --gtest_filter=Suite.Fails)
set_tests_properties([=[some_test.Suite.Holds]=] [=[some_test.Suite.Fails]=] PROPERTIES ENVIRONMENT OF_CTEST=set)
add_test(run_2x2 sh -c "echo wrong; exit 3")
set_tests_properties(run_2x2 PROPERTIES PASS_REGULAR_EXPRESSION wrong)
add_test(run_4x1 false)
"""


class OneTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="multigrain-one-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.build = pathlib.Path(folder.name)
        program = cls.build / "bin" / "tests" / "some_test"
        program.parent.mkdir(parents=True)
        program.write_text(PROGRAM, encoding="utf-8")
        program.chmod(0o755)
        (cls.build / "CTestTestfile.cmake").write_text(CTEST.format(program=program), encoding="utf-8")

    def tool(self, *arguments):
        return subprocess.run([sys.executable, str(TOOL), "--build", str(self.build), *arguments], check=False, text=True,
                              capture_output=True, timeout=600,
                              env={name: value for name, value in os.environ.items() if not name.startswith("MULTIGRAIN_TEST")})

    def test_a_program_is_run_with_all_its_cases(self):
        result = self.tool("some_test", "--seed", "5")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("arguments: , seed 5, variable set", result.stdout)

    def test_a_test_of_ctest_and_a_case_are_that_case(self):
        for name in ("some_test.Suite.Holds", "Suite.Holds", "Suite.H*"):
            with self.subTest(name):
                result = self.tool(name, "--seed", "5")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertRegex(result.stdout, r"arguments: --gtest_filter=Suite\.H\S*, seed 5, variable set")

    def test_a_failure_is_named_with_its_seed_and_how_to_repeat_it(self):
        result = self.tool("Suite.Fails", "--repeat", "4", "--seed", "10")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(re.findall(r"failed with seed (\d+)", result.stdout), ["11", "13"])
        self.assertIn("tools/dev/test Suite.Fails --seed 11", result.stdout)
        again = self.tool("Suite.Fails", "--seed", "11")
        self.assertEqual(again.returncode, 1)
        self.assertEqual(self.tool("Suite.Fails", "--seed", "12").returncode, 0)

    def test_until_fail_stops(self):
        result = self.tool("Suite.Fails", "--repeat", "100", "--seed", "10", "--until-fail")
        self.assertEqual(re.findall(r", seed (\d+):", result.stdout), ["10", "11"])

    def test_ctest_judges_by_output(self):
        self.assertEqual(self.tool("run_2x2").returncode, 0)
        self.assertEqual(self.tool("run_4x1").returncode, 1)
        part = self.tool("run_")
        self.assertEqual(part.returncode, 1)
        self.assertIn("run_2x2, seed", part.stdout)
        self.assertIn("run_4x1 failed with seed", part.stdout)

    def test_without_a_seed_one_is_chosen_and_printed(self):
        seeds = {re.search(r", seed (\d+):", self.tool("some_test").stdout).group(1) for _ in range(2)}
        self.assertEqual(len(seeds), 2)

    def test_mistakes_are_told(self):
        result = self.tool("nosuch")
        self.assertEqual(result.returncode, 2)
        self.assertIn("no test, program or case is called 'nosuch'", result.stderr)
        self.assertEqual(self.tool("some_test", "--repeat", "0").returncode, 2)
        self.assertEqual(self.tool("some_test", "--build", "/nonexistent").returncode, 2)
        self.assertIn("--until-fail", self.tool("--help").stdout)


if __name__ == "__main__":
    unittest.main()
