"""Files that are there whole or not at all, and the JSON in them."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any


class FormatError(Exception):
    """A sentence that says why a text is not what was expected."""


def parse_versioned(
    contents: str, name: str, schema: str, version: int, writer: str, remedy: str = ""
) -> dict[str, Any]:
    """The JSON that `writer` writes, which says its schema and its version. `name` is what to call it in a FormatError."""
    try:
        found = json.loads(contents)
    except ValueError as error:
        raise FormatError(f"{name} is no JSON: {error}") from error
    if not isinstance(found, dict) or found.get("schema") != schema:
        raise FormatError(f"{name} is not what {writer} writes")
    if found.get("version") != version:
        raise FormatError(
            f"{name} has version {found.get('version')} of the format, and this program reads version {version}{remedy}"
        )
    return found


def write_whole(path: str, contents: str) -> None:
    """All or nothing: a reader, or a program that was killed here, never leaves or sees a part."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=".report")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(contents)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
