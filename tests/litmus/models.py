"""Which outcomes of a litmus test memory models allow.

An outcome is the values of the registers, thread by thread, and then the last values of the variables, in the order of their
names. Tests are so small that all executions can be tried.

    sequential(test)  what interleavings of the threads show (Lamport)
    tso(test)         x86: each thread's stores wait in a queue, from which its own loads are answered (Owens, Sarkar, Sewell)
    c11(test)         C11 as repaired by Lahav, Vafeiadis, Kang, Hur and Dreyer (RC11, PLDI 2017), without read-modify-writes
"""

from __future__ import annotations

import itertools

from herd_text import ACQ_REL, ACQUIRE, RELEASE, SEQ_CST, Op, Test

Outcome = tuple[int, ...]


def _outcome(test: Test, registers: dict, memory: dict) -> Outcome:
    return tuple(registers[r] for r in test.registers()) + tuple(memory[v] for v in test.variables())


def _initial(test: Test) -> dict[str, int]:
    return {v: test.initial.get(v, 0) for v in test.variables()}


def _explore(test: Test, has_queues: bool) -> set[Outcome]:
    """All ends of a machine whose threads take turns, with queues of stores or without."""
    outcomes: set[Outcome] = set()
    threads = range(len(test.threads))
    start = (tuple(0 for _ in threads), tuple(() for _ in threads), tuple(sorted(_initial(test).items())), ())
    seen = {start}
    todo = [start]
    while todo:
        at, queues, memory_items, registers_items = todo.pop()
        memory, registers = dict(memory_items), dict(registers_items)
        steps = []
        for t in threads:
            if queues[t]:
                (variable, value), *rest = queues[t]
                steps.append((at, _with(queues, t, tuple(rest)), {**memory, variable: value}, registers))
            if at[t] == len(test.threads[t]):
                continue
            op: Op = test.threads[t][at[t]]
            after = _with(at, t, at[t] + 1)
            if op.kind == "store" and has_queues:
                steps.append((after, _with(queues, t, (*queues[t], (op.variable, op.value))), memory, registers))
            elif op.kind == "store":
                steps.append((after, queues, {**memory, op.variable: op.value}, registers))
            elif op.kind == "load":
                own = [value for variable, value in queues[t] if variable == op.variable]
                value = own[-1] if own else memory[op.variable]
                steps.append((after, queues, memory, {**registers, (t, op.register): value}))
            elif not queues[t]:
                steps.append((after, queues, memory, registers))
        if not steps:
            outcomes.add(_outcome(test, registers, memory))
        for at_, queues_, memory_, registers_ in steps:
            state = (at_, queues_, tuple(sorted(memory_.items())), tuple(sorted(registers_.items())))
            if state not in seen:
                seen.add(state)
                todo.append(state)
    return outcomes


def _with(values: tuple, index: int, value) -> tuple:
    return (*values[:index], value, *values[index + 1 :])


def sequential(test: Test) -> set[Outcome]:
    return _explore(test, has_queues=False)


def tso(test: Test) -> set[Outcome]:
    return _explore(test, has_queues=True)


# --- C11

Relation = set[tuple[int, int]]


def _closure(relation: Relation) -> Relation:
    closed = set(relation)
    while True:
        more = {(a, d) for a, b in closed for c, d in closed if b == c} - closed
        if not more:
            return closed
        closed |= more


def _then(first: Relation, second: Relation) -> Relation:
    by_start: dict[int, list[int]] = {}
    for a, b in second:
        by_start.setdefault(a, []).append(b)
    return {(a, c) for a, b in first for c in by_start.get(b, ())}


def _is_acyclic(relation: Relation) -> bool:
    return all(a != b for a, b in _closure(relation))


def c11(test: Test) -> set[Outcome]:
    # Events: the initial stores, and then the operations of the threads.
    ops: list[Op] = [Op("store", v, "relaxed", value=value) for v, value in _initial(test).items()]
    owner = [-1] * len(ops)
    for t, thread in enumerate(test.threads):
        ops += thread
        owner += [t] * len(thread)
    events = range(len(ops))
    sb = {(a, b) for a in events for b in events if a < b and owner[b] >= 0 and owner[a] in (-1, owner[b])}
    reads = [e for e in events if ops[e].kind == "load"]
    writes = [e for e in events if ops[e].kind == "store"]
    by_variable = {v: [w for w in writes if ops[w].variable == v] for v in test.variables()}
    orders = [
        [(first, *rest) for rest in itertools.permutations(others)]
        for first, *others in by_variable.values()  # the initial store is the first
    ]
    outcomes: set[Outcome] = set()
    sources = [by_variable[ops[r].variable] for r in reads]
    for mo_lists in itertools.product(*orders):
        mo = {(a, b) for order in mo_lists for i, a in enumerate(order) for b in order[i + 1 :]}
        for chosen in itertools.product(*sources):
            rf = {(w, r) for w, r in zip(chosen, reads)}
            registers = {(owner[r], ops[r].register): ops[w].value for w, r in rf}
            memory = {ops[order[-1]].variable: ops[order[-1]].value for order in mo_lists}
            outcome = _outcome(test, registers, memory)
            if outcome not in outcomes and _is_consistent(ops, sb, mo, rf):
                outcomes.add(outcome)
    return outcomes


def _is_consistent(ops: list[Op], sb: Relation, mo: Relation, rf: Relation) -> bool:
    events = range(len(ops))
    if not _is_acyclic(sb | rf):
        return False  # values out of thin air
    fr = {(r, b) for w, r in rf for a, b in mo if a == w}
    eco = _closure(rf | mo | fr)
    # A release store, or a fence before a store, synchronises with an acquire load that reads it, or with a fence behind one.
    acquires = {e for e in events if ops[e].order in (ACQUIRE, ACQ_REL, SEQ_CST)}
    releases = {e for e in events if ops[e].order in (RELEASE, ACQ_REL, SEQ_CST)}
    sw = set()
    for w, r in rf:
        starts = [w] if w in releases else []
        starts += [f for f in events if ops[f].kind == "fence" and f in releases and (f, w) in sb]
        ends = [r] if r in acquires else []
        ends += [f for f in events if ops[f].kind == "fence" and f in acquires and (r, f) in sb]
        sw |= {(a, b) for a in starts for b in ends}
    hb = _closure(sb | sw)
    if any(a == b for a, b in hb) or any((b, a) in hb for a, b in eco):
        return False
    # The order of all sequentially consistent events.
    def same(pair):
        return ops[pair[0]].variable == ops[pair[1]].variable != ""

    elsewhere = {pair for pair in sb if not same(pair)}
    scb = sb | _then(_then(elsewhere, hb), elsewhere) | {pair for pair in hb if same(pair)} | mo | fr
    strong = {(e, e) for e in events if ops[e].order == SEQ_CST and ops[e].kind != "fence"}
    fences = {(e, e) for e in events if ops[e].order == SEQ_CST and ops[e].kind == "fence"}
    identity = {(e, e) for e in events}
    left = strong | _then(fences, hb | identity)
    right = strong | _then(hb | identity, fences)
    base = _then(_then(left, scb), right)
    of_fences = _then(_then(fences, hb | _then(_then(hb, eco), hb)), fences)
    return _is_acyclic(base | of_fences)
