"""Programs that know nothing of Multigrain, by themselves and under mgrun --binary: they do the same."""

import dataclasses
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = os.environ.get("MULTIGRAIN_TEST_BIN", "build/bin")
PROGRAMS = f"{BIN}/tests/guest"
HOSTED = (f"{BIN}/mgrun", "--binary", "--")
HOST = f"{BIN}/../lib/multigrain/mghost"
LABELLED = (f"{BIN}/mgrun", "--label-output", "--binary", "--")
# The test gives up after this only where it would hang otherwise.
PATIENCE_S = 600


def copied(*command, option="--copy-arguments"):
    """That command under a host that gives the system copies of what a call's addresses mean."""
    return (HOST, option, "--execute", shutil.which(command[0]) or command[0], "--", *command)


def run(command, **options):
    """The status, the output and the messages of a command."""
    options.setdefault("stdin", None if "input" in options else subprocess.DEVNULL)
    done = subprocess.run([*command], capture_output=True, check=False, timeout=PATIENCE_S, **options)
    return done.returncode, done.stdout, done.stderr


def processes_of(ancestor, program):
    """The processes that execute that program, and that are the process's children, or theirs."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as file:
                    parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                pass

    def descends(process):
        while process in parents and process != ancestor:
            process = parents[process]
        return process == ancestor

    def executes(process):
        try:
            return os.path.basename(os.readlink(f"/proc/{process}/exe")) == program
        except (FileNotFoundError, ProcessLookupError):
            return False

    return [process for process in parents if descends(process) and executes(process)]


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes that a process has: anonymous ones, which are the host's own on several nodes, and all."""

    own: int
    guests: int

    @classmethod
    def of(cls, process):
        with open(f"/proc/{process}/smaps_rollup", encoding="ascii") as file:
            fields = dict(re.findall(r"^(\w+): +(\d+) kB$", file.read(), re.MULTILINE))
        return cls(own=int(fields["Pss_Anon"]) << 10, guests=int(fields["Rss"]) << 10)


