#!/usr/bin/env python3
"""Repeats tables 1 and 3 and figures 3 and 4 of the Shasta paper on this system, and prints the tables of
docs/studies/shasta-study.md.

usage: shasta_study.py [--bin DIR] [--cache DIR] [--out DIR] [--repetitions N] [--size test|paper] [--doc FILE]
                       [SECTION...]

The applications run with the paper's problems, in virtual time, over the Memory Channel: on up to 4 processors in one
node, on 8 and 16 in nodes of 4 and of 1. Processors are slowed down until a single one takes as long as the paper's
(table 3); --protocol-scale slows down the protocol's work. Programs are those of the targets check_workloads and
sm_workloads: workloads/plain, fine, sm and sm-prefetch. Results are kept in --cache and used again by mgstudy; JSON and
HTML reports are left in --out. With --doc the tables also take the place of those in that page. Sections: locks,
overhead, speedups, synchronisation, models, nodes; all if none is named.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from typing import NamedTuple

from paper_study import PaperStudy, head, parser_of, percent, quotient, row, run_study


class Application(NamedTuple):
    program: str
    problem: tuple  # for --size paper
    seconds: float | None  # of table 3, for what `problem` is of the paper's; None: a processor as slow as with Barnes
    overhead: float  # table 3, of the miss checks
    code: float  # table 3, of the code's size
    slower: str  # section 6.4, text: 16 processors with the locks and barriers of binaries


APPLICATIONS = {
    # One of SPLASH-2's 4 time steps: the scale is of as much of the paper's time. Cells come from lists of the processors',
    # as SPLASH-2's do.
    "Barnes": Application(
        "barnes",
        ("-n", "16384", "--iterations", "1", "--variant", "distributed-freelist"),
        9.19 / 4,
        0.096,
        0.59,
        "2% to 10%",
    ),
    "LU-Contig": Application("lu", ("-n", "1024"), 9.97, 0.359, 0.57, "2% to 10%"),
    "Ocean (jacobi)": Application("jacobi", ("-n", "514", "--iterations", "20"), None, 0.313, 1.11, "34%"),
    "Volrend": Application(
        "volrend", ("--volume", "256", "--image", "416", "--iterations", "1"), 1.67, 0.023, 0.65, "50%"
    ),
    "Water-Nsq": Application("water", ("-n", "1000", "--iterations", "3"), 8.30, 0.236, 0.59, "2% to 10%"),
    "Water-Sp": Application("water-spatial", ("-n", "1728", "--iterations", "3"), 6.37, 0.265, 0.60, "2% to 10%"),
}
# Table 1, microseconds: messages, atomics, atomics with prefetch.
LOCKS = {"cached": (1.11, 1.88, 1.91), "uncontended miss": (15.63, 44.12, 25.70), "contended": (81.02, 136.48, 137.90)}
KINDS = ("MP lock", "SM lock", "SM lock, prefetch")
BUILDS = {"fine": "MP", "sm": "SM", "sm-prefetch": "SM with prefetch"}
PARTS = ("user", "data_wait", "lock", "barrier", "protocol")
NODE = 4  # processors, at most


class Study(PaperStudy):
    def command(self, name, build):
        application = APPLICATIONS[name]
        path = os.path.join(self.options.bin, "workloads", build, application.program)
        return [path, "--size", self.options.size, *(application.problem if self.options.size == "paper" else ())]

    def processor_scale(self, name):
        if APPLICATIONS[name].seconds is None:
            return self.processor_scale("Barnes")
        return self.scale(f"{name}-{self.options.size}", self.command(name, "plain"), APPLICATIONS[name].seconds * 1e9)

    def clock_scale(self, name):
        return f"{self.processor_scale(name):.1f},{self.options.protocol_scale:g}"

    def machine(self, name, build, processors, node=NODE, model="rc"):
        """What mgstudy has of `processors` in nodes of `node`; None if it failed."""
        nodes = max(1, processors // node)
        options = ["--clock-scale", self.clock_scale(name), "--skew", self.options.skew]
        if build != "plain":
            options += ["--net", "memory-channel", "--protocol", "shasta", f"--mgrun-option=--model={model}"]
        label = f"{APPLICATIONS[name].program}-{self.options.size}-{build}-{processors}-{nodes}-{model}"
        return self.point(label, processors, nodes, self.command(name, build), *options)

    def time(self, *machine, **options):
        point = self.machine(*machine, **options)
        return point["elapsed_ns"] if point else None

    def bench(self, *options):
        command = [
            os.path.join(self.options.bin, "mgbench"),
            "--protocol",
            "shasta",
            "--model",
            "rc",
            "--json",
            "--rounds",
            "4",
            *options,
        ]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"shasta_study: {' '.join(command)} ended with status {done.returncode}")
        return {name: one["p50_ns"] / 1e3 for name, one in json.loads(done.stdout)["blocks"].items()}

    def locks(self):
        """Table 1: acquiring a lock, and what else section 6 measures of the protocol, microseconds"""
        emulated = self.bench("--net", "memory-channel", "--clock-scale", self.clock_scale("Barnes"))
        here = self.bench()
        head("", ["emulated", "paper", "here, no network added"])
        fetch, fence = "64 bytes, two hops, the home polls", "fence, nothing outstanding"
        measured = [
            (f"{kind}: {what}", f"{kind}, {what}", theirs)
            for what, all_theirs in LOCKS.items()
            for kind, theirs in zip(KINDS, all_theirs)
        ]
        measured += [("64 bytes, two hops", fetch, 20), ("memory barrier, nothing outstanding", fence, 1.68)]
        for title, key, theirs in measured:
            row(title, f"{emulated[key]:.2f}", f"{theirs:.2f}", f"{here[key]:.3f}")

    def overhead(self):
        """Table 3: what checks cost on one processor of this machine, the shortest of nine runs"""
        head(
            "",
            [
                "without checks, ms",
                "with checks, ms",
                "overhead",
                "paper",
                "code size",
                "paper",
                "processors slower by",
            ],
        )
        for name, application in APPLICATIONS.items():
            # In turns, as this machine is slower at times.
            commands = ((self.command(name, "plain"), ()), (self.command(name, "fine"), ("--protocol", "shasta")))
            times = [[self.alone(command, *options) for command, options in commands] for _ in range(9)]
            plain, fine = map(min, zip(*times))
            code = self.code_size(name, "fine") / self.code_size(name, "plain")
            row(
                name,
                f"{plain / 1e6:.1f}",
                f"{fine / 1e6:.1f}",
                percent(fine - plain, plain),
                f"{application.overhead:.1%}",
                percent(code - 1, 1),
                f"{application.code:.0%}",
                f"{self.processor_scale(name):.0f}",
            )

    def code_size(self, name, build):
        """Bytes of a program's functions, without those of its command line, which no build puts checks into."""

        def functions(path):
            listing = subprocess.run(
                ["nm", "--print-size", "--defined-only", "--radix=d", path],
                check=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            ).stdout
            lines = (line.split() for line in listing.splitlines())
            return Counter({line[3]: int(line[1]) for line in lines if len(line) == 4 and line[2] in "tTwW"})

        others = functions(os.path.join(self.options.bin, "..", "lib", "libworkload_command_line.a"))
        return sum(size for name_of, size in functions(self.command(name, build)[0]).items() if name_of not in others)

    def speedups(self):
        """Figure 3: speedups over one processor without checks, in nodes of 4"""
        head(
            "",
            [
                title
                for build in ("fine", "sm")
                for title in (f"{p}, {BUILDS[build]}" for p in (1, 2, 4, 8, 16))
                if title != "1, SM"
            ],
        )
        for name in APPLICATIONS:
            alone = self.time(name, "plain", 1)
            row(
                name,
                quotient(alone, self.time(name, "fine", 1)),
                *(quotient(alone, self.time(name, build, p)) for build in ("fine", "sm") for p in (2, 4, 8, 16)),
            )

    def synchronisation(self):
        """What locks and barriers of atomics (SM) cost 16 processors"""
        head("", ["SM slower than MP by", "paper", "SM with prefetch slower than SM by", "paper"])
        for name, application in APPLICATIONS.items():
            messages, atomics, prefetched = (self.time(name, build, 16) for build in BUILDS)
            row(name, slower(atomics, messages), application.slower, slower(prefetched, atomics), "-7% to 20%")

    def models(self):
        """Figure 4: blocking (sc) and non-blocking stores (rc) on 16 nodes of one processor, time in percent of sc's"""
        head("", ["model", "time", *(part.replace("_", " ") for part in PARTS)], 1)
        for name in APPLICATIONS:
            points = {model: self.machine(name, "fine", 16, 1, model) for model in ("sc", "rc")}
            for model, point in points.items():
                if point is None or points["sc"] is None:
                    row(name, model, *["failed"] * (1 + len(PARTS)))
                    continue
                whole = points["sc"]["elapsed_ns"]
                row(
                    name,
                    model,
                    percent(point["elapsed_ns"], whole),
                    *(percent(point["mean_ns"][part], whole) for part in PARTS),
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
            alone = self.time(name, "plain", 1)
            for model in ("sc", "rc"):
                for node in (1, 2, 4):
                    point = self.machine(name, "fine", 8, node, model)
                    row(name, model, str(node), *(of_nodes(point, alone) if point else ["failed"] * 5))


def slower(time, than):
    return percent(time - than, than) if time and than else "failed"


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
    sections = ("locks", "overhead", "speedups", "synchronisation", "models", "nodes")
    parser = parser_of(__doc__, out="shasta-study", repetitions=1)
    parser.add_argument("--size", choices=("test", "paper"), default="paper", help="of the problems (default paper)")
    parser.add_argument(
        "--protocol-scale",
        type=float,
        default=8,
        help="how much slower the paper's processor did the protocol's work (default 8)",
    )
    parser.add_argument("--skew", default="500us", help="mgrun's (default 500us)")
    run_study(Study, parser, sections)


if __name__ == "__main__":
    main()
