"""mgrun --local-files: nodes read files by themselves, and the program sees no difference."""

import json
import os
import shutil
import sys
import tempfile
import unittest

from guest_test import BIN, PROGRAMS, run

RUNS = int(os.environ.get("MULTIGRAIN_TEST_RUNS", "1"))
ROUNDS = os.environ.get("MULTIGRAIN_TEST_ROUNDS", "4")
WORDS = ("read", "pread", "dup", "reopen", "race", "fork", "names", "replace", "tables")


class LocalFiles(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="multigrain-local-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.inside = os.path.join(self.folder, "inside")
        self.outside = os.path.join(self.folder, "outside")
        os.mkdir(self.inside)
        os.mkdir(self.outside)

    def hosted(self, nodes, *options):
        return (f"{BIN}/mgrun", "--nodes", str(nodes), *options, "--binary", "--")

    def program(self, *words, rounds=ROUNDS):
        return (os.path.abspath(f"{PROGRAMS}/local_files"), self.inside, self.outside, rounds, *words)

    def calls_at_home(self, options, *command):
        """How many calls of threads on the second node the first one made."""
        file = os.path.join(self.folder, "statistics")
        done = run((*self.hosted(2, "--stats", f"json:{file}", *options), *command))
        self.assertEqual((done[0], done[2]), (0, b""))
        with open(file, encoding="ascii") as text:
            return json.load(text)["nodes"][1]["counters"]["calls_at_home"]

    def test_threads_that_share_files(self):
        for number in range(RUNS):
            for word in WORDS:
                with self.subTest(word=word, run=number):
                    alone = run(self.program(word))
                    self.assertEqual(alone, (0, f"{word} is done\n".encode(), b""))
                    nodes = 2 + number % 3
                    hosted = self.hosted(nodes, "--local-files", self.inside)
                    self.assertEqual(run((*hosted, *self.program(word))), alone)

    def test_a_thread_that_is_away_reads_by_itself(self):
        self.assertGreater(self.calls_at_home((), *self.program("many")), 5000)
        link = os.path.join(self.folder, "link")
        os.symlink(self.inside, link)
        for options in (("--local-files", self.inside), ("--local-files", link), ("--local-files", "/"),
                        ("--local-files", "/usr", "--local-files", self.inside)):  # fmt: skip
            with self.subTest(options=options):
                self.assertLess(self.calls_at_home(options, *self.program("many")), 100)
        # Files that are elsewhere are read as before.
        self.assertGreater(self.calls_at_home(("--local-files", self.outside), *self.program("many")), 5000)

    def test_the_folder_may_be_relative_and_in_the_environment(self):
        command = (os.path.abspath(f"{BIN}/mgrun"), "--nodes", "2", "--stats", "json:s", "--binary", "--")
        for prefix, environment in (
            ((*command[:3], "--local-files", "inside", *command[3:]), {}),
            (command, {"MULTIGRAIN_LOCAL_FILES": "outside:inside"}),
        ):
            with self.subTest(environment=environment):
                done = run(
                    (*prefix, *self.program("many", "read")), cwd=self.folder, env={**os.environ, **environment}
                )
                self.assertEqual(done, (0, b"many is done\nread is done\n", b""))

    def test_what_is_no_folder_is_refused_with_a_sentence(self):
        file = os.path.join(self.folder, "file")
        with open(file, "w", encoding="ascii"):
            pass
        for name, words in (
            (f"{self.folder}/nothing", b"No such file or directory"),
            (file, b"is not a directory"),
            ("", b"empty"),
            ("/proc", b"cannot be the same everywhere"),
        ):
            with self.subTest(name=name):
                status, output, message = run((*self.hosted(2, "--local-files", name), "echo", "x"))
                self.assertEqual((status, output), (2, b""), message)
                self.assertIn(words, message)
                self.assertIn(b"--local-files", message)

    def test_a_thread_of_every_node_reads_many_files(self):
        for i in range(200):
            with open(f"{self.inside}/{i}", "w", encoding="ascii") as file:
                file.write(f"{i}\n" * i)
        program = """
import hashlib, os, sys, threading
def read(first):
    for i in range(first, 200, 4):
        path = os.path.join(sys.argv[1], str(i))
        with open(path, 'rb') as file: sums[i] = hashlib.sha256(file.read()).hexdigest()
        assert os.path.exists(path) and os.path.getsize(path) == len(str(i) + '.') * i
        with open(path) as file:
            assert sum(1 for line in file) == i
sums = [None] * 200
threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sums)
"""
        command = (sys.executable, "-c", program, self.inside)
        alone = run(command)
        self.assertEqual(alone[0], 0, alone)
        for nodes in (2, 3):
            self.assertEqual(run((*self.hosted(nodes, "--local-files", self.inside), *command)), alone)


if __name__ == "__main__":
    unittest.main()
