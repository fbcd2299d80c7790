"""What ./test runs of the products (program x way x shape) has every pair that the whole product has.

Goes by the tests as ctest knows them, not by what cmake/CoveringArray.cmake meant to do. MULTIGRAIN_TEST_BUILD is the build
directory, MULTIGRAIN_TEST_CTEST the ctest to ask.
"""

import itertools
import json
import os
import pathlib
import subprocess
import unittest

LEFT_OUT = {"full", "long"}


def pairs(values):
    """The pairs of a row: two factors, by their positions, and a value of each."""
    return set(itertools.combinations(enumerate(values), 2))


def uncovered(rows, chosen):
    """The pairs of rows (test -> values) that no row of the tests in chosen has."""
    wanted = set().union(*map(pairs, rows.values()))
    return wanted.difference(*(pairs(rows[test]) for test in chosen))


def labels_of_tests():
    listing = subprocess.run([os.environ["MULTIGRAIN_TEST_CTEST"], "--show-only=json-v1"], check=True, text=True,
                             stdout=subprocess.PIPE, cwd=os.environ["MULTIGRAIN_TEST_BUILD"]).stdout
    return {test["name"]: {label for each in test.get("properties", []) if each["name"] == "LABELS" for label in each["value"]}
            for test in json.loads(listing)["tests"]}


class Covering(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.labels = labels_of_tests()
        cls.arrays = {}
        for file in sorted(pathlib.Path(os.environ["MULTIGRAIN_TEST_BUILD"], "covering").glob("*.txt")):
            lines = [line.split("|") for line in file.read_text(encoding="utf-8").splitlines() if line]
            cls.arrays[file.stem] = {test: values for test, *values in lines}

    def chosen(self, rows):
        return [test for test in rows if not self.labels[test] & LEFT_OUT]

    def test_there_are_the_programs_and_the_workloads(self):
        self.assertLessEqual({"programs", "workloads"}, self.arrays.keys())

    def test_every_row_is_a_test(self):
        for name, rows in self.arrays.items():
            self.assertEqual(rows.keys() - self.labels.keys(), set(), name)

    def test_every_pair_is_covered(self):
        for name, rows in self.arrays.items():
            with self.subTest(name):
                self.assertEqual(uncovered(rows, self.chosen(rows)), set())

    def test_what_is_left_out_is_full_and_not_lost(self):
        for name, rows in self.arrays.items():
            left_out = rows.keys() - set(self.chosen(rows))
            self.assertEqual([test for test in left_out if "full" not in self.labels[test]], [], name)
            print(f"    {name}: {len(rows) - len(left_out)} of {len(rows)} tests")

    def test_a_row_that_is_missed_is_noticed(self):
        # Every row that was chosen has a pair of its own or could be spared; some have one.
        for name, rows in self.arrays.items():
            chosen = self.chosen(rows)
            needed = [test for test in chosen if uncovered(rows, [other for other in chosen if other != test])]
            self.assertTrue(needed, name)


if __name__ == "__main__":
    unittest.main()
