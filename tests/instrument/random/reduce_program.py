#!/usr/bin/env python3
"""Makes a random program that fails smaller, as long as it fails.

    reduce_program.py --bin BUILD/bin --program 17 --way '-O2 -- --line-shift 6' --output small.c

Writes the smallest program that it finds as a file that random_test.py's tools compile. A failure may need luck: --tries
says how often a candidate is run before it counts as one that does not fail.
"""
import argparse
import sys

from differential import DEFAULT, Differential, Way
from random_programs import Program, source_of


def size_of(program):
    return len(str(program))


def unused_functions(program):
    """Functions of a program that nothing calls any more (their texts come in the order of their definition)."""
    root = program.tree.parts
    for at, part in enumerate(root):
        name = next((f["name"] for f in program.functions if f" {f['name']}(struct data" in str(part)), None)
        if name and not any(f"{name}(data" in str(other) for i, other in enumerate(root) if i != at):
            yield at


def reduce(program, fails, say):
    """Replaces parts by simpler ones until none can be replaced."""
    changed = True
    while changed:
        changed = False
        for at in list(unused_functions(program)):
            before, program.tree.parts[at] = program.tree.parts[at], ""
            if not fails(program):
                program.tree.parts[at] = before
            else:
                changed = True
        visited = 0
        while True:
            # The tree changes under way: it is looked through anew, from where the last look ended.
            nodes = list(program.tree.nodes())
            if visited >= len(nodes):
                break
            parent, place, node = nodes[visited]
            for simpler in node.simpler:
                parent.parts[place] = simpler
                if fails(program):
                    changed = True
                    say(f"{size_of(program)} characters")
                    break
                parent.parts[place] = node
            else:
                visited += 1
                continue
            if isinstance(parent.parts[place], str):
                continue  # the next node is at the same number now


def main():
    parser = argparse.ArgumentParser(description="Makes a random program that fails smaller.")
    parser.add_argument("--bin", required=True, help="the folder of a build with mgcc and tests/random_runner")
    parser.add_argument("--program", type=int, required=True, help="its number")
    parser.add_argument("--way", default=str(DEFAULT), help="options of mgcc -- options of random_runner")
    parser.add_argument("--rounds", type=int, default=20, help="how often each of two threads runs a candidate (20)")
    parser.add_argument("--tries", type=int, default=3, help="with other seeds of the adversary (3)")
    parser.add_argument("--output", default="-", help="where the smaller program goes (-: standard output)")
    arguments = parser.parse_args()
    tools, way = Differential(arguments.bin), Way.parse(arguments.way)
    tried = set()

    def fails(candidate):
        text = str(candidate)
        if text in tried:
            return False
        tried.add(text)
        said, _ = tools.fails([candidate], way, arguments.rounds, arguments.tries, "candidate")
        return said is not None and "does not compile" not in said and "error:" not in said

    program = Program(arguments.program)
    if not fails(program):
        print(f"program {arguments.program} does not fail in {arguments.tries} tries; more --rounds or --tries may help",
              file=sys.stderr)
        return 1
    reduce(program, fails, lambda said: print(said, file=sys.stderr))
    text = source_of([program])
    if arguments.output == "-":
        print(text)
    else:
        with open(arguments.output, "w") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
