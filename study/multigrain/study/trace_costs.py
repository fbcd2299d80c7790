"""The sections of the report on a trace that are about the cost of placements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log10
from typing import Any

from multigrain.study.page import GREY, INK, Block, Chart, Figure, Table, chart, number, pattern_of, size, style, text
from multigrain.study.trace_view import (
    AREAS,
    MOST_BARS,
    PARAMETERS,
    UNIT,
    Json,
    TraceView,
    arms_on_log_axis,
    beside,
    cost_axis,
    known_to,
    largest,
    percentage,
    site_html,
    site_text,
    size_axis,
    spread_of,
    spread_text,
)

MOST_GROUPS = 10  # rows of a table of allocations


class CostSections(TraceView):
    def policies(self) -> list[Block]:
        policies = ["optimal", *self.policy_names]
        machine_results = [{result["policy"]: result for result in machine["results"]} for machine in self.machines]
        many = len(self.machines) > 7  # then names are as narrow as can be
        two_lines = [
            text(label.replace("-", "-\n") if many else label).replace(", ", "<br>").replace("\n", "<br>")
            for label in self.labels
        ]

        def bars(horizontal: bool) -> Chart:
            import plotly.graph_objects as graph

            traces = []
            for i, policy in enumerate(policies):
                at = [index for index, results in enumerate(machine_results) if policy in results]
                results = [machine_results[index][policy] for index in at]
                values = [result["mcpr"] for result in results]
                names = [two_lines[index] for index in at]
                look = style(i - 1)
                optimal = policy == "optimal"
                shown = [
                    f"<b>{text(self.labels[index])}, {text(policy)}</b><br>MCPR {number(result['mcpr'], 5)}"
                    + (f" {spread_text(result['spread'])}" if result["spread"] else "")
                    + ("" if optimal else f"<br>{result['over_optimal']:.3f} times optimal")
                    for index, result in zip(at, results)
                ]
                traces.append(
                    graph.Bar(
                        x=values if horizontal else names,
                        y=names if horizontal else values,
                        orientation="h" if horizontal else "v",
                        name=policy,
                        hovertext=shown,
                        hoverinfo="text",
                        marker={
                            "color": INK if optimal else look["color"],
                            "line": {"width": 0},
                            "pattern": pattern_of(
                                "" if optimal else look["pattern"], INK if optimal else look["color"]
                            ),
                        },
                        **{
                            "error_x" if horizontal else "error_y": {
                                "type": "data",
                                "array": [spread_of(result) for result in results],
                                "visible": self.perturbed,
                                "thickness": 1,
                                "width": 2,
                                "color": GREY,
                            }
                        },
                    )
                )
            # The line of the optimum through each machine's bars.
            marks = [
                {
                    "type": "line",
                    ("y0" if horizontal else "x0"): i - 0.46,
                    ("y1" if horizontal else "x1"): i + 0.46,
                    ("x0" if horizontal else "y0"): results["optimal"]["mcpr"],
                    ("x1" if horizontal else "y1"): results["optimal"]["mcpr"],
                    "line": {"color": INK, "width": 1.2, "dash": "dot"},
                    "layer": "above",
                }
                for i, results in enumerate(machine_results)
            ]
            highest = max(result["mcpr"] for results in machine_results for result in results.values())
            costs = cost_axis(f"MCPR ({UNIT})", [1, highest]) | {"range": [0, log10(highest * 1.15)]}
            order = {
                "categoryorder": "array",
                "categoryarray": two_lines,
                "tickangle": 0,
                "tickfont": {"size": 11 if many else 13},
            }
            if horizontal:
                height = 90 + 11 * (len(policies) + 1) * len(self.machines)
                return chart(
                    traces,
                    barmode="group",
                    bargap=0.15,
                    height=height,
                    shapes=marks,
                    xaxis=costs,
                    yaxis={**order, "autorange": "reversed"},
                    margin={"l": 70, "r": 10},
                )
            return chart(traces, barmode="group", bargap=0.15, height=440, shapes=marks, yaxis=costs, xaxis=order)

        columns = ["machine", "policy", "MCPR", "over optimal", *(name for _, name, _, _ in AREAS)]
        contention = self.machines[0]["results"][0].get("contended_mcpr") is not None
        if contention:
            columns.append("MCPR with contention")
        rows = []
        for i, machine in enumerate(self.machines):
            for result in machine["results"]:
                rows.append(
                    [self.labels[i], result["policy"], number(result["mcpr"], 5)]
                    + ([spread_text(result["spread"])] if self.perturbed else [])
                    + [f"{result['over_optimal']:.3f}" if "over_optimal" in result else ""]
                    + [number(result["areas"][key]) for key, *_ in AREAS]
                    + ([number(result["contended_mcpr"], 5)] if contention else [])
                )
        if self.perturbed:
            columns.insert(3, "spread: local / gap")
        table = Table(columns, rows, right=range(2, len(columns)))
        caption = (
            "Each machine at its own block size. The dotted line is the optimum. The axis is logarithmic and begins at 1, "
            "where every reference is local. Policies that need what a machine lacks are not shown for it."
        )
        if self.perturbed:
            caption += " Whiskers: the larger spread by perturbation."
        return [Figure("mcpr", "MCPR by machine and policy", caption, {(): bars(False)}, (), {(): bars(True)}, table)]

    def variable_blocks(self) -> list[Block]:
        out: list[Block] = []
        for of in self.study.get("variable_blocks") or []:
            separate = min(range(len(of["block_sizes"])), key=lambda i: of["block_sizes"][i]["separate_mcpr"])
            one = min(of["block_sizes"], key=lambda entry: entry["mcpr"])
            rows = [
                [
                    group["name"] or (site_text(group["site"]) if group["site"] else "(no allocation)"),
                    site_html(group["site"]),
                    number(group["references"]),
                    size(group["block_size"]),
                    number(group["excess"]),
                    number(group["excesses"][separate]),
                ]
                for group in of["groups"][:MOST_GROUPS]
            ]
            common = of["block_sizes"][separate]
            out += [
                f"<p><b>{text(of['machine'])}</b>: MCPR {number(of['mcpr'])} with the best size for each allocation; "
                f"{number(common['separate_mcpr'])} with {size(common['block_size'])} for all, allocations in blocks of their own; "
                f"{number(one['mcpr'])} with {size(one['block_size'])} for all.</p>",
                Table(
                    ["allocation", "at", "references", "best size", "excess cost", "at the one size"],
                    rows,
                    right=range(2, 6),
                    html_columns=(1,),
                ),
            ]
        return out

    def block_sizes(self) -> list[Block]:
        if not self.by_size:
            return []
        import plotly.graph_objects as graph

        sizes = [entry["block_size"] for entry in self.by_size[0]]
        quantities: list[tuple[str, str, Callable[[Json], float], str, Callable[[Json], float]]] = [
            ("MCPR of optimal placement", f"MCPR ({UNIT})", lambda entry: entry["mcpr"], "spread", spread_of),
            ("cost above local references", f"MCPR − 1 ({UNIT})", lambda entry: entry["mcpr"] - 1, "spread", spread_of),
            (
                "moves per block",
                "moves a touched block",
                lambda entry: entry["moves_per_block"],
                "moves_spread",
                lambda entry: largest(entry["moves_spread"]) * entry["moves_per_block"] / 100,
            ),
        ]
        views: dict[tuple[str, ...], Chart] = {}
        for label, title, value, spread_key, length in quantities:
            traces = []
            for i, entries in enumerate(self.by_size):
                look = style(i)
                values = [value(entry) for entry in entries]
                traces.append(
                    graph.Scatter(
                        x=sizes,
                        y=[each if each > 0 else None for each in values],  # there is no zero on a log axis
                        name=self.names[i],
                        mode="lines+markers",
                        line={"color": look["color"], "dash": look["dash"], "width": 2},
                        marker={"symbol": look["symbol"], "size": 7, "color": look["color"]},
                        error_y=arms_on_log_axis(values, [length(entry) for entry in entries])
                        | {
                            "visible": self.perturbed,
                            "thickness": 1,
                            "width": 3,
                        },
                        hovertext=[
                            f"<b>{text(self.names[i])}, {size(entry['block_size'])}</b><br>{text(title)}: "
                            f"{number(each, 5)} {spread_text(entry[spread_key])}"
                            for entry, each in zip(entries, values)
                        ],
                        hoverinfo="text",
                    )
                )
            views[(label,)] = chart(
                traces,
                height=460,
                xaxis=size_axis(sizes),
                yaxis=cost_axis(title, [value(entry) for entries in self.by_size for entry in entries]),
            )
        rows = [
            [self.names[i]]
            + [
                number(entry["mcpr"]) + (f" ±{percentage(largest(entry['spread']), 1)}" if self.perturbed else "")
                for entry in entries
            ]
            for i, entries in enumerate(self.by_size)
        ]
        table = Table(["machine", *(size(each, short=True) for each in sizes)], rows, right=range(1, len(sizes) + 1))
        return [
            Figure(
                "block-size",
                "The optimum against block size",
                "Optimal placement on every machine with blocks of other sizes; both axes are logarithmic. R and G grow with "
                "the block by equation 7.1; r and g stay. What is zero is not drawn.",
                views,
                [("Show", [label for label, *_ in quantities])],
                table=table,
            )
        ]

    def area_chart(self, entries: Sequence[tuple[float, Json]], parameter: str, own: float | None) -> Chart:
        import plotly.graph_objects as graph

        entries = sorted(entries, key=lambda entry: entry[0])
        x = [value for value, _ in entries]
        traces: list[Any] = []
        for key, name, color, pattern in AREAS:
            values = [entry["areas"][key] for _, entry in entries]
            if not any(values):
                continue
            traces.append(
                graph.Scatter(
                    x=x,
                    y=values,
                    name=name,
                    mode="lines" if len(x) > 1 else "markers",
                    stackgroup="cost",
                    line={"width": 0.7, "color": INK},
                    fillcolor=color,
                    hovertemplate="%{y:.4g}",
                    **known_to(graph.Scatter, fillpattern=pattern_of(pattern, color)),
                )
            )
        traces.append(
            graph.Scatter(
                x=x,
                y=[entry["mcpr"] for _, entry in entries],
                name="optimal MCPR",
                mode="lines+markers",
                line={"color": INK, "width": 2},
                marker={"size": 5, "color": INK, "symbol": "circle"},
                error_y={
                    "type": "data",
                    "array": [spread_of(entry) for _, entry in entries],
                    "visible": self.perturbed,
                    "thickness": 1,
                    "width": 3,
                },
                customdata=[spread_text(entry["spread"]) for _, entry in entries],
                hovertemplate="%{y:.4g} %{customdata}",
            )
        )
        for i, policy in enumerate(self.policy_names):
            if not any(policy in entry.get("policies", {}) for _, entry in entries):
                continue
            look = style(i)
            traces.append(
                graph.Scatter(
                    x=x,
                    y=[entry.get("policies", {}).get(policy) for _, entry in entries],
                    name=policy,
                    visible="legendonly",
                    mode="lines+markers",
                    line={"color": look["color"], "dash": look["dash"], "width": 2},
                    marker={"symbol": look["symbol"], "size": 7, "color": look["color"]},
                    hovertemplate="%{y:.4g}",
                )
            )
        if parameter == "block size":
            axis = size_axis([int(value) for value in x])
        else:
            axis = {
                "type": "log",
                "title": {"text": f"{PARAMETERS[parameter]} ({UNIT})"},
                "tickvals": x,
                "ticktext": [number(float(f"{value:.3g}"), 3) for value in x],
                "tickangle": 0,
                "tickfont": {"size": 11},
            }
        marks: list[dict[str, Any]] = []
        if own is not None:
            marks = [
                {
                    "type": "line",
                    "x0": own,
                    "x1": own,
                    "yref": "paper",
                    "y0": 0,
                    "y1": 1,
                    "line": {"color": INK, "width": 1, "dash": "dot"},
                }
            ]
        return chart(
            traces,
            height=430,
            hovermode="x unified",
            shapes=marks,
            xaxis=axis,
            yaxis={"title": {"text": f"MCPR ({UNIT})"}, "rangemode": "tozero"},
        )

    def components(self) -> list[Block]:
        views: dict[tuple[str, ...], Chart] = {}
        rows = []
        own_values = {
            "R": lambda machine: machine["R"],
            "r": lambda machine: machine["machine"].get("r"),
            "G": lambda machine: machine["G"],
            "g": lambda machine: machine["machine"].get("g"),
        }
        for i, machine in enumerate(self.machines):
            of_machine: dict[str, list[tuple[float, Json]]] = {}
            if self.by_size:
                of_machine["block size"] = [(entry["block_size"], entry) for entry in self.by_size[i]]
            for entry in self.study["parameters"]:
                same = entry["machine"] == machine["machine"]["name"]
                if same and (entry["parameter"] == "o_s" or entry["block_size"] == machine["machine"]["block_size"]):
                    of_machine.setdefault(entry["parameter"], []).append((entry["value"], entry))
            for parameter, entries in of_machine.items():
                own = machine["machine"]["block_size"] if parameter == "block size" else None
                if parameter in own_values:
                    own = own_values[parameter](machine)
                views[(self.names[i], PARAMETERS[parameter])] = self.area_chart(entries, parameter, own)
                rows += [
                    [self.names[i], parameter, number(value), number(entry["mcpr"])]
                    + [number(entry["areas"][key]) for key, *_ in AREAS]
                    + [number(entry["moves_per_block"])]
                    for value, entry in sorted(entries, key=lambda entry: entry[0])
                ]
        if not views:
            return []
        varied = [label for label in PARAMETERS.values() if any(key[1] == label for key in views)]
        first = PARAMETERS["R"]
        varied.sort(key=lambda label: label != first)
        columns = ["machine", "varied", "value", "MCPR", *(name for _, name, _, _ in AREAS), "moves per block"]
        return [
            Figure(
                "components-areas",
                "Components of the optimal cost as one parameter varies",
                "After Figure 5.7 of the thesis: what optimal placement pays for, stacked up to the MCPR; the placement is "
                "optimal for each value. The dotted line is the machine itself. Policies can be added from the legend: their "
                "lines are the cost of the placement that they chose on the machine itself. The horizontal axis is logarithmic; "
                "o_s varies at blocks of 512 bytes (section 6.2.4).",
                views,
                [("Machine", self.names), ("Varied", varied)],
                table=Table(columns, rows, right=range(2, len(columns))),
            )
        ]

    def hot_blocks(self) -> list[Block]:
        import plotly.graph_objects as graph

        views: dict[tuple[str, ...], Chart] = {}
        rows = []
        shown = []
        for i, machine in enumerate(self.machines):
            blocks = [block for block in machine["hot_blocks"] if block["cost"] > block["references"]]
            if not blocks:
                continue
            shown.append(self.labels[i])
            labels, values, hovers = [], [], []
            for rank, block in enumerate(blocks, 1):
                owners = [
                    owner["name"] or (site_text(owner["site"]) if owner["site"] else "no allocation")
                    for owner in block["owners"]
                ]
                excess = block["cost"] - block["references"]
                sites = [site_text(each["site"]) for each in block["sites"][:5]]
                owner_text = ", ".join(owners[:3]) + (", …" if len(owners) > 3 else "")
                if rank <= MOST_BARS:
                    shortened = owner_text if len(owner_text) <= 22 else owner_text[:21] + "…"
                    labels.append(f"{rank}. {text(shortened or '?')}")
                    values.append(excess)
                    hovers.append(
                        f"<b>{block['address']:#x}</b>, {text(owner_text or '?')}<br>"
                        f"excess cost {beside(block, 'excess', excess)}; {number(block['references'])} references, "
                        f"{beside(block, 'moves', block['moves'])} moves"
                        f"<br>read by {block['readers']}, written by {block['writers']} processors<br>"
                        + "<br>".join(text(each) for each in sites)
                    )
                rows.append(
                    [
                        self.labels[i],
                        str(rank),
                        f"{block['address']:#x}",
                        text(owner_text or "?"),
                        beside(block, "excess", excess),
                        number(block["references"]),
                        beside(block, "moves", block["moves"]),
                        str(block["readers"]),
                        str(block["writers"]),
                        "<br>".join(
                            f"{site_html(each['site'])} <span class=note>{number(each['references'])}</span>"
                            for each in block["sites"][:5]
                        ),
                    ]
                )
            views[(self.labels[i],)] = chart(
                [
                    graph.Bar(
                        x=values,
                        y=labels,
                        orientation="h",
                        hovertext=hovers,
                        hoverinfo="text",
                        name="excess cost",
                        marker={"color": "#0072B2"},
                    )
                ],
                height=90 + 26 * len(labels),
                bargap=0.3,
                xaxis={
                    "title": {"text": f"cost above that of local references ({UNIT})"},
                    "rangemode": "tozero",
                    "nticks": 6,
                    "tickformat": "~s",
                },
                yaxis={"autorange": "reversed", "ticks": ""},
                margin={"l": 20},
            )
        if not views:
            return []
        columns = [
            "machine",
            "rank",
            "address",
            "allocations in it",
            "excess cost",
            "references",
            "moves",
            "readers",
            "writers",
            "referring source lines, references",
        ]
        return [
            Figure(
                "hot",
                "The blocks that cost most under optimal placement",
                "No placement policy can make these cheap: only another layout or another algorithm can. Labels are the "
                "allocations that live in the block.",
                views,
                [("Machine", shown)],
                table=Table(columns, rows, right=(1, 4, 5, 6, 7, 8), html_columns=(3, 9), wide=(9,)),
            )
        ]
