"""Machines of more than 64 nodes: their sets of nodes have more than one word, and their doorbells more than one group."""

import hashlib
import os
import subprocess
import tempfile
import unittest

BIN = os.environ.get("MULTIGRAIN_TEST_BIN", "build/bin")


def mgrun(*words):
    return subprocess.run([f"{BIN}/mgrun", *words], capture_output=True, text=True, timeout=900, check=False)


def run(nodes, protocol, program, *arguments, options=(), directory=""):
    """Runs a workload of the test size, which checks its result, and returns what mgrun has said."""
    words = ["--nodes", str(nodes), "--protocol", protocol, *options, os.path.join(BIN, "workloads", directory, program),
             "--size", "test", "--check", *arguments]
    ended = mgrun(*words)
    if ended.returncode != 0 or ended.stderr:
        raise AssertionError(f"mgrun {' '.join(words)}: status {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def digest(nodes, protocol, program, *options):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "profile.json")
        run(nodes, protocol, program, directory="counted",
            options=["--clock", "counted", "--machine", "alewife", "--stats", f"json:{path}", *options])
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()


class WallClock(unittest.TestCase):
    def test_barriers(self):
        for nodes in (66, 100):
            for protocol in ("mgs", "hlrc"):
                run(nodes, protocol, "jacobi")

    def test_locks(self):
        for protocol in ("mgs", "hlrc"):
            run(66, protocol, "water")

    def test_pages_that_more_nodes_share_than_a_word_has_bits(self):
        for protocol in ("mgs", "hlrc"):
            run(100, protocol, "matmul")


class CountedTime(unittest.TestCase):
    def test_a_run_is_the_same_every_time(self):
        for nodes in (66, 100):
            for protocol in ("mgs", "hlrc"):
                self.assertEqual(digest(nodes, protocol, "jacobi"), digest(nodes, protocol, "jacobi"), f"{nodes} {protocol}")

    def test_several_processors_a_node(self):
        options = ("--procs-per-node", "2")
        self.assertEqual(digest(66, "mgs", "jacobi", *options), digest(66, "mgs", "jacobi", *options))

    def test_more_nodes_than_the_wall_clock_has(self):
        digest(257, "mgs", "jacobi")


class Refused(unittest.TestCase):
    def refused(self, sentence, *options):
        ended = mgrun(*options, "true")
        self.assertEqual(ended.returncode, 2, ended.stderr)
        self.assertIn(sentence, ended.stderr)

    def test_more_than_the_limits(self):
        self.refused("nodes is 257; it must be from 1 to 256, or to 1024 in counted time", "--nodes", "257")
        self.refused("must be a whole number from 1 to 1024", "--nodes", "1025")
        self.refused("1024 nodes of 17 processors are 17408 processors; a machine has at most 16384", "--nodes", "1024",
                     "--procs-per-node", "17", "--clock", "counted")

    def test_what_is_for_64_nodes(self):
        self.refused("the protocol sc has room for 64 nodes", "--nodes", "65", "--protocol", "sc")
        self.refused("the protocol dszoom has room for 56 nodes", "--nodes", "65", "--protocol", "dszoom")
        self.refused("the fabric ucx connects at most 64 nodes", "--nodes", "65", "--fabric", "ucx")
        self.refused("on machines of at most 64 nodes", "--nodes", "65", "--protocol", "mgs", "--mgs", "reads=one-sided")
        self.refused("--races has a clock of at most 64 nodes", "--nodes", "65", "--races")


if __name__ == "__main__":
    unittest.main()
