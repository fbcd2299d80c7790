"""What the studies that repeat a paper's figures share: their options, and a run of mgstudy whose results are kept."""

import argparse
import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import time

# How often, and how far apart, one processor here is measured for a scale, and of how many runs each is the median.
MOMENTS = 5
SECONDS_BETWEEN_MOMENTS = 10
RUNS_OF_A_MOMENT = 3


def parser_of(description, out, repetitions):
    """A parser of what all of them understand; `out` is where reports go if nothing else is said. `repetitions` is None for
    studies in counted time, in which every run gives the same numbers."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin", help="where mgstudy and workloads/ are (default build/bin)")
    parser.add_argument("--cache", default=".mgstudy", help="where mgstudy keeps results (default .mgstudy)")
    parser.add_argument("--out", default=out, help=f"where reports go (default {out})")
    if repetitions is not None:
        parser.add_argument("--repetitions", type=int, default=repetitions)
    return parser


MACHINES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "machines")


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
    """Takes what the parser, made by parser_of(), and the two options that come with sections say; prints what the
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


def spread_text(spread):
    return "–" if spread is None else f"{100 * spread:.0f}%"


def percent(part, of=1):
    return NONE if part is None or not of else f"{100 * part / of:.0f}%"


class PaperStudy:
    def __init__(self, options):
        self.options = options
        self.measured = set()  # the names of the scales that have been measured in this run of the script
        os.makedirs(options.out, exist_ok=True)

    def program(self, name):
        return [os.path.join(self.options.bin, "workloads", name), "--size", "paper"]

    def scale_path(self, name):
        return os.path.join(self.options.out, f"scale-{name}.json")

    def moment(self, program):
        """Nanoseconds of one processor at this moment."""
        return statistics.median(self.alone(program) for _ in range(RUNS_OF_A_MOMENT))

    def scale(self, name, program, paper_ns):
        """How much slower the paper's processor was with this program, which took it `paper_ns`: from the time of one
        processor here at several moments, kept with the results so that the studies of a program have one scale. A run of
        the script that finds it kept measures once more, for what scale_spread() returns, and leaves the scale as it is."""
        path = self.scale_path(name)
        kept = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                kept = json.load(file)
            if not isinstance(kept, dict):
                sys.exit(f"{script_name()}: {path} is of an earlier version, which kept no spread: remove it")
        if not kept:
            moments = [self.moment(program)]
            for _ in range(MOMENTS - 1):
                time.sleep(SECONDS_BETWEEN_MOMENTS)
                moments.append(self.moment(program))
            kept = {"scale": paper_ns / statistics.median(moments), "alone_ns": moments}
        elif name not in self.measured:
            kept["alone_ns"].append(self.moment(program))
        if name not in self.measured:
            self.measured.add(name)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(kept, file)
        return kept["scale"]

    def scale_spread(self, name):
        """How far the lowest of the measurements behind scale() is from the highest, as a part of their median."""
        with open(self.scale_path(name), encoding="utf-8") as file:
            moments = json.load(file)["alone_ns"]
        return (max(moments) - min(moments)) / statistics.median(moments)

    def alone(self, program, *options):
        """Nanoseconds of one processor here."""
        stats = os.path.join(self.options.out, "profile.json")
        subprocess.run(
            [
                os.path.join(self.options.bin, "mgrun"),
                "--clock",
                "virtual",
                "--stats",
                f"json:{stats}",
                *options,
                *program,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with open(stats, encoding="utf-8") as file:
            elapsed = json.load(file)["run"]["elapsed_ns"]
        os.unlink(stats)
        return elapsed

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
        if "repetitions" in self.options:
            command[2:2] = ["--repetitions", str(self.options.repetitions)]
        status = subprocess.run(command, check=False).returncode
        if status not in (0, 1):
            sys.exit(f"{script_name()}: {' '.join(command)} ended with status {status}")
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def point(self, name, processors, nodes, program, *options):
        """What mgstudy has of one machine; None if it failed."""
        # mgstudy's families have at least two processors, and a run on one of them beside.
        alone = processors == 1
        family = (
            ["--procs", "2", "--node-sizes", "2"]
            if alone
            else ["--procs", str(processors), "--node-sizes", str(processors // nodes), "--no-sequential"]
        )
        study = self.run(name, "family", *family, *options, "--", *program)
        role = "sequential" if alone else "family"
        return next((point for point in study["points"] if point["role"] == role and point.get("elapsed_ns")), None)


class CountedStudy(PaperStudy):
    """A study in counted time of one emulated machine, `machine`, which is a file of machines/."""

    machine = ""

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
    parser = parser_of(description, out, None)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default 1)")
    parser.add_argument("--skew", default="500us", help="mgrun's (default %(default)s)")
    return parser
