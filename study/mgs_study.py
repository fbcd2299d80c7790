#!/usr/bin/env python3
"""Repeats Table 3 and figures 6 to 20 of the MGS paper in counted time, and prints the tables of docs/studies/mgs-study.md.

usage: mgs_study.py [--bin DIR] [--cache DIR] [--out DIR] [--jobs N] [--skew TIME] [--size test|paper] [--only NAME,NAME]
                    [--doc FILE] [SECTION...]

Every application runs at the paper's size on 32 processors in nodes of 1 to 32, on the machine alewife, whose Table 1 `mgbench
--clock counted --machine alewife` prints: mgs as the paper has it, with pages of 1 KiB and translation by compiled code. Then the same
with processors on which a single one takes as long as the paper's, without and with translation: the machine's prices of instructions
and of translation, each times a factor that Table 3 gives. Programs are those of the target translated_workloads. Results are kept
in --cache and used again by mgstudy; JSON and HTML reports are left in --out. Sections: translation, table3, families, figures,
slowed, experiments, transformations, latencies, breakdowns; all if none is named.
"""

import json
import os

from paper_study import NONE, TABLES, CountedStudy, counted_parser, head, percent, quotient, row, run_study, slowed

APPLICATIONS = ("jacobi", "matmul", "fft", "gauss", "water", "barnes", "tsp", "unstructured")
TRANSFORMATIONS = {
    "water-kernel": ("tiled",),
    "tsp": ("distributed-pool",),
    "barnes": ("concurrent-alloc", "distributed-freelist", "early-release"),
    "unstructured-kernel": ("runtime-tiled", "load-balanced"),
}
LATENCIES = ("4750ns", "50us", "100us", "500us", "1ms")
# Of the kernels the paper has no time without translation.
KERNELS = ("water-kernel", "unstructured-kernel")
OF_LATENCY = {"jacobi": ("jacobi",), "water": ("water",), "water-kernel": ("water-kernel", "--variant", "tiled")}
EXPERIMENTS = {
    "water": ("water",),
    "water-pairwise": ("water", "--variant", "pairwise"),
    "tsp": ("tsp",),
    "unstructured": ("unstructured",),
    "unstructured-ordered": ("unstructured", "--variant", "ordered"),
}
PROCESSORS = 32
SIZES = (1, 2, 4, 8, 16, 32)
CYCLE = 50  # ns
COMPILED = ("--protocol", "mgs", "--page-size", "1024", "--mgrun-option=--mgs=translation=compiled")
# The same program on the hardware's pages: nothing is charged for its translations.
HARDWARE = ("--protocol", "mgs", "--prefetch", "0", "--mgrun-option=--mgs=translation=hardware")


