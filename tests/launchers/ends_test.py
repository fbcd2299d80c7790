"""How programs end under other people's launchers when something is not as it should be: Open MPI's stands for them, since
MPICH's may lose the last words of a process that ends early."""

import os
import signal
import subprocess
import unittest

from launchers import BIN, TIMEOUT_S, OpenMpiLauncher, processes_of

BRIEF = os.path.join(BIN, "workloads", "jacobi")
ENDLESS = os.path.join(BIN, "tests", "idle_program")


class Ends:
    """Mixed with a launcher."""

    def test_a_network_device_that_is_not_there_is_refused_with_those_that_are(self):
        result = self.launch(2, "--size", "test", program=BRIEF, environment={"MULTIGRAIN_INTERFACE": "nosuch0"})
        self.assertNotEqual(result.returncode, 0)
        self.assertNotIn("checksum", result.stdout)
        self.assertRegex(result.stderr, "MULTIGRAIN_INTERFACE: there is no network device 'nosuch0' here .*lo")

    def test_a_signal_to_another_node_ends_the_run(self):
        with subprocess.Popen([*self.command(2), ENDLESS], env=self.environment(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            try:
                self.assertEqual(run.stdout.readline(), "computing\n")
                os.kill(next(filter(self.is_node_1, processes_of(os.path.dirname(ENDLESS)))), signal.SIGTERM)
                _, err = run.communicate(timeout=TIMEOUT_S)
            finally:
                run.kill()
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("multigrain: node 1: was ended by signal 15", err)

    @staticmethod
    def is_node_1(pid):
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"MULTIGRAIN_NODE=1" in file.read().split(b"\0")


class OpenMpi(Ends, OpenMpiLauncher, unittest.TestCase):
    pass


if __name__ == "__main__":
    unittest.main()
