"""The sections of the report of mgstudy that are about latency and the width of nodes."""

from __future__ import annotations

from typing import Any

from multigrain.study.figures import duration, percent, unit_for
from multigrain.study.page import Block, Chart, Figure, Table, chart, number, style
from multigrain.study.studies import latency_text
from multigrain.study.study_view import Json, StudyView


class CurveSections(StudyView):
    def latency_in_short(self) -> list[Block]:
        slopes = [each for each in self.study["slopes"] if each["slope"] is not None]
        if not slopes:
            return []
        base = latency_text(slopes[0]["base_latency_ns"])
        rows = [
            [str(each["node_size"]), duration(each["base_ns"]), percent(each["per_100us"]), number(each["slope"], 4)]
            for each in slopes
        ]
        return [
            "<p>The slope of a line has no unit: it is how many one-way latencies, one after the other, the execution time consists of.</p>",
            Table(["C", f"time at {base}", "more for each 100 µs", "slope: latencies in a row"], rows, right=range(4)),
        ]

    def latency(self) -> list[Block]:
        import plotly.graph_objects as graph

        if not self.family:
            return []
        unit, factor = unit_for(max(point["high_ns"] for point in self.family))
        slopes = {each["node_size"]: each for each in self.study["slopes"]}
        latencies = sorted({point["latency_ns"] for point in self.family})

        def lines(relative: bool) -> Chart:
            traces: list[Any] = []
            annotations: list[dict[str, Any]] = []
            for i, node_size in enumerate(self.sizes):
                look = style(i)
                points = sorted(
                    (point for point in self.family if point["node_size"] == node_size),
                    key=lambda point: point["latency_ns"],
                )
                base = slopes[node_size]["base_ns"]
                scale = base / 100 if relative else factor
                traces.append(
                    graph.Scatter(
                        x=[point["latency_ns"] / 1000 for point in points],
                        y=[point["elapsed_ns"] / scale - (100 if relative else 0) for point in points],
                        name=f"C = {node_size}",
                        mode="lines+markers",
                        line={"color": look["color"], "dash": look["dash"], "width": 2},
                        marker={"symbol": look["symbol"], "size": 8, "color": look["color"]},
                        error_y={
                            "type": "data",
                            "symmetric": False,
                            "array": [(point["high_ns"] - point["elapsed_ns"]) / scale for point in points],
                            "arrayminus": [(point["elapsed_ns"] - point["low_ns"]) / scale for point in points],
                            "thickness": 1,
                            "width": 3,
                        },
                        hovertext=[
                            f"<b>C = {node_size}, latency {latency_text(point['latency_ns'])}</b><br>{duration(point['elapsed_ns'])}, "
                            f"{percent(point['elapsed_ns'] / base - 1)} more than at {latency_text(slopes[node_size]['base_latency_ns'])}"
                            for point in points
                        ],
                        hoverinfo="text",
                    )
                )
                line = slopes[node_size]
                if line["slope"] is not None:
                    ends = [points[0]["latency_ns"], points[-1]["latency_ns"]]
                    traces.append(
                        graph.Scatter(
                            x=[end / 1000 for end in ends],
                            y=[
                                (line["intercept_ns"] + line["slope"] * end) / scale - (100 if relative else 0)
                                for end in ends
                            ],
                            name=f"fit of C = {node_size}",
                            showlegend=False,
                            mode="lines",
                            line={"color": look["color"], "dash": "dot", "width": 1},
                            hoverinfo="skip",
                        )
                    )
                    annotations.append(
                        {
                            "x": ends[1] / 1000,
                            "y": points[-1]["elapsed_ns"] / scale - (100 if relative else 0),
                            "xanchor": "right",
                            "yanchor": "bottom",
                            "yshift": 6,
                            "showarrow": False,
                            "font": {"size": 12, "color": look["color"]},
                            "bgcolor": "rgba(255,255,255,0.85)",
                            "text": f"C = {node_size}: slope {number(line['slope'], 3)}",
                        }
                    )
            title = "increase over the base latency (%)" if relative else f"execution time ({unit})"
            return chart(
                traces,
                height=460,
                annotations=annotations,
                xaxis={"title": {"text": "one-way latency between nodes (µs)"}, "rangemode": "tozero"},
                yaxis={"title": {"text": title}, **({} if relative else {"rangemode": "tozero"})},
            )

        rows = []
        for latency in latencies:
            row = [latency_text(latency)]
            for node_size in self.sizes:
                point = next(
                    (each for each in self.family if each["node_size"] == node_size and each["latency_ns"] == latency),
                    None,
                )
                more = slopes[node_size]["increase"].get(str(latency))
                row += [
                    duration(point["elapsed_ns"]) if point else "failed",
                    percent(more) if more is not None else "–",
                ]
            rows.append(row)
        columns = ["latency", *(each for node_size in self.sizes for each in (f"C = {node_size}", "increase"))]
        caption = (
            "After Figures 18 to 20 of the MGS paper. The steeper a line, the more messages wait for each other; "
            "larger nodes send fewer. Thin lines: straight lines by least squares, whose slopes are written at their ends."
        )
        return [
            Figure(
                "latency-lines",
                "Execution time against the latency between nodes",
                caption,
                {("time",): lines(False), ("increase",): lines(True)},
                [("Show", ["time", "increase"])],
                table=Table(columns, rows, right=range(1, len(columns))),
            )
        ]

    def width(self) -> list[Block]:
        import plotly.graph_objects as graph

        shares = (
            ("data wait", lambda p: p["mean_ns"]["data_wait"]),
            ("barrier", lambda p: p["mean_ns"]["barrier"]),
            ("lock", lambda p: p["mean_ns"]["lock"]),
            ("rights changes", lambda p: p["rights_ns"]),
            ("diffs", lambda p: p["diffs_ns"]),
        )
        points = sorted(self.family, key=lambda point: point["node_size"])
        alone = self.metrics[self.series[0]]["sequential_ns"]
        x = [str(point["node_size"]) for point in points]

        def of_time(get: Any, point: Json) -> float:
            return float(get(point) / max(sum(point["mean_ns"].values()), 1))

        traces = []
        for i, (label, get) in enumerate(shares):
            look = style(i)
            traces.append(
                graph.Scatter(
                    x=x,
                    y=[100 * of_time(get, point) for point in points],
                    name=label,
                    mode="lines+markers",
                    line={"color": look["color"], "dash": look["dash"], "width": 2},
                    marker={"symbol": look["symbol"], "size": 8, "color": look["color"]},
                    hovertext=[
                        f"<b>C = {point['node_size']}, {label}</b><br>{percent(of_time(get, point))} of the time"
                        for point in points
                    ],
                    hoverinfo="text",
                )
            )
        axis = {"title": {"text": "C, processors a node"}, "type": "category"}
        imbalances = (("user time", "user"), ("time until barriers", "busy"), ("page faults", "faults"))
        uneven = []
        for i, (label, key) in enumerate(imbalances):
            look = style(i)
            values = [point["imbalance"][key] for point in points]
            uneven.append(
                graph.Scatter(
                    x=x,
                    y=[None if value is None else 100 * value for value in values],
                    name=label,
                    mode="lines+markers",
                    line={"color": look["color"], "dash": look["dash"], "width": 2},
                    marker={"symbol": look["symbol"], "size": 8, "color": look["color"]},
                    hovertext=[
                        f"<b>C = {point['node_size']}, {label}</b><br>the most is {percent(value)} above the mean"
                        for point, value in zip(points, values)
                    ],
                    hoverinfo="text",
                )
            )

        def local_to_remote(point: Json) -> str:
            local, remote = point["counters"]["locks_local"], point["counters"]["locks_remote"]
            return f"{number(local / remote, 2)} : 1" if remote else "–"

        columns = [
            "C",
            "speedup",
            *(label for label, _ in shares),
            *(f"imbalance of {label}" for label, _ in imbalances),
            "local to remote locks",
            "a rights change",
        ]
        rows = []
        for point in points:
            changes = sum(
                point["counters"].get(name, 0) for name in ("grant_reads", "grant_writes", "revoke_writes", "revokes")
            )
            rows.append(
                [
                    str(point["node_size"]),
                    number(alone / point["elapsed_ns"], 3) if alone else "–",
                    *(percent(of_time(get, point)) for _, get in shares),
                    *(percent(point["imbalance"][key]) for _, key in imbalances),
                    local_to_remote(point),
                    duration(point["rights_ns"] * self.processors / changes) if changes else "–",
                ]
            )
        table = Table(columns, rows, right=range(len(columns)))
        return [
            Figure(
                "width-shares",
                "Shares of the time by node width",
                "After Table VI of the GeNIMA emulation paper: of an average processor's time. Changing access rights and diffs are parts of "
                "protocol, lock and barrier time, wherever they are done.",
                {
                    (): chart(
                        traces,
                        height=420,
                        xaxis=axis,
                        yaxis={"title": {"text": "share of the time (%)"}, "rangemode": "tozero"},
                    )
                },
                table=table,
            ),
            Figure(
                "width-imbalance",
                "Imbalance between processors by node width",
                "By how much the processor with the most exceeds the mean: of time in the program's own code, of all time outside barriers, and of page faults.",
                {
                    (): chart(
                        uneven,
                        height=380,
                        xaxis=axis,
                        yaxis={"title": {"text": "the most above the mean (%)"}, "rangemode": "tozero"},
                    )
                },
            ),
        ]
