"""Figures as text, for the terminal and for reports."""

from __future__ import annotations

from collections.abc import Sequence


def unit_for(nanoseconds: float, micro: str = "µs") -> tuple[str, float]:
    """The largest unit that the time has one of, and its nanoseconds."""
    for unit, factor in (("s", 1e9), ("ms", 1e6), (micro, 1e3)):
        if nanoseconds >= factor:
            return unit, factor
    return "ns", 1.0


def duration(nanoseconds: float | None, micro: str = "µs") -> str:
    if nanoseconds is None:
        return "–"
    unit, factor = unit_for(nanoseconds, micro)
    return f"{nanoseconds / factor:.4g} {unit}"


def percent(value: float | None, digits: int = 3) -> str:
    """A part of one, with so many digits that matter, never as a power of ten."""
    if value is None:
        return "–"
    shown = 100 * value
    if abs(shown) >= 10 ** (digits - 1):
        return f"{shown:,.0f} %"
    return f"{0 if abs(shown) < 0.05 else shown:.{digits}g} %"


def short_percent(value: float | None) -> str:
    """The same for a terminal, which has no space for more."""
    return "–" if value is None else f"{100 * value:.1f}%" if abs(value) < 0.1 else f"{100 * value:.0f}%"


def percent_range(values: Sequence[float] | None) -> str:
    return f"{percent(values[0])} to {percent(values[1])}" if values and values[0] != values[1] else ""


def slower(value: float | None) -> str:
    """By which part something takes longer, as people say it: from twice as long on, "99 times slower"."""
    return f"{1 + value:.3g} times slower" if value is not None and value >= 1 else percent(value)


def faster(value: float | None) -> str:
    """The same of a time that something else is shorter than."""
    return f"{1 + value:.3g} times faster" if value is not None and value >= 1 else percent(value)


def against(alone: float, time: float) -> str:
    """How a time compares with that of one processor."""
    if time > alone:
        return f"{time / alone:.3g} times slower than one processor"
    return f"{alone / time:.3g} times as fast as one processor"


def machine_words(processors: int, node_size: int) -> str:
    nodes = processors // node_size
    return f"{nodes} node{'' if nodes == 1 else 's'} of {node_size}"
