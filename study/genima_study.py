#!/usr/bin/env python3
"""Repeats tables II to VII and figure 3 of the GeNIMA emulation paper on this system, and prints the tables of
docs/studies/genima-study.md.

usage: genima_study.py [--bin DIR] [--cache DIR] [--out DIR] [--repetitions N] [--size test|paper|large]
                       [--doc FILE] [SECTION...]

The applications run under hlrc, in virtual time, on 32 and 64 processors in nodes of 4, 8 and 16, over VMMC on Myrinet and
over VMMC on the Origin 2000. --clock-scale slows processors and protocol down to the paper's 200 MHz (default 50: a
change of access rights then costs what it did on the paper's cluster, 40 to 80 us). Results are kept in --cache and used
again by mgstudy; JSON and HTML reports are left in --out. With --doc the tables also take the place of those in that
page. --size large means volrend's paper: that is the size of the head which the paper renders. Sections: speedups, networks, finding, widths, work, rights, wall; all if none is named.
"""

import json
import os
import subprocess
import sys

from multigrain.study.verdicts import Bounds, relative_spread, runs_of, verdict
from paper_study import NONE, PaperStudy, head, parser_of, row, run_study, spread_text

APPLICATIONS = {
    "FFTst": ["fft", "--variant", "staggered"],
    "LU": ["lu"],
    "radixL": ["radix", "--variant", "local-buffer"],
    "ssort": ["samplesort"],
    # The paper's is restructured, and has no queues of tiles to lock.
    "volrend": ["volrend", "--variant", "interleaved"],
    "waterF": ["water-spatial", "--variant", "local-molecules"],
}
WIDTHS = (4, 8, 16)
NETWORKS = ("myrinet", "origin2000")
# What the paper has, for the table beside: None where it has nothing.
SPEEDUP = {  # II and V, by processors and width
    "FFTst": {32: (23.8, 16.3, 5.7), 64: (26.6, 28.7, 12.4)},
    "LU": {32: (None, 18.5, None), 64: (32.9, 32.5, None)},
    "radixL": {32: (1.9, 1.8, None), 64: (1.0, 1.2, None)},
    "ssort": {32: (6.7, None, None), 64: (None, None, None)},
    "volrend": {32: (17.8, 17.7, 16.1), 64: (23.1, 24.8, 17.6)},
    "waterF": {32: (9.2, 4.9, 1.3), 64: (14.5, 8.5, 2.7)},
}
# III and IV: by processors and network, percent of the time: data, barrier, lock, rights ("mprotect"), diff.
NETWORK_SHARES = {
    32: {
        "FFTst": {"myrinet": (33.9, 18.9, None, 15.0, 0.1), "origin2000": (18.3, 17.9, None, 6.1, 0.6)},
        "LU": {},
        "radixL": {"myrinet": (29.9, 30.9, 3.5, 16.7, 18.4), "origin2000": (22.8, 28.9, 17.0, 6.2, 10.3)},
        "ssort": {},
        "volrend": {"myrinet": (1.1, 16.1, None, 0.5, 0.3), "origin2000": (1.9, 37.2, None, 2.5, 2.5)},
        "waterF": {"myrinet": (20.6, 16.7, 0.1, 14.6, 0.2), "origin2000": (27.2, 16.7, 0.2, 11.1, 0.7)},
    },
    64: {
        "FFTst": {"myrinet": (42.2, 17.1, None, 6.8, 0.4), "origin2000": (35.1, 22.4, None, 6.6, 0.2)},
        "LU": {"myrinet": (6.7, 20.5, None, 1.3, 0.0), "origin2000": (3.2, 34.8, None, 1.4, 0.3)},
        "radixL": {"myrinet": (35.8, 40.8, 11.5, 7.1, 14.7), "origin2000": (14.7, 32.3, 35.2, 10.2, 4.4)},
        "ssort": {"myrinet": (16.1, 63.8, None, 14.4, 12.8), "origin2000": (4.1, 38.9, None, 2.1, 0.3)},
        "volrend": {"myrinet": (3.3, 27.3, None, 1.1, 0.7), "origin2000": (2.6, 56.1, None, 7.0, 0.8)},
        "waterF": {"myrinet": (26.5, 18.3, 0.3, 10.6, 0.7), "origin2000": (28.4, 23.7, 1.0, 11.2, 0.8)},
    },
}
WIDTH_SHARES = {  # VI, percent on 64 processors: data, barrier, lock, rights; each by width
    "FFTst": ((35.1, 21.1, 17.8), (22.4, 28.7, 19.0), (None,) * 3, (6.6, 9.9, 12.6)),
    "LU": ((3.2, 3.2, None), (34.8, 35.0, None), (None,) * 3, (1.4, 0.9, None)),
    "radixL": ((14.7, 13.5, None), (32.3, 31.4, None), (35.2, 28.2, None), (10.2, 4.4, None)),
    "ssort": ((None,) * 3,) * 4,
    "volrend": ((2.8, 2.6, 1.8), (56.1, 52.8, 62.1), (None,) * 3, (7.0, 2.3, 1.0)),
    "waterF": ((28.4, 17.6, 12.2), (23.7, 31.6, 44.8), (1.0, 0.2, 0.0), (11.2, 10.7, 11.1)),
}
RIGHTS = {  # VII, microseconds
    "FFTst": (127.8, 199.5, 622.1),
    "LU": (55.4, 43.6, None),
    "radixL": (325.8, 296.4, None),
    "ssort": (None, None, None),
    "volrend": (404.2, 402.5, 569.4),
    "waterF": (87.1, 163.4, 674.9),
}
CALLS = ("grant_reads", "grant_writes", "revoke_writes", "revokes")


