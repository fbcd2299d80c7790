"""Litmus tests from cycles, as the tool diy of the herd tools makes them (Alglave, Maranget, Sarkar, Sewell: Fences in weak memory
models, 2010): an execution that goes round a cycle of program order and of communication between threads is not sequentially
consistent, so whether it can be seen tells models apart.

A thread has one access, a store, or two accesses of different variables. Between threads an access is followed by one of the same
variable: a store by the load that reads it (rf), a load by the store that comes after what it has read (fr), or a store by a later
store (co).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from herd_text import ACQ_REL, ACQUIRE, RELAXED, RELEASE, SEQ_CST, Op, Test

# What herd calls them: threads by the directions of their accesses.
NAMES = {
    ("WR", "WR"): "SB",
    ("WW", "RR"): "MP",
    ("RW", "RW"): "LB",
    ("WW", "WW"): "2+2W",
    ("WW", "WR"): "R",
    ("WW", "RW"): "S",
    ("W", "RW", "RR"): "WRC",
    ("WW", "RW", "RR"): "ISA2",
    ("W", "RR", "WR"): "RWC",
    ("W", "RR", "WW"): "WRW+WR",
    ("WW", "RW", "RW"): "3.LB",
    ("W", "RR", "W", "RR"): "IRIW",
    ("W", "RR", "W", "RW"): "IRRWIW",
    ("W", "RW", "W", "RW"): "IRWIW",
}
SEGMENTS = ("W", "RR", "RW", "WR", "WW")
# How accesses are ordered, and what is between the two of a thread: the order of loads, that of stores, and the fence.
VARIANTS = {
    "relaxed": (RELAXED, RELAXED, None),
    "acquire-release": (ACQUIRE, RELEASE, None),
    "seq_cst": (SEQ_CST, SEQ_CST, None),
    "fence": (RELAXED, RELAXED, SEQ_CST),
    "weak-fence": (RELAXED, RELAXED, ACQ_REL),
    "mixed": (ACQUIRE, SEQ_CST, None),
}
X86_VARIANTS = {"po": None, "mfence": SEQ_CST}


def shapes(threads: int) -> Iterator[tuple[str, ...]]:
    """The threads of each cycle, once: not again from another one of its threads on."""
    for shape in itertools.product(SEGMENTS, repeat=threads):
        rotations = [shape[i:] + shape[:i] for i in range(threads)]
        if shape != min(rotations):
            continue
        if sum(len(segment) == 2 for segment in shape) < 2:
            continue  # a cycle in one variable: there is no order to be seen
        pairs = zip(shape, shape[1:] + shape[:1])
        if all(not (a[-1] == "R" and b[0] == "R") for a, b in pairs):
            yield shape


def name_of(shape: tuple[str, ...]) -> str:
    for i in range(len(shape)):
        known = NAMES.get(shape[i:] + shape[:i])
        if known:
            return known
    return "_".join(shape)


def build(shape: tuple[str, ...], language: str, variant: str) -> Test:
    loads, stores, fence = VARIANTS[variant] if language == "C" else (RELAXED, RELAXED, X86_VARIANTS[variant])
    # Variables change inside threads of two accesses. The last change comes back to the first variable.
    changes = sum(len(segment) == 2 for segment in shape)
    variable = 0
    accesses: list[list[tuple[str, str]]] = []
    for segment in shape:
        thread = [(segment[0], "xyzw"[variable % changes])]
        if len(segment) == 2:
            variable += 1
            thread.append((segment[1], "xyzw"[variable % changes]))
        accesses.append(thread)
    # Where the cycle begins behind a change, it ends with accesses of the first variable, which come before those at its beginning.
    flat = [(t, i) for t, thread in enumerate(accesses) for i in range(len(thread))]
    first_change = next(k for k, (t, i) in enumerate(flat) if i == 1)
    circle = flat[first_change:] + flat[:first_change]
    values: dict[tuple[int, int], int] = {}
    clauses = []
    last: dict[str, int] = {}
    register = [0] * len(shape)
    threads: list[list[Op]] = [[] for _ in shape]
    for t, i in circle:
        direction, where = accesses[t][i]
        if direction == "W":
            last[where] = last.get(where, 0) + 1
        values[t, i] = last.get(where, 0)
    for t, thread in enumerate(accesses):
        for i, (direction, where) in enumerate(thread):
            if i == 1 and fence is not None:
                threads[t].append(Op("fence", order=fence))
            if direction == "W":
                threads[t].append(Op("store", where, stores, value=values[t, i]))
            else:
                name = f"r{register[t]}" if language == "C" else ("EAX", "EBX")[register[t]]
                register[t] += 1
                threads[t].append(Op("load", where, loads, register=name))
                clauses.append(f"{t}:{name}={values[t, i]}")
    clauses += [f"[{v}]={value}" if language == "C" else f"{v}={value}" for v, value in sorted(last.items()) if value > 1]
    test = Test(f"{name_of(shape)}+{variant}", language, threads)
    test.initial = dict.fromkeys(test.variables(), 0)
    test.condition = "exists (" + " /\\ ".join(clauses) + ")"
    return test


def tests() -> list[Test]:
    """All of up to three threads, and of four those with two threads of one store."""
    made = []
    for threads in (2, 3, 4):
        for shape in shapes(threads):
            if threads == 4 and sum(len(segment) == 1 for segment in shape) < 2:
                continue
            made += [build(shape, "C", variant) for variant in VARIANTS]
            made += [build(shape, "X86", variant) for variant in X86_VARIANTS]
    return made
