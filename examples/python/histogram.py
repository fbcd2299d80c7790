#!/usr/bin/env python3
"""A histogram of many numbers: each processor counts its share, and adds it to the common bins under a lock.

Usage: mgrun --nodes 2 -- python3 histogram.py [NUMBERS]
"""

import sys
import time

import multigrain as mg
import numpy as np

BINS = 256


def fill(values):
    mine = mg.share_of(len(values))
    values[mine] = np.random.default_rng(mg.processor()).random(mine.stop - mine.start)


def count(values, bins, lock):
    start = time.perf_counter()
    own, _ = np.histogram(values[mg.share_of(len(values))], BINS, (0.0, 1.0))
    with lock:
        bins += own
    mg.barrier()
    return time.perf_counter() - start


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    values = mg.array(n)
    bins = mg.array(BINS, "i8")
    mg.run(fill, values)
    seconds = max(mg.run(count, values, bins, mg.lock()))
    print(
        f"{n} numbers on {mg.processors()} processors: {seconds:.3f} s, in bins {bins.sum()}, fullest {bins.max() / (n / BINS):.3f}"
    )


if __name__ == "__main__":
    main()
