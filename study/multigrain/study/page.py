"""The shell of every report: a page of sections with text, tables and figures, as one HTML file that opens offline.

A figure is drawn by Plotly, whose library is inlined: compressed, as it is all of a page but some ten kilobytes, and unpacked by the
browser. Everything that a figure shows can also be had without a mouse: its legend is made of buttons, its variants are chosen with select elements, and its numbers are in a table below it. The
palette is that of Okabe and Ito, which the colour-blind can tell apart; no series is told by its colour alone.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

# Okabe and Ito's eight, the dark ones first; yellow is too pale for lines on white and comes last.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C7A00")
INK = "#1a1a1a"
GREY = "#8a8a8a"
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "triangle-down", "cross", "star")
PATTERNS = ("", "/", "x", "\\", ".", "-", "+", "|")

# A chart as Plotly takes it.
Chart = Mapping[str, Any]  # {"data": [...], "layout": {...}}


def style(number: int) -> dict[str, Any]:
    """The line, symbol and pattern of series `number`; different in two ways for any two below 40."""
    lap = number // len(PALETTE)
    return {
        "color": PALETTE[number % len(PALETTE)],
        "dash": DASHES[(number + lap) % len(DASHES)],
        "symbol": SYMBOLS[(number + lap) % len(SYMBOLS)],
        "pattern": PATTERNS[(number + lap) % len(PATTERNS)],
    }


def pattern_of(shape: str, color: str) -> dict[str, Any]:
    """White lines on a bar or area of this color."""
    return {"shape": shape, "fgcolor": "#ffffff", "bgcolor": color, "size": 7, "solidity": 0.2}


def text(value: object) -> str:
    """As HTML."""
    return html.escape(str(value))


def number(value: float | int | None, digits: int = 4) -> str:
    """For people: 1,234,567 or 0.01235 or 1.25e-07; what is not there is a dash."""
    if value is None:
        return "–"
    if isinstance(value, float) and not math.isfinite(value):
        return "∞"
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def size(value: int, short: bool = False) -> str:
    """A number of bytes: 64 B, 4 KiB, 2 MiB; short: 64, 4K, 2M."""
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if value >= 1 << shift and value % (1 << shift) == 0:
            return f"{value >> shift}{unit}" if short else f"{value >> shift} {unit}iB"
    return str(value) if short else f"{value} B"


@dataclass
class Table:
    """Cells are text; with `html_columns`, those columns' are HTML. Columns of numbers are aligned to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    right: Sequence[int] = ()
    html_columns: Sequence[int] = ()
    wide: Sequence[int] = ()  # columns of sentences, which wrap

    def html(self) -> str:
        def kind(column: int) -> str:
            return " class=right" if column in self.right else " class=wide" if column in self.wide else ""

        def cell(tag: str, column: int, value: str) -> str:
            shown = value if tag == "td" and column in self.html_columns else text(value)
            scope = ' scope="col"' if tag == "th" else ""
            return f"<{tag}{scope}{kind(column)}>{shown}</{tag}>"

        head = "".join(cell("th", i, name) for i, name in enumerate(self.columns))
        body = "".join(
            "<tr>" + "".join(cell("td", i, value) for i, value in enumerate(row)) + "</tr>\n" for row in self.rows
        )
        caption = f"<caption>{text(self.caption)}</caption>" if self.caption else ""
        label = text(self.caption or "Table: " + ", ".join(self.columns[:3]))
        return (
            f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table>{caption}'
            f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
        )


