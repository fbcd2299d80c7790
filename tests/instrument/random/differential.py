"""Builds random programs plainly and with checks, and runs them against the adversary (random_runner.cpp)."""
import dataclasses
import os
import random
import subprocess
import tempfile

from random_programs import source_of

# All programs are compiled with these options; mgcc's checks depend on none of them.
COMMON = ["-std=gnu11", "-g1", "-fPIC", "-shared", "-nostdlib", "-w", "-ffp-contract=off", "-fno-strict-aliasing",
          "-Wno-unused-command-line-argument"]
SWITCHES = ["group", "narrow", "batch", "loops", "nests", "rows", "expand", "prefetch", "hold", "arguments", "pages",
            "updates", "versions"]
SECONDS_OF_RUN = 120


@dataclasses.dataclass(frozen=True)
class Way:
    """How programs are compiled, and what the adversary is like."""
    compile: tuple
    run: tuple

    def __str__(self):
        return " ".join([*self.compile, "--", *self.run])

    @staticmethod
    def parse(text):
        compile, _, run = text.partition("--")
        run = "--" + run if run and not run.startswith(" ") else run
        return Way(tuple(compile.split()), tuple(run.split()))


DEFAULT = Way(("-O2",), ("--line-shift", "6"))
VERIFIED = Way(("-O2", "-fmultigrain-checks=verify"), ("--line-shift", "6"))


def random_way(seed):
    """Another way, by the number of a program: any switches, any level, any line."""
    r = random.Random(seed * 7919 + 1)
    options = [r.choice(["-O0", "-O1", "-O2", "-O2", "-O3", "-O3", "-Os"])]
    shape = r.random()
    if shape < 0.08:
        options.append("-fmultigrain-checks=no-all")
    elif shape < 0.75:
        off = [switch for switch in SWITCHES if r.random() < 0.25]
        if off:
            options.append("-fmultigrain-checks=" + ",".join("no-" + switch for switch in off))
    else:
        options.append("-fmultigrain-checks=no-" + r.choice(SWITCHES))
    if r.random() < 0.3:
        options.append("-fmultigrain-checks=verify")
    if r.random() < 0.1:
        options.append("-fmultigrain-sequential")
    if r.random() < 0.15:
        options.append("-fno-multigrain-polls")
    if r.random() < 0.2:
        options.append("-march=haswell")
    if r.random() < 0.1 and options[0] != "-O0":
        options.append("-flto")
    run = ["--line-shift", str(r.choice([5, 5, 6, 6, 7, 9]))]
    if r.random() < 0.2:
        run.append("--takes-stores")
    if r.random() < 0.15:
        run.append("--messages")
    return Way(tuple(options), tuple(run))


class Differential:
    """The tools of one build, and a folder to work in."""

    def __init__(self, bin_directory, folder=None):
        self.mgcc = os.path.join(bin_directory, "mgcc")
        self.runner = os.path.join(bin_directory, "tests", "random_runner")
        for tool in (self.mgcc, self.runner):
            if not os.access(tool, os.X_OK):
                raise SystemExit(f"differential tests: there is no program {tool}; build it, or name its folder with --bin")
        self.own = None if folder else tempfile.TemporaryDirectory(prefix="multigrain-random-")
        self.folder = folder or self.own.name
        os.makedirs(self.folder, exist_ok=True)

    def compile(self, source, library, options):
        """None, or what the compiler said."""
        done = subprocess.run([self.mgcc, *COMMON, *options, source, "-o", library, "-latomic", "-lc"],
                              capture_output=True, text=True)
        return None if done.returncode == 0 else f"{' '.join(done.args)}\n{done.stderr}"

    def build_plain(self, programs, label):
        """The programs' source, and the library that Clang makes of it."""
        source = os.path.join(self.folder, f"{label}.c")
        library = os.path.join(self.folder, f"{label}_plain.so")
        with open(source, "w") as file:
            file.write(source_of(programs))
        return source, library, self.compile(source, library, ["-O1", "-fno-multigrain-checks"])

    def compare(self, source, plain, way, rounds, seed, label):
        """None if the programs do the same with checks; else a sentence."""
        library = os.path.join(self.folder, f"{label}_checked.so")
        wrong = self.compile(source, library, way.compile)
        if wrong:
            return f"does not compile: {wrong}"
        try:
            done = subprocess.run([self.runner, "--plain", plain, "--checked", library, "--rounds", str(rounds), "--seed",
                                   str(seed), "--limit", str(SECONDS_OF_RUN), *way.run],
                                  capture_output=True, text=True, timeout=2 * SECONDS_OF_RUN)
        except subprocess.TimeoutExpired:
            return "the runner does not end"
        finally:
            os.unlink(library)
        if done.returncode == 0:
            return None
        said = (done.stdout.strip() + " " + done.stderr.strip()).strip()
        return said or f"the runner ended with {done.returncode}"

    def fails(self, programs, way, rounds, tries, label, seed=1):
        """The first failure in so many tries, or None; and in how many of them there was none before it."""
        source, plain, wrong = self.build_plain(programs, label)
        try:
            if wrong:
                return wrong, 0
            for attempt in range(tries):
                failure = self.compare(source, plain, way, rounds, seed + attempt, label)
                if failure:
                    return failure, attempt
            return None, tries
        finally:
            for file in (source, plain):
                if os.path.exists(file):
                    os.unlink(file)
