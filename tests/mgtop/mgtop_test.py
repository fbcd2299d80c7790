"""mgtop lists jobs, shows one while it runs, and says what is wrong with what it is given."""

import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
import unittest
from pathlib import Path

BIN = Path(os.environ["MULTIGRAIN_TEST_BIN"])


def mgtop(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIN / "mgtop", *arguments], capture_output=True, text=True, timeout=60)


class OfAJob(unittest.TestCase):
    """Jacobi on 2 nodes of 2 processors, with more iterations than it will make."""

    def setUp(self):
        self.job = subprocess.Popen(
            [BIN / "mgrun", "--nodes", "2", "--procs-per-node", "2", "--protocol", "hlrc", BIN / "workloads" / "jacobi"]
            + ["--size", "paper", "--iterations", "1000000"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(self.end)
        until = time.monotonic() + 60
        while str(self.job.pid) not in self.jobs():
            self.assertIsNone(self.job.poll(), "the job has ended")
            self.assertLess(time.monotonic(), until, "mgtop does not list the job")
            time.sleep(0.1)

    def end(self):
        self.job.terminate()
        self.job.wait(60)

    def jobs(self) -> list[str]:
        """Returns those of which a node runs."""
        return re.findall(r"^ *(\d+) +\d+ +[^ (]", mgtop().stdout, re.M)

    def test_it_is_listed_with_its_nodes_and_program(self):
        self.assertRegex(mgtop().stdout, rf"(?m)^ *{self.job.pid} +2 +jacobi$")

    def test_it_is_shown_while_it_runs(self):
        until = time.monotonic() + 60
        while True:  # the processors start when the program spawns them
            shown = mgtop(str(self.job.pid), "--once", "--interval", "0.2")
            self.assertEqual(shown.returncode, 0, shown.stderr)
            if all(re.search(rf"(?m)^ *{processor} +{processor // 2} ", shown.stdout) for processor in range(4)):
                break
            self.assertLess(time.monotonic(), until, shown.stdout)
        self.assertIn("jacobi", shown.stdout)
        self.assertIn("faults", shown.stdout)

    def in_a_terminal(self, end) -> tuple[int, bytes, bool, bool]:
        """Runs mgtop in a terminal, ends it by end(process, terminal), and returns its status, what it wrote, and whether the terminal
        echoes and waits for whole lines afterwards."""
        terminal, theirs = pty.openpty()
        self.addCleanup(os.close, terminal)
        self.addCleanup(os.close, theirs)
        view = subprocess.Popen([BIN / "mgtop", str(self.job.pid), "--interval", "0.2"], stdin=theirs, stdout=theirs, stderr=theirs)
        self.addCleanup(view.kill)
        shown = b""
        until = time.monotonic() + 60
        while b"jacobi" not in shown:
            self.assertLess(time.monotonic(), until, shown[-500:])
            if select.select([terminal], [], [], 1)[0]:
                shown += os.read(terminal, 65536)
        flags = termios.tcgetattr(theirs)[3]
        self.assertFalse(flags & (termios.ECHO | termios.ICANON))
        end(view, terminal)
        while view.poll() is None:
            self.assertLess(time.monotonic(), until, "mgtop does not end")
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 65536)
        while select.select([terminal], [], [], 0)[0]:
            shown += os.read(terminal, 65536)
        flags = termios.tcgetattr(theirs)[3]
        return view.returncode, shown, bool(flags & termios.ECHO), bool(flags & termios.ICANON)

    def test_the_terminal_is_as_it_was(self):
        ways = {
            "q": (0, lambda view, terminal: os.write(terminal, b"q")),
            "SIGINT": (-signal.SIGINT, lambda view, terminal: view.send_signal(signal.SIGINT)),
            "SIGTERM": (-signal.SIGTERM, lambda view, terminal: view.send_signal(signal.SIGTERM)),
            "SIGHUP": (-signal.SIGHUP, lambda view, terminal: view.send_signal(signal.SIGHUP)),
        }
        for way, (status, end) in ways.items():
            with self.subTest(way):
                ended, shown, echoes, has_lines = self.in_a_terminal(end)
                self.assertEqual((ended, echoes, has_lines), (status, True, True))
                # Another screen, without the cursor, and back.
                self.assertEqual(shown.count(b"\x1b[?1049h\x1b[?25l"), 1)
                self.assertEqual(shown.count(b"\x1b[?25h\x1b[?1049l"), 1)
                self.assertGreater(shown.index(b"\x1b[?1049l"), shown.index(b"\x1b[?1049h"))

    def test_its_end_ends_mgtop(self):
        view = subprocess.Popen(
            [BIN / "mgtop", str(self.job.pid), "--interval", "0.1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(0.5)
        self.end()
        _, complaint = view.communicate(timeout=60)
        self.assertIn("the job has ended", complaint)
        self.assertEqual(view.returncode, 0)
        gone = mgtop(str(self.job.pid))
        self.assertEqual(gone.returncode, 2)
        self.assertIn(f"there is no process {self.job.pid}", gone.stderr)


class OfNonsense(unittest.TestCase):
    def test_it_is_refused_with_a_sentence(self):
        for arguments, sentence in (
            (["--x"], "unknown option '--x'"),
            (["water"], "'water' is no job"),
            (["1", "2"], "only one job"),
            (["--interval", "0"], "from 0.1 to 60"),
            (["--interval"], "from 0.1 to 60"),
            ([str(os.getpid())], "is no mgrun"),
        ):
            with self.subTest(arguments=arguments):
                refused = mgtop(*arguments)
                self.assertEqual(refused.returncode, 2)
                self.assertIn(sentence, refused.stderr)
                self.assertEqual(refused.stdout, "")


if __name__ == "__main__":
    unittest.main()
