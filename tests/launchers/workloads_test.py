"""Every workload, checked, under other people's launchers: `mpirun` of Open MPI and MPICH, and Slurm's srun."""

import os
import unittest

from launchers import BIN, MpichLauncher, OpenMpiLauncher, SlurmLauncher

# Every workload that is built runs; a new one need not be named here. The folders beside the programs have the same
# programs, built by mgcc.
WORKLOADS = sorted(entry.name for entry in os.scandir(os.path.join(BIN, "workloads")) if entry.is_file())


class Checked:
    """Mixed with a launcher."""

    def test_every_workload_passes_its_check(self):
        for workload in WORKLOADS:
            for nodes in (2, 4):
                with self.subTest(workload=workload, nodes=nodes):
                    result = self.launch(nodes, "--size", "test", "--check",
                                         program=os.path.join(BIN, "workloads", workload))
                    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                    self.assertIn(f"1 per node, {nodes} nodes", result.stdout)
                    self.assertIn("check: passed", result.stdout)


class OpenMpi(Checked, OpenMpiLauncher, unittest.TestCase):
    pass


class Mpich(Checked, MpichLauncher, unittest.TestCase):
    pass


class SlurmPmi2(Checked, SlurmLauncher, unittest.TestCase):
    wireup = "pmi2"


class SlurmPmix(Checked, SlurmLauncher, unittest.TestCase):
    wireup = "pmix"


if __name__ == "__main__":
    unittest.main()
