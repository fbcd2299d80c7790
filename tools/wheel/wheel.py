#!/usr/bin/env python3
"""Makes a wheel of Multigrain's Python interface: the package, mgrun, the library, and the shared libraries that these need.

Usage: wheel.py BUILD-DIRECTORY SOURCE-DIRECTORY OUTPUT-DIRECTORY
Prints the path of the wheel. It is for every CPython from 3.10 on, and for the C library of this machine or a newer one.
UCX, which runs over several hosts need, is not in it: those hosts have it installed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

# Every Linux with glibc has these, in versions that fit its C library.
OF_SYSTEM = re.compile(r"lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+)\.so\.|ld-linux-x86-64\.so\.|linux-vdso\.so\.")

MODULES = ("multigrain-races.so", "multigrain-references.so", "multigrain-timeline.so", "multigrain-ucx.so")

LAUNCHER = '''"""The command mgrun of an installed wheel."""

import os
import sys


def main() -> None:
    """Becomes the mgrun of the package."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "mgrun")
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"mgrun: cannot run {path}: {error.strerror} (the wheel is for x86-64 Linux with glibc)")
'''


def fail(text: str) -> None:
    sys.exit(f"wheel: {text}")


def run(*words: str | Path) -> str:
    try:
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        fail(f"there is no command {words[0]}; cmake/setup.sh test installs it")
    except subprocess.CalledProcessError as error:
        fail(f"{' '.join(map(str, words))}: {error.stderr.strip()}")
    raise AssertionError


def needed(file: Path) -> dict[str, Path]:
    """Returns where the libraries lie that the file is linked with, directly or through others."""
    found = {}
    for line in run("ldd", file).splitlines():
        name, _, where = line.strip().partition(" => ")
        path = where.split(" (")[0]
        if path == "not found":
            fail(f"{file} needs {name}, which is not installed")
        if path and not OF_SYSTEM.match(name):
            found[name] = Path(path)
    return found


def version_of(source: Path) -> str:
    header = (source / "include/multigrain/multigrain.h").read_text()
    return ".".join(re.findall(r"#define MG_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))


def put(file: Path, to: Path, *, is_ours: bool = True) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file.resolve(), to)
    to.chmod(0o755)
    if is_ours:
        run("strip", "--strip-unneeded", to)


def stage(build: Path, source: Path, package: Path, version: str) -> None:
    """Fills the folder of the package."""
    library = f"libmultigrain.so.{version.rpartition('.')[0]}"
    package.mkdir()
    shutil.copytree(
        source / "study/multigrain/shared", package / "shared", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copyfile(source / "study/multigrain/__init__.py", package / "__init__.py")
    (package / "py.typed").touch()
    (package / "launcher.py").write_text(LAUNCHER)
    put(build / "bin/mgrun", package / "bin/mgrun")
    put(build / "lib" / library, package / "lib" / library)
    others = needed(build / "bin/mgrun") | needed(build / "lib" / library)
    for name, path in others.items():
        put(path, package / "lib" / name, is_ours=False)
        run("patchelf", "--set-rpath", "$ORIGIN", package / "lib" / name)
    run("patchelf", "--set-rpath", "$ORIGIN", package / "lib" / library)
    run("patchelf", "--set-rpath", "$ORIGIN/../lib", package / "bin/mgrun")
    for name in MODULES:
        put(build / "lib/multigrain" / name, package / "lib/multigrain" / name)
        run("patchelf", "--set-rpath", "$ORIGIN/..", package / "lib/multigrain" / name)
    shutil.copytree(source / "machines", package / "share/multigrain/machines")


def tag() -> str:
    if platform.machine() != "x86_64":
        fail(f"Multigrain is for x86-64, and this machine is {platform.machine()}")
    major, minor = platform.libc_ver()[1].split(".")[:2]
    return (
        f"py3-none-manylinux_{major}_{minor}_x86_64" if platform.libc_ver()[0] == "glibc" else "py3-none-linux_x86_64"
    )


def write(folder: Path, output: Path, version: str) -> Path:
    """Writes the wheel, as PEP 427 says, with what is in the folder."""
    info = folder / f"multigrain-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: multigrain\nVersion: {version}\nSummary: NumPy arrays that the nodes of a run share\n"
        "License: Apache-2.0\nRequires-Python: >=3.10\nRequires-Dist: numpy>=1.26\nProvides-Extra: notebook\n"
        'Requires-Dist: cloudpickle>=3; extra == "notebook"\n'
    )
    (info / "WHEEL").write_text(
        f"Wheel-Version: 1.0\nGenerator: multigrain ({sysconfig.get_python_version()})\nRoot-Is-Purelib: false\nTag: {tag()}\n"
    )
    (info / "entry_points.txt").write_text("[console_scripts]\nmgrun = multigrain.launcher:main\n")
    record = []
    output.mkdir(parents=True, exist_ok=True)
    wheel = output / f"multigrain-{version}-{tag()}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = path.relative_to(folder).as_posix()
            data = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100755 if os.access(path, os.X_OK) else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
        archive.writestr(f"{info.name}/RECORD", "".join(record) + f"{info.name}/RECORD,,\n")
    return wheel


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    build, source, output = (Path(word).resolve() for word in sys.argv[1:])
    version = version_of(source)
    with tempfile.TemporaryDirectory(prefix="multigrain-wheel-") as folder:
        stage(build, source, Path(folder) / "multigrain", version)
        print(write(Path(folder), output, version))


if __name__ == "__main__":
    main()
