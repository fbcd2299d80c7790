#!/usr/bin/env python3
"""Records workloads/traced, analyzes the traces, and puts the tables into docs/studies/thesis-study.md.

    study/thesis_study.py BUILD [--work DIRECTORY] [--programs sorbyr,gauss] [--document FILE] [--threads N]

BUILD is a build directory with the targets mgtrace and traced_programs. What exists in --work is not made again, so that
a study that was interrupted goes on. Needs nothing but Python's standard library; ten minutes of processor time.
"""

import argparse
import json
import math
import pathlib
import re
import subprocess
import sys

# Our program, the thesis's trace in whose style it is, its arguments. 7 threads and the main one are the 8 processors of
# the ACE; merge sorts need a power of two.
PROGRAMS = {
    "sorbyr": ("sorbyr", "sor", "--threads 7 --size 510 --steps 10 --variant rows"),
    "sorbyc": ("sorbyc", "sor", "--threads 7 --size 510 --steps 10 --variant cols"),
    "gauss": ("gauss", "gauss", "--threads 7 --size 256"),
    "matmult": ("matmult", "matmul", "--threads 7 --size 160"),
    "bsort": ("bsort", "mergesort", "--threads 8 --size 100000 --variant pairs"),
    "kmerge": ("kmerge", "mergesort", "--threads 8 --size 100000 --variant split"),
    "mp3d": ("mp3d", "mp3d", "--threads 7 --size 20000 --steps 20"),
    "water": ("water", "water", "--threads 7 --size 512 --steps 10"),
    "qsort": ("p-qsort", "quicksort", "--threads 7 --size 150000"),
    "life": ("p-life", "life", "--threads 7 --size 256 --steps 20"),
}
SIZES = ["32", "64", "128", "256", "512", "1K", "2K", "4K", "8K"]
MACHINES = ["cc+", "cc", "numa", "dsm+", "dsm"]
POLICIES = ["ace", "delay", "platinum", "platinum-back-off", "competitive", "always-migrate", "interleaved", "global"]

# What the thesis says.
TABLE_2_1 = {
    "gauss": 1.77,
    "bsort": 1.65,
    "kmerge": 1.67,
    "sorbyc": 1.10,
    "sorbyr": 1.04,
    "matmult": 2.11,
    "mp3d": 1.22,
    "water": 1.10,
    "p-qsort": 1.31,
    "p-life": 1.63,
}
# Table 6.4, in per cent above CC+: CC, NUMA, DSM+, DSM.
TABLE_6_4 = {
    "gauss": (4, 1, 9, 11),
    "bsort": (1, 0, 1, 2),
    "kmerge": (3, 1, 2, 5),
    "sorbyc": (1, 2, 16, 17),
    "sorbyr": (0, 0, 1, 1),
    "matmult": (12, 10, 24, 39),
    "mp3d": (17, 37, 68, 68),
    "water": (2, 2, 4, 6),
    "p-qsort": (3, 50, 64, 68),
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
    "p-qsort": (14.4, 4.72, 4.78, 4.75),
    "p-life": (14.3, 4.98, 5.02, 5.04),
}


