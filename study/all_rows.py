#!/usr/bin/env python3
"""Prints all rows of the papers' tables that the studies' pages compare with ours, on one page (docs/studies/all-rows.md).

usage: all_rows.py [--pages DIR] [--doc FILE]

The rows are those that `mgstudy against` has left in the pages: theirs, ours, the difference, the bound, and the verdict. So this
page says nothing that they do not say; it is made again when one of them is.
"""

import argparse
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


def counts_of(rows):
    """How many rows there are, and how many of each verdict. A verdict that is not known ends the script."""
    verdicts = [cells[-1] for cells in rows]
    if unknown := set(verdicts) - set(VERDICTS):
        raise SystemExit(f"{script_name()}: there are rows whose verdict is {', '.join(sorted(unknown))}")
    return [len(rows), *(verdicts.count(verdict) for verdict in VERDICTS)]


def text_of(pages):
    all_tables = [(paper, page, tables_of(os.path.join(pages, page))) for paper, page in PAGES]
    lines = ["| | table | rows | agree | differ | not measured |", "|---|---|---:|---:|---:|---:|"]
    total = [0] * 4
    for paper, page, tables in all_tables:
        for title, rows in tables:
            counts = counts_of(rows)
            total = [sum(pair) for pair in zip(total, counts)]
            lines.append(f"| [{paper}]({page}) | {title} | {' | '.join(map(str, counts))} |")
    lines.append(f"| all | | {' | '.join(map(str, total))} |")
    for paper, _, tables in all_tables:
        for title, rows in tables:
            lines += [
                "",
                f"## {paper}: {title}",
                "",
                f"| {' | '.join(COLUMNS)} |".replace("|  |", "| |"),
                "|---|---:|---:|---:|---|---|",
            ]
            lines += [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--pages", default=os.path.join(ROOT, "docs", "studies"), help="the folder of the studies' pages"
    )
    parser.add_argument("--doc", metavar="FILE", help="the page whose rows to replace")
    options = parser.parse_args()
    text = text_of(options.pages)
    print(text, end="")
    if options.doc:
        replace_tables(options.doc, text)


if __name__ == "__main__":
    main()
