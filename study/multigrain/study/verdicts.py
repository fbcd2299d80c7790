"""What a study may say of a figure of its own and one of a paper's: whether they agree, if repeated runs allow to say that.

All figures here are ratios without a unit: a metric (0.15 is 15 %), a share of the time, or by which part of the paper's
figure ours differs from it. A paper's figure is an interval: what it says in words ("small"), or gives as a range, or a
number and how far from it we take a number to be the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from multigrain.study import metrics

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


# A metric of a family of machines may be -1 at the least.
SMALL = Bounds(-1, metrics.LARGE, "small")
NEGATIVE = Bounds(-1, 0, "negative")


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


def metric_verdict(study: Json, name: str, bounds: Bounds, scale_spread: float = 0.0) -> str:
    """The verdict on a metric ("breakup_penalty" or "multigrain_potential") of a study's first series. `scale_spread` is
    that of the measurement that says how slow the emulated processors are, as a part of it: a metric moves with it."""
    own = study["metrics"][0]
    value, extremes = own[name], own[f"{name}_range"]
    spread = None if value is None or not extremes else max(extremes) - min(extremes) + abs(value) * scale_spread
    return verdict(value, spread, bounds, runs_of(ends_of(study).values()))


def ends_of(study: Json) -> dict[int, Json]:
    """The points of which the metrics of a study's first series are made, and the single processor, by node size (0 for
    that one)."""
    processors, label = study["processors"], study["series"][0]
    own = [point for point in study["points"] if point["series"] == label and point.get("elapsed_ns")]
    ends = {point["node_size"]: point for point in own if point["role"] == "family"}
    wanted = (1, processors // 2, processors)
    found = {size: point for size, point in ends.items() if size in wanted}
    found.update((0, point) for point in own if point["role"] == "sequential")
    return found


def possible_grains(study: Json) -> set[str | None]:
    """The classes that the program is of for some choice of one of the fastest, the middle and the slowest run of each
    machine of which its metrics are made."""
    processors, label = study["processors"], study["series"][0]
    points = [point for point in study["points"] if point["series"] == label and point.get("elapsed_ns")]
    medians = {point["node_size"]: point["elapsed_ns"] for point in points if point["role"] == "family"}
    choices = [medians]
    sequential: list[float | None] = [None]
    for size, point in ends_of(study).items():
        times = [point[end] for end in ("low_ns", "elapsed_ns", "high_ns")]
        if size == 0:
            sequential = times
        else:
            choices = [chosen | {size: time} for chosen in choices for time in times]
    return {metrics.classify(chosen, processors, alone).grain for chosen in choices for alone in sequential}


def grain_verdict(study: Json, grain: str) -> str:
    """The verdict on the class of a study's first series."""
    points: Collection[Json] = ends_of(study).values()
    possible = possible_grains(study)
    if None in possible:
        return f"{NOT_DECIDED} (runs failed)"
    runs = runs_of(points)
    if runs < FEWEST_RUNS:
        return f"{NOT_DECIDED} (runs of each: {runs})"
    if len(possible) > 1 and grain in possible:
        return f"{NOT_DECIDED} (spread {100 * max(relative_spread(point) or 0.0 for point in points):.0f} %)"
    return AGREES if grain in possible else DIFFERS
