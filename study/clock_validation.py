#!/usr/bin/env python3
"""Measures how well virtual time agrees with the wall clock, where both can be had: on as many processors as this
machine has cores. Prints the table of docs/user/virtual-time.md.

usage: clock_validation.py [--bin DIR] [--repetitions N] [--net MODEL] [--size test|paper]

For each workload and machine the program is run with both clocks, in turn, and the medians of the times that it prints
are compared. The spread is that of both clocks' times, from the least to the most, as parts of their medians, added up. Whether
the clocks agree within 10 % is said only where the spread allows it (verdicts.py).
"""

import argparse
import os
import re
import statistics
import subprocess
import sys

from multigrain.study.verdicts import Bounds, verdict

COMPUTE = ["matmul", "lu", "unstructured", "water-spatial"]
COMMUNICATION = ["jacobi", "gauss", "fft", "radix", "water", "barnes"]
MACHINES = [(1, 1), (1, 2), (2, 1)]
CLOSE = Bounds(-0.1, 0.1, "within 10 %")


def seconds(arguments, command):
    # Processors poll for longer than a round trip, as those of the emulated machine do, so that none sleeps on the wall clock.
    run = subprocess.run(
        [*arguments, *command],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "MULTIGRAIN_SPIN": "2000"},
    )
    found = re.search(r"^parallel: ([0-9.]+) s", run.stdout, re.MULTILINE)
    if run.returncode != 0 or not found:
        sys.exit(f"clock_validation: {' '.join([*arguments, *command])} failed:\n{run.stdout}{run.stderr}")
    return float(found[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin", help="where mgrun and workloads/ are (default build/bin)")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--net", default="lan", help="the network between two nodes (default lan)")
    parser.add_argument("--size", default="paper", choices=["test", "paper"])
    parser.add_argument("workloads", nargs="*", help="these only")
    options = parser.parse_args()

    print(
        f"| workload, `--size {options.size}` | nodes x processors | wall, ms | virtual, ms | difference | spread | {CLOSE.text} |"
    )
    print("|---|---|---:|---:|---:|---:|---|")
    worst = 0.0
    for name in options.workloads or COMPUTE + COMMUNICATION:
        program = os.path.join(options.bin, "workloads", name)
        for nodes, processors in MACHINES:
            mgrun = [
                os.path.join(options.bin, "mgrun"),
                "--nodes",
                str(nodes),
                "--procs-per-node",
                str(processors),
                "--net",
                options.net,
            ]
            times = {"wall": [], "virtual": []}
            for _ in range(options.repetitions):
                for clock, measured in times.items():
                    measured.append(seconds([*mgrun, "--clock", clock], [program, "--size", options.size]))
            wall, virtual = (statistics.median(measured) for measured in times.values())
            spread = sum((max(measured) - min(measured)) / statistics.median(measured) for measured in times.values())
            difference = virtual / wall - 1
            worst = max(worst, abs(difference))
            print(
                f"| {name} | {nodes} x {processors} | {wall * 1e3:.2f} | {virtual * 1e3:.2f} | {difference:+.1%} "
                f"| {spread:.1%} | {verdict(difference, spread, CLOSE, options.repetitions)} |",
                flush=True,
            )
    print(f"\nLargest difference: {worst:.1%}.")


if __name__ == "__main__":
    main()
