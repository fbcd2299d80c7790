"""Functions that run on all processors.

A piece of work is a block of shared memory (`_Head` and a `_Slot` for each processor), whose address every processor is given.
A processor decodes the message with the function and its arguments, calls it, and leaves its outcome as a message of its own.

Processors of one piece of work meet at one barrier, both in barrier() and at the end, and each counts how often it has been
there: its round. Before a processor whose function has ended, well or not, comes to the barrier for the first time in that
state, it writes the number of that round into its slot, once. So in each round all processors read the same: a slot with a
number that is not greater than the round's was written before the round, and a later one is greater. If all have ended, all
leave; if some have, those that have not ended raise BrokenBarrier, because they would wait for ever. Nothing is written at a
barrier, so a round moves no memory until the first function ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, ParamSpec, TypeVar

from . import blocks, interrupts, library, messages

_P = ParamSpec("_P")
_T = TypeVar("_T")


class BrokenBarrier(RuntimeError):
    """A processor waits for others that will not come: their functions have ended."""


class RemoteError(RuntimeError):
    """An exception of another processor that cannot be sent as it is; the text has its type and its own text."""


class RemoteTraceback(Exception):
    """Where an exception was raised on another processor: the cause of the exception that run() raises."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return self.text


class _Head(ctypes.Structure):
    _fields_ = [
        ("message", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("barrier", ctypes.c_uint64),
        ("first", ctypes.c_uint64),  # the processors that take part: this one, and the next ones
        ("processors", ctypes.c_uint64),
    ]


class _Slot(ctypes.Structure):
    _fields_ = [("ended_in_round", ctypes.c_uint64), ("outcome", ctypes.c_uint64), ("size", ctypes.c_uint64)]


class _Piece:
    """A processor's part in a piece of work."""

    def __init__(self, address: int) -> None:
        self.head = _Head.from_address(address)
        count = self.head.processors
        self.first = self.head.first
        self.slots = (_Slot * count).from_address(address + ctypes.sizeof(_Head))
        self.barrier = self.head.barrier
        self.round = 0

    def meet(self) -> list[int]:
        """Comes to the barrier, and returns the processors that had ended before."""
        self.round += 1
        library.machine().barrier(self.barrier)
        return [self.first + i for i, slot in enumerate(self.slots) if 0 < slot.ended_in_round <= self.round]


class _ThisThread(threading.local):
    def __init__(self) -> None:
        self.piece: _Piece | None = None
        self.takes_tasks = False


_this_thread = _ThisThread()
_one_at_a_time = threading.Lock()

# How a worker imports the program, once; the main node has it.
prepare: Callable[[dict[str, Any]], None] | None = None


def refuse_during_import(what: str) -> None:
    """Refuses a call that would be made on each node, while a worker imports the program."""
    from . import worker

    if worker.is_importing():
        raise RuntimeError(
            f"{what} is called while node {library.machine().node()} imports the program, which every node does: put what only the "
            'program itself is to do under  if __name__ == "__main__":  and hand arrays and locks to functions as arguments'
        )


def processor() -> int:
    """The calling processor: 0 .. processors()-1."""
    return library.machine().processor()


def processors() -> int:
    """How many processors the run has, on all nodes."""
    return library.machine().processors()


def processors_per_node() -> int:
    """How many processors a node has. They are threads of its interpreter."""
    return library.machine().processors_per_node()


def node() -> int:
    """The caller's node: 0 .. nodes()-1."""
    return library.machine().node()


def nodes() -> int:
    """How many nodes the run has."""
    return library.machine().nodes()


@contextlib.contextmanager
def taking_tasks() -> Iterator[None]:
    """Meanwhile the calling thread does tasks, each for itself: those do not meet others."""
    _this_thread.takes_tasks = True
    try:
        yield
    finally:
        _this_thread.takes_tasks = False


def is_in_work() -> bool:
    """Says whether the caller is a function that run() or a pool has called."""
    return _this_thread.piece is not None or _this_thread.takes_tasks


def share_of(count: int) -> slice:
    """Returns the calling processor's share of `count` things as a slice: processors have neighbouring shares, which are as
    equal as can be, in the order of their numbers."""
    if count < 0:
        raise ValueError(f"there cannot be {count} things to share out")
    me, all_of_them = processor(), processors()
    return slice(count * me // all_of_them, count * (me + 1) // all_of_them)


def barrier() -> None:
    """Waits until all processors have come. For functions that run() calls. Errors: BrokenBarrier, if a processor's function
    has ended, so that it cannot come any more."""
    if _this_thread.takes_tasks:
        raise RuntimeError(
            "mg.barrier is for functions that mg.run calls on all processors; tasks of mg.Pool do not meet"
        )
    piece = _this_thread.piece
    if piece is None:
        raise RuntimeError(
            "mg.barrier is for functions that mg.run calls on all processors; elsewhere nobody else would come"
        )
    gone = piece.meet()
    if gone:
        which = f"processor {gone[0]} has" if len(gone) == 1 else f"processors {', '.join(map(str, gone))} have"
        raise BrokenBarrier(
            f"processor {processor()} came to the barrier of all processors, but {which} ended without coming there"
        )


def sendable(error: BaseException) -> BaseException:
    """Returns the exception, or one that says the same if this one cannot be sent."""
    try:
        # Many classes of exceptions are pickled without complaint, and cannot be restored.
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RemoteError(f"{type(error).__name__}: {error}")
    return error


def told(error: BaseException, *files: str) -> str:
    """Returns where the exception was raised, without the frames of this package, which say nothing to a user."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename in (__file__, *files) and at.tb_next is not None:
        at = at.tb_next
    text = "".join(traceback.format_exception(type(error), error, at))
    return f"\nOn processor {processor()} on node {node()}:\n{text}"


def call(function: Callable[..., Any], arguments: Iterable[Any], keywords: dict[str, Any]) -> Any:
    """Calls the function, which must give all locks back."""
    from . import sync

    try:
        value = function(*arguments, **keywords)
    except BaseException:
        sync.let_go_of_all()
        raise
    left = sync.let_go_of_all()
    if left:
        raise RuntimeError(
            f"the function has returned without releasing {left} lock{'s' if left > 1 else ''} that it holds"
        )
    return value


def flush() -> None:
    """Writes what the program has printed."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, ValueError, OSError):
            pass


def _outcome(piece: _Piece) -> tuple[bytes, BaseException | None]:
    """Calls the function, and returns the message that says how it ended, and its exception."""
    before = _this_thread.piece
    try:
        preparation, body = pickle.loads(messages.look(piece.head.message, piece.head.size))
        if prepare is not None:
            prepare(preparation)
        function, arguments, keywords = messages.decode(body)
        _this_thread.piece = piece
        with interrupts.sigint.allowed():
            value = call(getattr(function, "__multigrain_function__", function), arguments, keywords)
        return messages.encode(("value", value), 1), None
    except BaseException as error:
        return messages.encode(("error", sendable(error), told(error)), 1), error
    finally:
        _this_thread.piece = before


def _do_piece(address: int) -> BaseException | None:
    """The calling processor's part of a piece of work. Returns the exception with which it ended, if it did."""
    piece = _Piece(address)
    outcome, failed = _outcome(piece)
    slot = piece.slots[processor() - piece.first]
    slot.outcome, slot.size = messages.put(outcome)
    flush()
    # What the function was given is this node's no longer.
    blocks.give_back_collected()
    slot.ended_in_round = piece.round + 1
    while len(piece.meet()) != len(piece.slots):
        pass
    return failed


def work(address: int) -> None:
    """What a processor's thread calls when there is a piece of work for it."""
    _do_piece(address)


def refuse_unless_main(what: str) -> None:
    refuse_during_import(what)
    if is_in_work():
        raise RuntimeError(
            f"{what} is called by a function that runs on all processors already; call it in the program itself"
        )
    if node() != 0:
        raise RuntimeError(f"{what} is called on node {node()}; processors are started on node 0")


def run(function: Callable[..., _T], /, *arguments: Any, **keywords: Any) -> list[_T]:
    """Calls function(*arguments, **keywords) on every processor, and returns what each has returned, in their order.

    Each processor gets copies of the arguments, and the caller gets copies of the results; but arrays of array(), and parts of
    them, stay shared, and so do locks. The function must be one that other interpreters can import: at the top level of a
    module, the program's own included.

    If the function raises an exception on a processor, run() raises it when all have ended; its cause is a RemoteTraceback,
    which says where. Errors: CannotSend, if function or arguments cannot be pickled.
    """
    refuse_unless_main("mg.run")
    take_processors("mg.run")
    try:
        with interrupts.sigint.deferring():
            return _run(library.machine(), function, arguments, keywords)
    finally:
        give_processors_back()


def take_processors(what: str) -> None:
    """From now on the caller has the processors. Errors: RuntimeError, if another has them."""
    if not _one_at_a_time.acquire(blocking=False):
        raise RuntimeError(f"{what} is called while another thread of the program, or a pool, has the processors")


def give_processors_back() -> None:
    """The caller has the processors no longer."""
    _one_at_a_time.release()


def _run(machine: library.Machine, function: Callable[..., _T], arguments: Any, keywords: Any) -> list[_T]:
    from . import worker

    count = machine.processors()
    address = piece_of_work(machine, (function, arguments, keywords), 0, count, worker.preparation())
    try:
        for p in range(1, count):
            machine.spawn(p, address)
        own = _do_piece(address)
        for p in range(1, count):
            machine.join(p)
        outcomes = outcomes_of(address)
    finally:
        free_piece(machine, address)
    raise_first(outcomes, own)
    return [outcome[1] for outcome in outcomes]


def piece_of_work(machine: library.Machine, call: Any, first: int, count: int, preparation: dict[str, Any]) -> int:
    """Makes a piece of work for `count` processors from `first` on, and returns its address."""
    body = messages.encode(call, count)
    message, message_size = messages.put(pickle.dumps((preparation, body)))
    size = ctypes.sizeof(_Head) + count * ctypes.sizeof(_Slot)
    address = machine.allocate(size)
    head = _Head.from_address(address)
    head.message, head.size = message, message_size
    head.first, head.processors = first, count
    head.barrier = machine.barrier_create(count)
    return address


def outcomes_of(address: int) -> list[tuple[Any, ...]]:
    """Returns how a piece of work has ended on each processor."""
    slots = (_Slot * _Head.from_address(address).processors).from_address(address + ctypes.sizeof(_Head))
    return [messages.decode(messages.take(slot.outcome, slot.size)) for slot in slots]


def free_piece(machine: library.Machine, address: int) -> None:
    """Frees a piece of work that has ended on all processors."""
    head = _Head.from_address(address)
    machine.free(head.message)
    machine.barrier_destroy(head.barrier)
    machine.free(address)
    blocks.give_back_collected()


def raise_first(outcomes: list[tuple[Any, ...]], own: BaseException | None) -> None:
    errors = [(p, outcome[1], outcome[2]) for p, outcome in enumerate(outcomes) if outcome[0] == "error"]
    if not errors:
        return
    # A barrier is broken because of another error, which is the one to tell of.
    p, error, text = next((e for e in errors if not isinstance(e[1], BrokenBarrier)), errors[0])
    if p == 0 and own is not None:
        raise own
    raise_with_cause(error, text)


def raise_with_cause(error: BaseException, text: str) -> NoReturn:
    """Raises another processor's exception."""
    raise error from RemoteTraceback(text)


def parallel(function: Callable[_P, _T]) -> Callable[_P, list[_T]]:
    """Makes a function run on all processors: a call of it is run(function, ...). A call by a function that runs on all
    processors already is an ordinary call."""

    @functools.wraps(function)
    def called(*arguments: _P.args, **keywords: _P.kwargs) -> Any:
        if is_in_work():
            return function(*arguments, **keywords)
        return run(called, *arguments, **keywords)

    called.__multigrain_function__ = function  # type: ignore[attr-defined]
    return called
