"""What tells a resumed run from a new one, for what must be measured anew each time.

Figures off a GPU are never taken from an earlier run that came to its end: clocks, neighbours and drivers
move. They are taken from one that was interrupted, so that nothing measured is lost.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.errors import StorageError
from matrix.storage.atomic import storage_error

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A measurement under way: its token is part of every key under which its results are kept."""

    path: Path
    token: str

    def settle(self) -> None:
        """It came to its end: the next one measures anew. Raises :class:`StorageError` where that cannot be noted."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            told = f"the run is whole, but {self.path} cannot be removed: {error.strerror}"
            hint = "remove it by hand: while it is there, the same request takes this run's figures for its own"
            raise StorageError(told, hint=hint) from error


def pending(folder: Path, digest: str) -> Pending:
    """The measurement of a request by its digest: the one that was interrupted, or a new one.

    Raises :class:`StorageError` where it cannot be noted.
    """
    path = folder / "pending" / digest
    try:
        token = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        if not token:
            token = uuid.uuid4().hex
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(token, encoding="utf-8")
    except OSError as error:
        raise storage_error(path, error) from error
    return Pending(path=path, token=token)
