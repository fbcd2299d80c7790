"""The packages that reports and mgstudy need, and which a Python may lack."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence


def missing_packages(packages: Sequence[str], needed_by: str) -> str:
    """A sentence if this Python is too old or lacks a package; empty if it can do what is asked. The packages are not
    imported, since that takes a while. `needed_by` has its verb: "reports need"."""
    if sys.version_info < (3, 10):
        return f"{sys.executable} is Python {sys.version.split()[0]}, and {needed_by} 3.10: set MULTIGRAIN_PYTHON to a newer one"
    for package in packages:
        if importlib.util.find_spec(package) is None:
            return (
                f"{sys.executable} has no package '{package}', which {needed_by}: run cmake/setup.sh build, or "
                f"'{sys.executable} -m pip install {package}', or set MULTIGRAIN_PYTHON to a Python that has it"
            )
    return ""
