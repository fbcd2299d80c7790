#!/usr/bin/env python3
"""Repeats the MGS paper's figures 6 to 20 on this system, and prints the tables of docs/studies/mgs-study.md.

usage: mgs_study.py [--bin DIR] [--cache DIR] [--out DIR] [--repetitions N] [SECTION...]

Every application is run at the paper's size on 32 processors in nodes of 1 to 32, 50 us apart, in virtual time, on two
machines: one whose processors are slowed down until a single one takes as long as one of Alewife's with software
virtual memory (Table 3, SVM-Seq) and its protocol as long as MGS's, and one with today's. Pages are not fetched ahead. Results
are kept and used again by mgstudy; JSON and HTML reports are left in --out. A figure of the paper's and ours "agree" or
"differ" only if repeated runs spread by less than would have to be between them for the other (verdicts.py).
"""

import json
import os

from multigrain.study.verdicts import (
    NEGATIVE,
    SMALL,
    Bounds,
    about,
    grain_verdict,
    metric_verdict,
    relative_spread,
    runs_of,
    verdict,
)
from paper_study import NONE, PaperStudy, parser_of, percent, quotient, row, spread_text

# Table 3, SVM-Seq and SVM-Par: cycles at 20 MHz of one processor and of 32 in one node; and the paper's class, breakup
# penalty and multigrain potential, where the text of section 5.3 gives them. For TSP and Unstructured it says "large", and
# its conclusion gives the ranges of all four difficult programs.
LARGE_PENALTY = Bounds(1.59, 10.14, "159% to 1014%")
LARGE_POTENTIAL = Bounds(0.61, 0.88, "61% to 88%")
PAPER = {
    "jacobi": (1618916600, 53889697, "coarse-grain", NEGATIVE, SMALL),
    "matmul": (3080884002, 114667516, "coarse-grain", SMALL, SMALL),
    "fft": (491769198, 41487459, "coarse-grain", SMALL, SMALL),
    "gauss": (5034851631, 217332821, "coarse-grain", SMALL, NEGATIVE),
    "water": (1960029691, 72948004, "medium-grain", about(1.59), about(0.82)),
    "barnes": (976160390, 72772466, "medium-grain", about(2.31), about(0.76)),
    "tsp": (53485523, 3040273, "fine-grain", LARGE_PENALTY, LARGE_POTENTIAL),
    "unstructured": (1260702520, 87473784, "fine-grain", LARGE_PENALTY, LARGE_POTENTIAL),
    "water-kernel": (1532197479, 58465483, "", None, None),
    "unstructured-kernel": (204001329, 13444073, "", None, None),
}
# Figures 18 to 20: the increase over the time at 50 us by latency in nanoseconds, for C = 1, 4, 16, where the text has it.
PAPER_LATENCIES = {
    "jacobi": {500_000: (0.058, 0.031, 0.032)},
    "water": {100_000: (0.125, 0.083, 0.124), 500_000: (0.83, 0.80, 0.42), 1_000_000: (1.84, 1.48, 0.82)},
    "water-kernel, tiled": {500_000: (0.52, 0.35, 0.14), 1_000_000: (1.03, 0.62, 0.33)},
}
LATENCIES = (4_750, 50_000, 100_000, 500_000, 1_000_000)
BASE_LATENCY = 50_000
HERTZ = 20e6
# A remote read miss is 11772 cycles (Table 1), less two latencies of 1000; ours takes 5.5 us of CPU on both sides.
PROTOCOL_SCALE = 90
# A node asks a page's home for the page, as in the paper.
MGS_OWN_READS = "--mgrun-option=--mgs=reads=message"
# The paper's MGS fetches no page before it is asked for.
NO_PREFETCHING = "--mgrun-option=--prefetch=0"
TRANSFORMATIONS = {
    "water-kernel": ["tiled"],
    "barnes": ["concurrent-alloc", "distributed-freelist", "early-release"],
    "tsp": ["distributed-pool"],
    "unstructured-kernel": ["runtime-tiled", "load-balanced"],
}
PROCESSORS = 32


