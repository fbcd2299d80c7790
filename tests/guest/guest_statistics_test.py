"""The statistics of programs that know nothing of Multigrain: a row for each thread, however the program ends."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
from typing import Any

BIN = os.environ.get("MULTIGRAIN_TEST_BIN", "build/bin")
PROGRAMS = f"{BIN}/tests/guest"
# The test gives up after this only where it would hang otherwise.
PATIENCE_S = 600
TIMES = ("user_ns", "data_wait_ns", "lock_ns", "barrier_ns", "protocol_ns", "idle_ns", "system_ns")


class Statistics(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="multigrain-guest-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_measured(self, nodes: int, *command: str, options: tuple[str, ...] = ()) -> tuple[int, bytes, bytes, Any]:
        """The status, the output, the messages and the statistics; None: there are none."""
        file = os.path.join(self.folder, "statistics")
        if os.path.exists(file):
            os.remove(file)
        done = subprocess.run(
            [f"{BIN}/mgrun", "--nodes", str(nodes), "--stats", f"json:{file}", *options, "--binary", "--", *command],
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
            stdin=subprocess.DEVNULL,
        )
        if not os.path.exists(file) or os.path.getsize(file) == 0:
            return done.returncode, done.stdout, done.stderr, None
        with open(file, encoding="utf-8") as text:
            return done.returncode, done.stdout, done.stderr, json.load(text)

    def check(self, statistics: Any, nodes: int, threads: int) -> list[Any]:
        self.assertIsNotNone(statistics)
        self.assertTrue(statistics["run"]["hosted"])
        self.assertEqual(len(statistics["nodes"]), nodes)
        rows = [row for node in statistics["nodes"] for row in node.get("threads", []) if row["kind"] == "thread"]
        self.assertEqual(len(rows), threads)
        self.assertEqual(len({row["thread"] for row in rows}), threads)
        for row in rows:
            self.assertEqual(sum(row[name] for name in TIMES), row["total_ns"])
            self.assertGreater(row["total_ns"], 0)
        self.assertEqual(statistics["sum"]["total_ns"], sum(row["total_ns"] for row in rows))
        self.assertEqual([node["processors"] for node in statistics["nodes"]], [[]] * nodes)
        return rows

    def test_however_it_ends(self) -> None:
        for nodes in (1, 2, 4):
            for how in ("exit", "exit_group", "exec", "term", "tkill", "fpe", "segv", "abort"):
                for by in ("0", "1"):
                    with self.subTest(nodes=nodes, how=how, by=by):
                        command = (f"{PROGRAMS}/ends", how, by)
                        alone = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)
                        status, output, messages, statistics = self.run_measured(nodes, *command)
                        self.assertEqual((status, output, messages), (alone.returncode, alone.stdout, alone.stderr))
                        rows = self.check(statistics, nodes, 4)
                        self.assertEqual(statistics["run"]["program"], "ends")
                        called = sorted(row["counters"]["system_calls"] for row in rows)
                        self.assertTrue(all(100 < calls < 250 for calls in called[1:]), called)
                        self.assertTrue(all(row["user_ns"] > 0 and row["system_ns"] > 0 for row in rows))

    def test_what_threads_do_on_other_nodes(self) -> None:
        _, _, _, statistics = self.run_measured(2, f"{PROGRAMS}/ends", "exit", "0")
        self.check(statistics, 2, 4)
        home, away = statistics["nodes"]
        self.assertEqual([len([r for r in n["threads"] if r["kind"] == "thread"]) for n in (home, away)], [2, 2])
        self.assertEqual([row["kind"] for row in home["threads"]].count("shadows"), 1)
        for row in away["threads"]:
            self.assertGreaterEqual(row["counters"]["calls_at_home"], 100)
            self.assertGreater(row["counters"]["pages_fetched"], 0)
            self.assertGreater(row["messages"], 0)
            self.assertGreater(row["data_wait_ns"], 0)
        for row in home["threads"]:
            self.assertEqual(row["counters"]["calls_at_home"], 0)
        for node in (home, away):
            for name in ("pages_fetched", "system_calls", "calls_at_home"):
                of_threads = sum(row["counters"][name] for row in node["threads"])
                self.assertGreaterEqual(node["counters"][name], of_threads)
            self.assertEqual(node["counters"]["calls_at_home"], sum(r["counters"]["calls_at_home"] for r in node["threads"]))

    def test_waiting_for_a_futex_is_told_from_other_calls(self) -> None:
        program = (
            "import threading, time; lock = threading.Lock(); lock.acquire()\n"
            "threads = [threading.Thread(target=lock.acquire) for _ in range(2)]\n"
            "[thread.start() for thread in threads]; time.sleep(0.3)\n"
            "lock.release(); time.sleep(0.1); lock.release(); [thread.join() for thread in threads]\n"
        )
        python = shutil.which("python3")
        assert python is not None
        _, _, messages, statistics = self.run_measured(2, python, "-c", program)
        rows = self.check(statistics, 2, 3)
        self.assertEqual(messages, b"")
        waited = sorted((row["lock_ns"] for row in rows), reverse=True)
        # The first thread has slept in a call that is no futex call.
        self.assertGreater(waited[1], 200_000_000)
        self.assertGreater(max(row["system_ns"] for row in rows), 300_000_000)

    def test_a_forked_process_is_not_counted(self) -> None:
        status, output, messages, statistics = self.run_measured(2, "/bin/sh", "-c", "for i in 1 2 3; do (echo $i); done; kill $$")
        self.assertEqual((status, output, messages), (-signal.SIGTERM, b"1\n2\n3\n", b""))
        self.check(statistics, 2, 1)

    def test_virtual_time(self) -> None:
        elapsed = {}
        for nodes, each in ((1, 1), (2, 1), (2, 2)):
            threads = nodes * each
            options = ("--clock", "virtual", "--procs-per-node", str(each))
            command = (f"{PROGRAMS}/halves", str(threads), "4")
            status, _, messages, statistics = self.run_measured(nodes, *command, options=options)
            self.assertEqual((status, messages), (0, b""))
            rows = self.check(statistics, nodes, threads)
            self.assertEqual(statistics["run"]["clock"], "virtual")
            elapsed[threads] = statistics["run"]["elapsed_ns"]
            # No thread's clock is ahead of the end of the run, which waits for all.
            self.assertTrue(all(row["total_ns"] <= elapsed[threads] for row in rows))
        # Threads share the work, whatever else runs on this machine and however few cores it has.
        user = elapsed[1]
        self.assertLess(elapsed[2], 0.95 * user)
        self.assertLess(elapsed[4], 0.95 * user)

    def test_a_network_slows_a_program_down_in_virtual_time(self) -> None:
        waited = []
        for network in ("ideal", "latency=2ms"):
            options = ("--clock", "virtual", "--net", network)
            _, _, messages, statistics = self.run_measured(2, f"{PROGRAMS}/halves", "2", "4", options=options)
            self.assertEqual(messages, b"")
            waited.append(statistics["run"]["elapsed_ns"])
        # At each of four barriers some message goes to the other node and back.
        self.assertGreater(waited[1], waited[0] + 4 * 2 * 2_000_000)

    def test_a_thread_without_a_processor_is_refused_in_virtual_time(self) -> None:
        status, _, messages, _ = self.run_measured(2, f"{PROGRAMS}/halves", "3", "1", options=("--clock", "virtual"))
        self.assertNotEqual(status, 0)
        self.assertIn(b"each thread of the program needs a processor of its own", messages)

    def test_a_study(self) -> None:
        if not os.path.exists(f"{BIN}/mgstudy"):
            self.skipTest("mgstudy is not built")
        done = subprocess.run(
            [os.path.abspath(f"{BIN}/mgstudy"), "family", "--binary", "--procs", "2", "-r", "1", "--no-report", "-q", "--json", "-", "--"]
            + [os.path.abspath(f"{PROGRAMS}/halves"), "{procs}", "2"],
            capture_output=True, check=False, timeout=PATIENCE_S, cwd=self.folder,
        )  # fmt: skip
        if b"has no package" in done.stderr:
            self.skipTest(done.stderr.decode())
        self.assertEqual(done.returncode, 0, done.stderr)
        points = json.loads(done.stdout)["points"]
        self.assertEqual(sorted((point["nodes"], len(point["processors"])) for point in points), [(1, 1), (1, 2), (2, 2)])
        self.assertTrue(all(point["mean_ns"]["user"] > 0 for point in points))

    def test_text(self) -> None:
        done = subprocess.run(
            [f"{BIN}/mgrun", "--nodes", "2", "--stats", "text", "--binary", "--", f"{PROGRAMS}/ends", "exit", "0"],
            capture_output=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        self.assertEqual((done.returncode, done.stdout), (7, b"300\n"))
        text = done.stderr.decode()
        for words in ("ends: 2 processors on 2 nodes of 1", "thread node", "futex", "shadows", "requests to node 0"):
            self.assertIn(words, text)
        self.assertNotIn("never started", text)

    def test_a_program_that_is_killed_has_none(self) -> None:
        status, output, messages, statistics = self.run_measured(2, f"{PROGRAMS}/ends", "kill", "1")
        self.assertEqual((status, output, statistics), (-signal.SIGKILL, b"300\n", None))
        self.assertEqual(messages, b"mgrun: there are no statistics, since the program was killed (SIGKILL)\n")


if __name__ == "__main__":
    unittest.main()
