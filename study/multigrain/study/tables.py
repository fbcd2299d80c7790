"""A paper's table as a file, with the bounds within which a figure of ours agrees: read, and checked (docs/user/mgstudy.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multigrain.study.page import number
from multigrain.study.runs import Json, StudyError
from multigrain.study.study_figures import Finder, finder_of
from multigrain.study.verdicts import Bounds

UNITS = {"": 1.0, "%": 0.01, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
TABLE_KEYS = {"title": True, "source": True, "rows": True, "bounds": False, "of": False}
ROW_KEYS = {
    "name": True,
    "what": True,
    **dict.fromkeys(("theirs", "says", "within", "low", "high", "unit", "of", "more_than", "bounds"), False),
}
# What a row may say of the study that it is about, and of which kind the value is.
OF_KEYS: dict[str, type] = {
    "program": str,
    "folder": str,
    "arguments": list,
    "options": list,
    "processors": int,
    "kind": str,
    "machine": str,
    "network": str,
    "series": str,
}


@dataclass(frozen=True)
class Row:
    """`theirs`, if the paper gives a number, and `bounds` are in the row's unit, of which one is `unit` of the study's. With
    `more_than`, which says of which study, the row is about by which part the figure is more than the same one of that."""

    name: str
    what: str
    find: Finder
    theirs: float | None
    theirs_text: str
    bounds: Bounds
    unit: float
    unit_name: str
    is_relative: bool  # show the difference as a part of theirs
    of: Json
    more_than: Json | None


@dataclass(frozen=True)
class Table:
    title: str
    source: str
    bounds: str  # how they were chosen
    rows: list[Row]


class Place:
    """Where something is in a table, to say what is wrong with it."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def error(self, text: str) -> StudyError:
        return StudyError(f"{': '.join(self.words)}: {text}")

    def key(self, name: str) -> Place:
        return Place(*self.words, f"key '{name}'")

    def check_keys(self, found: Any, known: Mapping[str, Any], must: Mapping[str, bool]) -> Json:
        if not isinstance(found, dict):
            raise self.error("it must be an object, in braces")
        for key in found:
            if key not in known:
                raise self.error(f"there is no key '{key}'; keys: {', '.join(known)}")
        for key, needed in must.items():
            if needed and key not in found:
                raise self.error(f"key '{key}' is missing")
        return found

    def text(self, found: Json, name: str, default: str | None = None) -> str:
        value = found.get(name, default)
        if not isinstance(value, str) or (default is None and not value):
            raise self.key(name).error("it must be a text")
        return value

    def number(self, found: Json, name: str) -> float | None:
        if name not in found:
            return None
        value = found[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.key(name).error("it must be a number")
        return float(value)


def with_unit(value: float, unit: str) -> str:
    shown = number(value)
    return f"{shown}{unit if unit in ('', '%') else f' {unit}'}"


def distance_text(value: float, unit: str) -> str:
    """Of percentages as points, since "±3%" would be a part of theirs."""
    return f"{number(value)} points" if unit == "%" else with_unit(value, unit)


def read_unit(place: Place, row: Json) -> tuple[float, str]:
    given = row.get("unit", "")
    if isinstance(given, str):
        if given not in UNITS:
            raise place.key("unit").error(
                f"'{given}' is no unit; it must be one of {', '.join(name for name in UNITS if name)}, or an object with its "
                'name and how many of the study\'s units one is, such as {"name": "cycles", "is": 50}'
            )
        return UNITS[given], given
    inner = place.key("unit")
    found = inner.check_keys(given, {"name": 1, "is": 1}, {"name": True, "is": True})
    size = inner.number(found, "is")
    if not size or size < 0:
        raise inner.key("is").error("it must be above 0")
    return size, inner.text(found, "name")


def read_bounds(place: Place, row: Json, theirs: float | None, unit: str) -> tuple[Bounds, bool]:
    """In the row's unit, and whether they are a part of theirs."""
    low, high = place.number(row, "low"), place.number(row, "high")
    within = row.get("within")
    if (within is None) == (low is None and high is None):
        raise place.error("it must have either the key 'within', or 'low' or 'high' or both")
    if within is None:
        if low is not None and high is not None and low > high:
            raise place.error(f"'low' ({low:g}) is above 'high' ({high:g})")
        if high is None:
            assert low is not None
            return Bounds(low, math.inf, f"at least {with_unit(low, unit)}"), True
        if low is None:
            return Bounds(-math.inf, high, f"at most {with_unit(high, unit)}"), True
        return Bounds(low, high, f"{with_unit(low, unit)} to {with_unit(high, unit)}"), True
    if theirs is None:
        raise place.key("within").error("it is a distance from the key 'theirs', which is missing")
    is_part = isinstance(within, str)
    distance: float | None
    if is_part:
        try:
            distance = float(within.removesuffix("%")) / 100 if within.endswith("%") else None
        except ValueError:
            distance = None
        if distance is not None and theirs == 0:
            raise place.key("within").error("a part of 0 is 0; it must be a number, since 'theirs' is 0")
    else:
        distance = place.number(row, "within")
    if distance is None or not 0 <= distance < math.inf:
        raise place.key("within").error(
            f'{json.dumps(within)} must be a part such as "10%", or a number of the row\'s unit'
        )
    text = f"±{within}" if is_part else f"±{distance_text(distance, unit)}"
    away = distance * abs(theirs) if is_part else distance
    return Bounds(theirs - away, theirs + away, text), is_part


def read_of(place: Place, found: Any, name: str = "of") -> Json:
    inner = place.key(name)
    of = inner.check_keys(found, OF_KEYS, {})
    for key, value in of.items():
        is_good = isinstance(value, OF_KEYS[key]) and not isinstance(value, bool)
        if not is_good or (isinstance(value, list) and not all(isinstance(each, str) for each in value)):
            words = {str: "a text", int: "a whole number", list: "a list of texts"}
            raise inner.key(key).error(f"it must be {words[OF_KEYS[key]]}")
    return of


def read_row(place: Place, row: Any, common: Json) -> Row:
    found = place.check_keys(row, ROW_KEYS, ROW_KEYS)
    what = place.text(found, "what")
    try:
        find = finder_of(what)
    except StudyError as error:
        raise place.key("what").error(str(error)) from error
    theirs = place.number(found, "theirs")
    says = place.text(found, "says", "")
    if theirs is None and not says:
        raise place.error("key 'theirs' is missing, and so is 'says': what the paper says in place of a number")
    unit, unit_name = read_unit(place, found)
    bounds, is_relative = read_bounds(place, found, theirs, unit_name)
    place.text(found, "bounds", "")
    of = {**common, **read_of(place, found.get("of", {}))}
    other = {**of, **read_of(place, found["more_than"], "more_than")} if "more_than" in found else None
    if other == of:
        raise place.key("more_than").error("it must say in what that study is another one than the row's")
    return Row(
        name=place.text(found, "name"),
        what=what,
        find=find,
        theirs=theirs,
        theirs_text=says or with_unit(theirs or 0.0, unit_name),
        bounds=bounds,
        unit=unit,
        unit_name=unit_name,
        is_relative=is_relative,
        of=of,
        more_than=other,
    )


def read_table(path: str) -> Table:
    """The table of a file. Raises a StudyError that says file, row and key."""
    try:
        contents = Path(path).read_text("utf-8")
    except OSError as error:
        raise StudyError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StudyError(f"{path} is no JSON: {error}") from error
    try:
        found = json.loads(contents)
    except ValueError as error:
        raise StudyError(f"{path} is no JSON: {error}") from error
    place = Place(path)
    table = place.check_keys(found, TABLE_KEYS, TABLE_KEYS)
    rows = table["rows"]
    if not isinstance(rows, list) or not rows:
        raise place.key("rows").error("it must be a list of at least one row")
    common = read_of(place, table.get("of", {}))

    def row_place(index: int) -> Place:
        name = rows[index].get("name") if isinstance(rows[index], dict) else None
        return Place(path, f"row {index + 1}" + (f" ('{name}')" if isinstance(name, str) else ""))

    return Table(
        title=place.text(table, "title"),
        source=place.text(table, "source"),
        bounds=place.text(table, "bounds", ""),
        rows=[read_row(row_place(index), row, common) for index, row in enumerate(rows)],
    )
