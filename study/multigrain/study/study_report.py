"""The report of a study: the MGS paper's figures (3, 6 to 20) and the tables of GeNIMA's study of node width, for one program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from multigrain.study.page import (
    GREY,
    INK,
    Block,
    Chart,
    Figure,
    Section,
    Table,
    chart,
    number,
    page,
    pattern_of,
    size,
    style,
    text,
)
from multigrain.study.studies import latency_text

Json = Mapping[str, Any]

# From the ground up, as in Figures 6 to 17; each told by color and pattern.
PARTS = (
    ("user", "user", "#B8B8B8", ""),
    ("data_wait", "data wait", "#56B4E9", "."),
    ("lock", "lock", "#E69F00", "\\"),
    ("barrier", "barrier", "#009E73", "/"),
    ("protocol", "protocol", "#0072B2", "x"),
)
OUTSIDE = ("outside", "not measured", "#EDEDED", "-")
FAULTS = (
    ("read_faults", "read faults", "#0072B2", ""),
    ("write_faults", "write faults", "#D55E00", "/"),
    ("upgrades", "upgrades", "#E69F00", "\\"),
    ("local_faults", "served inside the node", "#B8B8B8", "."),
)
COUNTERS = (
    ("read_faults", "read faults"),
    ("write_faults", "write faults"),
    ("upgrades", "upgrades"),
    ("local_faults", "faults served inside the node"),
    ("pages_fetched", "pages fetched"),
    ("prefetches", "pages asked for ahead"),
    ("invalidations", "pages invalidated"),
    ("twins", "twins"),
    ("diffs", "diffs"),
    ("diff_bytes", "bytes of diffs"),
    ("releases", "releases"),
    ("pages_released", "pages released"),
    ("locks_local", "locks taken inside the node"),
    ("locks_remote", "locks taken from another node"),
    ("barriers", "barrier arrivals"),
)
KINDS = {
    "family": "How would it run?",
    "latency": "How much does latency cost?",
    "width": "What do wider nodes change?",
    "compare": "Which runs better?",
}
GRAIN_TEXT = {
    "coarse-grain": "Any implementation of shared memory will do for it: communication is rare.",
    "fine-grain": "Without hardware sharing across the whole machine it gains no effective speedup.",
}


def percent(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "–"
    shown = 100 * value
    if abs(shown) >= 1000:
        return f"{shown:,.0f} %"
    return f"{0 if abs(shown) < 0.05 else shown:.{digits}g} %"


def percent_range(values: Sequence[float] | None) -> str:
    return f"{percent(values[0])} to {percent(values[1])}" if values and values[0] != values[1] else ""


def duration(nanoseconds: float | None) -> str:
    if nanoseconds is None:
        return "–"
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= factor:
            return f"{nanoseconds / factor:.4g} {unit}"
    return f"{nanoseconds:.4g} ns"


def unit_for(nanoseconds: float) -> tuple[str, float]:
    """The unit of an axis that goes so far."""
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= factor:
            return unit, factor
    return "ns", 1.0


def parts_of(point: Json) -> dict[str, float]:
    """The parts of a point's time, nanoseconds; they add up to the measured phase."""
    return {**{name: point["mean_ns"][name] for name, *_ in PARTS}, "outside": point["outside_ns"]}


