"""The section of the report on a trace that is about false sharing."""

from __future__ import annotations

from multigrain.study.page import INK, Block, Chart, Figure, Table, chart, number, pattern_of, size, style, text
from multigrain.study.trace_view import (
    AREAS,
    MOST_BARS,
    MOST_ROWS,
    UNIT,
    Json,
    TraceView,
    beside,
    shorten,
    site_html,
    site_text,
    size_axis,
    unique,
    whisker,
)


class SharingSections(TraceView):
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
