#!/usr/bin/env python3
"""Prints all rows of the papers' tables that the studies' pages compare with ours, on one page (docs/studies/all-rows.md).

usage: all_rows.py [--pages DIR] [--causes FILE] [--doc FILE]

The rows are those that `mgstudy against` has left in the pages: theirs, ours, the difference, the bound, and the verdict. So this
page says nothing that they do not say; it is made again when one of them is. Beside a row that differs stands which of the causes
of the file (study/causes.json) makes it differ, each of which was found by an experiment that it names.
"""

import argparse
import json
import os
import re

from paper_study import replace_tables, script_name

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGES = (
    ("MGS", "mgs-study.md"),
    ("GeNIMA", "genima-study.md"),
    ("DSZOOM", "dszoom-study.md"),
    ("Shasta", "shasta-study.md"),
)
COLUMNS = ["", "theirs", "ours", "difference", "bound", "verdict"]
VERDICTS = ("agrees", "differs", "not measured")
CAUSES = os.path.join(ROOT, "study", "causes.json")


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables_of(page):
    """Returns the title and the rows of each table of a page that compares theirs with ours. The title is what the paragraph behind
    the table calls it, or the heading that it stands under, with the sentence before it, if that ends with a colon."""
    with open(page, encoding="utf-8") as file:
        blocks = file.read().split("\n\n")
    tables, heading, sentence = [], "", ""
    for block in blocks:
        lines = block.strip("\n").splitlines()
        if not lines:
            continue
        if lines[0].startswith("|"):
            if cells_of(lines[0]) == COLUMNS:
                tables.append(
                    [f"{heading}: {sentence}" if sentence else heading, [cells_of(line) for line in lines[2:]]]
                )
            sentence = ""
            continue
        if tables and (called := re.match(r"[A-Za-z]+, (.+?) \([A-ZŽ]\. .*Of \d+ rows", block)) and not sentence:
            tables[-1][0] = called[1][0].upper() + called[1][1:]
        if lines[0].startswith("## "):
            heading = lines[0][3:]
        sentence = lines[-1][:1].lower() + lines[-1][1:-1] if lines[-1].endswith(":") else ""
    return tables


class Causes:
    """Why rows differ: a list of objects with `name`, `cause` and `experiment` (sentences), and `rows`: of a paper, with a regular
    expression of a table's title and one of a row's name, which must match the whole of it."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.all = json.load(file)
        self.used = {each["name"]: 0 for each in self.all}

    def of(self, paper, title, cells):
        """The names of the causes of a row that differs."""
        if cells[-1] != "differs":
            return []
        found = [
            each["name"]
            for each in self.all
            if any(
                which["paper"] == paper and re.search(which["table"], title) and re.fullmatch(which["row"], cells[0])
                for which in each["rows"]
            )
        ]
        for name in found:
            self.used[name] += 1
        return found


def counts_of(rows):
    """How many rows there are, and how many of each verdict. A verdict that is not known ends the script."""
    verdicts = [cells[-1] for cells in rows]
    if unknown := set(verdicts) - set(VERDICTS):
        raise SystemExit(f"{script_name()}: there are rows whose verdict is {', '.join(sorted(unknown))}")
    return [len(rows), *(verdicts.count(verdict) for verdict in VERDICTS)]


def text_of(pages, causes_path=CAUSES):
    causes = Causes(causes_path)
    all_tables = [
        (paper, page, [(title, rows, [causes.of(paper, title, cells) for cells in rows]) for title, rows in tables])
        for paper, page in PAGES
        for tables in [tables_of(os.path.join(pages, page))]
    ]
    lines = ["| | table | rows | agree | differ | of these explained by an experiment | not measured |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    total = [0] * 5
    for paper, page, tables in all_tables:
        for title, rows, why in tables:
            number, agree, differ, missing = counts_of(rows)
            counts = [number, agree, differ, sum(map(bool, why)), missing]
            total = [sum(pair) for pair in zip(total, counts)]
            lines.append(f"| [{paper}]({page}) | {title} | {' | '.join(map(str, counts))} |")
    lines.append(f"| all | | {' | '.join(map(str, total))} |")
    if idle := [name for name, rows in causes.used.items() if rows == 0]:
        raise SystemExit(f"{script_name()}: no row that differs has the cause {', '.join(idle)}: {causes_path}")
    lines += ["", "## Causes", "", "| | what makes rows differ | shown by | rows |", "|---|---|---|---:|"]
    for each in causes.all:
        lines.append(f"| {each['name']} | {each['cause']} | {each['experiment']} | {causes.used[each['name']]} |")
    for paper, _, tables in all_tables:
        for title, rows, why in tables:
            lines += [
                "",
                f"## {paper}: {title}",
                "",
                f"| {' | '.join(COLUMNS)} | cause |".replace("|  |", "| |"),
                "|---|---:|---:|---:|---|---|---|",
            ]
            for cells, names in zip(rows, why):
                cause = ", ".join(names) if names else "unexplained" if cells[-1] == "differs" else ""
                lines.append(f"| {' | '.join(cells)} | {cause} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--pages", default=os.path.join(ROOT, "docs", "studies"), help="the folder of the studies' pages"
    )
    parser.add_argument("--causes", metavar="FILE", default=CAUSES, help="why rows differ")
    parser.add_argument("--doc", metavar="FILE", help="the page whose rows to replace")
    options = parser.parse_args()
    text = text_of(options.pages, options.causes)
    print(text, end="")
    if options.doc:
        replace_tables(options.doc, text)


if __name__ == "__main__":
    main()
