#!/usr/bin/env python3
"""Runs that something happens to: a random process of a random run is killed, stopped, signalled or starved of resources
at a random moment. However a run ends: it ends; it does not end well with a wrong result; its status and its last
words say what happened; nothing of it is left.

    faults.py --bin build/bin --first 1 --runs 50 --jobs 2     # seeds 1 to 50
    faults.py --bin build/bin --first 17 --runs 1 --verbose    # what seed 17 is, and how it ends

Each line of --log is what is known of one run, as JSON.
"""

import argparse
import collections
import dataclasses
import json
import os
import re
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import machine
import plan as plans

# A run that has not ended by then hangs. This is far longer than any takes, also on a machine that is busy with other
# things.
HANG_S = 90.0
# The end of a run may take this long to end all its processes everywhere.
GONE_S = 15.0
SKIPPED = 77  # for CTest

# Words that no end of a run may have, whatever it was due to.
BROKEN = re.compile(r"invariant broken|terminate called|stack smashing|Traceback|AddressSanitizer|stopped, because the run")


class Run:
    """mgrun, what it has started, and what they say."""

    def __init__(self, plan, bin_folder, folder):
        self.plan = plan
        self.program = f"{bin_folder}/workloads/{plan.workload}"
        self._folder = folder
        self.command = self._command(bin_folder)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MULTIGRAIN_", "UCX_"))}
        environment["TMPDIR"] = tempfile.gettempdir()
        if plan.tls:
            environment["UCX_TLS"] = plan.tls
        out = os.open("/dev/full", os.O_WRONLY) if plan.fault == "output-full" else self._file("out")
        err = os.open("/dev/full", os.O_WRONLY) if plan.fault == "messages-full" else self._file("err")
        if plan.fault == "output-closed":
            reader, out = os.pipe()
            os.close(reader)
        self.begin = time.monotonic()
        # The run starts as a shell would start it: in a process group of its own, with nothing ignored.
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment,
                                        start_new_session=True, restore_signals=True, preexec_fn=self._limit)
        os.close(out)
        os.close(err)

    def _file(self, name):
        return os.open(f"{self._folder}/{name}", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def text(self, name):
        try:
            with open(f"{self._folder}/{name}", encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def _command(self, bin_folder):
        plan = self.plan
        where = ["--hosts", plan.hosts] if plan.fabric == "hosts" else ["--nodes", str(plan.nodes), "--fabric", plan.fabric]
        labels = ["--label-output"] if plan.labels else []
        return [f"{bin_folder}/mgrun", *where, *labels, "--timeout", str(plans.TIME_OUT), "--procs-per-node",
                str(plan.processors), "--protocol", plan.protocol, self.program, *plan.arguments, "--check"]

    def _limit(self):
        # A shell in the background has its children ignore these signals, and all processes below them would ignore
        # them, too.
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        # A core file of every crash would be left behind, and is of no use here.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        kind = {"limit-files": resource.RLIMIT_NOFILE, "limit-file-size": resource.RLIMIT_FSIZE,
                "limit-address-space": resource.RLIMIT_AS}.get(self.plan.fault)
        if kind is not None:
            resource.setrlimit(kind, (self.plan.amount, self.plan.amount))

    def ended(self):
        return self.process.poll() is not None

    def nodes(self):
        """Processes of nodes that run the program already, by the nodes' numbers."""
        found = {}
        for pid in machine.processes():
            number = machine.variable(pid, "MULTIGRAIN_NODE")
            if number is not None and machine.runs(pid, self.program):
                found[int(number)] = pid
        return found

    def victims(self):
        """The processes that the fault is for, or none if they are not there yet."""
        victim = self.plan.victim
        if victim == plans.MGRUN:
            return [self.process.pid]
        if victim == plans.ALL:
            return machine.processes()
        if victim == plans.AGENT:
            return [pid for pid in machine.processes() if machine.command_line(pid).endswith("mgrun --agent")][:1]
        nodes = self.nodes()
        if victim == plans.NODES:
            return list(nodes.values()) if len(nodes) == self.plan.nodes else []
        wanted = 0 if victim == plans.NODE_0 else self.plan.node
        return [nodes[wanted]] if wanted in nodes else []

    def finish(self, seconds):
        """Whether it has ended by then."""
        until = time.monotonic() + seconds
        while not self.ended() and time.monotonic() < until:
            time.sleep(0.01)
        return self.ended()


def send(victims, number):
    for pid in victims:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def starve(victims, bytes_left):
    for pid in victims:
        for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
            try:
                resource.prlimit(pid, kind, (bytes_left, bytes_left))
            except (ProcessLookupError, PermissionError):
                pass


SIGNALS = {"kill": signal.SIGKILL, "segv": signal.SIGSEGV, "term": signal.SIGTERM, "term-group": signal.SIGTERM,
           "int": signal.SIGINT, "hup": signal.SIGHUP}


def strike(run):
    """Does what the plan says. Whether it came in time."""
    plan = run.plan
    if plan.fault.startswith(("limit-file", "limit-address", "output", "messages", "nothing")):
        return True  # it was there from the start
    while time.monotonic() < run.begin + plan.at and not run.ended():
        time.sleep(0.002)
    victims = run.victims()
    while not victims and not run.ended():
        time.sleep(0.002)
        victims = run.victims()
    if run.ended():
        return False
    if plan.fault == "limit-memory":
        starve(victims, plan.amount)
    elif plan.fault.startswith("stop"):
        send(victims, signal.SIGSTOP)
        until = time.monotonic() + plan.lasts
        # A process that is itself stopped cannot end.
        while time.monotonic() < until and not run.ended():
            time.sleep(0.01)
        send(victims, signal.SIGCONT)
    else:
        send(victims, SIGNALS[plan.fault])
    return True


def expected(plan):
    """The statuses of a run that does not survive its fault, and what one of its last words must match (None: no words
    are needed). Status 0 needs none of it, but the right result."""
    number = SIGNALS.get(plan.fault)
    named = "node 0" if plan.victim == plans.NODE_0 else f"node {plan.node}" if plan.victim == plans.NODE else r"node \d+"
    lost = rf"{named}\b.* was killed by signal {int(number or 0)} |lost {named}\b"
    if plan.fault in ("kill", "segv"):
        if plan.victim in (plans.MGRUN, plans.ALL):
            return {-signal.SIGKILL}, None
        if plan.victim == plans.AGENT:
            return {1}, r"host (localhost|here)( \(nodes? [\d,]+\))? is gone: its agent has ended|host (localhost|here): its agent"
        status = {plans.NODE_0: {128 + number}, plans.NODE: {1}, plans.NODES: {1, 128 + number}}[plan.victim]
        return status, lost
    if plan.fault in ("term", "int", "hup", "term-group"):
        status = {128 + number}
        words = rf"signal {int(number)} \(.*ended the run|its agent was ended by signal {int(number)}"
        if plan.victim in (plans.NODE_0, plans.NODE):
            # A node that has not begun to work for the run dies of the signal.
            return status | {1}, f"{words}|{lost}"
        if plan.victim == plans.ALL and plan.fabric == "hosts":
            status |= {1}
        # Before mgrun watches for signals it is a process like any other.
        return status | {-number}, words
    if plan.fault == "stop-short":
        return set(), None
    if plan.fault == "stop-long":
        return {1}, (rf"lost {named}\b|{named}\b.*(lost|silent|heard)|host (localhost|here) .*is gone: nothing has been heard "
                     r"from it|its agent has heard nothing from mgrun|did not start|has not answered")
    if plan.fault == "limit-files":
        return {1, 2}, r"open files|ulimit -n"
    if plan.fault == "limit-file-size":
        return {1, 2}, r"ulimit -f|File too large"
    if plan.fault == "limit-address-space":
        return {1, 2}, r"ulimit -v"
    if plan.fault == "limit-memory":
        # 127: the loader could not map a library.
        return {1, 2, 127, 128 + signal.SIGSEGV, 128 + signal.SIGABRT, 128 + signal.SIGBUS}, r"node \d+|memory|libraries"
    if plan.fault == "output-full":
        return {1}, r"cannot write .*No space left on device"
    if plan.fault == "output-closed":
        return {-signal.SIGPIPE, 128 + signal.SIGPIPE}, None
    return set(), None


def judge(plan, result):
    """What is wrong with how a run ended, in words."""
    wrong = []
    status, out, err = result["status"], result["out"], result["err"]
    if result["hang"]:
        return ["it did not end"]
    wrong += [f"left behind: {one}" for one in result["left"]]
    # A node whose memory ends anywhere may end anyhow, as long as the run does not go on.
    if BROKEN.search(err) and not (plan.fault == "limit-memory" and "bad_alloc" in err):
        wrong.append("it ended with words that no end may have")
    if status == 0:
        if plan.fault in ("output-full", "output-closed"):
            wrong.append("its output was lost, and its status is 0")
        elif "check: passed" not in out:
            wrong.append("its status is 0, but not its result right")
        return wrong
    statuses, words = expected(plan) if result["struck"] else (set(), None)
    if status in statuses and status == -SIGNALS.get(plan.fault, 0):
        return wrong  # mgrun itself was killed: before it watched for signals, or by one that it cannot see
    if status not in statuses:
        wrong.append(f"its status is {status} instead of one of {sorted(int(s) for s in statuses) or [0]}")
    elif words is not None and not re.search(words, err):
        wrong.append(f"its words do not say what happened (/{words}/)")
    return wrong


def one_run(seed, bin_folder):
    plan = plans.make(seed)
    folder = tempfile.mkdtemp(prefix="run-", dir=os.environ["MULTIGRAIN_FAULTS_FOLDER"])
    run = Run(plan, bin_folder, folder)
    result = {"seed": seed, "command": " ".join(run.command), "plan": dataclasses.asdict(plan)}
    result["struck"] = strike(run)
    struck_at = time.monotonic()
    result["hang"] = not run.finish(HANG_S)
    result["after"] = round(time.monotonic() - struck_at, 3)
    if result["hang"]:
        result["stacks"] = stacks()
        machine.clean()
        run.process.wait()
    result["status"] = run.process.returncode
    result["left"] = [] if result["hang"] else machine.leftovers(GONE_S)
    if result["left"]:
        machine.clean()
    result["total"] = round(time.monotonic() - run.begin, 3)
    result["out"], result["err"] = run.text("out")[-2000:], run.text("err")[-4000:]
    result["wrong"] = judge(plan, result)
    shutil.rmtree(folder)
    return result


def stacks():
    """Where the processes of a run that hangs are, if there is a debugger to ask."""
    texts = []
    for pid in machine.processes():
        words = f"{pid} ({machine.state(pid)}) {machine.command_line(pid)}"
        if shutil.which("gdb"):
            try:
                words += "\n" + subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 14"],
                                               capture_output=True, text=True, timeout=60).stdout[-6000:]
            except subprocess.TimeoutExpired:
                pass
        texts.append(words)
    return texts


