#!/usr/bin/env python3
"""Jacobi relaxation: each point becomes the mean of its four neighbours, again and again.

Usage: mgrun --nodes 2 -- python3 jacobi.py [POINTS-ALONG-A-SIDE [STEPS]]
"""

import sys
import time

import multigrain as mg
import numpy as np

ROWS = 8  # so many rows at a time: what they need stays in a core's cache


def relax(to, of, rows):
    for top in range(rows.start, rows.stop, ROWS):
        end = min(top + ROWS, rows.stop)
        new = to[top:end, 1:-1]
        np.add(of[top - 1 : end - 1, 1:-1], of[top + 1 : end + 1, 1:-1], out=new)
        new += of[top:end, :-2]
        new += of[top:end, 2:]
        new *= 0.25


def solve(a, b, steps):
    mine = mg.share_of(len(a) - 2)
    mine = slice(mine.start + 1, mine.stop + 1)
    b[mine] = a[mine]  # a first step that touches all memory is not measured
    mg.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        relax(b, a, mine)
        mg.barrier()
        a, b = b, a
    return time.perf_counter() - start


def main():
    n, steps = (int(word) for word in (sys.argv[1:] + ["512", "50"][len(sys.argv) - 1 :])[:2])
    a = mg.array((n, n), home="blocked")
    b = mg.array((n, n), home="blocked")
    for grid in (a, b):
        grid[0], grid[-1] = 1.0, -1.0
    seconds = max(mg.run(solve, a, b, steps))
    result = b if steps % 2 else a
    print(
        f"{n} x {n}, {steps} steps on {mg.processors()} processors: {seconds:.3f} s, sum of squares {np.sum(result**2):.6f}"
    )


if __name__ == "__main__":
    main()
