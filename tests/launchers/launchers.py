"""Open MPI's and MPICH's mpirun, and srun of a Slurm that the test starts for itself (slurm.py): how each is called.

MULTIGRAIN_TEST_BIN is the build's folder of programs.
"""

import contextlib
import os
import shutil
import subprocess
import time
import unittest

import slurm

BIN = os.environ["MULTIGRAIN_TEST_BIN"]
TIMEOUT_S = 600


# Everything that this process launches has this in its environment, because other tests run programs of the same folder
# meanwhile.
MARK = f"LAUNCHED_BY_TEST={os.getpid()}"


def processes_of(folder):
    """The processes of this test's launches that run a program of the folder, by their executable."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if not os.readlink(f"/proc/{entry}/exe").startswith(os.path.realpath(folder) + "/"):
                continue
            with open(f"/proc/{entry}/environ", "rb") as environment:
                if MARK.encode() in environment.read().split(b"\0"):
                    found.append(int(entry))
        except OSError:
            pass
    return found


# If a program ends at once, MPICH's mpirun may write to a process of its own that is gone, and die of it: of 80 times
# `mpirun.mpich -n 1 true` once.
MPICH = ("env", "--ignore-signal=PIPE", "mpirun.mpich")


@contextlib.contextmanager
def endless_input():
    """A standard input that does not end. MPICH's mpirun tells its other process of an end, and fails if that process is gone:
    on a busy machine 59 of 750 times `mpirun.mpich -n 1 true < /dev/null`, and with this never."""
    reader, writer = os.pipe()
    try:
        yield reader
    finally:
        os.close(reader)
        os.close(writer)


def clean_environment():
    """Without what a launcher around this test may have set."""
    name, value = MARK.split("=")
    return {name: value, **{name: value for name, value in os.environ.items()
                            if not name.startswith(("MULTIGRAIN_NODE", "PMI_", "PMIX_", "OMPI_", "SLURM_", "MPI_LOCAL"))}}


class Launcher:
    """Mixed into tests; a subclass a launcher. Every process that a launch left behind fails the test."""

    wireup = ""

    def command(self, processes):
        raise NotImplementedError

    def environment(self):
        return clean_environment()

    def standard_input(self):
        return contextlib.nullcontext(subprocess.DEVNULL)

    def launch(self, processes, *arguments, program, environment=None):
        with self.standard_input() as stdin:
            result = subprocess.run([*self.command(processes), program, *arguments],
                                    env={**self.environment(), **(environment or {})}, stdin=stdin, text=True,
                                    capture_output=True, timeout=TIMEOUT_S, check=False)
        # A launcher may return a moment before the processes that it killed are gone.
        deadline = time.monotonic() + 120
        while processes_of(BIN) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(processes_of(BIN), [], "processes left behind")
        return result


@unittest.skipIf(shutil.which("mpirun.openmpi") is None, "Open MPI's mpirun is not installed (Debian: openmpi-bin)")
class OpenMpiLauncher(Launcher):
    wireup = "pmix"

    def command(self, processes):
        return ["mpirun.openmpi", "--oversubscribe", "-n", str(processes)]

    def environment(self):
        # Open MPI asks in this way whether root is meant.
        return {**clean_environment(), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@unittest.skipIf(shutil.which("mpirun.mpich") is None, "MPICH's mpirun is not installed (Debian: mpich)")
class MpichLauncher(Launcher):
    wireup = "pmi2"

    def command(self, processes):
        return [*MPICH, "-n", str(processes)]

    def standard_input(self):
        return endless_input()


@unittest.skipIf(slurm.why_not() is not None, slurm.why_not())
class SlurmLauncher(Launcher):
    """One Slurm a class; of N processes, some run on each of its two nodes."""

    # Says whether srun ends the other tasks when one exits with a status other than 0. It returns the greatest status,
    # which is that of a task that it has ended, if there is one.
    kill_on_bad_exit = 1

    @classmethod
    def setUpClass(cls):
        cls.slurm = slurm.Slurm().__enter__()
        cls.addClassCleanup(cls.slurm.__exit__, None, None, None)

    def environment(self):
        return {**clean_environment(), "SLURM_CONF": self.slurm.environment["SLURM_CONF"]}

    def srun(self, processes, *options):
        nodes = min(processes, len(slurm.NODES))
        return [slurm.find("srun"), "-Q", f"--kill-on-bad-exit={self.kill_on_bad_exit}", f"--nodes={nodes}", f"--ntasks={processes}", *options]

    def command(self, processes):
        return self.srun(processes, f"--mpi={self.wireup}")

