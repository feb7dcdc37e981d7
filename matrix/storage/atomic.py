"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path

from matrix.errors import StorageError


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whole or not at all. Raises :class:`StorageError` naming the path and what to do."""
    try:
        replace_file(path, data)
    except OSError as error:
        raise storage_error(path, error) from error


def replace_file(path: Path, data: bytes, *, durable: bool = False) -> None:
    """As :func:`write_atomically`, but raises ``OSError``; ``durable`` waits until the disk has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # noqa: PTH101 - mkstemp makes files that only the owner may read
        os.replace(temporary, path)  # noqa: PTH105
    except OSError:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def storage_error(path: Path, error: OSError) -> StorageError:
    """The error to show when ``path`` cannot be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = (
        "free some disk space and run again: what was measured so far is kept and not repeated"
        if full
        else "check that the folder exists and may be written to"
    )
    return StorageError(f"cannot write {path}: {error.strerror or error}", hint=hint)
