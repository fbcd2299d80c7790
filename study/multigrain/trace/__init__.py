"""Reference traces in NumPy and Arrow, and the analyses of `mgtrace analyze`.

    import multigrain.trace as mt

    trace = mt.open("program.mgt")
    for batch in trace.batches():
        writes += (batch.references["access"] == mt.WRITE).sum()
    best = mt.optimal(trace, ["numa", "cxl3"])[0]
    print(best.mcpr, best.parts)

A trace is an Arrow stream, too, so that what reads these takes it as it is, a batch at a time where it can:

    table = pyarrow.table(trace)             # or polars.DataFrame(trace), or a DuckDB query that names `trace`
    events = pyarrow.table(trace.arrow_events())

A policy of your own is a class with one decision. It is asked through the interpreter, at a million references a second
or so: for a long trace write it in C++ (src/placement/policy.h).

    class Third(mt.Policy):  # fetches a block at every third reference from elsewhere
        def on_reference(self, block, reference, time):
            count = self.memory[block.number] = self.memory.get(block.number, 0) + 1
            return mt.LOCAL if count % 3 == 0 else mt.STAY

    mt.policies(trace, ["numa"], ["ace", Third()])

Costs are in local references of their machine; docs/internals/optimal-placement.md and src/trace/model/ say what is
computed.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

try:
    from . import _native
except ImportError as error:
    raise ImportError(
        f"multigrain.trace's extension is not there for this Python ({error}): build Multigrain after cmake/setup.sh build, "
        "and use build/python/bin/python"
    ) from error

TraceError = _native.TraceError
Block = _native.Block
Reference = _native.Reference

READ, WRITE = 0, 1
PRIVATE, ALLOCATE, FREE, ACQUIRE, RELEASE, BARRIER, START, END = range(8)  # kinds of events
STAY: int = _native.STAY
LOCAL: int = _native.LOCAL
GLOBAL: int = _native.GLOBAL

# Bytes: what study() looks at unless it is told otherwise, from a line of the cache to a huge page.
BLOCK_SIZES = (*(1 << shift for shift in range(5, 14)), 64 << 10, 2 << 20)

# The layouts of trace.h.
REFERENCE = np.dtype(
    {
        "names": ["address", "site", "processor", "access", "size"],
        "formats": ["<u8", "<u4", "<u2", "u1", "u1"],
        "offsets": [0, 8, 12, 14, 15],
        "itemsize": 16,
    }
)
EVENT = np.dtype(
    {
        "names": ["position", "address", "value", "name", "site", "processor", "kind"],
        "formats": ["<u8", "<u8", "<u8", "<u4", "<u4", "<u2", "u1"],
        "offsets": [0, 8, 16, 24, 28, 32, 34],
        "itemsize": 40,
    }
)

Path = str | os.PathLike[str]
# A machine's name, or what a machine file has in it.
Machine = str | Mapping[str, Any]


class Site(NamedTuple):
    """A source line; the file is empty where it is not known. `caller` is the site of the call that led to the function."""

    file: str
    function: str
    line: int
    caller: int = 0


class Batch(NamedTuple):
    """A stretch of a trace. `first` is the index in the trace of references[0]; an event's position counts likewise."""

    first: int
    references: np.ndarray[Any, np.dtype[np.void]]  # of REFERENCE
    events: np.ndarray[Any, np.dtype[np.void]]  # of EVENT


