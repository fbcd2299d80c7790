"""The MGS paper's performance framework (sections 2.3 and 5.3), and what else a study computes from profiles.

A *performance profile* is the execution time of one program on every machine of a DSMP family: P processors in nodes of
C, for all C. Nothing here reads a file or runs a program.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Section 5.3 calls metrics small or large without a bound. Of its applications, the coarse-grain ones are flat, and the
# smallest metric of the others is a multigrain potential of 61 %.
LARGE = 0.5
# "The DSMP speedups for TSP and Unstructured are all below 2" (section 5.3.3), of 32 processors.
EFFECTIVE_SPEEDUP = 2.0

COARSE, MEDIUM, FINE = "coarse-grain", "medium-grain", "fine-grain"


def node_sizes(processors: int) -> list[int]:
    """Every C of the family of P: those that divide it, for a power of 2 the paper's powers of 2."""
    return [size for size in range(1, processors + 1) if processors % size == 0]


def breakup_penalty(times: Mapping[int, float], processors: int) -> float | None:
    """The increase of execution time from C = P to C = P/2, as a part of the time at C = P. None where one is missing."""
    whole, half = times.get(processors), times.get(processors // 2) if processors % 2 == 0 else None
    return half / whole - 1 if whole and half else None


def multigrain_potential(times: Mapping[int, float], processors: int) -> float | None:
    """The difference of execution time between C = 1 and C = P/2, as a part of the time at C = P/2: how much faster the
    DSMP is than the all-software DSM, as the paper's conclusion reads it ("between 61% and 88% faster")."""
    single, half = times.get(1), times.get(processors // 2) if processors % 2 == 0 else None
    return single / half - 1 if single and half else None


@dataclass(frozen=True)
class Classification:
    grain: str | None  # None: a metric is missing
    reason: str


def classify(times: Mapping[int, float], processors: int, sequential: float | None) -> Classification:
    """Coarse, medium or fine grain, by section 5.3: flat; both metrics large; so large that no DSMP speeds it up."""
    breakup = breakup_penalty(times, processors)
    potential = multigrain_potential(times, processors)
    if breakup is None or potential is None:
        missing = sorted({1, processors // 2, processors} - set(times)) if processors % 2 == 0 else []
        what = "C = " + ", ".join(map(str, missing)) if missing else f"P/2 of P = {processors}"
        return Classification(None, f"there is no time for {what}")
    if breakup < LARGE and potential < LARGE:
        return Classification(COARSE, "both metrics are small: the performance profile is flat")
    clustered = [time for size, time in times.items() if size < processors]
    if breakup >= LARGE and sequential and processors >= 8:
        best = sequential / min(clustered)
        if best < EFFECTIVE_SPEEDUP:
            return Classification(
                FINE,
                f"in nodes of fewer than {processors} processors it is at most {best:.2g} times as fast as on one processor",
            )
    if breakup >= LARGE and potential >= LARGE:
        return Classification(MEDIUM, "both metrics are large: larger nodes help, and the whole machine helps more")
    if breakup >= LARGE:
        return Classification(
            MEDIUM,
            "the breakup penalty is large and the multigrain potential small: not well suited to clusters (the paper's Figure 3)",
        )
    return Classification(
        MEDIUM,
        "the multigrain potential is large and the breakup penalty small: well suited to clusters of "
        "large nodes (the paper's Figure 4)",
    )


@dataclass(frozen=True)
class Line:
    """A straight line through points, by least squares."""

    slope: float
    intercept: float

    def at(self, x: float) -> float:
        return self.intercept + self.slope * x


def fit(points: Sequence[tuple[float, float]]) -> Line | None:
    """None if there are not two different x."""
    if len({x for x, _ in points}) < 2:
        return None
    result = statistics.linear_regression([x for x, _ in points], [y for _, y in points])
    return Line(result.slope, result.intercept)


@dataclass(frozen=True)
class Spread:
    """Repetitions of one measurement. The median is that of one of them, with an even number the faster of the two in the
    middle: so it has a profile."""

    median: float
    low: float
    high: float
    count: int

    @property
    def relative(self) -> float:
        """From the lowest to the highest, as a part of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median_low(values), min(values), max(values), len(values))


def nearest_to_median(values: Sequence[float]) -> int:
    """The index of the repetition that is the median."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    return order[(len(values) - 1) // 2]


def shares(parts: Sequence[float], of: int = 1000) -> list[int]:
    """The parts as whole multiples of 1/of of their sum, which add up to `of`: those that rounding down takes most from get
    what is missing. All 0 if the sum is."""
    whole = sum(parts)
    if whole <= 0:
        return [0] * len(parts)
    exact = [of * part / whole for part in parts]
    rounded = [int(each) for each in exact]
    by_loss = sorted(range(len(parts)), key=lambda index: rounded[index] - exact[index])
    for index in by_loss[: of - sum(rounded)]:
        rounded[index] += 1
    return rounded


def imbalance(values: Sequence[float]) -> float:
    """How much the largest exceeds the mean, as a part of the mean; 0 is perfect balance."""
    mean = statistics.fmean(values) if values else 0.0
    return max(values) / mean - 1 if mean > 0 else 0.0
