"""The report of `mgtrace report`: the figures of Bolosky's thesis ("Software Coherence in Multiprocessor Memory Systems")
for one trace, out of the JSON that src/trace/analysis/study.h documents."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import PurePath

from multigrain.study.files import FormatError, parse_versioned, write_whole
from multigrain.study.packages import missing_packages
from multigrain.study.page import Block, Figure, Section, Table, chart, number, page, size, style, text
from multigrain.study.trace_costs import CostSections
from multigrain.study.trace_sharing import SharingSections
from multigrain.study.trace_view import Json, chunks, cost_axis, size_axis, spread_text


class TraceReport(CostSections, SharingSections):
    def html(self) -> str:
        trace = self.study["trace"]
        program = trace["program"] or trace.get("file") or "a trace"
        sections = [
            Section("repairs", "What to repair", self.repairs()),
            Section("short", "What placement costs", self.in_short()),
            Section("policies", "Policies against optimal placement", self.policies()),
            Section("block-sizes", "Block size", self.block_sizes()),
            Section("variable-blocks", "Blocks of several sizes", self.variable_blocks()),
            Section("components", "What the cost is made of", self.components()),
            Section("hot-blocks", "Hot blocks", self.hot_blocks()),
            Section("false-sharing", "False sharing", self.false_sharing()),
            Section("caches", "Caches", self.caches()),
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
            ("Dilation", f"{trace['dilation']:,.1f} times the untraced run" if trace["dilation"] else "not known"),
            *(
                [
                    (
                        "Sampled",
                        f"bursts of {number(sampling['burst'])} in each {number(sampling['interval'])} of a processor's "
                        f"references; one of {sampling['scale']:,.4g} references of the run is in the trace, and all counts "
                        "here are of these. What moved between bursts is seen once, if at all, when a burst begins; what "
                        "happens only a few times may be missing; placements that need a history longer than a burst, and "
                        "data that stay in a cache for longer, are judged by bursts alone",
                    )
                ]
                if (sampling := trace.get("sampling"))
                else []
            ),
            (
                "Trace",
                f"{number(trace['references'])} references by {trace['processors']} processors, and "
                f"{number(trace['private_references'])} private ones"
                + (f", on {trace['map']['cores']} cores of {trace['map']['nodes']} nodes" if trace.get("map") else "")
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
                # What moves whole whatever its size has no best one.
                move = machine["machine"].get("R")
                row += (
                    ["–"] * 2 if move and move["per_byte"] == 0 else [size(sizes["block_size"]), number(sizes["mcpr"])]
                )
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
            "with the future known: no policy on that machine can be below it."
            + (" It is the mean of the references that miss the caches." if self.study.get("caches") else "")
            + "</p>",
            Table(columns, rows, right=right),
        ]

    def caches(self) -> list[Block]:
        caches = self.study.get("caches")
        if not caches:
            return []
        references = self.study["trace"]["references"]

        def of_all(count: int) -> list[str]:
            return [number(count), f"{100 * count / references:.3g}%"]

        rows = [
            [
                "a node's" if level["shared"] else "a core's",
                size(level["bytes"]),
                str(level["ways"]),
                *of_all(level["hits"]),
            ]
            for level in caches["levels"]
        ]
        rows.append(["memory", "", "", *of_all(caches["misses"])])
        own = caches["own"]
        return [
            f"<p>Lines of {size(caches['line'])}. Private references hit. A core's own levels lacked lines "
            f"{number(own['first'])} times for the first time, {number(own['replaced'])} times because they had replaced them, "
            f"and {number(own['taken'])} times because another core had written them.</p>",
            Table(["level", "bytes", "ways", "references that hit", "of all"], rows, right=range(1, 5)),
        ]

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

    sentence = missing_packages(["plotly"], "reports need")
    if sentence:
        return failed(sentence)
    if options.check:
        return 0
    given = sys.stdin.buffer.read().decode("utf-8", "replace")
    try:
        study = parse_versioned(
            given, options.source, "mgtrace-analysis", 1, "mgtrace analyze --json", ": analyze the trace again"
        )
    except FormatError as error:
        return failed(str(error))
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
