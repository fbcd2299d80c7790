"""Blocks of shared memory, which live until no node has a use for them.

Invariant: the count in a block's control word is the number of nodes that have an object `Block` for it, plus the number of
copies of messages under way that name it (messages.py). Who brings the count to 0 frees the block. A node whose interpreter
still has a NumPy array in the block has the object, because the array refers to it; so nothing is freed that anybody can use.

Python may collect an object at any moment, also while this very thread changes a count. So a collected block is only put
down as such, and given back by the next call that allocates, sends or receives, or ends a piece of work.
"""

from __future__ import annotations

import bisect
import ctypes
import threading
import weakref
from collections import deque
from typing import NamedTuple

from . import library


class BlockName(NamedTuple):
    """What another node needs to know of a block."""

    address: int
    size: int
    control: int


class _Control(ctypes.Structure):
    _fields_ = [("count", ctypes.c_uint64), ("lock", ctypes.c_uint64)]


def _change(name: BlockName, by: int) -> None:
    machine = library.machine()
    control = _Control.from_address(name.control)
    lock = control.lock
    machine.lock(lock)
    control.count += by
    is_last = control.count == 0
    machine.unlock(lock)
    if is_last:
        machine.lock_destroy(lock)
        machine.free(name.address)
        machine.free(name.control)


class Block:
    """Shared memory of this node's arrays. `memory` has its bytes; who uses them keeps `memory`, which keeps the block."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: BlockName) -> None:
        self.name = name

    def __del__(self) -> None:
        if not library.is_ending:
            _collected.append(self.name)


_here: dict[int, weakref.ref[Block]] = {}
_addresses: list[int] = []
_guard = threading.RLock()
_collected: deque[BlockName] = deque()


def _enter(block: Block) -> None:
    address = block.name.address
    if address not in _here:
        bisect.insort(_addresses, address)
    _here[address] = weakref.ref(block)


def give_back_collected() -> None:
    """Gives back what this node's interpreter has collected."""
    while _collected:
        try:
            name = _collected.popleft()
        except IndexError:
            return
        with _guard:
            known = _here.get(name.address)
            if known is not None and known() is None:
                del _here[name.address]
                del _addresses[bisect.bisect_left(_addresses, name.address)]
        _change(name, -1)


def allocate(size: int, home: str | int, protocol: str) -> Block:
    """Returns a new block, of zeros."""
    give_back_collected()
    machine = library.machine()
    address = machine.allocate(size, home, protocol)
    control_address = machine.allocate(ctypes.sizeof(_Control))
    control = _Control.from_address(control_address)
    control.count = 1
    control.lock = machine.lock_create()
    block = Block(BlockName(address, size, control_address))
    with _guard:
        _enter(block)
    return block


def block_at(address: int) -> Block | None:
    """Returns the block that has this address, if it is one of this node's."""
    with _guard:
        at = bisect.bisect_right(_addresses, address) - 1
        if at < 0:
            return None
        block = _here[_addresses[at]]()
        if block is None or address >= block.name.address + max(block.name.size, 1):
            return None
        return block


def send(names: list[BlockName], copies: int) -> None:
    """Counts `copies` messages under way that name these blocks. The caller has the blocks."""
    for name in names:
        _change(name, copies)


def adopt(names: list[BlockName]) -> None:
    """These blocks are of a run that is no more, whose only trace is one message that names them."""
    for name in names:
        control = _Control.from_address(name.control)
        control.count = 1
        control.lock = library.machine().lock_create()


def receive(names: list[BlockName]) -> list[Block]:
    """Returns the blocks that a message has named, which is no longer under way."""
    blocks = []
    for name in names:
        with _guard:
            known = _here.get(name.address)
            block = known() if known is not None else None
            is_new = block is None
            if block is None:
                block = Block(name)
                _enter(block)
        if not is_new:
            _change(name, -1)
        blocks.append(block)
    give_back_collected()
    return blocks
