"""One function for many arguments: map() on all processors, and pools in the manner of multiprocessing.Pool.

A task is a message in a queue that all processors take from, so that who is done early takes more.
"""

from __future__ import annotations

import atexit
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from . import library, messages, running, worker
from .sync import Empty, Queue

_T = TypeVar("_T")

# How many messages each processor takes of the arguments of one call, if nothing else is said: as few as leave some choice.
_TASKS_PER_PROCESSOR = 4


def _chunks(items: Iterable[Any], chunk: int | None, processors: int) -> list[list[Any]]:
    things = list(items)
    if chunk is None:
        chunk = max(1, -(-len(things) // (_TASKS_PER_PROCESSOR * processors)))
    elif chunk < 1:
        raise ValueError(f"a chunk is of 1 argument or more, not of {chunk}")
    return [things[at : at + chunk] for at in range(0, len(things), chunk)]


# --- map()

_queue_of_map: Queue | None = None


def _take_tasks(tasks: Queue, function: Callable[[Any], Any]) -> list[tuple[int, list[Any]]]:
    done: list[tuple[int, list[Any]]] = []
    while True:
        try:
            number, items = tasks.get(block=False)
        except Empty:
            return done
        try:
            done.append((number, [function(item) for item in items]))
        except BaseException:
            # Nobody begins another task.
            _empty(tasks)
            raise


def _empty(tasks: Queue) -> None:
    try:
        while True:
            tasks.get(block=False)
    except Empty:
        pass


def map(function: Callable[[Any], _T], items: Iterable[Any], *, chunk: int | None = None) -> list[_T]:
    """Returns [function(item) for item in items], computed on all processors, which take `chunk` items at a time.

    Function, items and results as those of run(). If the function raises an exception, no more items are begun, and the exception
    is raised here.
    """
    global _queue_of_map
    running.refuse_unless_main("mg.map")
    chunks = _chunks(items, chunk, running.processors())
    if _queue_of_map is None:
        _queue_of_map = Queue()
    try:
        for task in enumerate(chunks):
            _queue_of_map.put(task)
        parts = running.run(_take_tasks, _queue_of_map, function)
    except BaseException:
        _empty(_queue_of_map)
        raise
    results = dict(itertools.chain.from_iterable(parts))
    return [value for number in range(len(chunks)) for value in results[number]]


# --- Pools


def _serve(tasks: Queue, results: Queue) -> None:
    with running.taking_tasks():
        while True:
            task = tasks.get()
            if task is None:
                return
            number, function, items, is_star = task
            try:
                values = [running.call(function, item if is_star else (item,), {}) for item in items]
                results.put((number, "value", values))
            except BaseException as error:
                results.put((number, "error", running.sendable(error), running.told(error, __file__)))
            del task, items


class AsyncResult:
    """What a task of a pool will have returned."""

    def __init__(self, parts: int, is_one: bool) -> None:
        self._parts: list[Any] = [None] * parts
        self._missing = parts
        self._is_one = is_one
        self._error: tuple[BaseException, str] | None = None
        self._done = threading.Event()
        if parts == 0:
            self._done.set()

    def _take(self, part: int, outcome: tuple[Any, ...]) -> None:
        if outcome[0] == "error" and self._error is None:
            self._error = outcome[1], outcome[2]
        self._parts[part] = outcome[1]
        self._missing -= 1
        if self._missing == 0:
            self._done.set()

    def ready(self) -> bool:
        """Says whether it is done."""
        return self._done.is_set()

    def successful(self) -> bool:
        """Says whether it ended without an exception. Errors: ValueError, if it is not done."""
        if not self.ready():
            raise ValueError("the result is not there yet")
        return self._error is None

    def wait(self, timeout: float | None = None) -> None:
        """Waits until it is done, at most `timeout` seconds."""
        self._done.wait(timeout)

    def get(self, timeout: float | None = None) -> Any:
        """Returns the result, or raises what the function raised. Errors: TimeoutError, after `timeout` seconds."""
        if not self._done.wait(timeout):
            raise TimeoutError(f"the result is not there after {timeout} seconds")
        if self._error is not None:
            running.raise_with_cause(*self._error)
        if self._is_one:
            return self._parts[0][0]
        return [value for part in self._parts for value in part]


class Pool:
    """All processors but the program's own, for tasks, as multiprocessing.Pool has processes; on a machine of one processor a
    thread of the program. While there is a pool, run() and map() of the module have no processors.

        with mg.Pool() as pool:
            print(pool.map(function, range(100)))
    """

    def __init__(self) -> None:
        running.refuse_unless_main("mg.Pool")
        machine = library.machine()
        running.take_processors("mg.Pool")
        self._tasks, self._results = Queue(), Queue()
        self._waiting: dict[int, tuple[AsyncResult, int]] = {}
        self._guard = threading.Lock()
        self._next = 0
        self._is_open = True
        self._piece: int | None = None
        self._thread: threading.Thread | None = None
        self.processes = max(machine.processors() - 1, 1)
        if machine.processors() == 1:
            self._thread = threading.Thread(target=_serve, args=(self._tasks, self._results), daemon=True)
            self._thread.start()
        else:
            self._piece = running.piece_of_work(
                machine, (_serve, (self._tasks, self._results), {}), 1, self.processes, worker.preparation()
            )
            for p in range(1, machine.processors()):
                machine.spawn(p, self._piece)
        self._receiver = threading.Thread(target=self._receive, daemon=True)
        self._receiver.start()
        # An interpreter that ends stops its threads wherever they are, in the queue as well.
        atexit.register(self._end)

    def _end(self) -> None:
        self.terminate()
        self.join()

    def _receive(self) -> None:
        while True:
            result = self._results.get()
            if result is None:
                return
            number, *outcome = result
            with self._guard:
                waiting, part = self._waiting.pop(number)
            waiting._take(part, tuple(outcome))

    def _start(self, function: Callable[..., Any], parts: list[list[Any]], is_star: bool, is_one: bool) -> AsyncResult:
        if not self._is_open:
            raise ValueError("the pool is closed")
        # All are encoded before the first is put, so that an argument that cannot be sent leaves nothing behind.
        with self._guard:
            numbers = range(self._next, self._next + len(parts))
            self._next += len(parts)
        encoded = [
            messages.encode((number, function, part, is_star), 1) for number, part in zip(numbers, parts, strict=True)
        ]
        result = AsyncResult(len(parts), is_one)
        for place, (number, message) in enumerate(zip(numbers, encoded, strict=True)):
            with self._guard:
                self._waiting[number] = result, place
            self._tasks.put_message(message)
        return result

    def apply_async(
        self, function: Callable[..., Any], args: Iterable[Any] = (), kwds: dict[str, Any] | None = None
    ) -> AsyncResult:
        """Has a processor call function(*args, **kwds)."""
        return self._start(_apply, [[(function, tuple(args), kwds or {})]], True, True)

    def apply(self, function: Callable[..., Any], args: Iterable[Any] = (), kwds: dict[str, Any] | None = None) -> Any:
        """Calls function(*args, **kwds) on a processor, and returns what it returns."""
        return self.apply_async(function, args, kwds).get()

    def map_async(
        self, function: Callable[[Any], Any], items: Iterable[Any], chunksize: int | None = None
    ) -> AsyncResult:
        """Has processors call the function for each item, `chunksize` items at a time."""
        return self._start(function, _chunks(items, chunksize, self.processes), False, False)

    def map(self, function: Callable[[Any], _T], items: Iterable[Any], chunksize: int | None = None) -> list[_T]:
        """Returns [function(item) for item in items]."""
        values: list[_T] = self.map_async(function, items, chunksize).get()
        return values

    def starmap(
        self, function: Callable[..., _T], items: Iterable[Iterable[Any]], chunksize: int | None = None
    ) -> list[_T]:
        """Returns [function(*item) for item in items]."""
        values: list[_T] = self._start(function, _chunks(items, chunksize, self.processes), True, False).get()
        return values

    def imap(self, function: Callable[[Any], _T], items: Iterable[Any], chunksize: int = 1) -> Iterator[_T]:
        """As map(), but gives each result as soon as it and those before it are there."""
        parts = [self._start(function, [part], False, False) for part in _chunks(items, chunksize, self.processes)]
        return (value for part in parts for value in part.get())

    def imap_unordered(self, function: Callable[[Any], _T], items: Iterable[Any], chunksize: int = 1) -> Iterator[_T]:
        """As imap(), but gives results in the order in which they come."""
        left = [self._start(function, [part], False, False) for part in _chunks(items, chunksize, self.processes)]
        while left:
            ready = [part for part in left if part.ready()]
            if not ready:
                left[0].wait(0.001)
                continue
            left = [part for part in left if part not in ready]
            for part in ready:
                yield from part.get()

    def close(self) -> None:
        """No more tasks come. Those that there are will be done."""
        if not self._is_open:
            return
        self._is_open = False
        for _ in range(self.processes):
            self._tasks.put(None)

    def terminate(self) -> None:
        """As close(), but tasks that have not begun are not done: their results never come."""
        if self._is_open:
            _empty(self._tasks)
        self.close()

    def join(self) -> None:
        """Waits until all processors are done. After close() or terminate()."""
        if self._is_open:
            raise ValueError("the pool is not closed")
        machine = library.machine()
        outcomes: list[tuple[Any, ...]] = []
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            running.give_processors_back()
        elif self._piece is not None:
            for p in range(1, machine.processors()):
                machine.join(p)
            piece, self._piece = self._piece, None
            outcomes = running.outcomes_of(piece)
            running.free_piece(machine, piece)
            running.give_processors_back()
        else:
            return
        atexit.unregister(self._end)
        self._results.put(None)
        self._receiver.join()
        running.raise_first(outcomes, None)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close() if error is None else self.terminate()
        self.join()


def _apply(function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return function(*arguments, **keywords)
