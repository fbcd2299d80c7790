"""How runs of real programs end when something is not as it should be: who says what, with which status, and when."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = os.environ.get("MULTIGRAIN_TEST_BIN", "build/bin")
MGRUN = f"{BIN}/mgrun"
# This program ends only if something ends it.
ENDLESS = f"{BIN}/tests/idle_program"
# This program soon ends by itself.
BRIEF = [f"{BIN}/workloads/jacobi", "--size", "test", "--check"]
# The test gives up after this only where it would hang otherwise.
PATIENCE_S = 600


def eventually(condition, seconds=PATIENCE_S):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def variable(pid, name):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            found = re.search(rb"(?:^|\0)" + name.encode() + rb"=([^\0]*)", file.read())
    except OSError:
        return None
    return found and found[1].decode()


class EndsTest(unittest.TestCase):
    LAUNCHER = [MGRUN]

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="multigrain-ends-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_command(self, *command, **options):
        """The status, the output and the messages of a command that ends by itself."""
        done = subprocess.run([*map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=options.pop("timeout", 2 * PATIENCE_S), **options)
        return done.returncode, done.stdout, done.stderr

    def start(self, *options, argument=None):
        """A run that computes (or, by the argument "sleep", sleeps) until something ends it, when all its nodes are at work."""
        self.err = open(f"{self.folder}/err", "w+", encoding="utf-8")
        self.addCleanup(self.err.close)
        process = subprocess.Popen([*self.LAUNCHER, *options, ENDLESS, *([argument] if argument else [])], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=self.err, text=True, start_new_session=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "computing\n", self.messages())
        return process

    def messages(self):
        with open(f"{self.folder}/err", encoding="utf-8") as file:
            return file.read()

    def node(self, process, number):
        """The process of a node, with or without an agent between."""
        below = children(process.pid)
        below += [pid for child in below for pid in children(child)]
        return next(pid for pid in below if variable(pid, "MULTIGRAIN_NODE") == str(number))

    def kill_and_look(self, nodes):
        """A run whose last node is killed ends, and says so in one line."""
        run = self.start("--nodes", str(nodes))
        os.kill(self.node(run, nodes - 1), signal.SIGKILL)
        self.assertEqual(run.wait(PATIENCE_S), 1)
        self.assertRegex(self.messages(),
                         rf"^mgrun: node {nodes - 1} \(pid \d+\) was killed by signal 9 \(Killed\); the run ends\n$")

    def report(self, text):
        print(f"    {self.id().split('.')[-1]}: {text}", flush=True)


class Signals(EndsTest):
    FABRICS = (["--nodes", "3"], ["--nodes", "3", "--fabric", "ucx"], ["--hosts", "localhost:3"])

    def test_one_that_is_sent_to_any_node_is_the_runs(self):
        for where in self.FABRICS:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                with self.subTest(where=where, number=number):
                    run = self.start(*where)
                    os.kill(self.node(run, 2), number)
                    self.assertEqual(run.wait(PATIENCE_S), 128 + number, self.messages())
                    self.assertRegex(self.messages(), rf"^mgrun: signal {int(number)} \(\w+\), which was sent to node 2 "
                                                      r"\(pid \d+\)( on host localhost)?, ended the run\n$")

    def test_one_that_is_sent_to_all_processes_ends_it_once(self):
        for where in self.FABRICS[:2]:
            with self.subTest(where=where):
                run = self.start(*where)
                os.killpg(run.pid, signal.SIGTERM)
                self.assertEqual(run.wait(PATIENCE_S), 128 + signal.SIGTERM)
                self.assertRegex(self.messages(), r"^mgrun: signal 15 \(Terminated\).* ended the run\n$")

    def test_a_node_that_is_killed_is_the_only_one_with_something_to_say(self):
        self.kill_and_look(4)


class Pauses(EndsTest):
    """A process that is stopped is silent. How long that takes to be noticed is the promise of --timeout: never less, and
    not much more. What a busy machine adds has no bound, so only the least is checked; and the limits are such that on a busy
    machine only what was stopped is silent for as long. The programs sleep, which is as silent as computing."""

    def paused(self, where, victim, limit, words):
        run = self.start(*where, "--timeout", str(limit), argument="sleep")
        pid = victim(run)
        begin = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        try:
            status = run.wait(PATIENCE_S)
        finally:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        passed = time.monotonic() - begin
        self.assertEqual(status, 1, self.messages())
        self.assertRegex(self.messages(), words)
        self.assertGreaterEqual(passed, limit)
        self.report(f"{' '.join(where)}, a limit of {limit} s: the run had ended {passed:.2f} s after the stop")

    def test_of_a_node(self):
        for number in (0, 1, 2):
            self.paused(["--nodes", "3", "--fabric", "ucx"], lambda run, n=number: self.node(run, n), 6,
                        rf"lost node {number}\b.*nothing has been heard from it|lost node {number}\b")

    def test_of_an_agent(self):
        self.paused(["--hosts", "localhost:2"], lambda run: children(run.pid)[0], 6,
                    r"host localhost \(nodes 0,1\) is gone: nothing has been heard from it for 6 s")

    def test_of_mgrun_is_told_as_such(self):
        run = self.start("--hosts", "localhost:2", "--timeout", "6", argument="sleep")
        os.kill(run.pid, signal.SIGSTOP)
        nodes = [self.node(run, number) for number in (0, 1)]
        self.assertTrue(eventually(lambda: all(variable(pid, "MULTIGRAIN_NODE") is None for pid in nodes)))
        os.kill(run.pid, signal.SIGCONT)
        self.assertEqual(run.wait(PATIENCE_S), 1)
        self.assertRegex(self.messages(), r"mgrun: host localhost .*is gone: its agent has heard nothing from mgrun for 6 s")

    def test_that_are_shorter_than_the_limit_are_borne(self):
        for where in Signals.FABRICS:
            run = self.start(*where, "--timeout", "10", argument="sleep")
            below = children(run.pid)
            for pid in [run.pid, *below, *(one for child in below for one in children(child))]:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.3)
                os.kill(pid, signal.SIGCONT)
            time.sleep(0.2)
            self.assertIsNone(run.poll(), self.messages())
            os.kill(run.pid, signal.SIGTERM)
            self.assertEqual(run.wait(PATIENCE_S), 128 + signal.SIGTERM, self.messages())


class Statistics(EndsTest):
    def test_that_cannot_be_written_are_no_success(self):
        for where in (["--nodes", "2"], ["--nodes", "2", "--fabric", "ucx"], ["--hosts", "localhost:2"], ["--nodes", "1"]):
            status, out, err = self.run_command(MGRUN, *where, "--stats", "json:/dev/full", *BRIEF)
            self.assertEqual(status, 1, err)
            self.assertIn("check: passed", out)
            self.assertIn("multigrain: cannot write the statistics to /dev/full: No space left on device", err)

    def test_that_could_never_be_written_are_refused_before_anything_runs(self):
        status, out, err = self.run_command(*BRIEF, env=dict(os.environ, MULTIGRAIN_STATS="text:/nonexistent/x"))
        self.assertEqual((status, out), (2, ""))
        self.assertIn("cannot start: --stats: cannot write '/nonexistent/x': No such file or directory", err)

    def test_go_where_the_user_was_and_spoil_nothing_before_the_end(self):
        with open(f"{self.folder}/stats", "w", encoding="ascii") as file:
            file.write("old")
        command = [MGRUN, "--nodes", "2", "--stats", "json:stats"]
        status, _, err = self.run_command(*command, "sh", "-c", "exit $((MULTIGRAIN_NODE ? 0 : 3))", cwd=self.folder)
        self.assertEqual(status, 3, err)
        with open(f"{self.folder}/stats", encoding="ascii") as file:
            self.assertEqual(file.read(), "old")
        status, _, err = self.run_command(*command, *BRIEF, cwd=self.folder)
        self.assertEqual(status, 0, err)
        with open(f"{self.folder}/stats", encoding="ascii") as file:
            self.assertEqual(len(json.load(file)["nodes"]), 2)


class Texts(EndsTest):
    def test_that_are_lost_are_no_success(self):
        source = f"{self.folder}/x.c"
        with open(source, "w", encoding="ascii") as file:
            file.write("int main(void) { return 0; }\n")
        for tool, *arguments in (["mgrun", "--help"], ["mgrun", "--version"], ["mgrun", "--net", "list"], ["mgcc", "--help"],
                                 ["mgcc", "--showme", source], ["mg++", "--multigrain-version"], ["mgtrace", "--help"],
                                 ["mgtrace", "info", "--help"], ["mgbench", "--help"], ["mgbench", "--list"],
                                 ["mgstudy", "--help"], ["mgstudy", "family", "--help"]):
            with self.subTest(tool=tool, arguments=arguments), open("/dev/full", "wb") as full:
                done = subprocess.run([f"{BIN}/{tool}", *arguments], stdin=subprocess.DEVNULL, stdout=full,
                                      stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
                self.assertEqual((done.returncode, done.stderr),
                                 (1, f"{tool}: cannot write to standard output: No space left on device\n"))


class Limits(EndsTest):
    def test_of_address_space(self):
        status, out, err = self.run_command("sh", "-c", f"ulimit -v 4000000; exec {MGRUN} --nodes 2 {' '.join(BRIEF)}")
        self.assertNotEqual(status, 0)
        self.assertEqual(out, "")
        for line in err.splitlines():
            self.assertRegex(line, r"^multigrain: node [01]: cannot reserve address space for malloc: the limit \(ulimit -v\) "
                                   r"is too low; a node reserves about 40 TiB|^mgrun: node 1 .*the run ends$")
        self.assertEqual(len(set(err.splitlines())), len(err.splitlines()), "each line has its own node")

    def test_of_memory_are_named_when_the_kernel_kills(self):
        group = Group(self)
        # Not as a Python program of Multigrain's, whose interpreters start on all nodes.
        fill = "x = bytearray(1 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1\n"
        status, _, err = group.run([MGRUN, "--nodes", "2", "sh", "-c",
                                    f"[ $MULTIGRAIN_NODE = 1 ] || exec sleep 60; exec {sys.executable} -c '{fill}'"])
        self.assertEqual(status, 1, err)
        self.assertRegex(err, r"^mgrun: node 1 \(pid \d+\) was killed by signal 9 \(Killed\), because memory ran out .*; the run "
                              r"ends\n$")


class Group:
    """A control group with little memory, if one can be made here."""

    def __init__(self, test):
        self.folder = None
        for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            folder = f"{root}/multigrain-ends-{os.getpid()}"
            try:
                os.mkdir(folder)
                test.addCleanup(lambda: eventually(lambda: self._removed(folder), 10))
                with open(f"{folder}/{limit}", "w", encoding="ascii") as file:
                    file.write(str(64 << 20))
                self.folder = folder
                return
            except OSError:
                continue
        test.skipTest("no control group that limits memory can be made here")

    @staticmethod
    def _removed(folder):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            pass
        except OSError:
            return False
        return True

    def run(self, command):
        done = subprocess.run(["sh", "-c", f"echo $$ > {self.folder}/cgroup.procs && exec \"$@\"", "sh", *command],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * PATIENCE_S)
        return done.returncode, done.stdout, done.stderr


class AsInDocker(EndsTest):
    """Under Docker's default profile address randomisation stays on: nodes are copies of one process, forked as it is loaded."""

    LAUNCHER = [f"{BIN}/tests/as_in_docker", MGRUN]

    def setUp(self):
        super().setUp()
        with open("/proc/sys/kernel/randomize_va_space", encoding="ascii") as file:
            if file.read().strip() == "0" and not self.id().endswith("test_programs_run_on_any_number_of_nodes"):
                self.skipTest("address randomisation is off on this machine")

    def test_programs_run_on_any_number_of_nodes(self):
        for where in (["--nodes", "1"], ["--nodes", "2"], ["--nodes", "4", "--procs-per-node", "2"]):
            with self.subTest(where=where):
                status, out, err = self.run_command(*self.LAUNCHER, *where, *BRIEF)
                self.assertEqual((status, err), (0, ""))
                self.assertIn("check: passed", out)

    def test_each_node_has_its_own_number_input_and_output(self):
        run = subprocess.run([*self.LAUNCHER, "--nodes", "3", "--label-output", "sh", "-c",
                              "read line; echo $line $MULTIGRAIN_NODE; exec \"$@\"", "sh", *BRIEF],
                             input="a line\n", capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        # The shell becomes the process of which the nodes are copies, so that it has run once.
        self.assertRegex(run.stdout, r"(?m)^\[0\] a line 0+$")
        self.assertRegex(run.stdout, r"(?m)^\[0\] check: passed")

    def test_nodes_are_the_launchers_children_and_end_with_it(self):
        run = self.start("--nodes", "3")
        nodes = [self.node(run, number) for number in range(3)]
        self.assertEqual(sorted(children(run.pid)), sorted(nodes))
        run.kill()
        self.assertTrue(eventually(lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in nodes)))

    def test_a_node_that_is_killed_ends_the_run(self):
        self.kill_and_look(3)

    def test_what_cannot_be_copied_says_why(self):
        for program, why in ((["true"], "it has ended, with status 0, and has not loaded Multigrain's library"),
                             (["sh", "-c", "kill -9 $$"], "it has ended, with signal 9"),
                             (["sh", "-c", '"$@"; true', "sh", *BRIEF], "another program's child")):
            with self.subTest(program=program):
                status, out, err = self.run_command(*self.LAUNCHER, "--nodes", "2", *program)
                self.assertEqual((status, out), (2, ""))
                self.assertIn(why, err)
                self.assertEqual(len(err.splitlines()), 1, err)

    def test_a_shell_that_has_more_to_do_is_not_waited_for(self):
        rest = f"sleep 10000.{os.getpid()}"
        status, _, err = self.run_command(*self.LAUNCHER, "--nodes", "2", "sh", "-c", f'"$@"; {rest}', "sh", *BRIEF)
        self.assertEqual(status, 2)
        self.assertIn("another program's child", err)
        self.assertNotIn(rest, subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout)

    def test_a_signal_ends_the_wait_for_a_program_that_is_none_of_multigrains(self):
        run = subprocess.Popen([*self.LAUNCHER, "--nodes", "2", "sleep", "1000"], stdin=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
        self.addCleanup(run.stderr.close)
        self.assertTrue(eventually(lambda: children(run.pid)))
        run.terminate()
        self.assertEqual(run.wait(PATIENCE_S), 2)
        self.assertIn("has come before the program had loaded Multigrain's library", run.stderr.read())

    def test_several_hosts_say_what_to_do(self):
        status, out, err = self.run_command(*self.LAUNCHER, "--hosts", "localhost:2", *BRIEF)
        self.assertEqual((status, out), (2, ""))
        self.assertIn("docker run --security-opt seccomp=unconfined", err)
        self.assertEqual(len(err.splitlines()), 1, err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
