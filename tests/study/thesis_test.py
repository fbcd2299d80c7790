"""What the script that repeats Bolosky's thesis computes by itself (study/thesis_study.py)."""

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "study"))

import placement_study as placement
import thesis_study as thesis


def processors(*each):
    """Facts of a trace whose processors have so many reads, writes and private references each."""
    return [{"reads": reads, "writes": writes, "private": private} for reads, writes, private in each]


class TimesTest(unittest.TestCase):
    def test_the_run_is_as_long_as_the_processor_that_ends_last(self):
        # The main thread makes 100 references, 80 of them before the others begin; of these, one makes 400.
        facts = {"alone": 80, "per_processor": processors((60, 40, 0), (200, 100, 100), (100, 100, 0))}
        self.assertEqual(thesis.lengths(facts), (700, 480))

    def test_a_main_thread_that_works_too_can_be_the_last(self):
        facts = {"alone": 80, "per_processor": processors((600, 0, 0), (300, 0, 0))}
        self.assertEqual(thesis.lengths(facts), (900, 600))

    def test_platinums_times_are_milliseconds_of_the_ace(self):
        # Two processors at work all the time, with reads alone and 55 % of the time for them: 0.55 / 0.65 us each.
        facts = {"alone": 0, "references": 2000, "per_processor": processors((1000, 0, 0), (1000, 0, 0))}
        t1, t2 = thesis.platinum_times("gauss", facts)
        self.assertEqual(t2, round(2 * 0.55 / 0.65 * 1e6))
        self.assertAlmostEqual(t1, t2 / 100, delta=1)

    def test_writes_take_longer_and_other_programs_refer_less_often(self):
        writes = {"alone": 0, "references": 2000, "per_processor": processors((0, 1000, 0), (0, 1000, 0))}
        self.assertEqual(thesis.platinum_times("matmult", writes)[1], round(2 * 0.26 / 0.84 * 1e6))

    def test_a_policy_gets_its_programs_times(self):
        self.assertEqual(thesis.with_times("ace", (10, 1000)), "ace")
        self.assertEqual(thesis.with_times("platinum:TIMES", (10, 1000)), "platinum:t1=10:t2=1000")
        self.assertEqual(thesis.with_times("platinum:TIMES*0.5", (10, 1000)), "platinum:t1=5:t2=500")


class MachinesTest(unittest.TestCase):
    def test_the_machines_of_figures_5_4_and_5_5_keep_the_fault(self):
        for machine, word, letter in (("ace", 2, "G"), ("butterfly", 3, "R")):
            made = list(thesis.variants(machine))
            values = [value for value, _ in made]
            self.assertEqual(values, sorted(values))
            self.assertEqual(values[0], 200)
            own = next(content for value, content in made if value == 200 + 1024 * word)
            self.assertEqual(own[letter], {"fixed": 200, "per_byte": word / 4})
            for value, content in made:
                cost = content[letter]
                self.assertEqual(value, cost["fixed"] + 4096 * cost["per_byte"])
                self.assertEqual(cost["fixed"], 1200 if value == values[-1] else 200)

    def test_a_remote_move_of_the_ace_costs_two_global_ones(self):
        for _, content in thesis.variants("ace"):
            self.assertEqual(content["R"], {key: 2 * cost for key, cost in content["G"].items()})


class SharesTest(unittest.TestCase):
    # What a policy saves, what optimal saves, how far perturbations move the policy's cost: a program that gains much, and
    # one where there is hardly anything to gain.
    EACH = [(0.6, 0.8, 0.04), (-0.1, 0.05, 0.0)]

    def test_the_two_means_are_different_things(self):
        self.assertEqual(thesis.ratio_of_sums(self.EACH), "59 %")  # 0.5 / 0.85
        self.assertEqual(thesis.mean_of_ratios(self.EACH), "-62 %")  # (75 - 200) / 2
        self.assertEqual(thesis.mean_of_ratios(self.EACH, 0.1), "75 %")
        self.assertEqual(thesis.shift(self.EACH), "± 5 %")  # 0.04 / 0.85