class Trace:
    """A trace file. Every iteration reads it from the beginning; threads can iterate side by side."""

    def __init__(self, path: Path, partial: bool = False) -> None:
        self.path = os.fspath(path)
        self.partial = partial
        self._header = _native.Reader(self.path, partial)

    @property
    def processors(self) -> int:
        return int(self._header.processors)

    @property
    def program(self) -> str:
        """The command that was traced."""
        return str(self._header.program)

    @property
    def recorder(self) -> str:
        return str(self._header.recorder)

    @property
    def dilation(self) -> float | None:
        """Time of the traced run over the untraced one, where that is known."""
        return self._header.dilation or None

    @property
    def scale(self) -> float:
        """References of the run for each one of the trace: 1, unless the recorder took bursts of them (record --sample)."""
        return float(self._header.scale)

    @property
    def sites(self) -> list[Site]:
        """What the field `site` of references and events is an index of; sites[0] is the unknown one."""
        return [Site(*site) for site in self._header.sites]

    @property
    def names(self) -> list[str]:
        """Of allocations."""
        return list(self._header.names)

    @property
    def events(self) -> int:
        return int(self._header.events)

    @property
    def bytes(self) -> int:
        """Of the file."""
        return int(self._header.bytes)

    @property
    def damage(self) -> str:
        """What is wrong with the file, as far as its index tells; empty: nothing."""
        return str(self._header.damage)

    def __len__(self) -> int:
        return int(self._header.references)

    def __repr__(self) -> str:
        return f"<Trace {self.path!r}: {len(self):,} references by {self.processors} processors>"

    def batches(self, size: int | None = None) -> Iterator[Batch]:
        """The trace, a stretch at a time.

        Without a size, references are views of the reader's memory: nothing is copied, and the next step of the iteration
        overwrites them. Copy what you keep. With a size, batches have at least so many references, in arrays of their own.
        """
        reader = _native.Reader(self.path, self.partial)
        while (batch := reader.next(reader) if size is None else reader.read(max(1, size))) is not None:
            first, references, events = batch
            yield Batch(first, references.view(REFERENCE), events.view(EVENT))

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The references, by the Arrow PyCapsule interface: columns address, site, processor, access and size. The
        types are these, whatever is requested."""
        return _native.arrow_stream(self.path, self.partial, False)

    def arrow_events(self) -> ArrowEvents:
        """The events likewise: columns position, address, value, name, site, processor and kind."""
        return ArrowEvents(self)

    def load(self) -> Batch:
        """All of it: 16 bytes a reference, 40 an event."""
        for batch in self.batches(max(1, len(self) + 1)):
            return batch
        return Batch(0, np.empty(0, REFERENCE), np.empty(0, EVENT))


class ArrowEvents:
    """The events of a trace for what reads Arrow streams."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return _native.arrow_stream(self._trace.path, self._trace.partial, True)


def open(path: Path, partial: bool = False) -> Trace:  # as gzip.open and others
    """Opens a trace file; `partial`: also one that was cut off or is damaged, which then ends before the damage."""
    return Trace(path, partial)


def write(
    path: Path,
    references: np.ndarray[Any, Any],
    events: np.ndarray[Any, Any] | None = None,
    *,
    processors: int,
    program: str = "",
    recorder: str = "multigrain.trace",
    dilation: float | None = None,
    sites: Sequence[tuple[str, str, int] | tuple[str, str, int, int]] = (Site("", "", 0),),
    names: Sequence[str] = ("",),
    overwrite: bool = False,
) -> None:
    """Writes a trace: references of dtype REFERENCE and events of dtype EVENT, in order of position. sites[0] and names[0]
    are the unknown ones."""
    header = {
        "processors": processors,
        "program": program,
        "recorder": recorder,
        "dilation": dilation or 0,
        "sites": [list(Site(*site)) for site in sites],
        "names": list(names),
    }
    none = np.empty(0, EVENT)
    _native.write(
        os.fspath(path),
        json.dumps(header),
        _bytes(references, REFERENCE, "references"),
        _bytes(none if events is None else events, EVENT, "events"),
        overwrite,
    )


def _bytes(array: np.ndarray[Any, Any], dtype: np.dtype[Any], what: str) -> np.ndarray[Any, Any]:
    if array.dtype != dtype or array.ndim != 1:
        raise TraceError(f"{what} must be a one-dimensional array of the dtype {what[:-1].upper()}")
    return np.ascontiguousarray(array).view(np.uint8)


@dataclass(frozen=True)
class Result:
    """What a placement costs on a machine."""

    machine: Mapping[str, Any]
    policy: str  # "optimal" for optimal placement
    cost: float | None  # in local references, private references included; None: infinite
    mcpr: float | None
    parts: Mapping[str, int] | None  # local, global, remote, remote_moves, global_moves
    references: int
    private_references: int
    blocks: int  # touched
    hot: Sequence[Mapping[str, Any]] = field(
        repr=False
    )  # address, references, cost, moves of the most expensive blocks


