#!/usr/bin/env python3
"""Repeats table 2 and figures 6 to 9 of the DSZOOM paper on this system, and prints the tables of
docs/studies/dszoom-study.md.

usage: dszoom_study.py [--bin DIR] [--cache DIR] [--out DIR] [--repetitions N] [--size test|paper] [--skew TIME]
                       [--protocol-scale F] [--doc FILE] [SECTION...]

The applications run with the paper's problems, in virtual time, on 8 and 16 processors: on one node (the paper's
hardware), under dszoom on two nodes whose remote accesses take 2 us, and 15 us as those of software with agents did, and
under our protocols by pages, on the second network. Processors are slowed down until a single one takes as long as the
paper's (table 1); --protocol-scale slows down the protocol's work. Best run as `chrt -r 1 study/dszoom_study.py`: else
processors that this machine interrupts for others find their caches cold, which the scale multiplies. The programs are
those that the target check_workloads builds: workloads/plain and workloads/fine. Results are kept in --cache and used
again by mgstudy; JSON and HTML reports are left in --out. With --doc the tables also take the place of those in that
page. Sections: overhead, eight, sixteen, nodes_of_eight, nodes_of_sixteen, misses, arithmetic; all if none is named.
"""

import os
from typing import NamedTuple

from paper_study import NONE, PaperStudy, head, in_seconds, parser_of, percent, quotient, row, run_study


class Application(NamedTuple):
    program: str
    problem: list  # the paper's, for --size paper
    seconds: float  # table 1
    overhead: float  # table 2
    # How far processors may be apart (docs/user/virtual-time.md). The less, the more often they take turns on this
    # machine's cores, which costs them their caches; but who locks finds the lock taken by somebody who is ahead.
    skew: str = "5ms"


APPLICATIONS = {
    "FFT": Application("fft", ["-m", "20"], 15.51, 1.48),
    "CLU": Application("lu", ["-n", "1024"], 75.45, 1.86),
    "Radix": Application("radix", ["-n", "4194304"], 28.88, 1.43),
    "Barnes-Hut": Application("barnes", ["-n", "16384"], 37.12, 1.77, skew="500us"),
    "Water-nsq": Application("water", ["-n", "2197", "--iterations", "2"], 86.73, 1.92),
    "Water-sp": Application("water-spatial", ["-n", "2197", "--iterations", "2"], 23.08, 1.93),
}
# What figures 6 and 7 compare: a label; plainly compiled or with checks; nodes; options.
MACHINES = (
    ("one node, hardware", "plain", 1, ()),
    ("dszoom, 3 us", "fine", 2, ("--protocol", "dszoom", "--net", "dszoom")),
    ("dszoom, 15 us", "fine", 2, ("--protocol", "dszoom", "--net", "dszoom-15us")),
    ("hlrc, 15 us", "plain", 2, ("--protocol", "hlrc", "--net", "dszoom-15us")),
    ("mgs, 15 us", "plain", 2, ("--protocol", "mgs", "--mgrun-option=--mgs=reads=message", "--net", "dszoom-15us")),
)
NODES = (1, 2, 4, 8)


