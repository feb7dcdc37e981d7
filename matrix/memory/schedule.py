"""How long one warp takes for itself: the schedule that ptxas wrote into the machine code, and what it waits for.

Each instruction says how many clocks the next one waits at least, which of six barriers it sets when its result
arrives, and on which it waits itself. Its place in the 128 bits of an instruction (bits 105 to 121, since Volta): Jia
et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", arXiv:1804.06826. When a result arrives
is measured (``data/rates.toml``). No other warp is thought of: many hide each other's waiting, few do not. Waits for
asynchronous copies and matrix instructions are left out, so this is the least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

INSTRUCTION_BYTES = 16
_BARRIERS = 6
_FIELDS = ((105, 4), (110, 3), (113, 3), (116, 6))  # first bit and width: stall, sets, frees, waits
_PASSES = 3  # of a loop: the last is taken, when what it hands on has settled
_SHARED = ("LDS", "LDSM", "ATOMS", "LDC")
_GLOBAL = ("LDG", "LD", "ATOMG", "ATOM", "LDGSTS")
_LOCAL = ("LDL",)
_SHUFFLES = ("SHFL",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Clocks until a result is there: of a global load in the mean over L1, L2 and DRAM, out of L1, out of shared
    memory, of a shuffle, and of anything else that does not take a fixed time.
    """

    load: float
    l1: float
    shared: float
    shuffle: float
    other: float


class Slot(NamedTuple):
    """One instruction's schedule: clocks to the next, barriers that it sets (or -1) when read and when done, a mask."""

    stall: int
    sets: int
    frees: int
    waits: int


def slots(code: bytes) -> list[Slot]:
    """The schedule of each instruction of some machine code."""
    words = np.frombuffer(code, "<u8", len(code) // INSTRUCTION_BYTES * 2)[1::2].astype(np.int64)  # bits 64 to 127
    stall, sets, frees, waits = (words >> (bit - 64) & ((1 << width) - 1) for bit, width in _FIELDS)
    barriers = (np.where(field < _BARRIERS, field, -1).tolist() for field in (sets, frees))
    return list(map(Slot, np.maximum(stall, 1).tolist(), *barriers, waits.tolist()))


def clocks(opcodes: Sequence[str], schedule: Sequence[Slot], places: Iterable[int], latencies: Latencies) -> float:
    """One pass through the instructions at these places, again and again until it takes the same time."""
    chosen = [(schedule[place], _latency(opcodes[place], latencies)) for place in places]
    now, ready, begin = 0.0, [0.0] * _BARRIERS, 0.0
    for _ in range(_PASSES):
        begin = now
        now = _pass(chosen, now, ready)
    return now - begin


def once(opcodes: Sequence[str], schedule: Sequence[Slot], places: Iterable[int], latencies: Latencies) -> float:
    """A single pass, with nothing under way before it."""
    chosen = [(schedule[place], _latency(opcodes[place], latencies)) for place in places]
    return _pass(chosen, 0.0, [0.0] * _BARRIERS)


def _pass(chosen: Iterable[tuple[Slot, float]], now: float, ready: list[float]) -> float:
    for slot, latency in chosen:
        for barrier in range(_BARRIERS):
            if slot.waits >> barrier & 1:
                now = max(now, ready[barrier])
        if slot.sets >= 0:
            ready[slot.sets] = max(ready[slot.sets], now + latency)
        if slot.frees >= 0:  # operands are read, soon
            ready[slot.frees] = max(ready[slot.frees], now + _READ)
        now += slot.stall
    return now


_READ = 12.0  # clocks until a memory instruction has read its registers; seldom waited for


def _latency(opcode: str, latencies: Latencies) -> float:
    if opcode in _GLOBAL:
        return latencies.load
    if opcode in _LOCAL:
        return latencies.l1
    if opcode in _SHARED:
        return latencies.shared
    return latencies.shuffle if opcode in _SHUFFLES else latencies.other


def load_latency(levels: Mapping[str, float], in_l1: float, in_l2: float) -> float:
    """The mean of a global load of which these shares are in L1, and of the rest in L2."""
    beyond = in_l2 * levels["l2"] + (1 - in_l2) * levels["dram"]
    return in_l1 * levels["l1"] + (1 - in_l1) * beyond
