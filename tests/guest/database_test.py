"""Debian's PostgreSQL, as it is, under mgrun --binary: its processes share memory, and what it has committed stays."""

import glob
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BIN = os.path.abspath(os.environ.get("MULTIGRAIN_TEST_BIN", "build/bin"))
FOLDERS = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
# By default a few, on two nodes of one machine; with the label full more, in every way.
FULL = os.environ.get("MULTIGRAIN_TEST_FULL") == "1"
TRANSACTIONS = int(os.environ.get("MULTIGRAIN_TEST_TRANSACTIONS", "2000" if FULL else "400"))
# The test gives up after this only where it would hang otherwise.
PATIENCE_S = 300
RUNS = (("--nodes", "1"), ("--nodes", "2"), ("--hosts", "localhost:2")) if FULL else (("--nodes", "2"),)
CLIENTS = 4


def user():
    """A user who may run a server, which root may not."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        except KeyError:
            pass
    return {}


class Server:
    """A server on a cluster of databases, which a client reaches by a socket in the folder."""

    def __init__(self, folder, *prefix):
        self.folder = folder
        command = (
            *prefix, f"{FOLDERS[-1]}/postgres", "-D", f"{folder}/data", "-k", folder,
            "-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=32MB",
        )  # fmt: skip
        with open(f"{folder}/log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **user())
        until = time.monotonic() + PATIENCE_S
        while run_client(folder, "psql", "-c", "select 1", "postgres").returncode != 0:
            if time.monotonic() > until or self.process.poll() is not None:
                raise AssertionError(f"the server does not begin: {self.log()}")
            time.sleep(0.1)

    def log(self):
        with open(f"{self.folder}/log", encoding="utf-8", errors="replace") as file:
            return file.read()

    def ask(self, statement):
        done = run_client(self.folder, "psql", "-Atqc", statement, "postgres")
        if done.returncode != 0:
            raise AssertionError(f"{done.stderr} {self.log()}")
        return done.stdout.strip()

    def stop(self):
        # The server's first process is told, as by pg_ctl: mgrun would give it little time to end.
        os.kill(self.first(), signal.SIGINT)
        return self.process.wait(PATIENCE_S)

    def first(self):
        with open(f"{self.folder}/data/postmaster.pid", encoding="ascii") as file:
            return int(file.readline())


def run_client(folder, program, *arguments):
    return subprocess.run(
        (f"{FOLDERS[-1]}/{program}", "-h", folder, *arguments),
        capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=folder, **user(),
    )  # fmt: skip


SUMS = (
    "select (select sum(abalance) from pgbench_accounts) - (select sum(bbalance) from pgbench_branches),"
    "(select sum(tbalance) from pgbench_tellers) - (select sum(delta) from pgbench_history),"
    "(select sum(bbalance) from pgbench_branches) - (select sum(delta) from pgbench_history)"
)
COUNT = "select count(*) from pgbench_history"


@unittest.skipUnless(FOLDERS, "there is no PostgreSQL in /usr/lib/postgresql")
class Database(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="mg-database-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        owner = user()
        if owner:
            os.chown(self.folder, owner["user"], owner["group"])
        done = subprocess.run(
            (f"{FOLDERS[-1]}/initdb", "-D", f"{self.folder}/data", "-A", "trust", "-U", pwd.getpwuid(owner.get("user", os.getuid())).pw_name),
            capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=self.folder, **owner,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        try:
            subprocess.run((f"{BIN}/mgrun", "--version"), capture_output=True, check=True, cwd="/", **owner)
        except (PermissionError, subprocess.CalledProcessError):
            self.skipTest("another user cannot reach the programs")

    def start(self, *options):
        server = Server(self.folder, f"{BIN}/mgrun", *options, "--binary", "--")
        self.addCleanup(server.process.kill)
        return server

    def fill(self):
        done = run_client(self.folder, "pgbench", "-q", "-i", "-s", "1", "postgres")
        self.assertEqual(done.returncode, 0, done.stderr)

    def bench(self, *options):
        return run_client(self.folder, "pgbench", "-n", "-c", str(CLIENTS), *options, "postgres")

    def start_with_clients(self, *options):
        """A server, and clients that have made some transactions and make more."""
        server = self.start(*options)
        self.fill()
        bench = subprocess.Popen(
            (f"{FOLDERS[-1]}/pgbench", "-n", "-h", self.folder, "-c", str(CLIENTS), "-T", "60", "postgres"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder, **user(),
        )  # fmt: skip
        until = time.monotonic() + PATIENCE_S
        while int(server.ask(COUNT)) < 100 and time.monotonic() < until:
            time.sleep(0.05)
        return server, bench

    def test_sums_stay_and_workers_share_memory(self):
        for options in RUNS:
            with self.subTest(options=options):
                server = self.start(*options)
                self.fill()
                done = self.bench("-t", str(TRANSACTIONS // CLIENTS))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(server.ask(SUMS), "0|0|0")
                self.assertEqual(server.ask(COUNT), str(TRANSACTIONS // CLIENTS * CLIENTS))
                # Parallel workers map one segment at addresses of their own.
                parallel = (
                    "set parallel_setup_cost=0; set parallel_tuple_cost=0; set min_parallel_table_scan_size=0;"
                    "set max_parallel_workers_per_gather=2; "
                )
                query = "select count(*), sum(aid), sum(aid % 7) from pgbench_accounts"
                self.assertIn("Workers Launched: 2", server.ask(f"{parallel} explain (analyze) {query}"))
                self.assertEqual(server.ask(parallel + query), "100000|5000050000|300000")
                self.assertEqual(server.stop(), 0, server.log())
                self.assertNotIn("multigrain", server.log())

    def test_a_backend_that_is_killed(self):
        for options in RUNS:
            with self.subTest(options=options):
                server, bench = self.start_with_clients(*options)
                victim = int(server.ask("select pid from pg_stat_activity where application_name='pgbench' limit 1"))
                os.kill(victim, signal.SIGKILL)
                committed = self.committed(bench)
                until = time.monotonic() + PATIENCE_S
                while run_client(self.folder, "psql", "-c", "select 1", "postgres").returncode != 0:
                    self.assertLess(time.monotonic(), until, server.log())
                    time.sleep(0.1)
                self.check_recovered(server, committed)
                self.assertIn("was terminated by signal 9", server.log())
                self.assertEqual(server.stop(), 0, server.log())

    def test_a_node_that_is_killed(self):
        for options in RUNS[-2:]:
            with self.subTest(options=options):
                server, bench = self.start_with_clients(*options)
                os.kill(self.other_node(server.first()), signal.SIGKILL)
                committed = self.committed(bench)
                self.assertNotEqual(server.process.wait(PATIENCE_S), 0)
                # The database recovers without Multigrain: its files are its own.
                alone = Server(self.folder)
                self.addCleanup(alone.process.kill)
                self.check_recovered(alone, committed)
                self.assertEqual(alone.stop(), 0)

    def other_node(self, home):
        """The process of a node that is not the home: it executes the same host, for the same launcher."""
        with open(f"/proc/{home}/stat", encoding="ascii") as file:
            launcher = file.read().rpartition(")")[2].split()[1]
        with open(f"/proc/{launcher}/task/{launcher}/children", encoding="ascii") as file:
            nodes = [int(pid) for pid in file.read().split()]
        others = [pid for pid in nodes if pid != home and os.readlink(f"/proc/{pid}/exe").endswith("mghost-node")]
        self.assertEqual(len(others), 1, nodes)
        return others[0]

    def committed(self, bench):
        """How many transactions a client knows to be committed, once its server is gone."""
        output, _ = bench.communicate(timeout=PATIENCE_S)
        return int(re.search(r"transactions actually processed: (\d+)", output)[1])

    def check_recovered(self, server, committed):
        self.assertEqual(server.ask(SUMS), "0|0|0")
        # Of each client at most one transaction was committed without an answer.
        self.assertGreaterEqual(int(server.ask(COUNT)), committed)
        self.assertLessEqual(int(server.ask(COUNT)), committed + CLIENTS)


if __name__ == "__main__":
    unittest.main()
