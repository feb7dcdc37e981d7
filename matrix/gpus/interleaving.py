"""The timing stage: every cell that is right in the baseline, timed against the candidates that are right too.

A cell whose kernels tune themselves is timed twice: *re-tuned*, each environment with its own winner, and
*pinned*, all with the baseline's. A candidate that cannot be timed leaves the others to go on without it.
"""

from __future__ import annotations

import datetime
import queue
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from matrix.gpus.arms import ArmFailed, WorkerArm
from matrix.gpus.stations import CONTROL, at_once, drained
from matrix.gpus.timing import TimingPlan, measure
from matrix.model import FIRST_DIMENSIONS, Outcome, Stage
from matrix.records import Tuning
from matrix.storage.cache import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from matrix.gpus.arms import Competition
    from matrix.gpus.correctness import Checked, Desk
    from matrix.gpus.nvml import Gpu
    from matrix.gpus.stations import Station
    from matrix.gpus.timing import TimingRecord
    from matrix.running.plan import PlannedCell

Configurations = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an environment has no time at a spot."""

    outcome: Outcome
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One case at one point on one target: the planned cell of each environment, the baseline's first."""

    cells: Mapping[str, PlannedCell]

    @property
    def any(self) -> PlannedCell:
        return next(iter(self.cells.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What timing a spot came to: a record of the environments that could be timed, failures of the others."""

    spot: Spot
    tuning: Tuning
    started_at: datetime.datetime
    gpu: Gpu | None
    record: TimingRecord | None
    failures: Mapping[str, Failure]
    competition: Competition | None = None
    traffic: Mapping[str, float | None] = field(default_factory=dict)  # bytes_moved, flops of one call
    wall_seconds: float = 0.0  # from opening the arms to letting go of them, the competitor included


def spots_of(planned: Iterable[PlannedCell], baseline: str) -> list[Spot]:
    """The planned timing cells, environments together; a spot that the baseline has not is left to the judge."""
    grouped: dict[tuple[str, str, str], dict[str, PlannedCell]] = {}
    for cell in planned:
        if cell.stage is Stage.TIMING:
            key = (cell.cell.case, cell.cell.target, cell.cell.point)
            grouped.setdefault(key, {})[cell.cell.environment] = cell
    return [Spot(cells=dict(sorted(cells.items(), key=lambda each: each[0] != baseline))) for cells in grouped.values()]


def gate(spot: Spot, checked: Mapping[str, Checked]) -> dict[str, Failure]:
    """The environments that must not be timed here: what is not right has no speed."""
    failures = {}
    for environment, planned in spot.cells.items():
        if planned.outcome:
            failures[environment] = Failure(outcome=Outcome(planned.outcome), reason=planned.reason)
            continue
        seen = checked.get(planned.cell.id)
        if seen is None:
            continue  # the correctness stage was not asked for
        part = seen.measured.parts[0]
        if part["outcome"] not in (Outcome.PASSED, Outcome.INVALID) and not _first_run_passed(part):
            reason = f"not timed, since its correctness is {part['outcome']}: {part['reason']}"
            failures[environment] = Failure(outcome=Outcome.NOT_RUN, reason=reason)
    return failures


def _first_run_passed(part: Mapping[str, Any]) -> bool:
    """Whether the plain run was right, though some dimension beyond it (strides, NaN ...) was not."""
    outcomes = {one["name"]: one["outcome"] for one in part.get("dimensions", ())}
    return all(outcomes.get(name) == Outcome.PASSED for name in FIRST_DIMENSIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopwatch:
    """Times spots at one station."""

    desk: Desk
    station: Station
    baseline: str
    plan: TimingPlan

    def time(self, spot: Spot, failures: Mapping[str, Failure]) -> list[Timed]:
        """The spot as it is, and pinned as well where kernels tuned themselves."""
        retuned = self._time(spot, failures, {})
        found = self._tunings(retuned)
        if not found:
            return [retuned]
        self._keep(spot, found)
        pinned = self._time(spot, failures, dict.fromkeys(spot.cells, found.get(self.baseline, {})))
        return [replace(pinned, tuning=Tuning.PINNED), replace(retuned, tuning=Tuning.RETUNED)]

    def _tunings(self, timed: Timed) -> dict[str, Configurations]:
        opened = timed.record.opened if timed.record else {}
        found = {name: {k: dict(v) for k, v in each.configurations.items()} for name, each in opened.items()}
        return {name: each for name, each in found.items() if each and name in timed.spot.cells}

    def _time(self, spot: Spot, failures: Mapping[str, Failure], pinned: Mapping[str, Configurations]) -> Timed:
        began = time.perf_counter()
        timed = self._measured(spot, failures, pinned)
        return replace(timed, wall_seconds=time.perf_counter() - began)

    def _measured(self, spot: Spot, failures: Mapping[str, Failure], pinned: Mapping[str, Configurations]) -> Timed:
        started, failed = datetime.datetime.now(datetime.UTC), dict(failures)
        base = Timed(
            spot=spot, tuning=Tuning.NONE, started_at=started, gpu=self.station.gpu, record=None, failures=failed
        )
        traffic: dict[str, float | None] = {}
        while self.baseline in spot.cells and self.baseline not in failed:
            candidates = [name for name in spot.cells if name != self.baseline and name not in failed]
            if not candidates:
                break
            arms = {name: self._arm(spot, name, pinned) for name in (self.baseline, *candidates, CONTROL)}
            try:
                record = measure(
                    arms[self.baseline],
                    [arms[name] for name in candidates],
                    arms[CONTROL],
                    plan=self.plan,
                    read=self.station.read,
                )
                traffic = arms[self.baseline].traffic()
                competition = arms[self.baseline].competitor()
                return replace(base, record=record, failures=failed, competition=competition, traffic=traffic)
            except ArmFailed as failure:
                failed |= self._blame(failure, spot, failed)
            finally:
                at_once(list(arms.values()), lambda arm: arm.dismiss())
        return replace(base, failures=failed | self._without_baseline(spot, failed))

    def _blame(self, failure: ArmFailed, spot: Spot, failed: Mapping[str, Failure]) -> dict[str, Failure]:
        """Whose failure it is: the arm's, or that of all where the baseline or nobody in particular failed."""
        own = Failure(outcome=failure.outcome, reason=failure.reason, detail=failure.detail)
        left = [name for name in spot.cells if name not in failed]
        if failure.arm in left and failure.arm != self.baseline:
            return {failure.arm: own}
        if not failure.arm:
            return dict.fromkeys(left, own)
        if failure.arm == CONTROL:
            own = replace(own, outcome=Outcome.NOT_RUN, reason=f"the control could not be timed: {failure.reason}")
        return {self.baseline: own}

    def _without_baseline(self, spot: Spot, failed: Mapping[str, Failure]) -> dict[str, Failure]:
        if self.baseline not in failed:
            return {self.baseline: Failure(outcome=Outcome.NOT_RUN, reason="no candidate to time it against")}
        reason = f"the baseline could not be timed: {failed[self.baseline].reason}"
        left = [name for name in spot.cells if name not in failed]
        return dict.fromkeys(left, Failure(outcome=Outcome.NOT_RUN, reason=reason))

    def _arm(self, spot: Spot, name: str, pinned: Mapping[str, Configurations]) -> WorkerArm:
        environment = self.baseline if name == CONTROL else name
        planned = spot.cells[environment]
        return WorkerArm(
            name,
            lambda request: self.station.crew.ask(name, request),
            path=str(planned.case.path),
            case=planned.case.name,
            params=planned.params,
            pinned=pinned.get(environment) or self._kept(planned) or {},
        )

    def _keep(self, spot: Spot, found: Mapping[str, Configurations]) -> None:
        for name, configurations in found.items():
            self.desk.cache.put(self._tuning_key(spot.cells[name]), configurations)

    def _kept(self, planned: PlannedCell) -> Configurations | None:
        """What this environment's tuner chose on this GPU before: tuning is not repeated until its key changes."""
        found: Configurations | None = self.desk.cache.get(self._tuning_key(planned))
        return found

    def _tuning_key(self, planned: PlannedCell) -> str:
        gpu = self.station.gpu
        return key_of({"tuning": self.desk.lasting_key(planned), "gpu": gpu.uuid, "driver": gpu.driver})


def time_all(
    desk: Desk,
    found: Sequence[Station],
    spots: Sequence[Spot],
    checked: Mapping[str, Checked],
    baseline: str,
    plan: TimingPlan,
    kept: Callable[[list[Timed]], None],
    tick: Callable[[], None],
) -> None:
    """Time every spot at some station of its target. ``kept`` is told of each while the next is being timed."""
    waiting: dict[str, queue.SimpleQueue[Spot]] = {}
    for spot in spots:
        waiting.setdefault(spot.any.cell.target, queue.SimpleQueue()).put(spot)

    def keep(timed: list[Timed]) -> None:
        kept(timed)
        tick()

    # Interrupted, what was measured is still kept: the thread ends when its work does.
    with ThreadPoolExecutor(max_workers=1) as keeping:
        told: list[Future[None]] = []

        def serve(station: Station) -> None:
            watch = Stopwatch(desk=desk, station=station, baseline=baseline, plan=plan)
            spots_here = drained(waiting.get(station.gpu.target))
            told.extend(keeping.submit(keep, watch.time(spot, gate(spot, checked))) for spot in spots_here)

        at_once(found, serve)
        for each in told:
            each.result()
