"""mgstudy under the counted clock: one exact run of each machine, several at a time; with a program in mgrun's place."""

import json
import os
import signal
import unittest
from pathlib import Path
from unittest import mock

from multigrain.study import runs
from multigrain.study.machines import emulated_machines
from multigrain.study.runs import Cache, Run
from study_test import FAKE, MEDIUM, Command, Folder

COUNTED = ("--clock", "counted")
ORDER = ["1x1", "1x8", "2x4", "4x2", "8x1"]


class Machines(Folder):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.dict(os.environ, {"FAKE_MACHINES": str(self.folder)}))

    def identity(self, given):
        return emulated_machines([given], FAKE)[given].identity()

    def test_a_name_is_what_mgrun_lists(self):
        machine = emulated_machines(["old"], FAKE)["old"]
        self.assertEqual(
            (machine.name, machine.what, machine.source, machine.network),
            ("old", "a machine of a test, of long ago", "a paper, section 5.1", "latency=50us"),
        )
        self.assertEqual(machine.identity(), {"name": "old"})  # its description is not found

    def test_a_name_with_another_description_is_another_machine(self):
        (self.folder / "old.json").write_text('{"name": "old", "figure": 1}')
        first = self.identity("old")
        (self.folder / "old.json").write_text('{"name": "old", "figure": 2}')
        self.assertNotEqual(self.identity("old"), first)

    def test_a_file_is_what_is_in_it(self):
        mine, other = self.folder / "mine.json", self.folder / "other.json"
        mine.write_text('{"name": "mine", "what": "one of my own", "source": "me"}')
        other.write_text(mine.read_text())
        self.assertEqual(self.identity(str(mine)), self.identity(str(other)))
        machine = emulated_machines([str(mine)], FAKE)[str(mine)]
        self.assertEqual((machine.name, machine.what, machine.source, machine.network), ("mine", "one of my own", "me", ""))
        other.write_text('{"name": "mine", "what": "another"}')
        self.assertNotEqual(self.identity(str(mine)), self.identity(str(other)))

    def test_here_is_what_was_measured_last(self):
        with mock.patch.dict(os.environ, {"XDG_DATA_HOME": str(self.folder)}):
            self.assertEqual(self.identity("here"), {"name": "here"})  # that nothing was measured, mgrun says
            own = self.folder / "multigrain/here.json"
            own.parent.mkdir()
            own.write_text('{"name": "here", "what": "this one"}')
            first = self.identity("here")
            self.assertIn("sha256", first)
            self.assertEqual(emulated_machines(["here"], FAKE)["here"].what, "this one")
            own.write_text('{"name": "here", "what": "this one, again"}')
            self.assertNotEqual(self.identity("here"), first)

    def test_one_that_mgrun_does_not_list_is_left_to_it(self):
        self.assertEqual(self.identity("nonsense"), {"name": "nonsense"})


class CountedKeys(Folder):
    def key(self, *options, identities=None):
        run = Run(str(self.program), (), 2, 4, options)
        cache = Cache(self.folder, machines=identities or {})
        return cache.path(cache.dependencies(run, FAKE, (), {}), 0)

    def test_the_host_does_not_count(self):
        def on_other_hosts(*options):
            here = self.key(*options)
            with mock.patch.object(runs, "processor_name", return_value="another"):
                other = self.key(*options)
            with mock.patch.object(os, "sched_getaffinity", return_value=set(range(1000))):
                wider = self.key(*options)
            return len({here, other, wider})

        self.assertEqual(on_other_hosts(*COUNTED, "--machine", "old"), 1)
        self.assertEqual(on_other_hosts("--clock", "virtual"), 3)
        self.assertEqual(on_other_hosts(), 3)

    def test_the_machine_does_and_not_where_its_file_is(self):
        def of(machine, identity):
            return self.key(*COUNTED, "--machine", machine, "--net", "mgs", identities={machine: identity})

        self.assertEqual(of("a.json", {"sha256": "1"}), of("/b/c.json", {"sha256": "1"}))
        keys = {of("a.json", {"sha256": "1"}), of("a.json", {"sha256": "2"}), of("old", {"name": "old"}), of("new", {"name": "new"})}
        self.assertEqual(len(keys), 4)
        self.assertNotEqual(self.key(*COUNTED, "--machine", "old"), self.key(*COUNTED, "--machine", "old", "--net", "mgs"))


