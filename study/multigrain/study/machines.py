"""Machines that mgrun emulates under the counted clock: what a study says of one, and what a result depends on.

A machine is a name that `mgrun --machine list` shows, a file with a description (it has a slash or ends in .json), or,
in the variable MULTIGRAIN_MACHINE, the description itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from multigrain.study.runs import Json, StudyError, file_hash

DEFAULT_MACHINE = "today-rdma"  # what mgrun takes
OWN_MACHINE = "here"  # this one, which mgbench --calibrate has measured


def own_machine_file() -> Path | None:
    """Where mgrun reads the description of this machine; None: nowhere."""
    for variable, below in (("XDG_DATA_HOME", "."), ("HOME", ".local/share")):
        folder = os.environ.get(variable, "")
        if folder.startswith("/"):
            return Path(folder) / below / "multigrain/here.json"
    return None


def mgrun_lists(mgrun: str, option: str) -> str:
    """What `mgrun OPTION list` prints; empty if it has no such list."""
    try:
        return subprocess.run([mgrun, option, "list"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


@dataclass(frozen=True)
class EmulatedMachine:
    """`given` is what the user wrote. `network` is the machine's own as mgrun --net understands it; empty: not known."""

    given: str
    name: str
    what: str = ""
    source: str = ""
    network: str = ""
    sha256: str = ""  # of its description; empty: of one that only mgrun finds

    def identity(self) -> Json:
        """What results depend on: not where the description is."""
        return {"sha256": self.sha256} if self.sha256 else {"name": self.name}

    def as_json(self) -> Json:
        return {
            "given": self.given if not self.given.startswith("{") else "MULTIGRAIN_MACHINE",
            "name": self.name,
            "what": self.what,
            "source": self.source,
            "sha256": self.sha256 or None,
        }


def described(given: str, description: bytes, place: str) -> EmulatedMachine:
    """Out of a description, of which mgrun checks the figures. `place` is what to call it in a StudyError."""
    try:
        found = json.loads(description)
    except ValueError as error:
        raise StudyError(f"--machine: {place} is no JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        raise StudyError(f"--machine: {place} does not describe a machine: it has no name")
    texts = {key: value for key in ("what", "source") if isinstance(value := found.get(key), str)}
    return EmulatedMachine(given, found["name"], **texts, sha256=hashlib.sha256(description).hexdigest())


def listed(name: str, listing: str) -> EmulatedMachine:
    """Out of what `mgrun --machine list` prints; that a name is not in it, mgrun says itself when it runs."""
    block = re.search(rf"^{re.escape(name)} +\S.*?, network (\S+)\n((?: +\S.*\n)+)", listing, re.M)
    if not block:
        return EmulatedMachine(name, name)
    what, _, source = " ".join(block[2].split()).partition(" Source: ")
    digest = ""
    # Descriptions are files beside mgrun, which may change while mgrun does not.
    if folder := re.search(r"in its file, in (.+)\.$", listing, re.M):
        file = Path(folder[1]) / f"{name}.json"
        digest = file_hash(file) if file.is_file() else ""
    return EmulatedMachine(name, name, what, source, block[1], digest)


def emulated_machines(given: Iterable[str], mgrun: str) -> dict[str, EmulatedMachine]:
    """Of each that --machine names, or MULTIGRAIN_MACHINE."""
    out: dict[str, EmulatedMachine] = {}
    listing: str | None = None
    for each in given:
        if each.startswith("{"):
            out[each] = described(each, each.encode(), "the value of MULTIGRAIN_MACHINE")
        elif "/" in each or each.endswith(".json"):
            try:
                description = Path(each).read_bytes()
            except OSError as error:
                raise StudyError(f"--machine: cannot read '{each}': {error.strerror}") from error
            out[each] = described(each, description, f"'{each}'")
        elif each == OWN_MACHINE and (own := own_machine_file()) is not None and own.is_file():
            out[each] = described(each, own.read_bytes(), f"'{own}'")
        else:
            listing = mgrun_lists(mgrun, "--machine") if listing is None else listing
            out[each] = listed(each, listing)
    return out


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))
