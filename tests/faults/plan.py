"""What a seed stands for: a run, and what is done to it. The same seed means the same plan for ever; only the moment at
which the fault strikes is as exact as the machine's clock."""

import dataclasses
import random

# These are checked against a sequential run, small, and long enough for a fault to find them at work. The cost of a
# miss depends on the fabric and the protocol by orders of magnitude, so there are several sizes.
WORKLOADS = {
    ("shm", "pages"): {"jacobi": "--size test --iterations 3000", "water": "--size test --iterations 150", "tsp": "-n 13",
                       "lu": "-n 896", "radix": "-n 800000"},
    ("shm", "lines"): {"jacobi": "--size test --iterations 2500", "water": "--size test --iterations 60", "tsp": "-n 12",
                       "lu": "-n 640", "radix": "-n 200000"},
    ("ucx", "pages"): {"jacobi": "--size test --iterations 800", "water": "--size test --iterations 40", "tsp": "-n 12",
                       "lu": "-n 640", "radix": "-n 200000"},
    ("ucx", "lines"): {"jacobi": "--size test --iterations 100", "water": "--size test --iterations 6", "tsp": "-n 10",
                       "lu": "-n 192", "radix": "--size test"},
}
LINES = ("dszoom", "shasta")

# The time-out in seconds. A stop that is shorter than the time-out must do no harm.
TIME_OUT = 2.0
SHORT_STOP = (0.05, 1.0)
LONG_STOP = (4.0, 5.0)

# A fault strikes one of these.
NODE_0, NODE, NODES, MGRUN, AGENT, ALL = "node 0", "a node", "all nodes", "mgrun", "an agent", "everything"
PROCESSES = (NODE_0, NODE, NODES, MGRUN, AGENT, ALL)

# Each fault has its weight, and the victims that it may strike.
FAULTS = (
    ("kill", 5, PROCESSES),
    ("segv", 2, (NODE_0, NODE)),
    ("term", 4, (MGRUN, NODE_0, NODE)),
    ("int", 2, (MGRUN,)),
    ("hup", 1, (MGRUN,)),
    ("term-group", 2, (ALL,)),
    ("stop-short", 5, PROCESSES),
    ("stop-long", 3, (NODE_0, NODE, MGRUN, AGENT, ALL)),
    ("limit-files", 2, (ALL,)),
    ("limit-file-size", 1, (ALL,)),
    ("limit-address-space", 1, (ALL,)),
    ("limit-memory", 2, (NODE_0, NODE)),
    ("output-full", 1, (ALL,)),
    ("output-closed", 1, (ALL,)),
    ("messages-full", 1, (ALL,)),
    ("nothing", 1, (ALL,)),
)


@dataclasses.dataclass
class Plan:
    seed: int
    fault: str
    victim: str
    fabric: str  # shm, ucx, hosts
    tls: str  # UCX_TLS; empty: UCX's choice
    hosts: str
    nodes: int
    processors: int
    protocol: str
    workload: str
    arguments: list
    labels: bool
    at: float  # seconds after the start of mgrun
    lasts: float  # of a stop
    amount: int  # of a limit
    node: int  # if the victim is one


def make(seed):
    r = random.Random(seed)
    fabric = r.choice(["shm", "shm", "ucx", "ucx", "hosts"])
    protocol = r.choice(["mgs", "hlrc", "sc", "dszoom", "shasta"])
    sizes = WORKLOADS["shm" if fabric == "shm" else "ucx", "lines" if protocol in LINES else "pages"]
    workload = r.choice(sorted(sizes))
    nodes = r.choice([2, 3, 4])
    weights = [weight for _, weight, _ in FAULTS]
    fault, _, victims = r.choices(FAULTS, weights)[0]
    victim = r.choice([one for one in victims if one != AGENT or fabric == "hosts"])
    limit = {"limit-files": r.randint(6, 60), "limit-file-size": r.choice([4096, 4096, 1 << 20, 1 << 34]),
             "limit-address-space": 1 << r.randint(27, 45), "limit-memory": 1 << r.randint(18, 22)}
    first = r.randint(1, nodes - 1)
    stop = LONG_STOP if fault == "stop-long" else SHORT_STOP
    return Plan(
        seed=seed, fault=fault, victim=victim, fabric=fabric, tls=r.choice(["", "tcp,self"]) if fabric != "shm" else "",
        hosts=r.choice([f"localhost:{nodes}", f"localhost:{first},here:{nodes - first}"]), nodes=nodes,
        processors=r.choice([1, 1, 2]), protocol=protocol, workload=f"{'fine/' if protocol in LINES else ''}{workload}",
        arguments=sizes[workload].split(),
        # Only what passes through mgrun is mgrun's to lose.
        labels=fault == "output-full" or r.random() < 0.25, at=r.uniform(0, 0.4), lasts=r.uniform(*stop),
        amount=limit.get(fault, 0), node=r.randint(1, nodes - 1))
