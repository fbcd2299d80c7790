"""multigrain.trace: what is read is what was written or recorded, and results are those of mgtrace analyze."""

import json
import os
import tempfile
import unittest

import multigrain.trace as mt
import numpy as np
import pyarrow
from traces import BIN, mgtrace, write_small_trace


class Bindings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="multigrain-bindings-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = f"{cls.folder.name}/small.mgt"
        cls.references, cls.events = write_small_trace(cls.path)
        cls.trace = mt.open(cls.path)

    def analyzed(self, path, *options):
        status, out, err = mgtrace("analyze", path, "--json", "-", *options)
        self.assertEqual((status, err), (0, ""))
        return json.loads(out)

    def test_what_was_written_is_read(self):
        for size in (None, 1, 1000, 1 << 20):
            batches = [(batch.first, batch.references.copy(), batch.events) for batch in self.trace.batches(size)]
            for field in mt.REFERENCE.names:
                np.testing.assert_array_equal(np.concatenate([batch[1][field] for batch in batches]), self.references[field])
            for field in mt.EVENT.names:
                np.testing.assert_array_equal(np.concatenate([batch[2][field] for batch in batches]), self.events[field])
            self.assertEqual([batch[0] for batch in batches],
                             [0, *np.cumsum([len(batch[1]) for batch in batches])[:-1]])
        self.assertEqual(len(self.trace.load().references), len(self.trace))
        trace = self.trace
        self.assertEqual((len(trace), trace.events, trace.processors), (2400, 4, 2))
        self.assertEqual((trace.program, trace.recorder, trace.dilation), ("./counters --rounds 400", "a test", 2.5))
        self.assertEqual(trace.sites[2], mt.Site("/src/counters.c", "look_up", 20))
        self.assertEqual(trace.names[2], "table")
        self.assertEqual(trace.damage, "")

    def test_arrow_streams_have_what_numpy_has(self):
        path = f"{self.folder.name}/arrow.mgt"
        references = np.tile(self.references, 100)
        mt.write(path, references, self.events, processors=2, sites=self.trace.sites, names=self.trace.names)
        trace = mt.open(path)
        for source, dtype, expected in ((trace, mt.REFERENCE, references), (trace.arrow_events(), mt.EVENT, self.events)):
            table = pyarrow.table(source)
            table.validate(full=True)
            self.assertEqual(table.schema.names, list(dtype.names))
            for name in dtype.names:
                column = table[name].to_numpy()
                self.assertEqual(column.dtype, dtype[name])
                np.testing.assert_array_equal(column, expected[name])
        reader = pyarrow.RecordBatchReader.from_stream(trace)
        batches = list(reader)
        self.assertGreater(len(batches), 2)
        self.assertEqual(sum(batch.num_rows for batch in batches), len(trace))
        # A column outlives its batch, the stream and the trace.
        column = batches[0].column(0)
        del reader, batches, trace, table
        np.testing.assert_array_equal(column.to_numpy(), references["address"][: len(column)])
        # A capsule whose contents are never used does no harm, and an empty stream has a schema.
        mt.open(path).__arrow_c_stream__()
        none = f"{self.folder.name}/none.mgt"
        mt.write(none, np.empty(0, mt.REFERENCE), processors=1)
        self.assertEqual((pyarrow.table(mt.open(none)).num_rows, pyarrow.table(mt.open(none)).num_columns), (0, 5))

    def test_an_arrow_stream_of_a_damaged_trace_says_so(self):
        path = f"{self.folder.name}/damaged-arrow.mgt"
        mt.write(path, np.tile(self.references, 1000), processors=2, sites=self.trace.sites)
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) // 2)
            file.write(b"damage!!")
        with self.assertRaisesRegex(OSError, "block [0-9]+ at byte"):
            pyarrow.table(mt.open(path))
        self.assertLess(pyarrow.table(mt.open(path, partial=True)).num_rows, 1000 * len(self.references))

    def test_batches_are_views_unless_a_size_is_given(self):
        def memory(array):
            return array.__array_interface__["data"][0]

        path = f"{self.folder.name}/long.mgt"
        mt.write(path, np.tile(self.references, 10), processors=2, sites=self.trace.sites)
        views = [memory(batch.references) for batch in mt.open(path)]
        self.assertGreater(len(views), 3)
        self.assertEqual(len(set(views)), 1)  # the reader's
        kept = list(mt.open(path).batches(4096))
        self.assertEqual(len({memory(batch.references) for batch in kept}), len(kept))
        np.testing.assert_array_equal(np.concatenate([batch.references["address"] for batch in kept]),
                                      np.tile(self.references["address"], 10))
        last = [batch.references for batch in mt.open(path)][0]  # the reader lives as long as the view
        self.assertIn(int(last["processor"].sum()), range(len(last) + 1))
        with self.assertRaises(ValueError):
            last["address"] = 0

    def test_costs_are_those_of_analyze(self):
        machines = ["numa", "dsm", "cxl3"]
        wanted = self.analyzed(self.path, "--machine", ",".join(machines), "--policy", "all")
        results = mt.optimal(self.trace, machines) + mt.policies(self.trace, machines, mt.policy_names())
        found = {(result.machine["name"], result.policy): result for result in results}
        compared = 0
        for entry in wanted["machines"]:
            for result in entry["results"]:
                own = found.pop((entry["machine"]["name"], result["policy"]))
                self.assertEqual((own.cost, own.mcpr, own.parts), (result["cost"], result["mcpr"], result["parts"]))
                compared += 1
        self.assertEqual(found, {})
        self.assertGreater(compared, 10)

    def test_a_study_is_that_of_analyze(self):
        options = dict(block_sizes=[64, 4096], policies=["competitive"], parameters=["R"], tlbs=["r4000"], false_sharing=True,
                       perturbations=1, hot_blocks=3)
        own = mt.study(self.trace, ["numa"], **options)
        wanted = self.analyzed(self.path, "--machine", "numa", "--block-size", "64,4096", "--policy", "competitive", "--vary", "R",
                               "--tlb", "r4000", "--false-sharing", "--perturb", "1", "--hot-blocks", "3")
        del wanted["command"]
        self.assertEqual(own, wanted)
        self.assertGreater(own["false_sharing"]["attribution"]["moves"]["false"], 700)

    def test_a_study_has_maps_caches_and_contention_like_analyze(self):
        for options, words in (
            (dict(map="block:1x2", caches="4K:2,shared:64K:4", cache_line=32, contention=True),
             ("--map", "block:1x2", "--caches", "4K:2,shared:64K:4", "--cache-line", "32", "--contention")),
            (dict(map="0-1:0.0", variable_blocks=True), ("--map", "0-1:0.0", "--variable-blocks")),
        ):
            with self.subTest(options):
                own = mt.study(self.trace, ["two-socket"], block_sizes=[64, 4096], hot_blocks=3, **options)
                wanted = self.analyzed(self.path, "--machine", "two-socket", "--block-size", "64,4096", "--hot-blocks", "3", *words)
                del wanted["command"]
                self.assertEqual(own, wanted)
        for options, sentence in ((dict(map="0:0"), "says nothing about thread 1"), (dict(caches="1K"), "no level of a cache")):
            with self.assertRaisesRegex(mt.TraceError, sentence):
                mt.study(self.trace, ["two-socket"], **options)

    def test_a_recorded_trace(self):
        path = f"{self.folder.name}/recorded.mgt"
        self.assertEqual(mgtrace("record", "-o", path, f"{BIN}/tests/traced/threads.traced")[0], 7)  # the program's own
        trace = mt.open(path)
        whole = trace.load()
        kinds = set(whole.events["kind"])
        self.assertLessEqual({mt.ALLOCATE, mt.BARRIER, mt.START, mt.END}, kinds)
        block = whole.events[(whole.events["kind"] == mt.ALLOCATE) & (whole.events["value"] == 800)]
        self.assertEqual(len(block), 1)
        start = int(block["address"][0])
        inside = whole.references[(whole.references["address"] >= start) & (whole.references["address"] < start + 800)]
        # The threads write a half each, main reads it all: tests/trace/programs/threads.c.
        writes = inside[inside["access"] == mt.WRITE]
        self.assertEqual((len(writes), len(inside) - len(writes)), (200, 200))
        self.assertEqual(len(set(writes["processor"])), 2)
        wanted = self.analyzed(path, "--machine", "dsm")["machines"][0]["results"][0]
        self.assertEqual(mt.optimal(trace, "dsm")[0].mcpr, wanted["mcpr"])

    # This is the policy of src/placement/policy.h's example, and one whose cost is known.

    def test_a_policy_in_python(self):
        class Always(mt.Policy):
            def on_reference(self, block, reference, time):
                return mt.LOCAL

        class Third(mt.Policy):
            name = "third"

            def on_reference(self, block, reference, time):
                count = self.memory[block.number] = self.memory.get(block.number, 0) + 1
                return mt.LOCAL if count % 3 == 0 else mt.STAY

        third = Third()
        machines = ["numa", mt.machine("numa", block_size=64)]
        always, migrate = [], []
        for result in mt.policies(self.trace, machines, [Always(), "always-migrate"]):
            (migrate if result.policy == "always-migrate" else always).append((result.cost, result.parts))
        self.assertEqual(always, migrate)
        best = mt.optimal(self.trace, machines)
        once = mt.policies(self.trace, machines, [third, third], threads=2)
        self.assertEqual([result.policy for result in once], ["third"] * 4)
        for first, second, optimal in zip(once[::2], once[1::2], best):
            self.assertEqual(first, second)  # what one evaluation remembers is not the next one's
            self.assertGreaterEqual(first.cost, optimal.cost)
        self.assertEqual(third.memory, {})

    def test_what_a_policy_sees(self):
        seen = []

        class Curious(mt.Policy):
            wants_local = True

            def first(self, block, reference, time):
                return 1  # wherever it is referred to

            def on_reference(self, block, reference, time):
                seen.append((time, reference.address, reference.processor, reference.write, reference.site, reference.size,
                             block.number, block.holders, block.has_copy(0), block.in_global, block.processors))
                return mt.STAY

        result = mt.policies(self.trace, "numa", [Curious()])[0]
        self.assertEqual(seen[0], (1, 0x10000, 0, True, 1, 8, 16, [1], False, False, 2))
        self.assertEqual(len(seen), 2400 - result.blocks)
        self.assertEqual(result.parts, {"local": 1200 + 2400, "remote": 1200, "global": 0, "remote_moves": 0, "global_moves": 0})

    def test_a_policy_that_fails(self):
        class Breaks(mt.Policy):
            def on_reference(self, block, reference, time):
                return {}["nothing"]

        class Returns(mt.Policy):
            def __init__(self, value):
                super().__init__()
                self.value = value

            def on_reference(self, block, reference, time):
                return self.value

        with self.assertRaises(KeyError):
            mt.policies(self.trace, "numa", [Breaks()])
        for value, sentence in ((2, "a processor below 2"), (-4, "a processor below 2"), (None, "no decision"), ("x", "no decision")):
            with self.assertRaisesRegex(mt.TraceError, sentence):
                mt.policies(self.trace, "numa", [Returns(value)])
        with self.assertRaises(NotImplementedError):
            mt.policies(self.trace, "numa", [mt.Policy()])

    def test_bad_input(self):
        with self.assertRaisesRegex(mt.TraceError, "No such file"):
            mt.open(f"{self.folder.name}/nothing")
        with self.assertRaisesRegex(mt.TraceError, "there is no machine 'nemo'"):
            mt.optimal(self.trace, "nemo")
        with self.assertRaisesRegex(mt.TraceError, "power of two"):
            mt.machine("numa", block_size=100)
        with self.assertRaisesRegex(mt.TraceError, "exists"):
            mt.write(self.path, self.references, processors=2)
        for name, references, events, sentence in (
            ("processor", np.array([(8, 0, 5, 0, 8)], mt.REFERENCE), None, "processor"),
            ("access", np.array([(8, 0, 0, 7, 8)], mt.REFERENCE), None, "access"),
            ("dtype", np.zeros(3), None, "dtype REFERENCE"),
            ("kind", self.references, np.array([(0, 0, 0, 0, 0, 0, 99)], mt.EVENT), "kind"),
            ("position", self.references[:2], np.array([(3, 0, 0, 0, 0, 0, 0)], mt.EVENT), "position 3"),
        ):
            path = f"{self.folder.name}/{name}.mgt"
            with self.subTest(name), self.assertRaisesRegex(mt.TraceError, sentence):
                mt.write(path, references, events, processors=2)
            self.assertFalse(os.path.exists(path))

    def test_what_precedes_damage(self):
        path = f"{self.folder.name}/cut.mgt"
        with open(self.path, "rb") as whole, open(path, "wb") as cut:
            cut.write(whole.read()[:-20])
        trace = mt.open(path, partial=True)
        self.assertNotEqual(trace.damage, "")
        self.assertEqual(sum(len(batch.references) for batch in trace), 2400)


if __name__ == "__main__":
    unittest.main()
