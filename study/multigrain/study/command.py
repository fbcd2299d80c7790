"""The command line of mgstudy: reads it, runs a study, prints its table, and writes JSON, CSV and the report."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from multigrain.study import metrics, studies
from multigrain.study.figures import duration
from multigrain.study.files import FormatError, parse_versioned, write_whole
from multigrain.study.packages import missing_packages
from multigrain.study.results import csv_text, print_failures, print_study
from multigrain.study.runs import (
    Cache,
    Json,
    Result,
    Runner,
    StudyError,
    file_hash,
    find_program,
    interruptible,
    machine,
)

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

BAD_USAGE = 2
# mgrun's options that a study hands on, with a word for what each takes. They are here and not asked of mgrun, so that
# --help works without one; tests/manual compares names, words and values with what mgrun says.
HANDED_ON = {
    "net": (
        "MODEL",
        "the network between the nodes: a name that mgrun --net list shows, or figures (default: mgs, 50us)",
    ),
    "protocol": ("NAME", "the coherence protocol"),
    "page-size": ("BYTES", "the unit of coherence"),
    "home": ("WHERE", "where pages are at home: auto, interleaved, blocked or first-touch"),
    "prefetch": ("PAGES", "how far to read ahead"),
    "access": ("HOW", "access rights by auto, userfault or mprotect"),
    "fabric": ("KIND", "what connects the nodes: shm or ucx"),
    "clock-scale": ("FACTOR", "the emulated processors take FACTOR times the time of this machine's (virtual clock)"),
    "skew": ("TIME", "how far a processor may run ahead of the slowest, such as 100us (virtual clock)"),
}
DESCRIPTION = """\
How would a program run on a cluster of shared-memory machines? mgstudy keeps the number of processors P, varies how many
of them, C, are in a node, runs the program with mgrun on each machine of this family, and shows where the time goes and
what the family's two metrics are:

  breakup penalty        how much longer it takes on two nodes (C = P/2) than on one (C = P)
  multigrain potential   how much faster it is in nodes of P/2 than in nodes of one processor

  mgstudy family --procs 32 --net tcp-10g -- ./water --size test     every C: table and report
  mgstudy latency --procs 32 -- ./jacobi                             against the network's latency
  mgstudy width --procs 64 -- ./fft                                  what wider nodes change
  mgstudy compare --procs 16 --add-args '--variant tiled' -- ./water-kernel
  mgstudy report                                                     the last study's report again
