"""Comparisons with a known truth: noise drawn from the recorded run, the real stopping rule and the real judge.

A simulated cell takes its noise from one recorded cell: blocks of rounds are drawn anew, with both arms' log-ratios
in time and in cycles as they were recorded together, less what the arm was off by on the whole. What it was off by
comes back as what two workers differ by: drawn from the recorded controls, whose truth is no difference. A trend
over the blocks is kept and not shuffled away. Then the truth of the simulated cell is laid on top, the stopping rule
looks when it would have looked (the budget of the recorded cell included), and the rows go through the judge as any
run's do.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import timed
from judged import BASELINE, CANDIDATE, cell

from matrix.gpus.timing_records import against
from matrix.judging.judge_tables import judge
from matrix.judging.statistics import StoppingRule, agree, block_values, log_ratio
from matrix.judging.thresholds import Thresholds
from matrix.records import Decision, Role
from matrix.resources import sample_folder
from matrix.storage.store import read_rounds, read_timings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from matrix.records import ArmRecord, RoundRecord, VerdictRecord

    Series = list[list[float]]  # log-ratios: rounds in blocks

WITHIN, BEYOND = "within", "beyond"


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """One recorded arm against its baseline: by block, the rounds' log-ratios without their mean and trend."""

    place: tuple[str, ...]
    role: Role
    offset: float
    trend: float  # a block, of the blocks' values
    time: Series
    cycles: Series
    budget: int | None  # blocks that its budget allowed; None where the rounds ended otherwise
    skew: float
    clock: float  # standard deviation of the log-ratio of both arms' clocks
    bimodal: float  # Sarle's coefficient of the rounds: 0.33 for a normal sample, 0.56 uniform, 1 for two values

    @property
    def drift(self) -> float:
        """The trend over the whole measurement, in standard deviations of what is left without it."""
        rest = float(np.std(block_values(self.time), ddof=1))
        return abs(self.trend) * (len(self.time) - 1) / rest if rest else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A choice of the recorded arms, and what is laid over them (``levels``: two modes so far apart, by block)."""

    chosen: Callable[[Noise], float] | None = None  # the tenth of the arms where this is largest
    levels: float = 0.0


SHAPES = {
    "as recorded, all arms": Shape(),
    "the most skewed tenth": Shape(chosen=lambda noise: abs(noise.skew)),
    "the most drifting tenth": Shape(chosen=lambda noise: noise.drift),
    "the tenth with the largest clock steps": Shape(chosen=lambda noise: noise.clock),
    "the most bimodal tenth": Shape(chosen=lambda noise: noise.bimodal),
    "invented: blocks at two levels 2 % apart": Shape(levels=0.02),
}


@functools.cache
def recorded() -> tuple[Noise, ...]:
    """Every candidate's and control's arm of the recorded run."""
    folder = sample_folder()
    arms, rounds = read_timings(folder), read_rounds(folder)
    series: dict[tuple[str, ...], dict[tuple[int, int], RoundRecord]] = defaultdict(dict)
    for one in rounds:
        series[one.cell_id, one.role, one.tuning, one.cache][one.block, one.round] = one
    baselines = {_place(arm): series[_key(arm)] for arm in arms if arm.role is Role.BASELINE}
    return tuple(_noise(arm, series[_key(arm)], baselines[_place(arm)]) for arm in arms if arm.role != Role.BASELINE)


def _key(arm: ArmRecord) -> tuple[str, ...]:
    return arm.cell_id, arm.role, arm.tuning, arm.cache


def _place(arm: ArmRecord) -> tuple[str, ...]:
    return arm.case, arm.params, arm.tuning


def _noise(
    arm: ArmRecord, own: Mapping[tuple[int, int], RoundRecord], base: Mapping[tuple[int, int], RoundRecord]
) -> Noise:
    time: dict[int, list[float]] = defaultdict(list)
    cycles: dict[int, list[float]] = defaultdict(list)
    for block, number in sorted(own.keys() & base.keys()):
        one, other = own[block, number], base[block, number]
        ratio = log_ratio(one.samples_us, other.samples_us)
        clock = math.log(one.clock_mhz / other.clock_mhz) if one.clock_mhz and other.clock_mhz else 0.0
        time[block].append(ratio)
        cycles[block].append(ratio + clock)
    values = block_values([time[block] for block in sorted(time)])
    count = len(values)
    positions = np.arange(count) - (count - 1) / 2
    trend = float((positions * values).sum() / (positions**2).sum())
    # Two degrees of freedom went to mean and trend: what is left scatters by so much less than the noise did.
    wider = math.sqrt(count / (count - 2))
    clocks = [b - a for a, b in zip(_flat(time), _flat(cycles), strict=True)]
    return Noise(
        place=_place(arm),
        role=arm.role,
        offset=float(values.mean()),
        trend=trend,
        time=_freed(time, values.mean(), trend * positions, wider),
        cycles=_freed(cycles, block_values(list(cycles.values())).mean(), trend * positions, wider),
        budget=arm.blocks if arm.stopped == "budget" else None,
        skew=float(((values - values.mean()) ** 3).mean() / values.std() ** 3),
        clock=float(np.std(clocks)),
        bimodal=_sarle(np.array(_flat(time))),
    )


def _sarle(values: NDArray[np.float64]) -> float:
    standard = (values - values.mean()) / values.std()
    return float(((standard**3).mean() ** 2 + 1) / (standard**4).mean())


def _flat(series: Mapping[int, list[float]]) -> list[float]:
    return [value for block in sorted(series) for value in series[block]]


def _freed(series: Mapping[int, list[float]], mean: float, trend: Sequence[float], wider: float) -> Series:
    return [
        [wider * (value - mean - slope) for value in series[block]]
        for block, slope in zip(sorted(series), trend, strict=True)
    ]


@dataclass(slots=True)
class Simulation:
    """Draws cells of one shape. ``truth`` in :meth:`comparison` is a ratio for each cell."""

    shape: Shape
    seed: int
    rule: StoppingRule = field(default_factory=StoppingRule)
    thresholds: Thresholds = field(default_factory=Thresholds)
    random: np.random.Generator = field(init=False)
    pools: dict[tuple[str, ...], list[Noise]] = field(init=False)
    offsets: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        arms = list(recorded())
        self.offsets = [noise.offset for noise in arms if noise.role is Role.CONTROL]
        if self.shape.chosen is not None:
            arms.sort(key=self.shape.chosen, reverse=True)
            arms = arms[: len(arms) // 10]
        self.pools = defaultdict(list)
        for noise in arms:
            self.pools[noise.place].append(noise)

    def comparison(self, truth: Sequence[float]) -> list[VerdictRecord]:
        """The timing rows of one comparison, in the order of ``truth``."""
        arms = [arm for number, ratio in enumerate(truth) for arm in self._cell(number, ratio)]
        names = [_params(number) for number in range(len(truth))]
        cells = [cell(env, stage="timing", params=name) for env in (BASELINE, CANDIDATE) for name in names]
        rows = judge(
            cells,
            [],
            run_id="r",
            baseline=BASELINE,
            candidates=[CANDIDATE],
            expectations={},
            thresholds=self.thresholds,
            timings=arms,
        )
        by_name = {row.params: row for row in rows}
        return [by_name[name] for name in names]

    def _cell(self, number: int, ratio: float) -> Iterator[ArmRecord]:
        """A cell's arms, measured until the stopping rule is content."""
        place = list(self.pools)[self.random.integers(len(self.pools))]
        noises = self.pools[place]
        candidate, control = (noises[self.random.integers(len(noises))] for _ in range(2))
        # Three workers, each off by something: two of them differ by what the controls were seen to.
        own, base, beside = self.random.choice(self.offsets, 3) / math.sqrt(2) * self.random.choice((-1, 1), 3)
        limit = min(candidate.budget or self.rule.last_look, self.rule.last_look)
        chosen = self.random.integers(len(candidate.time), size=limit)
        levels = self.shape.levels * (self.random.integers(2, size=limit) - 0.5)
        time, cycles = _drawn(candidate, chosen, math.log(ratio) + own - base + levels)
        others = _drawn(control, chosen % len(control.time), beside - base + np.zeros(limit))
        blocks, decided = self._measured(time, cycles, *others, limit)
        shared = {"params": _params(number), "blocks": blocks}
        yield timed.arm(Role.BASELINE, **shared)
        yield timed.arm(Role.CANDIDATE, **shared, **self._figures(time, cycles, others[0], blocks), **decided)
        yield timed.arm(Role.CONTROL, **shared, **self._figures(*others, None, blocks))

    def _measured(
        self, time: Series, cycles: Series, beside: Series, beside_cycles: Series, limit: int
    ) -> tuple[int, dict[str, str]]:
        """Blocks taken and what was decided: the loop of :mod:`matrix.gpus.timing`, without a GPU."""
        for blocks in range(1, limit + 1):
            if blocks in self.rule.looks or blocks == limit:
                in_time = self.rule.decide(time[:blocks], beside[:blocks])
                in_cycles = self.rule.decide(cycles[:blocks], beside_cycles[:blocks])
                both = agree(in_time, in_cycles)
                if both is not Decision.UNDECIDED:
                    break
        said = {"decision": both, "decision_in_time": in_time, "decision_in_cycles": in_cycles}
        return blocks, {name: str(decision) for name, decision in said.items()}

    def _figures(self, time: Series, cycles: Series, beside: Series | None, blocks: int) -> dict[str, object]:
        found = against(time[:blocks], cycles[:blocks], beside[:blocks] if beside else None, self.rule)
        return {
            "ratio": found["ratio"],
            "ratio_low": found["low"],
            "ratio_high": found["high"],
            "cycles_ratio": found["cycles"],
            "standard_error": found["error"],
            "cycles_error": found["cycles_error"],
            "looks": len(self.rule.looks),
            "alpha": self.rule.alpha,
        }


