"""Whether the timed cells of one comparison differ: every cell tested, and all of them together. Pure.

One cell. The paired log-ratio of candidate to baseline is known from blocks of rounds with a standard error. That
error is of two *processes*: where a worker's buffers lie in memory moves it by more than its samples scatter. On
an H200 the control (the baseline against itself) was off by three standard errors and more in half of the cells.
So what two workers of one environment differ by is a variance of its own, estimated from the control arms of the
run (the moment estimator of a random-effects meta-analysis: mean of ``x**2 - se**2``, controls that are noisier
than what they are to show weighted down), and moderated by what is known before any run
(``Thresholds.process_noise``, which counts as much as :data:`PRIOR_CELLS` controls; as limma moderates variances,
Smyth 2004). Both variances add up, degrees of freedom by Welch and Satterthwaite.

Two one-sided tests (Schuirmann 1987) against ``d``, the larger of the user's threshold and twice the noise floor:
slower where a ratio of ``d`` or less is rejected, faster likewise; equivalent where the interval lies within.
*Slower* so means slower by more than ``d``, and a cell whose interval holds ``d`` is undecided.

Repeated looks. Rounds go on until the stopping rule is content, with ``looks`` looks at most. Whatever made it
stop, the smallest of that many p-values is at most ``u / looks`` with a chance of at most ``u`` (Bonferroni): so
the p-value at the last look times ``looks`` is valid, and so is the interval at ``alpha / looks``. It holds for
any stopping on the ratios, and for an end of the budget that does not depend on them.

Time and cycles. A difference must hold in both (intersection-union: the larger p-value).

All cells. Twice the smaller one-sided p-value is the cell's; Benjamini and Hochberg's procedure over all cells of
the comparison keeps the expected share of false ones among those called slower or faster at
``Thresholds.false_discovery_rate``. Cells share the baseline's and the candidate's worker, so their errors go
together, which the procedure allows (positive dependence). A cell is called only where its own interval clears
``d`` as well: its own false-alarm rate stays at most ``alpha``, however many others are called.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from matrix.records import Decision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from matrix.judging.arm_pairs import ArmPair, NoiseFloor
    from matrix.judging.thresholds import Thresholds

    Floats: TypeAlias = NDArray[np.float64]
    Ints: TypeAlias = NDArray[np.int64]

METHOD = "paired log-ratios by block and process, two one-sided t-tests, Benjamini-Hochberg over the comparison"
METHOD_VERSION = 2
PRIOR_CELLS = 10
POWER = 0.95
_LARGEST_LOG_RATIO = 20.0  # five hundred million times as long: no interval
_GRID = 100
_SMALLEST_ERROR = 1e-9  # samples that are all alike are the timer's steps, not certainty


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessNoise:
    """The standard deviation between two workers of one environment, of a log-ratio, and how well it is known."""

    error: float
    freedom: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """One cell's test. Ratios, not logarithms; the interval holds at the cell's own ``alpha``, over all looks.

    ``beyond`` is what the cell alone says against ``allowed``, in time; ``agreed`` whether cycles say so too;
    ``called`` what stands after the correction for all ``cells``. ``q_value`` is the smallest false discovery
    rate at which the cell would be called, ``smallest_detectable`` the smallest relative slow-down that it
    would have been called for, among these cells, with a power of 95 %.
    """

    ratio: float
    low: float | None  # none where too little was measured to have an interval
    high: float | None
    allowed: float
    p_value: float
    q_value: float
    smallest_detectable: float | None
    beyond: Decision
    called: Decision
    agreed: bool
    cells: int
    parameters: str

    @property
    def differs(self) -> Decision:
        """On which side of no difference at all the whole interval lies; SAME where it holds 1."""
        if self.low is None or self.high is None:
            return Decision.SAME
        if self.low > 1:
            return Decision.SLOWER
        return Decision.FASTER if self.high < 1 else Decision.SAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The timed cells of one comparison as columns, NaN for what is not known; ``ratio`` is candidate over baseline.
    ``noise`` is of the runs and GPUs that they were timed in, ``timed_in`` each cell's place among those.
    """

    ratio: Floats
    standard_error: Floats
    cycles_ratio: Floats
    cycles_error: Floats
    blocks: Floats
    looks: Floats
    alpha: Floats
    floor: Floats
    noise: Sequence[NoiseFloor | None]
    timed_in: Ints

    @classmethod
    def of(cls, pairs: Sequence[ArmPair]) -> Measured:
        names = ("ratio", "standard_error", "cycles_ratio", "cycles_error", "blocks", "looks", "alpha")
        columns = {name: _column([getattr(pair.candidate, name) for pair in pairs]) for name in names}
        noise = {id(pair.noise): pair.noise for pair in pairs}
        place = {key: number for number, key in enumerate(noise)}
        timed_in = np.array([place[id(pair.noise)] for pair in pairs], dtype=np.int64)
        floor = _column([pair.floor for pair in pairs])
        return cls(**columns, floor=floor, noise=[*noise.values()], timed_in=timed_in)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FamilyTest:
    """The :class:`Tested` of every cell as columns: NaN where there is none, decisions by their place in
    :class:`Decision`.
    """

    ratio: Floats
    low: Floats
    high: Floats
    allowed: Floats
    p_value: Floats
    q_value: Floats
    smallest_detectable: Floats
    beyond: Ints
    called: Ints
    agreed: NDArray[np.bool_]
    parameters: Sequence[str]

    def __len__(self) -> int:
        return len(self.ratio)

    def rows(self, places: Sequence[int] | Ints) -> list[Tested]:
        """These cells' tests."""
        decisions = {
            "beyond": [_DECISIONS[code] for code in self.beyond[places].tolist()],
            "called": [_DECISIONS[code] for code in self.called[places].tolist()],
            "agreed": self.agreed[places].tolist(),
        }
        columns = {**self.columns(places), **decisions}
        rows = zip(*columns.values(), strict=True)
        return [Tested(**dict(zip(columns, row, strict=True)), cells=len(self)) for row in rows]

    def columns(self, places: Sequence[int] | Ints) -> dict[str, list[Any]]:
        """The figures of these cells, by what :class:`Tested` calls them; None where there is none."""
        told = {name: getattr(self, name)[places].tolist() for name in (*_KNOWN, *_OPEN)}
        told |= {name: [None if math.isnan(value) else value for value in told[name]] for name in _OPEN}
        return {**told, "parameters": [self.parameters[place] for place in places]}


