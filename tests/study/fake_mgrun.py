#!/usr/bin/env -S python3 -S -E
"""Stands in for mgrun: writes the profile of a run that takes as long as the program's arguments say.

FAKE_LOG gets a line for each run. The arguments of the program: times=1:80,2:50,4:40,8:10 (ms by processors a node;
"alone" is one processor), per-us=N (more ms for each microsecond of latency), fail-at=C, hang-at=C:C... (unless-file=FILE:
not if the file is there), silent-at=C, interrupted-at=C, text=ANYTHING; meet=N: waits until N runs have begun;
last-of=N: one processor waits until N other runs have ended. Runs differ by 1 % from each other; under the counted clock only by their seeds.
FAKE_SPANS, if it is set, gets a line "begin" and a line "end" for each run. FAKE_MACHINES is where descriptions are.
"""

import json
import os
import sys
import time

COUNTERS = (
    "read_faults",
    "write_faults",
    "upgrades",
    "local_faults",
    "pages_fetched",
    "diffs_applied",
    "releases",
    "pages_released",
    "locks_local",
    "locks_remote",
    "barriers",
)


def note(word):
    if spans := os.environ.get("FAKE_SPANS"):
        with open(spans, "a", encoding="utf-8") as file:
            file.write(f"{word}\n")


def count(word):
    with open(os.environ["FAKE_SPANS"], encoding="utf-8") as file:
        return file.read().split().count(word)


def wait(condition):
    while not condition():
        time.sleep(0.01)


def main():
    arguments = sys.argv[1:]
    if arguments == ["--net", "list"]:
        print(
            "Networks.\n\nmgs             latency=50us\n                the LAN of a test\n                Source: a paper,\n                section 5.3\n"
        )
        return 0
    if arguments == ["--machine", "list"]:
        print(
            "Machines that --machine knows by name, for --clock counted.\n\n"
            "old               20 MHz, network latency=50us\n                  a machine of a test,\n                  of long ago\n"
            "                  Source: a paper,\n                  section 5.1\n\n"
            "today-rdma        3000 MHz, network latency=1.5us,bandwidth=12.5GB/s\n                  a machine of today\n"
            "                  Source: a data sheet\n\n"
            f"Each figure's source is in its file, in {os.environ.get('FAKE_MACHINES', '/no/folder')}.\n"
        )
        return 0
    if "--no-pin" in arguments[: arguments.index("--")]:
        arguments.remove("--no-pin")
    end = arguments.index("--")
    options = dict(zip(arguments[:end:2], arguments[1:end:2]))
    program = dict(each.partition("=")[::2] for each in arguments[end + 2 :])
    nodes, size = int(options["--nodes"]), int(options["--procs-per-node"])
    if options.get("--net") == "bad":
        print("mgrun: --net: network model 'bad' is not understood", file=sys.stderr)
        return 2
    if options.get("--machine") == "bad":
        print("mgrun: --machine: there is no machine 'bad'", file=sys.stderr)
        return 2
    log = os.environ["FAKE_LOG"]
    note("begin")
    if meet := program.get("meet"):
        wait(lambda: count("begin") >= int(meet))
    if (others := program.get("last-of")) and nodes * size == 1:
        wait(lambda: count("end") >= int(others))
    with open(log, "a+", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {nodes}x{size} {' '.join(arguments[:end])}\n")
        file.seek(0)
        earlier = sum(1 for line in file if f" {nodes}x{size} " in line) - 1
    if program.get("fail-at") == str(size) and nodes > 1:
        print(f"it broke on {nodes} nodes <b>", file=sys.stderr)
        return 3
    if str(size) in program.get("hang-at", "").split(":") and nodes > 1 and not os.path.exists(program.get("unless-file", "")):
        time.sleep(600)
    if program.get("silent-at") == str(size):
        return 0
    times = dict(each.split(":") for each in program["times"].split(","))
    key = "alone" if nodes * size == 1 else str(size)
    latency = next((item for item in options.get("--net", "").split(",") if item.startswith("latency=")), "latency=50us")[8:]
    microseconds = float(latency[:-2]) * {"us": 1, "ms": 1000}[latency[-2:]]
    elapsed = float(times[key]) + (float(program.get("per-us", 0)) * microseconds / size if nodes > 1 else 0)
    is_counted = options.get("--clock") == "counted"
    different = int(options["--seed"]) - 1 if "--seed" in options else 0 if is_counted else earlier
    elapsed = int(elapsed * 1e6 * (1 + 0.01 * (different % 3)))

    def thread(number):
        # Half of the time of one node is the user's; of several, the more the processor's number is odd, the more waits.
        user = elapsed // 2 if nodes == 1 else elapsed // (4 + number % 2)
        parts = {"user_ns": user, "data_wait_ns": elapsed // 10, "lock_ns": elapsed // 20, "protocol_ns": elapsed // 20}
        parts["barrier_ns"] = elapsed - sum(parts.values())
        return {"total_ns": elapsed, **parts, "idle_ns": 0, "rights_ns": elapsed // 50, "diffs_ns": elapsed // 100}

    report = {
        "schema": "multigrain-profile",
        "version": 1,
        "run": {
            "program": arguments[end + 1],
            "nodes": nodes,
            "processors_per_node": size,
            "protocol": "mgs",
            "page_size": 4096,
            "network": options.get("--net", "ideal"),
            "access": "none",
            "elapsed_ns": elapsed,
            "clock": program.get("clock", options.get("--clock", "wall")),
            **({"interruptions": 3 * (program.get("interrupted-at") == str(size) and nodes > 1)} if is_counted else {}),
        },
        "nodes": [
            {
                "node": node,
                "processors": [
                    {
                        "processor": node * size + i,
                        **thread(node * size + i),
                        "counters": dict.fromkeys(COUNTERS, (10 + i) * (nodes > 1)),
                    }
                    for i in range(size)
                ],
                "service": thread(0),
                "counters": dict.fromkeys((*COUNTERS, "twins", "grant_reads"), 100 * (nodes > 1)),
                "messages": [{"type": 1, "name": "RREQ", "count": 7, "bytes": 700}] if nodes > 1 else [],
            }
            for node in range(nodes)
        ],
    }
    with open(options["--stats"].removeprefix("json:"), "w", encoding="utf-8") as file:
        json.dump(report, file)
    note("end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
