"""The interpreters of the other nodes than 0: each imports the program as a module, and works until the run ends.

The program is imported as multiprocessing's spawn does it, in the interpreter's main thread, once.
"""

from __future__ import annotations

import multiprocessing.process
import os
import queue
import sys
import threading
from multiprocessing import spawn
from typing import Any

from . import library, messages, running

_importing = threading.Event()


def is_importing() -> bool:
    """Says whether this worker imports the program at the moment."""
    return _importing.is_set()


def preparation() -> dict[str, Any]:
    """Returns what workers need to know to import the program."""
    if library.machine().nodes() == 1:
        return {}
    data: dict[str, Any] = spawn.get_preparation_data("multigrain")
    for unwanted in ("authkey", "start_method", "log_to_stderr", "log_level"):
        data.pop(unwanted, None)
    if not messages.main_is_a_file():
        data.pop("init_main_from_path", None)
        data.pop("init_main_from_name", None)
    return data


class _Preparation:
    """Has the main thread import the program, when the first processor that has work asks for it."""

    def __init__(self) -> None:
        self._wanted: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._is_asked = False
        self._done = threading.Event()
        self._error: BaseException | None = None

    def ask(self, data: dict[str, Any]) -> None:
        """Called by processors: returns when the program is imported, or raises what its import raised."""
        with self._guard:
            if not self._is_asked:
                self._is_asked = True
                self._wanted.put(data)
        self._done.wait()
        if self._error is not None:
            raise ImportError(
                f"node {library.machine().node()} cannot import the program: {type(self._error).__name__}: {self._error}"
            ) from self._error

    def carry_out(self) -> None:
        """Called by the main thread, once."""
        data = self._wanted.get()
        name = multiprocessing.process.current_process().name
        _importing.set()
        try:
            spawn.prepare(data)
        except BaseException as error:
            self._error = error
        finally:
            _importing.clear()
            multiprocessing.process.current_process().name = name
            self._done.set()


def main() -> None:
    """The life of a worker. The process ends when the run does."""
    for stream in (sys.stdout, sys.stderr):
        # What functions print is to be seen when they print it, and is lost otherwise when the run is killed.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(line_buffering=True)
    preparation_here = _Preparation()
    running.prepare = preparation_here.ask
    if library.machine().node() == 0:
        raise RuntimeError("multigrain.shared.worker is started by mgrun, on other nodes than 0")
    preparation_here.carry_out()
    while True:
        # The runtime ends the process.
        threading.Event().wait()
        os.sched_yield()
