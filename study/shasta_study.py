#!/usr/bin/env python3
"""Repeats table 3 and figures 3 and 4 of the Shasta paper in counted time, and prints the tables of docs/studies/shasta-study.md.

usage: shasta_study.py [--bin DIR] [--cache DIR] [--out DIR] [--jobs N] [--skew TIME] [--size test|paper] [--doc FILE] [SECTION...]

The machine is alphaserver-4100, whose table 1 `mgbench --clock counted --machine alphaserver-4100` prints. Table 3 is of the paper's
problems on one processor. Figures are of smaller problems, on up to 4 processors in one node, on 8 and 16 in nodes of 4 and of
1. Programs are those of the targets counted_workloads and study_workloads. Results are kept in --cache and used again by mgstudy;
JSON and HTML reports are left in --out. With --doc the tables also take the place of those in that page. Sections: overhead,
speedups, synchronisation, models, nodes; all if none is named.
"""

import os
from typing import NamedTuple

from paper_study import NONE, CountedStudy, counted_parser, head, in_seconds, percent, quotient, row, run_study


class Application(NamedTuple):
    program: str
    problem: tuple  # the paper's
    seconds: float | None  # of table 3; None: the paper's program is another one, or did more
    overhead: float  # table 3, of the miss checks
    smaller: tuple  # of the figures


APPLICATIONS = {
    "Barnes": Application(
        "barnes",
        ("-n", "16384", "--iterations", "4", "--variant", "distributed-freelist"),
        9.19,
        0.096,
        ("-n", "2048", "--iterations", "1", "--variant", "distributed-freelist"),
    ),
    "LU-Contig": Application("lu", ("-n", "1024"), 9.97, 0.359, ("-n", "512")),
    "Ocean (jacobi)": Application(
        "jacobi",
        ("-n", "514", "--iterations", "20"),
        None,
        0.313,
        ("-n", "514", "--iterations", "20"),
    ),
    "Volrend": Application(
        "volrend",
        ("--volume", "256", "--image", "416", "--iterations", "1"),
        None,
        0.023,
        ("--volume", "64", "--image", "104", "--iterations", "1"),
    ),
    "Water-Nsq": Application(
        "water", ("-n", "1000", "--iterations", "3"), 8.30, 0.236, ("-n", "512", "--iterations", "1")
    ),
    "Water-Sp": Application(
        "water-spatial", ("-n", "1728", "--iterations", "3"), 6.37, 0.265, ("-n", "1000", "--iterations", "1")
    ),
}
BUILDS = {"counted-fine": "MP", "counted-sm": "SM", "counted-sm-prefetch": "SM with prefetch"}
MODELS = ("sc", "rc")
PARTS = ("user", "data_wait", "lock", "barrier", "protocol")
NODE = 4  # processors, at most


