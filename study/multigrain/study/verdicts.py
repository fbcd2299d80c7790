"""What a study may say of a figure of its own and one of a paper's: whether they agree, if repeated runs allow to say that.

All figures here are ratios without a unit: a metric (0.15 is 15 %), a share of the time, or by which part of the paper's
figure ours differs from it. A paper's figure is an interval: what it says in words ("small"), or gives as a range, or a
number and how far from it we take a number to be the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]

# How far a figure may be from one that a paper gives, as a part of that one, before we say that they differ.
TOLERANCE = 0.2
# With fewer runs of each machine there is no spread to speak of.
FEWEST_RUNS = 3

AGREES, DIFFERS, NOT_DECIDED = "agrees", "differs", "not decided"


@dataclass(frozen=True)
class Bounds:
    """What a paper's figure is, from `low` to `high`, and how to print it."""

    low: float
    high: float
    text: str

    def distance(self, value: float) -> float:
        """How far the value is from the nearer end: what another value must differ by to be on the other side of it."""
        return min(abs(value - end) for end in (self.low, self.high))

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def about(value: float, text: str | None = None) -> Bounds:
    """A figure that a paper gives as a number."""
    low, high = sorted((value * (1 - TOLERANCE), value * (1 + TOLERANCE)))
    return Bounds(low, high, text or f"{100 * value:.0f}%")


def verdict(value: float | None, spread: float | None, bounds: Bounds, runs: int) -> str:
    """Returns "agrees", "differs" or "not decided (...)". `value` is the median of `runs` runs, and `spread` how far the
    lowest is from the highest, in the same unit; None where there is none."""
    if value is None or spread is None or not math.isfinite(value):
        return f"{NOT_DECIDED} (runs failed)"
    if runs < FEWEST_RUNS:
        return f"{NOT_DECIDED} (runs of each: {runs})"
    if not spread < bounds.distance(value):
        return f"{NOT_DECIDED} (spread {100 * spread:.0f} %)"
    return exact_verdict(value, bounds)


def exact_verdict(value: float, bounds: Bounds) -> str:
    """The verdict on a figure that every run gives, as under the counted clock: one run decides, and the bounds are within."""
    return AGREES if value in bounds else DIFFERS


def relative_spread(point: Json | None) -> float | None:
    """The spread of a study's point, as a part of its median; None if it has none."""
    if not point or not point.get("elapsed_ns"):
        return None
    return float((point["high_ns"] - point["low_ns"]) / point["elapsed_ns"])


def runs_of(points: Iterable[Json]) -> int:
    """The fewest runs that any of a study's points has."""
    return min((len(point.get("repetitions_ns", ())) for point in points), default=0)


# What a run must have so that its time means something: other work of a machine, and the start of threads, take milliseconds.
SHORTEST_NS = 10_000_000
# And what runs may differ by, as a part of the median.
NOISY = 0.25


def doubt(point: Json, clock: str) -> str:
    """Why the time of a study's point means little: "too short", "too noisy"; empty: nothing speaks against it. Under the
    counted clock neither can be; virtual time is as short as the machine that is emulated is fast."""
    if not point.get("elapsed_ns") or clock == "counted":
        return ""
    if clock == "wall" and point["elapsed_ns"] < SHORTEST_NS:
        return "too short"
    spread = relative_spread(point)
    return "too noisy" if spread is not None and spread > NOISY else ""
