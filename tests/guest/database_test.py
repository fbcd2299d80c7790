"""Debian's PostgreSQL, as it is, under mgrun --binary: its processes share memory, and what it has committed stays."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "study"))

from postgres import COUNT, FOLDERS, PATIENCE_S, SUMS, Server, make_cluster, other_nodes, run_client, start_client, user

BIN = os.path.abspath(os.environ.get("MULTIGRAIN_TEST_BIN", "build/bin"))
# By default a few, on two nodes of one machine; with the label full more, in every way.
FULL = os.environ.get("MULTIGRAIN_TEST_FULL") == "1"
TRANSACTIONS = int(os.environ.get("MULTIGRAIN_TEST_TRANSACTIONS", "2000" if FULL else "400"))
RUNS = (("--nodes", "1"), ("--nodes", "2"), ("--hosts", "localhost:2")) if FULL else (("--nodes", "2"),)
CLIENTS = 4


@unittest.skipUnless(FOLDERS, "there is no PostgreSQL in /usr/lib/postgresql")
class Database(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="mg-database-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        done = make_cluster(self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        try:
            subprocess.run((f"{BIN}/mgrun", "--version"), capture_output=True, check=True, cwd="/", **user())
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
        bench = start_client(self.folder, "pgbench", "-n", "-c", str(CLIENTS), "-T", "60", "postgres")
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
                while not server.answers():
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
        others = other_nodes(home)
        self.assertEqual(len(others), 1)
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
