#!/usr/bin/env python3
"""Makes Tables 3.1 and 3.2 of [Bolosky] from runs, and puts them into docs/studies/thesis-study.md.

    study/placement_study.py BUILD [--work DIRECTORY] [--programs gfetch,...] [--document FILE]

BUILD is a build directory with the targets mgrun, mgcc, mgtrace and multigrain. Each program of workloads/traced is compiled by mgcc so
that its threads run on nodes and report what they refer to, and runs three times: under `mgrun --record --protocol placement` with the ACE's
policy, and with all pages in global memory; and in counted time of the machine `ace`, for which all memory is local. All are of 8 nodes
of one processor, and end before the results are checked. Who refers to local and to global memory, and which pages move, is counted in these runs; what each costs on the ACE is the
thesis's (sections 3.1.1 and 5.1). What exists in --work is not made again.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

OPTIONS = (
    "-std=c11 -D_GNU_SOURCE -O2 -g -fno-vectorize -fno-slp-vectorize -pthread -fmultigrain-threads "
    "-fno-multigrain-checks -fmultigrain-count=memory"
).split()
NODES = 8  # the ACE's processors; a program's main thread is on the first

# A program of workloads/traced, its arguments, and G/L (footnote 3).
PROGRAMS = {
    "ParMult": ("parmult", "--threads 7 --size 2000", 2.0),
    "Gfetch": ("gfetch", "--threads 7 --size 8 --steps 50", 2.3),
    "matmult": ("matmul", "--threads 7 --size 100 --variant bands", 2.3),
    "Primes1": ("primes", "--threads 7 --size 20000 --variant divide", 2.0),
    "Primes2": ("primes", "--threads 7 --size 100000 --variant list", 2.0),
    "Primes3": ("primes", "--threads 7 --size 300000 --variant sieve", 2.0),
    "e-fft": ("fft", "--threads 8 --size 64 --steps 1", 2.0),
    "gauss": ("gauss", "--threads 8 --size 128", 2.0),
}
# Table 3.1: alpha (None: na), beta, gamma. Table 3.2: the part of T_numa that is the manager's (None: na, or not there).
THEIRS = {
    "ParMult": (None, 0.00, 1.00, None),
    "Gfetch": (0.0, 1.0, 2.27, None),
    "matmult": (0.94, 0.26, 1.01, 0.040),
    "Primes1": (1.0, 0.06, 1.00, 0.0),
    "Primes2": (0.99, 0.16, 1.00, 0.004),
    "Primes3": (0.17, 0.36, 1.30, 0.249),
    "e-fft": (0.96, 0.56, 1.02, 0.025),
    "gauss": (0.98, 0.55, 1.01, 0.036),
}
# Microseconds (section 3.1.1): how much longer a fetch from and a store to global memory takes than to local memory.
MORE_FOR_READ = 1.5 - 0.65
MORE_FOR_WRITE = 1.4 - 0.84
# A page moves for 2 local references a word, and a fault takes 200 (section 5.1); 45 % of references are stores.
LOCAL_REFERENCE = 0.55 * 0.65 + 0.45 * 0.84
FAULT = 200 * LOCAL_REFERENCE
MOVE = 2 * 1024 * LOCAL_REFERENCE


class Study:
    def __init__(self, arguments):
        self.bin = pathlib.Path(arguments.build).resolve() / "bin"
        self.work = pathlib.Path(arguments.work).resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.sources = pathlib.Path(__file__).resolve().parent.parent / "workloads" / "traced"

    def call(self, command, output):
        """Runs the command unless `output` is there, which it has to make."""
        if not output.exists():
            print(" ".join(map(str, command)), file=sys.stderr, flush=True)
            done = subprocess.run(command, capture_output=True, text=True, cwd=self.work, check=False)
            if done.returncode != 0:
                sys.exit(f"placement_study: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
        return output

    def program(self, name):
        more = ["-fopenmp"] if name == "fft" else []
        source = self.sources / f"{name}.c"
        return self.call([self.bin / "mgcc", *OPTIONS, *more, source, "-o", self.work / name, "-lm"], self.work / name)

    def run(self, name, policy):
        """The placement of a run under the policy, as mgtrace analyze --decisions prices it."""
        program, arguments, _ = PROGRAMS[name]
        trace = self.work / f"{name}.{policy}.mgt"
        out = self.work / f"{name}.{policy}.json"
        if not out.exists():
            mgrun = [self.bin / "mgrun", "--nodes", str(NODES), "--protocol", "placement", "--policy", policy]
            self.call([*mgrun, "--record", trace, self.program(program), *arguments.split(), "--unchecked"], trace)
            self.call([self.bin / "mgtrace", "analyze", trace, "--decisions", "--json", out], out)
        return json.loads(out.read_text())

    def local_seconds(self, name):
        """T_local: the time in the program's code, of all processors. A reference takes as long as one to local memory there, and what
        the protocol does is not in it."""
        program, arguments, _ = PROGRAMS[name]
        out = self.work / f"{name}.local.json"
        mgrun = [self.bin / "mgrun", "--nodes", str(NODES), "--protocol", "sc", "--clock", "counted"]
        stats = ["--machine", "ace", "--stats", f"json:{out}"]
        self.call([*mgrun, *stats, self.program(program), *arguments.split(), "--unchecked"], out)
        return json.loads(out.read_text())["sum"]["user_ns"] / 1e9


def seconds_of_global_references(run):
    writes = run["global_writes"]
    return ((run["global_references"] - writes) * MORE_FOR_READ + writes * MORE_FOR_WRITE) / 1e6


def system_seconds(run):
    parts = run["machines"][0]["placements"][1]["parts"]
    return (run["decisions"] * FAULT + (parts["remote_moves"] + parts["global_moves"]) * MOVE) / 1e6


def shared_alpha(run, placement):
    """The part of the references to shared memory that is local, of a placement of the run's trace."""
    parts = run["machines"][0]["placements"][placement]["parts"]
    local = parts["local"] - run["private_references"]
    return local / (local + parts["global"] + parts["remote"])


