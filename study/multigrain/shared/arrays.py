"""NumPy arrays in shared memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import blocks, library

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, DTypeLike, NDArray


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise ImportError(
            f"multigrain's arrays are NumPy's, and this Python has no NumPy ({error}): pip install numpy"
        ) from error
    return numpy


class _Memory:
    """Tells NumPy where a block is. An array in the block keeps this, which keeps the block."""

    def __init__(self, block: blocks.Block) -> None:
        self.block = block
        self.__array_interface__ = {
            "data": (block.name.address, False),
            "shape": (block.name.size,),
            "typestr": "|u1",
            "version": 3,
        }


def _bytes_of(block: blocks.Block) -> Any:
    return _numpy().asarray(_Memory(block))


def array(
    shape: int | Sequence[int],
    dtype: DTypeLike = "f8",
    *,
    order: str = "C",
    home: str | int = "default",
    protocol: str = "default",
) -> NDArray[Any]:
    """Returns a new NumPy array of zeros whose memory all nodes share.

    shape, dtype, order: as numpy.zeros() has them; elements are numbers, texts of fixed length or records, no objects.
    home: where the pages are at home: "interleaved", "blocked", "first touch", or the number of a node.
    protocol: what keeps the array coherent: a page protocol, which must be the run's (mgrun --protocol).

    The memory is freed when no node has an array in it. Errors: ValueError, TypeError; MemoryError when the shared region is
    used up.
    """
    np = _numpy()
    from . import running

    running.refuse_during_import("mg.array")
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(
            f"elements of a shared array cannot be objects of Python ({kind}): those exist on one node only; "
            "use numbers, texts of fixed length or records"
        )
    if not isinstance(home, int) and home not in library.HOMES:
        raise ValueError(
            f"home is {home!r}; it must be one of {', '.join(map(repr, library.HOMES))}, or a node's number"
        )
    if isinstance(home, int) and home < 0:
        raise ValueError(f"home is {home}; nodes are numbered from 0")
    if protocol not in library.PROTOCOLS:
        hint = ": NumPy's code has no access checks" if protocol in ("dszoom", "shasta") else ""
        raise ValueError(f"protocol is {protocol!r}; it must be one of {', '.join(map(repr, library.PROTOCOLS))}{hint}")
    lengths = (shape,) if isinstance(shape, int) or hasattr(shape, "__index__") else tuple(shape)
    size = kind.itemsize
    for length in lengths:
        if int(length) < 0:
            raise ValueError(f"an array cannot have {int(length)} elements along an axis (shape {lengths})")
        size *= int(length)
    block = blocks.allocate(size, home, protocol)
    return np.ndarray(lengths, kind, buffer=_bytes_of(block), order=order)  # type: ignore[no-any-return]


def copy(values: ArrayLike, **options: Any) -> NDArray[Any]:
    """Returns a shared array with the shape, type and values of `values`; options as those of array()."""
    np = _numpy()
    given = np.asarray(values)
    made = array(given.shape, given.dtype, **options)
    made[...] = given
    return made


def is_shared(values: object) -> bool:
    """Says whether this is a NumPy array in shared memory."""
    return _block_of(values) is not None


def is_array(value: object) -> bool:
    """Says whether this is a NumPy array, of no class derived from NumPy's. Does not load NumPy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def _block_of(values: object) -> blocks.Block | None:
    if not is_array(values) and not hasattr(values, "__array_interface__"):
        return None
    return blocks.block_at(values.__array_interface__["data"][0])  # type: ignore[attr-defined]


def named(values: np.ndarray[Any, Any]) -> tuple[blocks.BlockName, tuple[Any, ...]] | None:
    """Returns the block that the array lies in, and what restored() needs to know; nothing if it is private."""
    block = _block_of(values)
    if block is None:
        return None
    address = values.__array_interface__["data"][0]
    return block.name, (block.name.address, address - block.name.address, values.shape, values.strides, values.dtype)


def restored(
    address: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Returns the array that another node, or this one, has described. The block is one of this node's."""
    block = blocks.block_at(address)
    if block is None:
        raise RuntimeError("the message names a block of shared memory that this node does not have")
    return _numpy().ndarray(shape, dtype, buffer=_bytes_of(block), offset=offset, strides=strides)  # type: ignore[no-any-return]
