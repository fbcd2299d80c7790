#!/usr/bin/env python3
"""../histogram.py with multiprocessing and its shared memory: one machine only.

Usage: python3 histogram_multiprocessing.py PROCESSES [NUMBERS]
"""

import multiprocessing as mp
import sys
import time
from multiprocessing.shared_memory import SharedMemory

import numpy as np

BINS = 256


def count(names, n, me, processes, barrier, lock, results):
    memory = [SharedMemory(name) for name in names]
    values, bins = np.ndarray(n, buffer=memory[0].buf), np.ndarray(BINS, "i8", buffer=memory[1].buf)
    mine = slice(n * me // processes, n * (me + 1) // processes)
    values[mine] = np.random.default_rng(me).random(mine.stop - mine.start)
    barrier.wait()
    start = time.perf_counter()
    own, _ = np.histogram(values[mine], BINS, (0.0, 1.0))
    with lock:
        bins += own
    barrier.wait()
    results.put(time.perf_counter() - start)
    del values, bins
    for part in memory:
        part.close()


def main():
    processes = int(sys.argv[1])
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    mp.set_start_method("spawn")
    memory = [SharedMemory(create=True, size=size) for size in (n * 8, BINS * 8)]
    bins = np.ndarray(BINS, "i8", buffer=memory[1].buf)
    bins[:] = 0
    shared = [part.name for part in memory], n
    barrier, lock, results = mp.Barrier(processes), mp.Lock(), mp.Queue()
    others = [mp.Process(target=count, args=(*shared, p, processes, barrier, lock, results)) for p in range(processes)]
    for process in others:
        process.start()
    seconds = max(results.get() for _ in others)
    for process in others:
        process.join()
    print(
        f"{n} numbers on {processes} processors: {seconds:.3f} s, in bins {bins.sum()}, fullest {bins.max() / (n / BINS):.3f}"
    )
    del bins
    for part in memory:
        part.close()
        part.unlink()


if __name__ == "__main__":
    main()
