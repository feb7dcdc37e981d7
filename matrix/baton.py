"""Whose turn it is, told by one number in memory that all processes of a measurement map.

Ring 0: the process that measures makes it, the workers take their turns by it. Between two turns nobody is asked
anything, so that the GPU waits for a look at a number and not for messages.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_ABANDONED = -1
_PAUSE_S = 20e-6
# In memory where the host has such a file system: what is written there never waits for a disk.
_MEMORY = Path("/dev/shm")  # noqa: S108 - the file is made by mkstemp, for its owner alone


class Baton:
    """The number of the turn that may be taken, counted on by whoever took it."""

    def __init__(self, path: str) -> None:
        """Map the baton at ``path``. Raises ``OSError`` where there is none."""
        self.path = path
        with Path(path).open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8)
        self._turn = memoryview(self._memory).cast("q")

    @classmethod
    def make(cls) -> Baton:
        """A new baton at turn 0; its file is gone when it is closed by :meth:`remove`."""
        descriptor, path = tempfile.mkstemp(prefix="baton-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)
        os.write(descriptor, bytes(8))
        os.close(descriptor)
        return cls(path)

    def restart(self) -> None:
        """Begin with turn 0 again. Nobody may be waiting."""
        self._turn[0] = 0

    def wait(self, turn: int, patience_s: float) -> bool:
        """Wait for ``turn``; False where it will not come: abandoned, or nothing moved for ``patience_s``."""
        seen, since = self._turn[0], time.monotonic()
        while (now := self._turn[0]) != turn:
            if now == _ABANDONED:
                return False
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > patience_s:
                return False
            time.sleep(_PAUSE_S)
        return True

    def pass_on(self, turn: int) -> None:
        """``turn`` was taken: the next one may be. What was abandoned stays so."""
        if self._turn[0] == turn:
            self._turn[0] = turn + 1

    def abandon(self) -> None:
        """Nobody is to wait for a turn any more."""
        self._turn[0] = _ABANDONED

    def close(self) -> None:
        self._turn.release()
        self._memory.close()

    def remove(self) -> None:
        """Close the baton and delete its file."""
        self.close()
        Path(self.path).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