class Study(PaperStudy):
    def slowed(self, name):
        """The options of processors as slow as the paper's are with the program."""
        scale = self.scale(name, self.program(name), PAPER[name][0] / HERTZ * 1e9)
        return ["--clock-scale", f"{scale:.0f},{PROTOCOL_SCALE}", "--skew", "1ms"]

    def machine(self, name, slowed):
        return [
            "--procs",
            str(PROCESSORS),
            "--net",
            "mgs",
            MGS_OWN_READS,
            NO_PREFETCHING,
            *(self.slowed(name) if slowed else ()),
        ]

    def scales(self):
        """How slow the emulated processors are, and how sure that is: the spread of the time of one processor here, from
        moment to moment."""
        print("| application | scale | spread |")
        print("|---|---:|---:|")
        for name in PAPER:
            scale = self.scale(name, self.program(name), PAPER[name][0] / HERTZ * 1e9)
            print(f"| {name} | {scale:.0f} | {spread_text(self.scale_spread(name))} |", flush=True)

    def families(self, slowed):
        print(
            "| application | "
            + " | ".join(f"C = {c} (spread)" for c in sizes())
            + " | speedup of C = 32 | the paper's | breakup penalty | the paper's | | multigrain potential | the paper's | "
            "| class | the paper's | |"
        )
        print("|---|" + "---:|" * len(sizes()) + "---:|---:|" + "---:|---|---|" * 2 + "---|---|---|")
        for name, (alone, together, grain, penalty, potential) in PAPER.items():
            if not grain:
                continue
            kind = "alewife" if slowed else "today"
            study = self.run(f"{kind}-{name}", "family", *self.machine(name, slowed), "--", *self.program(name))
            own = study["metrics"][0]
            scale_spread = self.scale_spread(name) if slowed else 0.0
            whole = next((point for point in own_points(study, 0) if point["node_size"] == PROCESSORS), None)
            cells = [name, times(study, 0), quotient(own["sequential_ns"], whole and whole["elapsed_ns"])]
            cells.append(f"{alone / together:.1f}")
            for metric, theirs in (("breakup_penalty", penalty), ("multigrain_potential", potential)):
                cells += [percent(own[metric]), theirs.text]
                cells.append(metric_verdict(study, metric, theirs, scale_spread) if slowed else NONE)
            cells += [own["grain"] or "failed", grain, grain_verdict(study, grain) if slowed else NONE]
            row(*cells)

    def breakdowns(self, slowed):
        kind = "alewife" if slowed else "today"
        print("| application | C | user | data wait | lock | barrier | protocol |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for name, (_, _, grain, _, _) in PAPER.items():
            if not grain:
                continue
            with open(os.path.join(self.options.out, f"{kind}-{name}.json"), encoding="utf-8") as file:
                study = json.load(file)
            for point in own_points(study, 0):
                parts = " | ".join(
                    f"{100 * point['mean_ns'][part] / point['elapsed_ns']:.0f}%"
                    for part in ("user", "data_wait", "lock", "barrier", "protocol")
                )
                print(f"| {name} | {point['node_size']} | {parts} |")

    def transformations(self):
        print("| application | " + " | ".join(f"C = {c} (spread)" for c in sizes()) + " |")
        print("|---|" + "---:|" * len(sizes()))
        for name, variants in TRANSFORMATIONS.items():
            added = [argument for variant in variants for argument in ("--add-args", f"--variant {variant}")]
            study = self.run(
                f"transformed-{name}", "compare", *self.machine(name, True), *added, "--", *self.program(name)
            )
            for index, variant in enumerate(["original", *variants]):
                print(f"| {name}, {variant} | {times(study, index)} |", flush=True)

    def latencies(self):
        print("| application | C | 4.75 us | 50 us (spread) | 100 us | 500 us | 1 ms | slope | the paper's |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|---|")
        for label, name, extra in (
            ("jacobi", "jacobi", []),
            ("water", "water", []),
            ("water-kernel, original", "water-kernel", []),
            ("water-kernel, tiled", "water-kernel", ["--variant", "tiled"]),
        ):
            study = self.run(
                f"latency-{label.replace(' ', '').replace(',', '-')}",
                "latency",
                *self.machine(name, True),
                "--latencies",
                ",".join(f"{latency}ns" for latency in LATENCIES),
                "--",
                *self.program(name),
                *extra,
            )
            for index, slope in enumerate(study["slopes"]):
                points = {
                    point["latency_ns"]: point
                    for point in study["points"]
                    if point.get("elapsed_ns") and point["node_size"] == slope["node_size"]
                }
                cells = [
                    increase_text(points, latency) if latency != BASE_LATENCY else base_text(points.get(latency))
                    for latency in LATENCIES
                ]
                theirs = [
                    f"{latency // 1000} us: {figures[index]:+.1%}, "
                    f"{increase_verdict(points, latency, figures[index], self.scale_spread(name))}"
                    for latency, figures in PAPER_LATENCIES.get(label, {}).items()
                ]
                row(label, str(slope["node_size"]), *cells, f"{slope['slope']:.0f}", "; ".join(theirs) or NONE)


def increase(points, latency):
    """By which part the time at the latency is more than that at the base, and the spread of that; None if a run failed."""
    base, point = points.get(BASE_LATENCY), points.get(latency)
    if not base or not point:
        return None, None
    least, most = point["low_ns"] / base["high_ns"], point["high_ns"] / base["low_ns"]
    return point["elapsed_ns"] / base["elapsed_ns"] - 1, most - least


def increase_text(points, latency):
    value, spread = increase(points, latency)
    return "failed" if value is None else f"{value:+.1%} (spread {100 * spread:.0f} %)"


def increase_verdict(points, latency, theirs, scale_spread):
    value, spread = increase(points, latency)
    runs = runs_of(points[each] for each in (BASE_LATENCY, latency) if each in points)
    return verdict(value, None if spread is None else spread + abs(value) * scale_spread, about(theirs), runs)


def base_text(point):
    return f"{point['elapsed_ns'] / 1e6:.0f} ms ({spread_text(relative_spread(point))})" if point else "failed"


def own_points(study, index):
    """Those of the family that did not fail, of one series."""
    return [
        point
        for point in study["points"]
        if point["role"] == "family" and point["series"] == study["series"][index] and point.get("elapsed_ns")
    ]


def sizes():
    return [1, 2, 4, 8, 16, 32]


def times(study, index):
    found = {point["node_size"]: point for point in own_points(study, index)}
    return " | ".join(time_text(found.get(c)) for c in sizes())


def time_text(point):
    if point is None:
        return "failed"
    time = point["elapsed_ns"]
    text = f"{time / 1e9:.3g} s" if time >= 1e9 else f"{time / 1e6:.3g} ms"
    return f"{text} ({spread_text(relative_spread(point))})"


def main():
    parser = parser_of(__doc__, out="mgs-study", repetitions=5)
    parser.add_argument(
        "sections", nargs="*", help="some of: families, transformations, latencies, today (default all)"
    )
    options = parser.parse_args()
    study = Study(options)
    wanted = options.sections or ["families", "transformations", "latencies", "today"]
    if "families" in wanted:
        print("## Figures 6 to 13, with processors as slow as the paper's\n")
        study.scales()
        print()
        study.families(True)
        print()
        study.breakdowns(True)
    if "transformations" in wanted:
        print("\n## Figures 14 to 17\n")
        study.transformations()
    if "latencies" in wanted:
        print("\n## Figures 18 to 20\n")
        study.latencies()
    if "today" in wanted:
        print("\n## Today's processors\n")
        study.families(False)


if __name__ == "__main__":
    main()
