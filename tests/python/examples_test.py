"""The examples give the same results on every machine, and those written for other libraries the same as ours."""

import os
import re
import subprocess
import sys
import unittest

from programs import BIN, MACHINES, ProgramTest

EXAMPLES = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../examples/python"))


class Examples(ProgramTest):
    def result(self, *words):
        """Returns what an example printed behind its time."""
        ended = self.start(words)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""), ended.stdout)
        return re.fullmatch(r".* on \d+ processors: [0-9.]+ s, (.*)\n", ended.stdout)[1]

    def on_all_machines(self, name, *arguments):
        program = (sys.executable, os.path.join(EXAMPLES, name), *arguments)
        results = {self.result(*program)}
        for nodes, per_node in MACHINES:
            results.add(self.result(os.path.join(BIN, "mgrun"), "-n", str(nodes), "-c", str(per_node), "--", *program))
        return results

    def test_jacobi(self):
        own = self.on_all_machines("jacobi.py", "100", "20")
        other = self.result(sys.executable, os.path.join(EXAMPLES, "others/jacobi_multiprocessing.py"), "2", "100", "20")
        self.assertEqual(own, {other})

    def test_histogram(self):
        results = self.on_all_machines("histogram.py", "100000")
        self.assertEqual({result.split(",")[0] for result in results}, {"in bins 100000"})
        other = self.result(sys.executable, os.path.join(EXAMPLES, "others/histogram_multiprocessing.py"), "2", "100000")
        # The numbers depend on how many processors made them.
        self.assertIn(other, results)

    def test_sweep(self):
        own = self.on_all_machines("sweep.py", "60")
        other = self.result(sys.executable, os.path.join(EXAMPLES, "others/sweep_multiprocessing.py"), "2", "60")
        self.assertEqual(own, {other})

    def test_mpi4py(self):
        try:
            import mpi4py  # noqa: F401
        except ImportError:
            self.skipTest("this Python has no mpi4py")
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        mpirun = ("mpirun", "--oversubscribe", "-n", "2", sys.executable)
        for name, *arguments in (("jacobi", "100", "20"), ("histogram", "100000")):
            wanted = self.result(sys.executable, os.path.join(EXAMPLES, f"others/{name}_multiprocessing.py"), "2", *arguments)
            other = subprocess.run(
                (*mpirun, os.path.join(EXAMPLES, f"others/{name}_mpi4py.py"), *arguments),
                env={**os.environ, **allowed}, capture_output=True, text=True, timeout=600,
            )
            self.assertIn(wanted, other.stdout, other.stderr)


if __name__ == "__main__":
    unittest.main()
