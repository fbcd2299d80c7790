"""mgstudy --figure: a study's figure as SVG, whose bars are as high as the times and have the parts of the times."""

import json
import re
import subprocess
import sys
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from against_test import family, point
from multigrain.study.runs import StudyError
from multigrain.study.study_drawings import drawing
from multigrain.study.svg import Bar, Panel, figure, nice_step
from study_test import Command, Folder

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def bars_in(text):
    """Of each class, the heights of its rectangles, from left to right; legend and paper left out."""
    out = {}
    for rectangle in ElementTree.fromstring(text).iter(f"{SVG}rect"):
        if float(rectangle.get("width")) != 13 and rectangle.get("class") != "paper":
            out.setdefault(rectangle.get("class"), []).append(float(rectangle.get("height")))
    return out


class Families(unittest.TestCase):
    def test_bars_are_as_high_as_the_times(self):
        text = drawing(family())
        bars = bars_in(text)
        # Half of each time is user, a quarter data wait and barrier; the times are 60, 50, 30 and 10 ms.
        for kind, part in (("user", 2), ("data_wait", 4), ("barrier", 4)):
            with self.subTest(kind):
                heights = bars[kind]
                self.assertEqual(len(heights), 4)
                for height, time in zip(heights, (60, 50, 30, 10)):
                    self.assertAlmostEqual(height / heights[0], time / 60, delta=0.01)
                self.assertAlmostEqual(heights[0] / bars["user"][0], 2 / part, delta=0.01)
        self.assertNotIn("lock", bars)
        for words in ("60", "50", "30", "10", "data wait", "C, processors of a node", "program: ms"):
            self.assertIn(f">{words}<", text)

    def test_a_machine_that_failed_has_no_bar(self):
        self.assertEqual(len(bars_in(drawing(family(without=(2,))))["user"]), 3)

    def test_nothing_measured(self):
        with self.assertRaisesRegex(StudyError, "nothing to draw"):
            drawing(family(without=(1, 2, 4, 8)))

    def test_light_and_dark(self):
        self.assertIn("prefers-color-scheme: dark", drawing(family()))


class OtherKinds(unittest.TestCase):
    def test_each_processor(self):
        study = family()
        study["kind"] = "width"
        row = {"user_ns": 5, "data_wait_ns": 3, "lock_ns": 0, "barrier_ns": 1, "protocol_ns": 1}
        for each in study["points"]:
            each["processors"] = [
                {**row, "processor": p, "counters": {"read_faults": p, "upgrades": 1}} for p in range(8)
            ]
        faults = bars_in(drawing(study))["faults"]
        self.assertEqual(len(faults), 4 * 8)
        for p in range(8):
            self.assertAlmostEqual(faults[p] / faults[0], p + 1, delta=0.01)

    def test_latency_is_lines_from_the_shortest_on(self):
        study = family()
        study["kind"] = "latency"
        study["points"] = [
            point(time, size, latency=latency)
            for size, times in ((1, (10, 12, 20)), (4, (10, 11, 15)))
            for latency, time in zip((5_000, 50_000, 500_000), times)
        ]
        root = ElementTree.fromstring(drawing(study))
        lines = [
            [float(pair.split(",")[1]) for pair in line.get("points").split()] for line in root.iter(f"{SVG}polyline")
        ]
        self.assertEqual([len(line) for line in lines], [3, 3])
        (one, four) = lines
        self.assertEqual(one[0], four[0])  # 0 %
        self.assertAlmostEqual((one[0] - one[2]) / (one[0] - one[1]), 100 / 20, delta=0.05)
        self.assertAlmostEqual((one[0] - one[2]) / (four[0] - four[2]), 100 / 50, delta=0.05)


class Svg(unittest.TestCase):
    def test_steps(self):
        self.assertEqual([nice_step(span) for span in (10, 9, 1, 0.07, 430)], [2, 2, 0.2, 0.02, 100])

    def test_names_are_escaped(self):
        text = figure("a < b", "a & b", [Panel("<p>", ["&"], [[Bar([("user", 1)])]])], {"user": '"user"'})
        self.assertEqual(ElementTree.fromstring(text).find(f"{SVG}title").text, "a < b")

    def test_below_zero(self):
        text = figure("t", "d", [Panel("p", ["1", "2"], [[Bar([("user", -50)])], [Bar([("user", 100)])]])], {})
        low, high = bars_in(text)["user"]
        self.assertAlmostEqual(high / low, 2, delta=0.01)


class Pages(Folder):
    def test_the_figures_are_those_of_the_tables(self):
        made = subprocess.run(
            [sys.executable, ROOT / "study/page_figures.py", "--into", str(self.folder)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        self.assertEqual(made.returncode, 0, made.stderr)
        figures = sorted(self.folder.glob("*.svg"))
        self.assertEqual(len(figures), 5)
        for path in figures:
            self.assertEqual(
                path.read_text(),
                (ROOT / "docs/pictures" / path.name).read_text(),
                f"{path.name}: study/page_figures.py",
            )


class CommandLine(Command):
    def test_a_family_and_its_report_again(self):
        path = self.folder / "family.svg"
        study = self.study("--figure", str(path))
        bars = bars_in(path.read_text())
        measured = [each for each in study["points"] if each["role"] == "family"]
        self.assertEqual(len(bars["user"]), len(measured))
        (self.folder / "study.json").write_text(json.dumps(study))
        again = self.folder / "again.svg"
        status, _, err = self.mgstudy("report", "study.json", "-q", "--no-report", "--figure", str(again))
        self.assertEqual(status, 0, err)
        self.assertEqual(again.read_text(), path.read_text())

    def test_a_folder_that_there_is_not(self):
        status, _, err = self.mgstudy("report", "study.json", "--figure", "nowhere/family.svg")
        self.assertEqual(status, 2)
        self.assertTrue(re.search("cannot write nowhere/family.svg: there is no folder 'nowhere'", err), err)


if __name__ == "__main__":
    unittest.main()
