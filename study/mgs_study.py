#!/usr/bin/env python3
"""Repeats the MGS paper's figures 6 to 20 on this system, and prints the tables of docs/studies/mgs-study.md.

usage: mgs_study.py [--bin DIR] [--cache DIR] [--out DIR] [--repetitions N] [SECTION...]

Every application is run at the paper's size on 32 processors in nodes of 1 to 32, 50 us apart, in virtual time, on two
machines: one whose processors are slowed down until a single one takes as long as one of Alewife's with software
virtual memory (Table 3, SVM-Seq) and its protocol as long as MGS's, and one with today's. Results are kept and used again by
mgstudy; JSON and HTML reports are left in --out.
"""

import json
import os

from paper_study import PaperStudy, parser_of, percent

# Table 3, SVM-Seq: cycles at 20 MHz of one processor; and the paper's class, breakup penalty and multigrain potential,
# where the text of section 5.3 gives them.
PAPER = {
    "jacobi": (1618916600, "coarse", "negative", "small"),
    "matmul": (3080884002, "coarse", "small", "small"),
    "fft": (491769198, "coarse", "small", "small"),
    "gauss": (5034851631, "coarse", "small", "negative"),
    "water": (1960029691, "medium", "159%", "82%"),
    "barnes": (976160390, "medium", "231%", "76%"),
    "tsp": (53485523, "fine", "large", "large"),
    "unstructured": (1260702520, "fine", "large", "large"),
    "water-kernel": (1532197479, "", "", ""),
    "unstructured-kernel": (204001329, "", "", ""),
}
HERTZ = 20e6
# A remote read miss is 11772 cycles (Table 1), less two latencies of 1000; ours takes 5.5 us of CPU on both sides.
PROTOCOL_SCALE = 90
# A node asks a page's home for the page, as in the paper.
MGS_OWN_READS = "--mgrun-option=--mgs=reads=message"
TRANSFORMATIONS = {
    "water-kernel": ["tiled"],
    "barnes": ["concurrent-alloc", "distributed-freelist", "early-release"],
    "tsp": ["distributed-pool"],
    "unstructured-kernel": ["runtime-tiled", "load-balanced"],
}
PROCESSORS = 32


class Study(PaperStudy):
    def machine(self, name, slowed):
        if not slowed:
            return ["--procs", str(PROCESSORS), "--net", "mgs", MGS_OWN_READS]
        scale = self.scale(name, self.program(name), PAPER[name][0] / HERTZ * 1e9)
        return [
            "--procs",
            str(PROCESSORS),
            "--net",
            "mgs",
            MGS_OWN_READS,
            "--clock-scale",
            f"{scale:.0f},{PROTOCOL_SCALE}",
            "--skew",
            "1ms",
        ]

    def families(self, slowed):
        print(
            "| application | "
            + " | ".join(f"C = {c}" for c in sizes())
            + " | breakup penalty | the paper's | multigrain potential | the paper's | class | the paper's |"
        )
        print("|---|" + "---:|" * len(sizes()) + "---:|---|---:|---|---|---|")
        for name, (_, grain, penalty, potential) in PAPER.items():
            if not grain:
                continue
            kind = "alewife" if slowed else "today"
            study = self.run(f"{kind}-{name}", "family", *self.machine(name, slowed), "--", *self.program(name))
            metrics = study["metrics"][0]
            print(
                f"| {name} | {times(study, 0)} | {percent(metrics['breakup_penalty'])} | {penalty} "
                f"| {percent(metrics['multigrain_potential'])} | {potential} | {metrics['grain']} | {grain} |",
                flush=True,
            )

    def breakdowns(self, slowed):
        kind = "alewife" if slowed else "today"
        print("| application | C | user | data wait | lock | barrier | protocol |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for name, (_, grain, _, _) in PAPER.items():
            if not grain:
                continue
            with open(os.path.join(self.options.out, f"{kind}-{name}.json"), encoding="utf-8") as file:
                study = json.load(file)
            for point in study["points"]:
                if point["role"] != "family" or point["node_size"] not in (1, 4, 16, 32) or not point.get("elapsed_ns"):
                    continue
                parts = " | ".join(
                    f"{100 * point['mean_ns'][part] / point['elapsed_ns']:.0f}%"
                    for part in ("user", "data_wait", "lock", "barrier", "protocol")
                )
                print(f"| {name} | {point['node_size']} | {parts} |")

    def transformations(self):
        print("| application | " + " | ".join(f"C = {c}" for c in sizes()) + " |")
        print("|---|" + "---:|" * len(sizes()))
        for name, variants in TRANSFORMATIONS.items():
            added = [argument for variant in variants for argument in ("--add-args", f"--variant {variant}")]
            study = self.run(
                f"transformed-{name}", "compare", *self.machine(name, True), *added, "--", *self.program(name)
            )
            for index, variant in enumerate(["original", *variants]):
                print(f"| {name}, {variant} | {times(study, index)} |", flush=True)

    def latencies(self):
        # Not slowed down as far as above, or latency would drown in what caches do to the program's own time; and Jacobi with
        # more to do between barriers.
        print("| application | C | 4.75 us | 50 us | 100 us | 500 us | 1 ms | slope |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        for label, name, extra in (
            ("jacobi, 2048 x 2048", "jacobi", ["-n", "2048"]),
            ("water", "water", []),
            ("water-kernel, original", "water-kernel", []),
            ("water-kernel, tiled", "water-kernel", ["--variant", "tiled"]),
        ):
            study = self.run(
                f"latency-{label.replace(' ', '').replace(',', '-')}",
                "latency",
                "--procs",
                str(PROCESSORS),
                "--net",
                "mgs",
                MGS_OWN_READS,
                "--clock-scale",
                "100",
                "--skew",
                "100us",
                "--latencies",
                "4750ns,50us,100us,500us,1ms",
                "--",
                *self.program(name),
                *extra,
            )
            for slope in study["slopes"]:
                points = {
                    point["latency_ns"]: point["elapsed_ns"]
                    for point in study["points"]
                    if point.get("elapsed_ns") and point["node_size"] == slope["node_size"]
                }
                base = points[50_000]
                cells = " | ".join(
                    f"{points[latency] / base - 1:+.1%}" if latency != 50_000 else f"{base / 1e6:.0f} ms"
                    for latency in (4_750, 50_000, 100_000, 500_000, 1_000_000)
                )
                print(f"| {label} | {slope['node_size']} | {cells} | {slope['slope']:.0f} |", flush=True)


def sizes():
    return [1, 2, 4, 8, 16, 32]


def times(study, index):
    label = study["series"][index]
    found = {
        point["node_size"]: point["elapsed_ns"]
        for point in study["points"]
        if point["role"] == "family" and point["series"] == label and point.get("elapsed_ns")
    }
    return " | ".join(
        f"{found[c] / 1e9:.3g} s"
        if c in found and found[c] >= 1e9
        else f"{found[c] / 1e6:.3g} ms"
        if c in found
        else "failed"
        for c in sizes()
    )


def main():
    parser = parser_of(__doc__, out="mgs-study", repetitions=3)
    parser.add_argument(
        "sections", nargs="*", help="some of: families, transformations, latencies, today (default all)"
    )
    options = parser.parse_args()
    study = Study(options)
    wanted = options.sections or ["families", "transformations", "latencies", "today"]
    if "families" in wanted:
        print("## Figures 6 to 13, with processors as slow as the paper's\n")
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
