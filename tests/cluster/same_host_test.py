"""What nodes of one host leave open to that host's other users, to the programs that they execute, and behind them.

The host is a virtual one of its own, so what is found there belongs to the run. Users are numbers that nobody has; two of
them have a group in common, as on most clusters.
"""

import ctypes
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

from virtual_hosts import VirtualHosts, eventually, missing

BIN = os.environ.get("MULTIGRAIN_TEST_BIN", "build/bin")
# This many runs of each of four kinds are ended in their start. The long test has more.
START_KILLS = int(os.environ.get("MULTIGRAIN_TEST_START_KILLS", "6"))
OWNER, OTHER_USER, GROUP = 64321, 64322, 64321

HOST = VirtualHosts("a")
_STATE = {}


def as_user(user, command):
    return ["setpriv", f"--reuid={user}", f"--regid={GROUP}", "--clear-groups", "--", *command]


def unusable():
    """Why there can be no such host, or no such users, here."""
    reason = missing()
    if reason is None and subprocess.run(as_user(OWNER, ["test", "-x", f"{BIN}/mgrun"]), check=False).returncode != 0:
        reason = f"another user than root cannot execute {BIN}/mgrun: a folder above it is closed"
    return reason


def setUpModule():
    _STATE["missing"] = unusable()
    if _STATE["missing"] is None:
        HOST.__enter__()


def tearDownModule():
    HOST.close()


# --- The attacker: this file, executed on the host by a user. Prints what it has got hold of.

def attach_segments():
    """System V segments that could be attached for writing."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    with open("/proc/sysvipc/shm", encoding="ascii") as file:
        identifiers = [int(line.split()[1]) for line in file.readlines()[1:]]
    return [f"segment {one}" for one in identifiers if libc.shmat(one, None, 0) != ctypes.c_void_p(-1).value]


def open_files(paths, flags=os.O_RDWR):
    got = []
    for path in paths:
        try:
            os.close(os.open(path, flags | os.O_NONBLOCK))
            got.append(path)
        except OSError:
            pass
    return got


def send_to_sockets():
    """Local sockets that took a message or a connection."""
    got = []
    with open("/proc/net/unix", encoding="ascii", errors="surrogateescape") as file:
        lines = [line.split() for line in file.readlines()[1:]]
    for fields in lines:
        if len(fields) < 8:
            continue
        name = fields[7].replace("@", "\0", 1)
        kind = int(fields[4], 16)
        with socket.socket(socket.AF_UNIX, kind) as own:
            own.setblocking(False)
            try:
                own.sendto(b"\0", name) if kind == socket.SOCK_DGRAM else own.connect(name)
                got.append(f"socket {fields[7]}")
            except OSError:
                pass
    return got


def attack(processes):
    got = attach_segments() + send_to_sockets()
    got += open_files(f"/dev/shm/{name}" for name in os.listdir("/dev/shm"))
    for process in processes:
        folder = f"/proc/{process}"
        got += open_files([f"{folder}/mem", f"{folder}/environ", f"{folder}/maps"], os.O_RDONLY)
        try:
            got += open_files(f"{folder}/fd/{name}" for name in os.listdir(f"{folder}/fd"))
        except OSError:
            pass
    print(json.dumps(got))


# --- The tests

class NewFiles:
    """The names of files that appear in the host's /dev/shm while this exists."""

    IN_CREATE, IN_MOVED_TO = 0x100, 0x80

    def __init__(self):
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        watch = libc.inotify_add_watch(self._fd, f"/proc/{HOST['a'].pid}/root/dev/shm".encode(),
                                       self.IN_CREATE | self.IN_MOVED_TO)
        if self._fd < 0 or watch < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    def names(self):
        found = []
        try:
            while True:
                events = os.read(self._fd, 65536)
                at = 0
                while at < len(events):
                    _, _, _, length = struct.unpack_from("iIII", events, at)
                    found.append(events[at + 16:at + 16 + length].rstrip(b"\0").decode())
                    at += 16 + length
        except BlockingIOError:
            return found

    def close(self):
        os.close(self._fd)