_KNOWN = ("ratio", "allowed", "p_value", "q_value")
_OPEN = ("low", "high", "smallest_detectable")  # that may not exist
_DECISIONS = tuple(Decision)
_UNDECIDED = _DECISIONS.index(Decision.UNDECIDED)


_NONE: Floats = np.empty(0)
_NOTHING = FamilyTest(
    **dict.fromkeys((*_KNOWN, *_OPEN), _NONE),
    beyond=_NONE.astype(np.int64),
    called=_NONE.astype(np.int64),
    agreed=_NONE.astype(np.bool_),
    parameters=(),
)


def examine(pairs: Sequence[ArmPair], thresholds: Thresholds) -> list[Tested]:
    """Every pair of one comparison, in its order. Pairs whose figures are unusable do not belong here."""
    tests = examine_columns(Measured.of(pairs), thresholds)
    return tests.rows(np.arange(len(tests)))


def examine_columns(cells: Measured, thresholds: Thresholds) -> FamilyTest:
    """As :func:`examine`."""
    return _Family(cells, thresholds).tested() if len(cells.ratio) else _NOTHING


class _Family:
    """All cells of a comparison as columns. Ratios here are logarithms."""

    def __init__(self, cells: Measured, thresholds: Thresholds) -> None:
        self._cells, self._rate = len(cells.ratio), thresholds.false_discovery_rate
        self._thresholds = thresholds
        self._looks = np.where(cells.looks > 0, cells.looks, 1.0)
        self._alpha, self._floor = cells.alpha, cells.floor
        self._allowed = np.maximum(math.log(thresholds.slower_ratio), 2 * self._floor)
        self._estimate = np.nan_to_num(_log(cells.ratio))
        noise = [process_noise(one, thresholds.process_noise) for one in cells.noise]
        figures = ([one.error for one in noise], [one.freedom for one in noise])
        self._process, own = (_column(each)[cells.timed_in] for each in figures)
        sampling = _error(cells.standard_error, cells.ratio, cells.blocks)
        self._error, self._freedom = _added(sampling, cells.blocks - 1, self._process, own)
        self._cycles = _log(cells.cycles_ratio)
        in_cycles = _error(cells.cycles_error, cells.cycles_ratio, cells.blocks)
        self._cycles_error, self._cycles_freedom = _added(in_cycles, cells.blocks - 1, self._process, own)

    def tested(self) -> FamilyTest:
        reach = _quantile(self._freedom, 1 - self._alpha / self._looks / 2) * self._error
        low, high = self._estimate - reach, self._estimate + reach
        slower, faster = low > self._allowed, high < -self._allowed
        within = (low > -self._allowed) & (high < self._allowed)
        p_values = self._p_values()
        q_values = _adjusted(p_values)
        agreed = self._cycles_agree(slower, faster)
        called = (slower | faster) & agreed & (q_values <= self._rate)
        smallest = self._smallest(int(called.sum()))
        return FamilyTest(
            ratio=np.exp(self._estimate),
            low=_ratios(low),
            high=_ratios(high),
            allowed=np.exp(self._allowed),
            p_value=p_values,
            q_value=q_values,
            smallest_detectable=_ratios(smallest) - 1,
            beyond=_decisions(slower, faster, within),
            called=_decisions(called & slower, called & faster, within),
            agreed=agreed,
            parameters=self._parameters(),
        )

    def _p_values(self) -> Floats:
        """Twice the smaller of both one-sided p-values, each the larger of time's and cycles', for all looks."""
        sides = []
        for sign in (1, -1):
            in_time = _tail(self._freedom, (sign * self._estimate - self._allowed) / self._error)
            in_cycles = _tail(self._cycles_freedom, (sign * self._cycles - self._allowed) / self._cycles_error)
            sides.append(np.fmax(in_time, in_cycles))  # nan, where no clock was read, is left out
        return np.minimum(1.0, 2 * self._looks * np.minimum(*sides))

    def _cycles_agree(self, slower: NDArray[np.bool_], faster: NDArray[np.bool_]) -> NDArray[np.bool_]:
        reach = _quantile(self._cycles_freedom, 1 - self._alpha / self._looks / 2) * self._cycles_error
        same_side = np.where(slower, self._cycles - reach > self._allowed, True) & np.where(
            faster, self._cycles + reach < -self._allowed, True
        )
        return same_side | np.isnan(self._cycles)

    def _smallest(self, called: int) -> Floats:
        """With the p-value that one more call may have: the noncentrality with which Student's t passes so often."""
        share = np.minimum(self._alpha, self._rate * min(called + 1, self._cells) / self._cells)
        return self._allowed + _reach(self._freedom, share / self._looks) * self._error

    def _parameters(self) -> list[str]:
        """What the method was run with, as the JSON of a column."""
        columns = (self._floor, self._process, self._alpha, self._looks)
        figures = list(zip(*(column.tolist() for column in columns), strict=True))
        said = {each: self._said(*each) for each in set(figures)}
        return [said[each] for each in figures]

    def _said(self, floor: float, process: float, alpha: float, looks: float) -> str:
        return json.dumps(
            {
                "threshold_ratio": self._thresholds.slower_ratio,
                "noise_floor": round(floor, 6),
                "process_noise": round(process, 6),
                "alpha": alpha,
                "looks": int(looks),
                "false_discovery_rate": self._rate,
                "cells": self._cells,
                "power": POWER,
            }
        )


