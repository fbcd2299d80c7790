"""What the scripts that repeat a paper's figures may say of them (multigrain/study/verdicts.py)."""

import unittest

from multigrain.study import verdicts
from multigrain.study.verdicts import Bounds, about, verdict

WITHIN = Bounds(0.5, 1.5, "")


class OneFigure(unittest.TestCase):
    def test_it_agrees_only_if_the_spread_could_not_refute_it(self):
        # The nearer end is 0.25 away.
        self.assertEqual(verdict(0.75, 0.24, WITHIN, 5), "agrees")
        self.assertEqual(verdict(0.75, 0.25, WITHIN, 5), "not decided (spread 25 %)")
        self.assertEqual(verdict(0.75, 2.0, WITHIN, 5), "not decided (spread 200 %)")

    def test_it_differs_only_if_the_spread_could_not_bring_it_back(self):
        for value in (0.2, 1.8):
            self.assertEqual(verdict(value, 0.29, WITHIN, 5), "differs")
            self.assertEqual(verdict(value, 0.31, WITHIN, 5), "not decided (spread 31 %)")

    def test_exact_repetition_decides_everything_but_the_bound_itself(self):
        self.assertEqual(verdict(0.51, 0.0, WITHIN, 3), "agrees")
        self.assertEqual(verdict(0.49, 0.0, WITHIN, 3), "differs")
        self.assertEqual(verdict(0.5, 0.0, WITHIN, 3), "not decided (spread 0 %)")

    def test_one_exact_run_decides_even_the_bound_itself(self):
        self.assertEqual([verdicts.exact_verdict(value, WITHIN) for value in (0.49, 0.5, 1.5, 1.51)],
                         ["differs", "agrees", "agrees", "differs"])

    def test_nothing_is_decided_without_repetition(self):
        for runs in (1, 2):
            self.assertEqual(verdict(1.0, 0.0, WITHIN, runs), f"not decided (runs of each: {runs})")
        for value, spread in ((None, None), (None, 0.1), (1.0, None), (float("nan"), 0.1)):
            self.assertEqual(verdict(value, spread, WITHIN, 5), "not decided (runs failed)")

    def test_a_number_of_a_papers_has_a_stated_tolerance_on_both_sides(self):
        for number in (1.59, -0.05):
            self.assertIn(number * 1.19, about(number))
            self.assertIn(number * 0.81, about(number))
            self.assertNotIn(number * 1.21, about(number))
            self.assertNotIn(number * 0.79, about(number))
        self.assertEqual(about(1.59).text, "159%")

    def test_what_is_too_short_or_too_noisy_is_doubted(self):
        def doubt(elapsed, low, high, clock="wall"):
            return verdicts.doubt({"elapsed_ns": elapsed, "low_ns": low, "high_ns": high}, clock)

        self.assertEqual(doubt(9_999_999, 9_999_999, 9_999_999), "too short")
        self.assertEqual(doubt(10_000_000, 10_000_000, 12_500_000), "")
        self.assertEqual(doubt(10_000_000, 9_000_000, 12_000_000), "too noisy")
        self.assertEqual(doubt(1_000, 1_000, 1_000, "virtual"), "")
        self.assertEqual(doubt(1_000, 1_000, 9_000, "virtual"), "too noisy")
        self.assertEqual(doubt(1_000, 1_000, 9_000, "counted"), "")
        self.assertEqual(verdicts.doubt({"failures": ["it broke"]}, "wall"), "")


if __name__ == "__main__":
    unittest.main()
