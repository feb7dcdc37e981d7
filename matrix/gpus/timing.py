"""Timing a cell: arms of several environments interleaved in rounds, until decided or out of budget.

Arms come through one seam, :class:`matrix.gpus.arms.Arm`.

All arms are opened at once, each with its buffers in several places, and given fresh places for every block,
so that where they lie is averaged over. Where the workers can share memory, the places of all arms are the same
memory, so that where they lie cancels out.

In a block they take their turns in an order that is reversed every other round and begins with the next arm in
every block, so that each comes as often at every place of the order. All are told the order at once, and a baton
(:mod:`matrix.baton`) goes from one to the next, so that the GPU never waits for a message of ours. After each look of
the stopping rule, what is decided for every candidate ends the measurement.

A cell whose shortest arm takes under 10 us is batched: so many calls to a sample that its window is long
enough, the same number in every arm. Calls are replayed from a CUDA graph, in every arm, where all arms' calls can
be captured: no arm's host can hold up the GPU then.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from matrix.baton import Baton
from matrix.gpus.arms import COLD, WARM, Arm, ArmFailed, Opened, Relay, Turn
from matrix.gpus.clocks import Watch
from matrix.gpus.rounds import TimedRound, paired, problems, warnings
from matrix.judging.statistics import StoppingRule, agree, midmean
from matrix.model import Outcome
from matrix.records import Decision

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matrix.gpus.arms import Estimate, Round, Rounds
    from matrix.gpus.nvml import Reading

SHORTEST_US = 10.0
# Six calls of one and the same pass took one worker 0.5 ms each and another one 1 ms: so few tell nothing.
_FEWEST_LAUNCHES = 5
# What a call takes is estimated from a few samples: so much of the budget is left for what they were off by.
_RESERVE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingPlan:
    """How a cell is timed."""

    rule: StoppingRule = field(default_factory=StoppingRule)
    # Many short turns: of a product that runs into the power cap, two arms that take turns every 20 ms differ by
    # a per cent and more from block to block, every 5 ms by a tenth of that (seen on an H200).
    rounds_per_block: int = 8
    places: int = 6  # sets of buffers that a block's samples go round in
    samples: int = 10  # a round, at least, where the budget allows
    fewest_samples: int = 3
    round_us: float = 7_000.0  # of samples a round: short kernels get more samples
    most_samples: int = 200
    window_us: float = 100.0  # of a batched sample
    most_calls: int = 200
    budget_us: float = 2e6  # GPU time of the cell, all arms; flushes and warm-ups counted apart
    warm_samples: int = 100
    warm_rounds: int = 2
    overhead_calls: int = 15  # a block, at most
    overhead_us: float = 2_000.0  # GPU time that they may take a block; none is made where it holds too few
    overhead_blocks: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingRecord:
    """Everything that was measured for one cell: raw samples by arm and round, and what may be said."""

    baseline: str
    candidates: tuple[str, ...]
    control: str
    judged_cache: str
    calls: int
    replayed: bool
    samples_per_round: int
    shared: bool  # whether the places of all arms were the same memory
    rounds: tuple[TimedRound, ...]
    opened: Mapping[str, Opened]
    launch_us: Mapping[str, tuple[float, ...]]  # host time of single calls
    decisions: Mapping[str, Decision]
    decisions_in_time: Mapping[str, Decision]
    decisions_in_cycles: Mapping[str, Decision]
    problems: Mapping[str, tuple[str, ...]]  # by arm; what makes its figures unusable
    warnings: Mapping[str, tuple[str, ...]]
    margin: float
    alpha: float
    arms_us: float  # GPU time in samples of all arms
    flush_us: float  # GPU time in flushes, of all arms
    warmup_us: float  # GPU time in warm-ups, of all arms
    setup_seconds: float  # wall time of opening the arms, their first calls and warm-ups
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

    Raises :class:`ArmFailed` where an arm cannot be opened or timed. The arms stay open: their owner closes them.
    """
    arms = (baseline, *candidates, *([control] if control else []))
    baton = Baton.make()
    try:
        with ThreadPoolExecutor(max_workers=len(arms)) as threads:
            return _Session(baseline, tuple(candidates), control, plan or TimingPlan(), read, threads, baton).run()
    finally:
        baton.remove()