"""
EPILOGUE = """\
A program marks what is measured with mg_profile_reset() and mg_profile_stop(). Exit status: 0 if every run succeeded,
1 if some failed (the others are shown), 2 for bad usage, 130 when interrupted: the same command goes on where it stopped.
"""


class Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=min(110, shutil.get_terminal_size((110, 24)).columns - 2))


class Parser(argparse.ArgumentParser):
    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        # argparse's own way, from Python 3.11.5 on, ignores that the text could not be written.
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_USAGE, f"mgstudy: {message} ({self.prog} --help lists the options)\n")


def positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e7:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return value


def whole_numbers(text: str) -> list[int]:
    return sorted({positive(each) for each in text.split(",")})


def add_common(parser: argparse.ArgumentParser) -> None:
    study = parser.add_argument_group("the study")
    study.add_argument("-p", "--procs", type=positive, required=True, metavar="P", help="processors of every machine")
    study.add_argument(
        "--node-sizes",
        type=whole_numbers,
        metavar="C,C...",
        help="only these processors a node (default: all that divide P)",
    )
    study.add_argument(
        "-r",
        "--repetitions",
        type=positive,
        default=3,
        metavar="N",
        help="runs of each machine; shown are the median and the spread (default 3)",
    )
    study.add_argument(
        "--time-limit", type=seconds, default=600.0, metavar="SECONDS", help="of real time, for one run (default 600)"
    )
    study.add_argument(
        "--no-sequential",
        action="store_true",
        help="leave out the run on one processor, and with it speedups and fine grain",
    )
    emulated = parser.add_argument_group("the machine, as for mgrun")
    for name, (value, text) in HANDED_ON.items():
        emulated.add_argument(f"--{name}", metavar=value, help=text)
    emulated.add_argument(
        "--clock",
        choices=("virtual", "wall"),
        default="virtual",
        help="times are those of the emulated machine (virtual, the default), or of this one (wall)",
    )
    emulated.add_argument(
        "--binary",
        action="store_true",
        help="the program knows nothing of Multigrain; {procs} in its arguments is the number of processors of the run",
    )
    emulated.add_argument(
        "--mgrun-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="any other option of mgrun, such as --mgrun-option=--no-pin",
    )
    emulated.add_argument("--mgrun", metavar="PATH", help="the mgrun to use (default: the one beside mgstudy)")
    kept = parser.add_argument_group("what is kept")
    kept.add_argument(
        "--cache",
        default=".mgstudy",
        metavar="DIR",
        help="where results are kept, so that a study goes on (default .mgstudy)",
    )
    kept.add_argument(
        "--depends",
        action="append",
        default=[],
        metavar="FILE",
        help="a file that the program reads: with other contents results are measured again",
    )
    kept.add_argument("--fresh", action="store_true", help="measure again what is kept")
    add_outputs(kept)


def add_outputs(group: argparse._ActionsContainer) -> None:
    group.add_argument("-o", "--report", metavar="HTML", help="the report (default: mgstudy-KIND-PROGRAM.html here)")
    group.add_argument("--no-report", action="store_true", help="write no report")
    group.add_argument("--json", metavar="FILE", help="the study as JSON (docs/user/mgstudy.md); - is standard output")
    group.add_argument("--csv", metavar="FILE", help="a row for each machine as CSV; - is standard output")
    group.add_argument("-q", "--quiet", action="store_true", help="no table and no progress")


def make_parser() -> Parser:
    parser = Parser(
        prog="mgstudy", description=DESCRIPTION, epilog=EPILOGUE, formatter_class=Formatter, allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="kind", metavar="STUDY", required=True, parser_class=Parser)

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary,
            allow_abbrev=False,
            formatter_class=Formatter,
            usage=f"mgstudy {name} --procs P [OPTIONS] -- PROGRAM [ARGUMENTS...]",
        )
        add_common(sub)
        sub.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
        return sub

    add("family", "times and breakdown of every C for one P, with the metrics and the program's class")
    latency = add("latency", "execution time against the network's latency, with its slope, for some C")
    latency.add_argument(
        "--latencies",
        default=",".join(studies.LATENCIES),
        metavar="T,T...",
        help=f"one way (default {','.join(studies.LATENCIES)})",
    )
    add("width", "what wider nodes change: shares of time, rights changes, diffs, imbalance, page faults by processor")
    compare = add("compare", "families side by side: protocols, page sizes, variants of a program, builds of it")
    compare.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="OPTION=V,V...",
        help="an option of mgrun and its values, such as page-size=4K,16K; between values with commas write ;",
    )
    compare.add_argument(
        "--add-args",
        action="append",
        default=[],
        metavar="ARGS",
        help="compare with the program with these arguments more, such as '--variant tiled'",
    )
    compare.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="COMMAND",
        help="compare with another command, such as another build of the program",
    )
    again = commands.add_parser(
        "report",
        help="the report of a study that is done, again",
        usage="mgstudy report [STUDY.json] [OPTIONS]",
        description="Makes the report, or CSV, of a study that is done: of its JSON, or of the last one that the cache has.",
        allow_abbrev=False,
        formatter_class=Formatter,
    )
    again.add_argument(
        "study", nargs="?", metavar="STUDY.json", help="what --json wrote (default: the last study of the cache)"
    )
    again.add_argument("--cache", default=".mgstudy", metavar="DIR", help="where results are kept (default .mgstudy)")
    add_outputs(again)
    return parser


# From the command line to a plan.


def network_figures(mgrun: str, network: str) -> Json:
    """What mgrun --net list says of a network, if it knows it by name."""
    out: Json = {"given": network, "figures": network, "what": "", "source": ""}
    try:
        listing = subprocess.run(
            [mgrun, "--net", "list"], capture_output=True, text=True, timeout=20, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return out
    name, _, rest = network.partition(",")
    block = re.search(rf"^{re.escape(name)} +(\S+)\n +(.*)\n +Source: ((?:.*\n(?= ))*.*)", listing, re.M)
    if block:
        out |= {
            "figures": block[1] + (f", with {rest}" if rest else ""),
            "what": block[2],
            "source": " ".join(block[3].split()),
        }
    return out


def handed_on(options: argparse.Namespace, varied: Sequence[str] = ()) -> tuple[str, ...]:
    out: list[str] = []
    if options.clock != "wall":
        out += ["--clock", options.clock]
    for name in HANDED_ON:
        value = getattr(options, name.replace("-", "_"))
        if value is not None and name not in varied:
            out += [f"--{name}", value]
    return (*out, *(["--binary"] if options.binary else []), *options.mgrun_option)


def commands_of(options: argparse.Namespace) -> list[tuple[str, list[str]]]:
    """What is run, each with a label."""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise StudyError(
            f"there is no program to run; usage: mgstudy {options.kind} --procs {options.procs} -- PROGRAM [ARGUMENTS...]"
        )
    if command[0].startswith("-"):
        raise StudyError(f"unknown option '{command[0]}' (mgstudy {options.kind} --help lists the options)")
    named = shlex.join([Path(command[0]).name, *command[1:]])
    out = [(named, command)]
    if options.kind == "compare":
        try:
            out += [(more, command + shlex.split(more)) for more in options.add_args]
            out += [(other, shlex.split(other)) for other in options.against]
        except ValueError as error:
            raise StudyError(f"--add-args or --against: {error}") from error
        if any(not each for _, each in out):
            raise StudyError("--against names no program")
    return out


def make_series(options: argparse.Namespace) -> list[studies.Series]:
    varied: list[tuple[str, list[str]]] = []
    for text in getattr(options, "vary", []):
        name, equals, values = text.removeprefix("--").partition("=")
        choices = [value for value in values.split(";" if ";" in values else ",") if value]
        if not equals or name not in HANDED_ON or not choices:
            raise StudyError(
                f"--vary is '{text}'; it must be an option of mgrun and its values such as page-size=4K,16K; options: "
                + ", ".join(HANDED_ON)
            )
        varied.append((name, choices))
    fixed = handed_on(options, [name for name, _ in varied])
    series = []
    commands = commands_of(options)
    for label, command in commands:
        program = find_program(command[0])
        for values in itertools.product(*(choices for _, choices in varied)):
            extra = [word for (name, _), value in zip(varied, values) for word in (f"--{name}", value)]
            words = [f"{name} {value}" for (name, _), value in zip(varied, values)]
            if len(commands) > 1 or not words:
                words.insert(0, label)
            series.append(studies.Series(", ".join(words), program, tuple(command[1:]), (*fixed, *extra)))
    labels = [each.label for each in series]
    if len(set(labels)) < len(labels):
        raise StudyError(
            "two of what is compared are the same: " + next(label for label in labels if labels.count(label) > 1)
        )
    if options.kind == "compare" and len(series) < 2:
        raise StudyError("there is nothing to compare with: give --vary, --add-args or --against")
    return series


def make_plan(options: argparse.Namespace, series: Sequence[studies.Series]) -> list[studies.Point]:
    processors = options.procs
    if processors < 2:
        raise StudyError("a family has at least 2 processors (--procs)")
    every = metrics.node_sizes(processors)
    if options.kind == "latency":
        # Figures 18 to 20 have 1, 4 and 16 of 32.
        usual = [size for size in (1, 4, 16) if size in every[:-1]] or every[:-1]
        latencies = sorted({studies.parse_latency(each) for each in options.latencies.split(",")})
        if len(latencies) < 2:
            raise StudyError("--latencies must be at least two different times")
        fixed = [
            studies.Series(each.label, each.program, each.arguments, handed_on(options, ["net"])) for each in series
        ]
        return studies.plan_latency(fixed[0], processors, options.node_sizes or usual, latencies, options.net)
    return studies.plan_family(series, processors, options.node_sizes or every, not options.no_sequential)


def describe(
    options: argparse.Namespace, argv: Sequence[str], runner: Runner, series: Sequence[studies.Series]
) -> Json:
    first = series[0]
    return {
        "title": shlex.join([Path(first.program).name, *first.arguments]),
        "command": shlex.join(["mgstudy", *argv]),
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "processors": options.procs,
        "clock": options.clock,
        "repetitions": options.repetitions,
        "network": network_figures(runner.mgrun, options.net),
        "options": [each for each in shlex.join(first.options).split(" --") if each],
        "machine": machine(),
        "programs": [
            {"path": each.program, "arguments": list(each.arguments), "sha256": file_hash(each.program)}
            for each in {(one.program, one.arguments): one for one in series}.values()
        ],
    }


# What is seen while it runs.


def point_name(point: studies.Point) -> str:
    words = ["one processor" if point.role == "sequential" else f"C = {point.node_size}"]
    if point.latency_ns is not None:
        words.append(studies.latency_text(point.latency_ns))
    return ", ".join(words)


class Bar(studies.Progress):
    """A progress bar on a terminal; a line for each run elsewhere."""

    def __init__(self, series: int, repetitions: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.console = Console(stderr=True, highlight=False)
        self.series, self.repetitions = series, repetitions
        self.total = self.finished = 0
        self.seconds: dict[str, float] = {}  # of real time, of a run of each kind
        self.pending: list[str] = []
        self.began = time.monotonic()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )

    def begin(self, total: int, cached: int) -> None:
        self.total = total
        if cached:
            self.console.print(f"mgstudy: {cached} of {total + cached} runs are in the cache", soft_wrap=True)
        self.bar.start()
        self.task = self.bar.add_task("starting", total=total, left="")

    def name(self, point: studies.Point, repetition: int) -> str:
        words = point_name(point)
        if self.series > 1:
            words = f"{point.series.label}: {words}"
        return words + (f", run {repetition + 1} of {self.repetitions}" if self.repetitions > 1 else "")

    def running(self, point: studies.Point, repetition: int) -> None:
        from rich.markup import escape

        self.bar.update(self.task, description=escape(self.name(point, repetition)))

    def done(self, point: studies.Point, repetition: int, result: Result) -> None:
        self.finished += 1
        spent = time.monotonic() - self.began
        left = spent / self.finished * (self.total - self.finished)
        self.bar.update(
            self.task, completed=self.finished, left=f"about {left:.0f} s left" if self.finished < self.total else ""
        )
        if not self.console.is_terminal:
            said = result.problem or duration(result.elapsed_ns, "us")
            print(
                f"mgstudy: [{self.finished}/{self.total}] {self.name(point, repetition)}: {said}",
                file=sys.stderr,
                flush=True,
            )

    def end(self) -> None:
        self.bar.stop()


def put(path: str, contents: str) -> None:
    if path == "-":
        sys.stdout.write(contents)
        return
    try:
        write_whole(path, contents)
    except OSError as error:
        raise StudyError(f"cannot write {path}: {error.strerror}") from error


def default_report(study: Json) -> str:
    program = re.sub(r"[^A-Za-z0-9_.-]", "-", Path(study["programs"][0]["path"]).name)
    return f"mgstudy-{study['kind']}-{program}.html"


def write_outputs(options: argparse.Namespace, study: Json) -> None:
    if options.json:
        put(options.json, json.dumps(study, indent=1) + "\n")
    if options.csv:
        put(options.csv, csv_text(study))
    if options.no_report:
        return
    from multigrain.study.study_report import StudyReport

    path = options.report or default_report(study)
    put(path, StudyReport(study).html())
    if not options.quiet:
        print(f"Report: {path}", file=sys.stderr)


def check_outputs(options: argparse.Namespace) -> None:
    """Before minutes of work: can the files be written where they shall be?"""
    if options.report and options.no_report:
        raise StudyError("--report and --no-report exclude each other")
    for path in (options.report, options.json, options.csv):
        if path and path != "-" and not os.path.isdir(os.path.dirname(path) or "."):
            raise StudyError(f"cannot write {path}: there is no folder '{os.path.dirname(path)}'")
        if path and os.path.isdir(path):
            raise StudyError(f"cannot write {path}: it is a folder")
    if options.json == options.csv == "-":
        raise StudyError("--json and --csv cannot both be standard output")


def read_study(path: Path) -> Json:
    try:
        return parse_versioned(path.read_text("utf-8"), str(path), studies.SCHEMA, studies.VERSION, "mgstudy --json")
    except OSError as error:
        raise StudyError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StudyError(f"{path} is no JSON: {error}") from error
    except FormatError as error:
        raise StudyError(str(error)) from error


def report_again(options: argparse.Namespace) -> int:
    check_outputs(options)
    path = Path(options.study) if options.study else Path(options.cache) / "last-study.json"
    if not options.study and not path.exists():
        raise StudyError(f"the cache '{options.cache}' has no study yet")
    study = read_study(path)
    try:
        if not options.quiet and "-" not in (options.json, options.csv):
            print_study(study)
        write_outputs(options, study)
    except (KeyError, IndexError, TypeError) as error:
        raise StudyError(f"{path} lacks what a report needs ({type(error).__name__}: {error})") from error
    return 1 if studies.failed_points(study) else 0


def run_study(options: argparse.Namespace, argv: Sequence[str], tools: Path) -> int:
    check_outputs(options)
    options.net = options.net or "mgs"
    mgrun = options.mgrun or str(tools / "mgrun")
    if not os.access(mgrun, os.X_OK):
        raise StudyError(f"there is no mgrun at '{mgrun}' (--mgrun)")
    runner = Runner(
        mgrun, Cache(Path(options.cache)), options.depends, options.time_limit, options.fresh, options.clock
    )
    for path in options.depends:
        runner.cache.hash_of(path)
    series = make_series(options)
    points = make_plan(options, series)
    description = describe(options, argv, runner, series)
    progress = studies.Progress() if options.quiet else Bar(len(series), options.repetitions)
    with interruptible():
        results = studies.execute(points, options.repetitions, runner, progress)
    study = studies.assemble(options.kind, results, description)
    write_whole(str(runner.cache.directory / "last-study.json"), json.dumps(study) + "\n")
    # What goes to standard output for a program must be alone there.
    if not options.quiet and "-" not in (options.json, options.csv):
        print_study(study)
    sys.stdout.flush()
    print_failures(study)
    write_outputs(options, study)
    return 1 if studies.failed_points(study) else 0


def main(argv: Sequence[str], tools: Path) -> int:
    """`tools` is where mgrun is."""
    options: Any = make_parser().parse_args(argv)
    try:
        sentence = missing_packages(["rich", "plotly"], "mgstudy needs")
        if sentence:
            raise StudyError(sentence)
        return report_again(options) if options.kind == "report" else run_study(options, argv, tools)
    except StudyError as error:
        print(f"mgstudy: {error}", file=sys.stderr)
        return BAD_USAGE
    except KeyboardInterrupt:
        print(
            "mgstudy: interrupted; what is measured is kept, and the same command goes on from there", file=sys.stderr
        )
        return 130
    except BrokenPipeError:  # the reader of our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
