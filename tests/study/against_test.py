"""mgstudy against: figures of studies by name, and whether they agree with a paper's table; and the tables that there are."""

import json
import re
import statistics
import unittest
from pathlib import Path

from multigrain.study.against import compare, decide
from multigrain.study.runs import StudyError
from multigrain.study.study_figures import StudyFigure, StudySeries, finder_of
from multigrain.study.tables import read_table
from multigrain.study.verdicts import TOLERANCE
from study_test import Command

TABLES = Path(__file__).resolve().parents[2] / "study/tables"
ALONE, SINGLE, TWO, FOUR, EIGHT = 80.0, 60.0, 50.0, 30.0, 10.0
TIMES = "times=alone:80,1:60,2:50,4:30,8:10"


def point(time, size, spread=0.0, runs=3, role="family", latency=None):
    """What a study has of a machine: milliseconds, and the spread as a part of them."""
    elapsed = int(time * 1e6)
    return {
        "series": "program",
        "role": role,
        "node_size": size,
        "nodes": 8 // size,
        "latency_ns": latency,
        "elapsed_ns": elapsed,
        "low_ns": int(elapsed * (1 - spread / 2)),
        "high_ns": int(elapsed * (1 + spread / 2)),
        "repetitions_ns": [elapsed] * runs,
        "failures": [],
        "interruptions": 0,
        "mean_ns": {"user": elapsed // 2, "data_wait": elapsed // 4, "lock": 0, "barrier": elapsed // 4, "protocol": 0},
        "outside_ns": 0,
        "rights_ns": 3_000,
        "diffs_ns": elapsed // 10,
        "counters": {"grant_reads": 2, "revokes": 2, "twins": 7},
        "processors": [{}] * 8,
    }


def family(clock="counted", spread=0.0, runs=1, exact=True, without=()):
    points = [point(ALONE, 1, spread, runs, "sequential")]
    points += [point(time, size, spread, runs) for size, time in ((8, EIGHT), (4, FOUR), (2, TWO), (1, SINGLE)) if size not in without]
    points += [{**point(0, size), "elapsed_ns": 0, "failures": [{}]} for size in without]
    counted = {"exact": exact, "emulated": [{"name": "old"}]} if clock == "counted" else {}
    return {
        "schema": "multigrain-study",
        "version": 1,
        "kind": "family",
        "title": "program",
        "processors": 8,
        "clock": clock,
        "repetitions": runs,
        "series": ["program"],
        "programs": [{"path": "/bin/program", "arguments": ["--size", "test"]}],
        "network": {"given": "mgs"},
        "points": points,
        **counted,
    }


class Named(unittest.TestCase):
    def of(self, what, **more):
        return finder_of(what)(StudySeries(family(**more), "program"))

    def test_figures_are_of_the_machines_they_name(self):
        for what, value in (
            ("breakup_penalty", FOUR / EIGHT - 1),
            ("multigrain_potential", SINGLE / FOUR - 1),
            ("sequential", ALONE * 1e6),
            ("time(2)", TWO * 1e6),
            ("speedup(8)", ALONE / EIGHT),
            ("fastest_cluster_speedup", ALONE / FOUR),
            ("slowest_cluster_speedup", ALONE / SINGLE),
            ("share(4, data_wait)", 0.25),
            ("share( 4,diffs )", 0.1),
            ("rights_cost(4)", 3_000 * 8 / 4),
            ("points[node_size=2].counters.twins", 7),
            ("points[role=family,node_size=1].elapsed_ns", SINGLE * 1e6),
            ("points[0].elapsed_ns", ALONE * 1e6),
            ("processors", 8),
        ):
            with self.subTest(what):
                self.assertAlmostEqual(self.of(what).value, value)

    def test_latencies_are_told_apart(self):
        study = family() | {"kind": "latency"}
        study["points"] = [point(time, 4, latency=latency) for time, latency in ((10, 5_000), (20, 50_000), (50, 500_000))]
        series = StudySeries(study, "program")
        self.assertAlmostEqual(finder_of("increase(4, 500us, 50us)")(series).value, 1.5)
        self.assertAlmostEqual(finder_of("increase(4, 5us, 50us)")(series).value, -0.5)
        self.assertIsNone(finder_of("increase(4, 1ms, 50us)")(series).value)
        self.assertIsNone(finder_of("time(4)")(series).value)  # at which latency?

    def test_a_spread_is_that_of_all_times_in_it(self):
        penalty = self.of("breakup_penalty", clock="virtual", spread=0.2, runs=3)
        self.assertAlmostEqual(penalty.spread, 33 / 9 - 27 / 11)
        self.assertEqual(penalty.runs, 3)
        self.assertAlmostEqual(self.of("share(4, data_wait)", clock="virtual", spread=0.2).spread, 0.05)
        self.assertAlmostEqual(self.of("points[node_size=2].counters.twins", clock="virtual", spread=0.2).spread, 1.4)
        self.assertEqual(self.of("breakup_penalty").spread, 0)

    def test_what_failed_is_not_measured(self):
        for what in ("breakup_penalty", "time(4)", "speedup(4)", "share(4, user)", "rights_cost(4)", "speedup(16)"):
            with self.subTest(what):
                self.assertIsNone(self.of(what, without=(4,)).value)
        self.assertIsNone(self.of("points[node_size=16].elapsed_ns").value)
        self.assertIsNotNone(self.of("fastest_cluster_speedup", without=(4,)).value)

    def test_what_there_is_not_gets_a_sentence(self):
        for what, sentence in (
            ("speedup", "'speedup' must be speedup(C)"),
            ("speedup(4, 5)", "must be speedup(C)"),
            ("speedup(four)", "'four' is no number of processors a node"),
            ("share(4, idle)", "'idle' is no part of the time; those are user, data_wait"),
            ("increase(4, fast, 50us)", "'fast' is no latency"),
            ("sped(4)", "there is no figure 'sped'"),
            ("breakup_penality", "there is no 'breakup_penality' in the study"),
            ("points[", "is neither a path"),
            ("points.", "is neither a path"),
            ("points[node_size].elapsed_ns", "must be an index, or names and their values"),
            ("points[role=family].elapsed_ns", "means 4 items"),
            ("processors[0]", "'processors' is no list"),
            ("title", "'title' is no number"),
        ):
            with self.subTest(what), self.assertRaisesRegex(StudyError, re.escape(sentence)):
                self.of(what)


class Verdicts(Command):
    def row(self, **keys):
        keys = {"name": "a row", "what": "speedup(4)", "theirs": 10, "within": "10%"} | keys
        (self.folder / "table.json").write_text(
            json.dumps({"title": "A table", "source": "a paper", "rows": [{k: v for k, v in keys.items() if v is not None}]})
        )
        return read_table(str(self.folder / "table.json")).rows[0]

    def verdict(self, value, study=None, spread=0.0, runs=3, **keys):
        return decide(self.row(**keys), StudyFigure(value, spread, runs), study or family())

    def test_an_exact_figure_is_within_its_bounds_or_not(self):
        for value, verdict in ((8.99, "differs"), (9.0, "agrees"), (11.0, "agrees"), (11.01, "differs"), (None, "not measured")):
            self.assertEqual(self.verdict(value, runs=1), verdict)
        self.assertEqual([self.verdict(value, within=0.5) for value in (9.4, 9.5, 10.6)], ["differs", "agrees", "differs"])
        bounds = {"within": None, "low": 9, "high": 20}
        self.assertEqual([self.verdict(value, **bounds) for value in (8.9, 15, 21)], ["differs", "agrees", "differs"])
        above = {"within": None, "theirs": None, "says": "large", "low": 9}
        self.assertEqual([self.verdict(value, **above) for value in (8.9, 1e9)], ["differs", "agrees"])
        below = {"within": None, "theirs": None, "says": "negative", "high": 0}
        self.assertEqual([self.verdict(value, **below) for value in (-0.1, 0.1)], ["agrees", "differs"])
        self.assertEqual([self.verdict(value, theirs=-10) for value in (-10.9, -11.1)], ["agrees", "differs"])

    def test_units_are_those_of_the_paper(self):
        self.assertEqual(self.verdict(0.105, unit="%"), "agrees")
        self.assertEqual(self.verdict(10_500, unit="us"), "agrees")
        self.assertEqual(self.verdict(525, unit={"name": "cycles", "is": 50}), "agrees")
        self.assertEqual(self.verdict(10.5, unit={"name": "cycles", "is": 50}), "differs")

    def test_a_spread_that_could_decide_otherwise_leaves_it_open(self):
        virtual = family(clock="virtual", runs=3)
        # 10.5 is 0.5 from the nearer bound.
        self.assertEqual(self.verdict(10.5, virtual, spread=0.4), "agrees")
        self.assertEqual(self.verdict(10.5, virtual, spread=2.1), "not decided (spread 20 %)")
        self.assertEqual(self.verdict(20.0, virtual, spread=8.0), "differs")
        self.assertEqual(self.verdict(20.0, virtual, spread=10.0), "not decided (spread 50 %)")
        self.assertEqual(self.verdict(10.5, virtual, spread=0.0, runs=2), "not decided (runs of each: 2)")
        self.assertEqual(self.verdict(10.5, virtual, spread=None), "not decided (spread not known)")
        self.assertEqual(self.verdict(10.5, family(exact=False)), "not decided (not exact)")

    def test_seeds_of_the_counted_clock_have_a_spread(self):
        seeds = family(runs=3) | {"seeds": 3}
        self.assertEqual(self.verdict(10.5, seeds, spread=0.4), "agrees")
        self.assertEqual(self.verdict(10.5, seeds, spread=2.1), "not decided (spread 20 %)")
        self.assertEqual(self.verdict(10.5, seeds, runs=2), "not decided (runs of each: 2)")
        self.assertEqual(self.verdict(10.5, family(exact=False) | {"seeds": 3}), "not decided (not exact)")

    def test_a_row_is_compared_with_the_study_that_it_is_about(self):
        studies = {"one.json": family(), "two.json": family() | {"processors": 16}}
        with self.assertRaisesRegex(StudyError, "row 1: both one.json and two.json are studies that it could be about"):
            compare(self.row(), "row 1", studies)
        for of, ours in (
            ({"processors": 8}, ALONE / FOUR),
            ({"processors": 32}, None),
            ({"processors": 8, "program": "program", "machine": "old", "network": "mgs", "kind": "family", "series": "program"}, ALONE / FOUR),
            ({"processors": 8, "arguments": ["--size", "test"]}, ALONE / FOUR),
            ({"processors": 8, "arguments": ["--size", "paper"]}, None),
            ({"processors": 8, "machine": "new"}, None),
            ({"processors": 8, "program": "prog"}, None),
        ):
            with self.subTest(of):
                found = compare(self.row(of=of), "row 1", studies)
                self.assertEqual(found.ours, ours)
                self.assertEqual(found.verdict, "not measured" if ours is None else "differs")

    def test_the_command_prints_each_row_and_counts_them(self):
        self.study("--clock", "counted", "--machine", "old", program=(TIMES,))
        study = self.folder / ".mgstudy/last-study.json"
        rows = [
            {"name": "penalty", "what": "breakup_penalty", "theirs": 199, "unit": "%", "within": 3},
            {"name": "time", "what": "time(4)", "theirs": 25, "unit": "ms", "within": "10%"},
            {"name": "wide", "what": "speedup(16)", "theirs": 3, "within": "10%"},
        ]
        table = self.folder / "table.json"

        def against(*more):
            table.write_text(json.dumps({"title": "A | table", "source": "a paper", "bounds": "as a test has them", "rows": rows}))
            return self.mgstudy("against", "table.json", str(study), *more)

        status, out, err = against()
        self.assertEqual((status, err), (1, ""))
        self.assertIn("8 processors, machine old, the machine's network (latency=50us), counted clock, exact: every run gives", out)
        self.assertRegex(out, r"penalty +199% +200% +\+1 points +±3 points +agrees")
        self.assertRegex(out, r"time +25 ms +30 ms +\+20\.0% +±10% +differs")
        self.assertRegex(out, r"wide +3 +– +– +±10% +not measured")
        self.assertIn("Of 3 rows 1 agrees, 1 differs, 1 is not measured.", out)
        self.assertIn("Bounds: as a test has them", out)
        status, out, err = against("--markdown")
        self.assertEqual((status, err), (1, ""))
        self.assertIn("| penalty | 199% | 200% | +1 points | ±3 points | agrees |\n", out)
        del rows[1:]
        self.assertEqual(against()[0], 0)
        rows[0]["theirs"] = 100
        self.assertEqual(against()[0], 1)

    def test_bad_input_is_named_by_file_row_and_key(self):
        (self.folder / "study.json").write_text(json.dumps(family()))
        good = {"name": "n", "what": "speedup(4)", "theirs": 1, "within": 1}

        def table(rows=None, **keys):
            return {"title": "t", "source": "s", "rows": [good] if rows is None else rows} | keys

        def row(without=(), **keys):
            return table([good, {k: v for k, v in (good | keys).items() if k not in without}])

        for contents, sentence in (
            ("[", "table.json is no JSON"),
            ([1], "table.json: it must be an object"),
            ({"title": "t", "source": "s"}, "table.json: key 'rows' is missing"),
            (table(rows=[]), "table.json: key 'rows': it must be a list of at least one row"),
            (table(title=3), "table.json: key 'title': it must be a text"),
            (table(row=[]), "table.json: there is no key 'row'; keys: title"),
            (table(rows=[good, 7]), "table.json: row 2: it must be an object"),
            (row(["what"]), "table.json: row 2 ('n'): key 'what' is missing"),
            (row(what="speedup(x)"), "table.json: row 2 ('n'): key 'what': 'x' is no number of processors a node"),
            (row(what="speed"), "table.json: row 2 ('n'): key 'what': there is no 'speed' in the study"),
            (row(theirs="1"), "table.json: row 2 ('n'): key 'theirs': it must be a number"),
            (row(theirs=True), "table.json: row 2 ('n'): key 'theirs': it must be a number"),
            (row(["theirs"], low=1), "key 'theirs' is missing, and so is 'says'"),
            (row(["within"]), "table.json: row 2 ('n'): it must have either the key 'within', or 'low' or 'high' or both"),
            (row(low=1), "it must have either the key 'within', or 'low' or 'high' or both"),
            (row(["within"], low=2, high=1), "table.json: row 2 ('n'): 'low' (2) is above 'high' (1)"),
            (row(within="ten"), 'table.json: row 2 (\'n\'): key \'within\': "ten" must be a part such as "10%"'),
            (row(within=-1), "key 'within': -1 must be"),
            (row(theirs=0, within="10%"), "key 'within': a part of 0 is 0"),
            (row(within={}), "key 'within': it must be a number"),
            (row(unit="miles"), "table.json: row 2 ('n'): key 'unit': 'miles' is no unit"),
            (row(unit={"name": "cycles", "is": 0}), "key 'unit': key 'is': it must be above 0"),
            (row(of={"processors": "8"}), "table.json: row 2 ('n'): key 'of': key 'processors': it must be a whole number"),
            (row(of={"size": 1}), "key 'of': there is no key 'size'"),
            (row(thiers=1), "table.json: row 2 ('n'): there is no key 'thiers'"),
        ):
            with self.subTest(sentence):
                (self.folder / "table.json").write_text(contents if isinstance(contents, str) else json.dumps(contents))
                status, out, err = self.mgstudy("against", "table.json", "study.json")
                self.assertEqual((status, out), (2, ""), err)
                self.assertEqual(err[:9], "mgstudy: ")
                self.assertEqual(len(err.splitlines()), 1)
                self.assertIn(sentence, err)
        (self.folder / "table.json").write_text(json.dumps(table()))
        (self.folder / "half.json").write_text(json.dumps({"schema": "multigrain-study", "version": 1}))
        for arguments, sentence in (
            (["none.json", "study.json"], "cannot read none.json"),
            (["table.json", "none.json"], "cannot read none.json"),
            (["table.json", "table.json"], "table.json is not what mgstudy --json writes"),
            (["table.json", "half.json"], "half.json"),
            (["table.json"], "STUDY.json"),
        ):
            with self.subTest(arguments):
                status, out, err = self.mgstudy("against", *arguments)
                self.assertEqual((status, out), (2, ""))
                self.assertIn(sentence, err.splitlines()[-1])


class MoreThan(Command):
    """Rows about by which part a figure of one study is more than the same figure of another."""

    def of(self, folder, options, **more):
        study = family(**more) | {"options": ["--clock counted", *options]}
        study["programs"] = [{"path": f"/bin/{folder}/program", "arguments": []}]
        return study

    def table(self, **keys):
        row = {
            "name": "n",
            "what": "sequential",
            "theirs": 20,
            "within": "20%",
            "unit": "%",
            "more_than": {"folder": "plain"},
        } | keys
        path = self.folder / "table.json"
        path.write_text(json.dumps({"title": "t", "source": "s", "of": {"folder": "checked"}, "rows": [row]}))
        return read_table(str(path)).rows[0]

    def longer(self, study, factor):
        for point in study["points"]:
            for name in ("elapsed_ns", "low_ns", "high_ns"):
                point[name] = int(point[name] * factor)
        return study

    def compare(self, row, *studies):
        found = compare(row, "here", {str(number): study for number, study in enumerate(studies)})
        return None if found.ours is None else round(found.ours, 6), found.verdict

    def test_it_is_the_quotient_less_one(self):
        plain, checked = self.of("plain", []), self.longer(self.of("checked", []), 1.23)
        for studies in ((plain, checked), (checked, plain)):
            self.assertEqual(self.compare(self.table(), *studies), (23, "agrees"))
        self.assertEqual(self.compare(self.table(theirs=30), plain, checked), (23, "differs"))
        self.assertEqual(
            self.compare(self.table(what="time(4)", theirs=23, within=0.1), plain, checked), (23, "agrees")
        )

    def test_both_studies_must_be_there(self):
        for given in ("plain", "checked"):
            self.assertEqual(self.compare(self.table(), self.of(given, [])), (None, "not measured"))
        row = self.table(what="time(4)")
        self.assertEqual(
            self.compare(row, self.of("plain", [], without=(4,)), self.of("checked", [])), (None, "not measured")
        )

    def test_options_tell_studies_apart(self):
        row = self.table(what="time(1)", of={"options": ["model=sc"]}, more_than={"options": ["--model=rc"]})
        strict, relaxed = self.longer(self.of("checked", ["model=sc"]), 1.2), self.of("checked", ["model=rc"])
        self.assertEqual(self.compare(row, relaxed, strict), (20, "agrees"))
        self.assertEqual(self.compare(row, relaxed, self.of("checked", [])), (None, "not measured"))
        with self.assertRaisesRegex(StudyError, "both 0 and 2 are studies that it could be about"):
            self.compare(row, relaxed, strict, relaxed)

    def test_what_is_not_exact_or_spreads_in_one_of_them_counts(self):
        row, plain = self.table(), self.of("plain", [])
        checked = self.longer(self.of("checked", []), 1.2)
        self.assertEqual(self.compare(row, plain, checked | {"exact": False})[1], "not decided (not exact)")
        self.assertEqual(self.compare(row, plain | {"exact": False}, checked)[1], "not decided (not exact)")
        # 20 % is 4 points from the nearer bound; the quotient of 1.2 spreads by 1 %, or by 10 %.
        for spread, verdict in ((0.01, "agrees"), (0.1, "not decided (spread 60 %)")):
            noisy = self.longer(self.of("checked", [], clock="virtual", spread=spread, runs=3), 1.2)
            self.assertEqual(self.compare(row, plain, noisy), (20, verdict))
        self.assertIn(
            "not decided", self.compare(row, self.of("plain", [], clock="virtual", runs=3, spread=0.1), checked)[1]
        )

    def test_bad_input_is_named(self):
        for keys, sentence in (
            ({"more_than": {"folder": "checked"}}, "key 'more_than': it must say in what that study is another one"),
            ({"more_than": {}}, "key 'more_than': it must say in what"),
            ({"more_than": {"size": 3}}, "key 'more_than': there is no key 'size'"),
            ({"more_than": {"options": "model=rc"}}, "key 'more_than': key 'options': it must be a list of texts"),
            ({"of": {"options": [3]}}, "key 'of': key 'options': it must be a list of texts"),
        ):
            with self.subTest(sentence), self.assertRaisesRegex(StudyError, re.escape(sentence)):
                self.table(**keys)


class Papers(unittest.TestCase):
    """The tables that there are: what was typed in twice must be the same, and bounds must be what they are said to be."""

    def rows(self, name):
        return {row["name"]: row for row in json.loads((TABLES / f"{name}.json").read_text())["rows"]}

    def test_can_be_read(self):
        names = sorted(path.stem for path in TABLES.glob("*.json"))
        self.assertIn("mgs-table3", names)
        for name in names:
            with self.subTest(name):
                table = read_table(str(TABLES / f"{name}.json"))
                self.assertTrue(table.bounds)
                self.assertEqual(len({row.name for row in table.rows}), len(table.rows))

    def test_table_3_fits_together_and_its_bounds_follow_from_it(self):
        with_memory, without = self.rows("mgs-table3"), self.rows("mgs-table3-hardware")
        programs = [name.removesuffix(", Sp2") for name in with_memory if name.endswith("Sp2")]
        self.assertEqual(len(programs), 10)
        speedups, parallel = [], []
        for name in programs:
            alone, together, sp2 = (with_memory[f"{name}, {column}"]["theirs"] for column in ("SVM-Seq", "SVM-Par", "Sp2"))
            self.assertAlmostEqual(alone / together, sp2, delta=0.051)
            if f"{name}, Seq" in without:
                plain, sp1 = (without[f"{name}, {column}"]["theirs"] for column in ("Seq", "Sp1"))
                speedups.append(abs(sp2 / sp1 - 1))
                parallel.append(abs((plain / sp1 + (alone - plain) / 32) / together - 1))
        self.assertEqual(len(speedups), 8)
        for rows in (with_memory, without):
            for name, row in rows.items():
                measured = speedups if "Sp" in name.split(", ")[1] else parallel
                self.assertEqual(row["within"], f"{100 * statistics.median(measured):.0f}%", name)

    def test_speedups_of_genima_are_the_same_in_both_tables(self):
        wide = self.rows("genima-table5")
        for name, row in self.rows("genima-table2").items():
            if not name.startswith("ssort"):  # which only one of them has
                self.assertEqual(wide[f"{name}, C = 4"]["theirs"], row["theirs"], name)

    def test_shares_of_genima_differ_between_tables_by_what_the_bounds_are(self):
        narrow, wide = self.rows("genima-table4"), self.rows("genima-table6")
        differing = {}
        for name, row in wide.items():
            program, part, size = name.split(", ")
            if size == "C = 4":
                other = narrow[f"{program}, {part}, Origin"]["theirs"]
                if other != row["theirs"]:
                    differing[program, part] = (other, row["theirs"])
        self.assertEqual(differing, {("volrend", "data"): (2.6, 2.8)})
        part = (2.8 - 2.6) / 2.7
        for name in ("genima-table3", "genima-table4", "genima-table6"):
            for row in self.rows(name).values():
                self.assertEqual(row["within"], f"{100 * part:.1f}%" if part * row["theirs"] > 0.2 else 0.2)

    def test_costs_of_genima_are_given_twice(self):
        rows = self.rows("genima-table7")
        mean = statistics.mean(row["theirs"] for name, row in rows.items() if name.endswith("C = 4"))
        self.assertAlmostEqual(150 / mean - 1, -0.25, places=2)

    def test_dszooms_overheads_are_quotients_of_its_times(self):
        plain, checked = self.rows("dszoom-table1"), self.rows("dszoom-table2")
        for name, row in plain.items():
            times, more = checked[f"{name}, with checks"], checked[f"{name}, checks add"]
            if name != "Raytrace":  # whose time with checks is a misprint
                self.assertAlmostEqual(100 * (times["theirs"] / row["theirs"] - 1), more["theirs"], delta=0.8)
            for each in (row, times, more):
                self.assertEqual(each["within"], f"{100 * TOLERANCE:.0f}%")

    def test_shastas_overheads_average_to_what_the_text_says(self):
        rows = self.rows("shasta-table3")
        of = {
            name: row["theirs"]
            for name, row in rows.items()
            if name.endswith(", checks add") and not name.startswith("Oracle")
        }
        self.assertEqual(len(of), 9)
        self.assertAlmostEqual(statistics.mean(of.values()), 21.7, delta=0.2)  # section 6.3
        for name, row in rows.items():
            self.assertEqual(row["within"], f"{100 * TOLERANCE:.0f}%")
            if "each access" in name:
                self.assertEqual(
                    row["theirs"], rows[name.replace("a check at each access adds", "checks add")]["theirs"]
                )

    def test_latencies_lie_on_lines_as_well_as_the_bounds_say(self):
        rows = self.rows("mgs-latency")
        misses = [
            abs(rows[f"{program}, C = {size}, 1ms"]["theirs"] * 450 / 950 / rows[f"{program}, C = {size}, 500us"]["theirs"] - 1)
            for program in ("water", "water-kernel, tiled")
            for size in (1, 4, 16)
        ]
        for name, row in rows.items():
            self.assertEqual(row["within"], 2.5 if name.endswith("100us") else f"{100 * statistics.median(misses):.0f}%")

    def test_a_study_of_the_machine_is_compared(self):
        study = family() | {"processors": 32, "emulated": [{"name": "alewife"}]}
        study["programs"] = [{"path": "workloads/water", "arguments": []}]
        study["points"] = [point(time, size) for size, time in ((1, 340), (16, 189), (32, 73))] + [point(1960, 1, role="sequential")]
        table = read_table(str(TABLES / "mgs-figures.json"))
        verdicts = {row.name: compare(row, row.name, {"water.json": study}).verdict for row in table.rows}
        self.assertEqual(verdicts["water, breakup penalty"], "agrees")  # 158.9 %
        self.assertEqual(verdicts["water, breakup penalty in the range"], "differs")
        self.assertEqual(verdicts["water, multigrain potential"], "agrees")  # 79.9 %
        self.assertEqual(verdicts["jacobi, breakup penalty"], "not measured")


if __name__ == "__main__":
    unittest.main()
