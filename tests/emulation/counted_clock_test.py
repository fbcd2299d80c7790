"""Whole programs in counted time: runs are the same bit for bit, whatever the host does; what has a price is charged; what is
refused."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

BIN = os.environ.get("MULTIGRAIN_TEST_BIN", "build/bin")
SPIN = "while True: pass"


@contextmanager
def priced_machine(name, price, *costs):
    """The file of a machine on which each of these costs is so many nanoseconds."""
    with open(f"{BIN}/../share/multigrain/machines/{name}.json") as file:
        machine = json.load(file)
    for cost in costs:
        machine["costs"][cost] = {"value": price, "unit": "ns", "source": "this test"}
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "machine.json")
        with open(path, "w") as file:
            json.dump(machine, file)
        yield path


def mgrun(options, program, *arguments, before=(), directory="counted"):
    command = [
        *before,
        f"{BIN}/mgrun",
        *options,
        f"{BIN}/workloads/{directory}/{program}",
        "--size",
        "test",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def statistics(
    nodes,
    processors,
    program,
    *arguments,
    protocol="hlrc",
    machine="today-rdma",
    options=(),
    before=(),
    directory="counted",
):
    """The bytes of the statistics of a run in counted time, whose result is right."""
    with tempfile.TemporaryDirectory() as results:
        path = os.path.join(results, "profile.json")
        run = mgrun(
            [
                "--nodes",
                str(nodes),
                "--procs-per-node",
                str(processors),
                "--clock",
                "counted",
                "--machine",
                machine,
                "--protocol",
                protocol,
                "--stats",
                f"json:{path}",
                *options,
            ],
            program,
            "--check",
            *arguments,
            before=before,
            directory=directory,
        )
        if run.returncode != 0 or run.stderr:
            raise AssertionError(f"{program} ended with status {run.returncode}:\n{run.stdout}{run.stderr}")
        with open(path, "rb") as file:
            return file.read()


def profile(*arguments, **options):
    return json.loads(statistics(*arguments, **options))


def processors_of(run):
    return [processor for node in run["nodes"] for processor in node["processors"]]


def total(run, name):
    return sum(processor[name] for processor in processors_of(run))


class Busy:
    """Keeps all cores busy."""

    def __enter__(self):
        self.processes = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(2 * (os.cpu_count() or 1))]

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


class Repeats(unittest.TestCase):
    """The same options give the same bytes: alone, beside others, on a core of one's own or on any."""

    def same(self, program, protocol, nodes, processors, *arguments):
        def digest(**options):
            return hashlib.sha256(
                statistics(nodes, processors, program, *arguments, protocol=protocol, **options)
            ).hexdigest()

        cores = sorted(os.sched_getaffinity(0))
        digests = [digest()]
        with Busy():
            digests.append(digest())
            digests.append(digest(before=("nice", "-n", "5")))
        for core in (cores[0], cores[-1]):
            digests.append(digest(before=("taskset", "-c", str(core))))
        with ThreadPoolExecutor(3) as pool:
            digests += pool.map(lambda _: digest(), range(3))
        self.assertEqual(set(digests), {digests[0]}, f"{program} under {protocol}")

    def test_programs_of_barriers(self):
        self.same("jacobi", "mgs", 4, 2)
        self.same("fft", "hlrc", 4, 2)

    def test_programs_of_locks(self):
        self.same("water", "mgs", 4, 4)
        self.same("water", "hlrc", 4, 4)
        self.same("barnes", "hlrc", 4, 2)

    def test_programs_that_share_out_work_as_they_run(self):
        self.same("tsp", "mgs", 2, 4)
        self.same("tsp", "hlrc", 8, 1)
        self.same("volrend", "hlrc", 4, 2)

    def test_programs_that_wait_for_flags(self):
        self.same("radix", "mgs", 2, 2)
        self.same("unstructured", "hlrc", 4, 2)

    def test_one_processor(self):
        self.same("lu", "hlrc", 1, 1)


