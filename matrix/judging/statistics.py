"""Judging times: paired log-ratios, intervals, a stopping rule, and what makes samples unusable. Pure.

The judged quantity is the *paired* log-ratio: in each round, candidate over baseline, each the midmean
(interquartile mean) of its samples. Rounds lie in blocks; between blocks the buffers move. The rounds of one
block share their placement, so a block is one observation (the median of its rounds) and the interval
that decides is Student's over blocks: with eight to two dozen of them it keeps its level, where a
bootstrap is known to be too narrow. The bootstrap over blocks and rounds stands beside it in the report, as a witness.

Repeated looks. :class:`StoppingRule` looks a fixed number of times at most and spends its false-alarm rate in
equal parts (Bonferroni), so that the chance of ever calling a kernel slower or faster whose true ratio lies
within the margin is at most ``alpha``, however many looks were taken.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from statistics import median  # the standard library's: blocks are short, and numpy's takes 50 times as long
from typing import TYPE_CHECKING

import numpy as np

from matrix.records import Decision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Blocks = Sequence[Sequence[float]]  # log-ratios: rounds in blocks

CLOCK_CV_LIMIT = 0.03
# Ashman's D of two equal halves of a normal sample is 2.7, of a uniform one 3.5.
_BIMODAL_D = 5.0
_BIMODAL_SHARE = 0.1
_BIMODAL_GAP = 0.01
_FEW_SAMPLES = 20


@functools.cache
def _student(probability: float, freedom: int) -> float:
    # Not scipy.stats, and not above: they take seconds to import, and most runs time nothing.
    from scipy.special import stdtrit  # noqa: PLC0415

    return float(stdtrit(freedom, probability))


def prepare() -> None:
    """Import what an interval takes, before anything waits for one."""
    _student(0.5, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate of a log-ratio and where it lies at a stated confidence."""

    estimate: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The figures shown for one arm: never a mean or a minimum."""

    median: float
    p20: float
    p80: float
    samples: int


def spread(values: Sequence[float]) -> Spread:
    p20, median, p80 = (float(v) for v in np.percentile(np.asarray(values, dtype=float), (20, 50, 80)))
    return Spread(median=median, p20=p20, p80=p80, samples=len(values))


def midmean(values: Sequence[float]) -> float:
    """The mean of the middle half: as robust as needed, and not stepped where the timer ticks coarsely."""
    data = np.sort(np.asarray(values, dtype=float))
    cut = len(data) // 4
    return float(data[cut : len(data) - cut].mean())


def log_ratio(candidate: Sequence[float], baseline: Sequence[float]) -> float:
    """The log of candidate over baseline in one round."""
    return math.log(midmean(candidate) / midmean(baseline))


def block_values(blocks: Blocks) -> NDArray[np.float64]:
    """One observation per block: the median of its rounds."""
    return np.array([median(block) for block in blocks if len(block)], dtype=np.float64)


def standard_error(values: Sequence[float] | NDArray[np.float64]) -> float:
    """Of the mean of ``values``; infinite for fewer than two."""
    data = np.asarray(values, dtype=np.float64)
    return float(data.std(ddof=1)) / math.sqrt(len(data)) if len(data) > 1 else math.inf


def t_interval(values: Sequence[float] | NDArray[np.float64], alpha: float) -> Interval:
    """Student's two-sided interval for the mean of ``values``; unbounded for fewer than two."""
    data = np.asarray(values, dtype=np.float64)
    if len(data) < 2:
        estimate = float(data[0]) if len(data) else math.nan
        return Interval(estimate=estimate, low=-math.inf, high=math.inf, confidence=1 - alpha)
    estimate, error = float(data.mean()), standard_error(data)
    reach = _student(1 - alpha / 2, len(data) - 1) * error
    return Interval(estimate=estimate, low=estimate - reach, high=estimate + reach, confidence=1 - alpha)


