"""mgstudy placement: the model of Bolosky's section 3.2.1, and what runs say of it."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

from multigrain.study import command, placement
from multigrain.study.placement import DECISIONS, Times, model
from multigrain.study.runs import Result, Run


def times(*user, system=(1.0,)):
    return Times(tuple(user), tuple(system))


class Model(unittest.TestCase):
    def test_has_the_thesis_values(self):
        # T_global, T_numa, T_local, G/L, alpha, beta, gamma of Table 3.1.
        for name, everywhere, numa, local, ratio, alpha, beta, gamma in (
            ("matmult", 82.1, 69.0, 68.2, 2.3, 0.94, 0.16, 1.01),  # the thesis prints a beta of .26
            ("Gfetch", 60.2, 60.2, 26.5, 2.3, 0.0, 0.98, 2.27),  # and of 1.0
            ("Primes3", 39.1, 37.4, 28.8, 2.0, 0.17, 0.36, 1.30),
            ("e-fft", 687.4, 449.0, 438.4, 2.0, 0.96, 0.57, 1.02),
            ("gauss", 636.9, 415.6, 411.6, 2.0, 0.98, 0.55, 1.01),
            ("plytrace", 56.9, 38.8, 38.0, 2.0, 0.96, 0.50, 1.02),
        ):
            with self.subTest(name):
                found = model(times(numa), times(everywhere), times(local), ratio)
                self.assertAlmostEqual(found["alpha"], alpha, delta=0.006)
                self.assertAlmostEqual(found["beta"], beta, delta=0.006)
                self.assertAlmostEqual(found["gamma"], gamma, delta=0.006)

    def test_does_not_tell_what_is_within_the_noise(self):
        found = model(times(67.4), times(67.4, 67.3, 67.5), times(67.3), 2.0)  # ParMult
        self.assertIsNone(found["alpha"])
        self.assertIsNone(found["beta"])
        self.assertAlmostEqual(found["gamma"], 1.0, delta=0.01)

    def test_without_a_ratio_there_is_no_beta(self):
        found = model(times(15.0), times(20.0), times(10.0), None)
        self.assertAlmostEqual(found["alpha"], 0.5)
        self.assertIsNone(found["beta"])

    def test_the_manager_costs_what_the_all_global_run_does_not(self):
        found = model(times(10.0, system=(3.0, 5.0, 4.0)), times(20.0, system=(1.0,)), times(10.0), 2.0)
        self.assertAlmostEqual(found["overhead"], 0.3)


class Runs(unittest.TestCase):
    def test_are_added_up(self):
        def node(protocol, flushes):
            return {
                "service": {"protocol_ns": protocol},
                "counters": dict.fromkeys(DECISIONS, 0) | {"flushes": flushes},
            }

        profile = {
            "sum": {"user_ns": 3_000_000_000, "protocol_ns": 500_000_000},
            "nodes": [node(250_000_000, 2), node(250_000_000, 3)],
        }
        result = Result(Run("water", (), 2, 1), "mgrun water", profile)
        self.assertEqual(placement.times_of([result, result]), Times((3.0, 3.0), (1.0, 1.0)))
        self.assertEqual(placement.counts_of(result)["flushes"], 5)


# Stands in for mgrun: a run takes 10 s of user time on one node, 20 in global memory, 12 under another policy.
FAKE = """#!{python} -ES
import json, sys
words = sys.argv[1:]
options = dict(zip(words[:words.index("--"):2], words[1:words.index("--"):2]))
nodes = int(options["--nodes"])
assert options["--protocol"] == "placement" and options["--procs-per-node"] == "1"
user = 10 if nodes == 1 else {{"global": 20}}.get(options["--policy"], 12)
if words[-1] == "fail": sys.exit("it broke")
node = {{"processors": [{{}}], "service": {{"protocol_ns": 10**8}}, "counters": dict.fromkeys({decisions}, 7)}}
profile = {{"schema": "multigrain-profile", "version": 1, "run": {{"elapsed_ns": 1}},
           "sum": {{"user_ns": user * 10**9, "protocol_ns": 10**8}}, "nodes": [node] * nodes}}
open(options["--stats"].removeprefix("json:"), "w").write(json.dumps(profile))
"""


class Command(unittest.TestCase):
    def study(self, *arguments):
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()) as out:
            mgrun = Path(name) / "mgrun"
            mgrun.write_text(FAKE.format(python=sys.executable, decisions=DECISIONS))
            mgrun.chmod(0o755)
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                status = command.main(["placement", "--mgrun", str(mgrun), *arguments], Path(name))
        return status, out.getvalue(), errors.getvalue()

    def test_prints_both_tables(self):
        status, out, errors = self.study("-p", "4", "-r", "2", "--ratio", "2", "--", "/bin/true", "{procs}")
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("true '{procs}': policy ace, 4 nodes of one processor", out)
        self.assertRegex(
            out, r"T_global +T_numa +T_local +alpha +beta +gamma\n +20.000 +12.000 +10.000 +0.80 +1.00 +1.20"
        )
        self.assertRegex(out, r"dS/T_numa\n +0.500 +0.500 +0.000 +0.0%")
        self.assertIn("flushes 28", out)

    def test_writes_json(self):
        status, out, _ = self.study("-p", "2", "--policy", "global", "--json", "-", "--", "/bin/true")
        study = json.loads(out)
        self.assertEqual((status, study["schema"], study["model"]["alpha"]), (0, "multigrain-placement-study", 0.0))
        self.assertIn("--policy global", study["runs"]["numa"]["command"])

    def test_mistakes_are_sentences(self):
        for arguments, sentence in (
            (("-p", "1", "--", "/bin/true"), "give at least 2 (--procs)"),
            (("-p", "2", "--ratio", "0.5", "--", "/bin/true"), "takes longer than one to local memory"),
            (("-p", "2", "--", "/bin/true", "fail"), "a run failed: it ended with exit status 1"),
            (("-p", "2"), "there is no program to run"),
        ):
            status, _, errors = self.study(*arguments)
            self.assertEqual(status, 2)
            self.assertIn(sentence, errors)


if __name__ == "__main__":
    unittest.main()