def figure(value, unit=""):
    return NONE if value is None else f"{value:.1f}{unit}"


class Study(PaperStudy):
    def program(self, name):
        size = "paper" if (name, self.options.size) == ("volrend", "large") else self.options.size
        return [os.path.join(self.options.bin, "workloads", name), "--size", size]

    def family(self, application, processors, network, access="userfault"):
        """Points by width, of one application; and the time on one processor."""
        program, *arguments = APPLICATIONS[application]
        study = self.run(
            f"{application}-{self.options.size}-{processors}-{network}-{access}",
            "width",
            "--procs",
            str(processors),
            "--node-sizes",
            ",".join(map(str, WIDTHS)),
            "--net",
            network,
            "--protocol",
            "hlrc",
            "--access",
            access,
            "--clock-scale",
            str(self.options.clock_scale),
            "--skew",
            "100us",
            "--",
            *self.program(program),
            *arguments,
        )
        points = [point for point in study["points"] if point.get("elapsed_ns")]
        alone = next((point["elapsed_ns"] for point in points if point["role"] == "sequential"), None)
        return {point["node_size"]: point for point in points if point["role"] == "family"}, alone

    def speedups(self):
        """Tables II and V: speedups on the Origin 2000"""
        head("", [title for p in (32, 64) for c in WIDTHS for title in (f"{p} processors, C = {c} (spread)", "paper")])
        for name in APPLICATIONS:
            cells = []
            for processors in (32, 64):
                points, alone = self.family(name, processors, "origin2000")
                for width, theirs in zip(WIDTHS, SPEEDUP[name][processors]):
                    cells += [
                        f"{alone / points[width]['elapsed_ns']:.2f} ({spread_text(relative_spread(points[width]))})"
                        if alone and width in points
                        else "failed",
                        figure(theirs),
                    ]
            row(name, *cells)

    def networks(self):
        """Tables III and IV: where the time goes on nodes of 4, by network"""
        titles = ("data", "barrier", "lock", "rights", "diff")
        head("", ["processors", "network", "spread", *(title for part in titles for title in (part, "paper"))], 2)
        for processors in (32, 64):
            for name in APPLICATIONS:
                for network in NETWORKS:
                    points, _ = self.family(name, processors, network)
                    ours = shares(points.get(4))
                    theirs = NETWORK_SHARES[processors][name].get(network, (None,) * len(titles))
                    row(
                        name,
                        str(processors),
                        network,
                        spread_text(relative_spread(points.get(4))),
                        *(cell for mine, yours in zip(ours, theirs) for cell in (mine, figure(yours, "%"))),
                    )

    def finding(self):
        """Whether data wait is a smaller part of the time with the faster network, on nodes of 4, as the paper finds"""
        head("", ["processors", "Myrinet less Origin 2000, points", "spread", "paper", "the paper's sign"])
        for processors in (32, 64):
            for name in APPLICATIONS:
                theirs = [NETWORK_SHARES[processors][name].get(network, (None,))[0] for network in NETWORKS]
                if None in theirs:
                    continue
                points = [self.family(name, processors, network)[0].get(4) for network in NETWORKS]
                less, spread = wait_less(*points)
                row(
                    name,
                    str(processors),
                    NONE if less is None else f"{100 * less:+.1f}",
                    NONE if less is None else f"{100 * spread:.1f}",
                    f"{theirs[0] - theirs[1]:+.1f}",
                    verdict(less, spread, LESS if theirs[0] > theirs[1] else MORE, runs_of(filter(None, points))),
                )

    def widths(self):
        """Table VI: where the time goes on 64 processors on the Origin 2000, in nodes of 4, 8, 16"""
        titles = ("data", "barrier", "lock", "rights")
        head("", [title for part in titles for title in (part, "paper")], 2 * len(titles))
        for name in APPLICATIONS:
            points, _ = self.family(name, 64, "origin2000")
            ours = [shares(points.get(width)) for width in WIDTHS]
            cells = []
            for i, theirs in enumerate(WIDTH_SHARES[name]):
                cells += [
                    ", ".join(part[i] for part in ours),
                    NONE if set(theirs) == {None} else ", ".join(figure(one, "%") for one in theirs),
                ]
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
        for name in APPLICATIONS:
            points, _ = self.family(name, 64, "origin2000")
            cells = [[] for _ in columns]
            for width in WIDTHS:
                for cell, value in zip(cells, work_of(points.get(width))):
                    cell.append(value)
            row(name, *(", ".join(cell) for cell in cells))

    def rights(self):
        """Table VII: the average cost of a call that changes access rights, microseconds on 64 processors"""
        head("", [title for c in WIDTHS for title in (f"C = {c}, userfaultfd", "mprotect", "paper")])
        for name in APPLICATIONS:
            by_access = [self.family(name, 64, "origin2000", access)[0] for access in ("userfault", "mprotect")]
            cells = []
            for width, theirs in zip(WIDTHS, RIGHTS[name]):
                cells += [f"{cost(points[width]):.1f}" if width in points else "failed" for points in by_access]
                cells.append(figure(theirs))
            row(name, *cells)

    def wall(self):
        """Figure 3: changing one page's rights while others change theirs, microseconds of a core of this machine"""
        command = [os.path.join(self.options.bin, "mgbench"), "rights", "--json"]
        if self.options.size == "test":
            command += ["--rounds", "3"]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"genima_study: {' '.join(command)} ended with status {done.returncode}")
        result = json.loads(done.stdout)
        by_threads = {}
        for one in result["rows"]:
            by_threads.setdefault(one["threads"], {})[one["mechanism"]] = one
        print(f"{result['cores']} cores. A figure that grows with the threads is time lost to each other.\n")
        head("threads", ["upgrade, userfaultfd", "mprotect", "downgrade, userfaultfd", "mprotect"])
        for threads, costs in sorted(by_threads.items()):
            row(
                str(threads),
                *(
                    f"{costs[access][what]:.2f}"
                    for what in ("upgrade_us", "downgrade_us")
                    for access in ("userfault", "mprotect")
                ),
            )


