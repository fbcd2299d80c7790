"""A study's figure as SVG (--figure): as the papers print theirs."""

from __future__ import annotations

from multigrain.study.figures import unit_for
from multigrain.study.runs import Json, StudyError
from multigrain.study.studies import CATEGORIES
from multigrain.study.svg import ORDER, Bar, Line, Panel, figure, short

WORDS = {name: name.replace("_", " ") for name in CATEGORIES}


def measured(study: Json, series: str) -> list[Json]:
    """The machines of the family that were measured, by their node size."""
    points = [
        point
        for point in study["points"]
        if point["series"] == series and point["role"] == "family" and point.get("elapsed_ns")
    ]
    return sorted(points, key=lambda point: (point["node_size"], point["latency_ns"] or 0))


def divided(point: Json, factor: float) -> Bar:
    parts = [(name, point["mean_ns"][name] / factor) for name in CATEGORIES]
    return Bar(parts, short(point["elapsed_ns"] / factor))


def of_family(study: Json) -> str:
    """Execution times by node size, divided into where an average processor's time went."""
    panels = []
    for series in study["series"]:
        points = measured(study, series)
        if not points:
            continue
        unit, factor = unit_for(max(point["elapsed_ns"] for point in points))
        panels.append(
            Panel(
                f"{series}: {unit}",
                [str(point["node_size"]) for point in points],
                [[divided(point, factor)] for point in points],
                below="C, processors of a node",
            )
        )
    title = f"Execution time of {study['processors']} processors in nodes of C"
    return figure(title, f"{title}: {', '.join(study['series'])}", panels, WORDS)


def of_processors(study: Json) -> str:
    """The time of each processor, divided, for each node size; and the page faults of each."""
    panels = []
    for series in study["series"]:
        for point in measured(study, series):
            unit, factor = unit_for(point["elapsed_ns"])
            rows = point["processors"]
            labels = [str(row["processor"]) for row in rows]
            bars = [[Bar([(name, row[f"{name}_ns"] / factor) for name in CATEGORIES])] for row in rows]
            below = "processor"
            panels.append(Panel(f"{series}, C = {point['node_size']}: {unit}", labels, bars, below=below))
            faults = [[Bar([("faults", float(sum(row["counters"].get(name, 0) for name in FAULTS)))])] for row in rows]
            panels.append(Panel(f"{series}, C = {point['node_size']}: page faults", labels, faults, below=below))
    title = f"Each of {study['processors']} processors"
    return figure(title, f"{title}: time and page faults", panels, {**WORDS, "faults": "page faults"})


FAULTS = ("read_faults", "write_faults", "upgrades")


def of_latency(study: Json) -> str:
    """By which part execution takes longer than at the shortest latency, for each node size."""
    panels = []
    sizes = sorted({point["node_size"] for series in study["series"] for point in measured(study, series)})
    kinds = {size: ORDER[i % len(ORDER)] for i, size in enumerate(sizes)}
    for series in study["series"]:
        points = measured(study, series)
        latencies = sorted({point["latency_ns"] for point in points if point["latency_ns"] is not None})
        if not latencies:
            continue
        labels = []
        for latency in latencies:
            unit, factor = unit_for(latency)
            labels.append(f"{latency / factor:.3g} {unit}")
        lines = []
        for size in sizes:
            own = {point["latency_ns"]: point["elapsed_ns"] for point in points if point["node_size"] == size}
            if latencies[0] in own:
                longer = [(i, 100 * (own[at] / own[latencies[0]] - 1)) for i, at in enumerate(latencies) if at in own]
                lines.append(Line(kinds[size], longer))
        panels.append(Panel(f"{series}: longer, %", labels, lines=lines, below="latency between nodes"))
    title = f"Execution time of {study['processors']} processors against the network's latency"
    return figure(title, title, panels, {f"line {kind}": f"C = {size}" for size, kind in kinds.items()})


DRAWINGS = {"latency": of_latency, "width": of_processors}


def drawing(study: Json) -> str:
    """The file's contents. Errors: nothing was measured."""
    if not any(measured(study, series) for series in study["series"]):
        raise StudyError("there is nothing to draw: no machine was measured")
    return DRAWINGS.get(study["kind"], of_family)(study)
