"""What the scripts that repeat a paper's figures in counted time share (study/paper_study.py)."""

import argparse
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "study"))

import paper_study

MACHINES = Path(paper_study.MACHINES)


class Study(paper_study.CountedStudy):
    machine = "alewife"


class ChangedMachines(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.study = Study(argparse.Namespace(out=self.folder, jobs=3, skew=None))
        self.original = json.loads((MACHINES / "alewife.json").read_text("utf-8"))

    def test_instructions_and_calls_are_slower_and_nothing_else_changes(self):
        path = self.study.slowed_machine("water", 2.5)
        slow = json.loads(Path(path).read_text("utf-8"))
        self.assertEqual((slow["name"], Path(path).name), ("alewife-water", "alewife-water.json"))
        self.assertIn("2.5 times", slow["what"])
        processor, original = slow["processor"], self.original["processor"]
        self.assertEqual(processor["instructions"]["load"], 2.5 * original["instructions"]["load"])
        # A price that has a source of its own, and one that has parts.
        self.assertEqual(processor["instructions"]["float_add"]["value"], 2.5 * original["instructions"]["float_add"]["value"])
        self.assertEqual(processor["instructions"]["float_add"]["source"], original["instructions"]["float_add"]["source"])
        self.assertEqual(processor["calls"]["memcpy"]["per_byte"], 2.5 * original["calls"]["memcpy"]["per_byte"])
        self.assertEqual(processor["calls"]["unit"], original["calls"]["unit"])
        for part in ("clock", "translation"):
            self.assertEqual(processor[part], original[part])
        for part in ("network", "costs"):
            self.assertEqual(slow[part], self.original[part])

    def test_a_changed_machine_can_be_changed_again(self):
        def free(description):
            description["costs"]["transition"]["value"] = 0

        slow = self.study.slowed_machine("water", 2)
        both = json.loads(Path(self.study.changed_machine("both", "what", free, slow)).read_text("utf-8"))
        self.assertEqual(both["costs"]["transition"]["value"], 0)
        self.assertEqual(
            both["processor"]["instructions"]["store"], 2 * self.original["processor"]["instructions"]["store"]
        )

    def test_a_run_says_a_skew_only_if_one_is_given(self):
        self.assertEqual(self.study.how(), ["--jobs", "3"])
        self.study.options.skew = "1ms"
        self.assertEqual(self.study.how(), ["--jobs", "3", "--skew", "1ms"])


if __name__ == "__main__":
    unittest.main()
