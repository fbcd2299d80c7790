#!/usr/bin/env python3
"""Draws the figures of docs/studies/mgs-study.md and genima-study.md from the tables that stand in these pages, so that a figure and
the table beside it say the same.

    study/page_figures.py                # into docs/pictures
    study/page_figures.py --into FOLDER

Of figures 4 to 7 of GeNIMA, which show each processor, the pages have no table. They are drawn from the studies that
genima_study.py has left in its folder, if that is given (--studies genima-study).
"""

import argparse
import json
import os
import re
import sys

from multigrain.study.files import write_whole
from multigrain.study.study_drawings import WORDS, drawing
from multigrain.study.svg import ORDER, Bar, Line, Panel, figure, short

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PARTS = tuple(WORDS)
SIZES = ("1", "2", "4", "8", "16", "32")
BELOW = "C, processors of a node"


def tables_of(page, heading):
    """The tables below the heading that begins so: lists of rows, which are lists of cells, with the head first."""
    with open(os.path.join(ROOT, "docs", "studies", page), encoding="utf-8") as file:
        lines = file.read().split("\n")
    starts = [i for i, line in enumerate(lines) if line.startswith(f"## {heading}")]
    if len(starts) != 1:
        sys.exit(f"page_figures.py: {page} has {len(starts)} headings that begin with '{heading}'")
    tables, table = [], []
    for line in [*lines[starts[0] + 1 :], "## "]:
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split("|")])
        elif table:
            tables.append([row for row in table if not re.fullmatch(r":?-+:?", row[0])])
            table = []
        if line.startswith("## "):
            break
    return tables


def value(cell):
    """The number in a cell such as 1,014%, 2.22 or 31.6 ms; None: it has none."""
    found = re.match(r"[-+]?[\d,]*\.?\d+", cell)
    return float(found[0].replace(",", "")) if found else None


def times_of(table):
    """By the first cell of each row, its times by node size."""
    columns = {i: re.fullmatch(r"C = (\d+), s", name) for i, name in enumerate(table[0])}
    return {row[0]: {columns[i][1]: value(cell) for i, cell in enumerate(row) if columns[i]} for row in table[1:]}


def family_panels(times, shares):
    panels = []
    for name, by_size in times.items():
        bars = []
        for size in SIZES:
            time = by_size[size]
            own = shares.get((name, size))
            parts = [(part, time * share / 100) for part, share in own.items()] if own else [("whole", time)]
            bars.append([Bar(parts, short(time))])
        panels.append(Panel(f"{name}: s", SIZES, bars, below=BELOW))
    return panels


def mgs_families():
    times = times_of(tables_of("mgs-study.md", "Figures 6 to 13: the machine as its description has it")[0])
    breakdown = tables_of("mgs-study.md", "Where an average processor's time goes")[0]
    columns = [breakdown[0].index(WORDS[part]) for part in PARTS]
    shares = {
        (row[0], row[1]): {part: value(row[column]) for part, column in zip(PARTS, columns)} for row in breakdown[1:]
    }
    return figure(
        "MGS, figures 6 to 13: 32 processors in nodes of C, the machine as its description has it",
        "Execution times in seconds of eight applications, divided into where an average processor's time went",
        family_panels(times, shares),
        WORDS if all((name, "1") in shares for name in times) else {**WORDS, "whole": "not divided"},
    )


def mgs_slowed():
    times = times_of(tables_of("mgs-study.md", "Figures 6 to 13 with processors on which")[0])
    return figure(
        "MGS, figures 6 to 13: with processors on which one takes the paper's times",
        "Execution times in seconds of eight applications",
        family_panels(times, {}),
        {"whole": "execution time"},
    )