def process_noise(noise: NoiseFloor | None, prior: float) -> ProcessNoise:
    """What two workers of one environment differ by, from the controls and the ``prior`` (a log-ratio)."""
    if noise is None:
        return ProcessNoise(error=prior, freedom=PRIOR_CELLS)
    offsets, variances = np.array(noise.offsets), np.array(noise.errors) ** 2
    weights = (prior**2 / (prior**2 + variances)) ** 2 if prior else np.ones(len(offsets))
    cells = float(weights.sum())
    own = max(0.0, float((weights * (offsets**2 - variances)).sum())) / cells if cells else 0.0
    freedom = PRIOR_CELLS + cells
    return ProcessNoise(error=math.sqrt((PRIOR_CELLS * prior**2 + cells * own) / freedom), freedom=freedom)


def _column(values: Sequence[float | None]) -> Floats:
    return np.array(values, dtype=np.float64)  # None as NaN


def _log(ratio: Floats) -> Floats:
    """NaN where there is no ratio."""
    return np.log(np.where(ratio > 0, ratio, math.nan))


def _error(standard_error: Floats, ratio: Floats, blocks: Floats) -> Floats:
    """Of the blocks' mean; infinite where too little was measured to have one."""
    return np.where(np.isnan(standard_error) | ~(ratio > 0) | (blocks < 2), math.inf, standard_error)


