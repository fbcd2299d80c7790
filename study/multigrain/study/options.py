"""The options of mgstudy and its subcommands, with what --help says of them."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import TYPE_CHECKING, NoReturn

from multigrain.study import studies

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

BAD_USAGE = 2
# mgrun's options that a study hands on, with a word for what each takes. They are here and not asked of mgrun, so that
# --help works without one; tests/manual compares names, words and values with what mgrun says.
HANDED_ON = {
    "net": (
        "MODEL",
        "the network between the nodes: a name that mgrun --net list shows, or figures (default: mgs, 50us; with "
        "the counted clock the machine's)",
    ),
    "machine": (
        "NAME|FILE",
        "with --clock counted, the emulated machine: a name that mgrun --machine list shows (default: today-rdma), or a "
        "file with a description",
    ),
    "perturb": ("TIME", "with --seeds, how late a processor starts at most (default: as much as --skew)"),
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
  mgstudy family --procs 32 --clock counted --machine alewife -- ./water      exact; many runs at a time
  mgstudy placement --procs 4 -- ./water                             are its pages where they should be?
  mgstudy against table.json study.json                              does it agree with a paper's table?
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
        metavar="N",
        help="runs of each machine; shown are the median and the spread (default 3; 1 with the counted clock, since every "
        "run gives the same numbers)",
    )
    study.add_argument(
        "--seeds",
        type=positive,
        metavar="K",
        help="with the counted clock, K runs of each machine in which processors start late by lengths that the seeds 1 to K "
        "choose (mgrun --seed, --perturb); shown are the median and the spread",
    )
    study.add_argument(
        "-j",
        "--jobs",
        type=positive,
        metavar="N",
        help="with the counted clock, runs at a time (default: as many as there are cores to use); by other clocks runs "
        "would disturb each other, and go one after the other",
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
        choices=("virtual", "wall", "counted"),
        default="virtual",
        help="times are those of the emulated machine, by the CPU time that was measured here (virtual, the default) or by "
        "what the program executes, the same in every run (counted: of programs by mgcc -fmultigrain-count); or those of "
        "this machine (wall)",
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
    group.add_argument("--figure", metavar="SVG", help="the study's figure, for a page or a paper")
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
    placement = commands.add_parser(
        "placement",
        help="how well a policy of mgrun --protocol placement places a program's pages",
        usage="mgstudy placement --procs P [OPTIONS] -- PROGRAM [ARGUMENTS...]",
        description="Runs the program with a policy (T_numa), with all pages in global memory (T_global) and on one processor\n"
        "(T_local), and prints what Bolosky's Tables 3.1 and 3.2 have: alpha, beta, gamma, and the manager's own time.\n"
        "{procs} in the program's arguments is the number of processors of the run. On this machine, by the wall clock.",
        allow_abbrev=False,
        formatter_class=Formatter,
    )
    placement.add_argument(
        "-p", "--procs", type=positive, required=True, metavar="P", help="nodes, of one processor each"
    )
    placement.add_argument("--policy", default="ace", metavar="NAME", help="as for mgrun (default ace)")
    placement.add_argument(
        "--ratio",
        type=seconds,
        metavar="G/L",
        help="how many times as long a reference to another node's memory takes as one to the own; without it beta is not told",
    )
    placement.add_argument("-r", "--repetitions", type=positive, default=3, metavar="N", help="of each run (default 3)")
    placement.add_argument(
        "--time-limit", type=seconds, default=600.0, metavar="SECONDS", help="of real time, for one run (default 600)"
    )
    placement.add_argument("--mgrun", metavar="PATH", help="the mgrun to use (default: the one beside mgstudy)")
    placement.add_argument(
        "--mgrun-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="any other option of mgrun, such as --no-pin",
    )
    placement.add_argument("--json", metavar="FILE", help="what was measured, as JSON; - is standard output")
    placement.add_argument("-q", "--quiet", action="store_true", help="no tables")
    placement.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    against = commands.add_parser(
        "against",
        help="whether studies agree with a paper's table, row by row",
        usage="mgstudy against TABLE.json STUDY.json... [OPTIONS]",
        description="Compares figures of studies with those of a paper's table, by bounds that the table states,\nand prints "
        "for each row whether they agree, if the spread of the runs allows to say that.",
        epilog="Exit status: 0 if every row agrees, 1 if one does not, is not decided or not measured, 2 for bad input.",
        allow_abbrev=False,
        formatter_class=Formatter,
    )
    against.add_argument("table", metavar="TABLE.json", help="the paper's table (docs/user/mgstudy.md)")
    against.add_argument("studies", nargs="+", metavar="STUDY.json", help="what mgstudy --json wrote")
    against.add_argument("--markdown", action="store_true", help="print the table for a page of Markdown")
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
