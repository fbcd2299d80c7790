"""Litmus tests in the text formats of the herd tools: reads those of C11 atomics and of x86, and writes them.

A test is a handful of threads, each a straight line of loads, stores and fences. What else the formats have (branches, read-modify-writes,
pointers, other languages) raises NotApplicable, so that a whole catalogue can be read and the tests that apply be run.
"""

from __future__ import annotations

import dataclasses
import re

RELAXED, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST = "relaxed", "acquire", "release", "acq_rel", "seq_cst"
ORDERS = {RELAXED, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST, "consume"}


class NotApplicable(Exception):
    """The test has something that is not run here. The text says what."""


@dataclasses.dataclass(frozen=True)
class Op:
    """One step of a thread: a load into `register`, a store of `value`, or a fence (no variable)."""

    kind: str  # "load", "store", "fence"
    variable: str = ""
    order: str = SEQ_CST
    register: str = ""
    value: int = 0


@dataclasses.dataclass
class Test:
    name: str
    language: str  # "C" or "X86"
    threads: list[list[Op]]
    condition: str = ""  # of the text, as it is
    initial: dict[str, int] = dataclasses.field(default_factory=dict)

    def variables(self) -> list[str]:
        return sorted({op.variable for thread in self.threads for op in thread if op.variable})

    def registers(self) -> list[tuple[int, str]]:
        return [(t, op.register) for t, thread in enumerate(self.threads) for op in thread if op.kind == "load"]


# --- Reading


def parse(text: str) -> Test:
    text = re.sub(r"\(\*.*?\*\)", "", text, flags=re.S)
    head = re.match(r"\s*(\S+)\s+(\S+)", text)
    if head is None:
        raise NotApplicable("no head")
    language, name = head.group(1), head.group(2)
    rest = text[head.end() :]
    rest = re.sub(r'^\s*"[^"]*"', "", rest, flags=re.M)
    begin = rest.find("{")
    end = rest.find("}", begin)
    if begin < 0 or end < 0:
        raise NotApplicable("no initial state")
    initial = _parse_initial(rest[begin + 1 : end])
    body = rest[end + 1 :]
    found = re.search(r"^\s*(?:filter|locations|exists|forall|~\s*exists)\b", body, flags=re.M)
    code, condition = (body[: found.start()], body[found.start() :].strip()) if found else (body, "")
    if language == "C":
        threads = _parse_c(code)
    elif language in ("X86", "X86_64"):
        threads = _parse_x86(code)
        language = "X86"
    else:
        raise NotApplicable(f"language {language}")
    if not 2 <= len(threads) <= 4:
        raise NotApplicable(f"{len(threads)} threads")
    for thread in threads:
        names = [op.register for op in thread if op.kind == "load"]
        if len(set(names)) != len(names):
            raise NotApplicable("a register that is loaded twice")
    return Test(name, language, threads, condition, initial)


def _parse_initial(text: str) -> dict[str, int]:
    initial = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        found = re.fullmatch(r"(?:(?:volatile\s+)?(?:atomic_int|int)\s*\*?\s*)?\[?\s*(\w+)\s*\]?(?:\s*=\s*(-?\d+))?", part)
        if found is None:
            raise NotApplicable(f"initial state {part!r}")
        initial[found.group(1)] = int(found.group(2) or 0)
    return initial


def _parse_c(code: str) -> list[list[Op]]:
    threads = []
    for found in re.finditer(r"P(\d+)\s*\(([^)]*)\)\s*\{(.*?)^\s*\}", code, flags=re.S | re.M):
        if int(found.group(1)) != len(threads):
            raise NotApplicable("threads out of order")
        if "mutex" in found.group(2):
            raise NotApplicable("a mutex")
        threads.append([_parse_c_statement(s.strip()) for s in found.group(3).split(";") if s.strip()])
    return threads


