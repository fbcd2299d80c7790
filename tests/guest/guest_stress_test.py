"""Programs of many threads on several nodes, again and again: each run does what a run by itself does."""

import os
import unittest

import guest_test

PROGRAMS = guest_test.PROGRAMS
RUNS = int(os.environ.get("MULTIGRAIN_GUEST_RUNS", "100"))


class Repeated(unittest.TestCase):
    def repeat(self, *command):
        alone = guest_test.run(command)
        for nodes in (2, 3, 4):
            hosted = (f"{guest_test.BIN}/mgrun", "--nodes", str(nodes), "--binary", "--")
            for number in range(RUNS):
                with self.subTest(nodes=nodes, command=command, run=number):
                    self.assertEqual(guest_test.run((*hosted, *command)), alone)

    def test_threads(self):
        self.repeat(f"{PROGRAMS}/threads")

    def test_locks_shared_with_others(self):
        self.repeat(f"{PROGRAMS}/shared_locks")

    def test_signals_of_threads(self):
        self.repeat(f"{PROGRAMS}/thread_signals", "60")

    def test_rights_to_memory(self):
        self.repeat(f"{PROGRAMS}/rights", "60")

    def test_threads_that_come_and_go(self):
        for what in ("all", "exit", "exitfork", "last"):
            self.repeat(f"{PROGRAMS}/churn", what, "40")


if __name__ == "__main__":
    unittest.main()
