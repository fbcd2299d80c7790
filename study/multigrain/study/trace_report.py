"""The report of `mgtrace report`: the figures of Bolosky's thesis ("Software Coherence in Multiprocessor Memory Systems")
for one trace, out of the JSON that src/trace/analysis/study.h documents."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log10
from pathlib import PurePath
from typing import Any

from multigrain.study.files import write_whole
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

Json = Mapping[str, Any]

# Parts of the cost, from the ground up (Figure 5.7), each with its color and pattern.
AREAS = (
    ("local", "local references", "#B8B8B8", ""),
    ("global", "global references", "#009E73", "/"),
    ("remote", "remote references", "#E69F00", "\\"),
    ("overhead", "moves: overhead", "#0072B2", "x"),
    ("data_transfer", "moves: data transfer", "#56B4E9", "."),
)
PARAMETERS = {
    "R": "R, cost of moving a block",
    "r": "r, cost of a remote reference",
    "G": "G, cost of moving a block to or from global memory",
    "g": "g, cost of a global reference",
    "o_s": "o_s, software overhead of a move",
    "block size": "block size (bytes)",
}
UNIT = "local references"
MOST_BARS = 12
MOST_ROWS = 15


# What JSON says, for people.


def site_text(site: Json | None) -> str:
    if site is None:
        return "?"
    if not site["file"]:
        return site["function"] or "?"
    name = PurePath(site["file"]).name
    return f"{name}:{site['line']}" if site["line"] else name  # compilers leave some lines out


def site_html(site: Json | None) -> str:
    if site is None:
        return "?"
    where = f' title="{text(site["file"])}"' if site["file"] else ""
    function = f' <span class="note">{text(site["function"])}</span>' if site["file"] and site["function"] else ""
    return f"<span{where}>{text(site_text(site))}</span>{function}"


def percentage(value: float, digits: int) -> str:
    """With so many digits that matter, never as a power of ten."""
    return f"{value:.0f}%" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}%"


def spread_text(spread: Json | None) -> str:
    def percent(value: float | None) -> str:
        return "from 0" if value is None else f"±{percentage(value, 2)}"

    return "" if spread is None else f"{percent(spread['local'])} / {percent(spread['gap'])}"


def beside(entry: Json, key: str, value: float | int) -> str:
    """A figure with the larger of its two spreads, if the study has them."""
    if not entry.get("spreads"):
        return number(value)
    spread = entry["spreads"][key].values()
    return number(value) + (" from 0" if None in spread else f" ±{percentage(max(spread), 1)}")


def whisker(entry: Json, key: str, value: float) -> float:
    """The larger spread of a figure, in its unit."""
    return abs(value) * largest(entry["spreads"][key]) / 100 if entry.get("spreads") else 0.0


def arms_on_log_axis(values: list[float], lengths: list[float]) -> dict[str, Any]:
    """Error bars whose lower arm is as long on a logarithmic axis as the upper: a spread of 100 % and more would reach zero,
    which is infinitely far down."""
    return {
        "type": "data",
        "symmetric": False,
        "array": lengths,
        "arrayminus": [
            value * length / (value + length) if value > 0 else 0.0 for value, length in zip(values, lengths)
        ],
    }


def largest(spread: Json | None) -> float:
    """The larger of two spreads, in per cent."""
    return float(max([0.0, *(each for each in (spread or {}).values() if each is not None)]))


def spread_of(result: Json) -> float:
    """The larger of the two spreads, as a part of the MCPR."""
    return float(result["mcpr"]) * largest(result["spread"]) / 100


def machine_label(machine: Json) -> str:
    return f"{machine['name']}, {size(machine['block_size'])}"


def unique(labels: Sequence[str]) -> list[str]:
    """Two machines may have one name."""
    seen: dict[str, int] = {}
    out = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        out.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return out


def chunks(items: Sequence[Json], count: int) -> list[Sequence[Json]]:
    """The study's lists go by machine."""
    each = len(items) // count if count else 0
    return [items[i * each : (i + 1) * each] for i in range(count)] if each else []


