"""mgstudy placement: how well does a policy place a program's pages? [Bolosky], section 3.2.1, for a program of yours.

The program runs under mgrun --protocol placement with a policy (T_numa) and with all pages in global memory (T_global), and
on one processor, where all memory is local (T_local). Equations 3.1, 3.4 and 3.5 make of these times what Table 3.1 has:

  gamma  how many times the user time of the all-local run the program takes
  alpha  which part of its references to writable data is local
  beta   which part of its time the program would refer to writable data if all of it were local

and what the manager's own work costs, Table 3.2. Times are the processors' own, in the program's code ("user" of --stats).
"""

from __future__ import annotations

import json
import shlex
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multigrain.study.runs import Json, Result, Run, Runner, StudyError, wait_for_one

SCHEMA, VERSION = "multigrain-placement-study", 1
DECISIONS = (
    "decided_local",
    "decided_global",
    "became_read_only",
    "became_local_writable",
    "became_global_writable",
    "syncs",
    "flushes",
    "unmaps",
    "zero_fills",
    "thaws",
)


@dataclass(frozen=True)
class Times:
    """Of the runs of one kind, in seconds, a number for each: user time, and the time of the protocol (its waits left out)."""

    user: tuple[float, ...]
    system: tuple[float, ...]

    @property
    def t(self) -> float:
        return statistics.median(self.user)

    @property
    def s(self) -> float:
        return statistics.median(self.system)

    @property
    def spread(self) -> float:
        """How far a run is from the median, at most."""
        return max(abs(each - self.t) for each in self.user)


def model(numa: Times, everywhere: Times, local: Times, ratio: float | None) -> dict[str, float | None]:
    """alpha, beta and gamma; None where the times do not tell. `ratio` is G/L, of a reference to global and to local memory.

    Both alpha and beta compare with T_global - T_local. If that is no more than runs of the same kind differ, it is the
    machine's noise, and the program refers too little to memory, or global memory is no slower."""
    difference = everywhere.t - local.t
    tells = difference > everywhere.spread + local.spread
    return {
        "gamma": numa.t / local.t,
        "alpha": (everywhere.t - numa.t) / difference if tells else None,
        "beta": difference / local.t / (ratio - 1) if tells and ratio is not None else None,
        "overhead": (numa.s - everywhere.s) / numa.t,
    }


def times_of(results: Sequence[Result]) -> Times:
    def sums(names: Sequence[str], of_service: Sequence[str]) -> tuple[float, ...]:
        out = []
        for result in results:
            assert result.profile is not None
            whole = sum(result.profile["sum"][name] for name in names)
            whole += sum(node["service"][name] for node in result.profile["nodes"] for name in of_service)
            out.append(whole / 1e9)
        return tuple(out)

    return Times(sums(["user_ns"], []), sums(["protocol_ns"], ["protocol_ns"]))


def counts_of(result: Result) -> Json:
    assert result.profile is not None
    return {name: sum(node["counters"][name] for node in result.profile["nodes"]) for name in DECISIONS}


def measure(runner: Runner, run: Run, repetitions: int) -> list[Result]:
    """One run after the other: at the same time they would disturb each other. Raises a StudyError if one fails."""
    out = []
    for repetition in range(repetitions):
        under_way = runner.start(run, repetition)
        try:
            wait_for_one([under_way])
        except BaseException:
            runner.abandon([under_way])
            raise
        result = runner.finish(under_way)
        if result.profile is None:
            raise StudyError(f"a run failed: {result.problem}: {result.command}\n{result.output}".rstrip())
        out.append(result)
    return out


def study_of(runner: Runner, program: str, arguments: Sequence[str], options: Any, handed_on: Sequence[str]) -> Json:
    def run(nodes: int, policy: str) -> Run:
        under = ("--protocol", "placement", "--policy", policy, *handed_on)
        return Run(program, tuple(arguments), nodes, 1, under)

    kinds = {
        "numa": run(options.procs, options.policy),
        "global": run(options.procs, "global"),
        "local": run(1, "always-migrate"),
    }
    results = {kind: measure(runner, each, options.repetitions) for kind, each in kinds.items()}
    times = {kind: times_of(each) for kind, each in results.items()}
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "title": shlex.join([Path(program).name, *arguments]),
        "policy": options.policy,
        "processors": options.procs,
        "ratio": options.ratio,
        "runs": {
            kind: {
                "command": results[kind][0].command,
                "user_s": list(times[kind].user),
                "system_s": list(times[kind].system),
                "counters": counts_of(results[kind][0]),
            }
            for kind in kinds
        },
        "model": model(times["numa"], times["global"], times["local"], options.ratio),
    }


def shown(value: float | None, form: str = ".2f") -> str:
    return "na" if value is None else format(value, form)


def print_study(study: Json) -> None:
    t = {kind: statistics.median(run["user_s"]) for kind, run in study["runs"].items()}
    s = {kind: statistics.median(run["system_s"]) for kind, run in study["runs"].items()}
    values = study["model"]
    print(f"{study['title']}: policy {study['policy']}, {study['processors']} nodes of one processor; seconds, medians")
    print(f"{'T_global':>10} {'T_numa':>10} {'T_local':>10} {'alpha':>7} {'beta':>7} {'gamma':>7}")
    print(
        f"{t['global']:>10.3f} {t['numa']:>10.3f} {t['local']:>10.3f} "
        f"{shown(values['alpha']):>7} {shown(values['beta']):>7} {shown(values['gamma']):>7}"
    )
    print(f"{'S_numa':>10} {'S_global':>10} {'dS':>10} {'dS/T_numa':>10}")
    print(f"{s['numa']:>10.3f} {s['global']:>10.3f} {s['numa'] - s['global']:>10.3f} {values['overhead']:>10.1%}")
    if values["alpha"] is None:
        print(
            "alpha and beta are not known: T_global is not longer than T_local by more than runs differ, so the program "
            "refers little to memory, or another node's memory is no further away on this machine"
        )
    elif values["beta"] is None:
        print("beta is not known: give --ratio G/L, of a reference to another node's memory and to the own")
    counters = study["runs"]["numa"]["counters"]
    print("placement: " + ", ".join(f"{name.replace('_', ' ')} {counters[name]}" for name in DECISIONS))


def run_placement(options: Any, runner: Runner, program: str, arguments: Sequence[str]) -> int:
    if options.procs < 2:
        raise StudyError("pages are placed between nodes: give at least 2 (--procs)")
    if options.ratio is not None and options.ratio <= 1:
        raise StudyError(
            f"--ratio is {options.ratio:g}; a reference to global memory takes longer than one to local memory"
        )
    study = study_of(runner, program, arguments, options, options.mgrun_option)
    if not options.quiet and options.json != "-":
        print_study(study)
    if options.json:
        text = json.dumps(study, indent=1) + "\n"
        if options.json == "-":
            sys.stdout.write(text)
        else:
            Path(options.json).write_text(text, "utf-8")
    return 0
