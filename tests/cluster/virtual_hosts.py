"""Hosts for tests: network namespaces on this machine that share nothing but the file system.

Each host has its own network (an address on a bridge that leads nowhere else), host name, processes, /dev/shm, System V
memory and /run, and an sshd with keys made for the purpose. They stand in for the machines of a cluster with a common
home directory. Everything hangs on one process a namespace, which the kernel kills with this one: however a test ends,
nothing stays behind.

    with VirtualHosts(["a", "b"]) as hosts:
        hosts["a"].run(["hostname"])
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time

TOOLS = ["ip", "nsenter", "setpriv", "ssh", "ssh-keygen", "unshare"]
SSHD = "/usr/sbin/sshd"


def missing():
    """Why there can be no virtual hosts here, or None."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    for tool in TOOLS:
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    if not os.access(SSHD, os.X_OK):
        return "openssh-server is not installed"
    probe = subprocess.run(["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c",
                            "ip link add one type veth peer name two && ip link add bridge type bridge"],
                           capture_output=True, text=True)
    if probe.returncode != 0:
        return f"the kernel makes no network namespaces with bridges: {probe.stderr.strip()}"
    return None


def eventually(condition, seconds=20.0):
    """Whether the condition comes to hold; gives up only where a hang would be the alternative."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


class Namespace:
    """A process that keeps a set of namespaces alive."""

    def __init__(self, *kinds):
        # The last process of a PID namespace's first one takes all others with it.
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", *kinds, "--fork", "--kill-child", "sh", "-c",
             "echo ready; exec sleep infinity"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
        assert self._process.stdout.readline() == b"ready\n"
        # This is the process inside, by its number outside.
        with open(f"/proc/{self._process.pid}/task/{self._process.pid}/children", encoding="ascii") as children:
            self.pid = int(children.read().split()[0])

    def close(self):
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._process.stdout.close()


class Host:
    def __init__(self, name, address, folder):
        self.name = name
        self.address = address
        self.folder = folder
        self._namespace = Namespace("--uts", "--ipc", "--mount", "--propagation", "private", "--pid", "--mount-proc")
        self.pid = self._namespace.pid
        self._sshd = None

    def close(self):
        self._namespace.close()
        if self._sshd is not None:
            self._sshd.wait()

    def command(self, arguments, directory="/"):
        """The command, as this machine runs it on that host."""
        return ["nsenter", "-t", str(self.pid), "--net", "--uts", "--ipc", "--mount", "--pid", f"--wdns={directory}", "--",
                *map(str, arguments)]

    def start(self, arguments, directory="/", **options):
        return subprocess.Popen(self.command(arguments, directory), **options)

    def run(self, arguments, timeout=600, directory="/", **options):
        """Runs a command there; returns its subprocess.CompletedProcess, with texts."""
        return subprocess.run(self.command(arguments, directory), capture_output=True, text=True, timeout=timeout,
                              **options)

    def set_up(self):
        """Name, /etc/hosts, memory of its own; the network's end is there already."""
        script = f"""
            set -e
            hostname {self.name}
            mount -t tmpfs tmpfs /dev/shm
            mount -t tmpfs tmpfs /run
            mkdir -m 755 /run/sshd
            mount --bind {self.folder}/hosts /etc/hosts
            ip link set lo up
            ip link set eth0 up
            ip address add {self.address}/24 dev eth0
        """
        subprocess.run(self.command(["sh", "-c", script]), check=True)

    def start_sshd(self):
        keys = f"{self.folder}/host_key_{self.name}"
        # SHLVL: bash reads ~/.bashrc if sshd has started it, unless it is inside another shell. What the user's says is
        # not the test's to see.
        config = f"{self.folder}/sshd_config_{self.name}"
        with open(config, "w", encoding="ascii") as file:
            file.write(f"""
                ListenAddress {self.address}
                HostKey {keys}
                AuthorizedKeysFile {self.folder}/user_key.pub
                PermitRootLogin prohibit-password
                PasswordAuthentication no
                KbdInteractiveAuthentication no
                StrictModes no
                SetEnv SHLVL=1
                UsePAM no
                PrintMotd no
                MaxStartups 100
                PidFile none
                # A host that was cut off is to be clean again soon.
                ClientAliveInterval 1
                ClientAliveCountMax 3
            """)
        log = open(f"{self.folder}/sshd_{self.name}.log", "wb")
        with log:
            self._sshd = self.start([SSHD, "-D", "-e", "-f", config], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    start_new_session=True)
        if not eventually(lambda: ":22 " in self.run(["ss", "-tln"]).stdout):
            raise RuntimeError(f"sshd does not start: {open(log.name, encoding='utf-8').read()}")

    def processes(self):
        """What runs there, as {number outside: command line}, but for sshd and what keeps the host alive."""
        found = {}
        own = os.readlink(f"/proc/{self.pid}/ns/pid")
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == self.pid:
                continue
            try:
                if os.readlink(f"/proc/{entry}/ns/pid") != own:
                    continue
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    line = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue  # it has just ended
            # A process that has ended and waits for its parent has no command line.
            if line and not line.startswith("sshd:") and not line.startswith(SSHD):
                found[int(entry)] = line
        return found

    def find(self, part):
        """Numbers (outside) of the processes whose command line contains the part."""
        return [pid for pid, line in self.processes().items() if part in line]

    def outside_pid(self, inside):
        """The number outside of a process that calls itself `inside`."""
        for pid in self.processes():
            try:
                with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
                    numbers = next(line for line in file if line.startswith("NSpid:")).split()
            except (OSError, StopIteration):
                continue
            if int(numbers[-1]) == inside:
                return pid
        raise LookupError(f"{self.name} has no process {inside}")

    def leftovers(self):
        """What a run has left there: processes, listening ports, shared memory. Empty: nothing."""
        left = [f"process {line}" for line in self.processes().values()]
        left += [f"/dev/shm/{name}" for name in os.listdir(f"/proc/{self.pid}/root/dev/shm")]
        # The file shows the memory of its reader's namespace.
        left += [f"System V memory {line.split()[1]}"
                 for line in self.run(["cat", "/proc/sysvipc/shm"]).stdout.splitlines()[1:]]
        for line in self.run(["ss", "-tlnH"]).stdout.splitlines():
            if not line.split()[3].endswith(":22"):
                left.append(f"port {line.split()[3]}")
        return left


