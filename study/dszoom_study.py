#!/usr/bin/env python3
"""Repeats tables 1 and 2 and figures 6 to 9 of the DSZOOM paper in counted time, and prints the tables of
docs/studies/dszoom-study.md.

usage: dszoom_study.py [--bin DIR] [--cache DIR] [--out DIR] [--jobs N] [--skew TIME] [--size test|paper] [--doc FILE] [SECTION...]

The machine is dszoom-e6000. Tables 1 and 2 are of the paper's problems on one processor. Figures are of smaller problems on 8 and
16 processors: on one node (the paper's hardware), under dszoom on two nodes at 3 and at 15 us, on hardware that is coherent over
both nodes (the paper's CC-NUMA), and under hlrc. Their processors are those on which a single one takes as long for the plain
program as the paper's: the machine's instructions, times a factor that table 1 gives. Programs are those of the targets
counted_workloads and study_workloads. Results are kept in --cache and used again by mgstudy; JSON and HTML reports are left in
--out. With --doc the tables also take the place of those in that page. Sections: overhead, eight, sixteen, nodes_of_eight,
nodes_of_sixteen, misses, as_described; all if none is named.
"""

import os
from typing import NamedTuple

from paper_study import NONE, CountedStudy, counted_parser, head, in_seconds, percent, quotient, row, run_study


class Application(NamedTuple):
    program: str
    problem: tuple  # the paper's
    seconds: float  # table 1
    checked: float  # table 2, seconds
    smaller: tuple  # of the figures


APPLICATIONS = {
    "FFT": Application("fft", ("-m", "20"), 15.51, 22.92, ("-m", "16")),
    "CLU": Application("lu", ("-n", "1024"), 75.45, 140.05, ("-n", "512")),
    "Radix": Application("radix", ("-n", "4194304"), 28.88, 41.16, ("-n", "262144")),
    "Barnes-Hut": Application("barnes", ("-n", "16384"), 37.12, 65.59, ("-n", "2048", "--iterations", "1")),
    "Water-nsq": Application(
        "water", ("-n", "2197", "--iterations", "2"), 86.73, 166.21, ("-n", "512", "--iterations", "1")
    ),
    "Water-sp": Application(
        "water-spatial", ("-n", "2197", "--iterations", "2"), 23.08, 44.54, ("-n", "1000", "--iterations", "1")
    ),
}
NODES = (1, 2, 4, 8)
BUILDS = ("counted", "counted-fine", "counted-no-all")
SLOW = ("--net", "dszoom-15us")