def work(arguments):
    """The first process of a machine: one seed after the other, a line of JSON each."""
    for seed in arguments.seeds:
        print(json.dumps(one_run(seed, arguments.bin)), flush=True)


def show(result, verbose):
    plan = plans.Plan(**result["plan"])
    print(f"seed {plan.seed}: {plan.fault} {plan.victim} at {plan.at:.3f} s"
          f"{f' for {plan.lasts:.2f} s' if plan.fault.startswith('stop') else ''}"
          f"{f' ({plan.amount})' if plan.amount else ''}; {plan.fabric} {plan.tls}\n  {result['command']}")
    print(f"  status {result['status']}, {result['after']} s after the fault")
    for line in result["wrong"]:
        print(f"  WRONG: {line}")
    if verbose or result["wrong"]:
        for name in ("out", "err"):
            for line in result[name].splitlines()[-12:]:
                print(f"  {name}| {line}")
        for text in result.get("stacks", []):
            print("  " + text.replace("\n", "\n  "))
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.environ.get("MULTIGRAIN_TEST_BIN", "build/bin"), help="where mgrun is")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--runs", type=int, default=50, help="how many seeds")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--log", help="file for what is known of each run")
    parser.add_argument("--verbose", action="store_true", help="show every run")
    parser.add_argument("--seeds", type=int, nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.seeds is not None:
        return work(arguments)
    reason = machine.missing()
    if reason is not None:
        print(f"skipped: {reason}")
        return SKIPPED
    arguments.bin = os.path.realpath(arguments.bin)
    folder = tempfile.mkdtemp(prefix="multigrain-faults-")
    try:
        return watch(arguments, folder)
    finally:
        shutil.rmtree(folder)


def watch(arguments, folder):
    """Starts the machines and collects what they find."""
    seeds = range(arguments.first, arguments.first + arguments.runs)
    workers = []
    for job in range(min(arguments.jobs, arguments.runs)):
        own = f"{folder}/{job}"
        os.makedirs(f"{own}/tmp")
        environment = dict(os.environ, TMPDIR=f"{own}/tmp", MULTIGRAIN_FAULTS_FOLDER=own)
        mine = [str(seed) for seed in seeds[job::arguments.jobs]]
        workers.append(subprocess.Popen(machine.command([sys.executable, "-B", os.path.abspath(__file__), "--bin",
                                                         arguments.bin, "--seeds", *mine]),
                                        stdout=subprocess.PIPE, text=True, env=environment))
    # One pipe after the other would leave the second full; a line is short, so they are read in turns.
    ends, failed, done = collections.Counter(), [], 0
    times = collections.defaultdict(list)
    log = open(arguments.log, "a", encoding="utf-8") if arguments.log else None
    selector = selectors.DefaultSelector()
    for worker in workers:
        selector.register(worker.stdout, selectors.EVENT_READ)
    while selector.get_map():
        for key, _ in selector.select():
            line = key.fileobj.readline()
            if not line:
                selector.unregister(key.fileobj)
                continue
            result = json.loads(line)
            done += 1
            if log:
                print(line, end="", file=log, flush=True)
            plan = plans.Plan(**result["plan"])
            kind = f"{plan.fault} {plan.victim}" if result["struck"] else "too late"
            ends[(kind, result["status"])] += 1
            times[kind].append(result["after"])
            if result["wrong"]:
                failed.append(result["seed"])
            if result["wrong"] or arguments.verbose:
                show(result, arguments.verbose)
    for worker in workers:
        worker.wait()
    for kind in sorted(times):
        statuses = ", ".join(f"{status}: {count}" for (name, status), count in sorted(ends.items(), key=str) if name == kind)
        print(f"{kind:32s} {len(times[kind]):4d} runs, longest {max(times[kind]):6.2f} s after it; statuses {statuses}")
    print(f"{done} runs, {len(failed)} of them wrong{': seeds ' + ' '.join(map(str, sorted(failed))) if failed else ''}")
    return 0 if not failed and done == arguments.runs else 1


if __name__ == "__main__":
    sys.exit(main())
