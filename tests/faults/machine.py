"""A machine of its own for runs that are to be disturbed: namespaces for processes, network, names and System V memory,
and an empty /dev/shm and temporary folder. So what a run leaves behind is exactly what is there afterwards, and whatever
else goes on here has no part in it.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time

TOOLS = ["unshare", "mount", "ip", "setpriv"]
# Both names mean this machine to mgrun: a run on two hosts without a network between them.
HOST = "here"
_SCRIPT = """
mount -t tmpfs none /dev/shm && hostname "$0" && ip link set lo up && exec "$@"
"""


def missing():
    """Why there can be no such machine here, or None."""
    if os.geteuid() != 0:
        return "only root can make namespaces"
    for tool in TOOLS:
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    probe = subprocess.run(command(["true"]), capture_output=True, text=True)
    return None if probe.returncode == 0 else f"the kernel makes no namespaces: {probe.stderr.strip()}"


def command(arguments):
    """The command, as the first process of a new machine. It ends with the process that starts it, and all others with it."""
    return ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork",
            "--mount-proc", "--kill-child", "sh", "-c", _SCRIPT, HOST, *arguments]


def processes():
    """All but this one, which must be the machine's first."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()]


def _read(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""  # it has just ended


def command_line(pid):
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def state(pid):
    after_name = _read(pid, "stat").rpartition(b")")[2].split()
    return after_name[0].decode() if after_name else "?"


def variable(pid, name):
    """The variable as the process was started with it, or None."""
    prefix = name.encode() + b"="
    for entry in _read(pid, "environ").split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix):].decode(errors="replace")
    return None


def runs(pid, program):
    try:
        return os.readlink(f"/proc/{pid}/exe") == program
    except OSError:
        return False


def reap():
    """Takes note of the ends of processes that were left to the machine's first one."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


def leftovers(seconds):
    """What is there that was not there at first, once that many seconds have passed or nothing is left."""
    until = time.monotonic() + seconds
    while True:
        reap()
        left = [f"process {pid} ({state(pid)}) {command_line(pid)}" for pid in processes()]
        for folder in ("/dev/shm", tempfile.gettempdir()):
            left += [f"{folder}/{name}" for name in os.listdir(folder)]
        for kind in ("shm", "sem", "msg"):
            with open(f"/proc/sysvipc/{kind}", encoding="ascii") as file:
                left += [f"System V {kind} {line.split()[1]}" for line in file.readlines()[1:]]
        for kind in ("unix", "tcp", "tcp6", "udp"):
            with open(f"/proc/net/{kind}", encoding="ascii", errors="replace") as file:
                # The kernel keeps a connection that was closed for a while (06: TIME_WAIT).
                left += [f"{kind} socket {line.strip()}" for line in file.readlines()[1:]
                         if kind != "tcp" or line.split()[3] != "06"]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.02)


def clean():
    """Ends and removes what a run has left, for the next one's sake."""
    for pid in processes():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    time.sleep(0.1)
    reap()
    for folder in ("/dev/shm", tempfile.gettempdir()):
        for name in os.listdir(folder):
            path = f"{folder}/{name}"
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.unlink(path)
    with open("/proc/sysvipc/shm", encoding="ascii") as file:
        for line in file.readlines()[1:]:
            subprocess.run(["ipcrm", "-m", line.split()[1]], check=False)
