"""mgstudy against: do studies agree with a paper's table, row by row?"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multigrain.study.conditions import conditions, has_spread, is_exact
from multigrain.study.page import number
from multigrain.study.runs import Json, StudyError
from multigrain.study.studies import read_study
from multigrain.study.study_figures import NOT_MEASURED, StudyFigure, series_of
from multigrain.study.tables import Row, Table, distance_text, read_table, with_unit
from multigrain.study.verdicts import AGREES, DIFFERS, NOT_DECIDED, Bounds, exact_verdict, verdict

MISSING = "not measured"
COLUMNS = ("", "theirs", "ours", "difference", "bound", "verdict")


@dataclass(frozen=True)
class Compared:
    row: Row
    ours: float | None  # in the row's unit; None: not measured
    verdict: str

    def cells(self) -> list[str]:
        row = self.row
        ours = "–" if self.ours is None else with_unit(self.ours, row.unit_name)
        return [row.name, row.theirs_text, ours, self.difference(), row.bounds.text, self.verdict]

    def difference(self) -> str:
        theirs = self.row.theirs
        if self.ours is None or theirs is None:
            return "–"
        if self.row.is_relative and theirs:
            return f"{100 * (self.ours - theirs) / abs(theirs):+.1f}%"
        less = distance_text(self.ours - theirs, self.row.unit_name)
        return less if less.startswith("-") else f"+{less}"


def is_about(of: Json, study: Json) -> bool:
    """Is the study the one that `of`, of a row, describes?"""
    program = study["programs"][0]
    path = Path(program["path"])
    has: dict[str, Sequence[Any]] = {
        "program": [path.name],
        "folder": [path.parent.name],
        "processors": [study["processors"]],
        "kind": [study["kind"]],
        "machine": [each["name"] for each in study.get("emulated", [])],
        "network": [study["network"]["given"]],
        "series": study["series"],
    }
    wanted = dict(of)
    arguments = Counter(wanted.pop("arguments", []))
    options = {option.removeprefix("--") for option in wanted.pop("options", [])}
    return (
        not arguments - Counter(program["arguments"])
        and options <= {option.removeprefix("--") for option in study.get("options", [])}
        and all(value in has[key] for key, value in wanted.items())
    )


def decide(row: Row, figure: StudyFigure, *studies: Json) -> str:
    """The verdict on a figure that was made from these studies."""
    if figure.value is None:
        return MISSING
    ours = figure.value / row.unit
    if any(study["clock"] == "counted" and not is_exact(study) for study in studies):
        return f"{NOT_DECIDED} (not exact)"
    if not any(map(has_spread, studies)):
        return exact_verdict(ours, row.bounds)
    if figure.spread is None:
        return f"{NOT_DECIDED} (spread not known)"
    # So that the spread, which a verdict tells, is a part of our figure.
    scale = abs(ours) or abs(row.theirs or 0.0) or 1.0
    bounds = Bounds(row.bounds.low / scale, row.bounds.high / scale, row.bounds.text)
    return verdict(ours / scale, figure.spread / row.unit / scale, bounds, figure.runs)


def find_figure(row: Row, of: Json, place: str, studies: Mapping[str, Json]) -> tuple[StudyFigure, Json | None]:
    """The row's figure of the study that `of` describes, and that study: none if it was not given."""
    found = {path: study for path, study in studies.items() if is_about(of, study)}
    if len(found) > 1:
        first, second = list(found)[:2]
        raise StudyError(f"{place}: both {first} and {second} are studies that it could be about; give one of them")
    for path, study in found.items():
        try:
            series = series_of(study, of.get("series"))
            return row.find(series) if series else NOT_MEASURED, study
        except StudyError as error:
            raise StudyError(f"{place}: key 'what': {error} ({path})") from error
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise StudyError(f"{path} lacks what {row.what} needs ({type(error).__name__}: {error})") from error
    return NOT_MEASURED, None


# A spread is as large a part of the quotient as those of both figures together.
def by_which_part_more(figure: StudyFigure, than: StudyFigure) -> StudyFigure:
    if figure.value is None or not than.value:
        return NOT_MEASURED
    ratio = figure.value / than.value
    spreads = [
        None if each.spread is None or not each.value else abs(each.spread / each.value) for each in (figure, than)
    ]
    spread = None if None in spreads else abs(ratio) * sum(each or 0.0 for each in spreads)
    # A figure without a spread may be exact, of one run.
    return StudyFigure(ratio - 1, spread, min(each.runs for each in (figure, than) if each.spread or not spread))


def compare(row: Row, place: str, studies: Mapping[str, Json]) -> Compared:
    """`place` is the row's, for a StudyError; `studies` are by the names of their files."""
    figure, study = find_figure(row, row.of, place, studies)
    used = [study] if study is not None else []
    if row.more_than is not None:
        than, other = find_figure(row, row.more_than, place, studies)
        figure = by_which_part_more(figure, than)
        used += [other] if other is not None else []
    if figure.value is None:
        return Compared(row, None, MISSING)
    return Compared(row, figure.value / row.unit, decide(row, figure, *used))


def counts(rows: Sequence[Compared]) -> str:
    """ "5 rows agree, 2 differ"."""
    of = Counter(
        next(each for each in (AGREES, DIFFERS, NOT_DECIDED, MISSING) if row.verdict.startswith(each)) for row in rows
    )
    words = {AGREES: ("agrees", "agree"), DIFFERS: ("differs", "differ")}
    words |= {each: (f"is {each}", f"are {each}") for each in (NOT_DECIDED, MISSING)}
    said = [f"{of[kind]} {words[kind][of[kind] != 1]}" for kind in words if of[kind]]
    return f"Of {number(len(rows))} row{'s' if len(rows) != 1 else ''} {', '.join(said)}."


def print_markdown(table: Table, rows: Sequence[Compared]) -> None:
    print(f"| {' | '.join(COLUMNS)} |\n|---|---:|---:|---:|---|---|")
    for row in rows:
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in row.cells()) + " |")
    print(f"\n{table.title} ({table.source}). {counts(rows)}" + (f" Bounds: {table.bounds}" if table.bounds else ""))


def print_table(table: Table, rows: Sequence[Compared], studies: Mapping[str, Json]) -> None:
    from rich import table as rich_table
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160  # a file has no right margin
    console.print(Text(f"\n{table.title}\n{table.source}"), soft_wrap=True)
    for path, study in studies.items():
        console.print(Text(f"{shlex.quote(path)}: {study['title']}: {conditions(study)}"), soft_wrap=True)
    shown = rich_table.Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        shown.add_column(name, justify="right" if name in COLUMNS[1:4] else "left", overflow="fold")
    for row in rows:
        shown.add_row(*map(Text, row.cells()))
    console.print(shown)
    if table.bounds:
        console.print(Text(f"Bounds: {table.bounds}"), style="dim")
    console.print(Text(counts(rows)))


def compare_with_table(table_path: str, study_paths: Sequence[str], markdown: bool) -> int:
    """Prints the table; returns the exit status."""
    table = read_table(table_path)
    studies = {path: read_study(Path(path)) for path in study_paths}
    try:
        rows = [
            compare(row, f"{table_path}: row {index + 1} ('{row.name}')", studies)
            for index, row in enumerate(table.rows)
        ]
        if markdown:
            print_markdown(table, rows)
        else:
            print_table(table, rows, studies)
    except (KeyError, IndexError, TypeError) as error:
        raise StudyError(
            f"a study lacks what mgstudy --json writes ({type(error).__name__}: {error}): {', '.join(study_paths)}"
        ) from error
    return 0 if all(row.verdict == AGREES for row in rows) else 1
