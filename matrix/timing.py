"""Timing a cell: arms of several environments interleaved in rounds, until decided or out of budget.

Arms come through one seam, :class:`matrix.arms.Arm`.

Block by block, every arm is opened with its buffers at another place, all arms take their rounds in an
order that is reversed every other round, and all are closed. After each look of the stopping rule, what is
decided for every candidate ends the measurement. A cell whose shortest arm takes under 10 us is batched:
so many calls to a sample that its window is long enough, from a CUDA graph, the same number in every arm.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrix.arms import COLD, WARM, Arm, ArmFailed, Opened
from matrix.model import Outcome
from matrix.rounds import TimedRound, paired, problems, warnings
from matrix.statistics import Decision, StoppingRule, agree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matrix.gpu import Reading

SHORTEST_US = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingPlan:
    """How a cell is timed."""

    rule: StoppingRule = field(default_factory=StoppingRule)
    rounds_per_block: int = 4
    samples: int = 10  # a round, at least, where the budget allows
    fewest_samples: int = 3
    round_us: float = 2000.0  # of samples a round: short kernels get more samples
    most_samples: int = 100
    window_us: float = 100.0  # of a batched sample
    most_calls: int = 200
    budget_us: float = 2e6  # GPU time of the cell, all arms, flushes included
    warm_rounds: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingRecord:
    """Everything that was measured for one cell: raw samples by arm and round, and what may be said."""

    baseline: str
    candidates: tuple[str, ...]
    control: str
    judged_cache: str
    calls: int
    samples_per_round: int
    rounds: tuple[TimedRound, ...]
    opened: Mapping[str, Opened]
    decisions: Mapping[str, Decision]
    decisions_in_time: Mapping[str, Decision]
    decisions_in_cycles: Mapping[str, Decision]
    problems: Mapping[str, tuple[str, ...]]  # by arm; what makes its figures unusable
    warnings: Mapping[str, tuple[str, ...]]
    margin: float
    alpha: float
    gpu_us: float
    wall_seconds: float
    stopped: str  # "decided" or "budget" or "looks"

    def samples_us(self, arm: str, cache: str) -> list[float]:
        return [us for r in self.rounds if r.arm == arm and r.cache == cache for us in r.samples_us]

    def log_ratios(self, arm: str, *, cycles: bool = False) -> list[list[float]]:
        """The paired log-ratios of ``arm`` to the baseline, rounds in blocks."""
        return paired(self.rounds, arm, self.baseline, self.judged_cache, cycles=cycles)


def measure(
    baseline: Arm,
    candidates: Sequence[Arm],
    control: Arm | None = None,
    *,
    plan: TimingPlan | None = None,
    read: Callable[[], Reading] | None = None,
) -> TimingRecord:
    """Time all arms of a cell, interleaved. ``read`` samples the GPU's clocks and throttle counters.

    Raises :class:`ArmFailed` where an arm cannot be opened or timed; arms are closed either way.
    """
    session = _Session(baseline, tuple(candidates), control, plan or TimingPlan(), read)
    try:
        return session.run()
    finally:
        session.close(forget=True)


class _Session:
    """The state of one cell's measurement."""

    def __init__(
        self,
        baseline: Arm,
        candidates: tuple[Arm, ...],
        control: Arm | None,
        plan: TimingPlan,
        read: Callable[[], Reading] | None,
    ) -> None:
        self._baseline, self._candidates, self._control = baseline, candidates, control
        self._arms: tuple[Arm, ...] = (baseline, *candidates, *([control] if control else []))
        self._plan, self._read = plan, read
        self._rounds: list[TimedRound] = []
        self._opened: dict[str, Opened] = {}
        self._gpu_us = 0.0
        self._calls, self._samples, self._cache = 1, plan.samples, COLD
        self._rounds_per_block = plan.rounds_per_block

    def run(self) -> TimingRecord:
        began, stopped = time.perf_counter(), "looks"
        decided: dict[str, dict[str, Decision]] = {"time": {}, "cycles": {}, "both": {}}
        for block in range(self._plan.rule.last_look):
            self._open(block)
            self._block(block, self._rounds_per_block, self._cache)
            spent = self._gpu_us >= self._plan.budget_us
            # The look at the budget's end takes the place of one that will not come.
            if spent or block + 1 in self._plan.rule.looks:
                decided = self._decide()
                if Decision.UNDECIDED not in decided["both"].values():
                    stopped = "decided"
                    break
            if spent:
                stopped = "budget"
                break
        if self._cache == COLD:
            self._block(self._rounds[-1].block, min(self._plan.warm_rounds, self._rounds_per_block), WARM)
        return self._record(decided, stopped, time.perf_counter() - began)

    def close(self, *, forget: bool) -> None:
        for arm in self._arms:
            arm.close(forget=forget)

    def _open(self, block: int) -> None:
        for arm in self._arms:
            opened = arm.open(block, estimate=block == 0)
            if block == 0:
                self._opened[arm.name] = opened
        if block == 0:
            self._choose_window()

    def _choose_window(self) -> None:
        plan = self._plan
        shortest = min(opened.estimate_us[WARM] for opened in self._opened.values())
        if shortest < SHORTEST_US:
            # Many calls in a row find the cache as the one before left it: that figure is a warm one.
            self._cache = WARM
            self._calls = math.ceil(plan.window_us / shortest)
            if self._calls > plan.most_calls:
                reason = f"{shortest:.2f} us a call: {plan.most_calls} calls are no window of {plan.window_us:g} us"
                raise ArmFailed(Outcome.TOO_SHORT, reason)
        window = max(opened.estimate_us[self._cache] for opened in self._opened.values()) * self._calls
        wanted = min(max(plan.samples, math.ceil(plan.round_us / window)), plan.most_samples)
        # Of a long kernel, few samples and rounds in many blocks tell more than many in few.
        affordable = plan.budget_us / (plan.rule.looks[0] * len(self._arms) * window)
        self._samples = max(min(wanted, int(affordable / plan.rounds_per_block)), plan.fewest_samples)
        self._rounds_per_block = max(1, min(plan.rounds_per_block, int(affordable / self._samples)))

    def _block(self, block: int, rounds: int, cache: str) -> None:
        for number in range(rounds):
            order = self._arms if (block + number) % 2 == 0 else tuple(reversed(self._arms))
            for arm in order:
                self._turn(arm, block, number, cache)

    def _turn(self, arm: Arm, block: int, number: int, cache: str) -> None:
        before = self._read() if self._read else None
        result = arm.round(self._samples, cache, self._calls)
        after = self._read() if self._read else None
        self._gpu_us += result.busy_us or sum(result.samples_us) * self._calls
        self._rounds.append(
            TimedRound(
                arm=arm.name,
                block=block,
                round=number,
                cache=cache,
                samples_us=result.samples_us,
                queue_full=result.queue_full,
                clock_mhz=result.clock_mhz,
                busy_us=result.busy_us,
                readings=tuple(r for r in (before, after) if r is not None),
            )
        )

    def _pairs(self, arm: Arm, *, cycles: bool = False) -> list[list[float]]:
        return paired(self._rounds, arm.name, self._baseline.name, self._cache, cycles=cycles)

    def _decide(self) -> dict[str, dict[str, Decision]]:
        rule, control = self._plan.rule, self._control
        found: dict[str, dict[str, Decision]] = {"time": {}, "cycles": {}, "both": {}}
        for arm in self._candidates:
            in_time = rule.decide(self._pairs(arm), self._pairs(control) if control else None)
            in_cycles = in_time
            if any(self._pairs(arm, cycles=True)):
                beside = self._pairs(control, cycles=True) if control else None
                in_cycles = rule.decide(self._pairs(arm, cycles=True), beside)
            found["time"][arm.name], found["cycles"][arm.name] = in_time, in_cycles
            found["both"][arm.name] = agree(in_time, in_cycles)
        return found

    def _record(self, decided: dict[str, dict[str, Decision]], stopped: str, seconds: float) -> TimingRecord:
        undecided = {arm.name: Decision.UNDECIDED for arm in self._candidates}
        control = self._pairs(self._control) if self._control else None
        names = [arm.name for arm in self._arms]
        return TimingRecord(
            baseline=self._baseline.name,
            candidates=tuple(arm.name for arm in self._candidates),
            control=self._control.name if self._control else "",
            judged_cache=self._cache,
            calls=self._calls,
            samples_per_round=self._samples,
            rounds=tuple(self._rounds),
            opened=self._opened,
            decisions=decided["both"] or undecided,
            decisions_in_time=decided["time"] or undecided,
            decisions_in_cycles=decided["cycles"] or undecided,
            problems={name: problems(self._rounds, name, self._baseline.name, self._cache) for name in names},
            warnings={name: warnings(self._rounds, name, self._cache) for name in names},
            margin=self._plan.rule.widened(control),
            alpha=self._plan.rule.alpha,
            gpu_us=self._gpu_us,
            wall_seconds=seconds,
            stopped=stopped,
        )
