#!/usr/bin/env python3
"""Runs litmus tests on the nodes of a run, and fails if one shows an outcome that its memory model forbids.

The tests are made from cycles (cycles.py), written in the herd tools' formats, and read again, as are files in these formats that
are given: a whole catalogue of those tools can be run, of which the tests that apply count. Tests of C11 atomics are judged by C11
(RC11), those in x86 instructions by x86's model, under every protocol; what a protocol promises beyond that, tests/programs/litmus.c
looks at.

    litmus_test.py --bin build/bin --iterations 100000 --way "--nodes 4 --protocol dszoom" [FILE.litmus | FOLDER ...]
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import c_program
import cycles
import herd_text
import models

INSTANCES = 256
WAYS = (
    "--nodes 2 --procs-per-node 2 --protocol dszoom",
    "--nodes 4 --protocol dszoom",
    "--nodes 2 --procs-per-node 2 --protocol shasta --model sc",
    "--nodes 4 --protocol shasta --model sc",
    "--nodes 2 --procs-per-node 2 --protocol shasta --model rc",
    "--nodes 4 --protocol shasta --model rc",
    "--nodes 4 --protocol sc",
)


def read_files(paths: list[pathlib.Path]) -> tuple[list[herd_text.Test], dict[str, int]]:
    """The tests that apply, and how many do not, by reason."""
    found: list[herd_text.Test] = []
    refused: dict[str, int] = {}
    files = [f for p in paths for f in (sorted(p.rglob("*.litmus")) if p.is_dir() else [p])]
    for file in files:
        try:
            if not file.is_file():
                raise herd_text.NotApplicable("unreadable")
            test = herd_text.parse(file.read_text(errors="replace"))
            values = [op.value for thread in test.threads for op in thread] + list(test.initial.values())
            if any(test.initial.get(v, 0) != 0 for v in test.variables()) or not all(0 <= v < c_program.BASE for v in values):
                raise herd_text.NotApplicable("other values than 0 to 4, or not 0 at first")
            digits = len(test.registers()) + len(test.variables())
            if len(test.variables()) > 4 or digits > c_program.MOST_DIGITS or not test.variables():
                raise herd_text.NotApplicable("too many variables")
            found.append(test)
        except herd_text.NotApplicable as reason:
            refused[str(reason).split(" ")[0]] = refused.get(str(reason).split(" ")[0], 0) + 1
    return found, refused


def allowed_outcomes(test: herd_text.Test) -> set[models.Outcome]:
    return models.c11(test) if test.language == "C" else models.tso(test)


Allowed = list[tuple[set[models.Outcome], set[models.Outcome]]]  # of each test: by its model, and by sequential consistency


def run(
    arguments: argparse.Namespace, program: pathlib.Path, tests: list[herd_text.Test], allowed: Allowed, way: str
) -> tuple[int, int]:
    """Returns how many outcomes were seen that are not sequentially consistent, and how many are forbidden."""
    rounds = max(1, -(-arguments.iterations // INSTANCES))
    spread = "1" if "--procs-per-node 2" in way else "0"
    command = [str(arguments.bin / "mgrun"), *way.split(), str(program), str(rounds), "0", str(len(tests)), spread]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=arguments.timeout)
    if done.returncode != 0:
        print(f"{way}: status {done.returncode}: {done.stdout[-300:]}{done.stderr[-300:]}")
        return 0, 1
    weak = forbidden = 0
    seen: dict[int, int] = {}
    for line in done.stdout.splitlines():
        number, count, digits = line.split()
        rest = int(digits)
        test = tests[int(number)]
        seen[int(number)] = seen.get(int(number), 0) + int(count)
        width = len(test.registers()) + len(test.variables())
        outcome = tuple(rest // c_program.BASE**i % c_program.BASE for i in reversed(range(width)))
        by_model, sequential = allowed[int(number)]
        if outcome not in by_model:
            forbidden += 1
            print(f"FORBIDDEN: {test.name} under {way}: {outcome}, {count} times\n{herd_text.write(test)}")
        elif outcome not in sequential:
            weak += 1
    if any(seen.get(n, 0) != rounds * INSTANCES for n in range(len(tests))):
        print(f"{way}: a test has not run as often as it should")
        forbidden += 1
    return weak, forbidden


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="tests or folders of tests, in herd's text")
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="the folder of mgcc and mgrun")
    parser.add_argument("--iterations", type=int, default=1000, help="of each test and way (default 1000)")
    parser.add_argument("--way", action="append", help="options of mgrun, which must make four processors; may be repeated")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth test")
    parser.add_argument("--offset", type=int, default=0, metavar="K", help="of these, beginning with the Kth")
    parser.add_argument("--write", type=pathlib.Path, metavar="FOLDER", help="write the tests there, and run none")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for each way")
    arguments = parser.parse_args()
    made = cycles.tests()
    tests = [herd_text.parse(herd_text.write(test)) for test in made]
    if [t.threads for t in tests] != [t.threads for t in made]:
        print("a test is not read as it was written")
        return 1
    if arguments.files:
        tests, refused = read_files(arguments.files)
        print(f"{len(tests)} tests apply; not: " + (", ".join(f"{n} for {r}" for r, n in sorted(refused.items())) or "none"))
    if arguments.write:
        arguments.write.mkdir(parents=True, exist_ok=True)
        for test in tests:
            (arguments.write / f"{test.language}_{test.name}.litmus").write_text(herd_text.write(test))
        print(f"{len(tests)} tests written to {arguments.write}")
        return 0
    tests = tests[arguments.offset :: arguments.every]
    if not tests:
        print("there is no test to run")
        return 2
    allowed = [(allowed_outcomes(test), models.sequential(test)) for test in tests]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder) / "tests.c", pathlib.Path(folder) / "tests"
        source.write_text(c_program.make(tests))
        subprocess.run([arguments.bin / "mgcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", source, "-o", program], check=True)
        for way in arguments.way or WAYS:
            weak, forbidden = run(arguments, program, tests, allowed, way)
            print(f"{way}: {len(tests)} tests, {weak} outcomes that are not sequentially consistent, {forbidden} forbidden", flush=True)
            failed += forbidden
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