def bootstrap_interval(blocks: Blocks, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """The percentile interval of the mean over blocks of the median over rounds, both drawn anew."""
    rows = [np.asarray(block, dtype=np.float64) for block in blocks if len(block)]
    if not rows:
        return Interval(estimate=math.nan, low=-math.inf, high=math.inf, confidence=confidence)
    random = np.random.default_rng(seed)
    # medians[i, r]: block i with its rounds drawn anew, r-th time
    medians = np.stack([np.median(random.choice(row, (resamples, len(row))), axis=1) for row in rows])
    chosen = random.integers(0, len(rows), (resamples, len(rows)))
    means = medians[chosen, np.arange(resamples)[:, None]].mean(axis=1)
    low, high = (float(v) for v in np.quantile(means, ((1 - confidence) / 2, (1 + confidence) / 2)))
    return Interval(estimate=float(block_values(blocks).mean()), low=low, high=high, confidence=confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """When rounds may stop, and what may be said then.

    ``looks`` are numbers of blocks. ``alpha`` is the chance, over all looks together, that a candidate whose
    true log-ratio lies within ``margin`` is called slower or faster. The margin widens to what the control
    (the baseline against itself, in this very measurement) was seen to differ by.
    """

    looks: tuple[int, ...] = (6, 9, 12, 16, 24, 32)
    alpha: float = 0.005
    margin: float = 0.005

    @property
    def alpha_per_look(self) -> float:
        return self.alpha / len(self.looks)

    @property
    def last_look(self) -> int:
        return self.looks[-1]

    def interval(self, blocks: Blocks) -> Interval:
        """The interval that decides, at the confidence of one look."""
        return t_interval(block_values(blocks), self.alpha_per_look)

    def widened(self, control: Blocks | None) -> float:
        """The margin, or what the control arm differs from the baseline by where that is more."""
        values = block_values(control or ())
        return max(self.margin, abs(float(values.mean()))) if len(values) else self.margin

    def decide(self, blocks: Blocks, control: Blocks | None = None) -> Decision:
        """What the blocks so far say; meant to be asked at the looks and at no other time."""
        interval, margin = self.interval(blocks), self.widened(control)
        if interval.low > margin:
            return Decision.SLOWER
        if interval.high < -margin:
            return Decision.FASTER
        if interval.low > -margin and interval.high < margin:
            return Decision.SAME
        return Decision.UNDECIDED

    def smallest_detectable(self, blocks: Blocks, control: Blocks | None = None, power: float = 0.95) -> float:
        """The smallest relative slow-down that a measurement as noisy as this one finds with this power."""
        values = block_values(blocks)
        if len(values) < 2:
            return math.inf
        error = standard_error(values)
        freedom = len(values) - 1
        reach = (_student(1 - self.alpha_per_look / 2, freedom) + _student(power, freedom)) * error
        return math.expm1(self.widened(control) + reach)


def agree(time: Decision, cycles: Decision) -> Decision:
    """A difference must hold in time and in cycles.

    ==========  ==========  =========
    time        cycles      verdict
    ==========  ==========  =========
    slower      slower      slower
    faster      faster      faster
    same        any         same
    otherwise               undecided
    ==========  ==========  =========
    """
    if time in (Decision.SAME, cycles):
        return time
    return Decision.UNDECIDED


def coefficient_of_variation(values: Sequence[float]) -> float:
    """Standard deviation over mean; 0 for fewer than two values."""
    data = np.asarray(values, dtype=float)
    return float(data.std(ddof=1) / data.mean()) if len(data) > 1 and data.mean() else 0.0


def is_bimodal(values: Sequence[float]) -> bool:
    """Whether the samples fall into two groups, each a tenth or more, clearly apart (Ashman's D over 5).

    Not where the groups are two neighbouring ticks of the timer, nor where they lie within 1 %.
    """
    return bool(bimodal_rows(np.asarray([values], dtype=float))[0])


def bimodal_rows(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Likewise of each row. The two groups are where Otsu cuts: both sides' squared deviations are least."""
    data = np.sort(values, axis=1)
    count = data.shape[1]
    if count < _FEW_SAMPLES:
        return np.zeros(len(data), dtype=bool)
    below = np.arange(1, count)
    sums, total = np.cumsum(data, axis=1)[:, :-1], data.sum(axis=1)[:, None]
    between = (sums / below - total / count) ** 2 * below / (count - below)
    lower = between.argmax(axis=1) + 1
    is_low = np.arange(count) < lower[:, None]
    (low, low_width), (high, high_width) = (_moments(data, side) for side in (is_low, ~is_low))
    gap, width = high - low, np.sqrt(low_width + high_width)
    found = (data[:, 0] > 0) & (np.minimum(lower, count - lower) >= _BIMODAL_SHARE * count)
    found &= (gap >= _BIMODAL_GAP * np.median(data, axis=1)) & (math.sqrt(2) * gap > _BIMODAL_D * width)
    for row in np.flatnonzero(found):
        steps = np.diff(np.unique(data[row]))
        found[row] = not len(steps) or gap[row] >= 2.5 * float(steps.min())
    return found


def _moments(data: NDArray[np.float64], chosen: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance of the chosen values of each row."""
    number = chosen.sum(axis=1)
    mean = np.where(chosen, data, 0.0).sum(axis=1) / number
    return mean, np.where(chosen, (data - mean[:, None]) ** 2, 0.0).sum(axis=1) / number


def faster_than_physics(
    time_us: float,
    *,
    bytes_moved: float | None = None,
    flops: float | None = None,
    memory_gb_s: float | None = None,
    arithmetic_tflop_s: float | None = None,
    allowance: float = 1.1,
) -> str:
    """Why ``time_us`` is less than this GPU can need ("" where it is not).

    The rates are those that the GPU measured for itself; ``allowance`` is for their being no upper bounds.
    """
    if bytes_moved and memory_gb_s:
        rate = bytes_moved / time_us * 1e-3
        if rate > allowance * memory_gb_s:
            return f"{rate:.0f} GB/s of memory traffic, and a copy reaches {memory_gb_s:.0f} GB/s here"
    if flops and arithmetic_tflop_s:
        rate = flops / time_us * 1e-6
        if rate > allowance * arithmetic_tflop_s:
            return f"{rate:.0f} TFLOP/s, and this GPU was seen to reach {arithmetic_tflop_s:.0f}"
    return ""