def mgs_transformations():
    times = times_of(tables_of("mgs-study.md", "Figures 14 to 17")[0])
    programs = {}
    for name, by_size in times.items():
        program, variant = name.split(", ")
        programs.setdefault(program, {})[variant] = by_size
    panels = []
    for program, variants in programs.items():
        bars = [
            [
                Bar([(kind, by_size[size])])
                for kind, by_size in zip(ORDER, variants.values())
                if by_size[size] is not None
            ]
            for size in SIZES
        ]
        panels.append(Panel(f"{program} ({', '.join(variants)}): s", SIZES, bars, below=BELOW))
    most = max(len(variants) for variants in programs.values())
    legend = dict(zip(ORDER[:most], ("original", "first transformation", "second", "third")))
    return figure(
        "MGS, figures 14 to 17: what the transformations change",
        "Execution times in seconds of variants of applications, by node size",
        panels,
        legend,
    )


def mgs_latency():
    """Increases against 50 us, theirs dashed."""
    table = tables_of("mgs-study.md", "Figures 18 to 20")[0]
    found, labels = {}, {}
    for name, theirs, ours, *_ in table[1:]:
        *program, size, latency = name.split(", ")
        label = ", ".join(program)
        labels.setdefault(label, ["50us"])
        if latency not in labels[label]:
            labels[label].append(latency)
        found[label, size, latency] = value(theirs), value(ours)
    sizes = ("C = 1", "C = 4", "C = 16")
    panels = []
    for label, latencies in labels.items():
        lines = []
        for kind, size in zip(ORDER, sizes):
            for which, dashed in ((0, " theirs"), (1, "")):
                points = [(0, 0.0)]
                points += [(i, found[label, size, latencies[i]][which]) for i in range(1, len(latencies))]
                lines.append(Line(kind + dashed, points))
        panels.append(Panel(f"{label}: longer than at 50 us, %", latencies, lines=lines, below="latency between nodes"))
    legend = {f"line {kind}": size for kind, size in zip(ORDER, sizes)}
    return figure(
        "MGS, figures 18 to 20: latency",
        "By how many percent execution takes longer than at 50 us; the paper's figures are dashed",
        panels,
        {**legend, "line first theirs": "the paper's"},
    )


def genima_rights():
    """What the machines' descriptions state."""
    panels = []
    for name in ("genima-myrinet", "genima-origin"):
        with open(os.path.join(ROOT, "machines", f"{name}.json"), encoding="utf-8") as file:
            costs = json.load(file)["costs"]
        curve = costs["revoke_call"]["value"] if isinstance(costs["revoke_call"], dict) else costs["revoke_call"]
        unit = (
            costs["revoke_call"].get("unit", costs["unit"]) if isinstance(costs["revoke_call"], dict) else costs["unit"]
        )
        if not isinstance(curve, list):
            curve = [[1, curve]]
        labels = [str(count) for count, _ in curve]
        panels.append(
            Panel(
                f"{name}: {unit} a call",
                labels,
                [[Bar([("protocol", cost)], short(cost))] for _, cost in curve],
                below="processors of the node",
            )
        )
    return figure(
        "GeNIMA, figure 3: a call that takes rights away, as the machines' descriptions have it",
        "Costs of a call by the processors of a node",
        panels,
        {"protocol": "revoke_call"},
    )


def genima_processors(studies, variant):
    path = os.path.join(studies, f"fft-{variant}-20.json")
    with open(path, encoding="utf-8") as file:
        study = json.load(file)
    return drawing({**study, "kind": "width"})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", default=os.path.join(ROOT, "docs", "pictures"), metavar="FOLDER")
    parser.add_argument("--studies", metavar="FOLDER", help="what genima_study.py has left")
    options = parser.parse_args()
    made = {
        "mgs-figures-6-13": mgs_families,
        "mgs-figures-6-13-slowed": mgs_slowed,
        "mgs-figures-14-17": mgs_transformations,
        "mgs-figures-18-20": mgs_latency,
        "genima-figure-3": genima_rights,
    }
    if options.studies:
        made["genima-figures-4-6"] = lambda: genima_processors(options.studies, "staggered")
        made["genima-figures-5-7"] = lambda: genima_processors(options.studies, "balanced")
    for name, make in made.items():
        path = os.path.join(options.into, f"{name}.svg")
        write_whole(path, make())
        print(path)


if __name__ == "__main__":
    main()