class Host(unittest.TestCase):
    """What the host calls its processes is no part of a run."""

    def test_process_numbers_may_have_any_number_of_digits(self):
        last = "/proc/sys/kernel/ns_last_pid"
        if not os.access(last, os.W_OK):
            self.skipTest("this takes the right to choose process numbers")
        for program, shape in (("tsp", (1, 1)), ("water", (2, 1)), ("barnes", (4, 2))):
            digests = []
            for number in (500, 5000, 15000):
                with open(last, "w") as file:
                    file.write(str(number))
                digests.append(hashlib.sha256(statistics(*shape, program)).hexdigest())
            self.assertEqual(set(digests), {digests[0]}, program)


class Seeds(unittest.TestCase):
    """Processors start late by what a seed says: other runs, each of which is the same every time."""

    def elapsed(self, program, *options, shape=(4, 2), protocol="mgs"):
        return profile(*shape, program, protocol=protocol, options=options)["run"]["elapsed_ns"]

    def test_a_seeds_run_is_the_same_every_time_and_seeds_differ(self):
        digests = [hashlib.sha256(statistics(4, 2, "water", protocol="mgs", options=("--seed", seed))).hexdigest()
                   for seed in ("1", "1", "2", "3")]
        self.assertEqual(digests[0], digests[1])
        self.assertEqual(len(set(digests)), 3)
        times = {self.elapsed("water", "--seed", str(seed)) for seed in range(4)}
        self.assertGreater(len(times), 1)

    def test_the_statistics_name_it(self):
        run = profile(2, 1, "jacobi", options=("--seed", "7", "--skew", "30us"))["run"]
        self.assertEqual((run["seed"], run["perturb_ns"]), (7, 30_000))
        self.assertEqual(profile(2, 1, "jacobi", options=("--seed", "7", "--perturb", "5us"))["run"]["perturb_ns"], 5_000)
        self.assertNotIn("seed", profile(2, 1, "jacobi")["run"])

    def test_a_phase_is_longer_by_no_more_than_the_latest_start(self):
        # Jacobi's processors wait for each other in barriers alone.
        for protocol in ("mgs", "hlrc"):
            exact = self.elapsed("jacobi", protocol=protocol)
            for seed in range(1, 5):
                longer = self.elapsed("jacobi", "--seed", str(seed), "--perturb", "1ms", protocol=protocol) - exact
                self.assertLess(longer, 1.1e6, seed)
                self.assertGreater(longer, 0.3e6, seed)

    def test_one_processor_alone_and_no_time_at_all_change_nothing(self):
        for shape, options in (((1, 1), ("--seed", "3", "--perturb", "1ms")), ((4, 2), ("--seed", "3", "--perturb", "0us"))):
            self.assertEqual(self.elapsed("jacobi", *options, shape=shape), self.elapsed("jacobi", shape=shape))

    def test_what_makes_no_sense_is_refused(self):
        for options, word in ((["--seed", "1"], "--clock counted"), (["--clock", "virtual", "--seed", "1"], "--clock counted"),
                              (["--clock", "counted", "--perturb", "1us"], "give a seed"),
                              (["--clock", "counted", "--seed", "one"], "whole number"),
                              (["--clock", "counted", "--seed", "1", "--perturb", "2000ms"], "at most 1 s")):
            run = mgrun(options, "jacobi")
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(word, run.stderr)


