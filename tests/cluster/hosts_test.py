"""mgrun --hosts among virtual hosts: starting, passing things on, and ending however a run may end.

What runs is a stand-in that only wires up (tests/launch/wireup_node.cpp), or no Multigrain program at all.
"""

import os
import shutil
import signal
import subprocess
import time
import unittest

from cluster import BIN, HOSTS, LIMIT_S, MARGIN_S, ClusterTest, Run, close_hosts, open_hosts

NODE = f"{BIN}/tests/wireup_node"

setUpModule = open_hosts
tearDownModule = close_hosts


class Starting(ClusterTest):
    def test_nodes_fill_the_hosts_in_order(self):
        status, out, err = self.run_mgrun("--hosts", "a,b:2,c", NODE, "report")
        self.assertEqual((status, err), (0, ""))
        rest = "fixed addresses, interface 'eth0'"
        self.assertEqual(sorted(out.splitlines()), [f"node {i} of 4 on {host}, {rest}" for i, host in enumerate("abbc")])
        self.assert_clean()

    def test_a_host_file_and_fewer_nodes_than_slots(self):
        file = f"{self.folder}/hosts"
        with open(file, "w", encoding="ascii") as stream:
            stream.write("# two hosts\nb slots=2\nc:4\n")
        status, out, err = self.run_mgrun("--hostfile", file, "--nodes", "3", "--interface", "lo", NODE, "report")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(sorted(out.splitlines()),
                         [f"node {i} of 3 on {host}, fixed addresses, interface 'lo'" for i, host in enumerate("bbc")])

    def test_the_interface_is_that_of_the_ssh_connection_unless_ucx_was_told_otherwise(self):
        environment = dict(os.environ, UCX_NET_DEVICES="lo")
        status, out, _ = self.run_mgrun("--hosts", "a,b", "sh", "-c", "echo $UCX_NET_DEVICES$MULTIGRAIN_INTERFACE",
                                        env=environment)
        self.assertEqual((status, out), (0, "lo\nlo\n"))

    def test_arguments_environment_and_directory_arrive(self):
        environment = dict(os.environ, OMP_NUM_THREADS="3", OTHER="no", WANTED="it's \"this\"\nand that", UCX_TLS="tcp",
                           MULTIGRAIN_SPIN="5", MULTIGRAIN_NODE="7")
        script = 'echo "$1|$OMP_NUM_THREADS|$OTHER|$WANTED|$UCX_TLS|$MULTIGRAIN_SPIN|$MULTIGRAIN_FABRIC|$(pwd)"'
        folder = f"{self.folder}/it's here"
        os.mkdir(folder)
        command = ["sh", "-c", f'cd "{folder}" && exec "$@"', "sh", f"{BIN}/mgrun", "--quiet", "--ssh", HOSTS.ssh, "--hosts", "b",
                   "-x", "WANTED", "sh", "-c", script, "sh", "a 'b' $HOME *"]
        done = HOSTS["a"].run(command, env=environment)
        self.assertEqual(done.stdout, f"a 'b' $HOME *|3||it's \"this\"\nand that|tcp|5|ucx|{folder}\n")
        self.assertEqual(done.stderr, "")

    def test_the_program_status_is_the_runs(self):
        for status in (0, 7, 255):
            self.assertEqual(self.run_mgrun("--hosts", "b,c", "sh", "-c", f"exit $((MULTIGRAIN_NODE ? 0 : {status}))")[0],
                             status)

    def test_standard_input_goes_to_node_0_wherever_it_is(self):
        text = "".join(f"{i}\n" for i in range(300000))
        file = f"{self.folder}/input"
        with open(file, "w", encoding="ascii") as stream:
            stream.write(text)
        for hosts in ("b,c", "a,b"):
            with open(file, encoding="ascii") as stream:
                status, out, err = self.run_mgrun("--quiet", "--hosts", hosts, "sh", "-c", "cat", stdin=stream)
            self.assertEqual((status, err), (0, ""))
            self.assertTrue(out == text, f"{len(out)} of {len(text)} characters came back")

    def test_output_keeps_its_streams_and_gets_labels(self):
        script = "echo out $MULTIGRAIN_NODE; echo bad >&2; printf unfinished"
        status, out, err = self.run_mgrun("--quiet", "--label-output", "--hosts", "b,c", "sh", "-c", script)
        self.assertEqual(status, 0)
        self.assertEqual(sorted(out.splitlines()), ["[0] out 0", "[0] unfinished", "[1] out 1", "[1] unfinished"])
        self.assertEqual(sorted(err.splitlines()), ["[0] bad", "[1] bad"])

    def test_a_reader_that_takes_its_time_does_not_end_the_run(self):
        with subprocess.Popen(HOSTS.mgrun(BIN, ["--quiet", "--timeout", "0.5", "--hosts", "b,c", "seq", "1", "1000000"]),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            time.sleep(2)
            out, err = process.communicate()
        self.assertEqual((process.returncode, err), (0, ""))
        self.assertEqual(len(out.splitlines()), 2000000)


class BadHosts(ClusterTest):
    def refused(self, status, sentence, *arguments, **options):
        got, out, err = self.run_mgrun(*arguments, **options)
        self.assertEqual((got, out), (status, ""), err)
        self.assertRegex(err, sentence)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assert_clean()

    def test_a_host_without_a_name(self):
        self.refused(1, "^mgrun: host nowhere: ssh cannot connect .*resolve", "--hosts", "a,nowhere", "true")

    def test_a_host_that_nobody_answers_for(self):
        self.refused(1, "^mgrun: host 10.99.0.77: ssh cannot connect .*(No route|timed out)", "--hosts", "10.99.0.77,b", "true")

    def test_a_host_that_refuses_the_key(self):
        ssh = (f"ssh -F none -i {HOSTS.folder}/wrong_key -o IdentitiesOnly=yes -o IdentityAgent=none "
               f"-o UserKnownHostsFile={HOSTS.folder}/known_hosts")
        self.refused(1, "^mgrun: host [bc]: ssh cannot connect .*Permission denied", "--ssh", ssh, "--hosts", "b,c", "true")

    def test_a_host_whose_key_is_not_known(self):
        self.refused(1, "^mgrun: host b: ssh cannot connect .*[Hh]ost key", "--ssh",
                     f"{HOSTS.ssh} -o UserKnownHostsFile=/dev/null", "--hosts", "a,b", "true")

    def test_a_host_without_mgrun(self):
        self.refused(1, "^mgrun: host b: mgrun cannot be run there .*/no/mgrun.*--remote-mgrun", "--remote-mgrun",
                     "/no/mgrun", "--hosts", "a,b", "true")

    def test_a_host_with_another_mgrun(self):
        other = f"{self.folder}/mgrun"
        with open(other, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\necho noise of a shell\necho 'multigrain-agent 1 0.0.9'\nexec cat > /dev/null\n")
        os.chmod(other, 0o755)
        self.refused(1, r"^mgrun: host b: the mgrun there is of another version \('1 0.0.9' instead of '[0-9]+ ", "--remote-mgrun",
                     other, "--hosts", "a,b", "true")

    def test_a_host_where_something_else_answers(self):
        other = f"{self.folder}/mgrun"
        with open(other, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nexec yes\n")
        os.chmod(other, 0o755)
        self.refused(1, "^mgrun: host b: what answers there is not mgrun's agent", "--remote-mgrun", other, "--hosts", "a,b",
                     "true")

    def test_a_host_without_the_program_or_the_directory(self):
        # On host b the folder is empty.
        HOSTS["b"].run(["mount", "-t", "tmpfs", "tmpfs", self.folder])
        self.addCleanup(HOSTS["b"].run, ["umount", self.folder])
        program = f"{self.folder}/program"
        shutil.copy("/bin/true", program)
        self.refused(2, f"^mgrun: host b: cannot run '{program}': No such file .*same path on every host", "--hosts",
                     "a,b,c", program)
        inner = f"{self.folder}/inner"
        os.mkdir(inner)
        done = HOSTS["a"].run(["sh", "-c", f'cd {inner} && exec "$@"', "sh", f"{BIN}/mgrun", "--ssh", HOSTS.ssh, "--hosts",
                               "a,b", "true"])
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, f"^mgrun: host b: cannot enter the working directory '{inner}'")

    def test_a_file_that_cannot_be_executed(self):
        program = f"{self.folder}/program"
        with open(program, "w", encoding="ascii") as file:
            file.write("just text\n")
        os.chmod(program, 0o755)
        self.refused(2, "^mgrun: host [abc]: cannot run .*neither a program", "--hosts", "a,b,c", program)

    def test_shells_that_talk_do_no_harm(self):
        noisy = f"{self.folder}/mgrun"
        with open(noisy, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\necho welcome to this host\nprintf 'no newline '\nexec {BIN}/mgrun \"$@\"\n")
        os.chmod(noisy, 0o755)
        status, out, err = self.run_mgrun("--remote-mgrun", noisy, "--hosts", "b,c", NODE, "report")
        self.assertEqual((status, len(out.splitlines()), err), (0, 2, ""))


class Ending(ClusterTest):
    def serving(self, hosts="a,b,c", *options):
        """A run that goes on until something happens."""
        run = Run(["--verbose", *options, "--hosts", hosts, NODE, "serve"])
        run.wait_for("serving")
        return run

    def test_a_killed_node_ends_the_run_by_its_hosts_name(self):
        run = self.serving()
        os.kill(self.node_pid(run, 1, "b"), signal.SIGKILL)
        self.assertEqual(run.finish(), 1)
        self.assertRegex(run.err, r"mgrun: node 1 \(pid \d+\) on host b was killed by signal 9 \(Killed\); the run ends\n")
        self.assert_clean()

    def test_a_killed_program_is_reported_as_the_shell_would(self):
        run = self.serving("b,c")
        os.kill(self.node_pid(run, 0, "b"), signal.SIGSEGV)
        self.assertEqual(run.finish(), 128 + signal.SIGSEGV)
        self.assertRegex(run.err, r"node 0 \(pid \d+\) on host b was killed by signal 11")
        self.assert_clean()

    def test_a_node_that_leaves_ends_the_run(self):
        status, _, err = self.run_mgrun("--hosts", "a,b,c", NODE, "leave")
        self.assertEqual(status, 1)
        self.assertRegex(err, r"^mgrun: node 1 \(pid \d+\) on host b exited with status 0 before the program did")
        self.assert_clean()

    def test_nodes_that_see_the_end_first_are_not_its_cause(self):
        self.assertEqual(self.run_mgrun("--hosts", "a,b,c", NODE, "follow"), (5, "", ""))

    def test_signals_reach_every_node(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            run = self.serving()
            for pid in HOSTS["a"].find(f"{BIN}/mgrun --ssh"):
                os.kill(pid, number)
            self.assertEqual(run.finish(), 128 + number, run.err)
            self.assertIn(f"mgrun: signal {int(number)} (", run.err)
            self.assert_clean()

    def test_what_nodes_leave_behind_is_ended(self):
        status, out, _ = self.run_mgrun("--hosts", "a,b", "sh", "-c", "setsid sleep 100 & echo started")
        self.assertEqual((status, out), (0, "started\nstarted\n"))
        self.assert_clean()

    def test_a_killed_agent_is_a_lost_host(self):
        for host in ("b", "a"):
            run = self.serving()
            agent = HOSTS[host].find("mgrun --agent")
            begin = time.monotonic()
            for pid in agent:
                os.kill(pid, signal.SIGKILL)
            self.assertEqual(run.finish(), 1)
            passed = time.monotonic() - begin
            self.report(f"agent of {host} killed: the run ended after {passed:.2f} s")
            self.assertRegex(run.err, rf"mgrun: host {host} \(node \d\) is gone: .*; the run ends\n")
            self.assertLess(passed, LIMIT_S + MARGIN_S)
            self.assert_clean()

    def test_a_killed_mgrun_takes_everything_along(self):
        run = self.serving()
        begin = time.monotonic()
        for pid in HOSTS["a"].find(f"{BIN}/mgrun --ssh"):
            os.kill(pid, signal.SIGKILL)
        run.finish()
        self.assert_clean(seconds=LIMIT_S + MARGIN_S)
        self.report(f"mgrun killed: everything had ended after {time.monotonic() - begin:.2f} s")

    def test_a_silent_mgrun_takes_everything_along(self):
        run = self.serving("b,c", "--timeout", "1")
        stopped = HOSTS["a"].find(f"{BIN}/mgrun --ssh")
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        self.assert_clean("bc", seconds=LIMIT_S + MARGIN_S)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        run.resume()
        self.assertEqual(run.finish(), 1)
        self.assertRegex(run.err, r"mgrun: host b \(node 0\) is gone")
        self.assert_clean()

    def cut(self, hosts, lost, nodes):
        run = self.serving(hosts)
        self.addCleanup(HOSTS.cut, lost, True)
        begin = time.monotonic()
        HOSTS.cut(lost)
        status = run.finish()
        passed = time.monotonic() - begin
        self.assertEqual(status, 1)
        self.assertRegex(run.err, rf"mgrun: host {lost} \({nodes}\) is gone: nothing has been heard from it for 4 s; the run "
                                  r"ends\n")
        self.assertLess(passed, LIMIT_S + MARGIN_S)
        # The host that was cut off is clean, too: it finds out by itself.
        self.assert_clean(seconds=begin + LIMIT_S + MARGIN_S - time.monotonic())
        self.report(f"{lost} cut off: the run ended after {passed:.2f} s, and all hosts were clean after "
                    f"{time.monotonic() - begin:.2f} s")

    def test_a_host_that_was_cut_off(self):
        self.cut("a,b,c:2", "c", "nodes 2,3")

    def test_the_host_of_node_0_was_cut_off(self):
        self.cut("b,c", "b", "node 0")

    def test_mgruns_own_host_was_cut_off(self):
        run = self.serving("a,b")
        self.addCleanup(HOSTS.cut, "a", True)
        begin = time.monotonic()
        HOSTS.cut("a")
        self.assertEqual(run.finish(), 1)
        self.assertRegex(run.err, r"mgrun: host b \(node 1\) is gone")
        self.assert_clean("ab", seconds=begin + LIMIT_S + MARGIN_S - time.monotonic())

    def test_a_longer_time_out_bears_with_a_short_cut(self):
        run = self.serving("a,b", "--timeout", "20")
        HOSTS.cut("b")
        self.addCleanup(HOSTS.cut, "b", True)
        time.sleep(6)
        HOSTS.cut("b", up=True)
        time.sleep(1)
        for pid in HOSTS["a"].find(f"{BIN}/mgrun --ssh"):
            os.kill(pid, signal.SIGTERM)
        self.assertEqual(run.finish(), 128 + signal.SIGTERM, run.err)
        self.assertNotIn("gone", run.err)
        self.assert_clean()


if __name__ == "__main__":
    unittest.main(verbosity=2)
