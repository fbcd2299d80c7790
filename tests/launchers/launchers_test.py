"""Wire-up and start under Open MPI's and MPICH's mpirun, and under the real Slurm (in one machine, without systemd)."""

import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

import slurm
from launchers import BIN, MPICH, TIMEOUT_S, MpichLauncher, OpenMpiLauncher, SlurmLauncher, endless_input

PROGRAM = os.path.join(BIN, "tests", "exchange_cards")
FAILED = 6  # what it ends with


class Starts:
    """What every launcher must do; mixed with one."""

    # The launcher says this when a process exits with status 5, without a word, before the wire-up is over.
    words_for_a_death = "non-zero|[Ee]xited with exit code 5"

    def launch(self, processes, *arguments, program=PROGRAM, environment=None):
        return super().launch(processes, *arguments, program=program, environment=environment)

    def said(self, result):
        """The lines of the nodes, sorted, after checking that all ended well."""
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return sorted(result.stdout.splitlines())

    def test_nodes_exchange_cards(self):
        for nodes in (2, 3, 4):
            with self.subTest(nodes=nodes):
                lines = self.said(self.launch(nodes))
                self.assertEqual([re.sub(" cores [0-9]+ ", " ", line) for line in lines],
                                 [f"node {node} of {nodes} by {self.wireup} randomisation off" for node in range(nodes)])

    def test_cards_may_be_large(self):
        self.assertEqual(len(self.said(self.launch(4, "bytes=65536", "rounds=3"))), 4)

    def test_cards_may_be_empty(self):
        # The card of node n is n bytes shorter.
        self.assertEqual(len(self.said(self.launch(2, "bytes=1"))), 2)

    def test_one_process_is_alone(self):
        self.assertEqual(self.said(self.launch(1)), ["alone"])

    def test_the_user_may_want_single_nodes(self):
        self.assertEqual(self.said(self.launch(2, environment={"MULTIGRAIN_NODES": "1"})), ["alone"] * 2)

    def test_another_number_of_nodes_is_refused(self):
        result = self.launch(2, environment={"MULTIGRAIN_NODES": "3"})
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("the launcher has started 2 processes, and MULTIGRAIN_NODES is '3'", result.stderr)

    def test_what_a_node_starts_is_alone(self):
        lines = self.said(self.launch(2, "child=1"))
        self.assertEqual(lines.count("alone"), 2, lines)
        self.assertEqual(len(lines), 4, lines)

    def test_a_script_in_between_changes_nothing(self):
        lines = self.said(self.launch(2, "-c", f"'{PROGRAM}' rounds=1; exit $?", program="/bin/sh"))
        self.assertEqual(len(lines), 2, lines)
        self.assertTrue(all(f" of 2 by {self.wireup} " in line for line in lines), lines)

    def test_the_status_is_node_0s(self):
        # Every node is about to exit when node 0 does; a busy machine may let srun end one before.
        self.kill_on_bad_exit = 0
        result = self.launch(2, "status=7")
        self.assertEqual(result.returncode, 7, result.stderr)

    def test_a_node_that_dies_ends_the_others(self):
        started = time.monotonic()
        result = self.launch(3, "dies=1")
        self.assertNotEqual(result.returncode, 0)
        self.assertNotIn("randomisation", result.stdout)  # nobody came to the end
        self.assertRegex(result.stdout + result.stderr, self.words_for_a_death)
        self.assertLess(time.monotonic() - started, TIMEOUT_S)

    def test_a_node_that_does_not_come_is_noticed(self):
        result = self.launch(3, "late=1", "timeout=10")
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stderr, r"node [02]: (not all nodes came|nothing was heard of node 1) within 10 s")
        if self.wireup == "pmix":
            self.assertIn("nothing was heard of node 1", result.stderr)


class OpenMpi(Starts, OpenMpiLauncher, unittest.TestCase):
    def test_cores_are_those_of_the_run(self):
        result = subprocess.run(["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", "2", PROGRAM],
                                env=self.environment(), text=True, stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=True)
        cores = len(os.sched_getaffinity(0))
        self.assertEqual(result.stdout.count(f" cores {cores} "), 2, result.stdout)


class Mpich(Starts, MpichLauncher, unittest.TestCase):
    # Hydra 4.0.2 says different things, depending on what it was doing, and now and then nothing: it ends the others
    # and itself with a status other than 0, and that is all there is to rely on.
    words_for_a_death = "^"

    def test_a_child_without_descriptors_is_alone(self):
        # This is how Python's subprocess starts it: PMI_FD is set, and names nothing.
        lines = self.said(self.launch(2, "-c", f"eval \"exec $PMI_FD>&-\"; exec '{PROGRAM}'", program="/bin/bash"))
        self.assertEqual(lines, ["alone"] * 2)

    def test_ports_are_refused(self):
        with endless_input() as stdin:
            result = subprocess.run([*MPICH, "-pmi-port", "-n", "2", PROGRAM], env=self.environment(), stdin=stdin,
                                    text=True, capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertIn("start it without -pmi-port", result.stderr)
        self.assertNotEqual(result.returncode, 0)


class SlurmPmi2(Starts, SlurmLauncher, unittest.TestCase):
    wireup = "pmi2"

    def test_tasks_that_cannot_meet_are_refused(self):
        self.kill_on_bad_exit = 0  # both exit
        result = subprocess.run([*self.srun(2, "--mpi=none"), PROGRAM], env=self.environment(), text=True,
                                capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertIn("srun has started 2 tasks that have no way to meet; use srun --mpi=pmix", result.stderr)
        self.assertEqual(result.returncode, FAILED)

    def test_a_program_by_hand_in_an_allocation_is_alone(self):
        # It runs in a shell of salloc, and of sbatch.
        for command in (["salloc", "-Q", "-n", "2", PROGRAM], ["sbatch", "-Q", "-W", "-n", "2", "-o",
                                                               self.slurm.path("out"), f"--wrap={PROGRAM}"]):
            with self.subTest(command=command[0]):
                result = subprocess.run([slurm.find(command[0]), *command[1:]], env=self.environment(), text=True,
                                        cwd="/", stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=True)
                output = result.stdout
                if command[0] == "sbatch":
                    with open(self.slurm.path("out"), encoding="utf-8") as file:
                        output = file.read()
                self.assertEqual(output, "alone\n")


class SlurmPmix(Starts, SlurmLauncher, unittest.TestCase):
    wireup = "pmix"

    def test_the_example_for_sbatch(self):
        script = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "slurm", "digits.sbatch")
        with tempfile.TemporaryDirectory() as folder:
            digits = pathlib.Path(folder, "digits")
            digits.write_text(f"#!/bin/sh\nexec '{PROGRAM}'\n", encoding="utf-8")
            digits.chmod(0o755)
            # This Slurm has fewer nodes and cores than the script asks for.
            result = subprocess.run([slurm.find("sbatch"), "-Q", "-W", "--nodes=2", "--cpus-per-task=1", os.path.abspath(script)],
                                    env=self.environment(), text=True, cwd=folder, capture_output=True,
                                    timeout=TIMEOUT_S, check=False)
            output = "".join(path.read_text(encoding="utf-8") for path in pathlib.Path(folder).glob("digits-*.out"))
        self.assertEqual(result.returncode, 0, result.stderr + output)
        self.assertEqual(output.count(" of 2 by pmix "), 2, output)


if __name__ == "__main__":
    unittest.main()
