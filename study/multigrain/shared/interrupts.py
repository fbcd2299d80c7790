"""SIGINT while processors work: the program learns of it in its function, or when all have ended, and never in between, where
other processors would wait for it in vain."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


class Deferred:
    """While deferring() lasts, SIGINT is only noted, but for the times of allowed()."""

    def __init__(self) -> None:
        self._handler: Any = None
        self._noted: tuple[int, FrameType | None] | None = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = number, frame

    @contextlib.contextmanager
    def deferring(self) -> Iterator[None]:
        """Afterwards the program's handler is called for what came meanwhile. Of use in the main thread alone, whose signals
        Python's are."""
        handler = signal.getsignal(signal.SIGINT)
        if (
            threading.current_thread() is not threading.main_thread()
            or not callable(handler)
            or self._handler is not None
        ):
            yield
            return
        self._handler = handler
        signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler)
            self._handler = None
            noted, self._noted = self._noted, None
            if noted is not None:
                handler(*noted)

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Meanwhile the program's handler is called at once, for what has come before as well."""
        if threading.current_thread() is not threading.main_thread() or self._handler is None:
            yield
            return
        try:
            signal.signal(signal.SIGINT, self._handler)
            noted, self._noted = self._noted, None
            if noted is not None:
                self._handler(*noted)
            yield
        finally:
            signal.signal(signal.SIGINT, self._note)


sigint = Deferred()
