"""mgstudy with mgrun and the workloads themselves: what is counted, and into which category each moment goes."""

import unittest

from real_studies import RealStudies


class Real(RealStudies):
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


if __name__ == "__main__":
    unittest.main()
