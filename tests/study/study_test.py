"""mgstudy: its metrics, its cache, what it does when runs fail or it is interrupted; with a program in mgrun's place."""

import csv
import io
import json
import os
import random
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from multigrain.study import figures, metrics, studies
from multigrain.study.runs import Cache, Run, StudyError

BIN = os.environ["MULTIGRAIN_TEST_BIN"]
FAKE = str(Path(__file__).with_name("fake_mgrun.py"))
MEDIUM = "times=alone:80,1:60,2:50,4:30,8:10"


class Metrics(unittest.TestCase):
    def test_are_those_of_section_2_3(self):
        times = {1: 300.0, 16: 200.0, 32: 80.0}
        self.assertAlmostEqual(metrics.breakup_penalty(times, 32), 1.5)
        self.assertAlmostEqual(metrics.multigrain_potential(times, 32), 0.5)
        # Jacobi's is negative in the paper, and so is Gauss's potential.
        self.assertAlmostEqual(metrics.breakup_penalty({16: 90.0, 32: 100.0}, 32), -0.1)
        self.assertAlmostEqual(metrics.multigrain_potential({1: 90.0, 16: 100.0}, 32), -0.1)
        for missing in (1, 16):
            self.assertIsNone(metrics.multigrain_potential({c: t for c, t in times.items() if c != missing}, 32))
        for missing in (16, 32):
            self.assertIsNone(metrics.breakup_penalty({c: t for c, t in times.items() if c != missing}, 32))
        self.assertIsNone(metrics.breakup_penalty({1: 2.0, 3: 1.0}, 3))  # there is no P/2

    def test_classes_are_those_of_section_5_3(self):
        def grain(single, half, whole, sequential=None, processors=32):
            return metrics.classify({1: single, processors // 2: half, processors: whole}, processors, sequential).grain

        self.assertEqual(grain(11.0, 10.5, 10.0, 300.0), metrics.COARSE)
        self.assertEqual(grain(9.0, 10.0, 11.0, 300.0), metrics.COARSE)  # both metrics negative
        self.assertEqual(grain(340.0, 189.0, 73.0, 1960.0), metrics.MEDIUM)  # Water
        self.assertEqual(grain(58.0, 33.9, 3.04, 53.5), metrics.FINE)  # TSP: slowdown at worst, less than 2 at best
        self.assertEqual(grain(58.0, 33.9, 3.04), metrics.MEDIUM)  # not known to be worse
        # The curve is flat, and nowhere faster than one processor. That is not due to the cluster.
        self.assertEqual(grain(10.0, 10.0, 9.5, 15.0), metrics.COARSE)
        self.assertIn("Figure 3", metrics.classify({1: 110.0, 4: 100.0, 8: 10.0}, 8, 400.0).reason)
        self.assertIn("Figure 4", metrics.classify({1: 100.0, 4: 11.0, 8: 10.0}, 8, 70.0).reason)
        none = metrics.classify({1: 1.0, 32: 1.0}, 32, None)
        self.assertEqual((none.grain, none.reason), (None, "there is no time for C = 16"))

    def test_node_sizes_divide(self):
        self.assertEqual(metrics.node_sizes(32), [1, 2, 4, 8, 16, 32])
        self.assertEqual(metrics.node_sizes(12), [1, 2, 3, 4, 6, 12])

    def test_a_line_goes_through_its_points(self):
        line = metrics.fit([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)])
        self.assertAlmostEqual(line.slope, 2)
        self.assertAlmostEqual(line.at(10), 21)
        self.assertIsNone(metrics.fit([(1.0, 3.0), (1.0, 4.0)]))

    def test_the_median_is_one_of_the_runs(self):
        for values in ([3.0, 1.0, 2.0], [3.0, 1.0, 2.0, 9.0], [5.0]):
            spread = metrics.spread(values)
            self.assertEqual(values[metrics.nearest_to_median(values)], spread.median)
            self.assertEqual((spread.low, spread.high, spread.count), (min(values), max(values), len(values)))
        self.assertEqual(metrics.spread([3.0, 1.0, 2.0, 9.0]).median, 2.0)
        self.assertAlmostEqual(metrics.imbalance([1, 1, 4]), 1.0)
        self.assertEqual(metrics.imbalance([0, 0]), 0.0)

    def test_shares_add_up(self) -> None:
        self.assertEqual(metrics.shares([1, 1, 1]), [334, 333, 333])
        self.assertEqual(metrics.shares([5, 0, 0]), [1000, 0, 0])
        self.assertEqual(metrics.shares([0, 0]), [0, 0])
        random.seed(1)
        for _ in range(1000):
            parts = [random.randrange(10**9) for _ in range(random.randrange(1, 8))]
            self.assertEqual(sum(metrics.shares(parts)), 1000 if sum(parts) else 0)

    def test_latencies(self):
        for text, value in (("50us", 50_000), ("4.75us", 4_750), ("1ms", 1_000_000), ("110ns", 110)):
            self.assertEqual(studies.parse_latency(text), value)
            self.assertEqual(studies.parse_latency(studies.latency_text(value)), value)
        for text in ("", "us", "50", "-5us", "1.2.3us", "infus", "5s"):
            with self.assertRaises(StudyError):
                studies.parse_latency(text)
        self.assertEqual(studies.with_latency("mgs", 5_000), "mgs,latency=5us")
        self.assertEqual(studies.with_latency("bandwidth=1GB/s,latency=50us", 5_000), "bandwidth=1GB/s,latency=5us")


class Figures(unittest.TestCase):
    def test_percent_has_digits_and_no_power_of_ten(self):
        shown = [figures.percent(part, 2) for part in (None, 0.0004, 0.0123, 0.123456, 1.0, 12.345)]
        self.assertEqual(shown, ["–", "0 %", "1.2 %", "12 %", "100 %", "1,234 %"])
        self.assertEqual([figures.percent(part) for part in (0.0345, 1.59, -12.3)], ["3.45 %", "159 %", "-1,230 %"])

    def test_what_takes_twice_as_long_is_so_many_times_slower(self):
        self.assertEqual([figures.slower(part) for part in (None, 0.5, -0.1, 1.0, 97.85)],
                         ["–", "50 %", "-10 %", "2 times slower", "98.8 times slower"])
        self.assertEqual([figures.faster(part) for part in (0.61, 2.0)], ["61 %", "3 times faster"])
        self.assertEqual(figures.against(1.0, 25.0), "25 times slower than one processor")
        self.assertEqual(figures.against(8.0, 2.0), "4 times as fast as one processor")
        self.assertEqual([figures.machine_words(8, size) for size in (4, 8)], ["2 nodes of 4", "1 node of 8"])


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="multigrain-study-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.program = self.folder / "program"
        self.program.write_text("#!/bin/sh\n")
        self.program.chmod(0o755)


class Keys(Folder):
    def key(self, run=None, depends=(), environment=None, repetition=0):
        run = run or Run(str(self.program), ("a",), 2, 4, ("--net", "mgs"))
        cache = Cache(self.folder)  # with hashes of its own
        return cache.path(cache.dependencies(run, FAKE, depends, environment or {"HOME": "/"}), repetition)

    def test_change_with_what_a_result_depends_on(self):
        base = Run(str(self.program), ("a",), 2, 4, ("--net", "mgs"))
        data = self.folder / "data"
        data.write_text("1")
        keys = [
            self.key(),
            self.key(repetition=1),
            self.key(Run(base.program, ("b",), 2, 4, base.options)),
            self.key(Run(base.program, ("a",), 4, 2, base.options)),
            self.key(Run(base.program, ("a",), 2, 4, ("--net", "lan"))),
            self.key(depends=[str(data)]),
            self.key(environment={"MULTIGRAIN_PREFETCH": "0"}),
            self.key(environment={"LD_PRELOAD": "x"}),
        ]
        data.write_text("2")
        keys.append(self.key(depends=[str(data)]))
        self.program.write_text("#!/bin/sh\n# another build\n")
        keys.append(self.key())
        self.assertEqual(len(set(keys)), len(keys))

    def test_do_not_change_with_anything_else(self):
        self.assertEqual(
            self.key(),
            self.key(environment={"HOME": "/root", "MULTIGRAIN_STATS": "text", "MULTIGRAIN_PYTHON": "/usr/bin/python3"}),
        )
        os.utime(self.program, (1, 1))
        self.assertEqual(self.key(), self.key())

    def test_the_library_counts(self):
        libraries = Cache(self.folder).dependencies(Run(f"{BIN}/workloads/jacobi", (), 1, 1), FAKE, (), {})["libraries"]
        self.assertEqual(len(libraries), 1)


class Command(Folder):
    def setUp(self):
        super().setUp()
        self.log = self.folder / "log"
        self.environment = os.environ | {"FAKE_LOG": str(self.log)}

    def start(self, *arguments):
        return subprocess.Popen(
            [f"{BIN}/mgstudy", *arguments],
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A shell's background job ignores SIGINT, and so would what it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def mgstudy(self, *arguments):
        child = self.start(*arguments)
        out, err = child.communicate(timeout=900)
        return child.returncode, out, err

    def study(self, *arguments, kind="family", program=(MEDIUM,), status=0):
        """The study's JSON."""
        got, out, err = self.mgstudy(
            kind, "-q", "-p", "8", "--mgrun", FAKE, *arguments, "--json", "-", "--no-report", "--", str(self.program), *program
        )
        self.assertEqual(got, status, err)
        self.err = err
        return json.loads(out)

    def runs(self):
        return [line.split()[1] for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def left_over(self):
        """Those of the processes in mgrun's place that are still there."""
        pids = [int(line.split()[0]) for line in self.log.read_text().splitlines()]
        return [
            pid
            for pid in pids
            if Path(f"/proc/{pid}/cmdline").exists() and b"fake_mgrun" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

    def until(self, condition):
        for _ in range(60000):
            if condition():
                return True
            time.sleep(0.01)
        return False


class Studies(Command):
    def test_a_family_has_its_metrics(self):
        study = self.study("--repetitions", "1")
        self.assertEqual((study["schema"], study["version"], study["kind"]), ("multigrain-study", 1, "family"))
        self.assertEqual(self.runs(), ["1x1", "1x8", "2x4", "4x2", "8x1"])
        own = study["metrics"][0]
        self.assertAlmostEqual(own["breakup_penalty"], 2.0)
        self.assertAlmostEqual(own["multigrain_potential"], 1.0)
        self.assertEqual(own["grain"], "medium-grain")
        self.assertEqual(own["sequential_ns"], 80_000_000)
        for point in study["points"]:
            self.assertAlmostEqual(sum(point["mean_ns"].values()) + point["outside_ns"], point["elapsed_ns"], delta=1000)
        self.assertEqual([point["role"] for point in study["points"]].count("sequential"), 1)
        self.assertGreater(next(point for point in study["points"] if point["node_size"] == 2)["imbalance"]["user"], 0.1)
        self.assertEqual(
            study["network"],
            {"given": "mgs", "figures": "latency=50us", "what": "the LAN of a test", "source": "a paper, section 5.3"},
        )

    def test_repetitions_give_a_median_and_a_spread(self):
        point = next(point for point in self.study("-r", "3")["points"] if point["node_size"] == 4)
        self.assertEqual((point["low_ns"], point["elapsed_ns"], point["high_ns"]), (30_000_000, 30_300_000, 30_600_000))
        self.assertEqual(self.runs()[:5], ["1x1", "1x8", "2x4", "4x2", "8x1"])  # all once before any twice

    def test_without_a_sequential_run(self):
        study = self.study("-r", "1", "--no-sequential")
        self.assertNotIn("1x1", self.runs())
        self.assertIsNone(study["metrics"][0]["sequential_ns"])

    def test_results_are_kept(self):
        first = self.study("-r", "2")
        count = len(self.runs())
        self.assertEqual(count, 10)
        again = self.study("-r", "2")
        self.assertEqual(len(self.runs()), count)
        self.assertEqual(
            [each["repetitions_ns"] for each in again["points"]], [each["repetitions_ns"] for each in first["points"]]
        )
        self.study("-r", "3")
        self.assertEqual(len(self.runs()), count + 5)
        self.study("-r", "1", "--fresh")
        self.assertEqual(len(self.runs()), count + 10)
        self.study("-r", "1", program=(MEDIUM, "text=other"))
        self.assertEqual(len(self.runs()), count + 15)

    def test_what_is_kept_is_read_with_care(self):
        self.study("-r", "1")
        files = sorted((self.folder / ".mgstudy/runs").iterdir())
        self.assertEqual(len(files), 5)
        files[0].write_text('{"half": ')
        files[1].write_text("[]")
        self.study("-r", "1")
        self.assertEqual(len(self.runs()), 7)
        self.assertEqual([path for path in (self.folder / ".mgstudy").iterdir() if path.name.startswith("running-")], [])

    def test_a_failure_is_told_and_the_rest_shown(self):
        program = (MEDIUM, "fail-at=2")
        study = self.study("-r", "2", program=program, status=1)
        failed = [point for point in study["points"] if point["failures"]]
        self.assertEqual([point["node_size"] for point in failed], [2])
        failure = failed[0]["failures"]
        self.assertEqual(len(failure), 1)  # it is not tried again
        self.assertEqual((failure[0]["status"], failure[0]["output"]), (3, "it broke on 4 nodes <b>\n"))
        self.assertIn("--nodes 4 --procs-per-node 2", failure[0]["command"])
        self.assertIn("it broke on 4 nodes", self.err)
        self.assertIn(failure[0]["command"], self.err)
        self.assertAlmostEqual(study["metrics"][0]["breakup_penalty"], 2.0)
        self.assertEqual(len(self.runs()), 9)
        # A failure is not kept: the next time it may go well.
        self.study("-r", "2", program=program, status=1)
        self.assertEqual(len(self.runs()), 10)
        # The report is written, with what failed as text.
        status, _, err = self.mgstudy("report", "-q", "-o", "report.html")
        self.assertEqual((status, err), (1, ""))
        self.assertIn("it broke on 4 nodes &lt;b&gt;", (self.folder / "report.html").read_text())

    def test_all_may_fail(self):
        study = self.study("-r", "1", program=("times=",), status=1)
        self.assertTrue(all(point["failures"] for point in study["points"]))
        status, out, err = self.mgstudy("report")
        self.assertEqual(status, 1, err)
        self.assertIn("failed", out)
        self.assertTrue((self.folder / "mgstudy-family-program.html").exists())

    def test_a_run_may_take_too_long(self):
        study = self.study("-r", "1", "--time-limit", "20", program=(MEDIUM, "hang-at=2"), status=1)
        problems = [failure["problem"] for point in study["points"] for failure in point["failures"]]
        self.assertEqual(problems, ["it took longer than 20 s"])
        self.assertEqual(self.left_over(), [])

    def test_statistics_must_be_of_the_run(self):
        for program, sentence in (
            ((MEDIUM, "silent-at=8"), "it left no statistics: is it a Multigrain program?"),
            ((MEDIUM, "clock=wall"), "of the wall clock"),
        ):
            with self.subTest(sentence):
                study = self.study("-r", "1", program=program, status=1)
                self.assertIn(
                    sentence, " ".join(failure["problem"] for point in study["points"] for failure in point["failures"])
                )

    def test_an_interrupted_study_goes_on(self):
        arguments = ("family", "-p", "8", "--mgrun", FAKE, "-r", "1", "--no-report", "--", str(self.program), MEDIUM, "hang-at=1")
        for number in (signal.SIGINT, signal.SIGTERM):
            child = self.start(*arguments)
            self.assertTrue(self.until(lambda: "8x1" in self.runs()))
            child.send_signal(number)
            _, err = child.communicate(timeout=900)
            self.assertEqual(child.returncode, 130)
            self.assertIn("mgstudy: interrupted; what is measured is kept, and the same command goes on from there", err)
            self.assertEqual(self.left_over(), [])
            self.assertEqual(self.runs(), ["1x1", "1x8", "2x4", "4x2", "8x1"])
            self.assertEqual([path.name for path in (self.folder / ".mgstudy").glob("[!.]*")], ["runs"])
            lines = self.log.read_text().splitlines()
            self.log.write_text("".join(f"{line}\n" for line in lines[:-1]))  # as if it had not begun

    def test_killed_it_leaves_no_run(self):
        child = self.start(
            "family", "-p", "8", "--mgrun", FAKE, "-r", "1", "--no-report", "--", str(self.program), MEDIUM, "hang-at=1"
        )
        self.assertTrue(self.until(lambda: "8x1" in self.runs()))
        child.kill()
        child.communicate(timeout=900)
        self.assertTrue(self.until(lambda: not self.left_over()))
        # The folder of the killed study is there until the next study begins.
        self.assertEqual(len(list((self.folder / ".mgstudy").glob("running-*"))), 1)
        self.study("-r", "1")
        self.assertEqual(list((self.folder / ".mgstudy").glob("running-*")), [])

    def test_latency_has_slopes(self):
        study = self.study("-r", "1", "--latencies", "50us,100us,200us", kind="latency", program=(MEDIUM, "per-us=0.1"))
        self.assertEqual(study["node_sizes"], [1, 4])
        slopes = {each["node_size"]: each for each in study["slopes"]}
        # 0.1 ms for each microsecond at C = 1, a quarter of it at 4; the runs are the first of their kind or a little later.
        self.assertAlmostEqual(slopes[1]["slope"], 100, delta=15)
        self.assertGreater(slopes[1]["slope"], 2 * slopes[4]["slope"])
        self.assertEqual(slopes[1]["base_latency_ns"], 50_000)
        self.assertEqual(slopes[1]["increase"]["50000"], 0)
        self.assertNotIn("1x8", self.runs())
        self.assertIn("--net mgs,latency=200us", self.log.read_text())

    def test_compare_measures_side_by_side(self):
        slower = MEDIUM.replace("8:10", "8:20")
        study = self.study("-r", "1", "--add-args", slower, "--vary", "page-size=4K,16K", kind="compare")
        self.assertEqual(
            study["series"],
            [
                f"program {MEDIUM}, page-size 4K",
                f"program {MEDIUM}, page-size 16K",
                f"{slower}, page-size 4K",
                f"{slower}, page-size 16K",
            ],
        )
        penalties = [own["breakup_penalty"] for own in study["metrics"]]
        self.assertAlmostEqual(penalties[0], 2.0, delta=0.1)
        self.assertAlmostEqual(penalties[2], 0.5, delta=0.1)
        self.assertEqual(sum("--page-size 16K" in line for line in self.log.read_text().splitlines()), 10)

    def test_compare_takes_another_build(self):
        other = self.folder / "other"
        other.write_text("#!/bin/sh\n# newer\n")
        other.chmod(0o755)
        faster = MEDIUM.replace("1:60", "1:15")
        study = self.study("-r", "1", "--against", f"./other {faster}", kind="compare")
        self.assertEqual(study["series"], [f"program {MEDIUM}", f"./other {faster}"])
        self.assertEqual([each["path"] for each in study["programs"]], [str(self.program), "./other"])
        self.assertNotEqual(study["programs"][0]["sha256"], study["programs"][1]["sha256"])
        potentials = [own["multigrain_potential"] for own in study["metrics"]]
        self.assertGreater(potentials[0], 0.9)
        self.assertLess(potentials[1], -0.4)

    def test_width_looks_at_the_same_runs_as_family(self):
        self.study("-r", "1")
        count = len(self.runs())
        self.assertEqual(self.study("-r", "1", kind="width")["kind"], "width")
        self.assertEqual(len(self.runs()), count)

    def test_csv_has_a_row_a_machine(self):
        status, out, err = self.mgstudy(
            "family",
            "-p",
            "8",
            "--mgrun",
            FAKE,
            "-r",
            "1",
            "--csv",
            "-",
            "--no-report",
            "--",
            str(self.program),
            MEDIUM,
            "fail-at=2",
        )
        self.assertEqual(status, 1, err)
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual([row["node_size"] for row in rows], ["1", "8", "4", "2", "1"])
        self.assertEqual([row["elapsed_ns"] for row in rows], ["80000000", "10000000", "30000000", None, "60000000"])
        self.assertEqual([row["failures"] for row in rows], ["0", "0", "0", "1", "0"])

    def test_the_table_says_it_all(self):
        status, out, err = self.mgstudy("family", "-p", "8", "--mgrun", FAKE, "-r", "1", "--", str(self.program), MEDIUM)
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"seq\. +1 +80 ms")
        self.assertRegex(out, r"8 +1 +10 ms +– +8\.00 +50\.0%")
        self.assertIn("breakup penalty 200%, multigrain potential 100%: medium-grain", out)
        self.assertIn("[5/5] C = 1: 60 ms", err)
        self.assertIn("Report: mgstudy-family-program.html", err)

    def test_a_study_can_be_shown_again(self):
        (self.folder / "study.json").write_text(json.dumps(self.study("-r", "1")))
        one = self.mgstudy("report", "study.json", "-q", "-o", "one.html")
        other = self.mgstudy("report", "-q", "-o", "other.html")
        self.assertEqual((one, other), ((0, "", ""), (0, "", "")))
        self.assertEqual((self.folder / "one.html").read_bytes(), (self.folder / "other.html").read_bytes())

    def test_bad_usage_gets_a_sentence(self):
        program = ["--", str(self.program), MEDIUM]
        (self.folder / "bad.json").write_text("[1]")
        fake = ["--mgrun", FAKE]
        for arguments, sentence in (
            (
                ["family", "-p", "8", "--node-sizes", "3", *fake, *program],
                "a node size of 3 does not divide 8 processors; those that do are 1, 2, 4, 8",
            ),
            (["family", "-p", "1", *fake, *program], "at least 2 processors"),
            (["family", "-p", "x", *fake, *program], "'x' is not a whole number above 0"),
            (["family", *fake, *program], "--procs"),
            (["family", "-p", "8", *fake], "there is no program to run"),
            (["family", "-p", "8", *fake, "--", "./none"], "there is no program './none'"),
            (["family", "-p", "8", *fake, "--", str(self.folder / "bad.json")], "is not executable"),
            (["family", "-p", "8", *fake, "--nonsense", *program], "nonsense"),
            (["family", "-p", "8", *fake, "--net", "bad", *program], "network model 'bad' is not understood"),
            (["family", "-p", "8", "--mgrun", "/no/mgrun", *program], "there is no mgrun at '/no/mgrun'"),
            (["family", "-p", "8", *fake, "--depends", "/no/file", *program], "cannot read '/no/file'"),
            (["family", "-p", "8", *fake, "-o", "no/folder.html", *program], "there is no folder 'no'"),
            (["family", "-p", "8", *fake, "--cache", "program", *program], "cannot make the cache directory 'program'"),
            (["family", "-p", "8", *fake, "--time-limit", "0", *program], "'0' is not a number of seconds"),
            (["latency", "-p", "8", *fake, "--latencies", "5us", *program], "at least two"),
            (["latency", "-p", "8", *fake, "--latencies", "5us,fast", *program], "'fast' is no latency"),
            (["latency", "-p", "8", *fake, "--node-sizes", "8", *program], "sends no messages"),
            (["compare", "-p", "8", *fake, *program], "there is nothing to compare with"),
            (["compare", "-p", "8", *fake, "--vary", "size=1", *program], "--vary is 'size=1'"),
            (["compare", "-p", "8", *fake, "--add-args", "'", *program], "No closing quotation"),
            (["report", "bad.json"], "bad.json is not what mgstudy --json writes"),
            (["report", "--cache", "nothing"], "the cache 'nothing' has no study yet"),
            (["nonsense"], "nonsense"),
            ([], "STUDY"),
        ):
            with self.subTest(arguments):
                status, out, err = self.mgstudy(*arguments)
                self.assertEqual((status, out), (2, ""))
                self.assertEqual(err[:9], "mgstudy: ")
                self.assertIn(sentence, err.splitlines()[-1])
        self.assertFalse(any(path.suffix == ".html" for path in self.folder.iterdir()))
        self.assertEqual(set(self.runs()) - {"1x1"}, set())

    def test_help_is_there(self):
        for arguments in (
            ["--help"],
            ["family", "--help"],
            ["latency", "--help"],
            ["width", "--help"],
            ["compare", "--help"],
            ["report", "--help"],
            ["against", "--help"],
        ):
            status, out, err = self.mgstudy(*arguments)
            self.assertEqual((status, err), (0, ""))
            self.assertLessEqual(max(map(len, out.splitlines())), 122)


if __name__ == "__main__":
    unittest.main()
