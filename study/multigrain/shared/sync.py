"""Locks and what else processors synchronise with. The objects may be sent to other processors as arguments."""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from types import TracebackType
from typing import Any

from . import library, messages, running


class _Held(threading.local):
    """The locks that the calling thread holds."""

    def __init__(self) -> None:
        self.locks: Counter[int] = Counter()


_held = _Held()


def let_go_of_all() -> int:
    """Releases what the calling thread holds, and says how many locks that were."""
    locks = list(_held.locks)
    for lock in locks:
        del _held.locks[lock]
        library.machine().unlock(lock)
    return len(locks)


def holds_locks() -> bool:
    """Says whether the calling thread holds a lock."""
    return bool(_held.locks)


class Lock:
    """A lock for the processors of all nodes: what one wrote before it released the lock, the next one sees. Not recursive."""

    def __init__(self, handle: int | None = None) -> None:
        if handle is None:
            running.refuse_during_import("mg.lock")
        self._handle = library.machine().lock_create() if handle is None else handle

    def acquire(self, blocking: bool = True) -> bool:
        """Takes the lock, and says whether it has it: with blocking=False it does not wait."""
        if self._handle in _held.locks:
            raise RuntimeError("this processor holds the lock already, and would wait for itself")
        machine = library.machine()
        if blocking:
            machine.lock(self._handle)
        elif not machine.trylock(self._handle):
            return False
        _held.locks[self._handle] = 1
        return True

    def release(self) -> None:
        """Releases the lock, which the calling processor holds."""
        if self._handle not in _held.locks:
            raise RuntimeError("this processor does not hold the lock that it releases")
        del _held.locks[self._handle]
        library.machine().unlock(self._handle)

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return Lock, (self._handle,)


class Condition:
    """A condition with its lock, as threading.Condition: wait() gives the lock back meanwhile. No spurious wake-ups."""

    def __init__(self, lock: Lock | None = None, handle: int | None = None) -> None:
        self._lock = Lock() if lock is None else lock
        self._handle = library.machine().cond_create() if handle is None else handle

    def wait(self) -> None:
        """Waits for a notify(). The calling processor holds the lock, before and after."""
        lock = self._lock._handle
        if lock not in _held.locks:
            raise RuntimeError("this processor waits for a condition without holding its lock")
        library.machine().cond_wait(self._handle, lock)

    def notify(self) -> None:
        """Wakes one processor that waits, if there is one."""
        library.machine().cond_signal(self._handle)

    def notify_all(self) -> None:
        """Wakes all processors that wait."""
        library.machine().cond_broadcast(self._handle)

    def __enter__(self) -> Condition:
        self._lock.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return Condition, (self._lock, self._handle)


class Barrier:
    """A barrier of `count` processors, for functions in which not all take part; barrier() is that of all."""

    def __init__(self, count: int, handle: int | None = None) -> None:
        if count < 1:
            raise ValueError(f"a barrier is of 1 processor or more, not of {count}")
        self._count = count
        self._handle = library.machine().barrier_create(count) if handle is None else handle

    def wait(self) -> None:
        """Waits until `count` processors have come."""
        library.machine().barrier(self._handle)

    def __reduce__(self) -> tuple[Any, ...]:
        return Barrier, (self._count, self._handle)


class _QueueState(ctypes.Structure):
    _fields_ = [("first", ctypes.c_uint64), ("last", ctypes.c_uint64)]


class _QueueEntry(ctypes.Structure):
    _fields_ = [("next", ctypes.c_uint64), ("size", ctypes.c_uint64)]


_ENTRY = ctypes.sizeof(_QueueEntry)


class Empty(Exception):
    """The queue has nothing at the moment."""


class Queue:
    """A queue of objects between the processors of all nodes, first in, first out, without a limit. It lives as long as the
    run."""

    def __init__(self, parts: tuple[Condition, int] | None = None) -> None:
        if parts is None:
            running.refuse_during_import("mg.Queue")
            parts = Condition(), library.machine().allocate(ctypes.sizeof(_QueueState))
        self._changed, self._address = parts

    def put(self, value: object) -> None:
        """Puts a copy of the object into the queue; shared arrays in it stay shared. Errors: CannotSend."""
        self.put_message(messages.encode(value, 1))

    def get(self, block: bool = True) -> Any:
        """Takes the first object out of the queue; waits for one, or raises Empty with block=False."""
        return messages.decode(self.get_message(block))

    def put_message(self, data: bytes) -> None:
        """Puts an encoded message into the queue."""
        machine = library.machine()
        address = machine.allocate(_ENTRY + len(data))
        entry = _QueueEntry.from_address(address)
        entry.next, entry.size = 0, len(data)
        ctypes.memmove(address + _ENTRY, data, len(data))
        state = _QueueState.from_address(self._address)
        with self._changed:
            if state.first == 0:
                state.first = address
            else:
                _QueueEntry.from_address(state.last).next = address
            state.last = address
            self._changed.notify()

    def get_message(self, block: bool = True) -> bytes:
        """Takes the first message out of the queue, without decoding it."""
        state = _QueueState.from_address(self._address)
        with self._changed:
            while state.first == 0:
                if not block:
                    raise Empty("the queue is empty")
                self._changed.wait()
            address = state.first
            entry = _QueueEntry.from_address(address)
            state.first = entry.next
            data = ctypes.string_at(address + _ENTRY, entry.size)
        library.machine().free(address)
        return data

    def __reduce__(self) -> tuple[Any, ...]:
        return Queue, ((self._changed, self._address),)


# The handles of this run that stand for handles of the run that wrote the checkpoint.
_made_again: dict[int, int] = {}


def _lock_again(handle: int) -> Lock:
    if handle not in _made_again:
        _made_again[handle] = library.machine().lock_create()
    return Lock(_made_again[handle])


def _condition_again(lock: Lock, handle: int) -> Condition:
    if handle not in _made_again:
        _made_again[handle] = library.machine().cond_create()
    return Condition(lock, _made_again[handle])


def _barrier_again(count: int, handle: int) -> Barrier:
    if handle not in _made_again:
        _made_again[handle] = library.machine().barrier_create(count)
    return Barrier(count, _made_again[handle])


def kept(item: Any) -> Any:
    """How a checkpoint keeps the object: as one that is made again where the run goes on. NotImplemented if it is none of
    these. Errors: CannotSend."""
    if isinstance(item, Lock):
        return _lock_again, (item._handle,)
    if isinstance(item, Condition):
        return _condition_again, (item._lock, item._handle)
    if isinstance(item, Barrier):
        return _barrier_again, (item._count, item._handle)
    if isinstance(item, Queue):
        raise messages.CannotSend(
            "a queue cannot be kept in a checkpoint: make it again, and put in what is to be in it"
        )
    return NotImplemented


def lock() -> Lock:
    """Returns a new lock, which is free."""
    return Lock()
