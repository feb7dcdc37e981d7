"""How long one warp takes for itself: the schedule that ptxas wrote into the machine code, and what it waits for.

Each instruction says how many clocks the next one waits at least, which of six barriers it sets when its result
arrives, and on which it waits itself. Its place in the 128 bits of an instruction (bits 105 to 121, since Volta): Jia
et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", arXiv:1804.06826. When a result arrives
is measured (``data/rates.toml``). Loads that are waited for together are waited for as long as the slowest takes, and
special functions arrive no faster than their unit makes them. No other warp is thought of: many hide each other's
waiting, few do not. Waits for asynchronous copies and matrix instructions are left out, so this is the least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

INSTRUCTION_BYTES = 16
_BARRIERS = 6
_FIELDS = ((105, 4), (110, 3), (113, 3), (116, 6))  # first bit and width: stall, sets, frees, waits
_PASSES = 3  # of a loop: the last is taken, when what it hands on has settled
_READ = 12.0  # clocks until a memory instruction has read its registers; seldom waited for

Levels: TypeAlias = "tuple[tuple[float, float], ...]"  # shares, which add up to one, each with its clocks


class Slot(NamedTuple):
    """One instruction's schedule: clocks to the next, barriers that it sets (or -1) when read and when done, a mask."""

    stall: int
    sets: int
    frees: int
    waits: int


class Arrival(NamedTuple):
    """When an instruction's result is there, and so many clocks after it its unit takes the warp's next."""

    levels: Levels
    interval: float = 0.0


class _Event(NamedTuple):
    """An instruction that waits or is waited for, so many clocks after the one before."""

    gap: int
    waits: tuple[int, ...]
    sets: int
    frees: int
    arrival: Arrival


def slots(code: bytes) -> list[Slot]:
    """The schedule of each instruction of some machine code."""
    words = np.frombuffer(code, "<u8", len(code) // INSTRUCTION_BYTES * 2)[1::2].astype(np.int64)  # bits 64 to 127
    stall, sets, frees, waits = (words >> (bit - 64) & ((1 << width) - 1) for bit, width in _FIELDS)
    barriers = (np.where(field < _BARRIERS, field, -1).tolist() for field in (sets, frees))
    return list(map(Slot, np.maximum(stall, 1).tolist(), *barriers, waits.tolist()))


def clocks(schedule: Sequence[Slot], arrivals: Sequence[Arrival], places: Iterable[int]) -> float:
    """One pass through the instructions at these places, again and again until it takes the same time."""
    events, rest = _events(schedule, arrivals, places)
    warp, begin = _Warp(), 0.0
    for _ in range(_PASSES):
        begin = warp.now
        warp.run(events, rest)
    return warp.now - begin


def once(schedule: Sequence[Slot], arrivals: Sequence[Arrival], places: Iterable[int]) -> float:
    """A single pass, with nothing under way before it."""
    warp = _Warp()
    warp.run(*_events(schedule, arrivals, places))
    return warp.now


def _events(schedule: Sequence[Slot], arrivals: Sequence[Arrival], places: Iterable[int]) -> tuple[list[_Event], int]:
    """What waits or is waited for, and the clocks from the last of them to the end."""
    found, gap = [], 0
    for place in places:
        stall, sets, frees, waits = schedule[place]
        if waits or sets >= 0 or frees >= 0:
            barriers = tuple(barrier for barrier in range(_BARRIERS) if waits >> barrier & 1)
            found.append(_Event(gap, barriers, sets, frees, arrivals[place]))
            gap = 0
        gap += stall
    return found, gap


class _Warp:
    """Where a warp is, in clocks, when each of its barriers is free, and when its special-function unit is."""

    __slots__ = ("now", "ready", "unit")

    def __init__(self) -> None:
        self.now = self.unit = 0.0
        self.ready = [0.0] * _BARRIERS

    def run(self, events: Iterable[_Event], rest: int) -> None:
        """One pass; ``rest``: clocks after its last event."""
        ready = self.ready
        for gap, waits, sets, frees, (levels, interval) in events:
            self.now += gap
            for barrier in waits:
                self.now = max(self.now, ready[barrier])
            start = self.now
            if interval:
                start = max(start, self.unit)
                self.unit = start + interval
            if sets >= 0:
                # The slowest of all that set it is waited for: this one may be it, if it finds its bytes far away.
                ready[sets] = sum(share * max(ready[sets], start + after) for share, after in levels)
            if frees >= 0:  # operands are read, soon
                ready[frees] = max(ready[frees], start + _READ)
        self.now += rest
