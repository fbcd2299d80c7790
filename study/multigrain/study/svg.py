"""Figures as SVG files that stand in a page of documentation: readable in light and in dark, without a script."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

STYLE = """
    .paper { fill: #ffffff } .ink { fill: #1c2733 } .soft { fill: #51606f } .grid { stroke: #dde3e9 } .axis { stroke: #51606f }
    .user { fill: #b8b8b8 } .whole { fill: #d8d0e6 } .data_wait { fill: #56b4e9 } .lock { fill: #e69f00 } .barrier { fill: #009e73 }
    .protocol { fill: #0072b2 } .first { fill: #0072b2 } .second { fill: #e69f00 } .third { fill: #009e73 } .fourth { fill: #b8b8b8 }
    .faults { fill: #cc79a7 }
    .line { fill: none; stroke-width: 2 } .line.first { stroke: #0072b2 } .line.second { stroke: #e69f00 }
    .line.third { stroke: #009e73 } .line.fourth { stroke: #7d7d7d } .theirs { stroke-dasharray: 6 4 }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0f151c } .ink { fill: #e6edf3 } .soft { fill: #a9b6c3 } .grid { stroke: #27323d } .axis { stroke: #a9b6c3 }
      .user, .fourth { fill: #8a939c } .whole { fill: #6f6488 } .protocol, .first { fill: #2f8fce } .line { fill: none }
      .line.first { stroke: #2f8fce } .line.fourth { stroke: #8a939c }
    }
"""
# Of things that stand side by side.
ORDER = ("first", "second", "third", "fourth")
PANEL_WIDTH, PANEL_HEIGHT, MARGIN, LEGEND = 430, 250, 20, 34
PLOT_LEFT, PLOT_TOP, PLOT_BOTTOM, PLOT_RIGHT = 62, 44, 46, 12
# Of a panel's title there is room for so many characters in a line, and for two lines.
TITLE_CHARACTERS, TITLE_LINE = 54, 15


@dataclass(frozen=True)
class Bar:
    """Its parts lie on each other, from the lowest on; `text` stands above it."""

    parts: Sequence[tuple[str, float]]  # a class of STYLE, and how high
    text: str = ""

    @property
    def height(self) -> float:
        return sum(value for _, value in self.parts)


@dataclass(frozen=True)
class Line:
    kind: str  # classes of STYLE
    points: Sequence[tuple[int, float]]  # at which of the panel's labels, and how high


@dataclass(frozen=True)
class Panel:
    """Groups of bars, or lines, over labels."""

    title: str
    labels: Sequence[str]
    bars: Sequence[Sequence[Bar]] = ()  # of each label
    lines: Sequence[Line] = ()
    below: str = ""  # what the labels are
    least: float = field(default=0.0)  # where the axis begins, if no value is lower


def nice_step(span: float, steps: int = 5) -> float:
    """A step of 1, 2 or 5 times a power of ten, of which the span has at most so many."""
    if span <= 0:
        return 1.0
    raw = span / steps
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))


def number(value: float) -> str:
    return f"{0.0 if abs(value) < 1e-12 else value:.6g}"


def short(value: float) -> str:
    """With three digits, and never as a power of ten."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def text_at(x: float, y: float, text: str, kind: str = "soft", anchor: str = "middle", more: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


class PanelDrawing:
    def __init__(self, panel: Panel, x: float, y: float) -> None:
        self.panel, self.x, self.y = panel, x, y
        values = [bar.height for group in panel.bars for bar in group]
        values += [value for line in panel.lines for _, value in line.points]
        self.step = nice_step(max([*values, 0.0]) - min([*values, panel.least]))
        # A value that is hardly below 0 takes no step of the axis.
        self.low = self.step * math.floor(min([*values, panel.least]) / self.step + 0.1)
        self.high = max(self.step * math.ceil(max([*values, 0.0]) / self.step), self.low + self.step)

    def height_of(self, value: float) -> float:
        plot = PANEL_HEIGHT - PLOT_TOP - PLOT_BOTTOM
        return self.y + PLOT_TOP + plot * (self.high - value) / (self.high - self.low)

    def middle_of(self, label: int) -> float:
        return self.x + PLOT_LEFT + self.width() * (label + 0.5)

    def width(self) -> float:
        return (PANEL_WIDTH - PLOT_LEFT - PLOT_RIGHT) / max(len(self.panel.labels), 1)

    def draw(self) -> list[str]:
        panel, left, right = self.panel, self.x + PLOT_LEFT, self.x + PANEL_WIDTH - PLOT_RIGHT
        lines = textwrap.wrap(panel.title, TITLE_CHARACTERS, break_on_hyphens=False)
        first = 18 - TITLE_LINE * (len(lines) - 1) // 2
        out = [
            text_at(self.x + 8, self.y + first + TITLE_LINE * i, line, "ink", "start", ' font-weight="600"')
            for i, line in enumerate(lines)
        ]
        for i in range(round((self.high - self.low) / self.step) + 1):
            value = self.low + i * self.step
            y = self.height_of(value)
            out.append(f'<path class="grid" d="M{left:.1f} {y:.1f} H{right:.1f}"/>')
            out.append(text_at(left - 8, y + 4.5, number(value), anchor="end"))
        for i, group in enumerate(panel.bars):
            out += self.group(i, group)
        for line in panel.lines:
            points = " ".join(f"{self.middle_of(i):.1f},{self.height_of(value):.1f}" for i, value in line.points)
            out.append(f'<polyline class="line {line.kind}" points="{points}"/>')
        base = self.height_of(max(self.low, 0.0))
        out.append(f'<path class="axis" d="M{left:.1f} {base:.1f} H{right:.1f}"/>')
        bottom = self.y + PANEL_HEIGHT - PLOT_BOTTOM
        every = max(1, math.ceil(len(panel.labels) / 16))
        out += [
            text_at(self.middle_of(i), bottom + 18, label) for i, label in enumerate(panel.labels) if i % every == 0
        ]
        if panel.below:
            out.append(text_at((left + right) / 2, bottom + 36, panel.below))
        return out

    def group(self, label: int, group: Sequence[Bar]) -> list[str]:
        room = self.width() * (0.72 if len(self.panel.labels) <= 16 else 0.9)
        width = room / max(len(group), 1)
        out = []
        for i, bar in enumerate(group):
            x = self.middle_of(label) - room / 2 + i * width
            below = 0.0
            for kind, value in bar.parts:
                top, bottom = self.height_of(below + max(value, 0.0)), self.height_of(below + min(value, 0.0))
                if bottom - top > 0.005:
                    out.append(
                        f'<rect class="{kind}" x="{x:.1f}" y="{top:.2f}" width="{width * 0.96:.2f}" '
                        f'height="{bottom - top:.2f}"/>'
                    )
                below += value
            if bar.text:
                out.append(
                    text_at(x + width * 0.48, self.height_of(below) - 5, bar.text, "ink", more=' font-size="11.5"')
                )
        return out


def figure(title: str, description: str, panels: Sequence[Panel], legend: Mapping[str, str], columns: int = 2) -> str:
    """The file's contents. `legend` has what each class of STYLE in the panels stands for; a class with the word "line" is of
    lines. `description` is for people who do not see the figure."""
    columns = max(1, min(columns, len(panels)))
    rows = math.ceil(len(panels) / columns)
    width = 2 * MARGIN + columns * PANEL_WIDTH
    top = MARGIN + 22 + LEGEND
    height = top + rows * PANEL_HEIGHT + MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t d"',
        '     font-family="system-ui, \'DejaVu Sans\', Arial, sans-serif" font-size="13">',
        f'<title id="t">{escape(title)}</title>',
        f'<desc id="d">{escape(description)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}" rx="10"/>',
        text_at(MARGIN, MARGIN + 12, title, "ink", "start", ' font-size="15" font-weight="600"'),
    ]
    x = float(MARGIN)
    for kind, words in legend.items():
        y = MARGIN + 30.0
        if kind.startswith("line"):
            out.append(f'<path class="{kind}" d="M{x:.1f} {y + 6:.1f} h22"/>')
        else:
            out.append(f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="13" height="13"/>')
        start = x + (28 if kind.startswith("line") else 19)
        out.append(text_at(start, y + 11, words, "ink", "start"))
        x = start + 7.2 * len(words) + 20
    for i, panel in enumerate(panels):
        at = PanelDrawing(panel, MARGIN + i % columns * PANEL_WIDTH, top + i // columns * PANEL_HEIGHT)
        out += at.draw()
    return "\n".join([*out, "</svg>", ""])