class LineProtocols(unittest.TestCase):
    """The same of sc, and of the protocols of lines, with their checks: results are right, and runs the same."""

    def same(self, program, protocol, *options, directory="counted-fine", machine="today-rdma"):
        for nodes, processors in ((2, 1), (4, 1), (2, 2)):

            def digest(shape=(nodes, processors)):
                return hashlib.sha256(
                    statistics(
                        *shape, program, protocol=protocol, options=options, directory=directory, machine=machine
                    )
                ).hexdigest()

            digests = [digest(), digest()]
            with Busy():
                digests += [digest(), digest()]
            self.assertEqual(set(digests), {digests[0]}, f"{program} under {protocol}, {nodes} nodes of {processors}")

    def test_sc(self):
        for program in ("jacobi", "water", "tsp"):
            self.same(program, "sc", directory="counted")

    def test_dszoom(self):
        for program in ("jacobi", "lu", "water", "tsp"):
            self.same(program, "dszoom", machine="dszoom-e6000")

    def test_shasta(self):
        for program in ("fft", "water", "tsp"):
            self.same(program, "shasta", "--model", "sc", machine="alphaserver-4100")
        for program in ("jacobi", "radix", "water"):
            self.same(program, "shasta", "--model", "rc", machine="alphaserver-4100")

    def test_checks_have_prices(self):
        def user(price):
            with priced_machine("dszoom-e6000", price, "load_check", "store_check", "poll") as path:
                return total(
                    profile(1, 1, "water", protocol="dszoom", machine=path, directory="counted-fine"), "user_ns"
                )

        self.assertGreater(user(20), 1.05 * user(0))

    def test_a_slower_network_lengthens_misses(self):
        def waited(latency):
            return total(
                profile(
                    2,
                    1,
                    "jacobi",
                    protocol="dszoom",
                    machine="dszoom-e6000",
                    directory="counted-fine",
                    options=("--net", f"latency={latency}"),
                ),
                "data_wait_ns",
            )

        fast, slow = waited("1us"), waited("10us")
        self.assertGreater(slow, 6 * fast)


class Charges(unittest.TestCase):
    def test_categories_add_up_to_the_total_on_every_processor(self):
        for protocol in ("mgs", "hlrc"):
            for program in ("water", "tsp", "jacobi"):
                run = profile(4, 4, program, protocol=protocol)
                self.assertEqual(run["run"]["clock"], "counted")
                self.assertEqual(run["run"]["machine"], "today-rdma")
                self.assertIn("latency=900ns", run["run"]["network"])
                self.assertEqual(run["run"]["interruptions"], 0)
                for processor in processors_of(run):
                    parts = sum(
                        processor[f"{name}_ns"] for name in ("user", "data_wait", "lock", "barrier", "protocol")
                    )
                    self.assertLessEqual(abs(parts - processor["total_ns"]), processor["total_ns"] / 100)

    def test_a_program_takes_the_same_user_time_on_any_number_of_nodes(self):
        # Matmul's processors do the same work however they are spread, and no processor's work depends on another's.
        alone, together, apart = (total(profile(*shape, "matmul"), "user_ns") for shape in ((1, 1), (1, 4), (4, 1)))
        self.assertLess(abs(together - alone), alone / 10)
        self.assertLess(abs(apart - together), together / 100)

    def test_the_network_is_what_a_program_waits_for(self):
        slow, fast = (
            profile(2, 2, "jacobi", options=("--net", f"latency={latency}"))["run"]["elapsed_ns"]
            for latency in ("10ms", "1ms")
        )
        self.assertGreater(fast, 20e6)
        self.assertGreater(slow, 8 * fast)
        self.assertLess(slow, 12 * fast)

    def test_what_the_network_says_of_handlers_is_charged(self):
        free, dear = (
            total(
                profile(2, 1, "water", protocol="mgs", options=("--net", f"latency=1us,handler={handler}")),
                "protocol_ns",
            )
            for handler in ("0us", "500us")
        )
        self.assertGreater(dear, free + 500_000)

    def test_a_faster_network_shortens_the_wait_for_data(self):
        slow, fast = (
            total(profile(4, 1, "fft", options=("--net", net)), "data_wait_ns")
            for net in ("latency=10us,bandwidth=100MB/s", "latency=10us,bandwidth=1GB/s")
        )
        self.assertGreater(slow, 2 * fast)

    def test_slower_processors_take_longer(self):
        old, new = (total(profile(1, 1, "matmul", machine=machine), "user_ns") for machine in ("alewife", "today-rdma"))
        self.assertGreater(old, 50 * new)

    def test_an_uncontended_lock_is_time_of_locks(self):
        run = profile(1, 1, "water")
        self.assertGreater(total(run, "lock_ns"), 0)

    def test_an_emulated_processor_does_not_pay_for_being_observed(self):
        # A smaller skew makes processors take more turns. That costs them nothing.
        often, rarely = (profile(1, 4, "matmul", options=("--skew", skew)) for skew in ("1us", "1ms"))
        self.assertGreater(often["run"]["turns"], 2 * rarely["run"]["turns"])
        self.assertEqual(total(often, "user_ns"), total(rarely, "user_ns"))

    def test_what_a_full_ring_holds_back_takes_no_turns_until_there_is_room(self):
        # The first node's private memory, with a mesh, goes to the others: more than a ring has room for. How long they take to
        # receive it says nothing about how often anybody looks.
        def turns(price):
            with priced_machine("today-rdma", price, "receive_byte") as path:
                return profile(2, 1, "unstructured-kernel", protocol="mgs", machine=path)["run"]["turns"]

        fast, slow = turns(0), turns(1000)
        self.assertLess(slow, 2 * fast)

    def test_every_transition_of_a_page_is_charged(self):
        def jacobi(protocol, options, price):
            with priced_machine("today-rdma", price, "transition") as path:
                return profile(4, 1, "jacobi", protocol=protocol, machine=path, options=options)

        # One at a fault, at the end of a page's interval or at its release, and where a copy goes; MGS's messages come on top.
        counted = ("read_faults", "write_faults", "upgrades", "local_faults", "pages_released", "invalidations")
        for protocol, options in (("hlrc", ("--hlrc", "updates=off,homes=stay")), ("mgs", ())):
            free, priced = (jacobi(protocol, options, price) for price in (0, 1000))
            transitions = sum(node["counters"][name] for node in free["nodes"] for name in counted)
            self.assertGreater(transitions, 100)
            self.assertGreaterEqual(
                (total(priced, "protocol_ns") - total(free, "protocol_ns")) / 1000, transitions, protocol
            )


