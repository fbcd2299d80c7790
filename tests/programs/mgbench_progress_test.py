"""mgbench says on a terminal how far it is, and keeps the rows that it has measured when it is interrupted."""

import os
import pty
import re
import signal
import subprocess
import time
import unittest

BIN = os.environ.get("MULTIGRAIN_TEST_BIN", "build/bin")
PATIENCE_S = 120
BAR = re.compile(rb"mgbench \[([# ]+)\] (\d+) of (\d+): (floors|a run)(?:, (\d+:\d+) left)?")


class OnATerminal:
    """A run whose messages go to a terminal, and whose results go to a pipe."""

    def __init__(self, *arguments):
        ours, theirs = pty.openpty()
        self._messages, self.shown = ours, b""
        self.process = subprocess.Popen(
            (f"{BIN}/mgbench", "--pages", "16", *arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs
        )  # fmt: skip
        os.close(theirs)

    def read_until(self, is_enough):
        until = time.monotonic() + PATIENCE_S
        while not is_enough(self.shown) and time.monotonic() < until:
            try:
                some = os.read(self._messages, 4096)
            except OSError:  # the terminal has no other end any more
                return
            self.shown += some

    def end(self):
        self.read_until(lambda _: False)
        output = self.process.stdout.read()
        self.process.stdout.close()
        os.close(self._messages)
        return self.process.wait(PATIENCE_S), output


class Progress(unittest.TestCase):
    def test_each_run_is_a_step_with_the_time_left(self):
        run = OnATerminal("--protocol", "mgs", "--rounds", "2", "--only", "barrier")
        status, output = run.end()
        bars = BAR.findall(run.shown)
        self.assertEqual(status, 0, run.shown)
        self.assertGreaterEqual(len(bars), 2, run.shown)
        self.assertEqual([int(at) for _, at, _, _, _ in bars], list(range(1, len(bars) + 1)))
        self.assertEqual({int(total) for _, _, total, _, _ in bars}, {len(bars)})
        self.assertEqual(bars[0][3:], (b"floors", b""))
        self.assertTrue(all(left for _, _, _, _, left in bars[1:]), bars)
        self.assertTrue(run.shown.endswith(b"\r\033[K"), run.shown)
        self.assertNotIn(b"mgbench [", output)

    def test_nothing_of_it_is_written_to_a_file(self):
        done = subprocess.run(
            (f"{BIN}/mgbench", "--pages", "16", "--rounds", "2", "--only", "barrier"), capture_output=True, timeout=PATIENCE_S, check=False
        )  # fmt: skip
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_an_interrupted_measurement_keeps_its_rows(self):
        run = OnATerminal("--protocol", "mgs", "--rounds", "2")
        run.read_until(lambda shown: len(BAR.findall(shown)) >= 4)
        run.process.send_signal(signal.SIGINT)
        status, output = run.end()
        self.assertEqual(status, 128 + signal.SIGINT, run.shown)
        self.assertIn(b"interrupted: these are the rows", run.shown)
        rows = [line for line in output.splitlines() if re.search(rb"\d+\.\d+ +\d+\.\d+", line)]
        self.assertTrue(rows, output)

    def test_one_that_has_no_rows_yet_ends(self):
        run = OnATerminal("--protocol", "mgs", "--rounds", "2")
        run.read_until(lambda shown: len(BAR.findall(shown)) >= 1)
        run.process.send_signal(signal.SIGINT)
        status, output = run.end()
        self.assertIn(status, (128 + signal.SIGINT, -signal.SIGINT), run.shown)
        self.assertEqual(output, b"")


if __name__ == "__main__":
    unittest.main()
