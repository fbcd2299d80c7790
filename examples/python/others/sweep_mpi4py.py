#!/usr/bin/env python3
"""../sweep.py with mpi4py's pool, whose process 0 only hands out work.

Usage: mpirun -n PROCESSES python3 -m mpi4py.futures sweep_mpi4py.py [PARAMETERS]
"""

import sys
import time

from mpi4py import MPI
from mpi4py.futures import MPIPoolExecutor


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
    with MPIPoolExecutor() as pool:
        steps = list(pool.map(steps_until_return, parameters, chunksize=max(1, n // 8)))
    seconds = time.perf_counter() - start
    print(f"{n} parameters on {MPI.COMM_WORLD.size} processors: {seconds:.3f} s, mean {sum(steps) / n:.3f} steps")


if __name__ == "__main__":
    main()
