"""Addresses of places that hosts share: a folder, what pyarrow's file systems take, fsspec's where it is installed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs

from matrix.errors import UsageError

HINT = "a folder, or s3://bucket/prefix?region=...; credentials come from where S3 clients look for them"


def reach(address: str, what: str) -> tuple[pyarrow.fs.FileSystem, str, pyarrow.fs.FileInfo]:
    """The file system, the path in it, and what is there. ``what`` names the place in an error.

    Raises :class:`UsageError` for an address that no file system takes, or that cannot be reached.
    """
    try:
        files, path = file_system(address)
        found = files.get_file_info(path)
    except (pa.ArrowException, OSError, ValueError, ImportError) as error:
        raise UsageError(f"{what} {public(address)} cannot be reached: {error}", hint=HINT) from error
    return files, path.rstrip("/"), found


def file_system(address: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """The file system is pyarrow's own where it knows the scheme; else fsspec's, where that is installed."""
    if "://" not in address:
        return pyarrow.fs.LocalFileSystem(), str(Path(address).expanduser().resolve())
    try:
        found: tuple[pyarrow.fs.FileSystem, str] = pyarrow.fs.FileSystem.from_uri(address)
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem" not in str(error):
            raise
        import fsspec  # noqa: PLC0415 - where the user has it

        files, path = fsspec.core.url_to_fs(address)
        return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(files)), path
    return found


def public(address: str) -> str:
    """Without what follows ``?`` and without credentials before ``@``: it is shown and kept."""
    scheme, separator, rest = address.partition("?")[0].rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