def measure(study, name):
    ratio = PROGRAMS[name][2]
    numa, everywhere, t_local = study.run(name, "ace"), study.run(name, "global"), study.local_seconds(name)
    t_numa = t_local + seconds_of_global_references(numa)
    t_global = t_local + seconds_of_global_references(everywhere)
    difference = t_global - t_local
    return {
        "t_global": t_global,
        "t_numa": t_numa,
        "t_local": t_local,
        "alpha": (t_global - t_numa) / difference if difference > 0 else None,
        "beta": difference / t_local / (ratio - 1),
        "gamma": t_numa / t_local,
        "counted_alpha": shared_alpha(numa, 1),
        "predicted_alpha": shared_alpha(numa, 2),
        "optimal_alpha": shared_alpha(numa, 0),
        "s_numa": system_seconds(numa),
        "s_global": system_seconds(everywhere),
    }


def shown(value):
    return "na" if value is None else f"{value:.2f}"


def beside(ours, theirs):
    return f"{shown(ours)} ({shown(theirs)})"


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def table_3_1(measured):
    rows = []
    for name, values in measured.items():
        alpha, beta, gamma, _ = THEIRS[name]
        times = [f"{values[key]:.3f}" for key in ("t_global", "t_numa", "t_local")]
        rows.append(
            [name, *times, beside(values["alpha"], alpha), f"{values['counted_alpha']:.2f}"]
            + [f"{values['predicted_alpha']:.2f}", f"{values['optimal_alpha']:.2f}"]
            + [beside(values["beta"], beta), beside(values["gamma"], gamma)]
        )
    heads = ["program", "T_global", "T_numa", "T_local", "α by 3.4", "α counted", "α predicted", "α of optimal"]
    return table([*heads, "β by 3.5", "γ by 3.1"], rows)


def table_3_2(measured):
    rows = []
    for name, values in measured.items():
        difference = values["s_numa"] - values["s_global"]
        theirs = THEIRS[name][3]
        part = f"{difference / values['t_numa']:.1%}".replace("%", " %")
        beside_it = "–" if theirs is None else f"{theirs:.1%}".replace("%", " %")
        numbers = [f"{each:.4f}" for each in (values["s_numa"], values["s_global"], difference)]
        rows.append([name, *numbers, f"{values['t_numa']:.3f}", f"{part} ({beside_it})"])
    return table(["program", "S_numa", "S_global", "ΔS", "T_numa", "ΔS/T_numa"], rows)


TABLES = {"table-3-1-runs": table_3_1, "table-3-2-runs": table_3_2}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", help="a build directory")
    parser.add_argument(
        "--work", default="placement-study", help="where traces and results go; default placement-study"
    )
    parser.add_argument("--programs", help="only these, separated by commas")
    parser.add_argument(
        "--document", help="a file in which the tables are put between their marks; else they are printed"
    )
    arguments = parser.parse_args()
    names = arguments.programs.split(",") if arguments.programs else list(PROGRAMS)
    for name in names:
        if name not in PROGRAMS:
            sys.exit(f"placement_study: there is no program '{name}'; there are {', '.join(PROGRAMS)}")
    study = Study(arguments)
    measured = {name: measure(study, name) for name in names}
    text = pathlib.Path(arguments.document).read_text() if arguments.document else None
    for name, make in TABLES.items():
        made = make(measured)
        if text is None:
            print(f"\n{name}\n\n{made}")
            continue
        pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.S)
        if not pattern.search(text):
            sys.exit(f"placement_study: {arguments.document} has no place for '{name}'")
        text = pattern.sub(lambda match, made=made: f"{match.group(1)}\n{made}\n\n{match.group(2)}", text)
    if text is not None:
        pathlib.Path(arguments.document).write_text(text)


if __name__ == "__main__":
    main()