def _order(name: str | None) -> str:
    if name is None:
        return SEQ_CST
    order = name.strip().removeprefix("memory_order_")
    if order not in ORDERS:
        raise NotApplicable(f"order {name!r}")
    return ACQUIRE if order == "consume" else order


def _parse_c_statement(statement: str) -> Op:
    found = re.fullmatch(r"atomic_store(?:_explicit)?\s*\(\s*(\w+)\s*,\s*(-?\d+)\s*(?:,\s*(\w+)\s*)?\)", statement)
    if found:
        return Op("store", found.group(1), _order(found.group(3)), value=int(found.group(2)))
    found = re.fullmatch(r"(?:int\s+)?(\w+)\s*=\s*atomic_load(?:_explicit)?\s*\(\s*(\w+)\s*(?:,\s*(\w+)\s*)?\)", statement)
    if found:
        return Op("load", found.group(2), _order(found.group(3)), register=found.group(1))
    found = re.fullmatch(r"atomic_thread_fence\s*\(\s*(\w+)\s*\)", statement)
    if found:
        return Op("fence", order=_order(found.group(1)))
    raise NotApplicable(f"statement {statement!r}")


def _parse_x86(code: str) -> list[list[Op]]:
    rows = [[cell.strip() for cell in row.split("|")] for row in code.split(";") if row.strip()]
    if not rows or any(not re.fullmatch(r"P\d+", cell) for cell in rows[0]):
        raise NotApplicable("no table")
    threads: list[list[Op]] = [[] for _ in rows[0]]
    for row in rows[1:]:
        if len(row) != len(threads):
            raise NotApplicable("a ragged table")
        for thread, cell in zip(threads, row):
            if cell:
                thread.append(_parse_x86_instruction(cell))
    return threads


def _parse_x86_instruction(cell: str) -> Op:
    found = re.fullmatch(r"mov[lq]?\s+\[(\w+)\]\s*,\s*\$?(\d+)", cell, flags=re.I)
    if found:
        return Op("store", found.group(1), RELAXED, value=int(found.group(2)))
    found = re.fullmatch(r"mov[lq]?\s+(e[a-d]x|e[sd]i|r\w+)\s*,\s*\[(\w+)\]", cell, flags=re.I)
    if found:
        return Op("load", found.group(2), RELAXED, register=found.group(1).upper())
    if cell.lower() == "mfence":
        return Op("fence", order=SEQ_CST)
    raise NotApplicable(f"instruction {cell!r}")


# --- Writing


def write(test: Test) -> str:
    initial = " ".join(f"[{v}] = {test.initial.get(v, 0)};" for v in test.variables())
    if test.language == "C":
        out = [f"C {test.name}", "", "{ " + initial + " }", ""]
        parameters = ", ".join(f"atomic_int* {v}" for v in test.variables())
        for t, thread in enumerate(test.threads):
            out += [f"P{t} ({parameters}) {{", *(f"  {_c_text(op)};" for op in thread), "}", ""]
    else:
        out = [f"X86 {test.name}", "", "{ " + initial.replace("[", "").replace("]", "") + " }", ""]
        columns = [[f"P{t}", *(_x86_text(op) for op in thread)] for t, thread in enumerate(test.threads)]
        for i in range(max(map(len, columns))):
            out.append(" | ".join(c[i] if i < len(c) else "" for c in columns) + " ;")
        out.append("")
    return "\n".join([*out, test.condition, ""])


def _c_text(op: Op) -> str:
    if op.kind == "fence":
        return f"atomic_thread_fence(memory_order_{op.order})"
    if op.kind == "store":
        return f"atomic_store_explicit({op.variable}, {op.value}, memory_order_{op.order})"
    return f"int {op.register} = atomic_load_explicit({op.variable}, memory_order_{op.order})"


def _x86_text(op: Op) -> str:
    if op.kind == "fence":
        return "MFENCE"
    if op.kind == "store":
        return f"MOV [{op.variable}],${op.value}"
    return f"MOV {op.register},[{op.variable}]"
