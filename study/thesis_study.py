#!/usr/bin/env python3
"""Records workloads/traced, analyzes the traces, and puts the tables into docs/studies/thesis-study.md.

    study/thesis_study.py BUILD [--work DIRECTORY] [--programs sorbyr,gauss] [--document FILE] [--threads N] [--only-made]

BUILD is a build directory with the targets mgtrace and traced_programs. What exists in --work is not made again, so that
a study that was interrupted goes on; with --only-made, the tables have what there is. Needs nothing but Python's standard library. The table "times" says what it took.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import re
import resource
import subprocess
import sys


@dataclasses.dataclass(frozen=True)
class Program:
    theirs: str  # the thesis's trace whose place it takes
    program: str  # of workloads/traced
    arguments: str
    half: str  # with half as many threads


# The sizes are the thesis's (section 2.2), but for mp3d and water, which are other programs than SPLASH's, and matmult, whose
# 200 x 200 are an experiment: 144 million references. 7 threads and the main one are the 8 processors of the ACE.
# Merge sorts need a power of two, and only 8 threads give gauss bands of whole pages. The number of sweeps of the two SORs
# is not in the thesis.
PROGRAMS = {
    "sorbyr": Program(
        "sorbyr",
        "sor",
        "--threads 7 --size 406 --steps 20 --variant rows",
        "--threads 3 --size 406 --steps 20 --variant rows",
    ),
    "sorbyc": Program(
        "sorbyc",
        "sor",
        "--threads 7 --size 406 --steps 20 --variant cols",
        "--threads 3 --size 406 --steps 20 --variant cols",
    ),
    "gauss": Program("gauss", "gauss", "--threads 8 --size 512", "--threads 4 --size 512"),
    "matmult": Program(
        "matmult",
        "matmul",
        "--threads 7 --size 100 --variant timing",
        "--threads 3 --size 100 --variant timing",
    ),
    "bsort": Program(
        "bsort",
        "mergesort",
        "--threads 8 --size 163840 --variant pairs",
        "--threads 4 --size 163840 --variant pairs",
    ),
    "kmerge": Program(
        "kmerge",
        "mergesort",
        "--threads 8 --size 81920 --variant split",
        "--threads 4 --size 81920 --variant split",
    ),
    "mp3d": Program("mp3d", "mp3d", "--threads 7 --size 20000 --steps 20", "--threads 3 --size 20000 --steps 20"),
    "water": Program("water", "water", "--threads 7 --size 512 --steps 10", "--threads 3 --size 512 --steps 10"),
    "e-fft": Program("e-fft", "fft", "--threads 8 --size 256 --steps 1", "--threads 4 --size 256 --steps 1"),
    "p-gauss": Program(
        "p-gauss", "gauss", "--threads 7 --size 100 --variant columns", "--threads 3 --size 100 --variant columns"
    ),
    "p-qsort": Program("p-qsort", "quicksort", "--threads 7 --size 20000", "--threads 3 --size 20000"),
    "p-matmult": Program(
        "p-matmult", "matmul", "--threads 7 --size 100 --variant rows", "--threads 3 --size 100 --variant rows"
    ),
    "p-life": Program("p-life", "life", "--threads 7 --size 42 --steps 500", "--threads 3 --size 42 --steps 500"),
}

# The programs of chapter 3 that no later chapter uses (section 3.2.2): a program of workloads/traced, and its arguments. The
# thesis's primes are those up to 10,000,000.
CHAPTER_3 = {
    "ParMult": ("parmult", "--threads 7 --size 2000"),
    "Gfetch": ("gfetch", "--threads 7 --size 8 --steps 50"),
    "Primes1": ("primes", "--threads 7 --size 100000 --variant divide"),
    "Primes2": ("primes", "--threads 7 --size 100000 --variant list"),
    "Primes3": ("primes", "--threads 7 --size 1000000 --variant sieve"),
}

# One thing about a program changed, to see what follows from it: the program, its arguments, what has changed.
EXPERIMENTS = {
    "sorbyr, 10 sweeps": ("sorbyr", "--threads 7 --size 406 --steps 10 --variant rows", "half of the sweeps"),
    "sorbyr, 40 sweeps": ("sorbyr", "--threads 7 --size 406 --steps 40 --variant rows", "twice the sweeps"),
    "gauss, 256, 7 bands": ("gauss", "--threads 7 --size 256", "bands end inside pages; four rows a page"),
    "gauss, 256, 8 bands": ("gauss", "--threads 8 --size 256", "bands of whole pages; four rows a page"),
    "gauss, 512, 7 bands": ("gauss", "--threads 7 --size 512", "bands end inside pages; two rows a page"),
    "matmult, once": ("matmult", "--threads 7 --size 100 --variant bands", "one product instead of nine"),
    "matmult, 200": ("matmult", "--threads 7 --size 200 --variant timing", "the size of the thesis's text"),
    "bsort, 100000": ("bsort", "--threads 8 --size 100000 --variant pairs", "pieces of 12.2 pages"),
    "kmerge, 100000": ("kmerge", "--threads 8 --size 100000 --variant split", "pieces of 12.2 pages"),
    "p-qsort, 150000": ("p-qsort", "--threads 7 --size 150000", "7.5 times the elements"),
    "p-life, 256": ("p-life", "--threads 7 --size 256 --steps 20", "37 times the cells"),
}

SIZES = ["32", "64", "128", "256", "512", "1K", "2K", "4K", "8K"]
MACHINES = ["cc+", "cc", "numa", "dsm+", "dsm"]
# The head of a policy's column, and its name for mgtrace, in which TIMES stands for PLATINUM's t1 and t2.
POLICIES = {
    "ace": "ace",
    "delay": "delay",
    "platinum, in place": "platinum:TIMES",
    "platinum, in global memory": "platinum-global:TIMES",
    "platinum, back-off": "platinum-back-off:TIMES",
    "competitive": "competitive",
    "always-migrate": "always-migrate",
    "first-touch": "first-touch",
    "interleaved": "interleaved",
    "global": "global",
}
ONLY_WITH_GLOBAL_MEMORY = ("platinum, in global memory", "global")
# Other parameters of the thesis's three policies.
PARAMETERS = [
    *(f"ace:invalidations={count}" for count in (1, 2, 4, 8, 16, 64)),
    *(f"delay:references={count}" for count in (10, 25, 100, 400)),
    *(f"platinum:TIMES*{factor}" for factor in (0.1, 0.5, 1, 2, 10)),
]
# Section 6.3.3.
TLBS = ["ace", "68040", "68851", "88200", "68030", "r4000"]

# Seeds of perturbations (Table 4.1) and, of those, for policies; longer traces get fewer, and other parameters of policies
# are not tried with them.
SEEDS = (5, 3)
SEEDS_OF_LONG_TRACES = (1, 0)
LONG_TRACE = 16_000_000
# Neither TLBs nor false sharing of the longest: a hundred seconds of processor time do not suffice.
LONGEST_TRACE = 100_000_000

# Figures 5.4 and 5.5: a move costs 200 for the fault, whatever the transfer of a word costs, from nothing to as much as a
# reference to global (g) or remote memory (r); the last machine of each has 1000 more for the fault ("a less tightly coded
# kernel"). The ACE's own has 2 a word, the Butterfly's 3.
FAULT = 200
TRANSFERS = {"ace": [0, 1 / 8, 1 / 4, 1 / 2, 1, 2], "butterfly": [0, 3 / 8, 3 / 4, 3 / 2, 3, 6, 15]}
MORE_FAULT = 1000

# A reference to local memory takes 0.65 us to read and 0.84 us to write on the ACE (section 3.1.1), and programs spend
# this part of their time with them (beta of Table 3.1; of the others the mean of e-fft, gauss, e-nasa, e-hyd, plytrace).
READ_MICROSECONDS = 0.65
WRITE_MICROSECONDS = 0.84
BETA = {"e-fft": 0.56, "gauss": 0.55, "matmult": 0.26}
OTHER_BETA = (0.56 + 0.55 + 0.60 + 0.56 + 0.50) / 5

# Table 3.1: alpha (None: no reference to memory to speak of), beta, gamma; and G/L, 2.3 for programs that hardly write.
TABLE_3_1 = {
    "ParMult": (None, 0.00, 1.00, 2.0),
    "Gfetch": (0.0, 1.0, 2.27, 2.3),
    "matmult": (0.94, 0.26, 1.01, 2.3),
    "Primes1": (1.0, 0.06, 1.00, 2.0),
    "Primes2": (0.99, 0.16, 1.00, 2.0),
    "Primes3": (0.17, 0.36, 1.30, 2.0),
    "e-fft": (0.96, 0.56, 1.02, 2.0),
    "gauss": (0.98, 0.55, 1.01, 2.0),
}

# What the thesis says. Table 2.1: millions of references, of private ones, bytes a reference, per cent of reads.
TABLE_2_1 = {
    "e-fft": (10.1, 81.1, 2.18, 51),
    "gauss": (270, 0, 1.77, 83),
    "bsort": (23.6, 0, 1.65, 63),
    "kmerge": (10.9, 0, 1.67, 64),
    "sorbyc": (104, 0, 1.10, 79),
    "sorbyr": (104, 0, 1.04, 79),
    "matmult": (4.64, 0, 2.11, 97),
    "mp3d": (19.6, 0, 1.22, 57),
    "water": (82.1, 0, 1.10, 59),
    "p-gauss": (21.7, 4.91, 1.38, 65),
    "p-qsort": (17.5, 3.19, 1.31, 68),
    "p-matmult": (6.81, 0.238, 1.59, 96),
    "p-life": (55.9, 8.0, 1.63, 76),
}
# Table 4.1, in per cent: local perturbations on the ACE, the Butterfly, NUMA and CC, then gaps.
TABLE_4_1 = {
    "e-fft": (0.002, 0.012, 0.02, 0.4, 0, 0.18, 1, 0.3),
    "gauss": (0, 0, 0.003, 0.002, 0.02, 0.07, 0.4, 0.09),
    "bsort": (0, 0, 0, 0, 0, 0, 0.003, 0.001),
    "kmerge": (0, 0, 0.007, 0.01, 0, 0, 0.01, 0.004),
    "sorbyc": (0, 0.01, 0.001, 0.04, 0, 0.01, 0.02, 0.3),
    "sorbyr": (0, 0.007, 0.01, 0.01, 0, 0.07, 1.2, 0.09),
    "matmult": (0, 0.03, 0.3, 0.9, 0, 0.3, 0.2, 1),
    "mp3d": (0, 0, 0.8, 2.1, 0, 0.002, 1.1, 1.5),
    "water": (0, 0, 0.007, 0.001, 0.01, 0.006, 0.04, 0.02),
    "p-gauss": (0, 0, 0.05, 9.9, 0, 0.24, 1.6, 0.75),
    "p-qsort": (0, 0.01, 0.2, 10, 0, 0.24, 1.3, 0.4),
    "p-matmult": (0, 0.01, 0.08, 1.5, 0, 0.04, 1.3, 0.4),
    "p-life": (0, 0.005, 0.4, 9.6, 0.002, 0.34, 2, 0.4),
}
TABLE_4_1_MACHINES = ["ace", "butterfly", "numa", "cc"]
# Table 6.4, in per cent above CC+: CC, NUMA, DSM+, DSM.
TABLE_6_4 = {
    "e-fft": (10, 8, 73, 77),
    "gauss": (4, 1, 9, 11),
    "bsort": (1, 0, 1, 2),
    "kmerge": (3, 1, 2, 5),
    "sorbyc": (1, 2, 16, 17),
    "sorbyr": (0, 0, 1, 1),
    "matmult": (12, 10, 24, 39),
    "mp3d": (17, 37, 68, 68),
    "water": (2, 2, 4, 6),
    "p-gauss": (3, 33, 55, 55),
    "p-qsort": (3, 50, 64, 68),
    "p-matmult": (1, 12, 13, 14),
    "p-life": (3, 35, 49, 51),
}
# Table 6.5: NUMA at 4 KiB, at 128 bytes, and that with the TLB misses of the ACE and the R4000.
TABLE_6_5 = {
    "gauss": (1.14, 1.13, 1.41, 1.16),
    "bsort": (1.08, 1.33, 1.42, 1.50),
    "kmerge": (1.12, 1.46, 1.53, 1.56),
    "sorbyr": (1.04, 1.18, 1.62, 1.22),
    "matmult": (2.90, 1.52, 2.79, 6.09),
    "mp3d": (30.9, 11.7, 11.8, 11.8),
    "water": (1.40, 1.08, 1.10, 1.09),
    "p-gauss": (17.6, 6.18, 6.26, 6.21),
    "p-qsort": (14.4, 4.72, 4.78, 4.75),
    "p-life": (14.3, 4.98, 5.02, 5.04),
}


def variants(machine):
    """The machines of Figure 5.4 (the ACE) or 5.5 (the Butterfly): what a move costs on each, and its file's content."""
    transfers = TRANSFERS[machine]
    for number, word in enumerate([*transfers, transfers[-1]]):
        fixed = FAULT + (MORE_FAULT if number == len(transfers) else 0)
        move = {"fixed": fixed, "per_byte": word / 4}
        value = fixed + 1024 * word
        if machine == "ace":
            costs = {"r": 5, "g": 2, "G": move, "R": {key: 2 * cost for key, cost in move.items()}}
        else:
            costs = {"r": 15, "R": move}
        yield value, {"name": f"{machine}-{value:.0f}", "block_size": 4096, **costs}