def size_axis(sizes: Sequence[int]) -> dict[str, Any]:
    return {
        "type": "log",
        "title": {"text": "block size (bytes)"},
        "tickvals": list(sizes),
        "ticktext": [size(each, short=True) for each in sizes],
        "tickangle": 0,
        "tickfont": {"size": 11},
    }


class TraceReport:
    def __init__(self, study: Json) -> None:
        self.study = study
        self.machines: Sequence[Json] = study["machines"]
        self.labels = unique([machine_label(each["machine"]) for each in self.machines])
        self.names = unique([each["machine"]["name"] for each in self.machines])
        self.by_size = chunks(study["block_sizes"], len(self.machines))
        self.perturbed = study["perturbation"] is not None
        self.policy_names: list[str] = []  # in the order of their colors
        for machine in self.machines:
            self.policy_names += [
                each["policy"] for each in machine["results"][1:] if each["policy"] not in self.policy_names
            ]

    # Sections.

    def html(self) -> str:
        trace = self.study["trace"]
        program = trace["program"] or trace.get("file") or "a trace"
        sections = [
            Section("short", "In short", self.in_short()),
            Section("policies", "Policies against optimal placement", self.policies()),
            Section("block-sizes", "Block size", self.block_sizes()),
            Section("components", "What the cost is made of", self.components()),
            Section("hot-blocks", "Hot blocks", self.hot_blocks()),
            Section("false-sharing", "False sharing", self.false_sharing()),
            Section("tlb", "TLBs", self.tlbs()),
            Section("machines", "Machines", self.machine_table()),
            Section("method", "Method", self.method()),
        ]
        return page(
            f"How good could it be? {PurePath(program.split()[0]).name}",
            self.lead(),
            [section for section in sections if section.blocks],
        )

    def lead(self) -> str:
        trace = self.study["trace"]
        facts = [
            ("Program", f"<code>{text(trace['program'] or 'not known')}</code>"),
            ("Recorded by", text(trace["recorder"] or "not known")),
            ("Dilation", f"{trace['dilation']:.2g} times the untraced run" if trace["dilation"] else "not known"),
            (
                "Trace",
                f"{number(trace['references'])} references by {trace['processors']} processors, and "
                f"{number(trace['private_references'])} private ones"
                + (f" (<code>{text(trace['file'])}</code>)" if trace.get("file") else ""),
            ),
        ]
        out = (
            '<dl class="facts">' + "".join(f"<dt>{text(name)}</dt><dd>{value}</dd>" for name, value in facts) + "</dl>"
        )
        if trace.get("damage"):
            out += (
                f'<p class="warn">The trace is damaged: {text(trace["damage"])}. What precedes that is shown here.</p>'
            )
        return out

    def best_policy(self, machine: Json) -> Json | None:
        return min(machine["results"][1:], key=lambda result: result["mcpr"], default=None)

    def in_short(self) -> list[Block]:
        rows = []
        sharing = self.study["false_sharing"]
        for i, machine in enumerate(self.machines):
            optimal = machine["results"][0]
            best = self.best_policy(machine)
            row = [self.labels[i], number(optimal["mcpr"])]
            if self.perturbed:
                row.append(spread_text(optimal["spread"]))
            if any(len(each["results"]) > 1 for each in self.machines):
                row += [best["policy"], number(best["mcpr"]), f"{best['over_optimal']:.3f}"] if best else ["–"] * 3
            if self.by_size:
                sizes = min(self.by_size[i], key=lambda entry: entry["mcpr"])
                row += [size(sizes["block_size"]), number(sizes["mcpr"])]
            if sharing:
                own = [
                    each for each in sharing["block_sizes"] if each["block_size"] == machine["machine"]["block_size"]
                ]
                # The analysis is of machines whose every remote reference moves the block: of others' cost it is no part.
                moves_all = machine["machine"].get("r") is None and machine["machine"].get("g") is None
                if own and moves_all:
                    of = own[0]["machines"][i]
                    lower = max(of["lower"], of["interval_lower"], 0.0)
                    row.append(f"{number(lower, 3)} – {number(max(of['upper'], lower), 3)}")
                else:
                    row.append("–")
            rows.append(row)
        columns = ["machine", "optimal MCPR"]
        right = [1]
        if self.perturbed:
            columns.append("spread: local / gap")
            right.append(2)
        if any(len(each["results"]) > 1 for each in self.machines):
            right += [len(columns) + 1, len(columns) + 2]
            columns += ["best policy", "its MCPR", "over optimal"]
        if self.by_size:
            right += [len(columns), len(columns) + 1]
            columns += ["best block size", "optimal MCPR there"]
        if sharing:
            right.append(len(columns))
            columns.append("false sharing in that")
        return [
            "<p>MCPR is the mean cost per reference, in units of one local reference: 1 means that every reference was "
            "local and no block ever moved. <b>Optimal</b> is the cost of the best placement that could have been chosen "
            "with the future known: no policy on that machine can be below it.</p>",
            Table(columns, rows, right=right),
        ]

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
        rows = []
        for i, machine in enumerate(self.machines):
            for result in machine["results"]:
                rows.append(
                    [self.labels[i], result["policy"], number(result["mcpr"], 5)]
                    + ([spread_text(result["spread"])] if self.perturbed else [])
                    + [f"{result['over_optimal']:.3f}" if "over_optimal" in result else ""]
                    + [number(result["areas"][key]) for key, *_ in AREAS]
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
                    fillpattern=pattern_of(pattern, color),
                    hovertemplate="%{y:.4g}",
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

    # False sharing.

    def group_name(self, numeral: int | None) -> str:
        if numeral is None:
            return "everything"
        for group in self.study["false_sharing"]["attribution"]["groups"]:
            if group["group"] == numeral:
                if group["name"]:
                    return str(group["name"])
                if group["site"]:
                    return site_text(group["site"])
        return "(no allocation)" if numeral == 0 else f"allocation {numeral}"

    def sharing_bounds(self, sharing: Json) -> Figure:
        import plotly.graph_objects as graph

        sizes = [entry["block_size"] for entry in sharing["block_sizes"]]
        views: dict[tuple[str, ...], Chart] = {}
        rows = []
        quantities = ("share of the cost of block moves", "MCPR")
        for i, name in enumerate(self.names):
            of_machine = [entry["machines"][i] for entry in sharing["block_sizes"]]
            for of, entry in zip(of_machine, sharing["block_sizes"]):
                rows.append(
                    [name, size(entry["block_size"]), beside(entry, "moves", entry["moves"])]
                    + [
                        beside(of, key, of[key])
                        for key in ("overhead", "data_transfer", "lower", "upper", "interval_lower", "full_duration")
                    ]
                )
            for quantity in quantities:
                share = quantity != "MCPR"

                def scaled(key: str) -> list[float | None]:
                    out: list[float | None] = []
                    for of in of_machine:
                        total = of["overhead"] + of["data_transfer"]
                        out.append(of[key] if not share else 100 * of[key] / total if total else None)
                    return out

                traces = []
                for key, label, _, _ in AREAS[3:]:
                    traces.append(
                        graph.Scatter(
                            x=sizes,
                            y=scaled(key),
                            name=label,
                            mode="lines",
                            stackgroup="cost",
                            line={"width": 0.7, "color": INK},
                            fillcolor="#CFE3F1" if key == "overhead" else "#EEF5FA",
                            hovertemplate="%{y:.4g}",
                        )
                    )
                for number_of, (key, label) in enumerate(
                    (
                        ("upper", "false sharing, upper bound"),
                        ("lower", "false sharing, lower bound"),
                        ("interval_lower", "saved by merging in intervals"),
                        ("full_duration", "saved by full-duration exemption"),
                    )
                ):
                    look = style((1, 2, 3, 6)[number_of])
                    values = scaled(key)
                    traces.append(
                        graph.Scatter(
                            x=sizes,
                            y=values,
                            name=label,
                            mode="lines+markers",
                            error_y={
                                "type": "data",
                                "visible": self.perturbed,
                                "thickness": 1,
                                "width": 3,
                                "array": [whisker(of, key, value or 0) for of, value in zip(of_machine, values)],
                            },
                            line={"color": look["color"], "dash": look["dash"], "width": 2},
                            marker={"symbol": look["symbol"], "size": 7, "color": look["color"]},
                            hovertemplate="%{y:.4g}",
                        )
                    )
                title = "% of the cost of block moves" if share else f"MCPR ({UNIT})"
                views[(name, quantity)] = chart(
                    traces,
                    height=430,
                    hovermode="x unified",
                    xaxis=size_axis(sizes),
                    yaxis={"title": {"text": title}, "rangemode": "tozero"},
                )
        columns = [
            "machine",
            "block size",
            "moves",
            "overhead",
            "data transfer",
            "lower bound",
            "upper bound",
            "intervals",
            "full duration",
        ]
        return Figure(
            "sharing",
            "How much of the cost of block moves is false sharing",
            f"On machines whose every remote reference moves the block, with words of {sharing['word_size']} bytes: the cost "
            "component bounds of section 7.1, and what merging copies in false-sharing intervals "
            f"(a merge costs {number(sharing['merge_ratio'])} moves) or no coherence for blocks that are falsely shared throughout would "
            "save at least. A lower bound that is not positive says nothing."
            + (" Whiskers and ±: the larger spread by perturbation." if self.perturbed else ""),
            views,
            [("Machine", self.names), ("Show", quantities)],
            table=Table(columns, rows, right=range(1, len(columns))),
        )

    def sharing_groups(self, attribution: Json) -> Figure | None:
        import plotly.graph_objects as graph

        groups = [group for group in attribution["groups"] if sum(group["moves"].values()) + group["culprit"]][
            :MOST_BARS
        ]
        if not groups:
            return None
        names = unique([text(shorten(self.group_name(group["group"]))) for group in groups])
        traces = []
        for key, label, color, pattern in (
            ("false", "false sharing", "#D55E00", "/"),
            ("useful", "useful", "#0072B2", ""),
            ("cold", "first copies", "#B8B8B8", "."),
        ):
            traces.append(
                graph.Bar(
                    x=[group["moves"][key] for group in groups],
                    y=names,
                    orientation="h",
                    name=label,
                    marker={"color": color, "pattern": pattern_of(pattern, color)},
                    hovertext=[
                        f"<b>{text(self.group_name(group['group']))}</b> ({text(site_text(group['site']))})<br>{label}: "
                        f"{beside(group, key, group['moves'][key])} moves<br>its writes caused {beside(group, 'culprit', group['culprit'])} false moves"
                        for group in groups
                    ],
                    hoverinfo="text",
                )
            )
        columns = [
            "allocation",
            "allocated at",
            "instances",
            "bytes",
            "false moves",
            "caused",
            "useful",
            "first copies",
        ]
        rows = [
            [
                text(self.group_name(group["group"])),
                site_html(group["site"]),
                number(group["instances"]),
                number(group["bytes"]),
                beside(group, "false", group["moves"]["false"]),
                beside(group, "culprit", group["culprit"]),
                beside(group, "useful", group["moves"]["useful"]),
                beside(group, "cold", group["moves"]["cold"]),
            ]
            for group in attribution["groups"][:MOST_ROWS]
        ]
        return Figure(
            "owners",
            f"Block moves by allocation, at blocks of {size(attribution['block_size'])}",
            "A move is false sharing if the processor that fetched the block never used a word that another had written "
            "since it last had it. Hover for how many false moves the allocation's writes caused.",
            {
                (): chart(
                    traces,
                    barmode="stack",
                    height=100 + 26 * len(names),
                    bargap=0.3,
                    margin={"l": 20},
                    xaxis={"title": {"text": "block moves"}, "nticks": 6, "tickformat": "~s"},
                    yaxis={"autorange": "reversed", "ticks": ""},
                )
            },
            table=Table(columns, rows, right=range(2, 8), html_columns=(0, 1)),
        )

    def sharing_plans(self, sharing: Json) -> list[Block]:
        import plotly.graph_objects as graph

        plans = [plan for plan in sharing["plans"] if plan["moves_before"]]
        if not plans:
            return []
        what = {"separate": "separate allocations", "pad fields": "pad fields", "regroup": "regroup by processor"}
        order = [
            group
            for i, group in enumerate(plan["group"] for plan in plans)
            if group not in [p["group"] for p in plans[:i]]
        ]
        names = dict(zip(order, unique([text(shorten(self.group_name(group))) for group in order])))
        traces = []
        for i, change in enumerate(what):
            of = [plan for plan in plans if plan["change"] == change]
            look = style((0, 4, 2)[i])
            traces.append(
                graph.Bar(
                    x=[100 * (plan["moves_before"] - plan["moves_after"]) / plan["moves_before"] for plan in of],
                    y=[names[plan["group"]] for plan in of],
                    orientation="h",
                    name=what[change],
                    marker={"color": look["color"], "pattern": pattern_of(("", "/", "x")[i], look["color"])},
                    hovertext=[
                        f"<b>{text(self.group_name(plan['group']))}: {what[change]}</b><br>{beside(plan, 'moves_before', plan['moves_before'])} moves become "
                        f"{beside(plan, 'moves_after', plan['moves_after'])}<br>MCPR saved {beside(plan, 'saved_mcpr', plan['saved_mcpr'])}, for {number(plan['extra_bytes'])} more bytes"
                        for plan in of
                    ],
                    hoverinfo="text",
                )
            )
        machine = sharing["attribution"].get("machine")
        columns = ["layout of", "change", "moves before", "moves after", "saved", "MCPR saved", "extra bytes"]
        rows = [
            [
                self.group_name(plan["group"]),
                what.get(plan["change"], plan["change"]),
                beside(plan, "moves_before", plan["moves_before"]),
                beside(plan, "moves_after", plan["moves_after"]),
                f"{100 * (plan['moves_before'] - plan['moves_after']) / plan['moves_before']:.3g}%",
                beside(plan, "saved_mcpr", plan["saved_mcpr"]),
                number(plan["extra_bytes"]),
            ]
            for plan in plans
        ]
        return [
            Figure(
                "plans",
                "What another layout would save",
                f"The trace again, with the words of an allocation in other places, at blocks of {size(sharing['attribution']['block_size'])}: each "
                "instance in blocks of its own; fields that different processors write in blocks of their own; words regrouped by "
                "the processor that uses them. Negative: more moves than now."
                + (f" MCPR saved: at the move cost of {text(machine)}." if machine else ""),
                {
                    (): chart(
                        traces,
                        barmode="group",
                        height=110 + 50 * len(order),
                        margin={"l": 20},
                        xaxis={"title": {"text": "block moves saved (%)"}, "zeroline": True, "zerolinecolor": INK},
                        yaxis={"autorange": "reversed", "ticks": ""},
                    )
                },
                table=Table(columns, rows, right=range(2, 7)),
            )
        ]

    def false_sharing(self) -> list[Block]:
        sharing = self.study["false_sharing"]
        if sharing is None:
            return []
        attribution = sharing["attribution"]
        out: list[Block] = [self.sharing_bounds(sharing)]
        groups = self.sharing_groups(attribution)
        if groups:
            out.append(groups)
        out += self.sharing_plans(sharing)
        if attribution["moves"]["false"] == 0:
            out.append(f"<p>No block move is false sharing at blocks of {size(attribution['block_size'])}.</p>")
            return out

        def user(value: object) -> str:
            return f"processor {value}" if isinstance(value, int) else str(value)

        out.append(
            Table(
                ["bytes of", "offset", "bytes", "read by", "written by", "false moves", "caused"],
                [
                    [
                        self.group_name(field["group"]),
                        f"{field['offset']:#x}" if field["group"] == 0 else number(field["offset"]),
                        number(field["bytes"]),
                        user(field["readers"]),
                        user(field["writers"]),
                        beside(field, "victim", field["victim"]),
                        beside(field, "culprit", field["culprit"]),
                    ]
                    for field in attribution["fields"][:MOST_ROWS]
                ],
                f"The fields behind it: bytes that the same processors read and write (the first {MOST_ROWS} of {number(len(attribution['fields']))})"
                if len(attribution["fields"]) > MOST_ROWS
                else "The fields behind it: bytes that the same processors read and write",
                right=(1, 2, 5, 6),
            )
        )
        out.append(
            Table(
                ["a reference to", "at", "lost its block to a write of", "at", "false moves"],
                [
                    [
                        text(self.group_name(cause["victim_group"])),
                        site_html(cause["victim_site"]),
                        text(self.group_name(cause["culprit_group"])),
                        site_html(cause["culprit_site"]),
                        beside(cause, "moves", cause["moves"]),
                    ]
                    for cause in attribution["causes"][:MOST_ROWS]
                ],
                "The source lines behind it",
                right=(4,),
                html_columns=(0, 1, 2, 3),
            )
        )
        return out

    # TLBs.

    def tlbs(self) -> list[Block]:
        tlb = self.study["tlb"]
        if tlb is None:
            return []
        import plotly.graph_objects as graph

        traces = []
        sizes = [rate["page_size"] for rate in tlb["miss_rates"][0]["rates"]]
        for i, design in enumerate(tlb["miss_rates"]):
            look = style(i)
            ways = (
                f"{design['sets']} × {design['ways']}" if design["sets"] > 1 else f"{design['ways']}, fully associative"
            )
            name = design["tlb"]
            traces.append(
                graph.Scatter(
                    x=sizes,
                    y=[100 * rate["rate"] or None for rate in design["rates"]],
                    name=name,
                    mode="lines+markers",
                    line={"color": look["color"], "dash": look["dash"], "width": 2},
                    marker={"symbol": look["symbol"], "size": 7, "color": look["color"]},
                    hovertext=[
                        f"<b>{text(name)}</b> ({ways}), pages of {size(rate['page_size'])}<br>{number(100 * rate['rate'], 3)}% of references miss"
                        + (f"<br>which adds {number(rate['mcpr'])} to the MCPR" if rate["mcpr"] is not None else "")
                        for rate in design["rates"]
                    ],
                    hoverinfo="text",
                )
            )
        misses = [100 * rate["rate"] for design in tlb["miss_rates"] for rate in design["rates"]]
        axis = size_axis(sizes)
        axis["title"] = {"text": "page size (bytes)"}
        columns = ["TLB", "sets × ways", "pages an entry", "miss cost", *(size(each, short=True) for each in sizes)]
        rows = [
            [
                design["tlb"],
                f"{design['sets']} × {design['ways']}",
                str(design["pages_per_entry"]),
                number(design["miss_cost"]),
                *(f"{100 * rate['rate']:.3g}%" for rate in design["rates"]),
            ]
            for design in tlb["miss_rates"]
        ]
        out: list[Block] = [
            Figure(
                "tlb-misses",
                "TLB misses by page size",
                "Both axes are logarithmic; what is zero is not drawn. Private references count as hits.",
                {(): chart(traces, height=430, xaxis=axis, yaxis=cost_axis("misses (% of references)", misses))},
                table=Table(columns, rows, right=range(2, len(columns))),
            )
        ]
        corrected = chunks(tlb["corrected"], len(self.machines))
        names = [
            name
            for name in (design["tlb"] for design in tlb["miss_rates"])
            if corrected and name in corrected[0][0]["corrected"]
        ]
        if names:
            rows = [
                [self.names[i], name, *(number(entry["corrected"][name]) for entry in entries)]
                for i, entries in enumerate(corrected)
                for name in names
            ]
            columns = ["machine", "TLB", *(size(entry["page_size"], short=True) for entry in corrected[0])]
            out.append(
                Table(
                    columns,
                    rows,
                    "Optimal MCPR with the cost of TLB misses, by page size",
                    right=range(2, len(columns)),
                )
            )
        return out

    def machine_table(self) -> list[Block]:
        def move(cost: object) -> str:
            if not isinstance(cost, Mapping):
                return number(cost) if isinstance(cost, (int, float)) else "–"
            return f"{number(cost['fixed'])} + {number(cost['per_byte'])} b"

        rows = []
        for i, entry in enumerate(self.machines):
            machine = entry["machine"]
            unit = machine.get("unit_ns")
            rows.append(
                [
                    self.names[i],
                    size(machine["block_size"]),
                    number(machine.get("r")),
                    number(machine.get("g")),
                    move(machine.get("R")),
                    number(entry["R"]),
                    move(machine.get("G")),
                    number(entry["G"]),
                    f"{number(unit)} ns" if unit else "–",
                    machine.get("source") or "–",
                ]
            )
        columns = ["machine", "block", "r", "g", "R for b bytes", "R", "G for b bytes", "G", "unit", "source"]
        return [
            "<p>In units of one local reference: r and g are what a reference to another processor's and to global memory "
            "costs, R and G what moving a block from another processor's and to or from global memory costs. A dash: the "
            "machine has no such thing, or it is not known.</p>",
            Table(columns, rows, right=range(1, 9), wide=(9,)),
        ]

    def method(self) -> list[Block]:
        perturbation = self.study["perturbation"]
        if perturbation:
            runs = perturbation["runs"]
            how = (
                f"Every result was computed again for {runs} local and {runs} gap perturbation{'s' if runs > 1 else ''} of the trace "
                f"(section 4.3 of the thesis; seed {perturbation['seed']}). The spread beside a result is by how much it then differed at most, "
                "in per cent: local / gap. It tells how much the result depends on the order in which the references happened to be recorded."
            )
        else:
            how = "The trace was not perturbed: how much the results depend on the order of recording is not known (--perturb tells)."
        out: list[Block] = [f"<p>{how}</p>"]
        if self.study.get("command"):
            out.append(f'<p>The command to repeat this:</p><code class="code">{text(self.study["command"])}</code>')
        out.append(
            "<p>The model, optimal placement and the machines of chapter 6 are those of W. J. Bolosky, "
            "<i>Software Coherence in Multiprocessor Memory Systems</i>, PhD thesis, University of Rochester, 1993.</p>"
        )
        return out


def cost_axis(title: str, values: Iterable[float]) -> dict[str, Any]:
    """Logarithmic, with as many labels as its decades leave room for."""
    positive = [value for value in values if value > 0] or [1.0]
    decades = log10(max(positive) / min(positive))
    axis = {
        "type": "log",
        "title": {"text": title},
        "dtick": 1 if decades > 2 else "D2" if decades > 0.7 else "D1",
        "minor": {"ticks": "outside", "dtick": "D1"},
    }
    if min(positive) > 1e-3:
        axis["tickformat"] = ",~r"
    return axis


def shorten(name: str) -> str:
    return name if len(name) <= 24 else name[:23] + "…"


# The command.


def missing_packages() -> str:
    """A sentence if the report cannot be written here; empty if it can."""
    if sys.version_info < (3, 10):
        return f"{sys.executable} is Python {sys.version.split()[0]}, and reports need 3.10: set MULTIGRAIN_PYTHON to a newer one"
    try:
        importlib.import_module("plotly.offline")
    except ImportError as error:
        name = error.name or "plotly"
        return (
            f"{sys.executable} has no package '{name.partition('.')[0]}', which reports need: run cmake/setup.sh build, or "
            f"'{sys.executable} -m pip install plotly', or set MULTIGRAIN_PYTHON to a Python that has it"
        )
    return ""


def read_study(contents: str, name: str) -> Json | str:
    """The study, or a sentence that says why it is none."""
    try:
        study = json.loads(contents)
    except ValueError as error:
        return f"{name} is no JSON: {error}"
    if not isinstance(study, dict) or study.get("schema") != "mgtrace-analysis":
        return f"{name} is not what mgtrace analyze --json writes"
    if study.get("version") != 1:
        return f"{name} has version {study.get('version')} of the format, and this program reads version 1: analyze the trace again"
    return study


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="mgtrace report", description="Writes a report from the JSON on standard input."
    )
    parser.add_argument("--output", help="the HTML file")
    parser.add_argument("--from", dest="source", default="the analysis", help="what to call the input in messages")
    parser.add_argument("--check", action="store_true", help="only see whether all packages are there")
    options = parser.parse_args()

    def failed(sentence: str) -> int:
        print(f"mgtrace: {sentence}", file=sys.stderr)
        return 2

    sentence = missing_packages()
    if sentence:
        return failed(sentence)
    if options.check:
        return 0
    study = read_study(sys.stdin.buffer.read().decode("utf-8", "replace"), options.source)
    if isinstance(study, str):
        return failed(study)
    try:
        contents = TraceReport(study).html()
    except (KeyError, IndexError, TypeError) as error:
        return failed(
            f"{options.source} lacks what a report needs ({type(error).__name__}: {error}): analyze the trace again"
        )
    try:
        write_whole(options.output, contents)
    except OSError as error:
        return failed(f"cannot write {options.output}: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
