"""mgbench --calibrate measures this machine, and writes a description with which programs run. What the figures are, hangs on the
machine: only that they can be, and that each says where it is from, is looked at."""

import json
import os
import subprocess
import tempfile
import unittest

BIN = os.environ.get("MULTIGRAIN_TEST_BIN", "build/bin")


def run(*command, **environment):
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env={**os.environ, **environment})


def figures(group, source=""):
    """Every figure of a part, with its key, and its own source or its group's."""
    source = group.get("source", source)
    for key, value in group.items():
        if key in ("unit", "source"):
            continue
        if isinstance(value, dict) and "value" not in value:
            yield from figures(value, source)
        elif isinstance(value, dict):
            yield key, value["value"], value.get("source", source)
        else:
            yield key, value, source


class Calibrate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.file = os.path.join(cls.kept.name, "multigrain", "here.json")
        cls.done = run(f"{BIN}/mgbench", "--calibrate", XDG_DATA_HOME=cls.kept.name)

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()

    def setUp(self):
        self.assertEqual(self.done.returncode, 0, self.done.stdout + self.done.stderr)
        self.assertEqual(self.done.stdout.strip(), self.file)
        with open(self.file, encoding="utf-8") as file:
            self.machine = json.load(file)

    def test_it_has_the_keys_of_every_other_machine(self):
        with open(f"{BIN}/../share/multigrain/machines/today-rdma.json", encoding="utf-8") as file:
            other = json.load(file)
        for part in ("network", "costs"):
            self.assertEqual(set(self.machine[part]) | {"source"}, set(other[part]) | {"source"})
        self.assertEqual(set(self.machine["processor"]["instructions"]), set(other["processor"]["instructions"]))
        self.assertLessEqual(set(other["processor"]["calls"]), set(self.machine["processor"]["calls"]))

    def test_each_figure_says_how_it_was_found_out(self):
        named = 0
        for part in ("processor", "network", "costs"):
            for key, value, source in figures(self.machine[part]):
                with self.subTest(key):
                    self.assertTrue(source)
                    if source.startswith("measured:"):
                        self.assertRegex(source, r"p50 of \d+, p99 ")
                        named += 1
                    if isinstance(value, (int, float)):
                        self.assertGreaterEqual(value, 0)
        self.assertGreater(named, 40)
        for key in ("integer", "load", "float_divide"):
            self.assertGreater(self.machine["processor"]["instructions"][key]["value"], 0)

    def test_a_run_takes_its_prices(self):
        path = os.path.join(self.kept.name, "profile.json")
        for shape in (("1", "1"), ("2", "2")):
            done = run(f"{BIN}/mgrun", "--clock", "counted", "--machine", "here", "--nodes", shape[0], "--procs-per-node", shape[1],
                       "--stats", f"json:{path}", f"{BIN}/workloads/counted/jacobi", "--size", "test", "--check",
                       XDG_DATA_HOME=self.kept.name)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(path, encoding="utf-8") as file:
                profile = json.load(file)
            self.assertEqual(profile["run"]["machine"], "here")
            self.assertGreater(profile["run"]["elapsed_ns"], 0)

    def test_without_it_a_sentence_says_what_to_do(self):
        with tempfile.TemporaryDirectory() as empty:
            done = run(f"{BIN}/mgrun", "--clock", "counted", "--machine", "here", "/bin/true", XDG_DATA_HOME=empty)
            self.assertEqual(done.returncode, 2)
            self.assertIn("this machine has not been measured yet: mgbench --calibrate", done.stderr)
            self.assertIn(os.path.join(empty, "multigrain", "here.json"), done.stderr)


class Refused(unittest.TestCase):
    def test_what_it_cannot_do(self):
        for arguments, words in ((("--calibrate", "/"), "is a folder"),
                                 (("--calibrate", "x.json", "--json"), "--json has no meaning with --calibrate")):
            done = run(f"{BIN}/mgbench", *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)

    def test_without_a_home_it_needs_a_name(self):
        environment = {key: value for key, value in os.environ.items() if key not in ("HOME", "XDG_DATA_HOME")}
        done = subprocess.run([f"{BIN}/mgbench", "--calibrate"], capture_output=True, text=True, timeout=60, check=False, env=environment)
        self.assertEqual(done.returncode, 2)
        self.assertIn("neither XDG_DATA_HOME nor HOME", done.stderr)


if __name__ == "__main__":
    unittest.main()