class Study:
    def __init__(self, arguments):
        self.bin = pathlib.Path(arguments.build) / "bin"
        self.work = pathlib.Path(arguments.work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.threads = str(arguments.threads)
        self.programs = arguments.programs.split(",") if arguments.programs else list(PROGRAMS)
        for name in self.programs:
            if name not in PROGRAMS:
                sys.exit(f"thesis_study: there is no program '{name}'; there are {', '.join(PROGRAMS)}")
        self.results = {name: self.run(name) for name in self.programs}

    def call(self, *command):
        print("+", " ".join(map(str, command)), file=sys.stderr, flush=True)
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"thesis_study: {command[0]} ended with status {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def load(self, path, make):
        if not path.exists():
            make()
        return json.loads(path.read_text())

    def run(self, name):
        return self.run_with(name, PROGRAMS[name][2], name) | {"half": self.run_half(name)}

    def run_half(self, name):
        """The same with half as many processors: fewer analyses."""
        arguments = PROGRAMS[name][2].replace("--threads 7", "--threads 3").replace("--threads 8", "--threads 4")
        return self.run_with(name, arguments, f"{name}-half", whole_study=False)

    def run_with(self, program_name, arguments, name, whole_study=True):
        mgtrace = self.bin / "mgtrace"
        whole, part = self.work / f"{name}.whole.mgt", self.work / f"{name}.mgt"
        _, program, _ = PROGRAMS[program_name]
        run = self.bin / "traced" / program

        def record():
            said = self.call(
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
            # The check at the end is ours; the thesis's programs had none.
            facts = json.loads(self.call(mgtrace, "info", "--full", "--json", whole))
            (self.work / f"{name}.info.json").write_text(json.dumps(facts))
            self.call(mgtrace, "filter", "--force", "--references", f"0-{facts['parallel']['end']}", whole, "-o", part)

        def analyze(kind, *options):
            path = self.work / f"{name}.{kind}.json"
            return self.load(
                path, lambda: self.call(mgtrace, "analyze", part, "--threads", self.threads, *options, "--json", path)
            )

        recorded = self.load(self.work / f"{name}.record.json", record)
        self.load(self.work / f"{name}.info.json", cut)
        if not whole_study:
            return {
                "sweep": analyze(
                    "sweep", "--machine", ",".join(MACHINES), "--block-size", "64,512,4K", "--hot-blocks", "0"
                )
            }
        return {
            "record": recorded,
            "info": json.loads(self.call(mgtrace, "info", "--full", "--json", part)),
            "sweep": analyze(
                "sweep",
                "--machine",
                ",".join(MACHINES),
                "--block-size",
                ",".join(SIZES),
                "--tlb",
                "ace,r4000",
                "--false-sharing",
                "--attribute-at",
                "4K",
                "--hot-blocks",
                "5",
            ),
            "policies": analyze(
                "policies",
                "--machine",
                "ace,butterfly",
                "--block-size",
                "4K",
                "--policy",
                ",".join(POLICIES),
                "--hot-blocks",
                "0",
                "--perturb",
                "1",
            ),
            "vary": analyze(
                "vary", "--machine", "ace,butterfly", "--block-size", "4K", "--vary", "G,R", "--hot-blocks", "0"
            ),
            "o_s": analyze(
                "o_s", "--machine", "cc+,numa,dsm+,dsm", "--block-size", "512", "--vary", "o_s", "--hot-blocks", "0"
            ),
        }

    # MCPR of optimal placement in the sweep.
    def mcpr(self, name, machine, size, half=False):
        result = self.results[name]["half"] if half else self.results[name]
        for entry in result["sweep"]["block_sizes"]:
            if entry["machine"] == machine and entry["block_size"] == size:
                return entry["mcpr"]
        raise KeyError((name, machine, size))

    def policy(self, name, machine, policy):
        for entry in self.results[name]["policies"]["machines"]:
            if entry["machine"]["name"] == machine:
                for result in entry["results"]:
                    if result["policy"] == policy:
                        return result
        return None


def bytes_of(text):
    return int(text[:-1]) * 1024 if text.endswith("K") else int(text)


BYTES = [bytes_of(size) for size in SIZES]


def number(value):
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def traces(study):
    rows = []
    for name, result in study.results.items():
        facts, record = result["info"], result["record"]
        reads = sum(each["reads"] for each in facts["per_processor"])
        rows.append(
            [
                name,
                PROGRAMS[name][2],
                facts["processors"],
                f"{facts['references'] / 1e6:.1f}",
                f"{100 * reads / facts['references']:.0f} %",
                f"{facts['bytes'] / facts['references']:.3f}",
                number(TABLE_2_1[PROGRAMS[name][0]]),
                f"{record['dilation']:.0f}",
            ]
        )
    return table(
        ["trace", "arguments", "processors", "references, M", "reads", "bytes a reference", "theirs", "dilation"], rows
    )


def policies(study, machine, worst, against):
    head = ["trace", "optimal"] + [each for each in POLICIES if each != "global" or machine == "ace"] + ["spread"]
    rows, saved = [], {}
    for name in study.programs:
        row = [name]
        optimal = study.policy(name, machine, "optimal")["mcpr"]
        bound = study.policy(name, machine, worst)["mcpr"]
        spread = 0.0
        for policy in head[1:-1]:
            result = study.policy(name, machine, policy)
            row.append(number(result["mcpr"]))
            saved.setdefault(policy, []).append((bound - result["mcpr"], bound - optimal))
            if policy in ("optimal", "ace", "delay", "platinum"):
                spread = max([spread] + [value for value in result["spread"].values() if value is not None])
        rows.append(row + [f"{spread:.2f} %"])
    rows.append(
        [f"all together: share of what optimal saves over {against}"]
        + [f"{100 * sum(s for s, _ in saved[each]) / sum(o for _, o in saved[each]):.0f} %" for each in head[1:-1]]
        + [""]
    )
    return table(head, rows)


def base(study):
    return table(
        ["trace", "CC+", "CC", "NUMA", "DSM+", "DSM"],
        [
            [name]
            + [number(study.mcpr(name, machine, 64 if machine.startswith("cc") else 4096)) for machine in MACHINES]
            for name in study.programs
        ],
    )


def same(study):
    rows = []
    for name in study.programs:
        values = [study.mcpr(name, machine, 512) for machine in MACHINES]
        rows.append(
            [name]
            + [number(value) for value in values]
            + [f"{values[2] / values[0]:.2f}", f"{values[2] / values[1]:.2f}"]
        )
    rows.append(
        ["geometric mean"]
        + [number(mean(study.mcpr(name, machine, 512) for name in study.programs)) for machine in MACHINES]
        + [
            f"{mean(study.mcpr(n, 'numa', 512) / study.mcpr(n, other, 512) for n in study.programs):.2f}"
            for other in ("cc+", "cc")
        ]
    )
    return table(["trace", "CC+", "CC", "NUMA", "DSM+", "DSM", "NUMA / CC+", "NUMA / CC"], rows)


def half(study):
    rows = []
    for name in study.programs:
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
    for name in study.programs:
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
    for name in study.programs:
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
    for name in study.programs:
        lowest = {machine: min((study.mcpr(name, machine, size), size) for size in BYTES) for machine in MACHINES}
        theirs = TABLE_6_4.get(PROGRAMS[name][0])
        row = [name, number(lowest["cc+"][0])]
        for i, machine in enumerate(["cc", "numa", "dsm+", "dsm"]):
            row.append(f"{100 * (lowest[machine][0] / lowest['cc+'][0] - 1):.0f} % ({theirs[i]} %)")
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
    for label, without, having in (
        ("CC / CC+", "cc", "cc+"),
        ("DSM / NUMA", "dsm", "numa"),
        ("DSM / DSM+", "dsm", "dsm+"),
    ):
        rows.append(
            [label]
            + [
                f"{mean(study.mcpr(n, without, s) / study.mcpr(n, having, s) for n in study.programs):.2f}"
                for s in BYTES
            ]
        )
    return table(["geometric mean of"] + SIZES, rows)


def sor(study):
    rows = []
    for machine in ("cc+", "numa", "dsm"):
        for name in ("sorbyr", "sorbyc"):
            rows.append([f"{name}, {machine.upper()}"] + [number(study.mcpr(name, machine, size)) for size in BYTES])
    return table(["MCPR of"] + SIZES, rows)


def sor_moves(study):
    """Figure 5.7: what the optimal cost is made of as G grows, and policies beside it."""
    rows = []
    for entry in study.results["sorbyr"]["vary"]["parameters"]:
        if entry["machine"] != "ace" or entry["parameter"] != "G":
            continue
        areas = entry["areas"]
        rows.append(
            [
                f"{entry['value']:.0f}",
                f"{entry['mcpr']:.4f}",
                f"{areas['local']:.3f}",
                f"{areas['global']:.3f}",
                f"{areas['remote']:.3f}",
                f"{areas['overhead'] + areas['data_transfer']:.3f}",
                f"{entry['moves_per_block']:.2f}",
            ]
        )
    return table(["G", "optimal MCPR", "local", "global", "remote", "moves", "moves a page"], rows)


def vary(study, machine, parameter):
    first = [
        e
        for e in study.results[study.programs[0]]["vary"]["parameters"]
        if e["machine"] == machine and e["parameter"] == parameter
    ]
    rows = []
    for name in study.programs:
        entries = [
            e
            for e in study.results[name]["vary"]["parameters"]
            if e["machine"] == machine and e["parameter"] == parameter
        ]
        rows.append([name] + [f"{number(e['mcpr'])} ({e['moves_per_block']:.2g})" for e in entries])
    return table([f"{parameter} ="] + [f"{e['value']:.0f}" for e in first], rows)


def overhead(study):
    first = [e for e in study.results[study.programs[0]]["o_s"]["parameters"] if e["machine"] == "numa"]
    rows = []
    for machine in ("numa", "dsm+", "dsm"):
        for name in ("sorbyr", "qsort", "mp3d"):
            if name in study.programs:
                rows.append(
                    [f"{name}, {machine.upper()}"]
                    + [number(e["mcpr"]) for e in study.results[name]["o_s"]["parameters"] if e["machine"] == machine]
                )
    return table(["o_s ="] + [f"{e['value']:g}" for e in first], rows)


def tlb(study):
    rows = []
    for name in study.programs:
        found = {
            entry["page_size"]: entry
            for entry in study.results[name]["sweep"]["tlb"]["corrected"]
            if entry["machine"] == "numa"
        }
        large, small = found[4096], found[128]
        # As in Table 6.5: what misses add beyond those with pages of 4 KiB.
        added = {
            each: small["corrected"][each] - (large["corrected"][each] - large["mcpr"]) for each in ("ace", "r4000")
        }
        theirs = TABLE_6_5.get(PROGRAMS[name][0])
        rows.append(
            [
                name,
                number(large["mcpr"]),
                number(small["mcpr"]),
                number(added["ace"]),
                number(added["r4000"]),
                ", ".join(map(str, theirs)) if theirs else "not given",
            ]
        )
    return table(["trace", "4 KiB", "128 bytes", "with the ACE's TLB", "with the R4000's", "theirs"], rows)


def shares(study):
    """False sharing's bounds on NUMA's move costs (machines without remote reference), in per cent of what exceeds 1."""
    rows = []
    for name in study.programs:
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


def components(study):
    rows = []
    for name in study.programs:
        found = {}
        for entry in study.results[name]["sweep"]["false_sharing"]["block_sizes"]:
            cc = next(each for each in entry["machines"] if each["machine"] == "cc")
            found[entry["block_size"]] = (cc["overhead"], cc["data_transfer"])
        ratio = [found[8192][1] / found[size][1] for size in (1024, 128, 32)]
        cells = [f"{found[size][0]:.3f} + {found[size][1]:.3f}" for size in (32, 128, 1024, 8192)]
        rows.append([name] + cells + [f"{value:.1f}" for value in ratio])
    return table(
        ["trace, CC", "32: overhead + data", "128", "1K", "8K", "data 8K/1K (8)", "8K/128 (64)", "8K/32 (256)"], rows
    )


def causes(study):
    rows = []
    for name in study.programs:
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


TABLES = {
    "traces": traces,
    "policies-ace": lambda study: policies(study, "ace", "global", "global memory"),
    "policies-butterfly": lambda study: policies(study, "butterfly", "interleaved", "interleaving"),
    "vary-ace": lambda study: vary(study, "ace", "G"),
    "vary-butterfly": lambda study: vary(study, "butterfly", "R"),
    "sor-moves": sor_moves,
    "base": base,
    "same": same,
    "half": half,
    "sweep-cc+": lambda study: sweep(study, "cc+"),
    "sweep-numa": lambda study: sweep(study, "numa"),
    "sweep-dsm": lambda study: sweep(study, "dsm"),
    "dominant": dominant,
    "best": best,
    "remote": remote,
    "sor": sor,
    "o_s": overhead,
    "tlb": tlb,
    "components": components,
    "shares": shares,
    "causes": causes,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", help="a build directory")
    parser.add_argument("--work", default="thesis-study", help="where traces and results go; default thesis-study")
    parser.add_argument("--programs", help="only these, separated by commas")
    parser.add_argument(
        "--document", help="a file in which the tables are put between their marks; else they are printed"
    )
    parser.add_argument("--threads", type=int, default=2, help="that compute optimal placements; default 2")
    arguments = parser.parse_args()
    study = Study(arguments)
    text = pathlib.Path(arguments.document).read_text() if arguments.document else None
    for name, make in TABLES.items():
        if name in ("sor", "sor-moves") and not {"sorbyr", "sorbyc"} <= set(study.programs):
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
