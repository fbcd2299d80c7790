"""The command line of mgstudy: runs what it asks for, prints its table, and writes JSON, CSV and the report."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from multigrain.study import metrics, studies
from multigrain.study.against import compare_with_table
from multigrain.study.files import write_whole
from multigrain.study.machines import DEFAULT_MACHINE, EmulatedMachine, emulated_machines, mgrun_lists, usable_cores
from multigrain.study.options import BAD_USAGE, HANDED_ON, make_parser
from multigrain.study.packages import missing_packages
from multigrain.study.placement import run_placement
from multigrain.study.progress import Bar
from multigrain.study.results import csv_text, print_failures, print_study
from multigrain.study.runs import (
    Cache,
    Json,
    Runner,
    StudyError,
    file_hash,
    find_program,
    interruptible,
    machine,
    option_of,
)

# From the command line to a plan.


def network_figures(mgrun: str, network: str) -> Json:
    """What mgrun --net list says of a network, if it knows it by name."""
    out: Json = {"given": network, "figures": network, "what": "", "source": ""}
    name, _, rest = network.partition(",")
    listing = mgrun_lists(mgrun, "--net")
    block = re.search(rf"^{re.escape(name)} +(\S+)\n +(.*)\n +Source: ((?:.*\n(?= ))*.*)", listing, re.M)
    if block:
        out |= {
            "figures": block[1] + (f", with {rest}" if rest else ""),
            "what": block[2],
            "source": " ".join(block[3].split()),
        }
    return out


def varied_options(options: argparse.Namespace) -> dict[str, list[str]]:
    """What --vary says: values by option."""
    varied: dict[str, list[str]] = {}
    for text in getattr(options, "vary", []):
        name, equals, values = text.removeprefix("--").partition("=")
        choices = [value for value in values.split(";" if ";" in values else ",") if value]
        if not equals or name not in HANDED_ON or not choices:
            raise StudyError(
                f"--vary is '{text}'; it must be an option of mgrun and its values such as page-size=4K,16K; options: "
                + ", ".join(HANDED_ON)
            )
        if name in varied:
            raise StudyError(f"--vary names the option {name} twice")
        varied[name] = choices
    return varied


def settle_clock(options: argparse.Namespace) -> None:
    """What the clock decides: defaults, and which options it excludes."""
    varied = varied_options(options)
    if options.clock != "counted":
        if options.machine is not None or "machine" in varied:
            raise StudyError(
                f"--machine does not go with --clock {options.clock}: it has the prices of what the counted clock counts; "
                "give --clock counted"
            )
        if options.jobs not in (None, 1):
            raise StudyError(
                f"--jobs {options.jobs} does not go with --clock {options.clock}: its times depend on the load, and runs at "
                "the same time would disturb each other; give --clock counted"
            )
        if options.seeds is not None:
            raise StudyError(
                f"--seeds does not go with --clock {options.clock}, whose runs differ anyway: give --repetitions, or "
                "--clock counted"
            )
        options.jobs, options.net = 1, options.net or "mgs"
        options.repetitions = options.repetitions or 3
        return
    if options.clock_scale is not None or "clock-scale" in varied:
        raise StudyError(
            "--clock-scale does not go with --clock counted: how fast processors are, the machine's prices of instructions "
            "say (--machine)"
        )
    if options.repetitions not in (None, 1):
        raise StudyError(
            f"--repetitions {options.repetitions} does not go with --clock counted: every run gives the same numbers, and "
            "one is enough; --seeds makes runs differ"
        )
    if options.seeds is None and (options.perturb is not None or "perturb" in varied):
        raise StudyError("--perturb says how late processors start with --seeds: give --seeds, too")
    options.repetitions = options.seeds or 1
    options.jobs = options.jobs or usable_cores()
    if "machine" not in varied:
        options.machine = options.machine or os.environ.get("MULTIGRAIN_MACHINE") or DEFAULT_MACHINE


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
    varied = list(varied_options(options).items())
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


def latency_network(options: argparse.Namespace, emulated: Mapping[str, EmulatedMachine]) -> str:
    """The network whose latency is varied."""
    network: str | None = options.net or emulated[options.machine].network
    if not network:
        raise StudyError(
            f"--net is missing: mgrun --machine list does not say which network '{options.machine}' has, and a latency study "
            "varies the latency of one"
        )
    return network


def make_plan(
    options: argparse.Namespace, series: Sequence[studies.Series], emulated: Mapping[str, EmulatedMachine]
) -> list[studies.Point]:
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
        network = latency_network(options, emulated)
        return studies.plan_latency(fixed[0], processors, options.node_sizes or usual, latencies, network)
    return studies.plan_family(series, processors, options.node_sizes or every, not options.no_sequential)


def describe_network(options: argparse.Namespace, mgrun: str, emulated: Mapping[str, EmulatedMachine]) -> Json:
    if options.net:
        return network_figures(mgrun, options.net)
    own = {each.network for each in emulated.values()}
    network = own.pop() if len(own) == 1 else ""
    return {"given": network, "figures": network, "what": "", "source": "", "of_machine": True}


def describe(
    options: argparse.Namespace,
    argv: Sequence[str],
    runner: Runner,
    series: Sequence[studies.Series],
    emulated: Mapping[str, EmulatedMachine],
) -> Json:
    first = series[0]
    counted: Json = {"emulated": [each.as_json() for each in emulated.values()]} if options.clock == "counted" else {}
    return {
        "title": shlex.join([Path(first.program).name, *first.arguments]),
        "command": shlex.join(["mgstudy", *argv]),
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "processors": options.procs,
        "clock": options.clock,
        "repetitions": options.repetitions,
        **({"seeds": options.seeds} if options.seeds else {}),
        "network": describe_network(options, runner.mgrun, emulated),
        **counted,
        "options": [each for each in shlex.join(first.options).split(" --") if each],
        "machine": machine(),
        "programs": [
            {"path": each.program, "arguments": list(each.arguments), "sha256": file_hash(each.program)}
            for each in {(one.program, one.arguments): one for one in series}.values()
        ],
    }


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
    if options.figure:
        from multigrain.study.study_drawings import drawing

        put(options.figure, drawing(study))
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
    for path in (options.report, options.json, options.csv, options.figure):
        if path and path != "-" and not os.path.isdir(os.path.dirname(path) or "."):
            raise StudyError(f"cannot write {path}: there is no folder '{os.path.dirname(path)}'")
        if path and os.path.isdir(path):
            raise StudyError(f"cannot write {path}: it is a folder")
    if options.json == options.csv == "-":
        raise StudyError("--json and --csv cannot both be standard output")


def report_again(options: argparse.Namespace) -> int:
    check_outputs(options)
    path = Path(options.study) if options.study else Path(options.cache) / "last-study.json"
    if not options.study and not path.exists():
        raise StudyError(f"the cache '{options.cache}' has no study yet")
    study = studies.read_study(path)
    try:
        if not options.quiet and "-" not in (options.json, options.csv):
            print_study(study)
        write_outputs(options, study)
    except (KeyError, IndexError, TypeError) as error:
        raise StudyError(f"{path} lacks what a report needs ({type(error).__name__}: {error})") from error
    return 1 if studies.failed_points(study) else 0


def run_study(options: argparse.Namespace, argv: Sequence[str], tools: Path) -> int:
    check_outputs(options)
    settle_clock(options)
    mgrun = options.mgrun or str(tools / "mgrun")
    if not os.access(mgrun, os.X_OK):
        raise StudyError(f"there is no mgrun at '{mgrun}' (--mgrun)")
    runner = Runner(
        mgrun, Cache(Path(options.cache)), options.depends, options.time_limit, options.fresh, options.clock
    )
    for path in options.depends:
        runner.cache.hash_of(path)
    series = make_series(options)
    named = dict.fromkeys(name for each in series if (name := option_of(each.options, "--machine")) is not None)
    emulated = emulated_machines(named, mgrun)
    runner.cache.machines = {name: each.identity() for name, each in emulated.items()}
    if options.jobs > 1 and not any(option.removeprefix("--no-").endswith("pin") for option in options.mgrun_option):
        runner.unmeasured = ("--no-pin",)  # each mgrun would take the same cores
    runner.seeds = options.seeds is not None
    points = make_plan(options, series, emulated)
    description = describe(options, argv, runner, series, emulated)
    progress = studies.Progress() if options.quiet else Bar(len(series), options.repetitions)
    with interruptible():
        results = studies.execute(points, options.repetitions, runner, progress, options.jobs)
    study = studies.assemble(options.kind, results, description)
    write_whole(str(runner.cache.directory / "last-study.json"), json.dumps(study) + "\n")
    # What goes to standard output for a program must be alone there.
    if not options.quiet and "-" not in (options.json, options.csv):
        print_study(study)
    sys.stdout.flush()
    print_failures(study)
    write_outputs(options, study)
    return 1 if studies.failed_points(study) else 0


def study_placement(options: argparse.Namespace, tools: Path) -> int:
    mgrun = options.mgrun or str(tools / "mgrun")
    if not os.access(mgrun, os.X_OK):
        raise StudyError(f"there is no mgrun at '{mgrun}' (--mgrun)")
    (_, command), *_ = commands_of(options)
    # Nothing is kept: times by the wall clock depend on what else the machine does.
    with interruptible(), tempfile.TemporaryDirectory(prefix="mgstudy-") as folder:
        runner = Runner(mgrun, Cache(Path(folder)), (), options.time_limit, True, "wall")
        runner.cache.prepare()
        return run_placement(options, runner, find_program(command[0]), command[1:])


def main(argv: Sequence[str], tools: Path) -> int:
    """`tools` is where mgrun is."""
    options: Any = make_parser().parse_args(argv)
    try:
        sentence = missing_packages(["rich", "plotly"], "mgstudy needs")
        if sentence:
            raise StudyError(sentence)
        if options.kind == "against":
            return compare_with_table(options.table, options.studies, options.markdown)
        if options.kind == "placement":
            return study_placement(options, tools)
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
