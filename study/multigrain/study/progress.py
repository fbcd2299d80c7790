"""What mgstudy shows of a study while it runs."""

from __future__ import annotations

import sys
import time

from multigrain.study import studies
from multigrain.study.figures import duration
from multigrain.study.runs import Result


def point_name(point: studies.Point) -> str:
    words = ["one processor" if point.role == "sequential" else f"C = {point.node_size}"]
    if point.latency_ns is not None:
        words.append(studies.latency_text(point.latency_ns))
    return ", ".join(words)


class Bar(studies.Progress):
    """A progress bar on a terminal; a line for each run elsewhere."""

    def __init__(self, series: int, repetitions: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.console = Console(stderr=True, highlight=False)
        self.series, self.repetitions = series, repetitions
        self.total = self.finished = 0
        self.going: dict[int, str] = {}  # by their places
        self.told: dict[int, str | None] = {}  # of runs that have ended before those in front of them; None: skipped
        self.next = self.lines = 0
        self.began = time.monotonic()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )

    def begin(self, total: int, cached: int) -> None:
        self.total = total
        if cached:
            self.console.print(f"mgstudy: {cached} of {total + cached} runs are in the cache", soft_wrap=True)
        self.bar.start()
        self.task = self.bar.add_task("starting", total=total, left="")

    def name(self, point: studies.Point, repetition: int) -> str:
        words = point_name(point)
        if self.series > 1:
            words = f"{point.series.label}: {words}"
        return words + (f", run {repetition + 1} of {self.repetitions}" if self.repetitions > 1 else "")

    def describe(self) -> None:
        from rich.markup import escape

        names = list(self.going.values())
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        self.bar.update(self.task, description=escape(names[0] + more) if names else "")

    def running(self, place: int, point: studies.Point, repetition: int) -> None:
        self.going[place] = self.name(point, repetition)
        self.describe()

    def done(self, place: int, point: studies.Point, repetition: int, result: Result) -> None:
        self.finished += 1
        spent = time.monotonic() - self.began
        left = spent / self.finished * (self.total - self.finished)
        self.bar.update(
            self.task, completed=self.finished, left=f"about {left:.0f} s left" if self.finished < self.total else ""
        )
        name = self.going.pop(place)
        self.describe()
        self.tell(place, f"{name}: {result.problem or duration(result.elapsed_ns, 'us')}")

    def skipped(self, place: int) -> None:
        self.tell(place, None)

    def tell(self, place: int, line: str | None) -> None:
        """Lines are in the order of the plan, whatever ends first."""
        self.told[place] = line
        while self.next in self.told:
            line = self.told.pop(self.next)
            self.next += 1
            if line is not None:
                self.lines += 1
                self.print(line)

    def print(self, line: str) -> None:
        if not self.console.is_terminal:
            print(f"mgstudy: [{self.lines}/{self.total}] {line}", file=sys.stderr, flush=True)

    def end(self) -> None:
        self.bar.stop()
        for place in sorted(self.told):  # of an interrupted study: those in front of them have not ended
            line = self.told[place]
            if line is not None:
                self.lines += 1
                self.print(line)
