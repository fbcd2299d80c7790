#!/usr/bin/env python3
"""A parameter sweep: how long paths of the logistic map need to return, for many parameters, whoever is idle taking the next.

Usage: mgrun --nodes 2 -- python3 sweep.py [PARAMETERS]
"""

import sys
import time

import multigrain as mg


def steps_until_return(r, limit=2000):
    x = start = 0.4
    for step in range(1, limit):
        x = r * x * (1 - x)
        if abs(x - start) < 1e-4:
            return step
    return limit


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    parameters = [3.5 + 0.5 * i / n for i in range(n)]
    start = time.perf_counter()
    steps = mg.map(steps_until_return, parameters)
    seconds = time.perf_counter() - start
    print(f"{n} parameters on {mg.processors()} processors: {seconds:.3f} s, mean {sum(steps) / n:.3f} steps")


if __name__ == "__main__":
    main()
