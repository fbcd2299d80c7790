"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile


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
