#!/usr/bin/env python3
"""Measures what recording costs: the time of the study's programs (thesis_study.py) as they are, and recorded.

    study/recording_cost.py BUILD [--programs sorbyr,gauss] [--runs N] [--mgrun]

BUILD is a build directory with the targets mgtrace and traced_programs (and mgrun and mgcc, for --mgrun). Prints a line a program: the
references of its trace; the processor time (user and system) of the program as it is, of the program with the recorder in it and
switched off, of the program while mgtrace records it, and of all of mgtrace, which makes a trace of the recording behind that; and
the quotients. With --mgrun it is the program under mgrun --protocol placement, the one that reports its accesses, and all of mgrun --record.
Each is the least of N runs, and the runs of a program take turns.
"""

import argparse
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

from thesis_study import PROGRAMS

# The shell says what its child took; mgtrace hands it to the recorded program.
TIMED = ["bash", "-c", 'TIMEFORMAT="took %U %S"; time "$0" "$@"']


class Failed(Exception):
    """A program has failed."""


def run(command, folder):
    """Runs the command: the processor time that its program says it took, that of all, and what it wrote."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: {done.stdout}")
    whole = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    took = re.search(r"took ([\d.]+) ([\d.]+)", done.stdout)
    return (float(took[1]) + float(took[2]) if took else whole), whole, done.stdout


def references_in(text):
    return int(re.search(r"(\d+) references", text)[1])


def of_mgtrace(build, program, folder, runs):
    plain = build / "bin/traced" / program.program
    traced = f"{plain}.traced"
    arguments = program.arguments.split()
    best = {}
    for _ in range(runs):
        recorded, whole, text = run(
            [build / "bin/mgtrace", "record", "-f", "-o", "t.mgt", *TIMED, traced, *arguments], folder
        )
        times = {
            "plain": run([*TIMED, plain, *arguments], folder)[0],
            "off": run([*TIMED, traced, *arguments], folder)[0],
            "recorded": recorded,
            "all": whole,
        }
        best = {key: min(time, best.get(key, time)) for key, time in times.items()}
    return references_in(text), best


def of_mgrun(build, program, folder, runs):
    source = pathlib.Path(__file__).resolve().parent.parent / "workloads/traced" / f"{program.program}.c"
    mgcc = [build / "bin/mgcc", "-O2", "-g", "-fmultigrain-threads", "-fno-multigrain-checks"]
    for name, options in {"plain": [], "reporting": ["-fmultigrain-count=memory"]}.items():
        run([*mgcc, *options, source, "-o", f"{program.program}.{name}", "-lm"], folder)
    mgrun = [build / "bin/mgrun", "--nodes", "2", "--protocol", "placement", "--policy", "always-migrate"]
    arguments = [*re.sub(r"--threads \d+", "--threads 2", program.arguments).split(), "--unchecked"]
    best = {}
    for _ in range(runs):
        reporting = f"./{program.program}.reporting"
        whole, text = run([*mgrun, "--record", "t.mgt", reporting, *arguments], folder)[1:]
        times = {
            "plain": run([*mgrun, f"./{program.program}.plain", *arguments], folder)[1],
            "off": run([*mgrun, reporting, *arguments], folder)[1],
            "all": whole,
        }
        best = {key: min(time, best.get(key, time)) for key, time in times.items()}
    return references_in(text), best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--mgrun", action="store_true")
    options = parser.parse_args()
    build = options.build.resolve()
    names = options.programs.split(",")
    for name in names:
        if name not in PROGRAMS:
            sys.exit(f"{name} is none of {', '.join(PROGRAMS)}")
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        for name in names:
            measure = of_mgrun if options.mgrun else of_mgtrace
            references, best = measure(build, PROGRAMS[name], folder, options.runs)
            quotients = " ".join(f"{key} {time:.3f} ({time / best['plain']:.1f})" for key, time in best.items())
            print(f"{name:10} {references / 1e6:7.2f} M  {quotients}", flush=True)


if __name__ == "__main__":
    main()
