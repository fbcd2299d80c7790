#!/usr/bin/env python3
"""../jacobi.py with mpi4py: each process has its rows and a copy of one row of each neighbour.

Usage: mpirun -n PROCESSES python3 jacobi_mpi4py.py [POINTS-ALONG-A-SIDE [STEPS]]
"""

import sys
import time

import numpy as np
from mpi4py import MPI

ROWS = 8


def relax(to, of):
    for top in range(1, len(of) - 1, ROWS):
        end = min(top + ROWS, len(of) - 1)
        new = to[top:end, 1:-1]
        np.add(of[top - 1 : end - 1, 1:-1], of[top + 1 : end + 1, 1:-1], out=new)
        new += of[top:end, :-2]
        new += of[top:end, 2:]
        new *= 0.25


def exchange(world, grid):
    me, processes = world.rank, world.size
    above = me - 1 if me > 0 else MPI.PROC_NULL
    below = me + 1 if me < processes - 1 else MPI.PROC_NULL
    world.Sendrecv(grid[1], above, recvbuf=grid[-1], source=below)
    world.Sendrecv(grid[-2], below, recvbuf=grid[0], source=above)


def main():
    world = MPI.COMM_WORLD
    me, processes = world.rank, world.size
    n, steps = (int(word) for word in (sys.argv[1:] + ["512", "50"][len(sys.argv) - 1 :])[:2])
    rows = (n - 2) * (me + 1) // processes - (n - 2) * me // processes
    a, b = np.zeros((rows + 2, n)), np.zeros((rows + 2, n))
    for grid in (a, b):
        if me == 0:
            grid[0] = 1.0
        if me == processes - 1:
            grid[-1] = -1.0
    world.Barrier()
    start = time.perf_counter()
    for _ in range(steps):
        exchange(world, a)
        relax(b, a)
        a, b = b, a
    seconds = world.reduce(time.perf_counter() - start, MPI.MAX)
    own = np.sum(a[1:-1] ** 2)
    if me == 0:
        own += np.sum(a[0] ** 2)
    if me == processes - 1:
        own += np.sum(a[-1] ** 2)
    total = world.reduce(own)
    if me == 0:
        print(f"{n} x {n}, {steps} steps on {processes} processors: {seconds:.3f} s, sum of squares {total:.6f}")


if __name__ == "__main__":
    main()
