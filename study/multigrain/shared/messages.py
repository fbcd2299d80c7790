"""How objects travel between the interpreters of the nodes: pickled, but shared arrays by their place.

A message is two pickles one behind the other: the names of the blocks of shared memory that it mentions, and the object.
"""

from __future__ import annotations

import ctypes
import io
import pickle
import sys
from collections.abc import Callable
from typing import Any

from . import arrays, blocks, library

_UNPICKLABLE = (pickle.PicklingError, AttributeError, TypeError)


class CannotSend(TypeError):
    """An object, mostly a function, that cannot be sent to another interpreter."""


def main_is_a_file() -> bool:
    """Says whether other interpreters can import the program's main module: not so in a notebook, at a prompt, or with -c."""
    main = sys.modules.get("__main__")
    return getattr(main, "__spec__", None) is not None or getattr(main, "__file__", None) is not None


def _by_value() -> type[pickle.Pickler] | None:
    try:
        import cloudpickle
    except ImportError:
        return None
    return cloudpickle.Pickler  # type: ignore[no-any-return]


# Returns how an object is to be pickled, as __reduce__ does, or NotImplemented.
Reducer = Callable[[Any], Any]


def _pickle(value: object, base: type[pickle.Pickler], reducer: Reducer | None) -> tuple[bytes, list[blocks.BlockName]]:
    names: dict[int, blocks.BlockName] = {}

    class Pickler(base):  # type: ignore[misc, valid-type]
        def reducer_override(self, item: Any) -> Any:
            if arrays.is_array(item):
                found = arrays.named(item)
                if found is not None:
                    name, description = found
                    names[name.address] = name
                    return arrays.restored, description
            own = NotImplemented if reducer is None else reducer(item)
            if own is not NotImplemented:
                return own
            inherited = getattr(super(), "reducer_override", None)
            return NotImplemented if inherited is None else inherited(item)

    stream = io.BytesIO()
    Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return stream.getvalue(), list(names.values())


def _why(error: Exception) -> str:
    text = f"this cannot be sent to other processors: {error}"
    if "pickle" in str(error) and (
        "<lambda>" in str(error) or "<locals>" in str(error) or "local object" in str(error)
    ):
        text += "; a function must be at the top level of a module (def, no lambda), or install cloudpickle"
    return text


def encode(value: object, copies: int, reducer: Reducer | None = None) -> bytes:
    """Returns the message, for `copies` receivers, each of which calls decode() once. `reducer` has its way with objects that it
    knows. Errors: CannotSend."""
    by_value = _by_value()
    if not main_is_a_file() and library.machine().nodes() > 1 and by_value is None and _mentions_main(value):
        raise CannotSend(
            "a function of a program that is not in a file (a prompt, a notebook, python3 -c) can be sent to other nodes only "
            "with cloudpickle: pip install cloudpickle, or put the function into a module"
        )
    try:
        if not main_is_a_file() and by_value is not None:
            data, names = _pickle(value, by_value, reducer)
        else:
            data, names = _pickle(value, pickle.Pickler, reducer)
    except CannotSend:
        raise
    except _UNPICKLABLE as error:
        if by_value is None:
            raise CannotSend(_why(error)) from error
        try:
            data, names = _pickle(value, by_value, reducer)
        except _UNPICKLABLE as second:
            raise CannotSend(_why(second)) from second
    blocks.send(names, copies)
    return pickle.dumps([tuple(name) for name in names]) + data


def _mentions_main(value: object) -> bool:
    parts = value if isinstance(value, (list, tuple)) else (value,)
    return any(getattr(part, "__module__", None) == "__main__" and callable(part) for part in parts)


def decode(data: bytes) -> Any:
    """Returns the object of a message. Errors: CannotSend, if this node cannot import what it is made of."""
    stream = io.BytesIO(data)
    named = [blocks.BlockName(*name) for name in pickle.load(stream)]
    kept = blocks.receive(named)
    try:
        value = pickle.load(stream)
    except (AttributeError, ModuleNotFoundError) as error:
        raise CannotSend(
            f"node {library.machine().node()} does not have what it was sent ({error}): functions and classes are at the top level of a "
            'module that every node can import, and not under  if __name__ == "__main__":'
        ) from error
    del kept
    return value


def adopt(data: bytes) -> None:
    """Called before decode() of a message that a run has left which is no more, and nothing else of it (blocks.adopt)."""
    blocks.adopt([blocks.BlockName(*name) for name in pickle.loads(data)])


def put(data: bytes) -> tuple[int, int]:
    """Puts the bytes into shared memory; returns their address and number. take() frees them."""
    address = library.machine().allocate(len(data))
    ctypes.memmove(address, data, len(data))
    return address, len(data)


def look(address: int, size: int) -> bytes:
    """Returns bytes that put() has put there, which stay."""
    return ctypes.string_at(address, size)


def take(address: int, size: int) -> bytes:
    """Returns bytes that put() has put there, and frees their memory."""
    data = ctypes.string_at(address, size)
    library.machine().free(address)
    return data
