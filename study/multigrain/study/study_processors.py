"""The sections of the report of mgstudy that are about single processors, and about counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multigrain.study.figures import duration, percent, unit_for
from multigrain.study.page import GREY, INK, Block, Chart, Figure, Table, chart, number, pattern_of, text
from multigrain.study.studies import latency_text
from multigrain.study.study_view import COUNTERS, FAULTS, PARTS, Json, StudyView


class ProcessorSections(StudyView):
    def by_processor(self) -> list[Block]:
        import plotly.graph_objects as graph

        def key(point: Json) -> tuple[str, ...]:
            parts = [f"C = {point['node_size']}"]
            if self.several:
                parts.insert(0, point["series"])
            if point["latency_ns"] is not None:
                parts.append(latency_text(point["latency_ns"]))
            return tuple(parts)

        def boundaries(point: Json) -> list[dict[str, Any]]:
            if point["node_size"] in (1, self.processors):
                return []
            return [
                {
                    "type": "line",
                    "x0": at - 0.5,
                    "x1": at - 0.5,
                    "yref": "paper",
                    "y0": 0,
                    "y1": 1,
                    "line": {"color": GREY, "width": 1, "dash": "dot"},
                }
                for at in range(point["node_size"], self.processors, point["node_size"])
            ]

        time_views: dict[tuple[str, ...], Chart] = {}
        fault_views: dict[tuple[str, ...], Chart] = {}
        rows = []
        points = sorted(
            self.family,
            key=lambda point: (self.series.index(point["series"]), point["node_size"], point["latency_ns"] or 0),
        )
        for point in points:
            processors = point["processors"]
            x = [each["processor"] for each in processors]
            axis = {
                "title": {"text": "processor (dotted lines: nodes)" if boundaries(point) else "processor"},
                "dtick": max(1, len(x) // 16),
                "tick0": 0,
                "range": [-0.6, len(x) - 0.4],
                "showgrid": False,
            }
            unit, factor = unit_for(max(each["total_ns"] for each in processors))

            def stack(rows_of: Sequence[tuple[str, str, str, str]], values: Any, words: Any) -> list[Any]:
                return [
                    graph.Bar(
                        x=x,
                        y=[values(each, name) for each in processors],
                        name=label,
                        marker={
                            "color": color,
                            "line": {"width": 0.3, "color": INK},
                            "pattern": pattern_of(pattern, color),
                        },
                        hovertext=[
                            f"<b>processor {each['processor']}, node {each['node']}</b><br>{label}: {words(each, name)}"
                            for each in processors
                        ],
                        hoverinfo="text",
                    )
                    for name, label, color, pattern in rows_of
                ]

            time_views[key(point)] = chart(
                stack(
                    [each for each in self.parts if each[0] != "outside"],
                    lambda each, name: each[f"{name}_ns"] / factor,
                    lambda each, name: (
                        f"{duration(each[f'{name}_ns'])} ({percent(each[f'{name}_ns'] / max(each['total_ns'], 1))})"
                    ),
                ),
                barmode="stack",
                bargap=0.15,
                height=400,
                shapes=boundaries(point),
                xaxis=axis,
                yaxis={"title": {"text": f"time ({unit})"}},
            )
            if all(each["counters"] for each in processors):
                fault_views[key(point)] = chart(
                    stack(
                        FAULTS,
                        lambda each, name: each["counters"][name],
                        lambda each, name: number(each["counters"][name]),
                    ),
                    barmode="stack",
                    bargap=0.15,
                    height=360,
                    shapes=boundaries(point),
                    xaxis=axis,
                    yaxis={"title": {"text": "page faults"}, "rangemode": "tozero"},
                )
            for each in processors:
                counters = each["counters"] or {}
                rows.append(
                    [
                        *key(point),
                        str(each["processor"]),
                        str(each["node"]),
                        duration(each["total_ns"]),
                        *(duration(each[f"{name}_ns"]) for name, *_ in PARTS),
                        *(number(counters.get(name)) for name, *_ in FAULTS),
                        number(counters.get("locks_remote")),
                    ]
                )
        if not time_views:
            return []
        names: list[tuple[str, list[str]]] = []
        first = points[0]
        labels = [
            *(["What"] if self.several else []),
            "Machine",
            *(["Latency"] if first["latency_ns"] is not None else []),
        ]
        for i, label in enumerate(labels):
            names.append((label, list(dict.fromkeys(each[i] for each in time_views))))
        columns = [
            *(each.lower() for each in labels),
            "processor",
            "node",
            "time",
            *(label for _, label, *_ in PARTS),
            *(label for _, label, *_ in FAULTS),
            "locks from another node",
        ]
        out: list[Block] = [
            Figure(
                "processor-time",
                "Where each processor's time went",
                "One run: that whose time is the median.",
                time_views,
                names,
                table=Table(columns, rows, right=range(len(labels), len(columns))),
            )
        ]
        if any(any(trace["y"] and max(trace["y"]) > 0 for trace in view["data"]) for view in fault_views.values()):
            out.append(
                Figure(
                    "processor-faults",
                    "Page faults by processor",
                    "Read and write faults ask the page's home; upgrades are writes to pages that could be read; the rest found the page in the node. "
                    "Where pages are homed, and which processor of a node comes first, make these uneven.",
                    fault_views,
                    names,
                )
            )
        return out

    def counters(self) -> list[Block]:
        if not self.family:
            return []
        points = sorted(
            self.family,
            key=lambda point: (self.series.index(point["series"]), point["node_size"], point["latency_ns"] or 0),
        )
        heads = []
        for point in points:
            head = f"C = {point['node_size']}"
            if point["latency_ns"] is not None:
                head += f", {latency_text(point['latency_ns'])}"
            if self.several:
                head = f"{self.letters[point['series']]}, {head}"
            heads.append(head)
        rows = [
            [label, *(number(point["counters"].get(name)) for point in points)]
            for name, label in COUNTERS
            if any(point["counters"].get(name) for point in points)
        ]
        rows.append(["messages", *(number(point["messages"]["count"]) for point in points)])
        rows.append(["bytes of messages", *(number(point["messages"]["bytes"]) for point in points)])
        out: list[Block] = []
        if self.several:
            out.append(
                "<p>" + "; ".join(f"{letter}: {text(label)}" for label, letter in self.letters.items()) + ".</p>"
            )
        return [*out, Table(["", *heads], rows, right=range(1, len(heads) + 1))]
