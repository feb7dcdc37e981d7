"""The rounds of a timing: what was measured, paired by round, and whether it may be used."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.judging.statistics import CLOCK_CV_LIMIT, coefficient_of_variation, is_bimodal, midmean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.gpus.nvml import Reading

_QUEUE_SHARE = 0.9
_CLOCK_DIFFERENCE = 0.01
# What the hardware does to protect itself. Running into the power cap is everyday life on a data-centre GPU.
_POWER_CAP = "sw_power_cap"
_HARDWARE = ("hw_thermal_slowdown", "hw_power_brake", "hw_slowdown", "sw_thermal_slowdown")

BIMODAL = "the samples fall into two groups"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRound:
    """One arm's samples in one round of one block. ``began`` and ``ended`` are of ``time.perf_counter``."""

    arm: str
    block: int
    round: int
    cache: str
    samples_us: tuple[float, ...]
    middle_us: float  # the midmean of the samples: what is compared, at every look
    queue_full: bool
    clock_mhz: float | None
    busy_us: float
    worker_us: float = 0.0
    began: float = 0.0
    ended: float = 0.0
    readings: tuple[Reading, ...] = ()


def paired(
    rounds: Sequence[TimedRound], arm: str, baseline: str, cache: str, *, cycles: bool = False
) -> list[list[float]]:
    """Log-ratios of ``arm`` to ``baseline`` by round, in blocks; rounds without both (or without a clock
    where ``cycles``) are left out.
    """
    mine = {(r.block, r.round): r for r in rounds if r.arm == arm and r.cache == cache}
    base = {(r.block, r.round): r for r in rounds if r.arm == baseline and r.cache == cache}
    blocks: dict[int, list[float]] = {}
    for key in sorted(mine.keys() & base.keys()):
        ratio = math.log(mine[key].middle_us / base[key].middle_us)
        if cycles:
            one, other = mine[key].clock_mhz, base[key].clock_mhz
            if not one or not other:
                continue
            ratio += math.log(one / other)
        blocks.setdefault(key[0], []).append(ratio)
    return [blocks[block] for block in sorted(blocks)]


def problems(rounds: Sequence[TimedRound], arm: str, baseline: str, cache: str) -> tuple[str, ...]:
    """What makes an arm's figures unusable.

    Another clock than the baseline's is none: what draws less power runs at a higher one (seen on an H200: 7.6 %, of a
    product that bank conflicts held up). Whether such an arm is slower is for time and cycles to agree on.
    """
    mine = [r for r in rounds if r.arm == arm and r.cache == cache]
    base = [r for r in rounds if r.arm == baseline and r.cache == cache]
    found = []
    full = sum(r.queue_full for r in mine)
    if mine and full < _QUEUE_SHARE * len(mine):
        found.append(f"the queue ran empty in {len(mine) - full} of {len(mine)} rounds: run() waits for the GPU")
    found += [f"{name} in one arm and not in the other" for name in _HARDWARE if _one_sided(rounds, mine, base, name)]
    return tuple(found)


def _one_sided(rounds: Sequence[TimedRound], mine: Sequence[TimedRound], base: Sequence[TimedRound], name: str) -> bool:
    """Whether one arm was held back and the other was not, by more than the counter's step can make it look so.

    Drivers advance these counters in steps (of 100 ms on an H200), and whose turn a step falls into is chance.
    """
    steps = [step for step in (_throttled_ns([each], name) for each in rounds) if step]
    return bool(steps) and abs(_throttled_ns(mine, name) - _throttled_ns(base, name)) > 2 * min(steps)


def warnings(rounds: Sequence[TimedRound], arm: str, baseline: str, cache: str) -> tuple[str, ...]:
    """What a reader should know about an arm's figures, though they stand."""
    mine = [r for r in rounds if r.arm == arm and r.cache == cache]
    found = []
    clocks, others = _clocks(mine), _clocks([r for r in rounds if r.arm == baseline and r.cache == cache])
    if clocks and others:
        ratio = midmean(clocks) / midmean(others)
        if abs(math.log(ratio)) > _CLOCK_DIFFERENCE:
            found.append(f"the SM clock was {ratio - 1:+.1%} against the baseline's")
    variation = coefficient_of_variation(_clocks(mine))
    if variation > CLOCK_CV_LIMIT:
        found.append(f"the SM clock varied by {variation:.1%} over the rounds")
    if is_bimodal([us for r in mine for us in r.samples_us]):
        found.append(BIMODAL)
    held_back = {name: _throttled_ns(mine, name) for name in (_POWER_CAP, *_HARDWARE)}
    found += [f"{name} for {nanoseconds / 1e6:.1f} ms" for name, nanoseconds in held_back.items() if nanoseconds]
    return tuple(found)


def _clocks(rounds: Sequence[TimedRound]) -> list[float]:
    return [r.clock_mhz for r in rounds if r.clock_mhz]


def _throttled_ns(rounds: Sequence[TimedRound], name: str) -> int:
    total = 0
    for timed in rounds:
        if len(timed.readings) == 2:
            first, last = (reading.throttled_ns.get(name, 0) for reading in timed.readings)
            total += max(0, last - first)
    return total