class Table31Test(unittest.TestCase):
    def test_what_is_not_local_is_global_or_remote(self):
        result = {"parts": {"local": 70, "global": 20, "remote": 10, "global_moves": 5, "remote_moves": 5}}
        self.assertEqual(thesis.alpha(result), 0.7)

    def test_the_thesiss_own_rows_are_those_of_equation_3_2(self):
        # As far as two digits of alpha, beta and G/L let them be.
        for name, (alpha, beta, gamma, ratio) in thesis.TABLE_3_1.items():
            with self.subTest(program=name):
                self.assertAlmostEqual(thesis.expansion(alpha or 0.0, beta, ratio), gamma, delta=0.035)

    def test_its_programs_are_those_of_the_later_chapters_or_have_a_trace_of_their_own(self):
        self.assertEqual(set(thesis.TABLE_3_1), set(thesis.CHAPTER_3) | {"matmult", "e-fft", "gauss"})


class RunsOfChapter3Test(unittest.TestCase):
    def run_of(self, references, writes, local, decisions=0, moves=0):
        """What mgtrace analyze --decisions says of a run of which so many references are local, reads first."""
        parts = {"local": local, "global": references - local, "remote": 0, "global_moves": 0, "remote_moves": moves}
        return {
            "private_references": 0,
            "global_references": references - local,
            "global_writes": min(writes, references - local),
            "decisions": decisions,
            "machines": [{"placements": [{"parts": parts}] * 3}],
        }

    def test_equations_3_1_to_3_5(self):
        class Study:
            def run(self, _, policy):
                return numa if policy == "ace" else everywhere

            def local_seconds(self, _):
                return 4.0

        # Two million reads take 1.3 s where all memory is local, and 1.7 s more where it is global; a quarter is.
        numa = self.run_of(2_000_000, 0, 1_500_000, decisions=10, moves=3)
        everywhere = self.run_of(2_000_000, 0, 0, decisions=2)
        values = placement.measure(Study(), "Gfetch")
        self.assertAlmostEqual(values["t_global"], 5.7)
        self.assertAlmostEqual(values["t_numa"], 4.425)
        self.assertAlmostEqual(values["alpha"], 0.75)
        self.assertAlmostEqual(values["counted_alpha"], 0.75)
        # G/L is 2.3, and 1.3 of 4 seconds are references.
        self.assertAlmostEqual(values["beta"], 1.3 / 4, delta=0.005)
        self.assertAlmostEqual(values["gamma"], thesis.expansion(values["alpha"], values["beta"], 2.3))
        self.assertAlmostEqual(values["s_numa"] - values["s_global"], (8 * 200 + 3 * 2048) * 0.7355e-6)

    def test_a_store_to_global_memory_takes_less_longer_than_a_fetch(self):
        self.assertAlmostEqual(placement.seconds_of_global_references(self.run_of(1_000_000, 1_000_000, 0)), 0.56)
        self.assertAlmostEqual(placement.seconds_of_global_references(self.run_of(1_000_000, 0, 0)), 0.85)

    def test_its_thesis_is_the_same_as_that_of_the_traces(self):
        for name, (alpha, beta, gamma, ratio) in thesis.TABLE_3_1.items():
            self.assertEqual(placement.THEIRS[name][:3], (alpha, beta, gamma))
            self.assertEqual(placement.PROGRAMS[name][2], ratio)


class ProgramsTest(unittest.TestCase):
    def test_pieces_are_whole_pages_where_the_thesis_says_so(self):
        for name, element, row in (("bsort", 4, 1), ("kmerge", 4, 1), ("gauss", 4, 512)):
            words = thesis.PROGRAMS[name].arguments.split()
            given = dict(zip(words[::2], words[1::2]))
            size, threads = int(given["--size"]), int(given["--threads"])
            self.assertEqual(size % threads, 0, name)
            self.assertEqual(size // threads * row * element % 4096, 0, name)

    def test_every_program_has_its_figures_of_the_thesis(self):
        for name, program in thesis.PROGRAMS.items():
            for of in (thesis.TABLE_2_1, thesis.TABLE_4_1, thesis.TABLE_6_4):
                self.assertIn(program.theirs, of, name)
        for name, (of, _, _) in thesis.EXPERIMENTS.items():
            self.assertIn(of, thesis.PROGRAMS, name)


class DocumentTest(unittest.TestCase):
    def test_the_document_has_a_place_for_every_table_and_every_program_in_it(self):
        text = (Path(thesis.__file__).parents[1] / "docs/studies/thesis-study.md").read_text()
        tables = dict(re.findall(r"<!-- ([^ ]+) -->\n(.*?)<!-- end -->", text, re.S))
        self.assertEqual(sorted(tables), sorted([*thesis.TABLES, *placement.TABLES]))
        for name in thesis.PROGRAMS:
            self.assertIn(f"| {name} |", tables["traces"])


if __name__ == "__main__":
    unittest.main()
