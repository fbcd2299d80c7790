#!/usr/bin/env python3
"""Repeats tables II to VII and figures 4 to 7 of the GeNIMA emulation paper in counted time, and prints the tables of docs/studies/genima-study.md.

usage: genima_study.py [--bin DIR] [--cache DIR] [--out DIR] [--jobs N] [--skew TIME] [--size test|paper] [--only NAME,NAME]
                       [--doc FILE] [SECTION...]

The applications run under hlrc on 32 and 64 processors in nodes of 4, 8 and 16, on the machines genima-myrinet and
genima-origin, with which `mgbench --clock counted` prints the paper's Table I. Programs are those of the target counted_workloads.
Results are kept in --cache and used again by mgstudy; JSON and HTML reports are left in --out. With --doc the tables also take the
place of those in that page. Sections: finding, table3, table4, speedups, widths, rights, balance, larger, slower, without,
ahead, work; all if none is named.
"""

import json
import os

from multigrain.study.verdicts import Bounds, exact_verdict
from paper_study import NONE, TABLES, CountedStudy, counted_parser, head, quotient, row, run_study

APPLICATIONS = {
    "FFTst": ("fft", "--variant", "staggered"),
    "LU": ("lu",),
    "radixL": ("radix", "--variant", "local-buffer"),
    "ssort": ("samplesort",),
    # The paper's is restructured, and has no queues of tiles to lock.
    "volrend": ("volrend", "--variant", "interleaved"),
    "waterF": ("water-spatial", "--variant", "local-molecules"),
}
# Its processors compute for most of a second without an event.
SKEW = {"volrend": "500us"}
WIDTHS = (4, 8, 16)
NETWORKS = ("genima-myrinet", "genima-origin")
# How much slower processors are in the experiment, for which the paper has no figure.
SLOWER = 4
AHEAD = (0, 1, 2, 4, 8, 16)
# FFT's, as powers of two: the first is --size paper, and the paper gives none.
LARGE = (15, 18, 20)
# What our hlrc does and GeNIMA does not (docs/internals/hlrc.md), as options that leave it off.
OURS = ("homes=stay", "updates=off", "runs=off", "chains=off", "releases=at-once")
FAULTS = ("read_faults", "write_faults", "upgrades")
CALLS = ("grant_reads", "grant_writes", "revoke_writes", "revokes")