class VirtualHosts:
    def __init__(self, names):
        self._names = list(names)
        self._hosts = {}
        self._switch = None
        self.folder = None

    def __enter__(self):
        # The process ends by an exception, and so by way of __exit__.
        signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def __getitem__(self, name):
        return self._hosts[name]

    def __iter__(self):
        return iter(self._hosts.values())

    @property
    def ssh(self):
        """The command that reaches hosts by name, for mgrun --ssh."""
        return f"ssh -F {self.folder}/ssh_config"

    def cut(self, name, up=False):
        """Takes the host's cable out, at the switch's end, or puts it in again."""
        self._on_switch(["ip", "link", "set", f"to-{name}", "up" if up else "down"])
        if up:
            # A host to which another has tried to connect meanwhile would stay unreachable ("No route to host") for
            # some seconds more.
            for host in self:
                host.run(["ip", "neigh", "flush", "all"], check=True)

    def mgrun(self, build, arguments, on="a"):
        """mgrun's command line on a host, to be started there."""
        return self._hosts[on].command([f"{build}/mgrun", "--ssh", self.ssh, *map(str, arguments)])

    def close(self):
        for host in self._hosts.values():
            host.close()
        self._hosts = {}
        if self._switch is not None:
            self._switch.close()
            self._switch = None
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def _on_switch(self, command):
        subprocess.run(["nsenter", "-t", str(self._switch.pid), "--net", "--", *command], check=True)

    def _build(self):
        self.folder = tempfile.mkdtemp(prefix="multigrain-hosts-")
        os.chmod(self.folder, 0o755)
        addresses = {name: f"10.99.0.{number}" for number, name in enumerate(self._names, start=1)}
        with open(f"{self.folder}/hosts", "w", encoding="ascii") as file:
            file.write("127.0.0.1 localhost\n")
            file.writelines(f"{address} {name}\n" for name, address in addresses.items())
        self._make_keys(addresses)
        self._switch = Namespace()
        self._on_switch(["ip", "link", "add", "bridge", "type", "bridge"])
        self._on_switch(["ip", "link", "set", "bridge", "up"])
        for name, address in addresses.items():
            host = Host(name, address, self.folder)
            self._hosts[name] = host
            self._on_switch(["ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns",
                             str(host.pid)])
            self._on_switch(["ip", "link", "set", f"to-{name}", "master", "bridge"])
            self._on_switch(["ip", "link", "set", f"to-{name}", "up"])
            host.set_up()
            host.start_sshd()

    def _make_keys(self, addresses):
        def make(file):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", file], check=True)

        make(f"{self.folder}/user_key")
        make(f"{self.folder}/wrong_key")
        with open(f"{self.folder}/known_hosts", "w", encoding="ascii") as known:
            for name, address in addresses.items():
                make(f"{self.folder}/host_key_{name}")
                with open(f"{self.folder}/host_key_{name}.pub", encoding="ascii") as key:
                    known.write(f"{name},{address} {key.read()}")
        with open(f"{self.folder}/ssh_config", "w", encoding="ascii") as file:
            file.write(f"""
                IdentityFile {self.folder}/user_key
                IdentitiesOnly yes
                IdentityAgent none
                User root
                UserKnownHostsFile {self.folder}/known_hosts
                GlobalKnownHostsFile none
                StrictHostKeyChecking yes
                # The default of today's OpenSSH computes for longer.
                KexAlgorithms curve25519-sha256
            """)
