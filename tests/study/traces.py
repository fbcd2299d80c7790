"""A small trace whose cost is known where it is falsely shared, and mgtrace as a user runs it."""

import os
import subprocess

import multigrain.trace as mt
import numpy as np

BIN = os.environ["MULTIGRAIN_TEST_BIN"]
MGTRACE = f"{BIN}/mgtrace"

# A page must not take this for markup.
NASTY = "</script><img src=x onerror=alert(1)>&amp;"


def mgtrace(*arguments, **environment):
    result = subprocess.run([MGTRACE, *arguments], capture_output=True, text=True, check=False, timeout=900,
                            env=os.environ | environment)
    return result.returncode, result.stdout, result.stderr


def write_small_trace(path, rounds=400):
    """Two processors add to a counter each, in one allocation; a third of the references is to a table that both read."""
    references = np.zeros(6 * rounds, mt.REFERENCE)
    for i in range(rounds):
        for processor in (0, 1):
            counter = 0x10000 + 8 * processor
            at = 6 * i + 3 * processor
            references[at:at + 3] = [(counter, 1, processor, mt.READ, 8), (counter, 1, processor, mt.WRITE, 8),
                                     (0x20000 + 8 * (i % 512), 2, processor, mt.READ, 8)]
    events = np.zeros(4, mt.EVENT)
    events[0] = (0, 0x10000, 16, 1, 3, 0, mt.ALLOCATE)
    events[1] = (0, 0x20000, 4096, 2, 3, 0, mt.ALLOCATE)
    events[2] = (3, 0, 1200, 0, 0, 0, mt.PRIVATE)
    events[3] = (len(references), 0, 1200, 0, 0, 1, mt.PRIVATE)
    mt.write(path, references, events, processors=2, program="./counters --rounds 400", recorder="a test", dilation=2.5,
             sites=[("", "", 0), (f"/src/{NASTY}.c", "add", 12), ("/src/counters.c", "look_up", 20), ("/src/counters.c", "main", 30)],
             names=["", NASTY, "table"])
    return references, events