class Study:
    def __init__(self, arguments):
        self.bin = pathlib.Path(arguments.build) / "bin"
        self.work = pathlib.Path(arguments.work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.threads = str(arguments.threads)
        self.only_made = arguments.only_made
        self.programs = arguments.programs.split(",") if arguments.programs else list(PROGRAMS)
        known = [*PROGRAMS, *CHAPTER_3]
        for name in self.programs:
            if name not in known:
                sys.exit(f"thesis_study: there is no program '{name}'; there are {', '.join(known)}")
        wanted = self.programs if arguments.programs else CHAPTER_3
        self.programs = [name for name in self.programs if name in PROGRAMS]
        for machine in ("ace", "butterfly"):
            for _, content in variants(machine):
                (self.work / f"{content['name']}.json").write_text(json.dumps(content))
        self.results = {name: self.run(name) for name in self.programs}
        self.results = {name: result for name, result in self.results.items() if result is not None}
        self.programs = [name for name in self.programs if name in self.results]
        self.chapter_3 = {name: self.on_ace(name) for name in CHAPTER_3 if name in wanted}
        self.experiments = {
            name: self.experiment(name) for name, (of, _, _) in EXPERIMENTS.items() if of in self.programs
        }

    def call(self, kind, made, *command):
        """Runs a command that makes the file `made`, and notes under `kind` what processor time it took."""
        print("+", " ".join(map(str, command)), file=sys.stderr, flush=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"thesis_study: {command[0]} ended with status {done.returncode}: {done.stderr.strip()}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        with (self.work / "times.txt").open("a") as times:
            times.write(f"{kind} {made.name} {seconds:.3f}\n")
        return done.stdout

    def load(self, path, make):
        """What `path` holds, which `make` makes; None if it is not there, and nothing is to be made."""
        if not path.exists():
            if self.only_made:
                return None
            make()
        return json.loads(path.read_text())

    def record(self, program, arguments, name):
        """The trace of a program, without the check at its end, which the thesis's programs had not. Returns what the
        recorder and `mgtrace info` say, the trace's path, and PLATINUM's times for it."""
        mgtrace = self.bin / "mgtrace"
        whole, part = self.work / f"{name}.whole.mgt", self.work / f"{name}.mgt"
        made = self.work / f"{name}.info.json"
        run = self.bin / "traced" / program

        def record():
            said = self.call(
                "record",
                whole,
                mgtrace,
                "record",
                "--force",
                "--json",
                "--baseline",
                run,
                "-o",
                whole,
                f"{run}.traced",
                *arguments.split(),
            )
            # The program says its line first.
            (self.work / f"{name}.record.json").write_text(said[said.index("{") :])

        def cut():
            facts = json.loads(self.call("cut", made, mgtrace, "info", "--full", "--json", whole))
            self.call(
                "cut",
                part,
                mgtrace,
                "filter",
                "--force",
                "--references",
                f"0-{facts['parallel']['end']}",
                whole,
                "-o",
                part,
            )
            of_part = json.loads(self.call("info", made, mgtrace, "info", "--full", "--json", part))
            of_part["alone"] = facts["parallel"]["begin"]
            made.write_text(json.dumps(of_part))
            whole.unlink()

        recorded = self.load(self.work / f"{name}.record.json", record)
        facts = self.load(made, cut)
        if recorded is None or facts is None:
            return None
        return {"record": recorded, "info": facts, "trace": part}

    def analyze(self, trace, name, kind, *options):
        path = self.work / f"{name}.{kind}.json"
        return self.load(
            path,
            lambda: self.call(
                kind.split("-")[0],
                path,
                self.bin / "mgtrace",
                "analyze",
                trace,
                "--threads",
                self.threads,
                *options,
                "--json",
                path,
            ),
        )

    def run(self, name):
        program = PROGRAMS[name]
        of = self.record(program.program, program.arguments, name)
        if of is None:
            return None
        times = platinum_times(program.theirs, of["info"])
        is_long = of["info"]["references"] > LONG_TRACE
        is_longest = of["info"]["references"] > LONGEST_TRACE
        seeds, policy_seeds = SEEDS_OF_LONG_TRACES if is_long else SEEDS

        def analyze(kind, *options):
            return self.analyze(of["trace"], name, kind, "--hot-blocks", "0", *options)

        def vary(machine):
            files = ",".join(str(self.work / f"{content['name']}.json") for _, content in variants(machine))
            return analyze(f"vary-{machine}", "--machine", files, "--block-size", "4K")

        return of | {
            "times": times,
            "half": self.half(name),
            "sweep": analyze(
                "sweep",
                "--machine",
                ",".join(MACHINES),
                "--block-size",
                ",".join(SIZES),
                *([] if is_longest else ["--tlb", ",".join(TLBS), "--false-sharing", "--attribute-at", "4K"]),
            ),
            "policies": analyze(
                "policies",
                "--machine",
                "ace,butterfly",
                "--block-size",
                "4K",
                "--policy",
                ",".join(with_times(text, times) for text in POLICIES.values()),
                "--perturb",
                str(policy_seeds),
            ),
            "parameters": None
            if is_long
            else analyze(
                "parameters",
                "--machine",
                "ace,butterfly",
                "--block-size",
                "4K",
                "--policy",
                ",".join(with_times(text, times) for text in PARAMETERS),
            ),
            "spreads": self.complete(
                analyze(
                    f"spread-{seed}",
                    "--machine",
                    ",".join(TABLE_4_1_MACHINES),
                    "--block-size",
                    "4K",
                    "--perturb",
                    "1",
                    "--seed",
                    str(seed),
                )
                for seed in range(1, seeds + 1)
            ),
            "vary-ace": vary("ace"),
            "vary-butterfly": vary("butterfly"),
            "o_s": analyze("o_s", "--machine", "cc+,numa,dsm+,dsm", "--block-size", "512", "--vary", "o_s"),
        }

    def on_ace(self, name):
        """The ACE policy on the ACE, with a program of chapter 3."""
        of = self.record(*CHAPTER_3[name], name)
        if of is None:
            return None
        return self.analyze(
            of["trace"], name, "ace", "--machine", "ace", "--block-size", "4K", "--policy", "ace", "--hot-blocks", "0"
        )

    def complete(self, documents):
        """A list of documents; None if there are none."""
        return [document for document in documents if document is not None] or None

    def half(self, name):
        """The same with half as many processors: fewer analyses."""
        program = PROGRAMS[name]
        of = self.record(program.program, program.half, f"{name}-half")
        if of is None:
            return None
        sweep = self.analyze(
            of["trace"],
            f"{name}-half",
            "half",
            "--machine",
            ",".join(MACHINES),
            "--block-size",
            "64,512,4K",
            "--hot-blocks",
            "0",
        )
        return None if sweep is None else {"sweep": sweep}

    def experiment(self, name):
        of, arguments, _ = EXPERIMENTS[name]
        file = re.sub("[^a-z0-9]+", "-", name)
        recorded = self.record(PROGRAMS[of].program, arguments, file)
        if recorded is None:
            return None
        times = platinum_times(PROGRAMS[of].theirs, recorded["info"])
        result = recorded | {"times": times}
        # Policies suit the ACE and the Butterfly; a machine of chapter 6 needs none.
        result["sweep"] = self.analyze(
            recorded["trace"],
            file,
            "experiment-sweep",
            "--machine",
            "cc,numa,dsm",
            "--block-size",
            "64,128,512,4K",
            "--hot-blocks",
            "0",
        )
        result["policies"] = self.analyze(
            recorded["trace"],
            file,
            "experiment-policies",
            "--machine",
            "ace,butterfly",
            "--block-size",
            "4K",
            "--policy",
            ",".join(with_times(POLICIES[each], times) for each in POLICIES if each.startswith(("ace", "platinum"))),
            "--hot-blocks",
            "0",
        )
        return result

    def mcpr(self, name, machine, size, half=False):
        """MCPR of optimal placement in the sweep."""
        result = self.results[name]["half"] if half else self.results[name]
        return self.block_size(result, machine, size)["mcpr"]

    def block_size(self, result, machine, size):
        for entry in result["sweep"]["block_sizes"]:
            if entry["machine"] == machine and entry["block_size"] == size:
                return entry
        raise KeyError((machine, size))

    def policy(self, result, machine, policy, kind="policies"):
        """The result of a policy, named as for mgtrace or "optimal", in an analysis."""
        text = with_times(policy, result["times"])
        for entry in result[kind]["machines"]:
            if entry["machine"]["name"] == machine:
                for found in entry["results"]:
                    if found["policy"] == text:
                        return found
        raise KeyError((machine, policy))


def lengths(facts):
    """Of a trace: how many references it has, private ones included, and how many the processor makes that ends last."""
    each = [entry["reads"] + entry["writes"] + entry["private"] for entry in facts["per_processor"]]
    # The main thread, processor 0, begins alone.
    return sum(each), max(each[0], facts["alone"] + max(each[1:], default=0))


def seconds_on_ace(program, facts):
    """How long the run would have taken on the ACE if all references were local."""
    reads = sum(entry["reads"] for entry in facts["per_processor"])
    part = reads / facts["references"]
    microseconds = part * READ_MICROSECONDS + (1 - part) * WRITE_MICROSECONDS
    return lengths(facts)[1] * microseconds / BETA.get(program, OTHER_BETA) / 1e6


def platinum_times(program, facts):
    """10 ms and 1 s in references of this program on the ACE."""
    rate = lengths(facts)[0] / seconds_on_ace(program, facts)
    return round(rate * 0.01), round(rate)


def with_times(text, times):
    """A policy's name for mgtrace, with PLATINUM's t1 and t2 for TIMES or, multiplied, for TIMES*FACTOR."""
    name, _, rest = text.partition("TIMES")
    if name == text:
        return text
    factor = float(rest[1:]) if rest else 1
    return f"{name}t1={round(times[0] * factor)}:t2={round(times[1] * factor)}"


def bytes_of(text):
    return int(text[:-1]) * 1024 if text.endswith("K") else int(text)


BYTES = [bytes_of(size) for size in SIZES]


def number(value):
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}"


def percent(value):
    """Of a perturbation; as the thesis, less than 0.001 % is nothing."""
    if value is None:
        return "from 0"
    return "0" if value < 0.001 else f"{value:.2g}" if value < 9.95 else f"{value:.0f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def mean(values):
    """The geometric mean."""
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def having(study, part, of_sweep=None):
    """The programs of which there is that analysis and, in the sweep, "tlb" or "false_sharing"."""
    names = [name for name in study.programs if study.results[name][part] is not None]
    return [name for name in names if of_sweep is None or study.results[name][part][of_sweep] is not None]


def traces(study):
    rows = []
    for name, result in study.results.items():
        facts, record = result["info"], result["record"]
        reads = sum(each["reads"] for each in facts["per_processor"])
        private = sum(each["private"] for each in facts["per_processor"])
        of = TABLE_2_1[PROGRAMS[name].theirs]
        rows.append(
            [
                name,
                f"{PROGRAMS[name].program} {PROGRAMS[name].arguments}",
                facts["processors"],
                f"{facts['references'] / 1e6:.2f} ({of[0]})",
                f"{private / 1e6:.2f} ({of[1]})",
                f"{100 * reads / facts['references']:.0f} % ({of[3]} %)",
                f"{facts['bytes'] / facts['references']:.3f} ({of[2]})",
                f"{record['dilation']:.0f}",
            ]
        )
    head = ["trace", "program", "processors", "references, M", "private, M", "reads", "bytes a reference", "dilation"]
    return table(head, rows)


def rates(study):
    rows = []
    for name, result in study.results.items():
        every, longest = lengths(result["info"])
        seconds = seconds_on_ace(PROGRAMS[name].theirs, result["info"])
        rows.append(
            [
                name,
                f"{every / longest:.1f}",
                f"{seconds:.1f}",
                f"{every / seconds / 1e6:.2f}",
                f"{result['times'][0]:,}",
                f"{result['times'][1]:,}",
            ]
        )
    return table(["trace", "processors at work", "seconds on the ACE", "M references a second", "t1", "t2"], rows)


def shares_saved(study, machine, policies, kind="policies"):
    """What each policy saves over the worst placement, by program: (saved, what optimal saves, what the spreads of the
    two costs are)."""
    worst = "global" if machine == "ace" else "interleaved"
    saved = {}
    for name in having(study, kind):
        result = study.results[name]
        if result["policies"] is None:
            continue
        optimal = study.policy(result, machine, "optimal")["mcpr"]
        bound = study.policy(result, machine, worst)["mcpr"]
        for policy in policies:
            found = study.policy(result, machine, policy, kind)
            spread = max((value for value in (found["spread"] or {}).values() if value is not None), default=0)
            saved.setdefault(policy, []).append((bound - found["mcpr"], bound - optimal, found["mcpr"] * spread / 100))
    return saved


def ratio_of_sums(each):
    return f"{100 * sum(s for s, _, _ in each) / sum(o for _, o, _ in each):.0f} %"


def mean_of_ratios(each, least=0.0):
    ratios = [100 * s / o for s, o, _ in each if o > least]
    return f"{sum(ratios) / len(ratios):.0f} %" if ratios else ""


def shift(each):
    """How far perturbations move the ratio of sums if they all move it to one side."""
    return f"± {100 * sum(d for _, _, d in each) / sum(o for _, o, _ in each):.1g} %"


LITTLE = 0.1


def references_of(result):
    """Private ones included, which are local."""
    return sum(result["parts"][part] for part in ("local", "global", "remote"))


def alpha(result):
    """The part of all references that is local."""
    return result["parts"]["local"] / references_of(result)


def expansion(local, beta, global_to_local):
    """Equation 3.2: how many times as long a program takes as with all its memory local, where the part `local` of its
    references is local."""
    return 1 - beta + beta * (local + (1 - local) * global_to_local)


def table_3_1(study):
    rows = []
    for name, (theirs, beta, gamma, ratio) in TABLE_3_1.items():
        analyzed = study.chapter_3.get(name) or study.results.get(name, {}).get("policies")
        if analyzed is None:
            continue
        machine = next(entry for entry in analyzed["machines"] if entry["machine"]["name"] == "ace")
        result = next(entry for entry in machine["results"] if entry["policy"] == "ace")
        ours = alpha(result)
        rows.append(
            [
                name,
                f"{references_of(result) / 1e6:.2f}",
                f"{ours:.2f} ({'na' if theirs is None else f'{theirs:.2f}'})",
                f"{beta:.2f}",
                f"{expansion(ours, beta, ratio):.2f} ({gamma:.2f})",
            ]
        )
    return table(["program", "references, M", "α", "β, theirs", "γ"], rows)


def policies(study, machine):
    heads = [each for each in POLICIES if machine == "ace" or each not in ONLY_WITH_GLOBAL_MEMORY]
    texts = ["optimal"] + [POLICIES[each] for each in heads]
    rows = []
    for name in having(study, "policies"):
        rows.append([name] + [number(study.policy(study.results[name], machine, text)["mcpr"]) for text in texts])
    saved = shares_saved(study, machine, texts)
    rows.append(["**ratio of sums**"] + [ratio_of_sums(saved[text]) for text in texts])
    rows.append(["perturbations move it by"] + [shift(saved[text]) for text in texts])
    rows.append(["**mean of ratios**"] + [mean_of_ratios(saved[text]) for text in texts])
    rows.append([f"of those where optimal saves {LITTLE}"] + [mean_of_ratios(saved[text], LITTLE) for text in texts])
    return table(["trace", "optimal"] + heads, rows)


def parameters(study):
    saved = {machine: shares_saved(study, machine, PARAMETERS, "parameters") for machine in ("ace", "butterfly")}
    rows = []
    for policy in PARAMETERS:
        row = [policy.replace("TIMES*", "t1, t2 times ")]
        for machine in ("ace", "butterfly"):
            row += [ratio_of_sums(saved[machine][policy]), mean_of_ratios(saved[machine][policy], LITTLE)]
        rows.append(row)
    mean_head = f"mean of ratios (optimal saves {LITTLE})"
    return table(
        ["policy", "ACE: ratio of sums", f"ACE: {mean_head}", "Butterfly: ratio of sums", f"Butterfly: {mean_head}"],
        rows,
    )


def spread_of(study, name, machine, kind):
    """The largest change of optimal's cost over the seeds, in per cent."""
    worst = 0.0
    for document in study.results[name]["spreads"]:
        entry = next(each for each in document["machines"] if each["machine"]["name"] == machine)
        worst = max(worst, entry["results"][0]["spread"][kind] or 0.0)
    return worst


def perturbed_optimal(study):
    rows = []
    for name in having(study, "spreads"):
        of = TABLE_4_1[PROGRAMS[name].theirs]
        row = [name, len(study.results[name]["spreads"])]
        for k, kind in enumerate(("local", "gap")):
            for m, machine in enumerate(TABLE_4_1_MACHINES):
                row.append(f"{percent(spread_of(study, name, machine, kind))} ({of[4 * k + m]:g})")
        rows.append(row)
    head = [f"{kind}: {machine}" for kind in ("local", "gap") for machine in ("ACE", "Butterfly", "NUMA", "CC")]
    return table(["trace", "seeds"] + head, rows)


def perturbed_policies(study):
    """The larger of the local and the gap spread, by policy."""
    columns = [
        (machine, head)
        for machine in ("ace", "butterfly")
        for head in ("ace", "delay", "platinum, in place", "platinum, in global memory", "competitive", "first-touch")
        if machine == "ace" or head not in ONLY_WITH_GLOBAL_MEMORY
    ]
    rows = []
    for name in having(study, "policies"):
        row = [name]
        for machine, head in columns:
            spread = study.policy(study.results[name], machine, POLICIES[head])["spread"]
            known = [value for value in (spread or {}).values() if value is not None]
            row.append(percent(max(known)) if known else "")
        rows.append(row)
    names = {"ace": "ACE", "butterfly": "Butterfly"}
    return table(["trace"] + [f"{names[machine]}: {head}" for machine, head in columns], rows)


def seeds(study):
    """Figure 4.4: each seed's local perturbation on CC, for the programs that differ most."""
    names = [name for name in having(study, "spreads") if len(study.results[name]["spreads"]) > 1]
    names.sort(key=lambda name: -spread_of(study, name, "cc", "local"))
    rows = []
    for name in names[:5]:
        row = [name]
        for document in study.results[name]["spreads"]:
            entry = next(each for each in document["machines"] if each["machine"]["name"] == "cc")
            row.append(f"{entry['results'][0]['spread']['local']:.3g}")
        rows.append(row)
    return table(["trace"] + [f"seed {seed}" for seed in range(1, max(map(len, rows), default=1))], rows)


def base(study):
    return table(
        ["trace", "CC+", "CC", "NUMA", "DSM+", "DSM"],
        [
            [name]
            + [number(study.mcpr(name, machine, 64 if machine.startswith("cc") else 4096)) for machine in MACHINES]
            for name in having(study, "sweep")
        ],
    )


def same(study):
    rows = []
    names = having(study, "sweep")
    for name in names:
        values = [study.mcpr(name, machine, 512) for machine in MACHINES]
        rows.append(
            [name]
            + [number(value) for value in values]
            + [f"{values[2] / values[0]:.2f}", f"{values[2] / values[1]:.2f}"]
        )
    rows.append(
        ["geometric mean"]
        + [number(mean(study.mcpr(name, machine, 512) for name in names)) for machine in MACHINES]
        + [
            f"{mean(study.mcpr(n, 'numa', 512) / study.mcpr(n, other, 512) for n in names):.2f}"
            for other in ("cc+", "cc")
        ]
    )
    return table(["trace", "CC+", "CC", "NUMA", "DSM+", "DSM", "NUMA / CC+", "NUMA / CC"], rows)


def half(study):
    rows = []
    for name in having(study, "half"):
        values = {
            (machine, size): study.mcpr(name, machine, size, half=True)
            for machine in MACHINES
            for size in (64, 512, 4096)
        }
        rows.append(
            [name]
            + [number(values[machine, 64 if machine.startswith("cc") else 4096]) for machine in MACHINES]
            + [f"{values['numa', 512] / values['cc+', 512]:.2f}", f"{values['numa', 512] / values['cc', 512]:.2f}"]
        )
    return table(["trace", "CC+", "CC", "NUMA", "DSM+", "DSM", "NUMA / CC+, 512", "NUMA / CC, 512"], rows)


def sweep(study, machine):
    rows = []
    for name in having(study, "sweep"):
        values = [study.mcpr(name, machine, size) for size in BYTES]
        best = values.index(min(values))
        rows.append(
            [name]
            + [f"**{number(value)}**" if i == best else number(value) for i, value in enumerate(values)]
            + [f"{values[BYTES.index(4096)] / values[best]:.1f}"]
        )
    return table(["trace"] + SIZES + ["4K / best"], rows)


def dominant(study):
    """How far the block size moves the MCPR of one machine, against how far the machine does at one block size."""
    rows = []
    for name in having(study, "sweep"):
        by_size = {machine: [study.mcpr(name, machine, size) for size in BYTES] for machine in MACHINES}
        sizes = mean(max(values) / min(values) for values in by_size.values())
        # The step from the worst of the fast machines to the best of the slow ones would flatter; all five count.
        machines = mean(
            max(by_size[m][i] for m in MACHINES) / min(by_size[m][i] for m in MACHINES) for i in range(len(BYTES))
        )
        rows.append([name, f"{sizes:.2f}", f"{machines:.2f}", "block size" if sizes > machines else "machine"])
    return table(["trace", "worst / best block size", "worst / best machine", "larger"], rows)


def best(study):
    rows = []
    for name in having(study, "sweep"):
        lowest = {machine: min((study.mcpr(name, machine, size), size) for size in BYTES) for machine in MACHINES}
        of = TABLE_6_4[PROGRAMS[name].theirs]
        row = [name, number(lowest["cc+"][0])]
        for i, machine in enumerate(["cc", "numa", "dsm+", "dsm"]):
            row.append(f"{100 * (lowest[machine][0] / lowest['cc+'][0] - 1):.0f} % ({of[i]} %)")
        rows.append(row + [", ".join(SIZES[BYTES.index(lowest[machine][1])] for machine in MACHINES)])
    return table(
        [
            "trace",
            "CC+",
            "CC (theirs)",
            "NUMA (theirs)",
            "DSM+ (theirs)",
            "DSM (theirs)",
            "best block sizes, CC+ to DSM",
        ],
        rows,
    )


def remote(study):
    rows = []
    names = having(study, "sweep")
    for label, without, with_it in (
        ("CC / CC+", "cc", "cc+"),
        ("DSM / NUMA", "dsm", "numa"),
        ("DSM / DSM+", "dsm", "dsm+"),
    ):
        rows.append(
            [label]
            + [f"{mean(study.mcpr(n, without, s) / study.mcpr(n, with_it, s) for n in names):.2f}" for s in BYTES]
        )
    return table(["geometric mean of"] + SIZES, rows)


def sor(study):
    rows = []
    for machine in ("cc+", "numa", "dsm"):
        for name in ("sorbyr", "sorbyc"):
            rows.append([f"{name}, {machine.upper()}"] + [number(study.mcpr(name, machine, size)) for size in BYTES])
    return table(["MCPR of"] + SIZES, rows)


def entries_of(study, name, machine):
    """What a move costs, its machine's entry in the study, and optimal placement there; from cheap to dear moves."""
    documents = {entry["machine"]["name"]: entry for entry in study.results[name][f"vary-{machine}"]["machines"]}
    for value, content in variants(machine):
        entry = documents[content["name"]]
        yield value, entry, entry["results"][0]


def moves_a_page(entry, result):
    return (result["parts"]["remote_moves"] + result["parts"]["global_moves"]) / entry["blocks"]


def vary(study, machine):
    rows = []
    for name in having(study, f"vary-{machine}"):
        rows.append(
            [name]
            + [
                f"{number(optimal['mcpr'])} ({moves_a_page(entry, optimal):.2g})"
                for _, entry, optimal in entries_of(study, name, machine)
            ]
        )
    letter = "G" if machine == "ace" else "R"
    return table([f"{letter} ="] + [f"{value:.0f}" for value, _ in variants(machine)], rows)


def sor_moves(study):
    """Figure 5.7: what the optimal cost is made of as G grows, and policies beside it, which are straight lines: the
    placements that they choose do not depend on what a move costs."""
    lines = ["ace", "delay", "platinum, in place", "platinum, in global memory"]
    rows = []
    for value, entry, optimal in entries_of(study, "sorbyr", "ace"):
        areas = optimal["areas"]
        row = [
            f"{value:.0f}",
            f"{optimal['mcpr']:.4f}",
            f"{areas['local']:.3f}",
            f"{areas['global']:.3f}",
            f"{areas['remote']:.3f}",
            f"{areas['overhead'] + areas['data_transfer']:.3f}",
            f"{moves_a_page(entry, optimal):.2f}",
        ]
        for head in lines:
            parts = study.policy(study.results["sorbyr"], "ace", POLICIES[head])["parts"]
            references = parts["local"] + parts["global"] + parts["remote"]
            cost = parts["local"] + 2 * parts["global"] + 5 * parts["remote"]
            cost += value * parts["global_moves"] + 2 * value * parts["remote_moves"]
            row.append(f"{cost / references:.4f}")
        rows.append(row)
    return table(["G", "optimal MCPR", "local", "global", "remote", "moves", "moves a page"] + lines, rows)


def overhead(study):
    names = having(study, "o_s")
    first = [e for e in study.results[names[0]]["o_s"]["parameters"] if e["machine"] == "numa"]
    rows = []
    for machine in ("numa", "dsm+", "dsm"):
        for name in ("sorbyr", "e-fft", "p-qsort", "mp3d"):
            if name in names:
                rows.append(
                    [f"{name}, {machine.upper()}"]
                    + [number(e["mcpr"]) for e in study.results[name]["o_s"]["parameters"] if e["machine"] == machine]
                )
    return table(["o_s ="] + [f"{e['value']:g}" for e in first], rows)


def tlb(study):
    rows = []
    better = [0, 0, 0]
    names = having(study, "sweep", "tlb")
    for name in names:
        found = {
            entry["page_size"]: entry
            for entry in study.results[name]["sweep"]["tlb"]["corrected"]
            if entry["machine"] == "numa"
        }
        large, small = found[4096], found[128]
        # As in Table 6.5: what misses add beyond those with pages of 4 KiB.
        costs = [small["mcpr"]] + [
            small["corrected"][each] - (large["corrected"][each] - large["mcpr"]) for each in ("ace", "r4000")
        ]
        better = [count + (cost < large["mcpr"]) for count, cost in zip(better, costs)]
        of = TABLE_6_5.get(PROGRAMS[name].theirs)
        rows.append(
            [
                name,
                number(large["mcpr"]),
                *map(number, costs),
                ", ".join(map(str, of)) if of else "not given",
            ]
        )
    rows.append(["better than 4 KiB", ""] + [f"{count} of {len(names)}" for count in better] + ["11, 10 and 9 of 14"])
    return table(["trace", "4 KiB", "128 bytes", "with the ACE's TLB", "with the R4000's", "theirs"], rows)


def miss_rates(study, name, design):
    entry = next(each for each in study.results[name]["sweep"]["tlb"]["miss_rates"] if each["tlb"] == design)
    return {rate["page_size"]: rate["rate"] for rate in entry["rates"]}


def tlb_rates(study):
    rows = []
    for name in having(study, "sweep", "tlb"):
        row = [name]
        for design in TLBS:
            of = miss_rates(study, name, design)
            row.append(f"{100 * of[128]:.2g} / {100 * of[4096]:.2g}")
        rows.append(row)
    return table(["per cent of references that miss, 128 bytes / 4 KiB"] + TLBS, rows)


def tlb_pages(study):
    rows = []
    for name in ("sorbyr", "matmult", "mp3d", "p-qsort"):
        if name not in having(study, "sweep", "tlb"):
            continue
        for design in TLBS:
            of = miss_rates(study, name, design)
            rows.append([f"{name}, {design}"] + [f"{100 * of[size]:.2g}" for size in BYTES])
    return table(["per cent of references that miss"] + SIZES, rows)


def shares(study):
    """False sharing's bounds on the move costs of CC (a machine without remote reference), in per cent."""
    rows = []
    for name in having(study, "sweep", "false_sharing"):
        row = [name]
        for entry in study.results[name]["sweep"]["false_sharing"]["block_sizes"]:
            if entry["block_size"] not in (64, 512, 4096):
                continue
            cc = next(each for each in entry["machines"] if each["machine"] == "cc")
            moves = cc["overhead"] + cc["data_transfer"]
            if moves == 0:
                row.append("no moves")
                continue
            lower = max(cc["lower"], cc["interval_lower"], 0.0)
            row.append(f"{100 * lower / moves:.0f} to {100 * cc['upper'] / moves:.0f} %")
        rows.append(row)
    return table(["trace", "64", "512", "4K"], rows)


def components(study, machine):
    """Figures 7.2 to 7.5: what moves cost, split by equation 7.1 and, where there are remote references, those."""
    rows = []
    for name in having(study, "sweep"):
        areas = {size: study.block_size(study.results[name], machine, size)["areas"] for size in BYTES}
        cells = []
        for size in (32, 128, 1024, 4096, 8192):
            remote_part = f" + {areas[size]['remote']:.3f}" if machine == "numa" else ""
            cells.append(f"{areas[size]['overhead']:.3f} + {areas[size]['data_transfer']:.3f}{remote_part}")
        ratios = [
            f"{areas[8192]['data_transfer'] / areas[size]['data_transfer']:.1f}" if areas[size]["data_transfer"] else ""
            for size in (1024, 128, 32)
        ]
        rows.append([name] + cells + ratios)
    what = "overhead + data" + (" + remote" if machine == "numa" else "")
    return table(
        [
            f"trace, {machine.upper()}: {what}",
            "32",
            "128",
            "1K",
            "4K",
            "8K",
            "data 8K/1K (8)",
            "8K/128 (64)",
            "8K/32 (256)",
        ],
        rows,
    )


def causes(study):
    rows = []
    for name in having(study, "sweep", "false_sharing"):
        attribution = study.results[name]["sweep"]["false_sharing"]["attribution"]
        moves = attribution["moves"]
        total = moves["cold"] + moves["useful"] + moves["false"]
        plans = study.results[name]["sweep"]["false_sharing"]["plans"]
        saved = max(plans, key=lambda each: each["saved_mcpr"], default=None)
        groups = {each["group"]: each for each in attribution["groups"]}
        worst = max(attribution["groups"], key=lambda each: each["moves"]["false"], default=None)
        what = (
            ""
            if saved is None or saved["saved_mcpr"] < 0.005
            else (
                f"{saved['change']}, "
                + ("everything" if saved["group"] is None else groups[saved["group"]]["name"])
                + f": {saved['saved_mcpr']:.2f}"
            )
        )
        cause = next(iter(attribution["causes"]), None)
        sites = (
            ""
            if cause is None or not cause["victim_site"] or not cause["culprit_site"]
            else " against ".join(
                f"{pathlib.Path(cause[key]['file']).name}:{cause[key]['line']}"
                for key in ("victim_site", "culprit_site")
            )
        )
        rows.append(
            [
                name,
                f"{100 * moves['cold'] / total:.0f} / {100 * moves['useful'] / total:.0f} / "
                f"{100 * moves['false'] / total:.0f} %",
                worst["name"] if worst and worst["moves"]["false"] else "",
                sites,
                what,
            ]
        )
    return table(
        [
            "trace",
            "cold / useful / false moves",
            "allocation hit most",
            "by lines (use against write)",
            "best change; MCPR saved, moves as dear as CC's at 4 KiB",
        ],
        rows,
    )


def experiments(study):
    rows = []

    def row(label, what, result):
        rows.append(
            [label, what]
            + [number(study.block_size(result, machine, size)["mcpr"]) for machine, size in columns]
            + [number(study.policy(result, "ace", text)["mcpr"]) for text in texts]
        )

    columns = [("cc", 64), ("numa", 128), ("numa", 512), ("numa", 4096), ("dsm", 4096)]
    heads = ["ace", "platinum, in place", "platinum, in global memory"]
    texts = ["optimal"] + [POLICIES[each] for each in heads]
    last = None
    for name, (of, _, what) in EXPERIMENTS.items():
        result = study.experiments.get(name)
        if any(each is None or None in (each["sweep"], each["policies"]) for each in (result, study.results.get(of))):
            continue
        if of != last:
            row(f"**{of}**", "the study's", study.results[of])
        row(name, what, result)
        last = of
    return table(
        ["trace", "what has changed", "CC 64", "NUMA 128", "NUMA 512", "NUMA 4K", "DSM 4K", "ACE: optimal"] + heads,
        rows,
    )


def times(study):
    # What was made twice counts once, as it was made last.
    last = {}
    for line in (study.work / "times.txt").read_text().splitlines():
        kind, made, seconds = line.split()
        last[kind, made] = float(seconds)
    spent = {}
    for (kind, _), seconds in last.items():
        spent[kind] = spent.get(kind, 0.0) + seconds
    what = {
        "record": "recording (all runs)",
        "cut": "cutting off what follows the parallel part",
        "info": "counting references",
        "sweep": "block sizes, TLBs, false sharing",
        "policies": "policies, perturbed",
        "parameters": "their parameters",
        "spread": "optimal placement, perturbed",
        "vary": "what a move costs",
        "o_s": "slower software",
        "half": "half as many processors",
        "experiment": "one thing changed",
    }
    rows = [[what[kind], f"{seconds:.0f}"] for kind, seconds in spent.items()]
    return table(["", "seconds of processor time"], rows + [["all", f"{sum(spent.values()):.0f}"]])


TABLES = {
    "traces": traces,
    "rates": rates,
    "table-3-1": table_3_1,
    "perturbed-optimal": perturbed_optimal,
    "seeds": seeds,
    "perturbed-policies": perturbed_policies,
    "policies-ace": lambda study: policies(study, "ace"),
    "policies-butterfly": lambda study: policies(study, "butterfly"),
    "parameters": parameters,
    "vary-ace": lambda study: vary(study, "ace"),
    "vary-butterfly": lambda study: vary(study, "butterfly"),
    "sor-moves": sor_moves,
    "base": base,
    "same": same,
    "half": half,
    "sweep-cc+": lambda study: sweep(study, "cc+"),
    "sweep-cc": lambda study: sweep(study, "cc"),
    "sweep-numa": lambda study: sweep(study, "numa"),
    "sweep-dsm+": lambda study: sweep(study, "dsm+"),
    "sweep-dsm": lambda study: sweep(study, "dsm"),
    "dominant": dominant,
    "best": best,
    "remote": remote,
    "sor": sor,
    "o_s": overhead,
    "tlb": tlb,
    "tlb-rates": tlb_rates,
    "tlb-pages": tlb_pages,
    "components-cc": lambda study: components(study, "cc"),
    "components-numa": lambda study: components(study, "numa"),
    "shares": shares,
    "causes": causes,
    "experiments": experiments,
    "times": times,
}
# What has no table without these programs, and an analysis of them.
NEEDS = {"sor": ({"sorbyr", "sorbyc"}, "sweep"), "sor-moves": ({"sorbyr"}, "vary-ace")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", help="a build directory")
    parser.add_argument("--work", default="thesis-study", help="where traces and results go; default thesis-study")
    parser.add_argument("--programs", help="only these, separated by commas")
    parser.add_argument(
        "--document", help="a file in which the tables are put between their marks; else they are printed"
    )
    parser.add_argument("--only-made", action="store_true", help="make nothing: tables of what there is in --work")
    parser.add_argument("--threads", type=int, default=2, help="that compute optimal placements; default 2")
    arguments = parser.parse_args()
    study = Study(arguments)
    text = pathlib.Path(arguments.document).read_text() if arguments.document else None
    for name, make in TABLES.items():
        if not (study.chapter_3 if name == "table-3-1" else study.programs):
            continue
        if name in NEEDS and not NEEDS[name][0] <= set(having(study, NEEDS[name][1])):
            continue
        made = make(study)
        if text is None:
            print(f"\n{name}\n\n{made}")
            continue
        pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.S)
        if not pattern.search(text):
            print(f"thesis_study: {arguments.document} has no place for '{name}'", file=sys.stderr)
        text = pattern.sub(lambda match: match.group(1) + "\n" + made + "\n\n" + match.group(2), text)
    if text is not None:
        pathlib.Path(arguments.document).write_text(text)


if __name__ == "__main__":
    main()
