"""Checkpoints of programs: an object of the program, with all shared arrays that it has.

The library writes all shared memory; what it gives back is an address, the root. There a program of Python has the name of its
file, and its object as a message (messages.py) that is under way from the run that wrote it to the one that goes on: what
decodes it there has the blocks that it names. Counts and locks of blocks are those of processes that are gone by then, so
they begin anew. Handles of locks, conditions and barriers mean nothing in another run. They are numbers in the message, and
the first time that a number is met there a new one is made for it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

from . import interrupts, library, messages, running, sync


class _Root(ctypes.Structure):
    # Behind it are the program's name and the message.
    _fields_ = [("name_size", ctypes.c_uint64), ("size", ctypes.c_uint64)]


_ROOT = ctypes.sizeof(_Root)

# What restored() has found, in a tuple of its own.
_found: tuple[Any] | None = None


def _program() -> str:
    """The name of the program's file, without its folder, which may be another one on another day."""
    return os.path.basename(getattr(sys.modules.get("__main__"), "__file__", None) or "")


def checkpoint(state: object) -> bool:
    """Writes a checkpoint, if the run has --checkpoint and the time that --every says has passed since the last one.

    Saved are the object, as pickle does it, and all arrays of array() in it, which stay shared however deep they are; locks,
    conditions and barriers in it are made again. restored() returns it in a run that goes on from the checkpoint. It is called
    by the program itself, between two calls of run(), by a thread that holds no lock.

    Returns whether one was written. If it could not be, because the disk is full for example, the run has said why, and the
    last one is still there. Errors: CannotSend, if the object cannot be pickled; RuntimeError, where it must not be called.
    """
    running.refuse_unless_main("mg.checkpoint")
    if sync.holds_locks():
        raise RuntimeError("mg.checkpoint is called while this thread holds a lock; release it before")
    machine = library.machine()
    if not machine.writes_checkpoints():
        return False
    running.take_processors("mg.checkpoint")
    try:
        with interrupts.sigint.deferring():
            return _write(machine, state)
    finally:
        running.give_processors_back()


def _write(machine: library.Machine, state: object) -> bool:
    # What has been printed by now is not printed again by the run that goes on.
    running.flush()
    name = _program().encode(errors="surrogateescape")
    data = messages.encode(state, 0, sync.kept)
    address = machine.allocate(_ROOT + len(name) + len(data))
    try:
        root = _Root.from_address(address)
        root.name_size, root.size = len(name), len(data)
        ctypes.memmove(address + _ROOT, name + data, len(name) + len(data))
        for p in range(1, machine.processors()):
            machine.spawn_checkpoint(p, address)
        is_written = machine.checkpoint(address)
        for p in range(1, machine.processors()):
            machine.join(p)
    finally:
        machine.free(address)
    return is_written


def restored() -> Any:
    """Returns the object of the checkpoint from which the run was restarted (mgrun --restart, or --restart-on-failure), or None
    if it was not; each time the same object. It is called by the program itself.

    Errors: MultigrainError, if another program has written the checkpoint; CannotSend, if a class that is in it is not there.
    """
    global _found
    running.refuse_unless_main("mg.restored")
    machine = library.machine()
    if _found is None:
        address = machine.restored()
        _found = (None if address == 0 else _read(machine, address),)
    return _found[0]


def _read(machine: library.Machine, address: int) -> Any:
    root = _Root.from_address(address)
    program = ctypes.string_at(address + _ROOT, root.name_size).decode(errors="surrogateescape")
    if program != _program():
        raise library.MultigrainError(f"the checkpoint is of the program '{program}', and this one is '{_program()}'")
    data = ctypes.string_at(address + _ROOT + root.name_size, root.size)
    messages.adopt(data)
    state = messages.decode(data)
    machine.free(address)
    return state