class Counted(Command):
    def setUp(self):
        super().setUp()
        self.spans = self.folder / "spans"
        self.environment |= {"FAKE_SPANS": str(self.spans), "FAKE_MACHINES": "/no/folder"}
        self.environment.pop("MULTIGRAIN_MACHINE", None)

    def most_at_a_time(self):
        going = most = 0
        for word in self.spans.read_text().split():
            going += 1 if word == "begin" else -1
            most = max(most, going)
        return most

    def options_of_runs(self):
        return [" ".join(line.split()[2:]) for line in self.log.read_text().splitlines()]

    def test_one_run_of_each_machine_is_exact(self):
        study = self.study(*COUNTED, "--machine", "old", "-j", "1")
        self.assertEqual(self.runs(), ORDER)
        self.assertEqual((study["clock"], study["repetitions"], study["exact"]), ("counted", 1, True))
        self.assertEqual([each["interruptions"] for each in study["points"]], [0] * 5)
        self.assertEqual(
            study["emulated"],
            [{"given": "old", "name": "old", "what": "a machine of a test, of long ago", "source": "a paper, section 5.1", "sha256": None}],
        )
        self.assertEqual((study["network"]["given"], study["network"]["of_machine"]), ("latency=50us", True))
        for options in self.options_of_runs():
            self.assertIn("--clock counted --machine old", options)
            self.assertNotIn("--net", options)
        again = self.study(*COUNTED, "--machine", "old", "-j", "1")
        self.assertEqual(self.runs(), ORDER)  # all are kept
        self.assertEqual(again["points"], study["points"])

    def test_without_a_machine_it_is_todays(self):
        self.assertEqual(self.study(*COUNTED)["emulated"][0]["name"], "today-rdma")
        self.environment["MULTIGRAIN_MACHINE"] = "old"
        self.assertEqual(self.study(*COUNTED)["emulated"][0]["name"], "old")
        self.environment["MULTIGRAIN_MACHINE"] = '{"name": "inline"}'
        emulated = self.study(*COUNTED)["emulated"][0]
        self.assertEqual((emulated["given"], emulated["name"]), ("MULTIGRAIN_MACHINE", "inline"))

    def test_a_network_takes_the_place_of_the_machines(self):
        study = self.study(*COUNTED, "--net", "mgs")
        self.assertEqual((study["network"]["given"], study["network"].get("of_machine")), ("mgs", None))
        self.assertTrue(all("--net mgs" in options for options in self.options_of_runs()))

    def test_latency_is_varied_in_the_machines_network(self):
        study = self.study(*COUNTED, "--latencies", "5us,50us", kind="latency", program=(MEDIUM, "per-us=0.1"))
        self.assertTrue(study["exact"])
        self.assertEqual(sum("--net latency=5us" in each for each in self.options_of_runs()), 0)
        self.assertEqual(sum("--net bandwidth=12.5GB/s,latency=5us" in each for each in self.options_of_runs()), 2)

    def test_machines_can_be_compared(self):
        (self.folder / "mine.json").write_text('{"name": "mine"}')
        study = self.study(*COUNTED, "--vary", "machine=old,./mine.json", kind="compare")
        self.assertEqual(study["series"], ["machine old", "machine ./mine.json"])
        self.assertEqual([each["name"] for each in study["emulated"]], ["old", "mine"])
        self.assertEqual(len(self.runs()), 10)

    def test_tables_and_reports_say_that_it_is_exact(self):
        status, out, err = self.mgstudy(
            "family", "-p", "8", "--mgrun", FAKE, *COUNTED, "--machine", "old", "--", str(self.program), MEDIUM
        )
        self.assertEqual(status, 0, err)
        self.assertIn(
            "8 processors, machine old, the machine's network (latency=50us), counted clock, exact: every run gives these numbers", out
        )
        self.assertNotIn("spread", out)
        self.assertNotIn("median", out)
        page = (self.folder / "mgstudy-family-program.html").read_text()
        self.assertIn("of the emulated machine (counted clock), exact: every run gives these numbers", page)
        self.assertIn("<dt>Emulated machine</dt><dd><code>old</code> (a machine of a test, of long ago)", page)
        self.assertIn("source of its figures: a paper, section 5.1", page)
        self.assertNotIn("<th scope=\"col\" class=right>spread", page)

    def test_a_lost_turn_takes_the_exactness_away(self):
        program = (MEDIUM, "interrupted-at=2")
        study = self.study(*COUNTED, program=program)
        self.assertIs(study["exact"], False)
        self.assertEqual({each["node_size"]: each["interruptions"] for each in study["points"] if each["role"] == "family"},
                         {8: 0, 4: 0, 2: 3, 1: 0})
        status, out, _ = self.mgstudy("report", "-o", "report.html")
        sentence = "not exact: processors lost their turn 3 times (C = 2), and another run may give other numbers"
        self.assertEqual(status, 0)
        self.assertIn(sentence, out)
        self.assertNotIn("every run gives", out)
        self.assertIn(f'<p class="warn">These numbers are {sentence}', (self.folder / "report.html").read_text())
        # The others are kept, and what another run may contradict is measured again.
        count = len(self.runs())
        self.study(*COUNTED, program=program)
        self.assertEqual(self.runs()[count:], ["4x2"])

    def test_seeds_give_a_spread(self):
        study = self.study(*COUNTED, "--machine", "old", "--seeds", "3", "--perturb", "50us", "-j", "1")
        self.assertEqual(self.runs(), 3 * ORDER)
        self.assertEqual((study["seeds"], study["repetitions"], study["exact"]), (3, 3, True))
        options = self.options_of_runs()
        self.assertEqual([each.split("--seed ")[1].split()[0] for each in options], ["1"] * 5 + ["2"] * 5 + ["3"] * 5)
        self.assertTrue(all("--perturb 50us" in each for each in options))
        for point in study["points"]:
            self.assertEqual((point["low_ns"], point["high_ns"]), (point["repetitions_ns"][0], point["repetitions_ns"][2]))
            self.assertEqual(point["elapsed_ns"], point["repetitions_ns"][1])
            self.assertAlmostEqual(point["high_ns"] / point["low_ns"], 1.02)
        self.assertIn("--seed 1", study["points"][0]["command"])
        # All are kept, also for a study of more seeds, and none is taken for the run without a seed.
        self.study(*COUNTED, "--machine", "old", "--seeds", "4", "--perturb", "50us", "-j", "1")
        self.assertEqual(self.runs(), 4 * ORDER)
        self.study(*COUNTED, "--machine", "old", "-j", "1")
        self.assertEqual(self.runs(), 5 * ORDER)

    def test_tables_and_reports_say_how_many_seeds(self):
        status, out, err = self.mgstudy(
            "family", "-p", "8", "--mgrun", FAKE, *COUNTED, "--machine", "old", "--seeds", "3", "--", str(self.program), MEDIUM
        )
        self.assertEqual(status, 0, err)
        self.assertIn("counted clock, median of 3 seeds", out)
        self.assertIn("spread", out)
        self.assertIn("2.0%", out)
        self.assertNotIn("every run gives", out)
        page = (self.folder / "mgstudy-family-program.html").read_text()
        self.assertIn("of the emulated machine (counted clock), median of 3 seeds", page)
        self.assertNotIn("every run gives", page)

    def test_a_lost_turn_of_one_seed_takes_the_exactness_away(self):
        study = self.study(*COUNTED, "--seeds", "2", program=(MEDIUM, "interrupted-at=2"))
        self.assertIs(study["exact"], False)
        self.assertIn(6, [point["interruptions"] for point in study["points"]])

    def test_runs_go_at_the_same_time(self):
        # The first two wait for each other.
        self.study(*COUNTED, "-j", "2", program=(MEDIUM, "meet=2"))
        self.assertEqual(sorted(self.runs()), sorted(ORDER))
        self.assertEqual(self.most_at_a_time(), 2)

    def test_no_more_than_asked_for(self):
        self.study(*COUNTED, "-j", "1", program=(MEDIUM, "text=one"))
        self.assertEqual(self.most_at_a_time(), 1)
        self.spans.unlink()
        self.study(*COUNTED, "-j", "5", program=(MEDIUM, "meet=5"))
        self.assertEqual(self.most_at_a_time(), 5)

    def test_as_many_as_there_are_cores(self):
        cores = len(os.sched_getaffinity(0))
        self.study(*COUNTED, program=(MEDIUM, f"meet={min(cores, 5)}"))
        self.assertEqual(self.most_at_a_time(), min(cores, 5))

    def test_what_is_told_is_in_order(self):
        # One processor, the first of the plan, ends last.
        status, out, err = self.mgstudy(
            "family", "-p", "8", "--mgrun", FAKE, *COUNTED, "-j", "2", "--no-report", "--", str(self.program), MEDIUM, "last-of=4"
        )
        self.assertEqual(status, 0, err)
        self.assertEqual(
            err.splitlines(),
            [
                "mgstudy: [1/5] one processor: 80 ms",
                "mgstudy: [2/5] C = 8: 10 ms",
                "mgstudy: [3/5] C = 4: 30 ms",
                "mgstudy: [4/5] C = 2: 50 ms",
                "mgstudy: [5/5] C = 1: 60 ms",
            ],
        )
        serial = self.study(*COUNTED, "-j", "1", "--fresh")
        parallel = self.study(*COUNTED, "-j", "4", "--fresh")
        self.assertEqual(*([{**each, "real_seconds": 0} for each in study["points"]] for study in (serial, parallel)))

    def test_a_failure_beside_others_is_told_and_the_rest_shown(self):
        study = self.study(*COUNTED, "-j", "3", program=(MEDIUM, "fail-at=2", "meet=3"), status=1)
        self.assertEqual([point["node_size"] for point in study["points"] if point["failures"]], [2])
        self.assertEqual(len(self.runs()), 5)

    def test_one_may_take_too_long_beside_others(self):
        study = self.study(*COUNTED, "-j", "2", "--time-limit", "20", program=(MEDIUM, "hang-at=4"), status=1)
        problems = {point["node_size"]: failure["problem"] for point in study["points"] for failure in point["failures"]}
        self.assertEqual(problems, {4: "it took longer than 20 s"})
        self.assertEqual(self.left_over(), [])

    def test_interrupted_it_ends_all_and_goes_on_from_there(self):
        let_go = self.folder / "go"
        arguments = ("family", "-p", "8", "--mgrun", FAKE, *COUNTED, "-j", "3", "--no-report", "--", str(self.program), MEDIUM,
                     "hang-at=4:2", f"unless-file={let_go}")
        child = self.start(*arguments)
        # Two hang, and the third place has done the others.
        self.assertTrue(self.until(lambda: self.spans.exists() and self.spans.read_text().split().count("end") == 3))
        self.assertTrue(self.until(lambda: len(list((self.folder / ".mgstudy/runs").iterdir())) == 3))
        # It has noted the last result, too, and waits for those that hang.
        stat = Path(f"/proc/{child.pid}/stat")
        self.assertTrue(self.until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S"))
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=900)
        self.assertEqual(child.returncode, 130)
        self.assertIn("mgstudy: interrupted; what is measured is kept, and the same command goes on from there", err)
        self.assertEqual(self.left_over(), [])
        self.assertEqual([path.name for path in (self.folder / ".mgstudy").glob("[!.]*")], ["runs"])
        self.assertEqual(err.count("60 ms"), 1)  # C = 1 has ended, behind those that had not
        let_go.touch()
        count = len(self.runs())
        status, out, err = self.mgstudy(*arguments)
        self.assertEqual(status, 0, err)
        self.assertEqual(sorted(self.runs()[count:]), ["2x4", "4x2"])
        self.assertIn("mgstudy: 3 of 5 runs are in the cache", err)
        self.assertIn("exact: every run gives these numbers", out)

    def test_killed_it_leaves_no_run(self):
        child = self.start("family", "-p", "8", "--mgrun", FAKE, *COUNTED, "-j", "2", "--no-report", "--", str(self.program), MEDIUM,
                           "hang-at=4:2")
        self.assertTrue(self.until(lambda: {"2x4", "4x2"} <= set(self.runs())))
        child.kill()
        child.communicate(timeout=900)
        self.assertTrue(self.until(lambda: not self.left_over()))

    def test_what_does_not_go_with_the_clock_gets_a_sentence(self):
        (self.folder / "bad.json").write_text("[")
        (self.folder / "nameless.json").write_text("{}")
        counted = ["family", "-p", "8", "--mgrun", FAKE, *COUNTED]
        virtual = ["family", "-p", "8", "--mgrun", FAKE]
        compare = ["compare", "-p", "8", "--mgrun", FAKE]
        for arguments, sentence in (
            ([*counted, "--clock-scale", "10"], "--clock-scale does not go with --clock counted: how fast processors are, the machine's prices"),
            ([*compare, *COUNTED, "--vary", "clock-scale=1,2"], "--clock-scale does not go with --clock counted"),
            ([*counted, "--repetitions", "3"], "--repetitions 3 does not go with --clock counted: every run gives the same numbers"),
            ([*counted, "--perturb", "5us"], "--perturb says how late processors start with --seeds: give --seeds, too"),
            ([*virtual, "--seeds", "3"], "--seeds does not go with --clock virtual, whose runs differ anyway"),
            ([*counted, "--seeds", "0"], "'0' is not a whole number above 0"),
            ([*counted, "--machine", "bad"], "mgrun: --machine: there is no machine 'bad'"),
            ([*counted, "--machine", "./none.json"], "--machine: cannot read './none.json': No such file or directory"),
            ([*counted, "--machine", "bad.json"], "--machine: 'bad.json' is no JSON"),
            ([*counted, "--machine", "nameless.json"], "--machine: 'nameless.json' does not describe a machine: it has no name"),
            ([*counted, "-j", "0"], "'0' is not a whole number above 0"),
            ([*virtual, "--machine", "old"], "--machine does not go with --clock virtual"),
            ([*virtual, "--clock", "wall", "--machine", "old"], "--machine does not go with --clock wall"),
            ([*compare, "--vary", "machine=old,today-rdma"], "--machine does not go with --clock virtual"),
            ([*virtual, "-j", "2"], "--jobs 2 does not go with --clock virtual: its times depend on the load"),
            ([*virtual, "--clock", "wall", "-j", "2"], "--jobs 2 does not go with --clock wall"),
        ):
            with self.subTest(arguments):
                status, out, err = self.mgstudy(*arguments, "--", str(self.program), MEDIUM)
                self.assertEqual((status, out), (2, ""))
                self.assertEqual(err[:9], "mgstudy: ")
                self.assertIn(sentence, err.splitlines()[-1])
        (self.folder / "mine.json").write_text('{"name": "mine"}')
        status, _, err = self.mgstudy("latency", "-p", "8", "--mgrun", FAKE, *COUNTED, "--machine", "./mine.json", "--", str(self.program))
        self.assertEqual(status, 2)
        self.assertIn("--net is missing", err)
        self.assertEqual(self.runs(), [])

    def test_one_repetition_and_one_job_go_with_every_clock(self):
        self.assertTrue(self.study(*COUNTED, "-r", "1")["exact"])
        self.assertNotIn("exact", self.study("-r", "1", "-j", "1"))
        self.assertEqual(json.loads((self.folder / ".mgstudy/last-study.json").read_text())["clock"], "virtual")


if __name__ == "__main__":
    unittest.main()