class Study(CountedStudy):
    machine = "genima-origin"

    def names(self):
        only = self.options.only
        return [name for name in APPLICATIONS if not only or name in only.split(",")]

    def label(self, name, processors, network, widths=(4,), more=""):
        return f"{name}-{processors}-{network}-{'-'.join(map(str, widths))}{more}"

    def points(self, name, processors, network, widths=(4,), *options, machine=None, more=""):
        """By node size, and 0 for one processor."""
        program, *variant = APPLICATIONS[name]
        path = os.path.join(self.options.bin, "workloads", "counted", program)
        if name in SKEW and not self.options.skew:
            options = ("--skew", SKEW[name], *options)
        return self.family(
            self.label(name, processors, network, widths, more), [path, "--size", self.options.size, *variant],
            processors, "--node-sizes", ",".join(map(str, widths)), "--protocol", "hlrc", *options,
            machine=machine or network,
        )  # fmt: skip

    def of_networks(self, table, processors):
        labels = []
        for name in self.names():
            for network in NETWORKS:
                self.points(name, processors, network)
                labels.append(self.label(name, processors, network))
        self.against(table, labels)

    def finding(self):
        """Whether data wait is a smaller part of the time with the faster network, on nodes of 4, as the paper finds"""
        head("", ["processors", "Myrinet", "Origin 2000", "Myrinet less Origin, points", "paper", "the paper's sign"])
        for processors, table in ((32, "genima-table3.json"), (64, "genima-table4.json")):
            theirs = data_waits(table)
            for name in self.names():
                ours = [share(self.points(name, processors, network).get(4)) for network in NETWORKS]
                if None in ours:
                    row(name, str(processors), *["failed"] * 5)
                    continue
                less, their_less = ours[0] - ours[1], theirs.get(name)
                row(
                    name,
                    str(processors),
                    *(f"{100 * one:.1f}%" for one in ours),
                    f"{100 * less:+.1f}",
                    NONE if their_less is None else f"{their_less:+.1f}",
                    NONE if their_less is None else exact_verdict(less, LESS if their_less > 0 else MORE),
                )

    def table3(self):
        """Table III: where the time goes on 32 processors in nodes of 4, by network"""
        self.of_networks("genima-table3.json", 32)

    def table4(self):
        """Table IV: the same on 64 processors"""
        self.of_networks("genima-table4.json", 64)

    def of_widths(self, table, counts):
        labels = []
        for name in self.names():
            for processors in counts:
                self.points(name, processors, "genima-origin", WIDTHS)
                labels.append(self.label(name, processors, "genima-origin", WIDTHS))
        self.against(table, labels)

    def speedups(self):
        """Tables II and V: speedups on the Origin 2000"""
        self.of_widths("genima-table5.json", (32, 64))

    def widths(self):
        """Table VI: where the time goes on 64 processors on the Origin 2000, in nodes of 4, 8, 16"""
        self.of_widths("genima-table6.json", (64,))

    def rights(self):
        """Table VII: the average cost of a call that changes access rights, on 64 processors"""
        self.of_widths("genima-table7.json", (64,))

    def balance(self):
        """Figures 4 to 7: the processors of FFTst before and after balancing, 2^20 points, 64 processors on the Origin 2000"""
        columns = ["C", "ms", "user: mean", "least", "most", "faults: mean", "least", "most"]
        head("", [*columns, "pages fetched: mean", "least", "most", "most above the mean"])
        labels = []
        for variant in ("staggered", "balanced"):
            label = f"fft-{variant}-{LARGE[-1]}"
            points = self.fft(label, LARGE[-1], variant, WIDTHS)
            labels.append(label)
            for width in WIDTHS:
                cells = of_processors(points[width]) if width in points else ["failed"] * 11
                row(variant, str(width), *cells)
        print()
        self.against("genima-figures.json", labels)

    def larger(self):
        """An experiment: FFTst of more points, on 64 processors in nodes of 4"""
        head("", ["network", "speedup", "user", "data", "barrier", "rights", "pages a change of rights"], 1)
        for points in LARGE:
            for network in NETWORKS:
                found = self.fft(f"fft-{points}-{network}", points, "staggered", (4,), network)
                point = found.get(4)
                if point is None:
                    row(f"2^{points}", network, *["failed"] * 6)
                    continue
                whole = point["elapsed_ns"]
                row(
                    f"2^{points}",
                    network,
                    quotient(found.get(0, {}).get("elapsed_ns"), whole),
                    *(f"{100 * point['mean_ns'][part] / whole:.1f}%" for part in ("user", "data_wait", "barrier")),
                    f"{100 * point['rights_ns'] / whole:.1f}%",
                    work_of(point)[-1],
                )

    def fft(self, label, points, variant, widths, network="genima-origin"):
        path = os.path.join(self.options.bin, "workloads", "counted", "fft")
        log = str(points) if self.options.size == "paper" else "12"
        return self.family(
            label, [path, "-m", log, "--variant", variant], 64, "--node-sizes", ",".join(map(str, widths)), "--protocol",
            "hlrc", machine=network,
        )  # fmt: skip

    def slower(self):
        """An experiment: processors whose instructions take 4 times as long, 32 of them in nodes of 4"""
        head("", ["network", "speedup", "slower", "data", "slower", "rights", "slower"], 1)
        for name in self.names():
            for network in NETWORKS:
                self.machine = network
                slow = self.slowed_machine("slower", SLOWER)
                cells = [[], [], []]
                for machine, more in ((None, ""), (slow, "-slower")):
                    points = self.points(name, 32, network, machine=machine, more=more)
                    point = points.get(4)
                    cells[0].append(quotient(points.get(0, {}).get("elapsed_ns"), point and point["elapsed_ns"]))
                    cells[1].append(f"{100 * share(point):.1f}%" if point else "failed")
                    cells[2].append(f"{100 * point['rights_ns'] / point['elapsed_ns']:.1f}%" if point else "failed")
                row(name, network, *(cell for pair in cells for cell in pair))

    def without(self):
        """An experiment: without what our hlrc does and GeNIMA does not, on 32 processors in nodes of 4, Origin 2000"""
        head(
            "",
            ["`--hlrc`", "ms", "speedup", "data", "barrier", "lock", "rights", "diffs", "pages fetched", "faults"],
            1,
        )
        for name in self.names():
            for options in ("", *OURS, ",".join(OURS)):
                points = self.points(
                    name, 32, "genima-origin", (4,), *([f"--mgrun-option=--hlrc={options}"] if options else []),
                    more=f"-{options.replace(',', '-')}" if options else "",
                )  # fmt: skip
                point = points.get(4)
                if point is None:
                    row(name, options, *["failed"] * 9)
                    continue
                whole = point["elapsed_ns"]
                parts = [point["mean_ns"][part] for part in ("data_wait", "barrier", "lock")]
                row(
                    name,
                    "as it is" if not options else "all of these" if "," in options else f"`{options}`",
                    f"{whole / 1e6:.1f}",
                    quotient(points.get(0, {}).get("elapsed_ns"), whole),
                    *(f"{100 * part / whole:.1f}%" for part in (*parts, point["rights_ns"], point["diffs_ns"])),
                    f"{point['counters']['pages_fetched']}",
                    f"{faults(point)}",
                )

    def ahead(self):
        """How far to fetch ahead (the paper's N, which is 4): time and faults on 32 processors in nodes of 4, Origin 2000"""
        head("", [title for pages in AHEAD for title in (f"N = {pages}: ms", "faults")])
        for name in self.names():
            cells = []
            for pages in AHEAD:
                # N = 4 is what hlrc does without being told.
                options = [] if pages == 4 else [f"--mgrun-option=--hlrc=fetch-ahead={pages}"]
                point = self.points(
                    name, 32, "genima-origin", (4,), *options, more="" if pages == 4 else f"-ahead-{pages}"
                ).get(4)
                cells += [f"{point['elapsed_ns'] / 1e6:.1f}", f"{faults(point)}"] if point else ["failed"] * 2
            row(name, *cells)

    def work(self):
        """What the protocol did, on 64 processors on the Origin 2000, in nodes of 4, 8, 16"""
        columns = (
            "pages fetched by a processor",
            "faults that fetched",
            "of pages fetched ahead, in vain",
            "local to remote locks",
            "notices",
            "rights changes of a processor",
            "pages a change",
        )
        head("", columns, len(columns))
        for name in self.names():
            points = self.points(name, 64, "genima-origin", WIDTHS)
            cells = [[] for _ in columns]
            for width in WIDTHS:
                for cell, value in zip(cells, work_of(points.get(width))):
                    cell.append(value)
            row(name, *(", ".join(cell) for cell in cells))