class Messages(unittest.TestCase):
    def test_a_full_ring_holds_up_nobody(self):
        # A node's private memory is sent in pieces of 64 KiB through rings of 256 KiB, faster than the other node's handler
        # comes to its turn. The program does not say where its measured phase ends, so that is where it returns.
        with tempfile.TemporaryDirectory() as directory:
            program, path = os.path.join(directory, "large_heap"), os.path.join(directory, "profile.json")
            subprocess.run(
                [f"{BIN}/mgcc", "-O2", "-fno-multigrain-checks", "-fmultigrain-count", "large_heap.c", "-o", program],
                check=True,
                timeout=300,
            )
            for protocol in ("mgs", "hlrc"):
                for net in ("ideal", "latency=10ms", "latency=1us"):
                    digests = set()
                    for _ in range(2):
                        subprocess.run(
                            [
                                f"{BIN}/mgrun",
                                "--nodes",
                                "4",
                                "--clock",
                                "counted",
                                "--protocol",
                                protocol,
                                "--net",
                                net,
                                "--stats",
                                f"json:{path}",
                                program,
                            ],
                            check=True,
                            timeout=300,
                        )
                        with open(path, "rb") as file:
                            digests.add(hashlib.sha256(file.read()).hexdigest())
                    self.assertEqual(len(digests), 1, f"{protocol}, {net}")


class Refused(unittest.TestCase):
    def refuse(self, options, *words, program="jacobi", directory="counted"):
        run = mgrun(options, program, directory=directory)
        self.assertEqual(run.returncode, 2, run.stderr)
        for word in words:
            self.assertIn(word, run.stderr)

    def test_a_program_that_is_not_counted(self):
        self.refuse(["--clock", "counted"], "jacobi is not counted", "-fmultigrain-count", directory=".")

    def test_a_machine_without_counted_time(self):
        self.refuse(["--machine", "alewife"], "--machine", "--clock counted")
        self.refuse(["--clock", "virtual", "--machine", "alewife"], "--machine", "--clock counted")

    def test_a_scale_of_cpu_time(self):
        self.refuse(["--clock", "counted", "--clock-scale", "5"], "--clock-scale", "machine")

    def test_counted_time_on_a_real_network(self):
        self.refuse(["--clock", "counted", "--fabric", "ucx", "--nodes", "2"], "--clock", "shm")


if __name__ == "__main__":
    unittest.main()