class Guest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="multigrain-guest-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def same(self, *command, **options):
        with self.subTest(command=command[:3]):
            alone = run(command, cwd=self.folder, **options)
            self.assertEqual(run((*HOSTED, *command), cwd=self.folder, **options), alone)
        if "env" not in options:
            with self.subTest(command=command[:3], arguments="copied"):
                self.assertEqual(run(copied(*command), cwd=self.folder, **options), alone)

    def test_programs_of_all_kinds(self):
        for name, status in (("signals", 3), ("processes", 17), ("memory", 0), ("sites", 5)):
            for kind in ("", "_fixed", "_static"):
                program = f"{PROGRAMS}/{name}{kind}"
                with self.subTest(program=os.path.basename(program)):
                    alone = run([program], cwd=self.folder)
                    # A comparison with something that did not work would prove nothing.
                    self.assertEqual(alone[0], status, alone)
                    self.assertGreater(len(alone[1].splitlines()), 10)
                    self.assertEqual(run([*HOSTED, program], cwd=self.folder), alone)
                    self.assertEqual(run(copied(program), cwd=self.folder), alone)
                    # All calls come by signals, and the program's code stays as it is.
                    self.assertEqual(run(copied(program, option="--trap-calls"), cwd=self.folder), alone)

    def test_programs_of_a_distribution(self):
        data = os.urandom(3_000_000) + b"again and again, " * 100_000
        for command in (
            ("sort", "--parallel=4"),
            ("gzip", "-c"),
            ("xz", "-T2", "-1", "-c"),
            ("sha256sum",),
            ("bash", "-c", "cat | tee >(wc -c >&2) | tail -c 100; wait; exit 3"),
        ):
            if shutil.which(command[0]) is not None:
                self.same(*command, input=data)
        script = os.path.join(self.folder, "script")
        with open(script, "w", encoding="ascii") as file:
            file.write('#!/bin/sh -e\necho "$0" "$#" "$2"; kill -USR1 $$\n')
        os.chmod(script, 0o700)
        self.same(script, "one", "two words")
        threads = "import threading as t; a=[]; b=[t.Thread(target=a.append, args=(i,)) for i in range(9)]; "
        self.same(
            "python3",
            "-c",
            threads + "[x.start() for x in b]; [x.join() for x in b]; print(sorted(a)); raise SystemExit(4)",
        )

    def test_the_environment_is_the_programs_own(self):
        environment = {"PATH": os.environ["PATH"], "LD_BIND_NOW": "1", "MULTIGRAIN_TEST_SEED": "5", "Z": "last"}
        self.same("env", env=environment)
        self.same("printenv", "LD_BIND_NOW", env=environment)
        self.same("sh", "-c", "ls /proc/self/fd | wc -l; umask; ulimit -s; pwd")

    def test_what_cannot_be_run(self):
        folder = self.folder
        foreign = os.path.join(folder, "foreign")
        with open(foreign, "wb") as file:
            # This is the header of a program for 64-bit ARM.
            file.write(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\xb7\x00\x01\x00\x00\x00" + bytes(200))
        damaged = os.path.join(folder, "damaged")
        with open("/bin/true", "rb") as whole, open(damaged, "wb") as file:
            file.write(whole.read(70))
        no_interpreter = os.path.join(folder, "no-interpreter")
        with open(no_interpreter, "w", encoding="ascii") as file:
            file.write("#!/nonexistent/interpreter\n")
        for path in (foreign, damaged, no_interpreter):
            os.chmod(path, 0o700)
        for program, status, words in (
            ("/nonexistent", 127, "No such file"),
            ("no-such-program-anywhere", 127, "PATH"),
            (folder, 126, "directory"),
            ("/etc/passwd", 126, "not executable"),
            (foreign, 126, "another architecture"),
            (damaged, 126, "damaged"),
            (no_interpreter, 127, "/nonexistent/interpreter"),
        ):
            with self.subTest(program=program):
                found, output, message = run((*HOSTED, program))
                self.assertEqual((found, output), (status, b""), message)
                self.assertIn(words, message.decode())
                self.assertEqual(len(message.splitlines()), 1, message)
        for options, words in (
            (("--nodes", "2", "--protocol", "hlrc"), "--protocol sc"),
        ):
            found, _, message = run((f"{BIN}/mgrun", *options, "--binary", "--", "true"))
            self.assertEqual(found, 2)
            self.assertIn(words, message.decode())

    def test_what_a_container_forbids_is_said_in_a_sentence(self):
        for what, nodes, statuses, words in (
            ("dispatch", 1, (126,), b"Syscall User Dispatch"),
            ("dispatch", 2, (1, 2), b"Syscall User Dispatch"),
            ("userfaultfd", 2, (1, 2), b"only where userfaultfd works"),
        ):
            with self.subTest(what=what, nodes=nodes):
                hosted = (f"{BIN}/mgrun", "--nodes", str(nodes), "--binary", "--", "echo", "x")
                status, output, message = run((f"{PROGRAMS}/forbid", what, *hosted))
                self.assertIn(status, statuses, message)
                self.assertEqual(output, b"")
                self.assertIn(words, message)
        # A program can do without these.
        for what, nodes in (("userfaultfd", 1), ("membarrier", 1), ("membarrier", 2), ("shmat", 2)):
            with self.subTest(what=what, nodes=nodes):
                hosted = (f"{BIN}/mgrun", "--nodes", str(nodes), "--binary", "--", "echo", "x")
                self.assertEqual(run((f"{PROGRAMS}/forbid", what, *hosted)), (0, b"x\n", b""))

    def test_a_call_that_is_not_supported_is_named_once(self):
        # io_uring_setup
        program = "import ctypes, os; c = ctypes.CDLL(None, use_errno=True).syscall; print(c(425, 0, 0), c(425, 0, 0), ctypes.get_errno())"
        status, output, message = run((*HOSTED, "python3", "-c", program))
        self.assertEqual((status, output), (0, b"-1 -1 38\n"))
        self.assertEqual(message.count(b"io_uring_setup"), 1)

    def test_signals_reach_the_program(self):
        script = "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.1; done"
        with subprocess.Popen([*HOSTED, "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.communicate(timeout=PATIENCE_S), (b"caught\n", b""))
            self.assertEqual(process.returncode, 9)
        # One program does nothing about the signal; the other is stopped and goes on.
        for number in (signal.SIGTERM, signal.SIGINT):
            with subprocess.Popen(
                [*HOSTED, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as process:
                process.stdin.write(b"x\n")
                process.stdin.flush()
                self.assertEqual(process.stdout.readline(), b"x\n")
                process.send_signal(number)
                self.assertEqual(process.wait(PATIENCE_S), -number)
                self.assertEqual(process.stderr.read(), b"")

    def test_a_closed_pipe_ends_it_as_by_itself(self):
        for prefix in ((), HOSTED):
            with subprocess.Popen([*prefix, "yes"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                self.assertEqual(process.stdout.read(4), b"y\ny\n")
                process.stdout.close()
                self.assertEqual(process.wait(PATIENCE_S), -signal.SIGPIPE)
                self.assertEqual(process.stderr.read(), b"")

    def test_a_full_disk_is_the_programs_to_see(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [*HOSTED, "echo", "x"], stdout=full, stderr=subprocess.PIPE, check=False, timeout=PATIENCE_S
            )
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"No space left on device", done.stderr)

    def test_a_run_that_is_killed_leaves_nothing(self):
        with subprocess.Popen([*HOSTED, "sh", "-c", "echo $$; exec sleep 1000"], stdout=subprocess.PIPE) as process:
            guest = int(process.stdout.readline())
            process.kill()
            process.wait(PATIENCE_S)
            until = time.monotonic() + PATIENCE_S
            while os.path.exists(f"/proc/{guest}") and time.monotonic() < until:
                time.sleep(0.01)
            self.assertFalse(os.path.exists(f"/proc/{guest}"))


class OnSeveralNodes(unittest.TestCase):
    """Threads on other nodes than the first: their memory, their calls and their signals."""

    def same(self, nodes, *command, **options):
        with self.subTest(nodes=nodes, command=command[:3]):
            hosted = (f"{BIN}/mgrun", "--nodes", str(nodes), "--binary", "--")
            self.assertEqual(run((*hosted, *command), **options), run(command, **options))

    def test_threads(self):
        for nodes in (2, 3):
            for _ in range(5):
                self.same(nodes, f"{PROGRAMS}/threads")

    def test_locks_shared_with_others(self):
        for nodes in (2, 3):
            self.same(nodes, f"{PROGRAMS}/shared_locks")

    def test_families_of_processes(self):
        for nodes in (1, 2, 3):
            self.same(nodes, f"{PROGRAMS}/families", "2")

    def test_processes_on_other_nodes(self):
        # The statistics say that they were there.
        counts = re.compile(rb"processes: (\d+) forked, (\d+) to other nodes, (\d+) at home [^;]*; (\d+) came home")
        for name, rounds, nodes in (("placed", "1", 2), ("placed", "2", 3), ("families", "2", 2), ("processes", "", 2)):
            with self.subTest(name=name, nodes=nodes):
                command = (f"{PROGRAMS}/{name}", rounds) if rounds else (f"{PROGRAMS}/{name}",)
                options = ("--nodes", str(nodes), "--processes", "spread", "--stats", "text", "--binary")
                status, out, messages = run((f"{BIN}/mgrun", *options, "--", *command))
                self.assertEqual((status, out), run(command)[:2])
                found = counts.search(messages)
                self.assertIsNotNone(found, messages)
                forked, away, at_home, returned = map(int, found.groups())
                self.assertEqual(away + at_home, forked)
                self.assertGreater(away, 0)
                if name == "placed":
                    self.assertGreater(returned, 0)
                    self.assertGreater(away, returned)

    def test_a_thousand_processes_on_other_nodes_leave_nothing(self):
        mark = f"MULTIGRAIN_TEST_MARK={os.getpid()}".encode()

        def left():
            found = []
            for entry in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{entry}/environ", "rb") as file:
                        if int(entry) != os.getpid() and mark in file.read().split(b"\0"):
                            found.append(entry)
                except (FileNotFoundError, ProcessLookupError, PermissionError):
                    pass
            return found

        children = f"{PROGRAMS}/children"
        hosted = (f"{BIN}/mgrun", "--nodes", "3", "--processes", "spread", "--binary", "--", children, "1000")
        name, _, value = mark.decode().partition("=")
        self.assertEqual(run(hosted, env={**os.environ, name: value}), run((children, "1000")))
        # What starts processes on a node ends a moment after the node.
        until = time.monotonic() + PATIENCE_S
        while left() and time.monotonic() < until:
            time.sleep(0.1)
        self.assertEqual(left(), [])

    def test_what_cannot_be_spread_is_said(self):
        for options, words in (
            (("--processes", "elsewhere", "--binary"), "neither home nor spread"),
            (("--processes", "spread"), "--binary"),
            (("--processes", "spread", "--hosts", "localhost:2", "--binary"), "one machine"),
        ):
            found, _, message = run((f"{BIN}/mgrun", "--nodes", "2", *options, "--", "true"))
            self.assertEqual(found, 2)
            self.assertIn(words, message.decode())

    def test_the_memory_of_forked_processes(self):
        for nodes in (1, 2, 3):
            self.same(nodes, f"{PROGRAMS}/copies")

    def test_files_that_are_mapped(self):
        for nodes in (1, 2, 3):
            self.same(nodes, f"{PROGRAMS}/mapped_files")

    def test_signals_to_the_run_are_the_programs(self):
        program = (
            "import signal, sys, threading, time\n"
            "def end(*_):\n    time.sleep(1); print('caught', flush=True); sys.exit(9)\n"
            "for n in (1, 2, 15): signal.signal(n, end)\n"
            "for _ in range(2): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
            "print('ready', flush=True)\n"
            "while True: time.sleep(0.1)\n"
        )
        hosted = (f"{BIN}/mgrun", "--nodes", "2", "--binary", "--", "python3", "-c", program)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with (
                self.subTest(number=number),
                subprocess.Popen(hosted, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
            ):
                self.assertEqual(process.stdout.readline(), b"ready\n")
                process.send_signal(number)
                self.assertEqual(process.communicate(timeout=PATIENCE_S), (b"caught\n", b""))
                self.assertEqual(process.returncode, 9)

    def test_what_processes_share(self):
        for nodes in (1, 2, 3):
            self.same(nodes, f"{PROGRAMS}/segments", "0")
        for threads in ("2", "4"):
            self.same(1, f"{PROGRAMS}/segments", threads)

    def test_what_threads_of_other_nodes_share_with_processes(self):
        for nodes in (2, 3):
            for threads in ("2", "4"):
                self.same(nodes, f"{PROGRAMS}/segments", threads)

    def test_futex_words_whose_areas_change(self):
        for nodes in (1, 2, 3):
            self.same(nodes, f"{PROGRAMS}/words")

    @unittest.skipUnless(os.geteuid() == 0, "only root can mount file systems and run programs as any user")
    def test_a_full_dev_shm(self):
        small = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"', "sh")
        if run((*small, "true"))[0] != 0:
            self.skipTest("file systems cannot be mounted here")
        alone = run((*small, f"{PROGRAMS}/shortage", "memory"))
        self.assertEqual(alone[0], 4, alone)
        for nodes in ("1", "2", "3"):
            with self.subTest(nodes=nodes):
                hosted = (f"{BIN}/mgrun", "--nodes", nodes, "--binary", "--")
                self.assertEqual(run((*small, *hosted, f"{PROGRAMS}/shortage", "memory")), alone)

    @unittest.skipUnless(os.geteuid() == 0, "only root can mount file systems and run programs as any user")
    def test_too_many_processes_and_threads(self):
        def as_user(limit, *command):
            """Runs it as a user who has no other processes, and may have `limit` tasks."""

            def begin():
                resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))

            return run(command, user=64321, group=64321, extra_groups=[], cwd="/", preexec_fn=begin)

        binaries = os.path.abspath(BIN)
        program = (f"{os.path.abspath(PROGRAMS)}/shortage", "processes")
        try:
            if as_user(80, f"{binaries}/mgrun", "--version")[0] != 0:
                raise PermissionError
        except PermissionError:
            self.skipTest("another user cannot reach the programs")
        alone = as_user(80, *program)
        self.assertEqual(alone[0], 4, alone)
        # A thread on another node takes two tasks, so another limit has another of them be one too many.
        for nodes, limit in (("1", 80), ("2", 80), ("2", 81), ("2", 82), ("3", 83)):
            with self.subTest(nodes=nodes, limit=limit):
                hosted = (f"{binaries}/mgrun", "--nodes", nodes, "--binary", "--")
                self.assertEqual(as_user(limit, *hosted, *program), alone)

    def test_a_thousand_children_leave_nothing(self):
        def left(session):
            """What names the session's first process, and the processes of the session."""
            with open("/proc/net/unix", encoding="ascii") as file:
                names = [line.split(None, 7)[-1] for line in file]
            own = re.compile(rf"(?<!\d){session}(?!\d)")
            found = [name for name in (*names, *os.listdir("/dev/shm")) if own.search(name)]
            for entry in os.listdir("/proc"):
                try:
                    if entry.isdigit() and os.getsid(int(entry)) == session:
                        found.append(entry)
                except ProcessLookupError:
                    pass
            return found

        # So many processes can take all processors of a host for longer than mgrun waits to hear from it.
        for options, children in ((("--nodes", "1"), 1000), (("--nodes", "2"), 1000), (("--hosts", "localhost:2"), 100)):
            with self.subTest(options=options):
                command = (f"{BIN}/mgrun", *options, "--binary", "--", f"{PROGRAMS}/children", str(children))
                with subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
                ) as process:
                    output, message = process.communicate(timeout=PATIENCE_S)
                total = children * (children - 1) // 2
                expected = f"{children} exist\n{children} right, sum {total}, no more 1, own 1\n".encode()
                self.assertEqual((process.returncode, output, message), (0, expected, b""))
                self.assertEqual(left(process.pid), [])

    def test_threads_come_home_to_what_processes_share(self):
        # Nodes of several hosts, which here are one, have no files of each other's.
        for hosts in ("localhost:2", "localhost:3"):
            hosted = (f"{BIN}/mgrun", "--hosts", hosts, "--binary", "--")
            for command in (
                (f"{PROGRAMS}/comes_home", "3"),
                (f"{PROGRAMS}/segments", "0"),
                (f"{PROGRAMS}/segments", "4"),
                (f"{PROGRAMS}/shared_locks",),
                (f"{PROGRAMS}/kernel",),
                (f"{PROGRAMS}/copies",),
                (f"{PROGRAMS}/mapped_files",),
            ):
                with self.subTest(hosts=hosts, command=command):
                    self.assertEqual(run((*hosted, *command)), run(command))

    def test_python_with_many_processes(self):
        program = """
import multiprocessing, os
from multiprocessing import shared_memory
def square(x): return x * x
def work(queue, lock, value, name):
    memory = shared_memory.SharedMemory(name)
    for _ in range(100):
        with lock:
            value.value += 1
            memory.buf[0] = (memory.buf[0] + 1) % 251
    memory.close()
    queue.put(os.getpid() != os.getppid())
if __name__ == '__main__':
    queue, lock, value = multiprocessing.Queue(), multiprocessing.Lock(), multiprocessing.Value('i', 0)
    memory = shared_memory.SharedMemory(create=True, size=100)
    workers = [multiprocessing.Process(target=work, args=(queue, lock, value, memory.name)) for _ in range(4)]
    for worker in workers: worker.start()
    print([queue.get() for _ in workers])
    for worker in workers: worker.join()
    print(value.value, memory.buf[0], [worker.exitcode for worker in workers])
    memory.close()
    memory.unlink()
    for way in ('fork', 'spawn', 'forkserver'):
        with multiprocessing.get_context(way).Pool(2) as pool: print(way, sum(pool.map(square, range(100))))
"""
        script = os.path.join(tempfile.mkdtemp(prefix="multigrain-guest-"), "processes.py")
        self.addCleanup(shutil.rmtree, os.path.dirname(script), ignore_errors=True)
        with open(script, "w", encoding="ascii") as file:
            file.write(program)
        command = (shutil.which("python3"), script)
        for options in (("--nodes", "1"), ("--nodes", "2"), ("--hosts", "localhost:2")):
            with self.subTest(options=options):
                self.assertEqual(run((f"{BIN}/mgrun", *options, "--binary", "--", *command)), run(command))

    def test_what_the_system_keeps_for_a_process(self):
        for nodes in (1, 2, 4):
            self.same(nodes, f"{PROGRAMS}/kernel")

    def test_large_guests(self):
        for nodes, *what in (
            (1, "areas", "30000"),
            # The system may allow fewer mappings: then the areas are refused as natively.
            (1, "areas", "100000"),
            (2, "areas", "100000"),
            (2, "sparse", "64", "16384"),
            (4, "sparse", "64", "16384"),
            (2, "dense", "64"),
            (2, "threads", "1000"),
            (2, "all", "64", "30000", "1000"),
        ):
            self.same(nodes, f"{PROGRAMS}/large", *what)

    def test_what_large_guests_cost(self):
        # 64 MiB a node and 1 % of the guest's memory: threads, areas and memory, and pages far from each other.
        for nodes, *what in ((2, "all", "64", "30000", "1000"), (4, "sparse", "64", "16384"), (2, "sparse", "16", "256")):
            with self.subTest(nodes=nodes, what=what):
                guest = self.memory_of(0, *what)[0].guests
                for node in self.memory_of(nodes, *what):
                    self.assertLessEqual(node.own, (64 << 20) + guest // 100)
        # What grows with the guest's memory is 1 % of it, too.
        small, large = (64 << 20), (512 << 20)
        of_small, of_large = (self.memory_of(2, "dense", str(size >> 20)) for size in (small, large))
        for less, more in zip(of_small, of_large, strict=True):
            self.assertLessEqual(more.own - less.own, (large - small) // 100)

    def memory_of(self, nodes, *what):
        """What each node of the guest has while that has all of its memory; of 0 nodes, what it has by itself."""
        hosted = (f"{BIN}/mgrun", "--nodes", str(nodes), "--binary", "--") if nodes != 0 else ()
        command = (*hosted, f"{PROGRAMS}/large", "measure", *what)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run_of_it:
            lines = 3 if what[0] == "all" else 1
            for _ in range(lines):
                self.assertNotEqual(run_of_it.stdout.readline(), b"")
            time.sleep(0.2)  # The last thread that has ended may still be there.
            processes = processes_of(run_of_it.pid, "mghost-node") if nodes != 0 else [run_of_it.pid]
            found = [Memory.of(process) for process in processes]
            run_of_it.communicate(b"\n", timeout=PATIENCE_S)
            self.assertEqual(run_of_it.returncode, 0)
        self.assertEqual(len(found), max(nodes, 1))
        return found

    def test_signals_of_threads(self):
        for nodes in (2, 3):
            self.same(nodes, f"{PROGRAMS}/thread_signals", "30")

    def test_rights_to_memory(self):
        for nodes in (2, 3):
            self.same(nodes, f"{PROGRAMS}/rights", "20")

    def test_threads_that_come_and_go(self):
        self.same(2, f"{PROGRAMS}/churn", "all", "40")
        self.same(3, f"{PROGRAMS}/churn", "exit", "20")
        self.same(2, f"{PROGRAMS}/churn", "last", "20")

    def test_faults(self):
        self.same(2, f"{PROGRAMS}/faults")
        # These are the ways in which a process dies of a thread's signal: handled, ignored and blocked.
        for how in ("segv", "segvi", "segvb", "fpe", "fpei", "fpeb", "illi", "illb", "trapi", "trapb"):
            self.same(2, f"{PROGRAMS}/faults", how)
        for how in ("abort", "overflow", "kill", "term", "rt", "exit", "_exit", "cancel", "badstack"):
            self.same(2, f"{PROGRAMS}/faults", how)

    def test_a_thread_that_is_away_executes_a_program(self):
        program = "import os, threading as t; x=t.Thread(target=lambda: os.execvp('sh', ['sh', '-c', 'echo it; exit 5'])); x.start(); x.join()"
        self.same(2, shutil.which("python3"), "-c", program)
        program = "import os, threading as t; x=t.Thread(target=lambda: print(os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 6'], {}), 0)[1])); x.start(); x.join()"
        self.same(2, shutil.which("python3"), "-c", program)

    def test_a_user_without_privileges(self):
        # For a moment root owns the files of a process that ends, while threads of other nodes may want to map one.
        options = {"user": "nobody", "group": "nogroup", "extra_groups": [], "cwd": "/"}
        program = os.path.abspath(f"{PROGRAMS}/threads")
        command = (os.path.abspath(f"{BIN}/mgrun"), "--nodes", "4", "--binary", "--", program)
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        try:
            alone = run((program,), **options)
        except PermissionError:
            self.skipTest("another user cannot reach the programs")
        for _ in range(10):
            self.assertEqual(run(command, **options), alone)

    def test_one_thread(self):
        for program in ("signals", "processes"):
            self.same(2, f"{PROGRAMS}/{program}")
        self.same(2, f"{PROGRAMS}/sites", "on-nodes")
        self.same(2, "sh", "-c", "ls / | sort -r | head -3; echo $(expr 3 + 4); exit 11")
        self.same(2, "cat", input=os.urandom(1_500_000))

    def test_programs_of_a_distribution(self):
        threads = "import threading as t; a=[]; b=[t.Thread(target=a.append, args=(i,)) for i in range(9)]; "
        self.same(
            2,
            shutil.which("python3"),
            "-c",
            threads + "[x.start() for x in b]; [x.join() for x in b]; print(sorted(a))",
        )
        data = os.urandom(1_000_000) + b"again and again, " * 100_000
        for command in (
            ("sort", "--parallel=4"),
            ("xz", "-T2", "--block-size=500000", "-1"),
            ("zstd", "-q", "-T2"),
            ("pigz", "-p4", "-n"),
        ):
            if shutil.which(command[0]):
                self.same(2, *command, input=data)

    def test_openmp_sleeps_unless_the_user_has_decided(self):
        hosted = (f"{BIN}/mgrun", "--nodes", "2", "--binary", "--", "env")
        environment = {"PATH": os.environ["PATH"], "A": "1"}
        expected = {*(f"{name}={value}" for name, value in environment.items()), "OMP_WAIT_POLICY=passive"}
        self.assertEqual(set(run(hosted, env=environment)[1].decode().splitlines()), expected)
        environment["KMP_BLOCKTIME"] = "200"
        self.assertNotIn(b"OMP_WAIT_POLICY", run(hosted, env=environment)[1])

    def test_descriptors_of_the_host_are_out_of_reach(self):
        program = """
import os, resource, sys, threading
def use():
    before = len(os.listdir('/proc/self/fd'))
    fd = os.open('/proc/self/exe', os.O_RDONLY)
    os.close(fd)
    results.append(fd < 64 and before < 70 and os.fstat(2) is not None)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for fd in range(hard, hard + 20):
        for call in (os.close, os.fstat, os.dup):
            try: results.append(call(fd) and False)
            except OSError as error: results.append(error.errno == 9)
def in_threads():
    threads = [threading.Thread(target=use) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
results = []
in_threads()
fds = [os.dup(0) for _ in range(4)]
results.append(fds == [3, 4, 5, 6])
os.closerange(3, 1 << 20)
for fd in range(3, 70000):
    try: os.close(fd)
    except OSError: pass
in_threads()
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
if hasattr(os, 'closerange'): os.closerange(3, 0x7fffffff)
for fd in list(range(3, 60)) + [limit[1], limit[1] + 1, limit[1] + 7]:
    try: os.dup2(2, fd)
    except OSError: results.append(fd >= limit[1])
for fd in sorted(map(int, os.listdir('/proc/self/fd'))): results.append(fd < limit[1])
in_threads()
if os.fork() == 0:
    results.append(resource.getrlimit(resource.RLIMIT_NOFILE)[0] == limit[0])
    print('child', all(map(bool, results)), flush=True)
    os._exit(0)
os.wait()
import subprocess
print(subprocess.run(['echo', 'x'], capture_output=True, close_fds=True).stdout)
print(all(results), sorted(set(map(bool, results))))
"""
        several = ("--nodes", "3", "--procs-per-node", "2")
        over_ucx = (("--nodes", "2", "--fabric", "ucx"), ("--hosts", "localhost:2"), ("--hosts", "localhost:2,localhost"))
        for options in (("--nodes", "1"), ("--nodes", "2"), several, *over_ucx):
            with self.subTest(options=options):
                status, output, message = run(
                    (f"{BIN}/mgrun", *options, "--binary", "--", sys.executable, "-c", program)
                )
                self.assertEqual((status, output), (0, b"child True\nb'x\\n'\nTrue [True]\n"), message)

    def test_a_guest_has_the_processors_of_all_nodes(self):
        program = """
import ctypes, os, threading
def number(path, word): return sum(line.startswith(word) for line in open(path))
def look():
    tid = threading.get_native_id()
    all = set(range(N))
    seen = [os.cpu_count() == N, os.sched_getaffinity(0) == all, os.sched_getaffinity(tid) == all]
    seen.append(number('/proc/cpuinfo', 'processor') == number('//proc/./cpuinfo', 'processor') == N)
    seen.append(sum(line.startswith('cpu') and line[3].isdigit() for line in open('/proc/stat')) == N)
    seen.append(open('/sys/devices/system/cpu/online').read() == f'0-{N - 1}' + chr(10))
    folder = os.open('/sys/devices/system/cpu', os.O_RDONLY)
    file = os.open('possible', os.O_RDONLY, dir_fd=folder)
    if tid == os.getpid(): seen.append(os.read(file, 100) == b'0-%d' % (N - 1) + bytes([10]))
    seen.append(0 <= ctypes.CDLL(None).sched_getcpu() < N)
    status = dict(line.split(':', 1) for line in open('/proc/thread-self/status'))
    seen.append(status['Cpus_allowed_list'].strip() == f'0-{N - 1}')
    seen.append(int(status['Pid']) == tid)
    os.sched_setaffinity(0, {N - 1, 5000})
    seen.append(os.sched_getaffinity(tid) == {N - 1} and ctypes.CDLL(None).sched_getcpu() == N - 1)
    started = []
    thread = threading.Thread(target=lambda: started.append(os.sched_getaffinity(0)))
    thread.start(); thread.join()
    seen.append(started == [{N - 1}])
    os.sched_setaffinity(0, all)
    try: os.sched_setaffinity(0, {N})
    except OSError as error: seen.append(error.errno == 22)
    if not all or not min(seen): print('wrong', tid, seen)
    done.append(min(seen))
done = []
look()
for _ in range(4):
    thread = threading.Thread(target=look)
    thread.start(); thread.join()
pairs = open('/proc/self/auxv', 'rb').read()
words = [int.from_bytes(pairs[i:i + 8], 'little') for i in range(0, len(pairs), 8)]
entry = dict(zip(words[::2], words[1::2]))[9]
inside = [l for l in open('/proc/self/maps') if int(l.split('-')[0], 16) <= entry < int(l.split('-')[1].split()[0], 16)]
# A thread that was joined exists for a moment more, as natively.
while len(os.listdir('/proc/self/task')) > 1: pass
print(done, os.path.realpath('/proc/self/exe') in inside[0], os.listdir('/proc/self/task') == [str(os.getpid())])
"""
        for nodes, each in ((2, 1), (3, 2)):
            with self.subTest(nodes=nodes):
                command = (sys.executable, "-c", f"N = {nodes * each}\n" + program)
                hosted = (f"{BIN}/mgrun", "--nodes", str(nodes), "--procs-per-node", str(each), "--binary", "--")
                status, output, message = run((*hosted, *command))
                self.assertEqual((status, output), (0, b"[True, True, True, True, True] True True\n"), message)
                if shutil.which("nproc"):
                    self.assertEqual(run((*hosted, "nproc"))[1], b"%d\n" % (nodes * each))

    def test_forked_processes_have_the_processors_of_all_nodes(self):
        # A forked process may have counted processors before the fork, as OpenMP's runtimes have.
        program = """
import os, subprocess, threading
def look(mask):
    tid = threading.get_native_id()
    status = dict(line.split(':', 1) for line in open('/proc/thread-self/status'))
    return [os.sched_getaffinity(0) == os.sched_getaffinity(tid) == mask,
            os.sysconf('SC_NPROCESSORS_ONLN') == N,
            sum(line.startswith('processor') for line in open('/proc/cpuinfo')) == N,
            open('/sys/devices/system/cpu/online').read() == f'0-{N - 1}' + chr(10),
            open(f'/sys/devices/system/cpu/cpu{N - 1}/topology/physical_package_id').read() == f'{NODES - 1}' + chr(10),
            not os.path.exists(f'/sys/devices/system/cpu/cpu{N}/topology'),
            int(status['Cpus_allowed'], 16) == sum(1 << i for i in mask), int(status['Pid']) == tid]
def in_child(mask):
    seen = look(mask)
    less = set(range(1, N))
    os.sched_setaffinity(0, less)
    threads = []
    thread = threading.Thread(target=lambda: threads.extend(look(less)))
    thread.start(); thread.join()
    seen += look(less) + threads
    grandchild = os.fork()
    if grandchild == 0: os._exit(0 if min(look(less)) else 1)
    seen.append(os.waitpid(grandchild, 0)[1] == 0)
    try: os.sched_setaffinity(0, {N})
    except OSError as error: seen.append(error.errno == 22)
    # What it executes is no guest, and has as many of the machine's processors as it may use.
    os.sched_setaffinity(0, {N - 1})
    seen.append(subprocess.run(['nproc'], capture_output=True).stdout == b'1' + bytes([10]))
    if not min(seen) or len(seen) != 27: print('wrong', seen, flush=True)
    return 0 if min(seen) and len(seen) == 27 else 1
def fork(mask):
    child = os.fork()
    if child == 0: os._exit(in_child(mask))
    done.append(os.waitpid(child, 0)[1])
done = []
fork(set(range(N)))
def away():
    os.sched_setaffinity(0, {0, N - 1})
    fork({0, N - 1})
for _ in range(3):
    thread = threading.Thread(target=away)
    thread.start(); thread.join()
print(done)
"""
        if not shutil.which("nproc"):
            self.skipTest("there is no nproc")
        for nodes, each in ((2, 1), (3, 2)):
            with self.subTest(nodes=nodes):
                command = (sys.executable, "-c", f"N = {nodes * each}\nNODES = {nodes}\n" + program)
                hosted = (f"{BIN}/mgrun", "--nodes", str(nodes), "--procs-per-node", str(each), "--binary", "--")
                status, output, message = run((*hosted, *command))
                self.assertEqual((status, output), (0, b"[0, 0, 0, 0]\n"), message)

    def test_programs_at_fixed_addresses(self):
        for kind in ("fixed", "static"):
            self.same(2, f"{PROGRAMS}/signals_{kind}")
            self.same(3, f"{PROGRAMS}/threads_{kind}")

    def test_a_program_survives_signals_for_which_it_has_handlers(self):
        # Of the launcher's, and of its own to its whole group of processes, to which the nodes and mgrun belong.
        script = "trap 'echo caught' TERM; echo ready; read -r line; echo $line; trap '' HUP; kill -HUP 0; echo alive"
        for command in (("bash", "-c", script), (f"{BIN}/mgrun", "--nodes", "2", "--binary", "--", "bash", "-c", script)):
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            ) as process:
                self.assertEqual(process.stdout.readline(), b"ready\n")
                process.send_signal(signal.SIGTERM)
                # bash acts on the signal, and reads on.
                self.assertEqual(process.stdout.readline(), b"caught\n")
                self.assertEqual(process.communicate(b"line\n", timeout=PATIENCE_S), (b"line\nalive\n", b""))
                self.assertEqual(process.returncode, 0)

    def test_a_node_that_is_killed_ends_the_run(self):
        with subprocess.Popen(
            [f"{BIN}/mgrun", "--nodes", "2", "--binary", "--", "sh", "-c", "echo ready; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            self.assertEqual(process.stdout.readline(), b"ready\n")
            with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
                children = [int(pid) for pid in file.read().split()]
            self.assertEqual(len(children), 2)
            os.kill(children[1], signal.SIGKILL)
            self.assertNotEqual(process.wait(PATIENCE_S), 0)
            for pid in children:
                self.assertFalse(os.path.exists(f"/proc/{pid}"))


class BesideALauncher(unittest.TestCase):
    """What has mgrun stay beside the program: its output is labelled, and nothing else differs."""

    def check(self, *command, **options):
        """What the program says and how it ends is as by itself, but for the labels."""
        with self.subTest(command=command):
            status, *streams = run(command, **options)
            labelled = tuple(b"".join(b"[0] " + line + b"\n" for line in text.splitlines()) for text in streams)
            # Messages of mgrun would have no label.
            self.assertEqual(run((*LABELLED, *command), **options), (status, *labelled))

    def test_output_is_labelled_and_input_passes(self):
        self.check("sh", "-c", "echo out; echo error >&2; cat; exit 7", input=b"one\ntwo\n")
        self.check("printf", "without an end of line")
        self.check("sort", "-r", input=b"".join(b"%d\n" % i for i in range(50_000)))

    def test_a_signal_that_ends_the_program_ends_mgrun(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGXFSZ):
            self.check("sh", "-c", f"echo before; kill -{number} $$")
            # The guest runs under a shell, which says 128 and the signal's number.
            status, _, message = run(["sh", "-c", '"$@"; exit $?', "sh", *LABELLED, "sh", "-c", f"kill -{number} $$"])
            self.assertEqual(status, 128 + number)
            self.assertNotIn(b"mgrun:", message)

    def test_signals_to_mgrun_reach_the_program(self):
        script = "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.1; done"
        for command, output, status in (
            (("sh", "-c", script), b"[0] caught\n", 9),
            (("sh", "-c", "echo ready; exec sleep 1000"), b"", -signal.SIGTERM),
        ):
            with subprocess.Popen([*LABELLED, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                self.assertEqual(process.stdout.readline(), b"[0] ready\n")
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.communicate(timeout=PATIENCE_S), (output, b""))
                self.assertEqual(process.returncode, status)

    def test_the_environment_is_the_programs_own(self):
        environment = {"PATH": os.environ["PATH"], "LD_BIND_NOW": "1", "MULTIGRAIN_TEST_SEED": "5", "Z": "last"}
        self.check("env", env=environment)
        self.check("sh", "-c", "umask; ulimit -s; pwd", env=environment)

    def test_what_cannot_be_run(self):
        for program, status in (("/nonexistent", 127), ("/etc/passwd", 126)):
            found, output, message = run((*LABELLED, program))
            self.assertEqual((found, output, len(message.splitlines())), (status, b"", 1), message)


if __name__ == "__main__":
    unittest.main()
