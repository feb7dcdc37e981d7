"""How long a launch keeps each part of the GPU busy, at the least: which part bounds it, and an estimate.

Each resource's time is its work over the documented rate (``data/rates.toml``), and that of waiting what one warp
takes for itself, as many blocks at a time as an SM holds; the longest is the floor that no schedule can beat. Resources
overlap in part, so the estimate that two environments are compared by is the root of the sum of squares: what it comes
to against an H200's clock is in docs/memory.md.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING

import tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping

SECTOR_BYTES = 32
WARP = 32
_MICRO = 1e6
_SECTORS_A_WAVEFRONT = 4
_ISSUED = ("issue", "alu", "fma")
# Which the machine code alone shows, or shows otherwise than the PTX does.
_OF_MACHINE_CODE = ("alu", "fma", "special", "local", "latency")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a GPU does in a second or a clock; ``*_per_clock`` are of one SM but for the L2's."""

    clock_hz: float
    dram_bytes_per_s: float
    l2_bytes_per_clock: float
    wavefronts_per_clock: float
    issue_per_clock: float
    alu_per_clock: float
    fma_per_clock: float
    special_per_clock: float
    tensor_flop_per_clock: float
    descriptor_clocks: float = 0.0  # of one SM for each tensor map that a block makes, however many others do
    latency_clocks: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A block's work, in means over the grid, and the launch's ``blocks``.

    ``dram_bytes`` are the launch's: what it must move when every byte goes over once. ``alu``, ``fma`` and
    ``local_sectors`` are 0 where the machine code is not known.
    """

    blocks: int
    wavefronts: float
    sectors: float
    instructions: float
    special: float
    tensor_flop: float
    dram_bytes: float
    alu: float = 0.0
    fma: float = 0.0
    local_sectors: float = 0.0
    warp_clocks: float = 0.0  # of one warp, from its begin to its end
    resident: int = 0  # blocks that an SM holds
    descriptors: float = 0.0  # tensor maps made


def busy_us(work: Work, target: str) -> dict[str, float]:
    """Microseconds that the launch keeps each resource busy; empty for a target without rates."""
    rates, count = _rates().get(target), multiprocessors(target)
    if rates is None or count is None:
        return {}
    # Whole waves of blocks: 133 blocks take as long on 132 SMs as 264.
    blocks = math.ceil(work.blocks / count)
    clocks = {
        "shared": blocks * work.wavefronts / rates.wavefronts_per_clock,
        "issue": blocks * work.instructions / rates.issue_per_clock,
        "alu": blocks * work.alu * WARP / rates.alu_per_clock,
        "fma": blocks * work.fma * WARP / rates.fma_per_clock,
        "special": blocks * work.special * WARP / rates.special_per_clock,
        "local": blocks * work.local_sectors / _SECTORS_A_WAVEFRONT / rates.wavefronts_per_clock,
        "tensor": blocks * work.tensor_flop / rates.tensor_flop_per_clock,
        "descriptors": blocks * work.descriptors * rates.descriptor_clocks,
        "l2": work.blocks * work.sectors * SECTOR_BYTES / rates.l2_bytes_per_clock,
    }
    if work.resident:
        # A warp may not be hidden by others. An SM begins a block when one ends, and they do not end together: so many
        # at a time, and no time for waves to fill up, is the least that blocks of that length can take.
        clocks["latency"] = max(1.0, blocks / work.resident) * work.warp_clocks
    times = {name: count / rates.clock_hz * _MICRO for name, count in clocks.items()}
    times["dram"] = work.dram_bytes / rates.dram_bytes_per_s * _MICRO
    return {name: round(time, 3) for name, time in times.items() if time > 0}


def estimate_us(busy: Mapping[str, float]) -> float:
    """One figure for a launch: resources overlap in part. What is issued to a pipe is issued: the longer counts."""
    issued = max((busy.get(name, 0.0) for name in _ISSUED), default=0.0)
    others = (time for name, time in busy.items() if name not in _ISSUED)
    return math.sqrt(issued * issued + sum(time * time for time in others))


def busy_by_ptx(busy: Mapping[str, float], executed: float, machine: float | None) -> dict[str, float]:
    """What the machine code told left out, and issue by the PTX's instructions: as if it could not be weighed.

    ``executed`` and ``machine`` are a block's instructions of either.
    """
    found = {name: time for name, time in busy.items() if name not in _OF_MACHINE_CODE}
    if machine and "issue" in found:
        found["issue"] *= executed / machine
    return found


def bound(busy: Mapping[str, float]) -> str:
    """The resource that is busy longest."""
    return max(busy, key=lambda name: busy[name], default="")


@functools.cache
def _rates() -> dict[str, Rates]:
    text = resources.files("matrix").joinpath("data/rates.toml").read_text(encoding="utf-8")
    return {target: Rates(**row) for target, row in tomllib.loads(text).items()}


def latency_clocks(target: str) -> Mapping[str, float]:
    """Measured ones by what is waited for; an H200's for a target that has none."""
    rates = _rates()
    found = rates.get(target)
    return (found and found.latency_clocks) or rates["sm_90"].latency_clocks


def special_interval(target: str) -> float:
    """Clocks from one warp's special function to its next: each scheduler has its own unit."""
    rates = _rates().get(target) or _rates()["sm_90"]
    return WARP * rates.issue_per_clock / rates.special_per_clock


def multiprocessors(target: str) -> int | None:
    """Of the GPU that stands for a target (``data/gpus.toml``)."""
    return _multiprocessors().get(target)


@functools.cache
def _multiprocessors() -> dict[str, int]:
    text = resources.files("matrix").joinpath("data/gpus.toml").read_text(encoding="utf-8")
    return {target: int(row["multiprocessors"]) for target, row in tomllib.loads(text).items()}