class Study(PaperStudy):
    def command(self, name, build):
        application = APPLICATIONS[name]
        path = os.path.join(self.options.bin, "workloads", build, application.program)
        return [path, "--size", self.options.size, *(application.problem if self.options.size == "paper" else ())]

    def clock(self, name):
        scale = self.scale(f"{name}-{self.options.size}", self.command(name, "plain"), APPLICATIONS[name].seconds * 1e9)
        return [
            "--clock-scale",
            f"{scale:.1f},{self.options.protocol_scale:g}",
            "--skew",
            self.options.skew or APPLICATIONS[name].skew,
        ]

    def point(self, name, build, processors, nodes, options=()):
        """What mgstudy has of one machine; None if it failed."""
        label = "-".join(
            [
                name,
                self.options.size,
                build,
                str(processors),
                str(nodes),
                *(word for word in options if not word.startswith("--")),
            ]
        )
        return super().point(label, processors, nodes, self.command(name, build), *self.clock(name), *options)

    def time(self, *machine):
        point = self.point(*machine)
        return point["elapsed_ns"] if point else None

    def overhead(self):
        """Table 2: a program with checks on one processor, against the same without"""
        head("", ["without checks, s", "paper", "with checks, s", "paper", "ratio", "paper"])
        for name, application in APPLICATIONS.items():
            seconds, ratio = application.seconds, application.overhead
            plain, fine = self.time(name, "plain", 1, 1), self.time(name, "fine", 1, 1)
            row(
                name,
                in_seconds(plain),
                f"{seconds:.2f}",
                in_seconds(fine),
                f"{seconds * ratio:.2f}",
                quotient(fine, plain),
                f"{ratio:.2f}",
            )

    def compare(self, processors):
        head("", [label for label, *_ in MACHINES])
        for name in APPLICATIONS:
            alone = self.time(name, "plain", 1, 1)
            row(
                name,
                *(
                    quotient(alone, self.time(name, build, processors, nodes, options))
                    for _, build, nodes, options in MACHINES
                ),
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
            alone = self.time(name, "fine", 1, 1)
            row(name, *(quotient(alone, self.time(name, "fine", processors, nodes, MACHINES[1][3])) for nodes in NODES))

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
                "user",
                "data wait",
                "lock",
                "barrier",
                "protocol",
                "misses of a processor",
                "of them three hops",
                "upgrades",
                "us a miss",
                "us a miss at 15 us",
                "user, all processors / one alone",
            ],
        )
        for name in APPLICATIONS:
            point, slow, alone = (
                self.point(name, "fine", 8, 2, MACHINES[1][3]),
                self.point(name, "fine", 8, 2, MACHINES[2][3]),
                self.time(name, "fine", 1, 1),
            )
            if not point or not slow or not alone:
                row(name, *["failed"] * 11)
                continue
            row(
                name,
                *parts(point),
                us_a_miss(slow),
                quotient(point["mean_ns"]["user"] * len(point["processors"]), alone),
            )

    def arithmetic(self):
        """What these misses make of the paper's times: speedups of 8 processors that share table 2's seconds evenly"""
        head("", ["no misses", "our misses, 3 us", "our misses, 15 us", "3 us / 15 us"])
        for name, application in APPLICATIONS.items():
            points = [self.point(name, "fine", 8, 2, MACHINES[which][3]) for which in (1, 2)]
            if not all(points):
                row(name, *["failed"] * 4)
                continue
            share = application.seconds * application.overhead / 8
            fast, slow = (share + waits(point) / 1e9 for point in points)
            row(
                name, *(f"{application.seconds / seconds:.2f}" for seconds in (share, fast, slow)), quotient(slow, fast)
            )


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


def waits(point):
    """What a processor's misses took, in nanoseconds."""
    return point["mean_ns"]["data_wait"] + point["mean_ns"]["protocol"]


def us_a_miss(point):
    counters = point["counters"]
    misses = counters["two_hop_misses"] + counters["three_hop_misses"] + counters["line_upgrades"]
    return f"{waits(point) * len(point['processors']) / misses / 1e3:.1f}" if misses else NONE


def main():
    sections = ("overhead", "eight", "sixteen", "nodes_of_eight", "nodes_of_sixteen", "misses", "arithmetic")
    parser = parser_of(__doc__, out="dszoom-study", repetitions=3)
    parser.add_argument("--size", choices=("test", "paper"), default="paper", help="of the problems (default paper)")
    parser.add_argument(
        "--protocol-scale",
        type=float,
        default=1,
        help="how much slower the paper's processor did the protocol's work (default 1)",
    )
    parser.add_argument("--skew", help="mgrun's (default: of each program its own)")
    run_study(Study, parser, sections)


if __name__ == "__main__":
    main()
