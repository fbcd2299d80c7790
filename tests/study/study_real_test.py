"""mgstudy with mgrun and the workloads themselves: which program is of which grain, and what latency costs which (figures 6 to
20 of the MGS paper). What is asserted is the order, with room for a busy machine."""

import json
import os
import subprocess
import tempfile
import unittest

BIN = os.environ["MULTIGRAIN_TEST_BIN"]
# Processors so much slower than this machine's that 50 us is to them what it was to MGS's, more or less.
SLOWER = ("--clock-scale", "100")


class Real(unittest.TestCase):
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

    def times(self, study):
        return {point["node_size"]: point["elapsed_ns"] for point in study["points"] if point["role"] == "family"}

    def test_every_moment_is_in_a_category(self):
        for clock in ("virtual", "wall"):
            with self.subTest(clock):
                study = self.study("family", ("water", "--size", "test"), "-r", "1", "--clock", clock)
                self.assertEqual(len(study["points"]), 5)
                for point in study["points"]:
                    self.assertEqual(len(point["processors"]), point["nodes"] * point["node_size"])
                    for processor in point["processors"]:
                        parts = sum(processor[f"{name}_ns"] for name in ("user", "data_wait", "lock", "barrier", "protocol"))
                        self.assertAlmostEqual(parts, processor["total_ns"], delta=processor["total_ns"] / 100)
                counters = {point["node_size"]: point["counters"] for point in study["points"] if point["role"] == "family"}
                self.assertEqual(counters[8]["pages_fetched"], 0)
                self.assertGreater(counters[1]["locks_remote"], counters[4]["locks_remote"])

    def test_what_follows_the_measured_phase_is_not_in_it(self):
        # To check, processor 0 of node 0 reads the whole grid, of which three quarters are at home elsewhere.
        for checked in ((), ("--check",)):
            study = self.study(
                "family",
                ("jacobi", "-n", "512", "--iterations", "2", *checked),
                "-r",
                "1",
                "--node-sizes",
                "2",
                "--no-sequential",
            )
            with self.subTest(checked):
                point = study["points"][0]
                self.assertLess(point["processors"][0]["counters"]["read_faults"], 30)
                self.assertLess(sum(each["counters"]["pages_fetched"] for each in point["processors"]), 200)

    def test_jacobi_is_coarse_tsp_fine_and_a_distributed_pool_much_better(self):
        jacobi = self.study("family", ("jacobi", "-n", "2048", "--iterations", "4"), "-r", "3", *SLOWER)["metrics"][0]
        self.assertEqual(jacobi["grain"], "coarse-grain", jacobi)
        central = self.study("family", ("tsp", "--size", "test"), "-r", "3", *SLOWER)
        self.assertEqual(central["metrics"][0]["grain"], "fine-grain")
        self.assertGreater(central["metrics"][0]["breakup_penalty"], jacobi["breakup_penalty"])
        self.assertGreater(central["metrics"][0]["multigrain_potential"], jacobi["multigrain_potential"])
        distributed = self.study("family", ("tsp", "--size", "test", "--variant", "distributed-pool"), "-r", "3", *SLOWER)
        self.assertLess(self.times(distributed)[1], self.times(central)[1] / 1.5)
        self.assertLess(distributed["metrics"][0]["multigrain_potential"], central["metrics"][0]["multigrain_potential"])

    def test_latency_costs_water_more_than_jacobi_and_less_in_large_nodes_or_tiled(self):
        def slopes(*program):
            study = self.study("latency", program, "-r", "1", "--latencies", "50us,500us,1ms", *SLOWER)
            return {each["node_size"]: each for each in study["slopes"]}

        jacobi, water = slopes("jacobi", "-n", "2048", "--iterations", "4"), slopes("water", "--size", "test")
        self.assertLess(jacobi[1]["per_100us"], water[1]["per_100us"] / 2)
        self.assertLess(water[4]["slope"], water[1]["slope"])
        plain, tiled = slopes("water-kernel", "--size", "test"), slopes("water-kernel", "--size", "test", "--variant", "tiled")
        # In nodes of one there is nothing to tile for.
        self.assertLess(tiled[4]["slope"], plain[4]["slope"])


if __name__ == "__main__":
    unittest.main()
