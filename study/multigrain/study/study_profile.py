"""The section of the report of mgstudy that is about where the time goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from multigrain.study.conditions import has_spread
from multigrain.study.figures import duration, faster, percent, slower, unit_for
from multigrain.study.page import INK, Block, Chart, Figure, Table, chart, number, pattern_of, text
from multigrain.study.study_view import Json, StudyView, parts_of
from multigrain.study.verdicts import doubt


class ProfileSections(StudyView):
    def profile(self) -> list[Block]:
        if not self.family:
            return []
        spreads = has_spread(self.study)
        columns = [
            "C",
            "nodes",
            *(["what"] if self.several else []),
            "time",
            *(["spread"] if spreads else []),
            "speedup",
            *(name for _, name, *_ in self.parts),
        ]
        rows = []
        points = [point for point in self.measured if point["role"] == "sequential"] + sorted(
            self.family, key=lambda point: point["node_size"]
        )
        for point in points:
            parts = parts_of(point)
            total = sum(parts.values())
            alone = self.metrics[point["series"]]["sequential_ns"]
            repeated = len(point["repetitions_ns"]) > 1
            spread = percent((point["high_ns"] - point["low_ns"]) / point["elapsed_ns"], 2) if repeated else "–"
            if why := doubt(point, self.study["clock"]):
                spread += f" ({why})"
            rows.append(
                [
                    "one processor" if point["role"] == "sequential" else str(point["node_size"]),
                    str(point["nodes"]),
                    *([point["series"]] if self.several else []),
                    duration(point["elapsed_ns"]),
                    *([spread] if spreads else []),
                    number(alone / point["elapsed_ns"], 3) if alone else "–",
                    *(percent(parts[name] / total, 2) for name, *_ in self.parts),
                ]
            )
        caption = (
            "Each bar is the time that an average processor of the machine spent, from the bottom up: in the program's own code, waiting for data, "
            f"in locks, in barriers, and in the protocol. C = {self.processors} is one node, whose shared memory is all hardware."
        )
        if self.study["repetitions"] > 1:
            caption += " Whiskers: the fastest and slowest run."
        if self.several:
            caption += " " + "; ".join(f"{letter}: {text(label)}" for label, letter in self.letters.items()) + "."
        views: dict[tuple[str, ...], Chart] = {("time",): self.bars(False), ("share of the time",): self.bars(True)}
        figure = Figure(
            "profile-bars",
            "Where the time goes, by processors a node",
            caption,
            views,
            [("Show", ["time", "share of the time"])],
            table=Table(columns, rows, right=[i for i in range(len(columns)) if columns[i] != "what"]),
        )
        return [figure]

    def bars(self, share: bool) -> Chart:
        import plotly.graph_objects as graph

        places = {node_size: i for i, node_size in enumerate(self.sizes)}
        width = 0.66 / len(self.series)
        highest = max(point["high_ns"] for point in self.family)
        unit, factor = ("%", 1.0) if share else unit_for(highest)

        def x_of(point: Json) -> float:
            return (
                places[point["node_size"]]
                + (self.series.index(point["series"]) - (len(self.series) - 1) / 2) * width * 1.08
            )

        points = sorted(self.family, key=lambda point: (point["node_size"], self.series.index(point["series"])))
        totals = [sum(parts_of(point).values()) for point in points]
        traces = []
        for name, label, color, pattern in self.parts:
            values = [
                parts_of(point)[name] * (100 / total if share else 1 / factor) for point, total in zip(points, totals)
            ]
            traces.append(
                graph.Bar(
                    x=[x_of(point) for point in points],
                    y=values,
                    width=width,
                    name=label,
                    marker={
                        "color": color,
                        "line": {"width": 0.5, "color": INK},
                        "pattern": pattern_of(pattern, color),
                    },
                    hovertext=[
                        f"<b>C = {point['node_size']}, {label}</b>"
                        + (f"<br>{text(point['series'])}" if self.several else "")
                        + f"<br>{duration(parts_of(point)[name])} of {duration(point['elapsed_ns'])}: {percent(parts_of(point)[name] / total)}"
                        for point, total in zip(points, totals)
                    ],
                    hoverinfo="text",
                )
            )
        shapes: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        top = 100.0
        if not share:
            top = highest / factor
            if any(len(point["repetitions_ns"]) > 1 for point in points):
                traces.append(
                    graph.Scatter(
                        x=[x_of(point) for point in points],
                        y=[point["elapsed_ns"] / factor for point in points],
                        mode="markers",
                        showlegend=False,
                        name="spread",
                        marker={"size": 1, "color": INK},
                        hoverinfo="skip",
                        error_y={
                            "type": "data",
                            "symmetric": False,
                            "array": [(point["high_ns"] - point["elapsed_ns"]) / factor for point in points],
                            "arrayminus": [(point["elapsed_ns"] - point["low_ns"]) / factor for point in points],
                            "thickness": 1.2,
                            "width": 4,
                            "color": INK,
                        },
                    )
                )
            if not self.several:
                self.draw_metrics(places, factor, top, shapes, annotations)
        if self.several:
            annotations += [
                {
                    "x": x_of(point),
                    "y": 0,
                    "yref": "paper",
                    "yanchor": "top",
                    "yshift": 1,
                    "text": self.letters[point["series"]],
                    "showarrow": False,
                    "font": {"size": 11},
                }
                for point in points
            ]
        return chart(
            traces,
            barmode="stack",
            height=470,
            shapes=shapes,
            annotations=annotations,
            xaxis={
                "title": {"text": "nodes x processors a node", "standoff": 16},
                "tickmode": "array",
                "tickvals": list(places.values()),
                "ticktext": [("<br>" if self.several else "") + f"{self.processors // each}x{each}" for each in places],
                "ticks": "",
                "range": [-0.6, len(places) - 0.4],
                "showgrid": False,
            },
            yaxis={
                "title": {"text": "share of the time (%)" if share else f"execution time ({unit})"},
                "range": [0, top * (1 if share else 1.13)],
                "nticks": 8,
            },
        )

    def draw_metrics(
        self,
        places: Mapping[int, int],
        factor: float,
        top: float,
        shapes: list[dict[str, Any]],
        annotations: list[dict[str, Any]],
    ) -> None:
        """The two metrics as Figures 3 and 4 draw them: how far apart the levels of C = 1, P/2 and P are."""
        own = self.metrics[self.series[0]]
        whole, half, single = (self.at(self.series[0], each) for each in (self.processors, self.processors // 2, 1))

        def level(point: Json, start: float, end: float) -> None:
            y = point["elapsed_ns"] / factor
            shapes.append(
                {
                    "type": "line",
                    "x0": start,
                    "x1": end,
                    "y0": y,
                    "y1": y,
                    "line": {"color": INK, "width": 1, "dash": "dot"},
                }
            )

        def between(x: float, low: float, high: float, words: str, anchor: str) -> None:
            shapes.append({"type": "line", "x0": x, "x1": x, "y0": low, "y1": high, "line": {"color": INK, "width": 2}})
            for y in (low, high):
                shapes.append(
                    {
                        "type": "line",
                        "x0": x - 0.04,
                        "x1": x + 0.04,
                        "y0": y,
                        "y1": y,
                        "line": {"color": INK, "width": 2},
                    }
                )
            annotations.append(
                {
                    "x": x,
                    "y": max(low, high),
                    "text": words,
                    "showarrow": False,
                    "xanchor": anchor,
                    "yanchor": "bottom",
                    "yshift": 3,
                    "font": {"size": 12},
                    "bgcolor": "rgba(255,255,255,0.85)",
                }
            )

        if own["breakup_penalty"] is not None and whole and half:
            level(half, places[self.processors // 2], places[self.processors] + 0.5)
            between(
                places[self.processors] + 0.42,
                whole["elapsed_ns"] / factor,
                half["elapsed_ns"] / factor,
                f"breakup penalty<br><b>{slower(own['breakup_penalty'])}</b>",
                "right",
            )
        if own["multigrain_potential"] is not None and single and half and self.processors > 2:
            level(single, places[1], places[1] + 0.6)
            level(half, places[1] + 0.4, places[self.processors // 2])
            between(
                places[1] + 0.5,
                half["elapsed_ns"] / factor,
                single["elapsed_ns"] / factor,
                f"multigrain potential<br><b>{faster(own['multigrain_potential'])}</b>",
                "left",
            )