def _added(one: Floats, freedom: Floats, other: Floats, other_freedom: Floats) -> tuple[Floats, Floats]:
    """The error of a sum of two, and its degrees of freedom (Welch and Satterthwaite)."""
    known = np.isfinite(one)
    first, second = np.where(known, one, 0.0) ** 2, other**2
    with np.errstate(divide="ignore", invalid="ignore"):
        both = (first + second) ** 2 / (first**2 / np.maximum(freedom, 1) + second**2 / other_freedom)
    return np.where(known, np.maximum(np.sqrt(first + second), _SMALLEST_ERROR), math.inf), np.where(
        known & (both > 0), both, 1.0
    )


def _quantile(freedom: Floats, probability: Floats) -> Floats:
    from scipy.special import stdtrit  # noqa: PLC0415 - scipy takes seconds to import, and most runs time nothing

    return np.asarray(stdtrit(freedom, probability), dtype=np.float64)


def _reach(freedom: Floats, level: Floats) -> Floats:
    """How many standard errors a truth must lie away to pass a two-sided test with the power stated.

    The noncentrality of Student's t, which takes long to invert: it depends on the degrees of freedom alone at one
    level, so that many cells are read off a fine grid (within 0.1 %).
    """
    found = np.full(len(freedom), math.inf)
    for one in np.unique(level):
        own = level == one
        cells = freedom[own]
        grid = np.geomspace(cells.min(), cells.max(), _GRID) if own.sum() > 2 * _GRID else cells
        reach = _noncentrality(grid, _quantile(grid, np.asarray(1 - one / 2)))
        found[own] = reach if grid is cells else np.interp(np.log(cells), np.log(grid), reach)
    return found


def _noncentrality(freedom: Floats, critical: Floats) -> Floats:
    """Of a t that passes ``critical`` so often; infinite where that is beyond computing."""
    from scipy.special import nctdtrinc  # noqa: PLC0415

    found = np.asarray(nctdtrinc(freedom, 1 - POWER, critical), dtype=np.float64)
    return np.where(np.isfinite(found) & (found > 0), found, math.inf)


def _tail(freedom: Floats, statistic: Floats) -> Floats:
    """The chance of a larger Student's t."""
    from scipy.special import stdtr  # noqa: PLC0415

    return np.asarray(stdtr(freedom, -statistic), dtype=np.float64)


def _adjusted(p_values: Floats) -> Floats:
    from scipy.stats import false_discovery_control  # noqa: PLC0415

    return np.asarray(false_discovery_control(p_values, method="bh"), dtype=np.float64)


def _ratios(log_ratios: Floats) -> Floats:
    """NaN where it is beyond any measurement."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(np.abs(log_ratios) < _LARGEST_LOG_RATIO, np.exp(log_ratios), math.nan)


def _decisions(slower: NDArray[np.bool_], faster: NDArray[np.bool_], within: NDArray[np.bool_]) -> Ints:
    words = (Decision.SLOWER, Decision.FASTER, Decision.SAME)
    return np.select((slower, faster, within), [_DECISIONS.index(word) for word in words], _UNDECIDED)
