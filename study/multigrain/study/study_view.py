"""What all sections of the report of mgstudy need: its study, what is in it, and figures in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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


def parts_of(point: Json) -> dict[str, float]:
    """The parts of a point's time, nanoseconds; they add up to the measured phase."""
    return {**{name: point["mean_ns"][name] for name, *_ in PARTS}, "outside": point["outside_ns"]}


class StudyView:
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