class SameHost(unittest.TestCase):
    def setUp(self):
        if _STATE["missing"] is not None:
            self.skipTest(_STATE["missing"])
        self.host = HOST["a"]

    def start(self, arguments, user=OWNER, environment=None, **options):
        """mgrun on the host, with its signals as a terminal's programs have them."""
        settings = [f"{name}={value}" for name, value in (environment or {}).items()]
        command = ["env", "--default-signal=INT", *settings, f"{BIN}/mgrun", *map(str, arguments)]
        return self.host.start(as_user(user, command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, **options)

    def idle_run(self, nodes=3, **options):
        """A run that has started, and the numbers of its nodes, as this test and as the host's processes see them."""
        run = self.start(["--verbose", "--nodes", nodes, "--fabric", "ucx", f"{BIN}/tests/idle_program"], **options)
        pids = []
        for line in run.stdout:
            pids += [int(number) for number in re.findall(r"node \d+ is pid (\d+)", line)]
            if line == "computing\n":
                break
        self.addCleanup(self.end, run)
        self.assertEqual(len(pids), nodes)
        return run, {self.host.outside_pid(pid): pid for pid in pids}

    def end(self, run):
        if run.stdout.closed:
            return
        for pid in self.host.processes():
            os.kill(pid, signal.SIGKILL)
        run.communicate()
        self.assertTrue(eventually(lambda: not self.host.processes()))

    def attack_as(self, user, pids):
        done = self.host.run(as_user(user, [sys.executable, os.path.abspath(__file__), "attack", *map(str, pids)]))
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_another_user_of_the_same_group_reaches_nothing(self):
        _, pids = self.idle_run()
        self.assertEqual(self.attack_as(OTHER_USER, pids.values()), [])
        # The attack is one: it opens everything to the user whose run it is.
        own = self.attack_as(OWNER, pids.values())
        for pid in pids.values():
            self.assertIn(f"/proc/{pid}/mem", own)
            self.assertTrue([path for path in own if path.startswith(f"/proc/{pid}/fd/")])

    def test_nothing_of_a_run_has_a_name(self):
        new_files = NewFiles()
        self.addCleanup(new_files.close)
        run, _ = self.idle_run()
        sockets = self.host.run(["cat", "/proc/net/unix"], check=True).stdout.splitlines()[1:]
        named = [line.split()[7] for line in sockets if len(line.split()) > 7]
        left = self.host.leftovers()
        self.end(run)
        # There is no such file even for a moment, so there is no moment at which one could be left.
        self.assertEqual(new_files.names(), [])
        self.assertEqual([one for one in named if one.startswith("@")], [])
        self.assertEqual([one for one in left if not one.startswith(("process", "port"))], [])

    def test_programs_that_a_node_executes_inherit_nothing(self):
        _, pids = self.idle_run()
        for pid in pids:
            for name in os.listdir(f"/proc/{pid}/fd"):
                with open(f"/proc/{pid}/fdinfo/{name}", encoding="ascii") as file:
                    flags = int(re.search(r"flags:\s*(\d+)", file.read()).group(1), 8)
                if int(name) > 2:
                    self.assertTrue(flags & os.O_CLOEXEC, os.readlink(f"/proc/{pid}/fd/{name}"))

    def test_a_full_dev_shm_is_no_matter(self):
        shm = f"/proc/{self.host.pid}/root/dev/shm"
        self.host.run(["mount", "-o", "remount,size=64k", "/dev/shm"], check=True)
        with open(f"{shm}/full", "wb", buffering=0) as file:
            self.assertEqual(file.write(bytes(1 << 20)), 1 << 16)
        try:
            run = self.start(["--nodes", 3, "--fabric", "ucx", f"{BIN}/workloads/jacobi", "--size", "test", "--check"],
                             environment={"UCX_TLS": "posix,self"})
            output, _ = run.communicate(timeout=60)
        finally:
            os.unlink(f"{shm}/full")
            self.host.run(["mount", "-o", "remount,size=50%", "/dev/shm"], check=True)
        self.assertEqual(run.returncode, 0, output)
        self.assertIn("check: passed", output)

    def test_a_setuid_program_obeys_no_variable_of_its_caller(self):
        with tempfile.TemporaryDirectory(prefix="multigrain-setuid-") as folder:
            os.chmod(folder, 0o777)
            program, report = f"{folder}/program", f"{folder}/report"
            shutil.copy(f"{BIN}/workloads/jacobi", program)
            command = ["env", f"MULTIGRAIN_STATS=json:{report}", program, "--size", "test"]
            self.host.run(as_user(OTHER_USER, command), check=True)
            self.assertTrue(os.path.exists(report), "a program of its caller does obey")
            os.unlink(report)

            os.chmod(program, 0o4755)
            others = ["MULTIGRAIN_NODES=2", "MULTIGRAIN_NODE=1", "MULTIGRAIN_WIREUP=fd:0", "MULTIGRAIN_FABRIC=ucx",
                      "PMI_FD=0", "PMI_SIZE=2", "PMI_RANK=1"]
            done = self.host.run(as_user(OTHER_USER, [command[0], *others, *command[1:]]), stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertFalse(os.path.exists(report))

    def test_system_v_memory_is_refused(self):
        run = self.start(["--nodes", 2, "--fabric", "ucx", f"{BIN}/tests/idle_program"], environment={"UCX_TLS": "sysv"})
        output, _ = run.communicate(timeout=60)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("UCX_TLS=sysv asks for sysv", output)

    def check_ended_in_its_start(self, number, fabric):
        """Whatever the moment of its start at which a run is ended, nothing is left of it."""
        times = random.Random(7)
        left = []
        for _ in range(START_KILLS):
            moment = times.uniform(0.0, 0.25)
            run = self.start([*fabric, f"{BIN}/tests/idle_program"])
            mgrun = []

            def find():
                mgrun.extend(pid for pid, line in self.host.processes().items() if line.startswith(f"{BIN}/mgrun"))
                return mgrun

            self.assertTrue(eventually(find))
            try:
                run.wait(moment)
            except subprocess.TimeoutExpired:
                os.kill(mgrun[0], number)
            run.communicate(timeout=180)
            if not eventually(lambda: not self.host.leftovers(), 2):
                left.append(f"after {moment:.3f} s: {self.host.leftovers()}")
                self.host.run(["sh", "-c", "rm -f /dev/shm/*; ipcrm --all=shm"], check=True)
        self.assertEqual(left, [], f"something is left of {len(left)} runs of {START_KILLS}")

    def test_nothing_is_left_after_control_c_in_the_start(self):
        self.check_ended_in_its_start(signal.SIGINT, ["--nodes", 4, "--fabric", "ucx"])

    def test_nothing_is_left_after_kill_in_the_start(self):
        self.check_ended_in_its_start(signal.SIGKILL, ["--nodes", 4, "--fabric", "ucx"])

    def test_nothing_is_left_after_control_c_in_the_start_under_agents(self):
        self.check_ended_in_its_start(signal.SIGINT, ["--hosts", "localhost:3"])

    def test_nothing_is_left_after_kill_in_the_start_under_agents(self):
        self.check_ended_in_its_start(signal.SIGKILL, ["--hosts", "localhost:3"])


if __name__ == "__main__" and sys.argv[1:2] == ["attack"]:
    attack(sys.argv[2:])
