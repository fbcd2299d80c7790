#!/usr/bin/env python3
"""Random programs must leave the same in memory with checks as without, whatever is switched off.

    random_test.py --bin BUILD/bin                      200 programs, as ./test runs them
    random_test.py --bin BUILD/bin --count 20000 --in-turns --rounds 6 --jobs 2
    random_test.py --bin BUILD/bin --first 17 --count 1 --way '-O2 -- --line-shift 6' --rounds 50

Each program has a number, from which it, and the options that it is compiled with beside the default, follow. It is run with
the default's options, with these and a look at the open hazards before each access, and with others. What fails is said with
the command that repeats it, and reduce_program.py makes it smaller.
"""
import argparse
import concurrent.futures
import os
import sys

from differential import DEFAULT, VERIFIED, Differential, Way, random_way
from random_programs import Program

TRIES_TO_ISOLATE = 20


# This is the seed of the adversary.
SEED = int(os.environ.get("MULTIGRAIN_TEST_SEED", "1"))


def run_batch(tools, seeds, ways, rounds):
    """Runs these programs every way; returns sentences about those that fail."""
    failures = []
    programs = [Program(seed) for seed in seeds]
    label = f"r{seeds[0]}_{os.getpid()}"
    source, plain, wrong = tools.build_plain(programs, label)
    try:
        if wrong:
            return [f"programs {seeds[0]} to {seeds[-1]} do not compile without checks: {wrong}"]
        for way in ways:
            failure = tools.compare(source, plain, way, rounds, seeds[0] + SEED, label)
            if failure:
                failures += isolate(tools, programs, way, rounds, failure)
    finally:
        for file in (source, plain):
            if os.path.exists(file):
                os.unlink(file)
    return failures


def isolate(tools, programs, way, rounds, failure):
    """Which of the programs it is, with how to see it again."""
    def sentence(seed, said):
        return (f"program {seed}: {said}\n  again: random_test.py --bin {os.path.dirname(tools.mgcc)} --first {seed} --count 1 "
                f"--rounds {rounds * TRIES_TO_ISOLATE} --way '{way}'")
    # These are the programs that the runner names. If the programs do not compile, each is tried alone.
    named = [program for program in programs if f"{program.name} " in failure]
    found = []
    # A program that crashes ends the others, too. Only if none of the programs that ran fails alone are they all
    # suspects.
    crashed = "crashed" in failure or "does not end" in failure
    for program in named or programs:
        alone, _ = tools.fails([program], way, rounds * TRIES_TO_ISOLATE, 1, f"one{program.seed}_{os.getpid()}")
        if alone:
            found.append(sentence(program.seed, alone))
        elif named and not crashed:
            found.append(sentence(program.seed, f"{failure} (not once more when it ran alone)"))
    if not found:
        found.append(f"programs {programs[0].seed} to {programs[-1].seed}, compiled together with {way}: {failure}")
    return found


def main():
    parser = argparse.ArgumentParser(description="Compares random programs with and without checks.")
    parser.add_argument("--bin", required=True, help="the folder of a build with mgcc and tests/random_runner")
    parser.add_argument("--first", type=int, default=1, help="the number of the first program (1)")
    parser.add_argument("--count", type=int, default=200, help="how many programs (200)")
    parser.add_argument("--batch", type=int, default=10, help="programs that are compiled as one file (10)")
    parser.add_argument("--rounds", type=int, default=2, help="how often each of two threads runs each program (2)")
    parser.add_argument("--jobs", type=int, default=1, help="batches at a time (1)")
    parser.add_argument("--in-turns", action="store_true",
                        help="each file is compiled one way, the ways taking turns, instead of all ways")
    parser.add_argument("--way", help="only this: options of mgcc -- options of random_runner")
    parser.add_argument("--folder", help="where to put files, which then stay (a temporary folder)")
    arguments = parser.parse_args()
    if min(arguments.count, arguments.batch, arguments.rounds, arguments.jobs) < 1 or arguments.first < 0:
        parser.error("--count, --batch, --rounds and --jobs must be 1 at least, and --first must not be negative")
    tools = Differential(arguments.bin, arguments.folder)
    end = arguments.first + arguments.count
    batches = [list(range(first, min(first + arguments.batch, end)))
               for first in range(arguments.first, end, arguments.batch)]
    failures, done = [], 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        running = {}
        for seeds in batches:
            ways = [DEFAULT, VERIFIED, random_way(seeds[0])]
            if arguments.way:
                ways = [Way.parse(arguments.way)]
            elif arguments.in_turns:
                ways = [ways[seeds[0] // arguments.batch % len(ways)]]
            running[pool.submit(run_batch, tools, seeds, ways, arguments.rounds)] = seeds
        for future in concurrent.futures.as_completed(running):
            for failure in future.result():
                failures.append(failure)
                print(failure, flush=True)
            done += len(running[future])
            if arguments.count > 1000 and (done // arguments.batch) % 50 == 0:
                print(f"{done} programs of {arguments.count}, {len(failures)} failures", flush=True)
    print(f"{arguments.count} random programs from {arguments.first} on, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
