"""The four studies: which runs each needs, and what it makes of them. The result is JSON, which reports are made from.

Every study is a set of *series* (a program with options, "what is compared") measured at *points*: a node size C of the
family of P, and in a latency study a latency. See docs/user/mgstudy.md for the JSON.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from multigrain.study import metrics
from multigrain.study.files import FormatError, parse_versioned
from multigrain.study.runs import Json, Measurement, Result, Run, Runner, StudyError, wait_for_one

SCHEMA, VERSION = "multigrain-study", 1
CATEGORIES = ("user", "data_wait", "lock", "barrier", "protocol")
FAULTS = ("read_faults", "write_faults", "upgrades", "local_faults")
# Figures 18 to 20: from the least that the machine can to 1 ms.
LATENCIES = ("5us", "50us", "100us", "200us", "500us", "1ms")
BASE_LATENCY = 50_000  # ns; the paper's
UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000}


@dataclass(frozen=True)
class Series:
    """One of the things that are compared: a program with its arguments, and mgrun's options."""

    label: str
    program: str
    arguments: tuple[str, ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    series: Series
    node_size: int
    run: Run
    role: str = "family"  # or "sequential": one processor, for speedups
    latency_ns: int | None = None


def parse_latency(text: str) -> int:
    """Nanoseconds of "50us"; the same words as mgrun --net reads."""
    for unit, factor in UNITS.items():
        number = text.removesuffix(unit)
        if number != text and number.replace(".", "", 1).isdigit():
            return round(float(number) * factor)
    raise StudyError(f"'{text}' is no latency; it must be a time such as 50us, in ns, us or ms")


def latency_text(nanoseconds: int) -> str:
    for unit, factor in reversed(UNITS.items()):
        if nanoseconds >= factor:
            return f"{nanoseconds / factor:g}{unit}"
    return "0ns"


def with_latency(network: str, latency_ns: int) -> str:
    """The network model with another latency: "myrinet,latency=20us" for 5 us is "myrinet,latency=5us"."""
    items = [item for item in network.split(",") if not item.startswith("latency=")]
    return ",".join([*items, f"latency={latency_text(latency_ns)}"])


def check_node_sizes(processors: int, sizes: Iterable[int]) -> None:
    for size in sizes:
        if size < 1 or processors % size != 0:
            raise StudyError(
                f"a node size of {size} does not divide {processors} processors; those that do are "
                + ", ".join(map(str, metrics.node_sizes(processors)))
            )


def point_of(series: Series, processors: int, size: int, **more: Any) -> Point:
    run = Run(series.program, series.arguments, processors // size, size, series.options)
    return Point(series, size, run, **more)


def plan_family(series: Sequence[Series], processors: int, sizes: Sequence[int], sequential: bool) -> list[Point]:
    """Largest nodes first: what is wrong with a program shows soonest on one node. Series by series at each size, so
    that what is compared is measured side by side."""
    check_node_sizes(processors, sizes)
    points = [point_of(each, 1, 1, role="sequential") for each in series] if sequential else []
    return points + [point_of(each, processors, size) for size in sorted(sizes, reverse=True) for each in series]


def plan_latency(
    series: Series, processors: int, sizes: Sequence[int], latencies: Sequence[int], network: str
) -> list[Point]:
    check_node_sizes(processors, sizes)
    if any(size == processors for size in sizes):
        raise StudyError(f"one node of {processors} processors sends no messages: leave the node size {processors} out")
    points = []
    for latency in latencies:
        slower = replace(series, options=(*series.options, "--net", with_latency(network, latency)))
        for size in sorted(sizes, reverse=True):
            points.append(replace(point_of(slower, processors, size, latency_ns=latency), series=series))
    return points


class Progress:
    """What is told of a study as it goes, with the place of each run in the order of the plan; this one says nothing."""

    def begin(self, total: int, cached: int) -> None: ...
    def running(self, place: int, point: Point, repetition: int) -> None: ...
    def done(self, place: int, point: Point, repetition: int, result: Result) -> None: ...
    def skipped(self, place: int) -> None: ...
    def end(self) -> None: ...


def execute(
    points: Sequence[Point], repetitions: int, runner: Runner, progress: Progress, jobs: int = 1
) -> dict[Point, list[Result]]:
    """All points once, then again: an interrupted study has something of each, and drift of the machine hits all alike.
    A point that failed is not tried again. Up to `jobs` runs go on at a time; whatever ends this ends them all."""
    runner.cache.prepare()
    results: dict[Point, dict[int, Result]] = {point: {} for point in points}
    todo: list[tuple[Point, int]] = []
    for repetition in range(repetitions):
        for point in points:
            found = runner.cached(point.run, repetition)
            if found is None:
                todo.append((point, repetition))
            else:
                results[point][repetition] = found
    progress.begin(len(todo), sum(map(len, results.values())))
    waiting = collections.deque(range(len(todo)))
    going: dict[Measurement, int] = {}
    is_first = True
    try:
        while waiting or going:
            if waiting and len(going) < jobs:
                place = waiting.popleft()
                point, repetition = todo[place]
                if any(result.profile is None for result in results[point].values()):
                    progress.skipped(place)
                    continue
                progress.running(place, point, repetition)
                going[runner.start(point.run, repetition)] = place
                continue
            ended = wait_for_one(list(going))
            result = runner.finish(ended)
            place = going.pop(ended)
            if is_first and result.status == 2 and result.output.startswith("mgrun: "):
                raise StudyError(result.output.strip().splitlines()[0])
            is_first = False
            point, repetition = todo[place]
            results[point][repetition] = result
            progress.done(place, point, repetition, result)
    finally:
        runner.abandon(list(going))
        progress.end()
    return {point: [of[repetition] for repetition in sorted(of)] for point, of in results.items()}


# From results to JSON.


def processors_of(profile: Json) -> list[Json]:
    """The rows of all processors; of a program as it is (mgrun --binary), of all its threads, which are numbered."""
    if not profile["run"].get("hosted"):
        return [{**processor, "node": node["node"]} for node in profile["nodes"] for processor in node["processors"]]
    threads = [
        {**row, "node": node["node"]}
        for node in profile["nodes"]
        for row in node.get("threads", [])
        if row["kind"] != "shadows"
    ]
    # What a thread does in system calls is in no category of a study, and so it is what is outside of them.
    return [
        {**row, "processor": number, "total_ns": row["total_ns"] - row["system_ns"]}
        for number, row in enumerate(threads)
    ]


def faults_of(processor: Json) -> int | None:
    counters = processor.get("counters")
    return sum(int(counters[name]) for name in FAULTS) if counters else None


def breakdown(profile: Json) -> Json:
    """Where the time of an average processor went, nanoseconds, and how it differs between processors."""
    processors = processors_of(profile)

    def mean_of(name: str) -> int:
        return round(statistics.fmean(each[name] for each in processors))

    counters: dict[str, int] = {}
    messages = {"count": 0, "bytes": 0}
    for node in profile["nodes"]:
        for name, value in node["counters"].items():
            counters[name] = counters.get(name, 0) + value
        for message in node["messages"]:
            messages["count"] += message["count"]
            messages["bytes"] += message["bytes"]
    faults = [count for each in processors if (count := faults_of(each)) is not None]
    return {
        "mean_ns": {name: mean_of(f"{name}_ns") for name in CATEGORIES},
        # Of the phase, what no category has: before a processor began its function, or after it ended.
        "outside_ns": max(0, profile["run"]["elapsed_ns"] - mean_of("total_ns")),
        "rights_ns": mean_of("rights_ns"),
        "diffs_ns": mean_of("diffs_ns"),
        "counters": counters,
        "messages": messages,
        "imbalance": {
            "user": metrics.imbalance([each["user_ns"] for each in processors]),
            # What a processor did before it waited for the others.
            "busy": metrics.imbalance([each["total_ns"] - each["barrier_ns"] for each in processors]),
            "faults": metrics.imbalance(faults) if faults else None,
        },
        "processors": [
            {
                "processor": each["processor"],
                "node": each["node"],
                **{f"{name}_ns": each[f"{name}_ns"] for name in CATEGORIES},
                "total_ns": each["total_ns"],
                "counters": each.get("counters"),
            }
            for each in processors
        ],
    }


def point_json(point: Point, results: Sequence[Result]) -> Json:
    good = [result for result in results if result.profile is not None]
    out: Json = {
        "series": point.series.label,
        "role": point.role,
        "node_size": point.node_size,
        "nodes": point.run.nodes,
        "latency_ns": point.latency_ns,
        "command": results[0].command if results else "",
        "repetitions_ns": [result.elapsed_ns for result in good],
        "real_seconds": sum(result.seconds for result in results),
        **({"interruptions": sum(result.interruptions for result in good)} if point.run.is_counted else {}),
        "failures": [
            {"command": result.command, "status": result.status, "problem": result.problem, "output": result.output}
            for result in results
            if result.profile is None
        ],
    }
    if good:
        times = [float(result.elapsed_ns) for result in good]
        spread = metrics.spread(times)
        profile = good[metrics.nearest_to_median(times)].profile
        assert profile is not None
        out |= {"elapsed_ns": int(spread.median), "low_ns": int(spread.low), "high_ns": int(spread.high)} | breakdown(
            profile
        )
    return out


def family_metrics(points: Sequence[Json], label: str, processors: int) -> Json:
    """The metrics of one series, with their range over the repetitions."""
    own = [point for point in points if point["series"] == label and "elapsed_ns" in point]
    family = {point["node_size"]: point for point in own if point["role"] == "family"}
    alone = next((point["elapsed_ns"] for point in own if point["role"] == "sequential"), None)
    times = {size: point["elapsed_ns"] for size, point in family.items()}

    def around(metric: Callable[[Mapping[int, float], int], float | None], slow: int, fast: int) -> list[float] | None:
        if metric(times, processors) is None:
            return None
        extremes = []
        for high, low in (("low_ns", "high_ns"), ("high_ns", "low_ns")):
            value = metric({slow: family[slow][high], fast: family[fast][low]}, processors)
            assert value is not None
            extremes.append(value)
        return extremes

    grain = metrics.classify(times, processors, alone)
    half = processors // 2
    return {
        "series": label,
        "breakup_penalty": metrics.breakup_penalty(times, processors),
        "breakup_penalty_range": around(metrics.breakup_penalty, half, processors),
        "multigrain_potential": metrics.multigrain_potential(times, processors),
        # With P = 2 both ends are one machine, and the potential is 0 whatever the spread.
        "multigrain_potential_range": around(metrics.multigrain_potential, 1, half) if half > 1 else None,
        "grain": grain.grain,
        "reason": grain.reason,
        "sequential_ns": alone,
    }


def slope_of(points: Sequence[Json], size: int) -> Json:
    """The line through the times of one node size against latency. Its slope has no unit: of how many one-way latencies,
    one after the other, the execution time consists."""
    own = sorted(
        (point for point in points if point["node_size"] == size and "elapsed_ns" in point),
        key=lambda point: point["latency_ns"],
    )
    line = metrics.fit([(point["latency_ns"], point["elapsed_ns"]) for point in own])
    base = min(own, key=lambda point: (abs(point["latency_ns"] - BASE_LATENCY), point["latency_ns"]), default=None)
    return {
        "node_size": size,
        "slope": line.slope if line else None,
        "intercept_ns": line.intercept if line else None,
        "base_latency_ns": base["latency_ns"] if base else None,
        "base_ns": base["elapsed_ns"] if base else None,
        # As a part of the time at the base latency.
        "increase": {str(point["latency_ns"]): point["elapsed_ns"] / base["elapsed_ns"] - 1 for point in own}
        if base
        else {},
        "per_100us": line.slope * 100_000 / base["elapsed_ns"] if line and base else None,
    }


def assemble(kind: str, results: Mapping[Point, Sequence[Result]], description: Json) -> Json:
    """The study. `description` is what the command line said; see command.py."""
    points = [point_json(point, of) for point, of in results.items()]
    labels = list(dict.fromkeys(point.series.label for point in results))
    sizes = sorted({point.node_size for point in results if point.role == "family"})
    study: Json = {
        "schema": SCHEMA,
        "version": VERSION,
        "kind": kind,
        **description,
        "node_sizes": sizes,
        "series": labels,
        "points": points,
    }
    if description["clock"] == "counted":
        # Every run gives these numbers, unless processors lost their turn. With seeds that holds of each seed's.
        study["exact"] = not any(point["interruptions"] for point in points)
    if kind == "latency":
        study["slopes"] = [slope_of(points, size) for size in sizes]
    else:
        study["metrics"] = [family_metrics(points, label, description["processors"]) for label in labels]
    return study


def read_study(path: Path) -> Json:
    """What mgstudy --json wrote, or a StudyError."""
    try:
        return parse_versioned(path.read_text("utf-8"), str(path), SCHEMA, VERSION, "mgstudy --json")
    except OSError as error:
        raise StudyError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StudyError(f"{path} is no JSON: {error}") from error
    except FormatError as error:
        raise StudyError(str(error)) from error


def failed_points(study: Json) -> list[Json]:
    return [point for point in study["points"] if point["failures"]]
