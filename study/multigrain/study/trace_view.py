"""What all sections of the report on a trace need: its study, names for what is in it, axes and spreads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log10
from pathlib import PurePath
from typing import Any

from multigrain.study.page import number, size, text

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
    def deviation(value: float | None) -> str:
        return "from 0" if value is None else f"±{percentage(value, 2)}"

    return "" if spread is None else f"{deviation(spread['local'])} / {deviation(spread['gap'])}"


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


def known_to(kind: type[Any], **properties: Any) -> dict[str, Any]:
    """Those of the properties that this Plotly has for the kind of object: Debian 12's, 5.4, has neither minor ticks of axes
    nor patterns of areas."""
    new = kind()
    return {name: value for name, value in properties.items() if name in new}


def cost_axis(title: str, values: Iterable[float]) -> dict[str, Any]:
    """Logarithmic, with as many labels as its decades leave room for."""
    positive = [value for value in values if value > 0] or [1.0]
    decades = log10(max(positive) / min(positive))
    axis: dict[str, Any] = {
        "type": "log",
        "title": {"text": title},
        "dtick": 1 if decades > 2 else "D2" if decades > 0.7 else "D1",
    }
    import plotly.graph_objects as graph

    axis |= known_to(graph.layout.YAxis, minor={"ticks": "outside", "dtick": "D1"})
    if min(positive) > 1e-3:
        axis["tickformat"] = ",~r"
    return axis


def shorten(name: str) -> str:
    return name if len(name) <= 24 else name[:23] + "…"


class TraceView:
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
