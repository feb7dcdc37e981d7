"""The rows of the catalogue that only a GPU shows: both sides on a GPU of this host, figures read off the result.

The two sides of a row are compared as two environments are, at the good side's point: where they are one release at
two points, a second set of workers of that release is the bad side's. All rows whose values are checked share one
round of the GPU stages; what is timed is timed beside its own good side.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from matrix.catalogue.results import RATIO, RowResult, Standing, is_seen
from matrix.catalogue.sides import cells_at, environments
from matrix.gpus.correctness import Desk
from matrix.gpus.stages import GpuHost, GpuStages
from matrix.gpus.timing import TimingPlan
from matrix.judging.findings import REGRESSIONS
from matrix.judging.judge_tables import judge
from matrix.model import Cell, Stage
from matrix.running.execute import collect
from matrix.running.host import this_host
from matrix.running.recording import Arm as Environment
from matrix.running.recording import Clerk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.catalogue.rows import Arm, Row
    from matrix.gpus.stages import GpuResults
    from matrix.judging.thresholds import Thresholds
    from matrix.records import CellRecord, DimensionRecord, VerdictRecord
    from matrix.running.execute import Bench
    from matrix.running.plan import Collected, PlannedCell
    from matrix.running.progress import Board
    from matrix.running.workers import WorkerHome

_OTHER_SIDE = "-bad-side"
_NOTHING_SEEN = "(nothing was run)"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuBench:
    """Where GPU rows are run. ``homes`` and ``locks`` go by release."""

    bench: Bench
    homes: Mapping[str, WorkerHome]
    locks: Mapping[str, str]
    host: GpuHost
    board: Board
    jobs: int
    timeout_s: float
    plan: TimingPlan = field(default_factory=TimingPlan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What the rows came to, by their keys, and the GPUs that took part."""

    results: Mapping[tuple[str, Stage], RowResult]
    gpus: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """A row, the environments that stand for its two sides, and their cells."""

    row: Row
    good: str
    bad: str
    case: str
    cells: tuple[PlannedCell, ...]


def run_on_gpus(rows: Sequence[Row], where: GpuBench, thresholds: Thresholds) -> Tried:
    """Every row of which both sides can be had; the others are in no result."""
    rows = [row for row in rows if all(arm.version in where.homes for arm in row.arms)]
    if not rows:
        return Tried(results={}, gpus=())
    releases = {arm.version for row in rows for arm in row.arms}
    homes = {release: home for release, home in where.homes.items() if release in releases}
    pairs = dict.fromkeys((arm.version, row.path) for row in rows for arm in row.arms)
    files = list(dict.fromkeys(path for _, path in pairs))
    tick = where.board.task("import", len(pairs))
    collected = collect(where.bench, homes, where.locks, files, tick, only=pairs.keys())
    twice = {row.good.version for row in rows if row.good.version == row.bad.version}
    both = [each for each in collected if each.environment in twice]
    collected += [replace(each, environment=_other_side(each.environment)) for each in both]
    where = _with_other_sides(where, releases, twice)
    trials = [_trial(row, collected) for row in rows]
    measured = [_execute(where, baseline, cells) for baseline, cells in _rounds(trials)]
    cells = _records(where, collected, trials, measured)
    verdicts = _verdicts(trials, cells, measured, thresholds)
    results = {trial.row.key: _result(trial, cells, verdicts) for trial in trials}
    return Tried(results=results, gpus=tuple({gpu["uuid"]: gpu for one in measured for gpu in one.gpus}.values()))


def _other_side(release: str) -> str:
    return release + _OTHER_SIDE


def _bad_name(row: Row) -> str:
    return _other_side(row.bad.version) if row.bad.version == row.good.version else row.bad.version


def _with_other_sides(where: GpuBench, releases: Iterable[str], twice: Iterable[str]) -> GpuBench:
    """With the releases that the rows name, and once more those that are both sides of a row."""
    names = {**{release: release for release in releases}, **{_other_side(release): release for release in twice}}
    return replace(
        where,
        homes={name: replace(where.homes[release], environment=name) for name, release in names.items()},
        locks={name: where.locks[release] for name, release in names.items()},
    )


def _trial(row: Row, collected: Sequence[Collected]) -> _Trial:
    own = {item.environment: item for item in collected if item.path == row.path}
    good, bad = row.good.version, _bad_name(row)
    cells = tuple(cell for name, arm in ((good, row.good), (bad, row.bad)) for cell in _cells(row, arm, own[name]))
    named = next((case.name for item in own.values() for case in item.cases), row.name)
    return _Trial(row=row, good=good, bad=bad, case=named, cells=cells)


def _cells(row: Row, arm: Arm, item: Collected) -> Iterator[PlannedCell]:
    """One side's cells, by the names of the good side's point: its own point is what is run."""
    for planned in cells_at(row, arm, item):
        cell = Cell.of(item.environment, row.good.target, planned.cell.case, row.good.params)
        yield replace(planned, cell=cell)


def _rounds(trials: Sequence[_Trial]) -> Iterator[tuple[str, list[PlannedCell]]]:
    """Baselines with what is run beside them. What is only checked has no baseline, and goes with the first."""
    timed: dict[str, list[PlannedCell]] = defaultdict(list)
    for trial in trials:
        if trial.row.stage is Stage.TIMING:
            timed[trial.good] += trial.cells
    checked = [cell for trial in trials if trial.row.stage is not Stage.TIMING for cell in trial.cells]
    first = next(iter(timed), trials[0].good)
    timed[first] = [*checked, *timed[first]]
    yield from timed.items()


