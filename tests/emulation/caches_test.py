"""Programs that report their accesses to memory, with the caches of the emulated machine: each miss costs what the machine says, and
a run is the same every time; what is refused."""

import copy
import hashlib
import json
import os
import subprocess
import tempfile
import unittest

BIN = os.environ.get("MULTIGRAIN_TEST_BIN", "build/bin")
HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.join(HERE, "../../workloads")
LINES = 64


def compile_program(to, *sources, option="-fmultigrain-count=memory"):
    compiler = "mgcc" if sources[0].endswith(".c") else "mg++"
    standard = "-std=c11" if compiler == "mgcc" else "-std=c++20"
    subprocess.run([f"{BIN}/{compiler}", standard, "-O2", "-fno-multigrain-checks", option, *sources, "-o", to], check=True, timeout=300)


class Folder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.folder = cls.kept.name
        with open(f"{BIN}/../share/multigrain/machines/alewife.json", encoding="utf-8") as file:
            cls.alewife = json.load(file)

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()

    def path(self, name):
        return os.path.join(self.folder, name)

    def machine(self, **caches):
        """A file with Alewife, with other caches."""
        machine = copy.deepcopy(self.alewife)
        machine["caches"].update({key: {"value": value, "unit": "bytes", "source": "this test"} if key == "size" else value
                                  for key, value in caches.items()})
        with open(self.path("machine.json"), "w", encoding="utf-8") as file:
            json.dump(machine, file)
        return self.path("machine.json")

    def mgrun(self, *words):
        return subprocess.run([f"{BIN}/mgrun", "--clock", "counted", *words], capture_output=True, text=True, timeout=600, check=False)


class Accesses(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        compile_program(os.path.join(cls.folder, "accesses"), os.path.join(HERE, "accesses.c"))

    def sections(self, machine, caches):
        run = self.mgrun("--machine", machine, "--caches", caches, self.path("accesses"))
        self.assertEqual(run.returncode, 0, run.stderr)
        return [int(line) for line in run.stdout.split()]

    def test_each_miss_costs_its_price_and_a_hit_nothing(self):
        cycle = 50  # ns
        read, write = 10, 1000  # cycles
        machine = self.machine(local_read=read, local_write=write)
        costs = [with_caches - without
                 for with_caches, without in zip(self.sections(machine, "on"), self.sections(machine, "off"))]
        expected = [
            LINES * read,
            LINES * write,
            LINES * read,  # the second word of a line is there
            LINES * (read + write),
            LINES * write,  # an atomic operation is a write
            LINES * write,
            LINES * read,  # what is private hits
            LINES * read,
            0,
        ]
        self.assertEqual(costs, [cycle * cost for cost in expected])

    def test_a_cache_of_a_line_misses_whenever_another_line_is_used(self):
        machine = self.machine(size=16, local_read=10, local_write=1000)
        on, off = self.sections(machine, "on"), self.sections(machine, "off")
        self.assertEqual(on[2] - off[2], 50 * LINES * 10)  # one line after the other, each twice
        self.assertEqual(on[3] - off[3], 50 * LINES * 1010)
        self.assertEqual(on[7] - off[7], 50 * LINES * 10)

    def test_the_description_travels_to_the_nodes_with_its_caches(self):
        slow, fast = (sum(self.sections(self.machine(local_read=price), "on")) for price in (500, 11))
        self.assertGreater(slow, fast + 100 * LINES * 50)


class Programs(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for program in ("gauss", "jacobi"):
            compile_program(os.path.join(cls.folder, program), os.path.join(SOURCES, f"{program}.cpp"),
                            os.path.join(SOURCES, "command_line.cpp"))

    def profile(self, program, *options):
        path = self.path("profile.json")
        run = self.mgrun("--machine", "alewife", *options, "--stats", f"json:{path}", self.path(program), "--size", "test", "--check")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        with open(path, "rb") as file:
            return file.read()

    def test_a_run_is_the_same_every_time(self):
        for nodes, processors in ((1, 4), (2, 4)):
            shape = ("--nodes", str(nodes), "--procs-per-node", str(processors))
            for program in ("gauss", "jacobi"):
                digests = {hashlib.sha256(self.profile(program, *shape, "--caches", "on")).hexdigest() for _ in range(2)}
                self.assertEqual(len(digests), 1, program)
                slow, fast = (json.loads(self.profile(program, *shape, "--caches", which)) for which in ("on", "off"))
                user = [sum(processor["user_ns"] for node in run["nodes"] for processor in node["processors"]) for run in (slow, fast)]
                self.assertGreater(user[0], user[1])
                self.assertIs(slow["run"]["caches"], True)
                self.assertIs(fast["run"]["caches"], False)


class Refused(Folder):
    def refuse(self, *words, says):
        run = self.mgrun(*words)
        self.assertEqual(run.returncode, 2, run.stdout + run.stderr)
        for word in says:
            self.assertIn(word, run.stderr)

    def test_a_program_that_does_not_report(self):
        counted = f"{BIN}/workloads/counted/jacobi"
        self.refuse("--machine", "alewife", "--caches", "on", counted, "--size", "test",
                    says=["--caches on", "does not report", "-fmultigrain-count=memory"])

    def test_a_part_that_does_not_report_is_named(self):
        with open(self.path("silent.c"), "w", encoding="utf-8") as file:
            file.write("int silent(int a) { return a + 1; }\n")
        subprocess.run([f"{BIN}/mgcc", "-O2", "-fno-multigrain-checks", "-fmultigrain-count", "-c", self.path("silent.c"), "-o",
                        self.path("silent.o")], check=True, timeout=300)
        compile_program(self.path("mixed"), os.path.join(HERE, "accesses.c"), self.path("silent.o"))
        self.refuse("--machine", "alewife", "--caches", "on", self.path("mixed"), says=["silent.c", "-fmultigrain-count=memory"])

    def test_a_machine_without_caches(self):
        self.refuse("--machine", "today-rdma", "--caches", "on", "/bin/true", says=["today-rdma", "no part 'caches'"])

    def test_what_has_no_caches(self):
        self.refuse("--machine", "alewife", "--caches", "on", "--protocol", "hlrc", "/bin/true", says=["--caches on needs the protocol mgs"])
        self.refuse("--machine", "alewife", "--caches", "on", "--mgs", "reads=one-sided", "/bin/true", says=["without one-sided reads"])
        self.refuse("--caches", "perhaps", "/bin/true", says=["'perhaps'"])
        run = subprocess.run([f"{BIN}/mgrun", "--caches", "on", "/bin/true"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn("--clock counted", run.stderr)


if __name__ == "__main__":
    unittest.main()
