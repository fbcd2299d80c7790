"""tools/dev/guest-conformance: what agrees, what differs and what does not count, with shell scripts as programs and as prefixes."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "dev" / "guest-conformance"

# This prefix runs the program as it is, except that it says in HOSTED that it does.
HOST = '#!/bin/sh\nHOSTED=yes exec "$@"\n'


class GuestConformance(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="multigrain-conformance-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.programs = self.folder / "programs"
        self.programs.mkdir()
        self.host = self.script(self.folder / "host", HOST)

    def script(self, path, text):
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def program(self, name, text):
        return self.script(self.programs / name, text)

    def command(self, *arguments, where=None):
        return [sys.executable, str(TOOL), str(where or self.programs), *arguments]

    def tool(self, *arguments, where=None):
        return subprocess.run(self.command(*arguments, where=where), check=False, text=True, capture_output=True, timeout=300)

    def compared(self, *arguments, where=None):
        """The status of a comparison under the prefix, and its JSON."""
        file = self.folder / "result.json"
        result = self.tool("--prefix", str(self.host), "--json", str(file), *arguments, where=where)
        self.assertIn(result.returncode, (0, 1), result.stdout + result.stderr)
        return result, json.loads(file.read_text(encoding="utf-8"))

    def test_what_does_the_same_agrees(self):
        self.program("good", "echo $HOSTED")
        self.program("with_results", 'echo "a.c:7: TPASS: it works"; echo "a.c:8: TCONF: not here"')
        result, found = self.compared("--jobs", "2", "--repeat", "2")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(found["counts"], {"agrees": 2})
        self.assertEqual(self.tool("--prefix", "env --").returncode, 0)

    def test_another_status_or_signal_differs(self):
        self.program("status", '[ -z "$HOSTED" ] || exit 3')
        self.program("signal", '[ -z "$HOSTED" ] || kill -SEGV $$')
        result, found = self.compared()
        self.assertEqual(result.returncode, 1)
        self.assertEqual(found["differ"]["status"]["why"], ["exit 3 instead of exit 0"])
        self.assertEqual(found["differ"]["signal"]["why"], ["signal SIGSEGV instead of exit 0"])
        self.assertRegex(result.stdout, r"signal +1 of 1 +exit 0 +signal SIGSEGV")

    def test_another_number_of_results_differs(self):
        self.program("new", 'echo "a.c:7: TPASS: one" >&2; [ -n "$HOSTED" ] || echo "a.c:8: TPASS: two"')
        self.program("old", 'echo "old    1  TPASS  :  one"; [ -z "$HOSTED" ] || echo "old    2  TFAIL  :  two"')
        _, found = self.compared()
        self.assertEqual(found["differ"]["new"]["why"], ["TPASS 1 instead of 2"])
        self.assertEqual(found["differ"]["old"]["why"], ["TFAIL 1 instead of 0"])

    def test_output_counts_only_if_asked_for(self):
        self.program("talks", 'echo "in $PWD: $HOSTED"')
        self.program("same", 'echo "in $PWD"')
        self.assertEqual(self.compared()[0].returncode, 0)
        _, found = self.compared("--output")
        self.assertEqual(list(found["differ"]), ["talks"])
        self.assertEqual(found["differ"]["talks"]["why"], ["other output"])

    def test_what_fails_natively_is_apart_and_is_not_run_under_the_prefix(self):
        ran = self.folder / "ran"
        self.program("fails", f'[ -z "$HOSTED" ] || touch {ran}; exit 1')
        self.program("not_here", "exit 32")
        self.program("unstable", f"mkdir {self.folder}/first && exit 0; exit 5")
        result, found = self.compared("--repeat", "2")
        self.assertEqual(result.returncode, 0)
        verdicts = {name: verdict["verdict"] for name, verdict in found["apart"].items()}
        self.assertEqual(
            verdicts, {"fails": "fails natively", "not_here": "does not apply natively", "unstable": "unstable natively"}
        )
        self.assertFalse(ran.exists())
        result, found = self.compared("--any-status")
        self.assertEqual(found["counts"], {"agrees": 3})
        self.assertTrue(ran.exists())

    def test_native_results_are_kept(self):
        record = self.folder / "native.json"
        counter = self.folder / "counter"
        self.program("counts", f'[ -n "$HOSTED" ] || echo x >> {counter}')
        recorded = self.tool("--native", str(record), "--repeat", "2")
        self.assertEqual(recorded.returncode, 0)
        self.assertIn("1 pass natively, 0 are apart", recorded.stdout)
        self.compared("--native", str(record))
        self.assertEqual(counter.read_text(), "x\nx\n")
        record.write_text("{}")
        self.assertIn("does not hold native results", self.tool("--native", str(record)).stderr)

    def test_the_time_limit_ends_everything_that_a_program_started(self):
        file = self.folder / "pids"
        self.program("hangs", f'[ -z "$HOSTED" ] && exit 0; (setsid sleep 1000 & echo $! >> {file}); echo $$ >> {file}; sleep 1000')
        self.program("leaves", f"(trap '' TERM; setsid sleep 1000 & echo $! >> {file})")
        _, found = self.compared("--seconds", "2")
        self.assertEqual(found["differ"]["hangs"]["why"], ["time limit instead of exit 0"])
        pids = file.read_text().split()
        self.assertEqual(len(pids), 4)
        self.assertEqual([pid for pid in pids if pathlib.Path("/proc", pid).exists()], [])

    def test_a_tool_that_is_ended_ends_what_it_started(self):
        for how in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(how.name):
                file = self.folder / f"pid-{how.name}"
                self.program("hangs", f"echo $$ > {file}; sleep 1000")
                tool = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                self.wait_until(lambda file=file: file.exists() and file.read_text().strip())
                tool.send_signal(how)
                tool.wait(60)
                self.wait_until(lambda file=file: not pathlib.Path("/proc", file.read_text().strip()).exists())

    def wait_until(self, condition):
        end = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), end, "it never came")
            time.sleep(0.01)

    def test_each_program_has_a_fresh_folder(self):
        self.program("writes", 'ls; [ -z "$(ls)" ] || exit 1; touch left; pwd > "$TMPDIR/here"; [ "$TMPDIR" = "$PWD" ]')
        _, found = self.compared("--repeat", "2")
        self.assertEqual(found["counts"], {"agrees": 1})

    def test_an_installed_linux_test_project(self):
        binaries = self.folder / "ltp" / "testcases" / "bin"
        binaries.mkdir(parents=True)
        (self.folder / "ltp" / "runtest").mkdir()
        (self.folder / "ltp" / "runtest" / "syscalls").write_text(
            "# a comment\n\nfork01 fork01 -i 3\nreboot01 reboot01\nabsent01 absent01\n"
        )
        self.script(binaries / "fork01", 'helper && [ "$*" = "-i 3 more" ] && [ -d "$LTPROOT/runtest" ]')
        self.script(binaries / "helper", "exit 0")
        self.script(binaries / "reboot01", f"touch {self.folder}/rebooted")
        _, found = self.compared("--argument", "more", where=self.folder / "ltp")
        self.assertEqual(found["counts"], {"agrees": 1})
        self.assertEqual(list(found["excluded"]), ["reboot01"])
        self.assertFalse((self.folder / "rebooted").exists())

    def test_a_file_of_commands_and_the_choice_among_them(self):
        file = self.folder / "commands"
        file.write_text("one sh -c 'exit 0'\ntwo sh -c 'test -z \"$HOSTED\"'\n")
        self.assertEqual(list(self.compared(where=file)[1]["differ"]), ["two"])
        self.assertEqual(self.compared("--only", "o*", where=file)[1]["counts"], {"agrees": 1})
        self.assertEqual(self.compared("--skip", "two", where=file)[1]["counts"], {"agrees": 1})

    def test_nonsense_is_refused_in_a_sentence(self):
        self.program("good", "exit 0")
        rules = self.folder / "rules"
        rules.write_text("good\n")
        for arguments, said in (
            (["--only", "nothing*"], "no program is called 'nothing*'"),
            (["--prefix", "no-such-program --"], "there is no program 'no-such-program'"),
            (["--prefix", "'"], "--prefix: No closing quotation"),
            (["--json", "/no/such/folder/x.json"], "there is no folder for"),
            (["--exclude", str(rules)], "'good' has no reason"),
            (["--exclude", "/no/such"], "No such file"),
            (["--jobs", "0"], "invalid positive value: '0'"),
            (["--repeat", "many"], "invalid positive value: 'many'"),
        ):
            with self.subTest(" ".join(arguments)):
                result = self.tool(*arguments)
                self.assertEqual(result.returncode, 2, result.stdout)
                self.assertIn(said, result.stderr)
                self.assertNotIn("Traceback", result.stderr)
        empty = self.folder / "empty"
        empty.mkdir()
        self.assertIn("has no executable program", self.tool(where=empty).stderr)
        self.assertIn("there is no folder or file", self.tool(where=self.folder / "absent").stderr)

    def test_every_exclusion_has_a_reason(self):
        self.program("reboot01", "exit 1")
        self.program("good", "exit 0")
        listed = self.tool("--list").stdout
        self.assertIn("reboot01: excluded: restarts the machine", listed)
        self.assertIn(f"good: {os.path.realpath(self.programs / 'good')}", listed)


if __name__ == "__main__":
    unittest.main()
