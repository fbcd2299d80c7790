"""A study in counted time gives the same tables every time: alone, beside programs that keep all cores busy, on one core, and however
many of its runs go at a time."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BIN = os.environ["MULTIGRAIN_TEST_BIN"]
TABLE = {
    "title": "figures of a test",
    "source": "nobody",
    "of": {"program": "water", "folder": "counted"},
    "rows": [
        {"name": "penalty", "what": "breakup_penalty", "theirs": 100, "unit": "%", "within": "10%"},
        {"name": "time", "what": "time(1)", "theirs": 1, "unit": "ms", "within": "10%"},
        {"name": "locks", "what": "share(2, lock)", "theirs": 10, "unit": "%", "within": "10%"},
        {"name": "pages", "what": "points[node_size=1,role=family].counters.pages_fetched", "theirs": 100, "within": "10%"},
    ],
}
# Of the study's JSON, what says when and how it was measured.
CONDITIONS = ("command", "created", "machine")


class Busy:
    """Keeps all cores busy."""

    def __enter__(self):
        self.processes = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))
        ]

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


class Repeats(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="multigrain-study-")))

    def mgstudy(self, *arguments, before=()):
        ended = subprocess.run(
            [*before, f"{BIN}/mgstudy", *arguments], cwd=self.folder, capture_output=True, text=True, check=False, timeout=1500
        )
        # 1: a row differs.
        self.assertIn(ended.returncode, (0, 1) if arguments[0] == "against" else (0,), ended.stderr)
        return ended.stdout

    def digests(self, *options, before=()):
        """Of the study's CSV, of its JSON without its conditions, of the table for the terminal, and of that with a paper's."""
        terminal = self.mgstudy(
            "family", "-p", "4", "--clock", "counted", "--machine", "alewife", "--protocol", "mgs", "--fresh", "--no-report",
            "--csv", "study.csv", "--json", "study.json", *options, "--", f"{BIN}/workloads/counted/water", "--size", "test",
            before=before,
        )  # fmt: skip
        (self.folder / "table.json").write_text(json.dumps(TABLE))
        against = self.mgstudy("against", "table.json", "study.json", "--markdown")
        study = json.loads((self.folder / "study.json").read_text())
        self.assertIs(study["exact"], True)
        self.assertEqual(sum(bool(point["elapsed_ns"]) for point in study["points"]), 4)
        for name in CONDITIONS:
            del study[name]
        for point in study["points"]:
            del point["real_seconds"], point["command"]
        csv = (self.folder / "study.csv").read_text()
        self.assertEqual(len(csv.splitlines()), 5)
        self.assertNotIn("not measured", against)
        return tuple(
            hashlib.sha256(text.encode()).hexdigest() for text in (csv, json.dumps(study), terminal, against)
        )

    def test_five_studies_are_the_same(self):
        core = str(min(os.sched_getaffinity(0)))
        found = [self.digests("--jobs", "1"), self.digests("--jobs", "4"), self.digests("--jobs", "2", before=("taskset", "-c", core))]
        with Busy():
            found.append(self.digests("--jobs", "2"))
            found.append(self.digests("--jobs", "4", before=("nice", "-n", "5")))
        self.assertEqual(set(found), {found[0]})

    def test_other_prices_are_another_study(self):
        """The digests can differ."""
        slower = self.digests("--net", "latency=100us")
        for one, other in zip(self.digests(), slower):
            self.assertNotEqual(one, other)


if __name__ == "__main__":
    unittest.main()