class _Session:
    """The state of one cell's measurement."""

    def __init__(
        self,
        baseline: Arm,
        candidates: tuple[Arm, ...],
        control: Arm | None,
        plan: TimingPlan,
        read: Callable[[], Reading] | None,
        threads: ThreadPoolExecutor,
        baton: Baton,
    ) -> None:
        self._baseline, self._candidates, self._control = baseline, candidates, control
        self._arms: tuple[Arm, ...] = (baseline, *candidates, *([control] if control else []))
        self._plan, self._read, self._threads, self._baton = plan, read, threads, baton
        self._rounds: list[TimedRound] = []
        self._opened: dict[str, Opened] = {}
        self._arms_us = self._flush_us = self._warmup_us = 0.0
        self._overhead_calls = plan.overhead_calls
        self._calls, self._samples, self._cache, self._replayed = 1, plan.samples, COLD, False
        self._rounds_per_block, self._places, self._shared = plan.rounds_per_block, 1, False
        self._first = 0  # the first place of the layout in use
        self._ahead: set[tuple[int, ...]] = set()  # where the inputs of the next layout lie, in each arm
        self._launch_us: dict[str, list[float]] = {arm.name: [] for arm in self._arms}

    def run(self) -> TimingRecord:
        began = time.perf_counter()
        with Watch(self._read) as watch:
            decided, stopped, setup = self._measure(began)
        self._rounds = [replace(each, readings=watch.around(each.began, each.ended)) for each in self._rounds]
        return self._record(decided, stopped, setup)

    def _measure(self, began: float) -> tuple[dict[str, dict[str, Decision]], str, float]:
        """All blocks, until decided or out of budget: decisions, why it stopped, seconds of set-up."""
        stopped = "looks"
        decided: dict[str, dict[str, Decision]] = {"time": {}, "cycles": {}, "both": {}}
        self._open()
        setup = time.perf_counter() - began
        for block in range(self._plan.rule.last_look):
            if block:
                self._place(block)
            self._block(block, self._rounds_per_block, self._turn_of(block, self._samples, self._cache), ahead=True)
            if self._overhead_calls and block < self._plan.overhead_blocks:
                for arm in self._arms:
                    self._launch_us[arm.name] += arm.overhead(self._overhead_calls)
            # The next one takes what these took on average.
            spent = self._arms_us * (1 + (1 + self._warm_share) / (block + 1)) > self._plan.budget_us
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
            samples = min(self._samples, self._plan.warm_samples)
            self._block(block, self._plan.warm_rounds, self._turn_of(block, samples, WARM), ahead=False)
        return decided, stopped, setup

    def _at_once(self, work: Callable[[Arm], Any], arms: Sequence[Arm] = ()) -> list[Any]:
        """Of all arms (or those given) in parallel: nothing is being timed."""
        futures = [self._threads.submit(work, arm) for arm in arms or self._arms]
        for future in futures:
            future.exception()  # all have ended before the first failure is raised
        return [future.result() for future in futures]

    def _open(self) -> None:
        share = 1 / (len(self._arms) + 1)
        slab = self._baseline.lend()
        others = [arm for arm in self._arms if arm is not self._baseline]
        self._shared = slab is not None and all(self._at_once(lambda arm: arm.borrow(slab), others))
        opened = self._at_once(lambda arm: arm.open(self._plan.places, share, shared=self._shared))
        self._opened = {arm.name: each for arm, each in zip(self._arms, opened, strict=True)}
        self._places = min(each.places for each in opened)
        # All at the same time.
        self._warmup_us = max(each.warmup_us for each in opened)
        self._choose_window([arm.estimate() for arm in self._arms if arm is not self._control])
        self._place(0)

    def _place(self, block: int) -> None:
        """A layout for the block: the one that was prepared ahead in all arms alike, or else a fresh one."""
        self._first = block * self._places
        if self._shared and self._ahead and _alike(self._ahead):
            self._baseline.fill(self._first)
            return
        if self._shared:
            filling = self._baseline
            offsets = self._at_once(
                lambda arm: arm.place(self._first, self._places, shared=True, fill=arm is filling),
            )
            # Where inputs lie differently, one arm's outputs may lie on another's inputs.
            self._shared = _alike(set(offsets))
        if not self._shared:
            self._at_once(lambda arm: arm.place(self._first, self._places, shared=False, fill=True))

    def _choose_window(self, estimates: Sequence[Estimate]) -> None:
        plan = self._plan
        capturable = all(each.capturable for each in self._opened.values())
        shortest = min(each.call_us[WARM] for each in estimates)
        if shortest < SHORTEST_US:
            # Many calls in a row find the cache as the one before left it: that figure is a warm one.
            self._cache = WARM
            self._calls = math.ceil(plan.window_us / shortest)
            if self._calls > plan.most_calls:
                reason = f"{shortest:.2f} us a call: {plan.most_calls} calls are no window of {plan.window_us:g} us"
                raise ArmFailed(Outcome.TOO_SHORT, reason)
        # Replayed, a call takes the host no time to speak of, and where its launches lie changes with every block.
        self._replayed = capturable
        window = max(each.call_us[self._cache] for each in estimates) * self._calls
        wanted = min(max(plan.samples, math.ceil(plan.round_us / window)), plan.most_samples)
        # Of a long kernel, few samples and rounds in many blocks tell more than many in few.
        blocks = plan.rule.looks[0] + self._warm_share
        affordable = (1 - _RESERVE) * plan.budget_us / (blocks * len(self._arms) * window)
        launches = min(plan.overhead_calls, int(plan.overhead_us * self._calls / window))
        self._overhead_calls = launches if launches >= _FEWEST_LAUNCHES else 0
        self._samples = max(min(wanted, int(affordable / plan.rounds_per_block)), plan.fewest_samples)
        self._rounds_per_block = max(1, min(plan.rounds_per_block, int(affordable / self._samples)))

    @property
    def _warm_share(self) -> float:
        """What the warm rounds at the end take, in blocks."""
        return self._plan.warm_rounds / self._plan.rounds_per_block if self._cache == COLD else 0.0

    def _turn_of(self, block: int, samples: int, cache: str) -> Turn:
        return Turn(samples=samples, cache=cache, calls=self._calls, place=block, replayed=self._replayed)

    def _block(self, block: int, rounds: int, turn: Turn, *, ahead: bool) -> None:
        order = self._order(block, rounds)
        self._baton.restart()
        futures = {
            arm.name: self._threads.submit(arm.rounds, turn, self._relay(arm, order, ahead=ahead)) for arm in self._arms
        }
        try:
            wait(futures.values(), return_when=FIRST_EXCEPTION)
        finally:
            if not all(future.done() and future.exception() is None for future in futures.values()):
                self._baton.abandon()
        wait(futures.values())
        found = {name: future.result() for name, future in futures.items()}
        self._ahead = {each.offsets for each in found.values()} if ahead else set()
        self._keep(block, order, turn, found)

    def _order(self, block: int, rounds: int) -> list[Arm]:
        """Whose turn it is, turn by turn."""
        first = block // 2 % len(self._arms)
        order = (*self._arms[first:], *self._arms[:first])
        turns = [order if (block + number) % 2 == 0 else tuple(reversed(order)) for number in range(rounds)]
        return [arm for each in turns for arm in each]

    def _relay(self, arm: Arm, order: Sequence[Arm], *, ahead: bool) -> Relay:
        return Relay(
            turns=tuple(number for number, each in enumerate(order) if each is arm),
            baton=self._baton.path,
            first=self._first,
            places=self._places,
            ahead=self._first + self._places if ahead and self._shared else None,
        )

    def _keep(self, block: int, order: Sequence[Arm], turn: Turn, found: Mapping[str, Rounds]) -> None:
        for number, arm in enumerate(order):
            result = found[arm.name].rounds.get(number)
            if result is None:
                reason = "its turn did not come: another arm's did not end"
                raise ArmFailed(Outcome.TIMEOUT, reason, arm=arm.name)
            self._count(result, turn)
            self._rounds.append(
                TimedRound(
                    arm=arm.name,
                    block=block,
                    round=number // len(self._arms),
                    cache=turn.cache,
                    samples_us=result.samples_us,
                    middle_us=midmean(result.samples_us),
                    queue_full=result.queue_full,
                    clock_mhz=result.clock_mhz,
                    busy_us=result.busy_us,
                    worker_us=result.worker_us,
                    began=result.began,
                    ended=result.ended,
                )
            )

    def _count(self, result: Round, turn: Turn) -> None:
        sampled = sum(result.samples_us) * turn.calls
        self._arms_us += sampled
        self._warmup_us += result.warmup_us
        self._flush_us += max(0.0, result.busy_us - sampled) if turn.cache == COLD else 0.0

    def _pairs(self, arm: Arm, *, cycles: bool = False) -> list[list[float]]:
        return paired(self._rounds, arm.name, self._baseline.name, self._cache, cycles=cycles)

    def _decide(self) -> dict[str, dict[str, Decision]]:
        rule, control = self._plan.rule, self._control
        found: dict[str, dict[str, Decision]] = {"time": {}, "cycles": {}, "both": {}}
        beside = self._pairs(control) if control else None
        beside_in_cycles = self._pairs(control, cycles=True) if control else None
        for arm in self._candidates:
            in_time = in_cycles = rule.decide(self._pairs(arm), beside)
            if any(pairs := self._pairs(arm, cycles=True)):
                in_cycles = rule.decide(pairs, beside_in_cycles)
            found["time"][arm.name], found["cycles"][arm.name] = in_time, in_cycles
            found["both"][arm.name] = agree(in_time, in_cycles)
        return found

    def _record(
        self,
        decided: dict[str, dict[str, Decision]],
        stopped: str,
        setup: float,
    ) -> TimingRecord:
        undecided = {arm.name: Decision.UNDECIDED for arm in self._candidates}
        control = self._pairs(self._control) if self._control else None
        names = [arm.name for arm in self._arms]
        return TimingRecord(
            baseline=self._baseline.name,
            candidates=tuple(arm.name for arm in self._candidates),
            control=self._control.name if self._control else "",
            judged_cache=self._cache,
            calls=self._calls,
            replayed=self._replayed,
            samples_per_round=self._samples,
            shared=self._shared,
            rounds=tuple(self._rounds),
            opened=self._opened,
            launch_us={name: tuple(times) for name, times in self._launch_us.items()},
            decisions=decided["both"] or undecided,
            decisions_in_time=decided["time"] or undecided,
            decisions_in_cycles=decided["cycles"] or undecided,
            problems={name: problems(self._rounds, name, self._baseline.name, self._cache) for name in names},
            warnings={name: warnings(self._rounds, name, self._baseline.name, self._cache) for name in names},
            margin=self._plan.rule.widened(control),
            alpha=self._plan.rule.alpha,
            arms_us=self._arms_us,
            flush_us=self._flush_us,
            warmup_us=self._warmup_us,
            setup_seconds=setup,
            stopped=stopped,
        )


def _alike(offsets: set[tuple[int, ...]]) -> bool:
    """Whether all inputs of all arms lie in the slab, and in the same place."""
    return len(offsets) == 1 and () not in offsets