class Study(CountedStudy):
    machine = "alphaserver-4100"

    def command(self, name, build, problem):
        path = os.path.join(self.options.bin, "workloads", build, APPLICATIONS[name].program)
        return [path, "--size", self.options.size, *(problem if self.options.size == "paper" else ())]

    def points(self, name, build, processors, *sizes, problem=None, model="rc"):
        """By node size, and 0 for one processor."""
        problem = problem or APPLICATIONS[name].smaller
        plain = build == "counted"
        protocol = ["hlrc"] if plain else ["shasta", f"--mgrun-option=--model={model}"]
        return self.family(
            self.label(name, build, processors, *sizes, problem=problem, model=model),
            self.command(name, build, problem), processors, "--node-sizes", ",".join(map(str, sizes)), "--protocol",
            *protocol,
        )  # fmt: skip

    def label(self, name, build, processors, *sizes, problem=None, model="rc"):
        application = APPLICATIONS[name]
        problem = problem or application.smaller
        return "-".join([application.program, build, str(processors), *map(str, sizes), model, *problem])

    def alone(self, name, build, problem=None):
        # A family has two processors, of which one node is enough.
        return time_of(self.points(name, build, 2, 2, problem=problem), 0)

    def overhead(self):
        """Table 3: the paper's problems on one processor, without and with checks"""
        head(
            "",
            [
                "without checks, s", "paper", "paper / ours", "with checks", "with a check at each access", "paper",
            ],
        )  # fmt: skip
        builds = ("counted", "counted-fine", "counted-no-all")
        for name, application in APPLICATIONS.items():
            plain, fine, every = (self.alone(name, build, application.problem) for build in builds)
            seconds = application.seconds
            row(
                name,
                in_seconds(plain),
                NONE if seconds is None else f"{seconds:.2f}",
                NONE if seconds is None else quotient(seconds * 1e9, plain),
                more(fine, plain),
                more(every, plain),
                f"{application.overhead:.1%}",
            )
        print()
        self.against(
            "shasta-table3.json",
            [
                self.label(name, build, 2, 2, problem=application.problem)
                for name, application in APPLICATIONS.items()
                for build in builds
            ],
        )

    def speedups(self):
        """Figure 3: speedups over one processor without checks, in nodes of 4"""
        counts = (2, 4, 8, 16)
        builds = ("counted-fine", "counted-sm")
        head("", ["1, MP", *(f"{count}, {BUILDS[build]}" for build in builds for count in counts)])
        for name in APPLICATIONS:
            alone = self.alone(name, "counted")
            row(
                name,
                quotient(alone, self.alone(name, "counted-fine")),
                *(quotient(alone, self.time(name, build, count)) for build in builds for count in counts),
            )

    def time(self, name, build, processors):
        size = min(processors, NODE)
        return time_of(self.points(name, build, processors, size), size)

    def synchronisation(self):
        """What locks and barriers of atomics (SM) cost 16 processors"""
        for name in APPLICATIONS:
            for build in BUILDS:
                self.time(name, build, 16)
        self.against(
            "shasta-synchronisation.json",
            [self.label(name, build, 16, NODE) for name in APPLICATIONS for build in BUILDS],
        )

    def models(self):
        """Figure 4: blocking (sc) and non-blocking stores (rc) on 16 nodes of one processor, time in percent of sc's"""
        head("", ["model", "time", *(part.replace("_", " ") for part in PARTS)], 1)
        for name in APPLICATIONS:
            points = {model: self.points(name, "counted-fine", 16, 1, model=model).get(1) for model in MODELS}
            if None in points.values():
                row(name, "", *["failed"] * (1 + len(PARTS)))
                continue
            whole = points["sc"]["elapsed_ns"]
            for model, point in points.items():
                row(
                    name,
                    model,
                    percent(point["elapsed_ns"], whole),
                    *(percent(point["mean_ns"][part], whole) for part in PARTS),
                )
        print()
        self.against(
            "shasta-figure4.json",
            [self.label(name, "counted-fine", 16, 1, model=model) for name in APPLICATIONS for model in MODELS],
        )

    def nodes(self):
        """What SMP nodes bring: 8 processors in nodes of 1, 2 and 4"""
        head(
            "",
            [
                "model",
                "processors a node",
                "speedup",
                "misses and upgrades of a processor",
                "data wait",
                "lock and barrier",
                "protocol",
            ],
            1,
        )
        for name in ("Water-Nsq", "Barnes"):
            alone = self.alone(name, "counted")
            for model in MODELS:
                points = self.points(name, "counted-fine", 8, 1, 2, 4, model=model)
                for node in (1, 2, 4):
                    point = points.get(node)
                    row(name, model, str(node), *(of_nodes(point, alone) if point else ["failed"] * 5))


def time_of(points, node_size):
    return points.get(node_size, {}).get("elapsed_ns")


def more(time, than):
    return f"{100 * (time / than - 1):.1f}%" if time and than else "failed"


def of_nodes(point, alone):
    counters, mean, whole = point["counters"], point["mean_ns"], point["elapsed_ns"]
    requests = counters["two_hop_misses"] + counters["three_hop_misses"] + counters["line_upgrades"]
    return [
        quotient(alone, whole),
        f"{requests / len(point['processors']):.0f}",
        percent(mean["data_wait"], whole),
        percent(mean["lock"] + mean["barrier"], whole),
        percent(mean["protocol"], whole),
    ]


def main():
    sections = ("overhead", "speedups", "synchronisation", "models", "nodes")
    parser = counted_parser(__doc__, out="shasta-study")
    parser.add_argument("--size", choices=("test", "paper"), default="paper", help="of the problems (default paper)")
    run_study(Study, parser, sections)


if __name__ == "__main__":
    main()