# Of a difference of two shares of the time: which sign the paper's has.
LESS = Bounds(0, 1, "less")
MORE = Bounds(-1, 0, "more")


def data_waits(table):
    """By application, of how many points less of the time data wait is on the faster network, in the paper's table."""
    with open(os.path.join(TABLES, table), encoding="utf-8") as file:
        rows = {row["name"]: row["theirs"] for row in json.load(file)["rows"]}
    return {
        name: rows[f"{name}, data, Myrinet"] - rows[f"{name}, data, Origin"]
        for name in APPLICATIONS
        if f"{name}, data, Myrinet" in rows and f"{name}, data, Origin" in rows
    }


def share(point):
    return point["mean_ns"]["data_wait"] / point["elapsed_ns"] if point else None


def faults(point):
    return sum(point["counters"][name] for name in FAULTS)


def of_processors(point):
    whole = point["elapsed_ns"]
    cells = [f"{whole / 1e6:.1f}"]
    counts = [[each["user_ns"] for each in point["processors"]]]
    counts.append([sum(each["counters"][name] for name in FAULTS) for each in point["processors"]])
    counts.append([each["counters"]["pages_fetched"] for each in point["processors"]])
    for values, shown in zip(counts, (lambda value: f"{100 * value / whole:.1f}%", "{:.0f}".format, "{:.0f}".format)):
        cells += [shown(sum(values) / len(values)), shown(min(values)), shown(max(values))]
    return [*cells, f"{100 * (max(values) * len(values) / sum(values) - 1):.0f}%"]


def work_of(point):
    if point is None:
        return ["failed"] * 7
    counters = point["counters"]
    processors = len(point["processors"])
    fetched = counters["pages_fetched"]
    calls = sum(counters[name] for name in CALLS)
    pages = sum(counters[name[:-1] + "_pages"] for name in CALLS)
    remote = counters["locks_remote"]
    return [
        f"{fetched / processors:.0f}",
        f"{100 * (fetched - counters['prefetches']) / fetched:.0f}%" if fetched else NONE,
        f"{100 * counters['wasted_prefetches'] / counters['prefetches']:.0f}%" if counters["prefetches"] else NONE,
        f"{counters['locks_local'] / remote:.1f}" if remote else NONE,
        str(counters["notices"]),
        f"{calls / processors:.0f}",
        f"{pages / calls:.1f}" if calls else NONE,
    ]


def main():
    sections = (
        "finding",
        "table3",
        "table4",
        "speedups",
        "widths",
        "rights",
        "balance",
        "larger",
        "slower",
        "without",
        "ahead",
        "work",
    )
    parser = counted_parser(__doc__, out="genima-study")
    parser.set_defaults(skew=None)
    parser.add_argument("--size", choices=("test", "paper"), default="paper", help="of the problems (default paper)")
    parser.add_argument("--only", metavar="NAMES", help="of these applications, with commas between them")
    run_study(Study, parser, sections)


if __name__ == "__main__":
    main()
