"""Multigrain programs on virtual hosts: the workloads' own checks, and what becomes of a run whose hosts fail."""

import os
import shutil
import signal
import time
import unittest

from cluster import BIN, HOSTS, LIMIT_S, MARGIN_S, WORKLOADS, ClusterTest, Run, close_hosts, open_hosts, workloads_on

# This program ends only if something ends it.
ENDLESS = [f"{BIN}/workloads/jacobi", "--grid", "512", "--iterations", "1000000"]

setUpModule = open_hosts
tearDownModule = close_hosts


class Workloads(ClusterTest):
    def run_mgrun(self, *arguments, **options):
        # No node may be given up here, and a host of a busy machine may be silent for seconds.
        return super().run_mgrun(*arguments, env={**os.environ, "MULTIGRAIN_TIMEOUT": "60"}, **options)

    def check(self, hosts, *options, workloads=None):
        for workload in workloads or workloads_on(len(hosts.split(",")), "mgrun"):
            with self.subTest(workload=workload):
                status, out, err = self.run_mgrun("--hosts", hosts, *options, f"{BIN}/workloads/{workload}", "--size",
                                                  "test", "--check")
                self.assertEqual((status, err), (0, ""))
                self.assertIn("check: passed", out)
        self.assert_clean()

    def test_on_2_hosts(self):
        self.check("a,b")

    def test_on_3_hosts(self):
        self.check("a,b,c")

    def test_on_4_hosts(self):
        self.check("a,b,c,d")

    def test_on_hosts_other_than_mgruns(self):
        self.check("b,c", "--no-pin", workloads=workloads_on(3, "mgrun"))

    def test_with_several_nodes_and_processors_a_host(self):
        self.check("a:2,b:2", "--procs-per-node", "2", workloads=WORKLOADS)

    def test_scripts_that_go_on_after_the_program_end_in_any_order(self):
        for last in range(2):
            script = (f"{BIN}/workloads/jacobi --size test > /dev/null; test $MULTIGRAIN_NODE != {last} || sleep 1; "
                      "test $MULTIGRAIN_NODE != 0 || exit 5")
            self.assertEqual(self.run_mgrun("--hosts", "a,b", "sh", "-c", script), (5, "", ""))

    def test_statistics_of_all_nodes_come_together(self):
        status, _, err = self.run_mgrun("--hosts", "b,c", "--stats", "text", f"{BIN}/workloads/jacobi", "--size", "test")
        self.assertEqual(status, 0)
        self.assertIn("barrier", err)


class Failing(ClusterTest):
    def endless(self, hosts):
        run = Run(["--verbose", "--hosts", hosts, *ENDLESS])
        run.wait_for("service threads run with priority")
        # The program is well into its iterations then.
        time.sleep(1)
        return run

    def assert_ended(self, run, begin, message, clean="abcd"):
        """The run ends in time, not well, with the message; the hosts are clean."""
        status = run.finish()
        passed = time.monotonic() - begin
        self.assertNotEqual(status, 0)
        self.assertRegex(run.err, message)
        self.assertLess(passed, LIMIT_S + MARGIN_S)
        self.assert_clean(clean, seconds=begin + LIMIT_S + MARGIN_S - time.monotonic())
        self.report(f"the run ended after {passed:.2f} s, and everything of it after {time.monotonic() - begin:.2f} s")

    def test_a_killed_node(self):
        for node, host in ((1, "b"), (0, "a")):
            run = self.endless("a,b,c")
            pid = self.node_pid(run, node, host)
            begin = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            self.assert_ended(run, begin, rf"(node {node} \(pid \d+\) on host {host} was killed|lost node {node} on host {host})")

    def test_a_killed_agent(self):
        run = self.endless("a,b,c")
        begin = time.monotonic()
        for pid in HOSTS["c"].find("mgrun --agent"):
            os.kill(pid, signal.SIGKILL)
        self.assert_ended(run, begin, r"(host c \(node 2\) is gone|lost node 2 on host c)")

    def test_a_killed_mgrun(self):
        run = self.endless("a,b,c")
        begin = time.monotonic()
        for pid in HOSTS["a"].find(f"{BIN}/mgrun --ssh"):
            os.kill(pid, signal.SIGKILL)
        run.finish()
        self.assert_clean(seconds=LIMIT_S + MARGIN_S)
        self.report(f"everything had ended after {time.monotonic() - begin:.2f} s")

    def test_hosts_that_were_cut_off(self):
        for lost, node in (("c", 2), ("b", 1)):
            run = self.endless("a,b,c")
            self.addCleanup(HOSTS.cut, lost, True)
            begin = time.monotonic()
            HOSTS.cut(lost)
            self.assert_ended(run, begin, rf"(host {lost} \(node {node}\) is gone|lost node {node} on host {lost})")
            HOSTS.cut(lost, up=True)

    def test_an_interface_that_was_taken_down_on_its_host(self):
        run = self.endless("a,b")
        self.addCleanup(HOSTS["b"].run, ["ip", "link", "set", "eth0", "up"])
        begin = time.monotonic()
        HOSTS["b"].run(["ip", "link", "set", "eth0", "down"])
        self.assert_ended(run, begin, r"(host b \(node 1\) is gone|lost node 1 on host b)")

    def test_a_host_that_is_cut_off_while_nobody_talks(self):
        # One processor computes alone; the other node has nothing to do.
        run = Run(["--verbose", "--hosts", "a,b", f"{BIN}/tests/idle_program"])
        run.wait_for("computing")
        self.addCleanup(HOSTS.cut, "b", True)
        begin = time.monotonic()
        HOSTS.cut("b")
        self.assert_ended(run, begin, r"(host b \(node 1\) is gone|lost node 1 on host b)")

    def test_the_users_signal(self):
        run = self.endless("a,b,c")
        for pid in HOSTS["a"].find(f"{BIN}/mgrun --ssh"):
            os.kill(pid, signal.SIGINT)
        self.assertEqual(run.finish(), 128 + signal.SIGINT, run.err)
        self.assertIn("mgrun: signal 2 (Interrupt) ended the run\n", run.err)
        self.assertNotIn("lost node", run.err)
        self.assert_clean()


class Differing(ClusterTest):
    def test_hosts_with_different_programs_are_refused(self):
        program = f"{self.folder}/program"
        shutil.copy(f"{BIN}/workloads/jacobi", program)
        other = f"{self.folder}/other"
        shutil.copy(f"{BIN}/workloads/tsp", other)
        # On host b, and only there, the other program is in its place.
        self.assertEqual(HOSTS["b"].run(["mount", "--bind", other, program]).returncode, 0)
        self.addCleanup(HOSTS["b"].run, ["umount", program])
        for hosts, different in (("a,b,c", "node 1 on host b"), ("b,c", "node 1 on host c")):
            status, out, err = self.run_mgrun("--hosts", hosts, program, "--size", "test")
            self.assertEqual(status, 2, err)
            self.assertEqual(out, "")
            self.assertRegex(err, f"the hosts run different programs: {different}")
            self.assertIn("build id", err)
            self.assert_clean()


if __name__ == "__main__":
    unittest.main(verbosity=2)
