"""What the tests of runs on virtual hosts have in common: the hosts, a run in progress, and that nothing is left of it."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from virtual_hosts import VirtualHosts, eventually, missing

BIN = os.environ.get("MULTIGRAIN_TEST_BIN", "build/bin")
# Every workload that is built runs; a new one need not be named here. The folders beside the programs have the same
# programs, built by mgcc.
WORKLOADS = sorted(entry.name for entry in os.scandir(f"{BIN}/workloads") if entry.is_file())
# If true, every workload runs on every number of hosts (ctest's label full). Otherwise each runs on one, so that every
# pair of workload and number of hosts, of workload and way to start it, and of number of hosts and way to start it is
# run.
FULL = os.environ.get("MULTIGRAIN_TEST_FULL") == "1"
# These are ways to start workloads on 2, 3 and 4 hosts.
WAYS = ("mgrun", "Open MPI", "MPICH")


def workloads_on(hosts, way):
    """The workloads that this way starts on this many hosts."""
    return [workload for number, workload in enumerate(WORKLOADS)
            if FULL or (number + WAYS.index(way) + hosts) % 3 == 0]


# By default the end of a host is noticed everywhere within this time; a loaded machine may add the margin.
LIMIT_S = 5
MARGIN_S = 5

HOSTS = VirtualHosts("abcd")
_STATE = {}


def open_hosts():
    """For setUpModule."""
    _STATE["missing"] = missing()
    if _STATE["missing"] is None:
        HOSTS.__enter__()


def close_hosts():
    """For tearDownModule."""
    HOSTS.close()


class Run:
    """A run in progress, whose output is collected."""

    def __init__(self, arguments, on="a", **options):
        self._process = subprocess.Popen(HOSTS.mgrun(BIN, arguments, on), stdin=options.pop("stdin", subprocess.DEVNULL),
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        self._lines = {"out": [], "err": []}
        self._readers = [threading.Thread(target=self._read, args=("out", self._process.stdout)),
                         threading.Thread(target=self._read, args=("err", self._process.stderr))]
        for reader in self._readers:
            reader.start()

    def _read(self, name, stream):
        for line in stream:
            self._lines[name].append(line)
        stream.close()

    @property
    def out(self):
        return "".join(self._lines["out"])

    @property
    def err(self):
        return "".join(self._lines["err"])

    def wait_for(self, pattern):
        """Waits until the output or the messages match; returns the match."""
        found = []

        def search():
            found[:] = [match for match in (re.search(pattern, self.out), re.search(pattern, self.err)) if match]
            return bool(found) or self._process.poll() is not None

        if not eventually(search) or not found:
            raise AssertionError(f"no {pattern!r} in:\n{self.out}\n{self.err}")
        return found[0]

    def resume(self):
        """nsenter stops with what it has started, but does not go on with it."""
        self._process.send_signal(signal.SIGCONT)

    def finish(self, timeout=600):
        """The exit status, when it has ended."""
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        for reader in self._readers:
            reader.join()
        return status


class ClusterTest(unittest.TestCase):
    def setUp(self):
        if _STATE["missing"] is not None:
            self.skipTest(_STATE["missing"])
        if os.environ.get("MULTIGRAIN_TEST_TIMES"):
            begin = time.monotonic()
            self.addCleanup(lambda: print(f"    {time.monotonic() - begin:.1f} s"))
        # Scripts of nodes use this folder. The hosts have their file system in common.
        self.folder = tempfile.mkdtemp(prefix="multigrain-cluster-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_mgrun(self, *arguments, **options):
        run = Run(arguments, **options)
        status = run.finish()
        return status, run.out, run.err

    def assert_clean(self, names="abcd", seconds=120.0):
        """Nothing is left of a run, soon if not at once: a host that was told to end a run has to do so first."""
        left = {}

        def clean():
            left.clear()
            left.update({name: HOSTS[name].leftovers() for name in names})
            return not any(left.values())

        self.assertTrue(eventually(clean, seconds), left)

    def node_pid(self, run, node, host):
        """The process of a node, by its number here."""
        return HOSTS[host].outside_pid(int(run.wait_for(rf"node {node} is pid (\d+) on host {host}").group(1)))

    def report(self, text):
        """A figure of the test, for whoever reads its log."""
        print(f"    {self.id().split('.')[-1]}: {text}", flush=True)
