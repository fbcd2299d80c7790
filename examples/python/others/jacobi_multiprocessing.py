#!/usr/bin/env python3
"""../jacobi.py with multiprocessing and its shared memory: one machine only.

Usage: python3 jacobi_multiprocessing.py PROCESSES [POINTS-ALONG-A-SIDE [STEPS]]
"""

import multiprocessing as mp
import sys
import time
from multiprocessing.shared_memory import SharedMemory

import numpy as np

ROWS = 8


def relax(to, of, rows):
    for top in range(rows.start, rows.stop, ROWS):
        end = min(top + ROWS, rows.stop)
        new = to[top:end, 1:-1]
        np.add(of[top - 1 : end - 1, 1:-1], of[top + 1 : end + 1, 1:-1], out=new)
        new += of[top:end, :-2]
        new += of[top:end, 2:]
        new *= 0.25


def solve(names, n, steps, me, processes, barrier, results):
    memory = [SharedMemory(name) for name in names]
    a, b = (np.ndarray((n, n), buffer=part.buf) for part in memory)
    mine = slice((n - 2) * me // processes + 1, (n - 2) * (me + 1) // processes + 1)
    b[mine] = a[mine]
    barrier.wait()
    start = time.perf_counter()
    for _ in range(steps):
        relax(b, a, mine)
        barrier.wait()
        a, b = b, a
    results.put(time.perf_counter() - start)
    del a, b
    for part in memory:
        part.close()


def main():
    processes = int(sys.argv[1])
    n, steps = (int(word) for word in (sys.argv[2:] + ["512", "50"][max(len(sys.argv) - 2, 0) :])[:2])
    mp.set_start_method("spawn")
    memory = [SharedMemory(create=True, size=n * n * 8) for _ in range(2)]
    grids = [np.ndarray((n, n), buffer=part.buf) for part in memory]
    for grid in grids:
        grid[:] = 0.0
        grid[0], grid[-1] = 1.0, -1.0
    barrier, results = mp.Barrier(processes), mp.Queue()
    names = [part.name for part in memory]
    others = [
        mp.Process(target=solve, args=(names, n, steps, p, processes, barrier, results)) for p in range(processes)
    ]
    for process in others:
        process.start()
    seconds = max(results.get() for _ in others)
    for process in others:
        process.join()
    print(
        f"{n} x {n}, {steps} steps on {processes} processors: {seconds:.3f} s, sum of squares {np.sum(grids[steps % 2] ** 2):.6f}"
    )
    del grid, grids
    for part in memory:
        part.close()
        part.unlink()


if __name__ == "__main__":
    main()