class Policy:
    """An on-line policy. Subclasses say what on_reference does; `memory` is theirs, and empty before every evaluation."""

    name = ""
    # Whether on_reference is also asked at references that are local and need no decision.
    wants_local = False

    def __init__(self) -> None:
        self.memory: dict[Any, Any] = {}
        self.name = self.name or type(self).__name__

    def first(self, block: Block, reference: Reference, time: int) -> int:
        """Where a block is at first, for nothing."""
        return LOCAL

    def on_reference(self, block: Block, reference: Reference, time: int) -> int:
        """STAY: the reference is remote or global. LOCAL: a copy for the processor that refers; on a write, the only one.
        GLOBAL: to global memory, without other copies. A processor's number: to it, without other copies."""
        raise NotImplementedError(f"{type(self).__name__} has no on_reference()")

    def fresh(self) -> Policy:
        """This policy before it has seen anything. Override it if it remembers things elsewhere than in `memory`."""
        out = copy.copy(self)
        out.memory = {}
        return out


def _path(trace: Trace | Path) -> tuple[str, bool]:
    return (trace.path, trace.partial) if isinstance(trace, Trace) else (os.fspath(trace), False)


def _machines(machines: Sequence[Machine] | Machine) -> str:
    if isinstance(machines, (str, Mapping)):
        machines = [machines]
    return json.dumps([machine if isinstance(machine, str) else dict(machine) for machine in machines])


def known_machines() -> list[dict[str, Any]]:
    """Those that have names."""
    return list(json.loads(_native.known_machines()))


def machine(machine: Machine, **changes: Any) -> dict[str, Any]:
    """A machine by its name, or as in a machine file, with changes: machine("numa", block_size=1024, r=50)."""
    known = json.loads(_native.machine(json.dumps(machine)))
    return dict(json.loads(_native.machine(json.dumps(known | changes))))


def policy_names() -> list[str]:
    return list(_native.policy_names())


def optimal(
    trace: Trace | Path,
    machines: Sequence[Machine] | Machine,
    *,
    replication: bool = True,
    single_start: bool = False,
    hot_blocks: int = 0,
    threads: int = 1,
) -> list[Result]:
    """The cost of optimal placement on every machine, in one pass."""
    path, partial = _path(trace)
    text = _native.optimal(path, _machines(machines), replication, single_start, hot_blocks, threads, partial)
    return [Result(**result) for result in json.loads(text)]


def policies(
    trace: Trace | Path,
    machines: Sequence[Machine] | Machine,
    policies: Sequence[str | Policy],
    *,
    hot_blocks: int = 0,
    threads: int = 1,
) -> list[Result]:
    """The cost of every policy on every machine, in one pass. Named policies are left out on machines that lack what they
    need."""
    path, partial = _path(trace)
    text = _native.evaluate(path, _machines(machines), list(policies), hot_blocks, threads, partial)
    return [Result(**result) for result in json.loads(text)]


def study(
    trace: Trace | Path,
    machines: Sequence[Machine] | Machine = (),
    *,
    block_sizes: Sequence[int] = BLOCK_SIZES,
    policies: Sequence[str] = (),
    parameters: Sequence[str] = (),
    tlbs: Sequence[str] = (),
    false_sharing: bool = False,
    attribution_block_size: int = 64,
    word_bytes: int = 4,
    perturbations: int = 0,
    seed: int = 1,
    hot_blocks: int = 10,
    threads: int = 1,
    map: str = "",
    caches: str = "none",
    cache_line: int = 64,
    variable_blocks: bool = False,
    contention: bool = False,
) -> dict[str, Any]:
    """What `mgtrace analyze --json` writes (src/trace/analysis/study.h documents it), with the same options and defaults."""
    path, partial = _path(trace)
    options = {
        "machines": json.loads(_machines(machines)),
        "block_sizes": sorted(set(block_sizes)),
        "policies": list(policies),
        "parameters": list(parameters),
        "tlbs": list(tlbs),
        "false_sharing": false_sharing,
        "attribution_block_size": attribution_block_size,
        "word_bytes": word_bytes,
        "perturbations": perturbations,
        "seed": seed,
        "hot_blocks": hot_blocks,
        "threads": threads,
        "map": map,
        "caches": caches,
        "cache_line": cache_line,
        "variable_blocks": variable_blocks,
        "contention": contention,
    }
    return dict(json.loads(_native.study(path, json.dumps(options), partial)))
