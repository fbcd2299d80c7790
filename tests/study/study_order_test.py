"""mgstudy with mgrun and the workloads themselves: which program is of which grain, and what latency costs which (figures 6 to 20
of [MGS]). The order of measured times is what is asserted, so this is a benchmark that a busy machine can fail, and is not run by
./test: an order that counted work decided would be."""

import unittest

from real_studies import RealStudies

# The processors are so much slower than this machine's that 50 us is to them what it was to MGS's, more or less.
SLOWER = ("--clock-scale", "100")


class Order(RealStudies):
    def times(self, study):
        return {point["node_size"]: point["elapsed_ns"] for point in study["points"] if point["role"] == "family"}

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
        # In nodes of one processor there is nothing to tile for.
        self.assertLess(tiled[4]["slope"], plain[4]["slope"])


if __name__ == "__main__":
    unittest.main()