class StudyReport:
    def __init__(self, study: Json) -> None:
        self.study = study
        self.kind: str = study["kind"]
        self.processors: int = study["processors"]
        self.series: Sequence[str] = study["series"]
        self.several = len(self.series) > 1
        self.measured = [point for point in study["points"] if "elapsed_ns" in point]
        self.family = [point for point in self.measured if point["role"] == "family"]
        self.sizes = sorted({point["node_size"] for point in self.family})
        self.metrics: Mapping[str, Json] = {each["series"]: each for each in study.get("metrics", [])}
        # Parts that matter somewhere: a thousandth of a bar cannot be seen.
        total = max((sum(parts_of(point).values()) for point in self.family), default=0.0)
        self.parts = [
            each for each in (*PARTS, OUTSIDE) if any(parts_of(point)[each[0]] > total / 1000 for point in self.family)
        ]
        # Letters under bars stand for what is compared.
        self.letters = {label: chr(ord("a") + i) if i < 26 else str(i + 1) for i, label in enumerate(self.series)}

    def at(self, label: str, node_size: int) -> Json | None:
        return next(
            (point for point in self.family if point["series"] == label and point["node_size"] == node_size), None
        )

    def html(self) -> str:
        sections = [
            Section("short", "In short", self.in_short()),
            Section("failures", "What failed", self.failures()),
            *(
                [Section("latency", "Execution time against latency", self.latency())]
                if self.kind == "latency"
                else [Section("profile", "Performance profile", self.profile())]
            ),
            *([Section("width", "Shares of time by node width", self.width())] if self.kind == "width" else []),
            Section("processors", "Processor by processor", self.by_processor()),
            Section("counters", "What happened how often", self.counters()),
            Section("method", "Method", self.method()),
        ]
        return page(
            f"{KINDS[self.kind]} {self.study['title']}", self.lead(), [each for each in sections if each.blocks]
        )

    # What it is about.

    def lead(self) -> str:
        network, here = self.study["network"], self.study["machine"]
        shown = f"<code>{text(network['given'])}</code>"
        if network["figures"] != network["given"]:
            shown += f": {text(network['figures'])}"
        if network["what"]:
            shown += f" ({text(network['what'])})"
        if self.kind == "latency":
            shown += ", with its latency varied"
        # Of the clock and the network there is a line each.
        options = [each.removeprefix("--") for each in self.study["options"]]
        options = [each for each in options if each.split()[0] not in ("clock", "net")]
        facts = [
            (
                "Program",
                "<br>".join(
                    f"<code>{text(' '.join([each['path'], *each['arguments']]))}</code>"
                    for each in self.study["programs"]
                ),
            ),
            ("Machines", f"{self.processors} processors in nodes of {', '.join(map(str, self.study['node_sizes']))}"),
            ("Network", shown),
            ("Options", ", ".join(f"<code>--{text(each)}</code>" for each in options) or "none"),
            (
                "Times",
                (
                    "of the emulated machine (virtual clock)"
                    if self.study["clock"] == "virtual"
                    else "of this machine (wall clock)"
                )
                + (
                    f", median of {self.study['repetitions']} runs"
                    if self.study["repetitions"] > 2
                    else ", the faster of 2 runs"
                    if self.study["repetitions"] == 2
                    else ", of one run"
                ),
            ),
            (
                "Measured on",
                f"{text(here['processor'])}, {here['cores']} core{'s' if here['cores'] != 1 else ''}, {text(here['kernel'])}"
                f"; {text(self.study['created'].replace('T', ' ').replace('+00:00', ' UTC'))}",
            ),
        ]
        out = '<dl class="facts">' + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts) + "</dl>"
        if self.study["clock"] == "wall" and self.processors > here["cores"]:
            out += (
                f'<p class="warn">{self.processors} processors took turns on {here["cores"]} core{"s" if here["cores"] != 1 else ""} of this '
                "machine: these times compare machines only roughly. The virtual clock does not depend on that.</p>"
            )
        return out

    def in_short(self) -> list[Block]:
        if self.kind == "latency":
            return self.latency_in_short()
        out: list[Block] = []
        rows = []
        for label in self.series:
            own = self.metrics[label]
            clustered = [
                point for point in self.family if point["series"] == label and point["node_size"] < self.processors
            ]
            best = min(clustered, key=lambda point: point["elapsed_ns"], default=None)
            alone = own["sequential_ns"]
            rows.append(
                [
                    label,
                    percent(own["breakup_penalty"]),
                    percent_range(own["breakup_penalty_range"]),
                    percent(own["multigrain_potential"]),
                    percent_range(own["multigrain_potential_range"]),
                    own["grain"] or "–",
                    f"C = {best['node_size']}: {duration(best['elapsed_ns'])}" if best else "–",
                    number(alone / best["elapsed_ns"], 3) if best and alone else "–",
                ]
            )
            if not self.several:
                out.append(self.cards(own, best, alone))
        if self.several:
            spreads = any(row[2] or row[4] for row in rows)
            columns = [
                "",
                "breakup penalty",
                "its range",
                "multigrain potential",
                "its range",
                "class",
                "fastest cluster",
                "its speedup",
            ]
            keep = [i for i in range(len(columns)) if spreads or i not in (2, 4)]
            letters = [[f"{self.letters[row[0]]}: {row[0]}", *row[1:]] for row in rows]
            out.append(
                Table(
                    [columns[i] for i in keep],
                    [[row[i] for i in keep] for row in letters],
                    right=[keep.index(i) for i in (1, 2, 3, 4, 7) if i in keep],
                    wide=[0],
                )
            )
        return out

    def cards(self, own: Json, best: Json | None, alone: float | None) -> str:
        def card(name: str, value: str, words: str) -> str:
            return f'<div class="card"><dt>{name}</dt><dd><b>{value}</b><span>{words}</span></dd></div>'

        half = self.processors // 2
        spread = {
            name: f" ({each} over the runs)" if (each := percent_range(own[f"{name}_range"])) else ""
            for name in ("breakup_penalty", "multigrain_potential")
        }
        out = [
            card(
                "Breakup penalty",
                percent(own["breakup_penalty"]),
                f"longer on two nodes of {half} than on one of {self.processors}" + spread["breakup_penalty"],
            ),
            card(
                "Multigrain potential",
                percent(own["multigrain_potential"]),
                f"faster in nodes of {half} than in nodes of one processor" + spread["multigrain_potential"],
            ),
            card(
                "Class",
                own["grain"] or "not known",
                text(own["reason"][:1].upper() + own["reason"][1:])
                + "."
                + (f" {GRAIN_TEXT[own['grain']]}" if own["grain"] in GRAIN_TEXT else ""),
            ),
        ]
        if best:
            out.append(
                card(
                    "Fastest cluster",
                    f"C = {best['node_size']}",
                    duration(best["elapsed_ns"])
                    + (f", {number(alone / best['elapsed_ns'], 3)} times as fast as one processor" if alone else ""),
                )
            )
        return '<dl class="cards">' + "".join(out) + "</dl>"

    def failures(self) -> list[Block]:
        out: list[Block] = []
        for point in self.study["points"]:
            for failure in point["failures"]:
                where = "one processor" if point["role"] == "sequential" else f"C = {point['node_size']}"
                if point["latency_ns"] is not None:
                    where += f", latency {latency_text(point['latency_ns'])}"
                if self.several:
                    where = f"{point['series']}: {where}"
                out.append(
                    f'<p class="warn"><b>{text(where)}:</b> {text(failure["problem"])}</p><code class="code">{text(failure["command"])}\n\n'
                    f"{text(failure['output'].strip())}</code>"
                )
        if out:
            out.insert(
                0, "<p>These machines have no result, or fewer runs than were asked for. The others are shown.</p>"
            )
        return out

    # Figures 6 to 17.

    def profile(self) -> list[Block]:
        if not self.family:
            return []
        columns = [
            "C",
            "nodes",
            *(["what"] if self.several else []),
            "time",
            "spread",
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
            rows.append(
                [
                    "one processor" if point["role"] == "sequential" else str(point["node_size"]),
                    str(point["nodes"]),
                    *([point["series"]] if self.several else []),
                    duration(point["elapsed_ns"]),
                    percent((point["high_ns"] - point["low_ns"]) / point["elapsed_ns"], 2) if repeated else "–",
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
                "title": {"text": "C, processors a node", "standoff": 16},
                "tickmode": "array",
                "tickvals": list(places.values()),
                "ticktext": [f"<br>{each}" if self.several else str(each) for each in places],
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
                f"breakup penalty<br><b>{percent(own['breakup_penalty'])}</b>",
                "right",
            )
        if own["multigrain_potential"] is not None and single and half and self.processors > 2:
            level(single, places[1], places[1] + 0.6)
            level(half, places[1] + 0.4, places[self.processors // 2])
            between(
                places[1] + 0.5,
                half["elapsed_ns"] / factor,
                single["elapsed_ns"] / factor,
                f"multigrain potential<br><b>{percent(own['multigrain_potential'])}</b>",
                "left",
            )

    # Figures 18 to 20.

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

    # GeNIMA's tables V to VII.

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

    # One processor's bar each.

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

    def method(self) -> list[Block]:
        half = self.processors // 2
        page_size = next(
            (
                size(int(option.split()[-1]))
                for option in self.study["options"]
                if "page-size" in option and option.split()[-1].isdigit()
            ),
            None,
        )
        out: list[Block] = []
        if self.kind != "latency":
            out.append(
                f"<p>The <b>breakup penalty</b> is the increase of execution time from C = {self.processors} to C = {half}, as a part of the former. The "
                f"<b>multigrain potential</b> is the difference between C = 1 and C = {half}, as a part of the latter (MGS paper, section 2.3). A program is "
                "coarse-grain if both are below 50 %, fine-grain if the breakup penalty is not and no cluster is twice as fast as one processor, and otherwise "
                "medium-grain (after section 5.3, which gives no bounds).</p>"
            )
        network = self.study["network"]
        if network["source"]:
            out.append(f"<p>Source of the network's figures: {text(network['source'])}.</p>")
        if page_size:
            out.append(f"<p>Pages of {page_size}.</p>")
        out.append(
            f'<p>The command to repeat this (results that are kept are not measured again; --fresh does):</p><code class="code">{text(self.study["command"])}</code>'
        )
        rows = [
            ["one processor" if point["role"] == "sequential" else f"C = {point['node_size']}", point["command"]]
            for point in self.study["points"]
        ]
        out.append(
            "<details><summary>The runs</summary>"
            + Table(
                ["machine", "command"],
                [[name, f"<code>{text(command)}</code>"] for name, command in rows],
                html_columns=[1],
                wide=[1],
            ).html()
            + "</details>"
        )
        programs = "; ".join(
            f"{text(each['path'])} (SHA-256 {each['sha256'][:16]}…)" for each in self.study["programs"]
        )
        out.append(f'<p class="fine">{programs}</p>')
        return out
