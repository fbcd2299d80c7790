#!/usr/bin/env python3
"""The Debian packages, without building them: every installed file belongs to exactly one, and what debian/ says of versions and
of what a build needs agrees with the rest of the tree.

usage: debian_test.py SOURCE-DIRECTORY PREFIX      PREFIX is where cmake --install has installed
"""

from __future__ import annotations

import fnmatch
import os
import re
import sys
from pathlib import Path

# What debian/rules renames or leaves out.
RENAMED = {
    "share/zsh/site-functions/": "share/zsh/vendor-completions/",
    "share/doc/Multigrain/": "share/doc/multigrain/",
}
LEFT_OUT = ("share/doc/Multigrain/LICENSE",)
# Only what the build of developers has: Debian 12 has no nanobind.
NOT_IN_PACKAGES = re.compile(r"lib/multigrain/python/multigrain/trace/_native.*\.so")
MADE_BY_RULES = ("usr/lib/python3/dist-packages/multigrain",)
# What cmake/setup.sh installs for the tests of a developer's build, or for the Python bindings.
NOT_FOR_PACKAGES = {"libgtest-dev", "libgmock-dev", "python3-dev", "python3-venv"}

failed = False


def complain(text: str) -> None:
    global failed
    failed = True
    print(f"debian test: {text}", file=sys.stderr)


def in_debian(file: str) -> str:
    for ours, theirs in RENAMED.items():
        file = file.replace(ours, theirs)
    for private in ("lib/multigrain", "lib/cmake", "lib/pkgconfig", "lib/libmultigrain"):
        if file.startswith(private):
            file = "lib/x86_64-linux-gnu" + file.removeprefix("lib")
    return "usr/" + file


def is_in(file: str, pattern: str) -> bool:
    """Whether dh_install takes the file for the pattern, which may name a folder above it."""
    parts = file.split("/")
    return any(fnmatch.fnmatchcase("/".join(parts[:count]), pattern) for count in range(1, len(parts) + 1)) and (
        pattern.count("/") < len(parts)
    )


def check_files(source: Path, prefix: Path) -> None:
    patterns = {
        path.stem: [line for line in path.read_text().splitlines() if line] for path in source.glob("debian/*.install")
    }
    files = [str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()]
    files = [file for file in files if file not in LEFT_OUT and not NOT_IN_PACKAGES.fullmatch(file)]
    unused = {(package, pattern) for package, lines in patterns.items() for pattern in lines}
    for file in [*map(in_debian, files), *MADE_BY_RULES]:
        takers = {
            (package, pattern) for package, lines in patterns.items() for pattern in lines if is_in(file, pattern)
        }
        unused -= takers
        packages = sorted({package for package, _ in takers})
        if len(packages) != 1:
            complain(f"{file} belongs to {' and '.join(packages) or 'no package'}; see debian/*.install")
    for package, pattern in sorted(unused):
        complain(f"debian/{package}.install names {pattern}, which is not installed")
    control = (source / "debian/control").read_text()
    if (named := set(re.findall(r"^Package: (.*)$", control, re.MULTILINE))) != set(patterns):
        complain(f"debian/control has the packages {sorted(named)}, and debian/*.install are for {sorted(patterns)}")


def check_versions(source: Path) -> None:
    header = (source / "include/multigrain/multigrain.h").read_text()
    major, minor, patch = re.findall(r"^#define MG_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header, re.MULTILINE)
    version = f"{major}.{minor}.{patch}"
    changelog = (source / "debian/changelog").read_text().splitlines()[0]
    if not changelog.startswith(f"multigrain ({version})"):
        complain(f"debian/changelog begins with '{changelog}', and the version is {version}")
    rules = (source / "debian/rules").read_text()
    if f"libmultigrain0 (>= {major}.{minor}.0), libmultigrain0 (<< {major}.{int(minor) + 1}~)" not in rules:
        complain(f"debian/rules has dependencies for another version than {version}")


def check_needs(source: Path) -> None:
    setup = (source / "cmake/setup.sh").read_text()
    ours = set(re.search(r"^packages=\((.*?)\)", setup, re.MULTILINE | re.DOTALL)[1].split()) - NOT_FOR_PACKAGES
    field = re.search(r"^Build-Depends:(.*?)^\S", (source / "debian/control").read_text(), re.MULTILINE | re.DOTALL)[1]
    theirs = {each.split()[0] for each in field.split(",")}
    if missing := sorted(ours - theirs):
        complain(f"cmake/setup.sh installs {', '.join(missing)}, which debian/control does not build with")


def check_tests(source: Path) -> None:
    names = re.findall(r"^Tests: (.*)$", (source / "debian/tests/control").read_text(), re.MULTILINE)
    there = {path.name for path in (source / "debian/tests").iterdir()} - {"control", "lib.sh"}
    if set(names) != there:
        complain(f"debian/tests/control names {sorted(names)}, and there are {sorted(there)}")
    for name in names:
        if not os.access(source / "debian/tests" / name, os.X_OK):
            complain(f"debian/tests/{name} is not executable")


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    source, prefix = Path(sys.argv[1]), Path(sys.argv[2])
    check_files(source, prefix)
    check_versions(source)
    check_needs(source)
    check_tests(source)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
