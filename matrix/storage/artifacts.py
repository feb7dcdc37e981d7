"""Generated code by content: every IR, PTX, cubin and SASS text is kept once, compressed, under its digest."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from matrix.errors import StorageError
from matrix.storage.atomic import storage_error, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable


class Artifacts:
    """Files ``<sha256>.zst`` in a folder (a zstd frame each, readable by any zstd)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        return self.folder / f"{digest}.zst"

    def put(self, data: bytes) -> str:
        """Keep ``data``; returns its digest."""
        digest = hashlib.sha256(data).hexdigest()
        if not self.path(digest).exists():
            write_atomically(self.path(digest), _compress(data))
        return digest

    def take(self, spool: Path, digests: Iterable[str]) -> None:
        """Move files that a worker spooled under their digest in here."""
        for digest in digests:
            raw = spool / digest
            if not self.path(digest).exists():
                write_atomically(self.path(digest), _compress(raw.read_bytes()))
            raw.unlink(missing_ok=True)

    def packed(self, digest: str) -> bytes:
        """The artefact as it is stored, for :meth:`receive` elsewhere."""
        return self.path(digest).read_bytes()

    def receive(self, digest: str, packed: bytes) -> None:
        """Keep an artefact that another store packed."""
        if not self.path(digest).exists():
            write_atomically(self.path(digest), packed)

    def holds(self, digests: Iterable[str]) -> bool:
        return all(self.path(digest).exists() for digest in digests)

    def get(self, digest: str) -> bytes:
        """The bytes of an artefact. Raises :class:`StorageError` where it is missing or damaged."""
        try:
            with pa.CompressedInputStream(pa.OSFile(str(self.path(digest))), "zstd") as stream:
                data = bytes(stream.read())
        except (OSError, pa.ArrowInvalid) as error:
            hint = "run the matrix again to make it anew"
            raise StorageError(f"artefact {self.path(digest)} cannot be read: {error}", hint=hint) from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise StorageError(f"artefact {self.path(digest)} does not match its digest", hint="delete it")
        return data

    def give(self, digests: Iterable[str], folder: Path) -> None:
        """Put the named artefacts into a run folder too, as hard links where the file system allows."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for digest in set(digests):
                _link(self.path(digest), folder / f"{digest}.zst")
        except OSError as error:
            raise storage_error(folder, error) from error


def _link(source: Path, target: Path) -> None:
    if target.exists():
        return
    with contextlib.suppress(OSError):
        os.link(source, target)
        return
    shutil.copyfile(source, target)


def _compress(data: bytes) -> bytes:
    # The stream writer makes frames that carry no special header of Arrow's: `zstd -d` reads them.
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())
