"""Runs of a program by mgrun, and a cache of what they measured.

A result is kept under a key of everything that it depends on, as far as that can be known: the files of the program, of
mgrun and of the library that it loads, the arguments, mgrun's options, the variables of the environment that matter, the
processor that it ran on (under the counted clock the machine that is emulated, for nothing else matters there), and data
files that the user names. So a study that was interrupted goes on where it stopped, and one that is repeated with a new
build measures again. Only what succeeded is kept.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import json
import os
import platform
import re
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from multigrain.study.files import write_whole

Json = dict[str, Any]

CACHE_VERSION = 1
KEPT_OUTPUT = 4000  # characters of a run's output, the last ones
# Variables beside MULTIGRAIN_* that change what a program does.
RELEVANT = ("LD_LIBRARY_PATH", "LD_PRELOAD", "OMP_NUM_THREADS", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
# Those that say where something goes, or what a run's options say anyway.
IRRELEVANT = (
    "MULTIGRAIN_PYTHON",
    "MULTIGRAIN_STATS",
    "MULTIGRAIN_NODES",
    "MULTIGRAIN_PROCS_PER_NODE",
    "MULTIGRAIN_VERBOSE",
    "MULTIGRAIN_MACHINE",
)


class StudyError(Exception):
    """What the user must change before anything can be measured: one sentence, exit status 2."""


def option_of(options: Sequence[str], name: str) -> str | None:
    """The value of one of mgrun's options; None if it is not given."""
    return options[options.index(name) + 1] if name in options else None


@dataclass(frozen=True)
class Run:
    """One configuration of one program. `options` are mgrun's, with their dashes."""

    program: str
    arguments: tuple[str, ...]
    nodes: int
    processors_per_node: int
    options: tuple[str, ...] = ()

    @property
    def processors(self) -> int:
        return self.nodes * self.processors_per_node

    @property
    def is_counted(self) -> bool:
        return option_of(self.options, "--clock") == "counted"

    def command(self, mgrun: str, statistics: str | None = None, more: Sequence[str] = ()) -> list[str]:
        """Without `statistics` as a user would repeat it. `more` are options that do not change what is measured."""
        out = [mgrun, "--nodes", str(self.nodes), "--procs-per-node", str(self.processors_per_node), *self.options]
        out += more
        out += ["--stats", f"json:{statistics}"] if statistics else ["--stats", "text"]
        return [*out, "--", self.program, *(word.replace("{procs}", str(self.processors)) for word in self.arguments)]


@dataclass
class Result:
    run: Run
    command: str  # as a user would repeat it
    profile: Json | None  # what mgrun --stats json wrote; None: the run failed
    status: int | None = 0  # exit status; None: it was stopped for taking too long
    problem: str = ""  # a sentence, if it failed
    output: str = ""  # the end of what it printed, if it failed
    seconds: float = 0.0  # of real time
    cached: bool = False

    @property
    def elapsed_ns(self) -> int:
        assert self.profile is not None
        return int(self.profile["run"]["elapsed_ns"])

    @property
    def interruptions(self) -> int:
        """How often, under the counted clock, processors lost their turn. Unless it is 0 another run may differ."""
        assert self.profile is not None
        return int(self.profile["run"].get("interruptions", 0))


