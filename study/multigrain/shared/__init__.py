"""Arrays that all nodes share, and functions that run on all processors: what `import multigrain` offers."""

from .arrays import array, copy, is_shared
from .checkpoints import checkpoint, restored
from .library import MultigrainError
from .messages import CannotSend
from .pool import AsyncResult, Pool, map
from .running import (
    BrokenBarrier,
    RemoteError,
    RemoteTraceback,
    barrier,
    node,
    nodes,
    parallel,
    processor,
    processors,
    processors_per_node,
    run,
    share_of,
)
from .sync import Barrier, Condition, Empty, Lock, Queue, lock

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
