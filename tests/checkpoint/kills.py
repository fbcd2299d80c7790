"""Kills a node of a run at random moments, again and again, and compares the run's result with that of an undisturbed one.

    kills.py MGRUN ROWS KILLS [SEED]

The run restarts itself by --restart-on-failure. Every second kill is right after a part of a checkpoint has been begun. The
seed is printed, and decides which node is killed and when; what the machine does meanwhile is its own.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SHAPES = [(1, 1), (2, 1), (2, 2)]
PROTOCOLS = ["mgs", "hlrc", "sc", "placement"]


def nodes_of(mgrun: int, program: str) -> list[int]:
    """The processes of the run's nodes: children of mgrun that have become the program."""
    found = []
    try:
        for task in Path(f"/proc/{mgrun}/task").iterdir():
            for child in (task / "children").read_text().split():
                if os.readlink(f"/proc/{child}/exe") == program:
                    found.append(int(child))
    except OSError:
        pass  # The run has just ended, or the node has.
    return found


def kill_one(
    run: subprocess.Popen, program: str, folder: str, chance: random.Random, in_write: bool, wait: float
) -> bool:
    """Kills a node after so many seconds, or when it next writes its part. Returns whether there was a node to kill."""
    time.sleep(wait)
    until = time.monotonic() + 2
    before = set(os.listdir(folder)) if os.path.isdir(folder) else set()
    while in_write and time.monotonic() < until and run.poll() is None:
        now = set(os.listdir(folder)) if os.path.isdir(folder) else set()
        if any(name.startswith("memory-") for name in now - before):
            break
        before = now
    nodes = nodes_of(run.pid, program)
    if not nodes:
        return False
    try:
        os.kill(chance.choice(nodes), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def disturbed(
    mgrun: str, program: str, arguments: list[str], options: list[str], kills: int, chance: random.Random
) -> int:
    """Runs the program, kills nodes of it, and returns how many were killed. Fails if the result is another."""
    undisturbed = subprocess.run([mgrun, *options, program, *arguments], capture_output=True, text=True, timeout=600)
    assert undisturbed.returncode == 0, undisturbed.stderr
    folder = tempfile.mkdtemp(prefix="kills-")
    killed = 0
    try:
        command = [mgrun, *options, "--checkpoint", folder, "--restart-on-failure", "1000000", program, *arguments]
        run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        said: list[str] = []
        readers = [
            threading.Thread(target=lambda s=s: said.append(s.read()), daemon=True) for s in (run.stdout, run.stderr)
        ]
        for reader in readers:
            reader.start()
        while killed < kills and run.poll() is None:
            if kill_one(run, program, folder, chance, killed % 2 == 0, chance.uniform(0, 0.4)):
                killed += 1
        run.wait(timeout=600)
        for reader in readers:
            reader.join()
        text = "".join(said)
        assert run.returncode == 0, f"exit status {run.returncode}:\n{text}"
        results = re.findall(r"^result .*$", text, re.M)
        assert results == re.findall(r"^result .*$", undisturbed.stdout, re.M), (
            f"{results} is not {undisturbed.stdout}\n{text}"
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return killed


def main() -> int:
    mgrun, program, kills = sys.argv[1], os.path.realpath(sys.argv[2]), int(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    killed = 0
    turn = 0
    while killed < kills:
        nodes, processors = SHAPES[turn % len(SHAPES)]
        protocol = PROTOCOLS[turn % len(PROTOCOLS)]
        turn += 1
        options = ["--nodes", str(nodes), "--procs-per-node", str(processors), "--protocol", protocol]
        some = disturbed(mgrun, program, ["60", "64", "20"], options, min(10, kills - killed), chance)
        killed += some
        print(f"{nodes}x{processors} {protocol}: {some} kills, the result is right; {killed} in all", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