def _params(number: int) -> str:
    return f"n={number}"


def _drawn(noise: Noise, chosen: Sequence[int], level: Sequence[float]) -> tuple[Series, Series]:
    """Blocks drawn from an arm, its trend laid over them in their new order, shifted block by block."""
    last = len(noise.time) - 1  # how it would have gone on is not known
    shifts = [at + noise.trend * (min(position, last) - last / 2) for position, at in enumerate(level)]
    time = [[value + shift for value in noise.time[block]] for block, shift in zip(chosen, shifts, strict=True)]
    cycles = [[value + shift for value in noise.cycles[block]] for block, shift in zip(chosen, shifts, strict=True)]
    return time, cycles


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How often a shape's cells came out in one way or another."""

    shape: str
    cells: int
    flat: int  # of no difference
    flat_called: int
    flat_equivalent: int
    edge: int  # of a true difference as large as the threshold
    edge_called: int
    edge_equivalent: int
    slower: Mapping[float, tuple[int, int]]  # by true ratio: cells, and of those called slower
    discoveries: float  # mean over comparisons of the share of false ones among the called


def simulate(shape: str, *, comparisons: int, cells: int, seed: int) -> Rates:
    """So many comparisons of so many cells: 85 % flat, 5 % at the threshold, others slower by 5 and 10 %, or faster."""
    simulation = Simulation(SHAPES[shape], seed)
    threshold = simulation.thresholds.slower_ratio
    truth = _mixture(cells, threshold)
    rows = [(true, row) for _ in range(comparisons) for true, row in zip(truth, simulation.comparison(truth))]
    flat = [row for true, row in rows if true == 1.0]
    edge = [row for true, row in rows if true in (threshold, 1 / threshold)]
    slower = {true: [row for at, row in rows if at == true] for true in (1.05, 1.1)}
    shares = []
    for start in range(0, len(rows), cells):
        called = [true for true, row in rows[start : start + cells] if row.speed in ("slower", "faster")]
        false = sum(abs(math.log(true)) <= math.log(threshold) + 1e-12 for true in called)
        shares.append(false / len(called) if called else 0.0)
    return Rates(
        shape=shape,
        cells=len(rows),
        flat=len(flat),
        flat_called=_called(flat),
        flat_equivalent=_equivalent(flat),
        edge=len(edge),
        edge_called=_called(edge),
        edge_equivalent=_equivalent(edge),
        slower={true: (len(some), sum(row.speed == "slower" for row in some)) for true, some in slower.items()},
        discoveries=float(np.mean(shares)),
    )


def _mixture(cells: int, threshold: float) -> list[float]:
    share = {threshold: 0.025, 1 / threshold: 0.025, 1.05: 0.04, 1.1: 0.03, 0.9: 0.03}
    some = [ratio for ratio, part in share.items() for _ in range(round(part * cells))]
    return [*some, *[1.0] * (cells - len(some))]


def _called(rows: Sequence[VerdictRecord]) -> int:
    return sum(row.speed in ("slower", "faster") for row in rows)


def _equivalent(rows: Sequence[VerdictRecord]) -> int:
    return sum(row.speed == "equivalent" for row in rows)
