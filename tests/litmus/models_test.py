#!/usr/bin/env python3
"""What the models say of tests whose verdicts are in the literature, and that the text formats are read as they are written."""

from __future__ import annotations

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import cycles
import herd_text
import models

ALL = {(test.language, test.name): test for test in cycles.tests()}


def shows(language: str, name: str) -> bool:
    """Whether the model allows what sequential consistency does not."""
    test = ALL[language, name]
    allowed = models.c11(test) if language == "C" else models.tso(test)
    return bool(allowed - models.sequential(test))


class Models(unittest.TestCase):
    def test_c11(self):
        for name, weak in {
            "SB+relaxed": True, "SB+acquire-release": True, "SB+seq_cst": False, "SB+fence": False, "SB+weak-fence": True,
            "MP+relaxed": True, "MP+acquire-release": False, "MP+weak-fence": False, "MP+mixed": False,
            "LB+relaxed": False,  # RC11 has no values out of thin air
            "IRIW+acquire-release": True, "IRIW+fence": False, "IRIW+seq_cst": False,
            "WRC+relaxed": True, "WRC+acquire-release": False, "ISA2+acquire-release": False, "RWC+acquire-release": True,
            "2+2W+relaxed": True, "2+2W+acquire-release": True, "2+2W+seq_cst": False, "R+acquire-release": True, "R+seq_cst": False,
        }.items():
            with self.subTest(name):
                self.assertEqual(shows("C", name), weak)

    def test_x86(self):
        for name, weak in {
            "SB+po": True, "SB+mfence": False, "MP+po": False, "LB+po": False, "IRIW+po": False, "R+po": True, "R+mfence": False,
            "2+2W+po": False, "RWC+po": True, "WRC+po": False,
        }.items():
            with self.subTest(name):
                self.assertEqual(shows("X86", name), weak)

    def test_models_contain_each_other(self):
        for test in ALL.values():
            sequential = models.sequential(test)
            self.assertTrue(sequential)
            self.assertLessEqual(sequential, models.c11(test) if test.language == "C" else models.tso(test))

    def test_the_condition_is_what_sequential_consistency_forbids(self):
        for test in ALL.values():
            wanted = {}
            for clause in test.condition.removeprefix("exists (").removesuffix(")").split(" /\\ "):
                name, value = clause.split("=")
                wanted[name.strip("[]")] = int(value)
            names = [f"{t}:{r}" for t, r in test.registers()] + test.variables()
            for outcome in models.sequential(test):
                values = dict(zip(names, outcome))
                self.assertFalse(all(values[n] == v for n, v in wanted.items()), herd_text.write(test))


class Texts(unittest.TestCase):
    def test_all_are_read_as_they_are_written(self):
        for test in ALL.values():
            self.assertEqual(herd_text.parse(herd_text.write(test)).threads, test.threads)

    def test_what_is_not_run_says_why(self):
        for text, why in {
            "AArch64 MP\n{}\nP0;\n": "language", "C x\n{}\nP0(int* x){\n *x = 1;\n}\nP1(int* x){\n}\n": "statement",
            "X86 x\n{}\n P0 | P1 ;\n XCHG [x],EAX | ;\n": "instruction", "C x\n{ x = y; }\n": "initial state", "": "no head",
        }.items():
            with self.subTest(why), self.assertRaisesRegex(herd_text.NotApplicable, why):
                herd_text.parse(text)

    def test_a_text_as_people_write_it(self):
        test = herd_text.parse(
            'C MP\n"a comment"\n{ x = 0; y = 0; }\nP0(atomic_int* x, atomic_int* y) {\n  atomic_store(x, 1); (* first *)\n'
            "  atomic_store_explicit(y,1,memory_order_release);\n}\nP1(atomic_int* y, atomic_int* x) {\n"
            "  int r0 = atomic_load_explicit(y,memory_order_acquire);\n  int r1 = atomic_load(x);\n}\nexists (1:r0=1 /\\ 1:r1=0)\n"
        )
        self.assertEqual(test.registers(), [(1, "r0"), (1, "r1")])
        self.assertEqual(models.c11(test), models.sequential(test))


if __name__ == "__main__":
    unittest.main()
