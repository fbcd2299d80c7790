#!/usr/bin/env python3
"""What it costs the host to emulate a large machine in counted time (docs/studies/large-machines.md).

Runs Jacobi on machines of more and more nodes, and prints for each the host's time, the time of its processors, and the most memory
that the nodes' processes had at any look: their own (RssAnon), their page tables (VmPTE), and by how much the host's shared memory grew
(Shmem, to which other programs add).
"""

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def kilobytes(path, keys):
    """The sum of these lines of a file of /proc; 0 if the process has ended."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.split() for line in file]
    except OSError:
        return 0
    return sum(int(words[1]) for words in lines if len(words) > 1 and words[0].rstrip(":") in keys)


def family_of(root):
    """The process and all below it."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def measure(words, limit):
    """Runs the command. Returns the host's and its processors' seconds, and the most megabytes."""
    shared = kilobytes("/proc/meminfo", {"Shmem"})
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    most = 0
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            nodes = family_of(process.pid)
            own = sum(kilobytes(f"/proc/{node}/status", {"RssAnon", "VmPTE"}) for node in nodes)
            most = max(most, own + max(0, kilobytes("/proc/meminfo", {"Shmem"}) - shared))
            if time.monotonic() - begin > limit:
                process.terminate()
            # A look takes a time that grows with the number of nodes.
            time.sleep(0.02 + 0.003 * len(nodes))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: status {process.returncode}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - begin, spent, most / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), metavar="FOLDER")
    parser.add_argument("--nodes", default="1,16,256,1024", help="numbers of nodes (default: %(default)s)")
    parser.add_argument("--protocols", default="mgs,hlrc", help="default: %(default)s")
    parser.add_argument("--points", default="1024", help="sides of the grid (default: the paper's, %(default)s)")
    parser.add_argument("--limit", type=float, default=900, help="seconds for a run (default: %(default)s)")
    options = parser.parse_args()
    print("| protocol | nodes | points | host, s | processors, s | MB | emulated, ms | turns |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for protocol in options.protocols.split(","):
        for nodes in options.nodes.split(","):
            for points in options.points.split(","):
                with tempfile.TemporaryDirectory() as folder:
                    path = os.path.join(folder, "profile.json")
                    words = [
                        f"{options.build}/bin/mgrun",
                        "--nodes",
                        nodes,
                        "--protocol",
                        protocol,
                        "--clock",
                        "counted",
                    ]
                    words += ["--machine", "alewife", "--stats", f"json:{path}"]
                    words += [f"{options.build}/bin/workloads/counted/jacobi", "--size", "paper", "-n", points]
                    wall, spent, most = measure(words, options.limit)
                    with open(path, encoding="utf-8") as file:
                        run = json.load(file)["run"]
                print(
                    f"| {protocol} | {nodes} | {points} | {wall:.1f} | {spent:.1f} | {most:.0f} "
                    f"| {run['elapsed_ns'] / 1e6:.1f} | {run['turns']} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
