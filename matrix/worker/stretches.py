"""Stretches: which bytes of a slab are in use. Pure."""

from __future__ import annotations

GRANULE_BYTES = 2 << 20


class Stretches:
    """Hands out one stretch after the other; what is given back is free again from the next :meth:`restart` on."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._next, self._end = 0, size
        self._used: dict[int, int] = {}  # where each stretch that is in use begins and ends

    @property
    def in_use(self) -> int:
        """How many stretches have not been given back."""
        return len(self._used)

    def restart(self, offset: int, end: int | None = None) -> None:
        """Begin anew at ``offset`` and stay below ``end``; what is in use is passed over."""
        self._next, self._end = offset % self.size, self.size if end is None else end

    def take(self, size: int) -> int | None:
        """Where the next ``size`` bytes begin that nobody uses; None where they do not fit any more."""
        start = _rounded(self._next)
        for first, last in sorted(self._used.items()):
            if first < start + size and start < last:
                start = _rounded(last)
        if start + size > self._end:
            return None
        self._next = self._used[start] = start + size
        return start

    def give_back(self, start: int) -> None:
        self._used.pop(start, None)


def _rounded(offset: int) -> int:
    return -(-offset // GRANULE_BYTES) * GRANULE_BYTES
