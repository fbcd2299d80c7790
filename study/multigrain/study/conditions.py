"""Under which conditions a study's times are what they are, in words: clock, network, emulated machine, repetition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLOCKS = {
    "counted": "of the emulated machine (counted clock)",
    "virtual": "of the emulated machine (virtual clock)",
    "wall": "of this machine (wall clock)",
}


def node_words(point: Mapping[str, Any]) -> str:
    return "one processor" if point["role"] == "sequential" else f"C = {point['node_size']}"


def is_exact(study: Mapping[str, Any]) -> bool:
    """Does every run give the same numbers? Of a study by another clock than the counted one, that is not known."""
    return bool(study.get("exact"))


def has_spread(study: Mapping[str, Any]) -> bool:
    """Can runs of one machine differ? Under the counted clock those of several seeds can."""
    return study["clock"] != "counted" or bool(study.get("seeds"))


def of_runs(runs: int, noun: str) -> str:
    return f"median of {runs} {noun}s" if runs > 2 else f"the faster of 2 {noun}s" if runs == 2 else ""


def repetition(study: Mapping[str, Any]) -> str:
    """What stands where the number of runs and their spread do: "median of 3 runs"; empty: of one run, which says nothing."""
    if study["clock"] == "counted":
        if is_exact(study):
            seeds = study.get("seeds", 0)
            return of_runs(seeds, "seed") or "of one seed" if seeds else "exact: every run gives these numbers"
        points = [point for point in study["points"] if point["interruptions"]]
        where = ", ".join(dict.fromkeys(node_words(point) for point in points))
        times = sum(point["interruptions"] for point in points)
        often = "once" if times == 1 else f"{times:,} times"
        return f"not exact: processors lost their turn {often} ({where}), and another run may give other numbers"
    return of_runs(study["repetitions"], "run")


def machines(study: Mapping[str, Any]) -> str:
    """The names of the emulated machines; empty: of another clock than the counted one."""
    return ", ".join(each["name"] for each in study.get("emulated", []))


def network(study: Mapping[str, Any]) -> str:
    given: str = study["network"]["given"]
    if not study["network"].get("of_machine"):
        return f"network {given}"
    return f"the machine's network ({given})" if given else "the machine's network"


def conditions(study: Mapping[str, Any]) -> str:
    """The line above a table."""
    names = machines(study)
    words = [
        f"{study['processors']} processors",
        *([f"machine{'s' if len(study['emulated']) > 1 else ''} {names}"] if names else []),
        network(study),
        f"{study['clock']} clock",
        repetition(study),
    ]
    return ", ".join(word for word in words if word)
