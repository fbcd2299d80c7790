"""What the scripts that repeat a paper's figures may say of them (multigrain/study/verdicts.py)."""

import unittest

from multigrain.study import verdicts
from multigrain.study.verdicts import Bounds, about, grain_verdict, metric_verdict, verdict

WITHIN = Bounds(0.5, 1.5, "")


def family(times, spread=0.0, runs=5, processors=32):
    """A study of one program: the median by node size (0: the single processor), and the spread of all of them."""
    points = [
        {
            "series": "program",
            "role": "family" if size else "sequential",
            "node_size": size or 1,
            "elapsed_ns": time,
            "low_ns": time * (1 - spread / 2),
            "high_ns": time * (1 + spread / 2),
            "repetitions_ns": [time] * runs,
        }
        for size, time in times.items()
    ]
    own = {point["node_size"]: point for point in points if point["role"] == "family"}

    def metric(slow, fast):
        ends = [own[slow][high] / own[fast][low] - 1 for high, low in (("low_ns", "high_ns"), ("high_ns", "low_ns"))]
        return own[slow]["elapsed_ns"] / own[fast]["elapsed_ns"] - 1, ends

    half = processors // 2
    (breakup, breakups), (potential, potentials) = metric(half, processors), metric(1, half)
    return {
        "processors": processors,
        "series": ["program"],
        "points": points,
        "metrics": [
            {
                "breakup_penalty": breakup,
                "breakup_penalty_range": breakups,
                "multigrain_potential": potential,
                "multigrain_potential_range": potentials,
            }
        ],
    }


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


class Families(unittest.TestCase):
    # The breakup penalty is 1.5, and the potential 0.8.
    TIMES = {0: 800.0, 1: 45.0, 16: 25.0, 32: 10.0}

    def test_a_metric_has_the_spread_of_both_machines_and_of_the_scale(self):
        def of(spread, scale_spread=0.0, runs=5):
            study = family(self.TIMES, spread, runs)
            return metric_verdict(study, "breakup_penalty", about(1.59), scale_spread)
        self.assertEqual(of(0.02), "agrees")
        # 25 * 1.1 / (10 * 0.9) - 25 * 0.9 / (10 * 1.1)
        self.assertEqual(of(0.2), "not decided (spread 101 %)")
        self.assertEqual(of(0.02, scale_spread=0.3), "not decided (spread 55 %)")
        self.assertEqual(of(0.02, runs=2), "not decided (runs of each: 2)")
        study = family(self.TIMES, 0.02)
        self.assertEqual(metric_verdict(study, "multigrain_potential", verdicts.SMALL), "differs")
        self.assertEqual(metric_verdict(study, "multigrain_potential", about(0.82)), "agrees")
        study["metrics"][0] |= {"breakup_penalty": None, "breakup_penalty_range": None}
        self.assertEqual(metric_verdict(study, "breakup_penalty", about(1.59)), "not decided (runs failed)")

    def test_a_class_agrees_only_if_every_choice_of_runs_gives_it(self):
        self.assertEqual(grain_verdict(family(self.TIMES, 0.02), "medium-grain"), "agrees")
        self.assertEqual(grain_verdict(family(self.TIMES, 0.02), "coarse-grain"), "differs")
        self.assertEqual(grain_verdict(family(self.TIMES, 0.02, runs=1), "medium-grain"), "not decided (runs of each: 1)")
        # A penalty of 46 % is small, but one of 50 % is not, and the fastest cluster is 1.7 times as fast as one processor.
        times = {0: 10.0, 1: 60.0, 16: 5.84, 32: 4.0}
        self.assertEqual(verdicts.possible_grains(family(times, 0.0)), {"medium-grain"})
        self.assertEqual(verdicts.possible_grains(family(times, 0.2)), {"medium-grain", "fine-grain"})
        for grain in ("medium-grain", "fine-grain"):
            self.assertEqual(grain_verdict(family(times, 0.2), grain), "not decided (spread 20 %)")
        self.assertEqual(grain_verdict(family(times, 0.2), "coarse-grain"), "differs")
        failed = family(times, 0.0)
        failed["points"] = [point for point in failed["points"] if point["node_size"] != 32]
        self.assertEqual(grain_verdict(failed, "medium-grain"), "not decided (runs failed)")


if __name__ == "__main__":
    unittest.main()
