"""The machine below: libmultigrain, which mgrun has preloaded into this interpreter, or one processor without it."""

from __future__ import annotations

import atexit
import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Protocol

Work = Callable[[int], None]

HOMES = {"default": 0, "interleaved": 1, "blocked": 2, "first touch": 4}
_HOME_NODE = 3
PROTOCOLS = {"default": 0, "mgs": 1, "hlrc": 2, "sc": 5, "placement": 6}

VERSION = "0.1.0"


class MultigrainError(RuntimeError):
    """Multigrain cannot do what was asked of it; the text says why."""


class _AllocOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("alignment", c_size_t),
        ("home", c_int),
        ("node", c_uint),
        ("protocol", c_int),
        ("block_size", c_size_t),
    ]


class Machine(Protocol):
    """What the rest of the package needs. Addresses and handles are whole numbers; a call that waits lets other threads of
    the interpreter run."""

    def processor(self) -> int: ...
    def processors(self) -> int: ...
    def processors_per_node(self) -> int: ...
    def node(self) -> int: ...
    def nodes(self) -> int: ...
    def allocate(self, size: int, home: str | int = "default", protocol: str = "default") -> int: ...
    def free(self, address: int) -> None: ...
    def lock_create(self) -> int: ...
    def lock_destroy(self, lock: int) -> None: ...
    def lock(self, lock: int) -> None: ...
    def trylock(self, lock: int) -> bool: ...
    def unlock(self, lock: int) -> None: ...
    def barrier_create(self, count: int) -> int: ...
    def barrier_destroy(self, barrier: int) -> None: ...
    def barrier(self, barrier: int) -> None: ...
    def cond_create(self) -> int: ...
    def cond_wait(self, cond: int, lock: int) -> None: ...
    def cond_signal(self, cond: int) -> None: ...
    def cond_broadcast(self, cond: int) -> None: ...
    def begin(self, work: Work) -> None: ...
    def spawn(self, processor: int, argument: int) -> None: ...
    def join(self, processor: int) -> None: ...
    def writes_checkpoints(self) -> bool: ...
    def checkpoint(self, root: int) -> bool: ...
    def spawn_checkpoint(self, processor: int, root: int) -> None: ...
    def restored(self) -> int: ...


