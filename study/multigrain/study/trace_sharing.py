"""The section of the report on a trace that is about false sharing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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

# Less than so many per cent of what all references cost does not matter, and a layout that does not save such a part of an
# object's useless moves is no repair: as mgtrace sharing has it (tools/mgtrace/sharing.cpp).
LITTLE = 1
WORTHWHILE = 0.5

# Of the data, and of each one's bytes and lines, so many are listed.
MOST_DATA = 5
MOST_PARTS = 3

CHANGES = {
    "separate": "begin each block on a line of its own, and let nothing else be in its last line",
    "pad fields": "give each of these a line of its own (alignas, padding)",
    "regroup": "put together what one processor uses, each processor's part on lines of its own",
}


def duration(nanoseconds: float) -> str:
    for unit in ("ns", "us", "ms"):
        if nanoseconds < 999.5:
            return f"{nanoseconds:.3g} {unit}"
        nanoseconds /= 1000
    return f"{number(nanoseconds, 3)} s"


class SharingSections(TraceView):
    def repairs(self) -> list[Block]:
        """What mgtrace sharing prints: the data whose blocks move for nothing, who uses them, and what would end it."""
        sharing = self.study["false_sharing"]
        if sharing is None:
            return []
        attribution = sharing["attribution"]
        moves = attribution["moves"]
        trace = self.study["trace"]
        block = size(attribution["block_size"])
        every = moves["false"] + moves["useful"] + moves["cold"]
        if moves["false"] == 0:
            return [
                f"<p><b>No false sharing</b> in blocks of {block}: of {number(every)} moves of written blocks, {number(moves['useful'])} "
                f"bring data that another processor wrote, and {number(moves['cold'])} are first copies.</p>"
            ]
        scale = sampling["scale"] if (sampling := trace.get("sampling")) else 1.0
        machine: Json = next(
            (each["machine"] for each in self.machines if each["machine"]["name"] == attribution["machine"]), {}
        )
        references = trace["references"] + trace["private_references"]
        unit = machine.get("unit_ns")
        move_ns = attribution["mcpr_per_move"] * references * unit if unit else 0.0

        def of_run(count: int) -> str:
            return number(round(scale * count))

        said = (
            f"<p><b>{of_run(moves['false'])} of {of_run(every)} moves</b> of written blocks of {block} are useless: nobody used there what "
            "another had written"
        )
        if move_ns:
            part = 100 * moves["false"] * move_ns / ((references * unit + every * move_ns) or 1)
            said += (
                f". On the machine {text(machine['name'])} they take an estimated {duration(scale * moves['false'] * move_ns)}, "
                f"{part:.{1 if part < 10 else 0}f} % of what all references cost"
                + (", which is little" if part < LITTLE else "")
            )
        out: list[Block] = [said + ".</p>"]
        groups = sorted(
            (group for group in attribution["groups"] if group["moves"]["false"]),
            key=lambda group: (-group["moves"]["false"], group["group"]),
        )
        items = []
        for group in groups[:MOST_DATA]:
            useless = group["moves"]["false"]
            where = f", of {site_html(group['site'])}" if group["group"] != 0 and group["site"] else ""
            if group["group"] != 0 and group["bytes"]:
                where += f", {number(group['bytes'])} bytes" + (
                    f" in {number(group['instances'])} blocks" if group["instances"] != 1 else ""
                )
            took = f", {duration(scale * useless * move_ns)}" if move_ns else ""
            lines = [
                f"<b>{text(self.group_name(group['group']))}</b>{where}: {of_run(useless)} useless moves{took}; "
                f"{of_run(group['moves']['useful'])} useful ones"
            ]
            fields = [field for field in attribution["fields"] if field["group"] == group["group"]]
            for field in fields[:MOST_PARTS]:
                first, last = field["offset"], field["offset"] + field["bytes"] - 1
                span = f"{first:#x} to {last:#x}" if group["group"] == 0 else f"{first} to {last}"
                lines.append(
                    f"bytes {span}: {self.users(field, sharing['places'])}; they lose their block {of_run(field['victim'])} times, and "
                    f"take it {of_run(field['culprit'])} times"
                )
            causes = [cause for cause in attribution["causes"] if cause["victim_group"] == group["group"]]
            for cause in causes[:MOST_PARTS]:
                other = (
                    f" ({text(self.group_name(cause['culprit_group']))})"
                    if cause["culprit_group"] != group["group"]
                    else ""
                )
                lines.append(
                    f"{site_html(cause['victim_site'])} wants the block that {site_html(cause['culprit_site'])}{other} has written: "
                    f"{of_run(cause['moves'])} times"
                )
            lines += self.repair(sharing["plans"], group, of_run)
            items.append("<li>" + "<br>".join(lines) + "</li>")
        out.append("<ol>" + "".join(items) + "</ol>")
        if len(groups) > MOST_DATA:
            out.append(f"<p>{number(len(groups) - MOST_DATA)} more: see False sharing, below.</p>")
        return out

    def users(self, field: Json, place: str) -> str:
        def named(user: object) -> str:
            return (
                f"{place} {user}" if isinstance(user, int) else f"several {place}s" if user == "several" else text(user)
            )

        readers, writers = named(field["readers"]), named(field["writers"])
        if readers == writers:
            return f"read and written by {readers}"
        return ", ".join(
            f"not {verb}" if user == "none" else f"{verb} by {user}"
            for verb, user in (("written", writers), ("read", readers))
        )

    def repair(self, plans: Sequence[Json], group: Json, of_run: Callable[[int], str]) -> list[str]:
        """What another layout of the group would save."""
        own = [plan for plan in plans if plan["group"] is not None and plan["group"] == group["group"]]
        if not own:
            return []
        best = min(own, key=lambda plan: plan["moves_after"])
        useless = (group["moves"]["false"] + group["culprit"]) / 2
        if best["moves_before"] - best["moves_after"] < WORTHWHILE * useless:
            return ["repair: none of the layouts that were tried helps much"]
        return [
            f"<b>repair</b>: {CHANGES.get(best['change'], text(best['change']))}: {of_run(best['moves_after'])} moves instead of "
            f"{of_run(best['moves_before'])}, {number(best['extra_bytes'])} bytes more"
        ]

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
