#!/usr/bin/env python3
"""../sweep.py with multiprocessing: one machine only.

Usage: python3 sweep_multiprocessing.py PROCESSES [PARAMETERS]
"""

import multiprocessing as mp
import sys
import time


def steps_until_return(r, limit=2000):
    x = start = 0.4
    for step in range(1, limit):
        x = r * x * (1 - x)
        if abs(x - start) < 1e-4:
            return step
    return limit


def main():
    processes = int(sys.argv[1])
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    parameters = [3.5 + 0.5 * i / n for i in range(n)]
    start = time.perf_counter()
    with mp.get_context("spawn").Pool(processes) as pool:
        steps = pool.map(steps_until_return, parameters)
    seconds = time.perf_counter() - start
    print(f"{n} parameters on {processes} processors: {seconds:.3f} s, mean {sum(steps) / n:.3f} steps")


if __name__ == "__main__":
    main()