# Of a difference of two shares of the time: which sign the paper's has.
LESS = Bounds(0, 1, "less")
MORE = Bounds(-1, 0, "more")


def wait_less(slow, fast):
    """By how much data wait is a smaller part of the time at the second point than at the first, and the spread of that:
    what the spreads of the two times make of their shares, for the runs in between are not kept."""
    if slow is None or fast is None:
        return None, None
    waits = [point["mean_ns"]["data_wait"] / point["elapsed_ns"] for point in (slow, fast)]
    spread = sum(wait * relative_spread(point) for wait, point in zip(waits, (slow, fast)))
    return waits[0] - waits[1], spread


def shares(point):
    if point is None:
        return ["failed"] * 5
    parts = [
        point["mean_ns"]["data_wait"],
        point["mean_ns"]["barrier"],
        point["mean_ns"]["lock"],
        point["rights_ns"],
        point["diffs_ns"],
    ]
    return [f"{100 * part / point['elapsed_ns']:.1f}%" for part in parts]


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


def cost(point):
    """Microseconds of the machine's, for each call that changes access rights."""
    calls = sum(point["counters"][name] for name in CALLS)
    return point["rights_ns"] * len(point["processors"]) / max(calls, 1) / 1e3


def main():
    sections = ("speedups", "networks", "finding", "widths", "work", "rights", "wall")
    parser = parser_of(__doc__, out="genima-study", repetitions=3)
    parser.add_argument("--clock-scale", type=float, default=50)
    parser.add_argument(
        "--size", choices=("test", "paper", "large"), default="large", help="of the problems (default large)"
    )
    run_study(Study, parser, sections)


if __name__ == "__main__":
    main()