class _Loaded:
    """libmultigrain. ctypes lets other threads of the interpreter run while one of these functions does."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        handle, nothing = c_uint64, None
        self.processor = self._function("mg_processor", c_uint)
        self.processors = self._function("mg_processors", c_uint)
        self.processors_per_node = self._function("mg_processors_per_node", c_uint)
        self.node = self._function("mg_node", c_uint)
        self.nodes = self._function("mg_nodes", c_uint)
        self.free = self._function("mg_free", nothing, c_void_p)
        self.lock_create = self._function("mg_lock_create", handle)
        self.lock_destroy = self._function("mg_lock_destroy", nothing, handle)
        self.lock = self._function("mg_lock", nothing, handle)
        self._trylock = self._function("mg_trylock", c_int, handle)
        self.unlock = self._function("mg_unlock", nothing, handle)
        self.barrier_create = self._function("mg_barrier_create", handle, c_uint)
        self.barrier_destroy = self._function("mg_barrier_destroy", nothing, handle)
        self.barrier = self._function("mg_barrier", nothing, handle)
        self.cond_create = self._function("mg_cond_create", handle)
        self.cond_wait = self._function("mg_cond_wait", nothing, handle, handle)
        self.cond_signal = self._function("mg_cond_signal", nothing, handle)
        self.cond_broadcast = self._function("mg_cond_broadcast", nothing, handle)
        self._alloc = self._function("mg_alloc", c_void_p, c_size_t, POINTER(_AllocOptions))
        self._error = self._function("mg_error", ctypes.c_char_p)
        self._spawn = self._function("mg_spawn", c_int, c_uint, c_void_p, c_void_p)
        self._join = self._function("mg_join", c_int, c_uint)
        self._set_work = self._function("__multigrain_set_interpreter_work", nothing, c_void_p)
        self._entry = ctypes.cast(library["__multigrain_interpreter_work"], c_void_p).value
        self._writes_checkpoints = self._function("__multigrain_writes_checkpoints", c_int)
        self._checkpoint = self._function("mg_checkpoint", c_int, c_void_p)
        self._checkpoint_entry = ctypes.cast(library["__multigrain_interpreter_checkpoint"], c_void_p).value
        self._restored = self._function("mg_restored", c_void_p)
        self._called: object = None

    def _function(self, name: str, result: object, *arguments: object) -> Callable[..., Any]:
        function = self._library[name]
        function.restype = result  # type: ignore[assignment]
        function.argtypes = arguments  # type: ignore[assignment]
        return function

    def _sentence(self) -> str:
        text = self._error()
        return text.decode(errors="replace") if isinstance(text, bytes) else ""

    def trylock(self, lock: int) -> bool:
        return bool(self._trylock(lock))

    def allocate(self, size: int, home: str | int = "default", protocol: str = "default") -> int:
        options = _AllocOptions(ctypes.sizeof(_AllocOptions))
        options.home = _HOME_NODE if isinstance(home, int) else HOMES[home]
        options.node = home if isinstance(home, int) else 0
        options.protocol = PROTOCOLS[protocol]
        address = self._alloc(max(size, 1), byref(options))
        if address is None:
            kind = MemoryError if ctypes.get_errno() == errno.ENOMEM else ValueError
            raise kind(self._sentence().removeprefix("mg_alloc: "))
        return int(address)

    def begin(self, work: Work) -> None:
        self._called = CFUNCTYPE(None, c_void_p)(lambda argument: work(argument or 0))
        self._set_work(ctypes.cast(self._called, c_void_p))
        if self.node() == 0:
            # The other nodes' interpreters start now, while the program goes on.
            for node in range(1, self.nodes()):
                self._spawn(node * self.processors_per_node(), self._entry, None)
            for node in range(1, self.nodes()):
                self.join(node * self.processors_per_node())

    def spawn(self, processor: int, argument: int) -> None:
        if self._spawn(processor, self._entry, argument) != 0:
            raise MultigrainError(self._sentence())

    def join(self, processor: int) -> None:
        if self._join(processor) != 0:
            raise MultigrainError(self._sentence())

    def writes_checkpoints(self) -> bool:
        return bool(self._writes_checkpoints())

    def checkpoint(self, root: int) -> bool:
        return int(self._checkpoint(root)) > 0

    def spawn_checkpoint(self, processor: int, root: int) -> None:
        if self._spawn(processor, self._checkpoint_entry, root) != 0:
            raise MultigrainError(self._sentence())

    def restored(self) -> int:
        return self._restored() or 0


class _Alone:
    """One processor without libmultigrain: memory is this process's own, and locks are Python's."""

    def __init__(self) -> None:
        self._memory: dict[int, mmap.mmap] = {}
        self._objects: dict[int, threading.Lock | threading.Barrier | threading.Condition] = {}
        self._next = 1
        self._making = threading.Lock()

    def processor(self) -> int:
        return 0

    def processors(self) -> int:
        return 1

    def processors_per_node(self) -> int:
        return 1

    def node(self) -> int:
        return 0

    def nodes(self) -> int:
        return 1

    def allocate(self, size: int, home: str | int = "default", protocol: str = "default") -> int:
        if isinstance(home, int) and home != 0:
            raise ValueError(f"there is no node {home}: the machine has 1, numbered from 0")
        try:
            memory = mmap.mmap(-1, max(size, 1))
        except (OSError, OverflowError, ValueError) as error:
            raise MemoryError(f"there is no room for {size} bytes of shared memory") from error
        address = ctypes.addressof(c_char.from_buffer(memory))
        self._memory[address] = memory
        return address

    def free(self, address: int) -> None:
        del self._memory[address]

    def _made(self, thing: threading.Lock | threading.Barrier | threading.Condition) -> int:
        with self._making:
            handle = self._next
            self._next += 1
        self._objects[handle] = thing
        return handle

    def lock_create(self) -> int:
        return self._made(threading.Lock())

    def lock_destroy(self, lock: int) -> None:
        del self._objects[lock]

    def lock(self, lock: int) -> None:
        self._lock(lock).acquire()

    def trylock(self, lock: int) -> bool:
        return self._lock(lock).acquire(blocking=False)

    def unlock(self, lock: int) -> None:
        self._lock(lock).release()

    def _lock(self, lock: int) -> threading.Lock:
        return self._objects[lock]  # type: ignore[return-value]

    def barrier_create(self, count: int) -> int:
        return self._made(threading.Barrier(count or 1))

    def barrier_destroy(self, barrier: int) -> None:
        del self._objects[barrier]

    def barrier(self, barrier: int) -> None:
        self._objects[barrier].wait()  # type: ignore[union-attr]

    def cond_create(self) -> int:
        return self._made(threading.Condition(threading.Lock()))

    # The condition's own lock guards its list of waiters; the caller's lock is given back meanwhile.
    def cond_wait(self, cond: int, lock: int) -> None:
        condition: threading.Condition = self._objects[cond]  # type: ignore[assignment]
        with condition:
            self.unlock(lock)
            condition.wait()
        self.lock(lock)

    def cond_signal(self, cond: int) -> None:
        condition: threading.Condition = self._objects[cond]  # type: ignore[assignment]
        with condition:
            condition.notify()

    def cond_broadcast(self, cond: int) -> None:
        condition: threading.Condition = self._objects[cond]  # type: ignore[assignment]
        with condition:
            condition.notify_all()

    def begin(self, work: Work) -> None:
        pass

    def spawn(self, processor: int, argument: int) -> None:
        raise MultigrainError(f"there is no processor {processor}: the machine has 1 (numbered from 0)")

    def join(self, processor: int) -> None:
        pass

    def writes_checkpoints(self) -> bool:
        return False

    def checkpoint(self, root: int) -> bool:
        return False

    def spawn_checkpoint(self, processor: int, root: int) -> None:
        self.spawn(processor, root)

    def restored(self) -> int:
        return 0


def _library_of_run() -> ctypes.CDLL | None:
    whole_process = ctypes.CDLL(None, use_errno=True)
    try:
        running = whole_process["__multigrain_is_running"]
    except AttributeError:
        return None
    if not running():
        raise MultigrainError(
            "this process is no node of the run: it was forked from one; start it as a program of its own (subprocess, or "
            "multiprocessing's spawn)"
        )
    try:
        version = whole_process["__multigrain_version"]
    except AttributeError:
        raise MultigrainError(
            f"mgrun is of another version of Multigrain than this package, which is {VERSION}"
        ) from None
    version.restype = ctypes.c_char_p
    text = version()
    theirs = text.decode() if isinstance(text, bytes) else "?"
    if theirs != VERSION:
        raise MultigrainError(
            f"mgrun is of Multigrain {theirs}, and this package is of {VERSION}: use the same version"
        )
    return whole_process


def _find() -> Machine:
    library = _library_of_run()
    if library is not None:
        return _Loaded(library)
    for name in ("MULTIGRAIN_NODES", "MULTIGRAIN_PROCS_PER_NODE"):
        if os.environ.get(name, "1") != "1":
            raise MultigrainError(
                f"{name} is {os.environ[name]}, but this Python was not started by mgrun: use "
                "mgrun --nodes N --procs-per-node C -- python3 program.py"
            )
    return _Alone()


_machine: Machine | None = None
_finding = threading.Lock()
# The interpreter ends: memory is not given back one block after the other any more.
is_ending = False


def _note_end() -> None:
    global is_ending
    is_ending = True


def _forget_machine() -> None:
    global _machine
    _machine = None


# A forked child is no node.
os.register_at_fork(after_in_child=_forget_machine)


def machine() -> Machine:
    """The machine that this interpreter is a part of."""
    global _machine
    if _machine is None:
        with _finding:
            if _machine is None:
                found = _find()
                atexit.register(_note_end)
                from .running import work

                found.begin(work)
                _machine = found
    return _machine