@dataclass
class Figure:
    """A chart, or several between which select elements choose.

    `views` goes from one option of each of `choices` to its chart; combinations may be missing. `narrow` has charts for
    phones where the wide ones do not fit.
    """

    name: str  # the id in the page
    title: str
    caption: str  # HTML
    views: Mapping[tuple[str, ...], Chart]
    choices: Sequence[tuple[str, Sequence[str]]] = ()
    narrow: Mapping[tuple[str, ...], Chart] = field(default_factory=dict)
    table: Table | None = None

    def html(self, ordinal: int) -> str:
        selects = "".join(
            f'<label>{text(label)} <select data-choice="{i}">'
            + "".join(f'<option value="{text(option)}">{text(option)}</option>' for option in options)
            + "</select></label>"
            for i, (label, options) in enumerate(self.choices)
        )
        data = {
            "views": {"|".join(key): chart for key, chart in self.views.items()},
            "narrow": {"|".join(key): chart for key, chart in self.narrow.items()},
            "file": self.name,
        }
        table = f"<details><summary>The numbers as a table</summary>{self.table.html()}</details>" if self.table else ""
        return (
            f'<figure id="{self.name}" class="chart">\n'
            f"<h3>Figure {ordinal}. {text(self.title)}</h3>\n"
            f'<div class="choices">{selects}</div><div class="legend" role="group" aria-label="Series; press to hide or show"></div>\n'
            f'<div class="missing" hidden>There is no such figure: the machine lacks what would vary.</div>\n'
            f'<div class="plot" role="img" aria-label="{text(self.title)}"></div>\n'
            f"<figcaption>{self.caption}</figcaption>\n{table}\n"
            f'<script type="application/json">{script_json(data)}</script>\n</figure>'
        )


Block = str | Table | Figure  # a str is HTML


@dataclass
class Section:
    name: str  # the id in the page
    title: str
    blocks: Sequence[Block]


def script_json(value: object) -> str:
    """JSON that may stand in a script element, with six digits of every number: figures show no more."""

    def shorter(item: Any) -> Any:
        if isinstance(item, float):
            return float(f"{item:.6g}") if math.isfinite(item) else None
        if isinstance(item, Mapping):
            return {key: shorter(each) for key, each in item.items()}
        if isinstance(item, (list, tuple)):
            return [shorter(each) for each in item]
        return item

    return json.dumps(shorter(value), separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def chart(traces: Sequence[Any], **layout: Any) -> Chart:
    """Traces of plotly.graph_objects, which checks them, with a layout; the page's script adds what all have in common."""
    import plotly.graph_objects as graph

    figure = graph.Figure(data=list(traces), layout=graph.Layout(**layout)).to_plotly_json()
    figure["layout"].pop("template", None)
    return {"data": figure["data"], "layout": figure["layout"]}


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The file. `lead` is HTML."""
    from plotly.offline import get_plotlyjs

    own = resources.files(__package__)
    ordinal = 0
    body = []
    for section in sections:
        blocks = []
        for block in section.blocks:
            if isinstance(block, Figure):
                ordinal += 1
                blocks.append(block.html(ordinal))
            else:
                blocks.append(block if isinstance(block, str) else block.html())
        body.append(
            f'<section id="{section.name}">\n<h2>{text(section.title)}</h2>\n' + "\n".join(blocks) + "\n</section>"
        )
    links = "".join(f'<a href="#{section.name}">{text(section.title)}</a>' for section in sections)
    # The policy makes sure that nothing is ever fetched, whatever a trace's strings contain.
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
    # Without a time, so that the same figures are the same file. A comma stands for <, which means something in a page.
    library = gzip.compress(get_plotlyjs().encode("utf-8"), 9, mtime=0)
    packed = base64.b85encode(library, pad=True).decode("ascii").replace("<", ",")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{text(title)}</title>\n<style>{(own / 'page.css').read_text('utf-8')}</style>\n</head>\n<body>\n"
        f'<a class="skip" href="#content">To the content</a>\n<header><h1>{text(title)}</h1>\n{lead}\n'
        f'<nav aria-label="Sections">{links}</nav></header>\n<main id="content">\n' + "\n".join(body) + "\n</main>\n"
        f'<script type="text/plain" id="plotly" data-bytes="{len(library)}">{packed}</script>\n'
        f"<script>{(own / 'page.js').read_text('utf-8')}</script>\n</body>\n</html>\n"
    )
