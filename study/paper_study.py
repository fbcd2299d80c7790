"""What the studies that repeat a paper's figures share: their options, and a run of mgstudy whose results are kept."""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys

MACHINES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "machines")
TABLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tables")


NONE = "–"


def row(*cells):
    print(f"| {' | '.join(cells)} |", flush=True)


def head(first, others, text_columns=0):
    row(first, *others)
    print("|---|" + "---|" * text_columns + "---:|" * (len(others) - text_columns))


class Tee(io.StringIO):
    """Shows what is kept."""

    def write(self, text):
        sys.__stdout__.write(text)
        sys.__stdout__.flush()
        return super().write(text)


def script_name():
    return os.path.basename(sys.argv[0])


def run_study(study, parser, sections):
    """Takes what the parser, made by counted_parser(), and the two options that come with sections say; prints what the
    methods of the study (a class) that are named print."""
    names = ", ".join(sections)
    parser.add_argument("sections", metavar="SECTION", nargs="*", help=f"of {names} (default: all)")
    parser.add_argument("--doc", metavar="FILE", help="the page whose tables to replace")
    options = parser.parse_args()
    for section in options.sections:
        if section not in sections:
            parser.error(f"there is no section '{section}'; the sections are {names}")
    if options.doc and options.sections:
        parser.error("--doc takes all sections")
    print_sections(study(options), options.sections or sections, options.doc)


def print_sections(study, sections, page):
    """Prints what the study's methods of these names print, each under its documentation; with a page, in place of what
    that has between its marks, too."""
    kept = Tee()
    with contextlib.redirect_stdout(kept):
        for i, section in enumerate(sections):
            run = getattr(study, section)
            print(f"{chr(10) if i else ''}## {run.__doc__}\n")
            run()
    if page:
        replace_tables(page, kept.getvalue())


def replace_tables(page, tables):
    begin_mark, end_mark = (f"<!-- {which}: {script_name()} -->" for which in ("begin", "end"))
    with open(page, encoding="utf-8") as file:
        text = file.read()
    before, begin, rest = text.partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not begin or not end:
        sys.exit(f"{script_name()}: {page} has no {begin_mark} ... {end_mark}")
    with open(page, "w", encoding="utf-8") as file:
        file.write(f"{before}{begin}\n\n{tables}\n{end}{after}")


def in_seconds(nanoseconds):
    return f"{nanoseconds / 1e9:.2f}" if nanoseconds else "failed"


def quotient(of, by):
    return f"{of / by:.2f}" if of and by else "failed"


def percent(part, of=1):
    return NONE if part is None or not of else f"{100 * part / of:.0f}%"


class CountedStudy:
    """A study in counted time of one emulated machine, `machine`, which is a file of machines/. Every run gives the same
    numbers."""

    machine = ""

    def __init__(self, options):
        self.options = options
        os.makedirs(options.out, exist_ok=True)

    def run(self, name, kind, *arguments):
        """Runs `mgstudy KIND ARGUMENTS`, leaves NAME.json and NAME.html in --out, and returns the study. That some of its
        points failed is no error."""
        path = os.path.join(self.options.out, f"{name}.json")
        command = [
            os.path.join(self.options.bin, "mgstudy"),
            kind,
            "--cache",
            self.options.cache,
            "--json",
            path,
            "--report",
            path.replace(".json", ".html"),
            "--quiet",
            *arguments,
        ]
        status = subprocess.run(command, check=False).returncode
        if status not in (0, 1):
            sys.exit(f"{script_name()}: {' '.join(command)} ended with status {status}")
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def family(self, name, program, processors, *arguments, machine=None):
        """What `mgstudy family` has of a program and its options: the points by node size, and 0 for one processor. What failed
        is not there."""
        study = self.run(
            name, "family", "--clock", "counted", "--machine", machine or self.machine, "--procs", str(processors),
            *self.how(), *arguments, "--", *program,
        )  # fmt: skip
        return {
            0 if point["role"] == "sequential" else point["node_size"]: point
            for point in study["points"]
            if point.get("elapsed_ns")
        }

    def against(self, table, labels, of=None):
        """Prints what `mgstudy against` says of a paper's table, and of those of the studies of these names that were made;
        with `of`, a word for its name, of a copy of the table that is about any machine."""
        path = os.path.join(TABLES, table)
        if of is not None:
            with open(path, encoding="utf-8") as file:
                contents = json.load(file)
            contents["of"] = {key: value for key, value in contents["of"].items() if key != "machine"}
            path = os.path.join(self.options.out, f"of-{of}-{table}")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(contents, file)
        files = [os.path.join(self.options.out, f"{label}.json") for label in dict.fromkeys(labels)]
        files = list(filter(os.path.exists, files))
        if not files:
            print("Nothing that the table is about was measured.")
            return
        command = [os.path.join(self.options.bin, "mgstudy"), "against", path, *files, "--markdown"]
        run = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        if run.returncode not in (0, 1):
            sys.exit(f"{script_name()}: {' '.join(command)} ended with status {run.returncode}")
        print(run.stdout, end="", flush=True)

    def how(self):
        """The options of mgstudy for runs in counted time."""
        skew = ["--skew", self.options.skew] if self.options.skew else []
        return ["--jobs", str(self.options.jobs), *skew]

    def changed_machine(self, name, what, change, path=None):
        """The path of a description that is that of the file, or the machine's, but for what `change` does to it, and its
        name and `what`."""
        with open(path or os.path.join(MACHINES, f"{self.machine}.json"), encoding="utf-8") as file:
            description = json.load(file)
        change(description)
        description["name"], description["what"] = name, what
        path = os.path.join(self.options.out, f"{name}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(description, file, indent=1)
        return path

    def slowed_machine(self, name, factor):
        """The machine with instructions and library functions that take `factor` times as long; all else is as it was."""

        def slow(description):
            processor = description["processor"]
            for part in ("instructions", "calls"):
                processor[part] = {key: slowed(value, factor) for key, value in processor[part].items()}

        what = f"{self.machine} with instructions that take {factor:.4g} times as long"
        return self.changed_machine(f"{self.machine}-{name}", what, slow)


def slowed(price, factor):
    """A price of a machine description, which may have parts, `factor` times; words are left as they are."""
    if isinstance(price, dict):
        return {key: slowed(value, factor) for key, value in price.items()}
    return price * factor if isinstance(price, (int, float)) else price


def counted_parser(description, out):
    """A parser of what all of them understand; `out` is where reports go if nothing else is said."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin", help="where mgstudy and workloads/ are (default build/bin)")
    parser.add_argument("--cache", default=".mgstudy", help="where mgstudy keeps results (default .mgstudy)")
    parser.add_argument("--out", default=out, help=f"where reports go (default {out})")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default 1)")
    parser.add_argument("--skew", default="500us", help="mgrun's (default %(default)s)")
    return parser