def sequential_of(table):
    """Millions of cycles of one processor, by application."""
    with open(os.path.join(TABLES, table), encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    return {row["of"]["program"]: row["theirs"] / 1e6 for row in rows if row["what"] == "sequential"}


def free(*prices):
    """A change of a machine: these cost nothing."""

    def change(description):
        for price in prices:
            description["costs"][price] = {"value": 0, "source": "an experiment"}

    return change


def handlers_of_each(description):
    """A change of a machine: each processor handles messages."""
    description["handlers"] = {"value": "each processor", "source": "an experiment"}


# By what is changed: what becomes of the machine, and options.
CHANGES = {
    "nothing": (None, ()),
    "no latency": (None, ("--net", "latency=0ns")),
    "locks that cost nothing": (free("lock_acquire", "lock_release", "lock_ask", "lock_pass", "node_miss"), ()),
    "translation fills that cost nothing": (free("fault_entry", "translation_fill", "queue_page"), ()),
    "invalidation that costs nothing": (free("revoke_call", "release"), ()),
    "moving pages costs nothing": (free("twin_byte", "diff_make_byte", "diff_apply_byte", "send_byte"), ()),
    "messages that cost nothing": (free("message_send", "message_receive", "transition"), ()),
    "each processor handles messages": (handlers_of_each, ()),
    "pages of 4 KiB": (None, ("--page-size", "4096")),
    "four pages read ahead": (None, ("--prefetch", "4")),
}


SEQ, SVM_SEQ = sequential_of("mgs-table3-hardware.json"), sequential_of("mgs-table3.json")


class Study(CountedStudy):
    machine = "alewife"

    def names(self, names):
        only = self.options.only
        return [name for name in names if not only or name in only.split(",")]

    def command(self, name, *arguments):
        path = os.path.join(self.options.bin, "workloads", "translated", name)
        return [path, "--size", self.options.size, *arguments]

    def path(self, label):
        return os.path.join(self.options.out, f"{label}.json")

    def points(self, label, name, *options, sizes=SIZES, variant=(), machine=None):
        return self.family(
            label, self.command(name, *variant), PROCESSORS, "--node-sizes", ",".join(map(str, sizes)), *options,
            machine=machine,
        )  # fmt: skip

    def translated(self, name, machine=None):
        return self.points(f"{name}{'-slowed' if machine else ''}", name, *COMPILED, machine=machine)

    def whole(self, name, options):
        """One processor and one node of all."""
        kind = "translated" if options is COMPILED else "hardware"
        return self.points(f"{name}-{kind}-whole", name, *options, sizes=(PROCESSORS,))

    def translation(self):
        """Table 3: translation, millions of cycles on one processor"""
        head("", ["Seq", "paper", "paper / ours", "SVM-Seq - Seq", "paper", "paper / ours", "Ovhd", "paper"])
        for name in self.names((*APPLICATIONS, *KERNELS)):
            seq, svm = (cycles(self.whole(name, options).get(0)) for options in (HARDWARE, COMPILED))
            their_seq, their_svm = SEQ.get(name), SVM_SEQ[name]
            added, theirs = svm and seq and svm - seq, None if their_seq is None else their_svm - their_seq
            row(
                name,
                figure(seq),
                figure(their_seq),
                quotient(their_seq, seq) if their_seq else NONE,
                figure(added),
                figure(theirs),
                quotient(theirs, added) if theirs else NONE,
                quotient(svm, seq),
                quotient(their_svm, their_seq) if their_seq else NONE,
            )

    def table3(self):
        """Table 3 against the paper: without translation (Seq, Sp1), and with it (SVM-Seq, SVM-Par, Sp2)"""
        for table, options, kind in (
            ("mgs-table3-hardware.json", HARDWARE, "hardware"), ("mgs-table3.json", COMPILED, "translated")
        ):  # fmt: skip
            names = self.names((*APPLICATIONS, *KERNELS))
            for name in names:
                self.whole(name, options)
            self.against(table, self.made(names, f"-{kind}-whole"))
            print()

    def table(self, of_name):
        head("", [*(f"C = {size}, s" for size in SIZES), "Sp2", "breakup penalty", "multigrain potential"])
        for name in self.names(APPLICATIONS):
            points = of_name(name)
            half = time_of(points, PROCESSORS // 2)
            row(
                name,
                *(seconds(time_of(points, size)) for size in SIZES),
                quotient(time_of(points, 0), time_of(points, PROCESSORS)),
                more(half, time_of(points, PROCESSORS)),
                more(time_of(points, 1), half),
            )

    def families(self):
        """Figures 6 to 13: the machine as its description has it"""
        self.table(self.translated)

    def figures(self):
        """Figures 6 to 13 against the paper: the machine as its description has it"""
        self.against("mgs-figures.json", self.made(APPLICATIONS))

    def made(self, names, suffix=""):
        return [f"{name}{suffix}" for name in self.names(names) if os.path.exists(self.path(f"{name}{suffix}"))]

    def slowed_of(self, name):
        """The machine on which one processor takes Table 3's times, without and with translation; None if that is not known."""
        seq, svm = (cycles(self.whole(name, options).get(0)) for options in (HARDWARE, COMPILED))
        their_seq, their_svm = SEQ.get(name), SVM_SEQ[name]
        if not seq or not svm or their_seq is None:
            return None
        # FFT was no slower with translation than without.
        own, translation = their_seq / seq, max(their_svm - their_seq, 0) / (svm - seq)

        def slow(description):
            processor = description["processor"]
            for part, factor in (("instructions", own), ("calls", own), ("translation", translation)):
                processor[part] = {key: slowed(value, factor) for key, value in processor[part].items()}

        what = f"alewife, instructions {own:.4g} times as long, translations {translation:.4g} times"
        return self.changed_machine(f"alewife-{name}", what, slow)

    def slowed(self):
        """Figures 6 to 13 with processors on which one takes the paper's times, without and with translation"""
        names = self.names(APPLICATIONS)
        machines = {name: self.slowed_of(name) for name in names}
        self.table(lambda name: self.translated(name, machines[name]) if machines[name] else {})
        print("\nAgainst the paper:\n")
        self.against("mgs-figures.json", self.made(APPLICATIONS, "-slowed"), "slowed")

    def experiments(self):
        """Experiments: what makes Water, TSP and Unstructured differ, with processors on which one takes the paper's times"""
        sizes = (1, PROCESSORS // 2, PROCESSORS)
        head(
            "", ["what is changed", *(f"C = {size}, s" for size in sizes), "breakup penalty", "multigrain potential"], 1
        )
        for name in self.names(EXPERIMENTS):
            program, *variant = EXPERIMENTS[name]
            machine = self.slowed_of(program)
            if not machine:
                row(name, "", *["failed"] * 5)
                continue
            for what, (change, options) in CHANGES.items():
                word = what.replace(" ", "-").replace(",", "")
                other = self.changed_machine(f"alewife-{name}-{word}", what, change, machine) if change else machine
                points = self.points(
                    f"{name}-{word}", program, *COMPILED, *options, sizes=sizes, variant=variant, machine=other
                )
                alone, half, whole = (time_of(points, size) for size in sizes)
                times = map(seconds, (alone, half, whole))
                row(name, what, *times, more(half, whole), more(alone, half))

    def transformations(self):
        """Figures 14 to 17: what the transformations change, with the machine as its description has it"""
        head("", [*(f"C = {size}, s" for size in SIZES), "breakup penalty", "multigrain potential"])
        for name in self.names(TRANSFORMATIONS):
            for variant in ("original", *TRANSFORMATIONS[name]):
                arguments = () if variant == "original" else ("--variant", variant)
                points = self.points(f"{name}-{variant}", name, *COMPILED, variant=arguments)
                half = time_of(points, PROCESSORS // 2)
                row(
                    f"{name}, {variant}",
                    *(seconds(time_of(points, size)) for size in SIZES),
                    more(half, time_of(points, PROCESSORS)),
                    more(time_of(points, 1), half),
                )

    def latencies(self):
        """Figures 18 to 20: latency, with processors on which one takes the paper's times where Table 3 has them"""
        labels = []
        for name in self.names(OF_LATENCY):
            program, *variant = OF_LATENCY[name]
            # The kernel is water's, and has no Seq of its own.
            machine = self.slowed_of("water" if name == "water-kernel" else name)
            labels.append(f"{name}-latency")
            self.run(
                labels[-1], "latency", "--clock", "counted", "--machine", machine or self.machine, "--procs",
                str(PROCESSORS), *self.how(), "--net", "latency=50us", "--node-sizes", "1,4,16",
                "--latencies", ",".join(LATENCIES), *COMPILED, "--", *self.command(program, *variant),
            )  # fmt: skip
        self.against("mgs-latency.json", labels, "slowed")

    def breakdowns(self):
        """Where an average processor's time goes: the machine as its description has it"""
        parts = ("user", "data_wait", "lock", "barrier", "protocol")
        head("", ["C", *(part.replace("_", " ") for part in parts), "page faults", "translation fills alone"])
        for name in self.names(APPLICATIONS):
            for size, point in sorted(self.translated(name).items()):
                if size == 0:
                    continue
                counters = point["counters"]
                asked = sum(counters[which] for which in ("read_faults", "write_faults", "upgrades"))
                row(
                    name,
                    str(size),
                    *(percent(point["mean_ns"][part], point["elapsed_ns"]) for part in parts),
                    f"{asked}",
                    f"{counters['local_faults']}",
                )


def time_of(points, node_size):
    return points.get(node_size, {}).get("elapsed_ns")


def cycles(point):
    return point["elapsed_ns"] / CYCLE / 1e6 if point else None


def figure(value):
    return NONE if value is None else f"{value:,.1f}"


def seconds(nanoseconds):
    return f"{nanoseconds / 1e9:.3g}" if nanoseconds else "failed"


def more(time, than):
    return f"{100 * (time / than - 1):.0f}%" if time and than else "failed"


def main():
    sections = (
        "translation", "table3", "families", "figures", "slowed", "experiments", "transformations",
        "latencies", "breakdowns",
    )  # fmt: skip
    parser = counted_parser(__doc__, out="mgs-study")
    parser.set_defaults(skew=None)
    parser.add_argument("--size", choices=("test", "paper"), default="paper", help="of the problems (default paper)")
    parser.add_argument("--only", metavar="NAMES", help="of these applications, with commas between them")
    run_study(Study, parser, sections)


if __name__ == "__main__":
    main()