def file_hash(path: str | Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def libraries_of(program: str) -> list[str]:
    """The files of Multigrain's library that a program would load; none for a script or a static program."""
    try:
        listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=False, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    return sorted({os.path.realpath(path) for path in re.findall(r"libmultigrain[^ ]* => (/\S+)", listing)})


def processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def machine() -> Json:
    """What a report says of the machine that measured."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        memory = 0
    return {
        "processor": processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory,
        "kernel": f"{platform.system()} {platform.release()}",
    }


def find_program(name: str) -> str:
    """The path that mgrun would run, or a StudyError."""
    if "/" in name:
        if not os.path.isfile(name):
            raise StudyError(f"there is no program '{name}'")
        if not os.access(name, os.X_OK):
            raise StudyError(f"cannot run '{name}': it is not executable")
        return name
    found = shutil.which(name)
    if found is None:
        hint = f" (there is ./{name})" if os.access(name, os.X_OK) and os.path.isfile(name) else ""
        raise StudyError(f"there is no program '{name}' in PATH{hint}")
    return found


@dataclass
class Cache:
    """Results as files of one directory, named by their keys."""

    directory: Path
    hashes: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, list[str]] = field(
        default_factory=dict
    )  # of each program: the hashes of Multigrain's that it loads
    machines: dict[str, Json] = field(default_factory=dict)  # of each value of --machine: what results depend on

    def prepare(self) -> None:
        try:
            (self.directory / "runs").mkdir(parents=True, exist_ok=True)
            write_whole(str(self.directory / ".gitignore"), "*\n")  # results of one machine are nobody's source
        except OSError as error:
            raise StudyError(f"cannot make the cache directory '{self.directory}': {error.strerror}") from error
        for left in self.directory.glob("running-*"):  # of a study that was killed; named for its process
            number = left.name.split("-")[1]
            if number.isdigit() and not os.path.exists(f"/proc/{number}"):
                shutil.rmtree(left, ignore_errors=True)

    def hashes_of_libraries(self, program: str) -> list[str]:
        if program not in self.libraries:
            self.libraries[program] = [self.hash_of(path) for path in libraries_of(program)]
        return self.libraries[program]

    def hash_of(self, path: str) -> str:
        if path not in self.hashes:
            try:
                self.hashes[path] = file_hash(path)
            except OSError as error:
                raise StudyError(f"cannot read '{path}': {error.strerror}") from error
        return self.hashes[path]

    def hashes_of_hosts(self, mgrun: str) -> list[str]:
        """Of what runs a program as it is, which knows nothing of Multigrain's library."""
        folders = glob.glob(
            os.path.join(os.path.dirname(os.path.realpath(mgrun)), "..", "lib*", "**", "mghost-node"), recursive=True
        )
        return [self.hash_of(path) for path in sorted(folders)]

    def dependencies(self, run: Run, mgrun: str, depends: Sequence[str], environment: Mapping[str, str]) -> Json:
        """Everything that the run's result is known to depend on."""
        variables = {
            name: value
            for name, value in environment.items()
            if (name.startswith("MULTIGRAIN_") and name not in IRRELEVANT and not name.startswith("MULTIGRAIN_TEST"))
            or name in RELEVANT
        }
        options = list(run.options)
        on: Json = {"processor": processor_name(), "cores": len(os.sched_getaffinity(0))}
        if run.is_counted:
            machine = option_of(run.options, "--machine") or ""
            on = {"emulated": self.machines.get(machine, {"name": machine})}
            if machine:
                at = options.index("--machine")
                del options[at : at + 2]  # a file may be elsewhere the next time
        return {
            "version": CACHE_VERSION,
            "program": self.hash_of(run.program),
            "mgrun": self.hash_of(mgrun),
            "libraries": self.hashes_of_hosts(mgrun)
            if "--binary" in run.options
            else self.hashes_of_libraries(run.program),
            "arguments": list(run.arguments),
            "nodes": run.nodes,
            "processors_per_node": run.processors_per_node,
            "options": options,
            "environment": dict(sorted(variables.items())),
            "files": {path: self.hash_of(path) for path in sorted(depends)},
            "machine": on,
        }

    def path(self, dependencies: Json, repetition: int) -> Path:
        text = json.dumps([dependencies, repetition], sort_keys=True)
        return self.directory / "runs" / (hashlib.sha256(text.encode()).hexdigest()[:40] + ".json")

    def load(self, path: Path) -> Json | None:
        """What was kept, or None. A file that cannot be read as one counts as missing: it is measured again."""
        try:
            with open(path, encoding="utf-8") as file:
                entry = json.load(file)
        except (OSError, ValueError):
            return None
        return entry if isinstance(entry, dict) and "profile" in entry else None

    def store(self, path: Path, entry: Json) -> None:
        write_whole(str(path), json.dumps(entry, indent=1) + "\n")


def die_with_parent() -> None:
    """For a child between fork and exec: mgrun ends its nodes when it is asked to, whatever happens to us."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end a study as Ctrl-C does: through the code that ends the run."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def stop(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends mgruns, which end their nodes; after five seconds the whole sessions by force."""
    there = [child for child in children if child.poll() is None]
    for child in there:
        child.terminate()
    until = time.monotonic() + 5
    for child in there:
        try:
            child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # a session of its own, and its leader has not been waited for
            child.wait()


@dataclass(eq=False)  # each is itself only
class Measurement:
    """A run that is going on."""

    run: Run
    repetition: int
    folder: tempfile.TemporaryDirectory[str]  # of its statistics and its output
    child: subprocess.Popen[bytes]
    began: float  # of time.monotonic()
    overdue: float  # at this moment; infinite: never

    def path(self, name: str) -> str:
        return os.path.join(self.folder.name, name)


def wait_for_one(measurements: Sequence[Measurement]) -> Measurement:
    """The first of them that has ended, or has taken too long. No thread waits for each, because what prctl() asks for
    happens when a thread ends, and so that an interrupt finds all of them in one place."""
    descriptors: list[int] = []
    try:
        ends = select.poll()
        for each in measurements:
            descriptors.append(os.pidfd_open(each.child.pid))
            ends.register(descriptors[-1], select.POLLIN)
        while True:
            now = time.monotonic()
            for each in measurements:
                if each.child.poll() is not None or each.overdue <= now:
                    return each
            left = min(each.overdue for each in measurements) - now
            ends.poll(None if left == float("inf") else left * 1000 + 1)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


@dataclass
class Runner:
    mgrun: str
    cache: Cache
    depends: Sequence[str] = ()
    time_limit: float | None = None  # seconds of real time, a run
    fresh: bool = False  # measure again what is in the cache
    clock: str = "virtual"
    unmeasured: tuple[str, ...] = ()  # options of mgrun that no result depends on
    seeds: bool = False  # each repetition has a seed, from 1 on

    def seeded(self, run: Run, repetition: int) -> Run:
        return replace(run, options=(*run.options, "--seed", str(repetition + 1))) if self.seeds else run

    def key(self, run: Run, repetition: int) -> Path:
        return self.cache.path(self.cache.dependencies(run, self.mgrun, self.depends, os.environ), repetition)

    def cached(self, run: Run, repetition: int) -> Result | None:
        if self.fresh:
            return None
        run = self.seeded(run, repetition)
        entry = self.cache.load(self.key(run, repetition))
        if entry is None:
            return None
        return Result(run, self.shown(run), entry["profile"], seconds=entry.get("seconds", 0.0), cached=True)

    def shown(self, run: Run) -> str:
        return shlex.join(run.command("mgrun"))

    def start(self, run: Run, repetition: int) -> Measurement:
        """Begins a run, of which finish() or abandon() must follow. Unless they do, the run ends with this process."""
        run = self.seeded(run, repetition)
        folder = tempfile.TemporaryDirectory(dir=self.cache.directory, prefix=f"running-{os.getpid()}-")
        command = run.command(
            self.mgrun, os.path.abspath(os.path.join(folder.name, "statistics.json")), self.unmeasured
        )
        began = time.monotonic()
        with open(os.path.join(folder.name, "output"), "wb") as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        overdue = began + self.time_limit if self.time_limit else float("inf")
        return Measurement(run, repetition, folder, child, began, overdue)

    def finish(self, measurement: Measurement) -> Result:
        """What a run that has ended measured, which is kept if it succeeded. One that has not is stopped, and has failed by
        taking too long."""
        child, run = measurement.child, measurement.run
        status = child.poll()
        stop([child])
        seconds = time.monotonic() - measurement.began
        result = Result(run, self.shown(run), None, status, seconds=seconds)
        with open(measurement.path("output"), encoding="utf-8", errors="replace") as file:
            result.output = file.read()[-KEPT_OUTPUT:]
        if status is None:
            result.problem = f"it took longer than {self.time_limit:g} s"
        elif status < 0:
            result.problem = f"mgrun was killed by signal {-status}"
        elif status != 0:
            result.problem = f"it ended with exit status {status}"
        else:
            self.read_profile(measurement.path("statistics.json"), result)
        measurement.folder.cleanup()
        if result.profile is not None:
            result.output = ""
            # What another run may contradict is no result of the counted clock.
            if not (run.is_counted and result.interruptions):
                self.keep(result, measurement.repetition)
        return result

    def keep(self, result: Result, repetition: int) -> None:
        self.cache.store(
            self.key(result.run, repetition),
            {
                "command": result.command,
                "dependencies": self.cache.dependencies(result.run, self.mgrun, self.depends, os.environ),
                "seconds": result.seconds,
                "profile": result.profile,
            },
        )

    @staticmethod
    def abandon(measurements: Sequence[Measurement]) -> None:
        """Ends runs of which nothing is kept. They leave no process."""
        stop([each.child for each in measurements])
        for each in measurements:
            each.folder.cleanup()

    def read_profile(self, path: str, result: Result) -> None:
        try:
            with open(path, encoding="utf-8") as file:
                profile = json.load(file)
            problem = profile_problem(profile, result.run, self.clock)
        except FileNotFoundError:
            problem = "it left no statistics: is it a Multigrain program?"
        except ValueError as error:
            problem = f"its statistics are no JSON: {error}"
        if problem:
            result.problem = problem
        else:
            result.profile = profile


def profile_problem(profile: Any, run: Run, clock: str) -> str:
    """Why a profile cannot be this run's, in a sentence; empty if it can."""
    if not isinstance(profile, dict) or profile.get("schema") != "multigrain-profile" or profile.get("version") != 1:
        return "its statistics are not version 1 of mgrun's --stats json"
    measured = profile["run"].get("clock", "wall")
    if measured != clock:
        return f"its times are of the {measured} clock, not of the {clock} clock: its library and mgrun are of different builds"
    processors = [processor for node in profile["nodes"] for processor in node["processors"]]
    # A program as it is (mgrun --binary) has threads in their place, as many as it likes.
    is_hosted = bool(profile["run"].get("hosted"))
    if len(profile["nodes"]) != run.nodes or (len(processors) != run.processors and not is_hosted):
        return f"its statistics are of {len(processors)} processors in {len(profile['nodes'])} nodes"
    if profile["run"]["elapsed_ns"] <= 0:
        return "its measured phase took no time"
    return ""
