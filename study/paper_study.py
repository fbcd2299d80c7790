"""What the studies that repeat a paper's figures share: their options, and a run of mgstudy whose results are kept."""

import argparse
import json
import os
import subprocess
import sys


def parser_of(description, out, repetitions):
    """A parser of what all of them understand; `out` is where reports go if nothing else is said."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin", help="where mgstudy and workloads/ are (default build/bin)")
    parser.add_argument("--cache", default=".mgstudy", help="where mgstudy keeps results (default .mgstudy)")
    parser.add_argument("--out", default=out, help=f"where reports go (default {out})")
    parser.add_argument("--repetitions", type=int, default=repetitions)
    return parser


class PaperStudy:
    def __init__(self, options):
        self.options = options
        os.makedirs(options.out, exist_ok=True)

    def program(self, name):
        return [os.path.join(self.options.bin, "workloads", name), "--size", "paper"]

    def run(self, name, kind, *arguments):
        """Runs `mgstudy KIND ARGUMENTS`, leaves NAME.json and NAME.html in --out, and returns the study. That some of its
        points failed is no error."""
        path = os.path.join(self.options.out, f"{name}.json")
        command = [os.path.join(self.options.bin, "mgstudy"), kind, "--cache", self.options.cache, "--json", path,
                   "--report", path.replace(".json", ".html"), "--quiet", "--repetitions",
                   str(self.options.repetitions), *arguments]
        status = subprocess.run(command, check=False).returncode
        if status not in (0, 1):
            script = os.path.basename(sys.argv[0]).removesuffix(".py")
            sys.exit(f"{script}: {' '.join(command)} ended with status {status}")
        with open(path, encoding="utf-8") as file:
            return json.load(file)
