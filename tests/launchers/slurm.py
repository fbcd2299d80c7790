"""A Slurm of one machine and without systemd: munged, slurmctld and two slurmd's, which Slurm takes for two nodes.

Everything lies in a temporary directory and listens on the loopback interface alone; everything is gone at the end, also
when the test is killed (the daemons die with their parent).
"""

import ctypes
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

NODES = ("mgn1", "mgn2")
CORES_OF_A_NODE = 4  # as far as Slurm is concerned: configured, not counted
PATIENCE_S = 300
_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo", "scancel")
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def find(program):
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def why_not():
    """Why there can be no Slurm here; None if it can be."""
    missing = [program for program in _PROGRAMS if find(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: slurmctld slurmd slurm-client munge)"
    if os.geteuid() != 0:
        return "slurmd must run as root"
    return None


def _free_ports(count):
    """Ports that nothing has, and that the kernel gives to nobody who asks for any: a daemon binds one only later.

    The tests of one Slurm after another (RESOURCE_LOCK) are the only ones here that choose such ports.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first_ephemeral = int(file.read().split()[0])
    candidates = list(range(min(20000, first_ephemeral // 2), first_ephemeral))
    random.shuffle(candidates)
    free = []
    for port in candidates:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            free.append(port)
        if len(free) == count:
            return free
    raise RuntimeError(f"fewer than {count} ports below {first_ephemeral} are free")


def _die_with_parent():
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)


class Slurm:
    """Use it as a context. `environment` is what srun needs."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="multigrain-slurm-")
        self.daemons = []
        try:
            self._configure()
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        if hasattr(self, "environment"):
            subprocess.run([find("scancel"), "--user", pwd.getpwuid(os.geteuid()).pw_name], env=self.environment,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE_S, check=False)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._end_step_daemons()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end_step_daemons(self):
        """slurmstepd leaves its parent; one that still cleans up is given a moment."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := self._step_daemons()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def _step_daemons(self):
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/comm", encoding="ascii", errors="replace") as comm:
                    if comm.read().strip() != "slurmstepd":
                        continue
                with open(f"/proc/{entry}/environ", "rb") as environment:
                    if self.folder.encode() in environment.read():
                        found.append(int(entry))
            except OSError:
                pass  # it is gone
        return found

    def path(self, name):
        return os.path.join(self.folder, name)

    def _configure(self):
        os.chmod(self.folder, 0o755)
        for folder in ["state"] + [f"{kind}-{node}" for kind in ("spool", "tmp") for node in NODES]:
            os.mkdir(self.path(folder))
        with open(self.path("munge.key"), "wb") as key:
            os.fchmod(key.fileno(), 0o400)
            key.write(os.urandom(1024))
        user = pwd.getpwuid(os.geteuid()).pw_name
        host = socket.gethostname().split(".")[0]
        control, *ports = _free_ports(1 + len(NODES))
        lines = [
            "ClusterName=multigrain", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={control}",
            f"SlurmUser={user}", f"SlurmdUser={user}", "AuthType=auth/munge", "CredType=cred/munge",
            f"AuthInfo=socket={self.path('munge.sock')}",
            # Slurm runs without cgroups, which need systemd.
            "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none", "SelectType=select/linear", "SchedulerType=sched/builtin",
            "SwitchType=switch/none", "ReturnToService=2", "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
            f"StateSaveLocation={self.path('state')}", f"SlurmdSpoolDir={self.path('spool-%n')}",
            # PMIx makes a directory a step here, which nodes on one machine must not share.
            f"TmpFS={self.path('tmp-%n')}",
            f"SlurmctldPidFile={self.path('slurmctld.pid')}", f"SlurmdPidFile={self.path('slurmd-%n.pid')}",
            "SlurmdParameters=config_overrides",
        ]
        lines += [f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CORES_OF_A_NODE}"
                  for node, port in zip(NODES, ports)]
        lines.append(f"PartitionName=all Nodes={','.join(NODES)} Default=YES State=UP OverSubscribe=FORCE")
        with open(self.path("slurm.conf"), "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")
        self.environment = {**os.environ, "SLURM_CONF": self.path("slurm.conf")}

    def _daemon(self, *command):
        with open(self.path(f"log-{len(self.daemons)}"), "wb") as log:
            self.daemons.append(subprocess.Popen(
                [find(command[0]), *command[1:]], env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True, preexec_fn=_die_with_parent))

    def _logs(self):
        text = ""
        for number in range(len(self.daemons)):
            with open(self.path(f"log-{number}"), encoding="utf-8", errors="replace") as log:
                text += f"--- {' '.join(self.daemons[number].args)}\n{log.read()}"
        return text

    def _wait_for(self, what, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline or any(daemon.poll() is not None for daemon in self.daemons):
                raise RuntimeError(f"Slurm does not start: no {what}\n{self._logs()}")
            time.sleep(0.1)

    def _start(self):
        munge = self.path("munge.sock")
        self._daemon("munged", "--foreground", "--force", f"--key-file={self.path('munge.key')}", f"--socket={munge}",
                     f"--pid-file={self.path('munged.pid')}", f"--seed-file={self.path('munged.seed')}")
        self._wait_for("munge socket", lambda: os.path.exists(munge))
        self._daemon("slurmctld", "-D", "-i")
        for node in NODES:
            self._daemon("slurmd", "-D", "-N", node)
        self._wait_for("idle nodes", self._nodes_are_idle)

    def _nodes_are_idle(self):
        answer = subprocess.run([find("sinfo"), "-h", "-N", "-o", "%T"], env=self.environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PATIENCE_S, check=False)
        return answer.stdout.split() == ["idle"] * len(NODES)
