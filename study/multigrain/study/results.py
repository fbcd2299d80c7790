"""The results of mgstudy as text: tables for the terminal, and CSV."""

from __future__ import annotations

import csv
import io
import sys

from multigrain.study import metrics, studies
from multigrain.study.conditions import conditions, has_spread
from multigrain.study.figures import duration, short_percent
from multigrain.study.runs import Json


def spread_of(point: Json) -> str:
    if len(point["repetitions_ns"]) < 2:
        return "–"
    return f"{100 * (point['high_ns'] - point['low_ns']) / point['elapsed_ns']:.1f}%"


def print_study(study: Json) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160  # a file has no right margin
    console.print(Text(f"\n{study['title']}: {conditions(study)}"), soft_wrap=True)
    several = len(study["series"]) > 1
    latency = study["kind"] == "latency"
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    if several:
        table.add_column("what", overflow="fold")
    for name in ("C", "latency" if latency else "nodes"):  # with both, 80 columns are not enough
        table.add_column(name, justify="right", no_wrap=True)
    alone = {each["series"]: each["sequential_ns"] for each in study.get("metrics", []) if each["sequential_ns"]}
    spreads = has_spread(study)
    shown = [
        "time",
        *(["spread"] if spreads else []),
        *(["speedup"] if alone else []),
        *(name.replace("_", "\n") for name in studies.CATEGORIES),
        "outside",
    ]
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    order = {label: index for index, label in enumerate(study["series"])}

    def place(point: Json) -> tuple[bool, int, int, int]:
        return point["role"] != "sequential", point["node_size"], point["latency_ns"] or 0, order[point["series"]]

    for point in sorted(study["points"], key=place):
        row = ([Text(point["series"])] if several else []) + [
            "seq." if point["role"] == "sequential" else str(point["node_size"]),
            studies.latency_text(point["latency_ns"]) if latency else str(point["nodes"]),
        ]
        if "elapsed_ns" in point:
            parts = metrics.shares([*(point["mean_ns"][name] for name in studies.CATEGORIES), point["outside_ns"]])
            base = alone.get(point["series"])
            row += [
                duration(point["elapsed_ns"], "us"),
                *([spread_of(point)] if spreads else []),
                *([f"{base / point['elapsed_ns']:.2f}" if base else "–"] if alone else []),
                *(f"{part // 10}.{part % 10}%" for part in parts),
            ]
        else:
            row += ["failed"] + ["–"] * (len(shown) - 1)
        table.add_row(*row)
    console.print(table)
    console.print(
        "Each row adds up to its time; outside: before a processor began its function, or after it ended.", style="dim"
    )
    for each in study.get("metrics", []):
        where = f"{each['series']}: " if several else ""
        console.print(
            Text(
                f"{where}breakup penalty {short_percent(each['breakup_penalty'])}, multigrain potential {short_percent(each['multigrain_potential'])}: "
                + (f"{each['grain']}; {each['reason']}" if each["grain"] else each["reason"])
            ),
            soft_wrap=True,
        )
    for each in study.get("slopes", []):
        if each["slope"] is not None:
            console.print(
                Text(
                    f"C = {each['node_size']}: {short_percent(each['per_100us'])} more for each 100 us of latency "
                    f"(of the time at {studies.latency_text(each['base_latency_ns'])}); {each['slope']:.4g} latencies one after the other"
                ),
                soft_wrap=True,
            )


def print_failures(study: Json) -> None:
    for point in studies.failed_points(study):
        for failure in point["failures"]:
            print(f"\nmgstudy: FAILED: {failure['problem']}\n  {failure['command']}", file=sys.stderr)
            for line in failure["output"].strip().splitlines()[-10:]:
                print(f"  | {line}", file=sys.stderr)


def csv_text(study: Json) -> str:
    counters = sorted({name for point in study["points"] for name in point.get("counters", {})})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "series",
            "role",
            "processors",
            "node_size",
            "nodes",
            "latency_ns",
            "repetitions",
            "failures",
            "elapsed_ns",
            "low_ns",
            "high_ns",
            *(f"{name}_ns" for name in studies.CATEGORIES),
            "outside_ns",
            "rights_ns",
            "diffs_ns",
            "messages",
            "message_bytes",
            *counters,
        ]
    )
    for point in study["points"]:
        row = [
            point["series"],
            point["role"],
            point["nodes"] * point["node_size"],
            point["node_size"],
            point["nodes"],
            point["latency_ns"],
            len(point["repetitions_ns"]),
            len(point["failures"]),
        ]
        if "elapsed_ns" in point:
            row += [point[name] for name in ("elapsed_ns", "low_ns", "high_ns")] + [
                point["mean_ns"][name] for name in studies.CATEGORIES
            ]
            row += [point[name] for name in ("outside_ns", "rights_ns", "diffs_ns")] + [
                point["messages"]["count"],
                point["messages"]["bytes"],
            ]
            row += [point["counters"].get(name) for name in counters]
        writer.writerow(row)
    return out.getvalue()
