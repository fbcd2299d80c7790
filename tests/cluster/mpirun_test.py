"""The workloads across virtual hosts under the mpirun of Open MPI and of MPICH."""

import os
import re
import shutil
import signal
import subprocess
import unittest

from cluster import BIN, HOSTS, ClusterTest, close_hosts, open_hosts, workloads_on
from virtual_hosts import eventually

setUpModule = open_hosts
tearDownModule = close_hosts


class UnderMpirun(ClusterTest):
    way = ""

    def launcher(self, hosts):
        raise NotImplementedError

    def check(self, hosts):
        for workload in workloads_on(len(hosts), self.way):
            with self.subTest(workload=workload):
                done = HOSTS["a"].run([*self.launcher(hosts), f"{BIN}/workloads/{workload}", "--size", "test", "--check"],
                                      timeout=120, directory=self.folder)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("check: passed", done.stdout)
                self.assertIn(f"{len(hosts)} nodes", done.stdout)
        self.assert_clean()

    def check_killed(self, hosts):
        """A node that dies ends the run everywhere."""
        run = HOSTS["a"].start([*self.launcher(hosts), f"{BIN}/workloads/jacobi", "--grid", "512", "--iterations",
                                "1000000"], directory=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # This counts the program, and not the launcher's helper that has its name as an argument.
        def running(on):
            return [pid for host in on for pid, line in HOSTS[host].processes().items()
                    if line.startswith(f"{BIN}/workloads/jacobi")]

        started = []
        self.assertTrue(eventually(lambda: started or started.extend(running(hosts[-1])) or started))
        os.kill(started[0], 9)
        self.assertTrue(eventually(lambda: not running(hosts), 60))
        try:
            self.assertNotEqual(run.wait(20), 0)
        except subprocess.TimeoutExpired:
            # Open MPI 4.1 sometimes waits for ever for a daemon that has not noticed the end of its last process. What is
            # promised is that all processes of the run end, and they have.
            run.terminate()
            for host in hosts:
                for pid, line in HOSTS[host].processes().items():
                    if re.match(r"(\S*/)?(orted|mpirun\S*|ssh) ", line):
                        os.kill(pid, signal.SIGKILL)
            run.wait(20)
        self.assert_clean()


class OpenMpi(UnderMpirun):
    way = "Open MPI"

    def setUp(self):
        super().setUp()
        if shutil.which("mpirun.openmpi") is None:
            self.skipTest("openmpi-bin is not installed")

    def launcher(self, hosts):
        return ["mpirun.openmpi", "--allow-run-as-root", "--mca", "plm_rsh_agent", HOSTS.ssh, "--mca", "oob_tcp_if_include",
                "eth0", "-x", "UCX_NET_DEVICES=eth0", "--host", ",".join(hosts), "--map-by", "ppr:1:node", "--bind-to",
                "none"]

    def test_on_2_hosts(self):
        self.check("ab")

    def test_on_3_hosts(self):
        self.check("abc")

    def test_on_4_hosts(self):
        self.check("abcd")

    def test_a_killed_node(self):
        self.check_killed("abc")


class Mpich(UnderMpirun):
    way = "MPICH"

    def setUp(self):
        super().setUp()
        if shutil.which("mpirun.mpich") is None:
            self.skipTest("mpich is not installed")
        # Hydra takes a program, not a command line.
        self.ssh = f"{self.folder}/ssh"
        with open(self.ssh, "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\nexec {HOSTS.ssh} "$@"\n')
        os.chmod(self.ssh, 0o755)

    def launcher(self, hosts):
        return ["env", "--ignore-signal=PIPE", "mpirun.mpich", "-launcher", "ssh", "-launcher-exec", self.ssh, "-iface", "eth0", "-genv",
                "UCX_NET_DEVICES", "eth0", "-hosts", ",".join(hosts), "-n", str(len(hosts)), "-ppn", "1", "-bind-to", "none"]

    def test_on_2_hosts(self):
        self.check("ab")

    def test_on_3_hosts(self):
        self.check("abc")

    def test_on_4_hosts(self):
        self.check("abcd")

    def test_a_killed_node(self):
        self.check_killed("abc")


del UnderMpirun

if __name__ == "__main__":
    unittest.main()
