"""Multigrain from Python: NumPy arrays that the nodes of a run share, and functions that run on all of its processors.

    import multigrain as mg

    def scale(a, by):
        mine = mg.share_of(len(a))     # this processor's rows
        a[mine] *= by

    if __name__ == "__main__":
        a = mg.array((4096, 4096), "f8")
        mg.run(scale, a, 2.0)

`mgrun --nodes 2 --procs-per-node 2 -- python3 program.py` starts it; without mgrun it runs on one processor.
docs/user/python.md says more. multigrain.trace reads reference traces, multigrain.study writes reports.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .shared import (
        AsyncResult,
        Barrier,
        BrokenBarrier,
        CannotSend,
        Condition,
        Empty,
        Lock,
        MultigrainError,
        Pool,
        Queue,
        RemoteError,
        RemoteTraceback,
        array,
        barrier,
        checkpoint,
        copy,
        is_shared,
        lock,
        map,
        node,
        nodes,
        parallel,
        processor,
        processors,
        processors_per_node,
        restored,
        run,
        share_of,
    )

# What multigrain.shared has is loaded when it is used, so that multigrain.study and multigrain.trace start without it.
__all__ = [
    "AsyncResult",
    "Pool",
    "map",
    "Barrier",
    "BrokenBarrier",
    "CannotSend",
    "Condition",
    "Empty",
    "Lock",
    "MultigrainError",
    "Queue",
    "RemoteError",
    "RemoteTraceback",
    "array",
    "barrier",
    "checkpoint",
    "copy",
    "is_shared",
    "lock",
    "node",
    "nodes",
    "parallel",
    "processor",
    "processors",
    "processors_per_node",
    "restored",
    "run",
    "share_of",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(".shared", __name__), name)
