#!/usr/bin/env python3
"""../histogram.py with mpi4py.

Usage: mpirun -n PROCESSES python3 histogram_mpi4py.py [NUMBERS]
"""

import sys
import time

import numpy as np
from mpi4py import MPI

BINS = 256


def main():
    world = MPI.COMM_WORLD
    me, processes = world.rank, world.size
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    values = np.random.default_rng(me).random(n * (me + 1) // processes - n * me // processes)
    world.Barrier()
    start = time.perf_counter()
    own, _ = np.histogram(values, BINS, (0.0, 1.0))
    bins = np.zeros(BINS, "i8")
    world.Reduce(own.astype("i8"), bins)
    seconds = world.reduce(time.perf_counter() - start, MPI.MAX)
    if me == 0:
        print(
            f"{n} numbers on {processes} processors: {seconds:.3f} s, in bins {bins.sum()}, fullest {bins.max() / (n / BINS):.3f}"
        )


if __name__ == "__main__":
    main()
