"""Debian's PostgreSQL, for tests and studies: clusters of databases in a folder, servers under any command prefix, clients."""

import glob
import os
import pwd
import signal
import subprocess
import time

FOLDERS = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
# Who waits for a server gives up after this only where it would hang otherwise.
PATIENCE_S = 300

# pgbench's invariant: each is 0 when all transactions were done as a whole or not at all.
SUMS = (
    "select (select sum(abalance) from pgbench_accounts) - (select sum(bbalance) from pgbench_branches),"
    "(select sum(tbalance) from pgbench_tellers) - (select coalesce(sum(delta), 0) from pgbench_history),"
    "(select sum(bbalance) from pgbench_branches) - (select coalesce(sum(delta), 0) from pgbench_history)"
)
COUNT = "select count(*) from pgbench_history"


def program(name):
    """The path of one of PostgreSQL's programs, of the newest version that is installed."""
    return f"{FOLDERS[-1]}/{name}"


def user():
    """For subprocess: a user who may run a server, which root may not."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        except KeyError:
            pass
    return {}


def user_name():
    """The name of that user, who owns the clusters."""
    return pwd.getpwuid(user().get("user", os.getuid())).pw_name


def make_cluster(folder, *options):
    """Makes a cluster of databases in folder/data; `options` are initdb's. The finished process."""
    owner = user()
    if owner:
        os.chown(folder, owner["user"], owner["group"])
    return subprocess.run(
        (program("initdb"), "-D", f"{folder}/data", "-A", "trust", "-U", user_name(), *options),
        capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=folder, **owner,
    )  # fmt: skip


class Server:
    """A server on a cluster of databases, which a client reaches by a socket in the folder."""

    def __init__(self, folder, *prefix, settings=("fsync=off", "shared_buffers=32MB")):
        self.folder = folder
        set_to = [word for setting in ("listen_addresses=", *settings) for word in ("-c", setting)]
        command = (*prefix, program("postgres"), "-D", f"{folder}/data", "-k", folder, *set_to)
        with open(f"{folder}/log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **user())
        until = time.monotonic() + PATIENCE_S
        while not self.answers():
            if time.monotonic() > until or self.process.poll() is not None:
                raise AssertionError(f"the server does not begin: {self.log()}")
            time.sleep(0.1)

    def answers(self):
        return run_client(self.folder, "psql", "-c", "select 1", "postgres").returncode == 0

    def log(self):
        with open(f"{self.folder}/log", encoding="utf-8", errors="replace") as file:
            return file.read()

    def ask(self, statement):
        done = run_client(self.folder, "psql", "-Atqc", statement, "postgres")
        if done.returncode != 0:
            raise AssertionError(f"{done.stderr} {self.log()}")
        return done.stdout.strip()

    def stop(self):
        """Ends the server as pg_ctl does, by a signal to its first process, and returns its status."""
        os.kill(self.first(), signal.SIGINT)
        return self.process.wait(PATIENCE_S)

    def first(self):
        with open(f"{self.folder}/data/postmaster.pid", encoding="ascii") as file:
            return int(file.readline())


def run_client(folder, name, *arguments, seconds=PATIENCE_S):
    """Runs a client of the server in the folder. The finished process."""
    return subprocess.run(
        (program(name), "-h", folder, *arguments),
        capture_output=True, text=True, check=False, timeout=seconds, cwd=folder, **user(),
    )  # fmt: skip


def start_client(folder, name, *arguments):
    """The same, without waiting for its end."""
    return subprocess.Popen(
        (program(name), "-h", folder, *arguments),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, **user(),
    )  # fmt: skip


def other_nodes(home):
    """The processes of the nodes that are not the home: they execute the same host, for the same launcher."""
    with open(f"/proc/{home}/stat", encoding="ascii") as file:
        launcher = file.read().rpartition(")")[2].split()[1]
    with open(f"/proc/{launcher}/task/{launcher}/children", encoding="ascii") as file:
        nodes = [int(pid) for pid in file.read().split()]
    return [pid for pid in nodes if pid != home and os.readlink(f"/proc/{pid}/exe").endswith("mghost-node")]
