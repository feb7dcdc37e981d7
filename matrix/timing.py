"""Timing a cell: arms of several environments interleaved in rounds, until decided or out of budget.

The seam is :class:`Arm`: something that can be opened, asked for a round and closed. On a host with a GPU an
arm is a resident worker (:class:`WorkerArm`); the tests of this module drive it with arms made of
numbers, so nothing here needs a GPU.

Block by block, every arm is opened with its buffers at another place, all arms take their rounds in an
order that is reversed every other round, and all are closed. After each look of the stopping rule, what is
decided for every candidate ends the measurement. A cell whose shortest arm takes under 10 us is batched:
so many calls to a sample that its window is long enough, from a CUDA graph, the same number in every arm.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from matrix.model import Outcome
from matrix.statistics import (
    CLOCK_CV_LIMIT,
    Decision,
    StoppingRule,
    agree,
    coefficient_of_variation,
    is_bimodal,
    log_ratio,
    midmean,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matrix.gpu import Reading

COLD, WARM = "cold", "warm"
SHORTEST_US = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An arm that is ready, with what its first calls showed."""

    estimate_us: Mapping[str, float]
    kernels: tuple[Mapping[str, Any], ...] = ()
    configurations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    first_call_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One arm's turn in one round: raw samples in us, and whether they may be used."""

    samples_us: tuple[float, ...]
    queue_full: bool = True
    clock_mhz: float | None = None
    busy_us: float = 0.0
    attempts: int = 1


class ArmFailed(Exception):
    """An arm could not be opened or timed; carries the cell's outcome."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(f"{outcome}: {reason}")
        self.outcome = outcome
        self.reason = reason


class Arm(Protocol):
    """One environment's kernel, resident on the GPU. Every method may raise :class:`ArmFailed`."""

    @property
    def name(self) -> str: ...

    def open(self, placement: int, *, estimate: bool) -> Opened: ...

    def round(self, samples: int, cache: str, calls: int) -> Round: ...

    def close(self, *, forget: bool) -> None: ...


class WorkerArm:
    """An arm served by a resident worker. ``ask`` sends one request and returns the reply's part."""

    def __init__(
        self,
        name: str,
        ask: Callable[[dict[str, Any]], dict[str, Any]],
        *,
        path: str,
        case: str,
        params: Mapping[str, Any],
        pinned: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.name = name
        self._ask = ask
        self._cell = {"path": path, "case": case, "params": dict(params), "pinned": dict(pinned or {})}

    def open(self, placement: int, *, estimate: bool) -> Opened:
        part = self._part({"op": "arm_open", **self._cell, "placement": placement, "estimate": estimate})
        return Opened(
            estimate_us=part["estimate_us"],
            kernels=tuple(part["kernels"]),
            configurations=part["configurations"],
            first_call_seconds=part["first_call_seconds"],
        )

    def round(self, samples: int, cache: str, calls: int) -> Round:
        part = self._part({"op": "arm_round", "samples": samples, "cache": cache, "calls": calls})
        return Round(
            samples_us=tuple(part["samples_us"]),
            queue_full=part["queue_full"],
            clock_mhz=part["clock_mhz"],
            busy_us=part["busy_us"],
            attempts=part["attempts"],
        )

    def close(self, *, forget: bool) -> None:
        self._part({"op": "arm_close", "forget": forget})

    def _part(self, request: dict[str, Any]) -> dict[str, Any]:
        part = self._ask(request)
        if part["outcome"] != Outcome.PASSED:
            raise ArmFailed(Outcome(part["outcome"]), part.get("reason", ""))
        return part


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
class TimedRound:
    """One arm's samples in one round of one block."""

    arm: str
    block: int
    round: int
    cache: str
    samples_us: tuple[float, ...]
    queue_full: bool
    clock_mhz: float | None
    busy_us: float
    readings: tuple[Reading, ...] = ()


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
        ratio = log_ratio(mine[key].samples_us, base[key].samples_us)
        if cycles:
            one, other = mine[key].clock_mhz, base[key].clock_mhz
            if not one or not other:
                continue
            ratio += math.log(one / other)
        blocks.setdefault(key[0], []).append(ratio)
    return [blocks[block] for block in sorted(blocks)]


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

    def run(self) -> TimingRecord:
        began, stopped = time.perf_counter(), "looks"
        decided: dict[str, dict[str, Decision]] = {"time": {}, "cycles": {}, "both": {}}
        for block in range(self._plan.rule.last_look):
            self._open(block)
            self._block(block, self._plan.rounds_per_block, self._cache)
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
            self._block(self._rounds[-1].block, self._plan.warm_rounds, WARM)
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
        # Of a long kernel, few samples in many blocks tell more than many in few.
        turns = plan.rule.looks[0] * plan.rounds_per_block * len(self._arms)
        affordable = int(plan.budget_us / (turns * window))
        self._samples = max(min(wanted, affordable), plan.fewest_samples)

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


_QUEUE_SHARE = 0.9
_CLOCK_DIFFERENCE = 0.01
# What the hardware does to protect itself. Running into the power cap is everyday life on a data-centre GPU.
_HARDWARE = ("hw_thermal_slowdown", "hw_power_brake", "hw_slowdown", "sw_thermal_slowdown")


def problems(rounds: Sequence[TimedRound], arm: str, baseline: str, cache: str) -> tuple[str, ...]:
    """What makes an arm's figures unusable."""
    mine = [r for r in rounds if r.arm == arm and r.cache == cache]
    base = [r for r in rounds if r.arm == baseline and r.cache == cache]
    found = []
    full = sum(r.queue_full for r in mine)
    if mine and full < _QUEUE_SHARE * len(mine):
        found.append(f"the queue ran empty in {len(mine) - full} of {len(mine)} rounds: run() waits for the GPU")
    throttled = {name: _throttled_ns(mine, name) for name in _HARDWARE}
    for name, nanoseconds in throttled.items():
        if bool(nanoseconds) != bool(_throttled_ns(base, name)):
            found.append(f"{name} in one arm and not in the other")
    clocks, others = _clocks(mine), _clocks(base)
    if clocks and others:
        ratio = midmean(clocks) / midmean(others)
        if abs(math.log(ratio)) > _CLOCK_DIFFERENCE:
            found.append(f"the SM clock was {ratio - 1:+.1%} against the baseline's")
    return tuple(found)


def warnings(rounds: Sequence[TimedRound], arm: str, cache: str) -> tuple[str, ...]:
    """What a reader should know about an arm's figures, though they stand."""
    mine = [r for r in rounds if r.arm == arm and r.cache == cache]
    found = []
    variation = coefficient_of_variation(_clocks(mine))
    if variation > CLOCK_CV_LIMIT:
        found.append(f"the SM clock varied by {variation:.1%} over the rounds")
    if is_bimodal([us for r in mine for us in r.samples_us]):
        found.append("the samples fall into two groups")
    for name in ("sw_power_cap", *_HARDWARE):
        if nanoseconds := _throttled_ns(mine, name):
            found.append(f"{name} for {nanoseconds / 1e6:.1f} ms")
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
