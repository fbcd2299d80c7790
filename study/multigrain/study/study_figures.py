"""Figures of a study by name, such as speedup(4), each with its spread: what a row of a paper's table is compared with.

breakup_penalty, multigrain_potential    of the family, parts (1.59 is 159 %)
fastest_cluster_speedup, slowest_...     over one processor, of the machines with C < P
sequential                               nanoseconds of one processor
time(C), speedup(C)                      nanoseconds; over one processor
share(C, PART)                           the part of the time that is PART's: user, data_wait, lock, barrier, protocol,
                                         outside, rights, diffs
rights_cost(C)                           nanoseconds, of an average call that changes access rights
increase(C, LATENCY, BASE)               by which part the time is longer at one latency than at the other
points[node_size=4].counters.twins       any number in the study's JSON: names, and in brackets an index, or values of
                                         names by which to choose from a list
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from multigrain.study.runs import Json, StudyError
from multigrain.study.studies import CATEGORIES, parse_latency
from multigrain.study.verdicts import relative_spread, runs_of

PARTS = {
    **{name: ("mean_ns", name) for name in CATEGORIES},
    **{name: (f"{name}_ns",) for name in ("outside", "rights", "diffs")},
}
RIGHTS_CALLS = ("grant_reads", "grant_writes", "revoke_writes", "revokes")


@dataclass(frozen=True)
class StudyFigure:
    """`value` is the median over the runs; None: not measured. `spread` is from the lowest to the highest, in the same unit;
    None: the study does not say. `runs` are those of the machine that has the fewest."""

    value: float | None
    spread: float | None = None
    runs: int = 0


NOT_MEASURED = StudyFigure(None)


class StudySeries:
    """One of the things that a study compares, with its points that were measured."""

    def __init__(self, study: Json, label: str) -> None:
        self.study, self.label = study, label
        self.processors: int = study["processors"]
        own = [point for point in study["points"] if point["series"] == label and point.get("elapsed_ns")]
        self.alone: Json | None = next((point for point in own if point["role"] == "sequential"), None)
        self.points: dict[tuple[int, int | None], Json] = {
            (point["node_size"], point["latency_ns"]): point for point in own if point["role"] == "family"
        }

    def at(self, node_size: int, latency_ns: int | None = None) -> Json | None:
        return self.points.get((node_size, latency_ns))

    def clusters(self) -> list[Json]:
        return [point for (size, latency), point in self.points.items() if size < self.processors and latency is None]


Finder = Callable[[StudySeries], StudyFigure]


def of_times(points: Sequence[Json | None], formula: Callable[[Sequence[float]], float]) -> StudyFigure:
    """A figure that is made of the times of some machines, for every choice of the fastest and the slowest run of each."""
    found = [point for point in points if point]
    if not found or len(found) < len(points):
        return NOT_MEASURED
    ends = [(float(point["low_ns"]), float(point["high_ns"])) for point in found]
    values = [formula(choice) for choice in itertools.product(*ends)]
    median = formula([float(point["elapsed_ns"]) for point in found])
    return StudyFigure(median, max(values) - min(values), runs_of(found))


def of_point(point: Json | None, value: float | None) -> StudyFigure:
    """A figure of one run of a machine, the median one: those of the others are not kept, and taken to spread as the times."""
    if point is None or value is None:
        return NOT_MEASURED
    return StudyFigure(value, abs(value) * (relative_spread(point) or 0.0), runs_of([point]))


def node_size(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise StudyError(f"'{text}' is no number of processors a node")
    return int(text)


def more(times: Sequence[float]) -> float:
    """By which part the first time is longer than the second."""
    return times[0] / times[1] - 1


def breakup_penalty() -> Finder:
    return lambda series: of_times([series.at(series.processors // 2), series.at(series.processors)], more)


def multigrain_potential() -> Finder:
    return lambda series: of_times([series.at(1), series.at(series.processors // 2)], more)


def sequential() -> Finder:
    return lambda series: of_times([series.alone], lambda times: times[0])


def fastest_cluster_speedup() -> Finder:
    return lambda series: of_times([series.alone, *series.clusters()], lambda times: times[0] / min(times[1:]))


def slowest_cluster_speedup() -> Finder:
    return lambda series: of_times([series.alone, *series.clusters()], lambda times: times[0] / max(times[1:]))


def time(size: str) -> Finder:
    number = node_size(size)
    return lambda series: of_times([series.at(number)], lambda times: times[0])


def speedup(size: str) -> Finder:
    number = node_size(size)
    return lambda series: of_times([series.alone, series.at(number)], lambda times: times[0] / times[1])


def share(size: str, part: str) -> Finder:
    number = node_size(size)
    if part not in PARTS:
        raise StudyError(f"'{part}' is no part of the time; those are " + ", ".join(PARTS))

    def find(series: StudySeries) -> StudyFigure:
        point = series.at(number)
        if point is None:
            return NOT_MEASURED
        found: Any = point
        for name in PARTS[part]:
            found = found[name]
        return of_point(point, found / point["elapsed_ns"])

    return find


def rights_cost(size: str) -> Finder:
    number = node_size(size)

    def find(series: StudySeries) -> StudyFigure:
        point = series.at(number)
        if point is None:
            return NOT_MEASURED
        calls = sum(point["counters"].get(name, 0) for name in RIGHTS_CALLS)
        return of_point(point, point["rights_ns"] * len(point["processors"]) / calls if calls else None)

    return find


def increase(size: str, latency: str, base: str) -> Finder:
    number, slow, fast = node_size(size), parse_latency(latency), parse_latency(base)
    return lambda series: of_times([series.at(number, slow), series.at(number, fast)], more)


FIGURES: dict[str, tuple[Callable[..., Finder], str]] = {
    "breakup_penalty": (breakup_penalty, ""),
    "multigrain_potential": (multigrain_potential, ""),
    "fastest_cluster_speedup": (fastest_cluster_speedup, ""),
    "slowest_cluster_speedup": (slowest_cluster_speedup, ""),
    "sequential": (sequential, ""),
    "time": (time, "C"),
    "speedup": (speedup, "C"),
    "share": (share, "C, PART"),
    "rights_cost": (rights_cost, "C"),
    "increase": (increase, "C, LATENCY, BASE"),
}
USAGE = ", ".join(f"{name}({arguments})" if arguments else name for name, (_, arguments) in FIGURES.items())
STEP = re.compile(r"(\w+)(?:\[([^\]]*)\])?(?:\.|$)")


def chosen(items: Any, name: str, choice: str) -> Any:
    """An item of a list: by its index, or by what some of its names have; None: there is none such."""
    if not isinstance(items, list):
        raise StudyError(f"'{name}' is no list, from which [{choice}] could choose")
    if choice.isdigit():
        return items[int(choice)] if int(choice) < len(items) else None
    wanted = [pair.partition("=")[::2] for pair in choice.split(",")]
    if not all(key and value for key, value in wanted):
        raise StudyError(f"[{choice}] must be an index, or names and their values such as node_size=4,role=family")
    found = [item for item in items if all(str(item.get(key.strip())) == value.strip() for key, value in wanted)]
    if len(found) > 1:
        raise StudyError(f"{name}[{choice}] means {len(found)} items; say more of the one")
    return found[0] if found else None


def by_path(path: str) -> Finder:
    steps: list[tuple[str, str | None]] = []
    at = 0
    while at < len(path):
        step = STEP.match(path, at)
        if not step:
            break
        steps.append((step[1], step[2]))
        at = step.end()
    if at < len(path) or not steps or path.endswith("."):
        raise StudyError(
            f"'{path}' is neither a path such as points[node_size=4].counters.twins nor a figure ({USAGE})"
        )

    def find(series: StudySeries) -> StudyFigure:
        here: Any = series.study
        point: Json | None = None
        for name, choice in steps:
            if not isinstance(here, dict) or name not in here:
                # Of a machine whose runs have failed there is nothing.
                if isinstance(here, dict) and "failures" in here and "elapsed_ns" not in here:
                    return NOT_MEASURED
                raise StudyError(f"there is no '{name}' in the study, as '{path}' has it; figures with names: {USAGE}")
            here = here[name] if choice is None else chosen(here[name], name, choice)
            if here is None:
                return NOT_MEASURED
            if isinstance(here, dict) and "elapsed_ns" in here and "high_ns" in here:
                point = here
        if isinstance(here, bool) or not isinstance(here, (int, float)):
            raise StudyError(f"'{path}' is no number")
        return of_point(point, float(here)) if point else StudyFigure(float(here), None, series.study["repetitions"])

    return find


def finder_of(what: str) -> Finder:
    """What finds the figure, or a StudyError if there is none such."""
    named = re.fullmatch(r"(\w+)(?:\(([^()]*)\))?", what.strip())
    if not named or (named[1] not in FIGURES and named[2] is None):
        return by_path(what.strip())
    name, given = named[1], named[2] or ""
    if name not in FIGURES:
        raise StudyError(f"there is no figure '{name}'; figures: {USAGE}")
    make, usage = FIGURES[name]
    arguments = [each.strip() for each in given.split(",")] if given.strip() else []
    if len(arguments) != len(usage.split(",") if usage else []):
        raise StudyError(f"'{what}' must be {name}{f'({usage})' if usage else ''}")
    return make(*arguments)


def series_of(study: Json, label: str | None) -> StudySeries | None:
    """The series with the label, or the first; None: it has none such."""
    if label is not None and label not in study["series"]:
        return None
    return StudySeries(study, label if label is not None else study["series"][0])