class Study(CountedStudy):
    machine = "dszoom-e6000"

    def command(self, name, build, problem):
        path = os.path.join(self.options.bin, "workloads", build, APPLICATIONS[name].program)
        return [path, "--size", self.options.size, *(problem if self.options.size == "paper" else ())]

    def alone(self, name, build, problem=None, machine=None):
        """Nanoseconds of one processor; with the paper's problem if none is given. None if it failed."""
        problem = problem or APPLICATIONS[name].problem
        # A family has two processors, of which one node is enough.
        points = self.family(
            self.label_alone(name, build, problem, machine), self.command(name, build, problem), 2, "--node-sizes", "2", "--protocol", protocol_of(build), machine=machine,
        )  # fmt: skip
        return points.get(0, {}).get("elapsed_ns")

    def label_alone(self, name, build, problem=None, machine=None):
        application = APPLICATIONS[name]
        problem = "-".join(problem or application.problem)
        return f"{application.program}-{build}-alone{'' if machine is None else '-slowed'}-{problem}"

    def factor(self, name):
        """By which instructions must be slower for the paper's time of one processor."""
        ours = self.alone(name, "counted")
        return APPLICATIONS[name].seconds * 1e9 / ours if ours else None

    def slowed(self, name):
        factor = self.factor(name)
        return self.slowed_machine(APPLICATIONS[name].program, factor) if factor else None

    def points(self, name, build, processors, sizes, *options, machine, label=""):
        """By node size, and 0 for one processor, of the figures' problem."""
        application = APPLICATIONS[name]
        if machine is None:
            return {}
        return self.family(
            f"{application.program}-{build}-{processors}{label}",
            self.command(name, build, application.smaller), processors, "--node-sizes", ",".join(map(str, sizes)),
            *options, machine=machine,
        )  # fmt: skip

    def hardware(self, name, processors, machine, label=""):
        """One node; with checks not even compiled."""
        return self.points(
            name, "counted", processors, (processors,), "--protocol", "hlrc", machine=machine, label=label
        )

    def dszoom(self, name, processors, *options, machine, label="", sizes=None):
        sizes = sizes or tuple(processors // nodes for nodes in NODES)
        return self.points(
            name, "counted-fine", processors, sizes, "--protocol", "dszoom", *options, machine=machine, label=label
        )

    def numa(self, name, machine, processors):
        """The paper's CC-NUMA: hardware looks, and fetches a line in 1.7 us, of which the software's part is none."""

        def change(description):
            costs = description["costs"]
            for price in ("check_miss", "transition", "load_check", "store_check", "check", "remote_issue"):
                costs[price] = {"value": 0, "source": "hardware does it"}
            description["network"]["latency"] = {"value": 0.85, "source": "DSZOOM, section 4.1: 1.7 us there and back"}

        path = self.changed_machine(
            f"{self.machine}-{APPLICATIONS[name].program}-numa",
            "coherence by hardware, 1.7 us a remote access",
            change,
            machine,
        )
        return self.dszoom(name, processors, machine=path, label="-numa", sizes=(processors // 2,))

    def overhead(self):
        """Tables 1 and 2: the paper's problems on one processor, without and with checks, seconds"""
        head(
            "",
            [
                "without checks", "paper", "paper / ours", "checks add", "with a check at each access", "paper",
                "with checks / without", "each access / without", "paper",
            ],
        )  # fmt: skip
        for name, application in APPLICATIONS.items():
            plain, fine, every = (self.alone(name, build) for build in BUILDS)
            row(
                name,
                in_seconds(plain),
                f"{application.seconds:.2f}",
                quotient(application.seconds * 1e9, plain),
                in_seconds(difference(fine, plain)),
                in_seconds(difference(every, plain)),
                f"{application.checked - application.seconds:.2f}",
                quotient(fine, plain),
                quotient(every, plain),
                f"{application.checked / application.seconds:.2f}",
            )
        for table in ("dszoom-table1.json", "dszoom-table2.json"):
            print()
            self.against(table, [self.label_alone(name, build) for name in APPLICATIONS for build in BUILDS])

    def compare(self, processors):
        head("", ["one node, hardware", "CC-NUMA", "dszoom, 3 us", "dszoom, 15 us", "hlrc, 15 us", "3 us / 15 us"])
        half = processors // 2
        for name in APPLICATIONS:
            machine = self.slowed(name)
            hardware = self.hardware(name, processors, machine)
            alone = time_of(hardware, 0)
            pages = self.points(
                name, "counted", processors, (half,), "--protocol", "hlrc", *SLOW, machine=machine, label="-hlrc"
            )
            fast = time_of(self.dszoom(name, processors, machine=machine), half)
            slow = time_of(self.dszoom(name, processors, *SLOW, machine=machine, label="-15us", sizes=(half,)), half)
            row(
                name,
                quotient(alone, time_of(hardware, processors)),
                quotient(alone, time_of(self.numa(name, machine, processors), half) if machine else None),
                quotient(alone, fast),
                quotient(alone, slow),
                quotient(alone, time_of(pages, half)),
                quotient(slow, fast),
            )

    def eight(self):
        """Figure 6: speedups of 8 processors, two nodes of 4 but for the first column, over one without checks"""
        self.compare(8)

    def sixteen(self):
        """Figure 7: the same of 16, two nodes of 8"""
        self.compare(16)

    def nodes(self, processors):
        head("", [f"{nodes} of {processors // nodes}" for nodes in NODES])
        for name in APPLICATIONS:
            points = self.dszoom(name, processors, machine=self.slowed(name))
            row(name, *(quotient(time_of(points, 0), time_of(points, processors // nodes)) for nodes in NODES))

    def nodes_of_eight(self):
        """Figure 8: speedups of 8 processors under dszoom at 3 us, in 1, 2, 4 and 8 nodes, over one with checks"""
        self.nodes(8)

    def nodes_of_sixteen(self):
        """Figure 9: the same of 16 processors"""
        self.nodes(16)

    def misses(self):
        """Where the time goes, and what the protocol did, on 2 nodes of 4 at 3 us"""
        head(
            "",
            [
                "user", "data wait", "lock", "barrier", "protocol", "misses of a processor", "of them three hops", "upgrades",
                "us a miss", "us a miss at 15 us",
            ],
        )  # fmt: skip
        for name in APPLICATIONS:
            machine = self.slowed(name)
            point = self.dszoom(name, 8, machine=machine).get(4)
            slow = self.dszoom(name, 8, *SLOW, machine=machine, label="-15us", sizes=(4,)).get(4)
            row(name, *(parts(point) if point else ["failed"] * 9), us_a_miss(slow) if slow else "failed")

    def as_described(self):
        """Figure 6 on the machine as its description has it, whose processors are faster than the paper's"""
        head("", ["one node, hardware", "dszoom, 3 us", "dszoom, 15 us", "3 us / 15 us"])
        for name in APPLICATIONS:
            hardware = self.hardware(name, 8, self.machine, "-described")
            alone = time_of(hardware, 0)
            fast = time_of(self.dszoom(name, 8, machine=self.machine, label="-described", sizes=(4,)), 4)
            slow = time_of(self.dszoom(name, 8, *SLOW, machine=self.machine, label="-described-15us", sizes=(4,)), 4)
            row(
                name,
                quotient(alone, time_of(hardware, 8)),
                quotient(alone, fast),
                quotient(alone, slow),
                quotient(slow, fast),
            )


def protocol_of(build):
    return "hlrc" if build == "counted" else "dszoom"


def time_of(points, node_size):
    return points.get(node_size, {}).get("elapsed_ns")


def difference(time, than):
    return time - than if time and than else None


def parts(point):
    processors = len(point["processors"])
    counters = point["counters"]
    misses = counters["two_hop_misses"] + counters["three_hop_misses"]
    mean = point["mean_ns"]
    return [
        *(percent(mean[part], point["elapsed_ns"]) for part in ("user", "data_wait", "lock", "barrier", "protocol")),
        f"{misses / processors:.0f}",
        percent(counters["three_hop_misses"], misses),
        f"{counters['line_upgrades'] / processors:.0f}",
        us_a_miss(point),
    ]


def us_a_miss(point):
    counters, mean = point["counters"], point["mean_ns"]
    misses = counters["two_hop_misses"] + counters["three_hop_misses"] + counters["line_upgrades"]
    waits = (mean["data_wait"] + mean["protocol"]) * len(point["processors"])
    return f"{waits / misses / 1e3:.1f}" if misses else NONE


def main():
    sections = ("overhead", "eight", "sixteen", "nodes_of_eight", "nodes_of_sixteen", "misses", "as_described")
    parser = counted_parser(__doc__, out="dszoom-study")
    parser.add_argument("--size", choices=("test", "paper"), default="paper", help="of the problems (default paper)")
    run_study(Study, parser, sections)


if __name__ == "__main__":
    main()