def _execute(where: GpuBench, baseline: str, cells: Sequence[PlannedCell]) -> GpuResults:
    taking_part = {cell.cell.environment for cell in cells} | {baseline}
    homes = {name: home for name, home in where.homes.items() if name in taking_part}
    stages = GpuStages(
        desk=Desk(cache=where.bench.cache, homes=homes, locks=where.locks, token=uuid.uuid4().hex),
        host=where.host,
        baseline=baseline,
        environments=_environments(where),
        run_id="",
        host_name=this_host().name,
        logs=where.bench.scratch,
        plan=where.plan,
        timeout_s=where.timeout_s,
        jobs=where.jobs,
        board=where.board,
    )
    return stages.execute(cells)


def _environments(where: GpuBench) -> dict[str, Environment]:
    return environments({name: name.removesuffix(_OTHER_SIDE) for name in where.homes})


def _records(
    where: GpuBench, collected: Sequence[Collected], trials: Sequence[_Trial], measured: Sequence[GpuResults]
) -> list[CellRecord]:
    """No expectation takes part: those of the cases are there to make the verdict a known one."""
    clerk = Clerk(run_id="", host="", arms=_environments(where), expectations={})
    checked = [each for one in measured for each in one.checked]
    timed = [cell for one in measured for cell in one.timings.cells]
    return clerk.cells(collected, checked, {trial.case for trial in trials}, timed=timed)


def _verdicts(
    trials: Sequence[_Trial], cells: Sequence[CellRecord], measured: Sequence[GpuResults], thresholds: Thresholds
) -> dict[tuple[str, str, str], VerdictRecord]:
    """The ordinary rules' verdicts by bad side, case and stage."""
    candidates: dict[str, dict[str, None]] = defaultdict(dict)
    for trial in trials:
        candidates[trial.good][trial.bad] = None
    return {
        (row.candidate, row.case, row.stage): row
        for good, bad in candidates.items()
        for row in judge(
            cells,
            [],
            run_id="",
            baseline=good,
            candidates=list(bad),
            expectations={},
            thresholds=thresholds,
            timings=[arm for one in measured for arm in one.timings.arms],
            dimensions=_comparable([row for one in measured for row in one.dimensions], trials),
        )
        if (good, row.candidate, row.case) in {(trial.good, trial.bad, trial.case) for trial in trials}
    }


def _comparable(rows: Sequence[DimensionRecord], trials: Sequence[_Trial]) -> list[DimensionRecord]:
    """The rows, without digests where the two sides had other inputs: those are drawn anew at each point.

    That the references differ says so, and then nothing about either side.
    """
    digests = {(row.environment, row.case): row.reference_digest for row in rows if row.reference_digest}
    apart = {
        trial.case
        for trial in trials
        if trial.row.good.params != trial.row.bad.params
        and digests.get((trial.good, trial.case)) != digests.get((trial.bad, trial.case))
    }
    return [replace(row, output_digest="", reference_digest="") if row.case in apart else row for row in rows]


def _result(
    trial: _Trial, cells: Sequence[CellRecord], verdicts: Mapping[tuple[str, str, str], VerdictRecord]
) -> RowResult:
    row = trial.row
    verdict = verdicts.get((trial.bad, trial.case, row.stage))
    own = {cell.environment: cell for cell in cells if cell.case == trial.case and cell.stage == row.stage}
    seen = {name: _figure(name, own.get(trial.good), own.get(trial.bad), verdict) for name in row.figure}
    flagged = verdict is not None and verdict.verdict in REGRESSIONS
    result = RowResult(
        row=row,
        standing=Standing.NOT_REPRODUCED,
        seen=seen,
        flag=verdict.reason_code if verdict and flagged else "",
        change=_said(verdict, own.get(trial.good), own.get(trial.bad)),
    )
    if not all(is_seen(name, row, seen[name]) for name in seen):
        return result
    return replace(result, standing=Standing.FLAGGED if flagged else Standing.MISSED)


def _figure(
    name: str, good: CellRecord | None, bad: CellRecord | None, verdict: VerdictRecord | None
) -> tuple[Any, Any]:
    """A figure of both sides by its name: outcomes, the ratio of times, or what the verdict rests on."""
    match name:
        case "outcome":
            outcomes = [cell.outcome if cell else _NOTHING_SEEN for cell in (good, bad)]
            return outcomes[0], outcomes[1]
        case "reason_code":
            return "", verdict.reason_code if verdict else _NOTHING_SEEN
        case _ if name == RATIO:
            return 1.0, verdict.ratio if verdict else None
        case _:
            raise ValueError(f"{name!r} is no figure of a row that takes a GPU")


def _said(verdict: VerdictRecord | None, good: CellRecord | None, bad: CellRecord | None) -> str:
    """What the rules said, and the reason of a side that failed."""
    said = verdict.change if verdict else ""
    reasons = dict.fromkeys(cell.reason for cell in (good, bad) if cell and cell.reason not in said)
    return "; ".join(filter(None, (said, *reasons)))
