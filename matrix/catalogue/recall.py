"""Running the catalogue: is each row's figure seen on both sides, and do the ordinary rules flag it?"""

from __future__ import annotations

import enum
from collections import defaultdict
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar

from matrix.catalogue.rows import Arm, Catalogue, Row, read_catalogue
from matrix.errors import UsageError
from matrix.judging.findings import REGRESSIONS
from matrix.judging.judge import judge
from matrix.model import Stage, format_params
from matrix.provisioning.provision import provide
from matrix.resources import catalogue_folder
from matrix.running.execute import collect, measure
from matrix.running.facts import facts_of
from matrix.running.host import this_host
from matrix.running.plan import PlannedCell, Request, cells_of
from matrix.running.recording import Arm as Environment
from matrix.running.recording import Clerk, fact_key
from matrix.running.run import bench_for
from matrix.running.workers import homes_of, memory_share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from matrix.judging.thresholds import Thresholds
    from matrix.records import CellRecord, KernelFacts, KernelRecord, VerdictRecord
    from matrix.running.execute import Bench, Measured
    from matrix.running.plan import Collected
    from matrix.running.progress import Board
    from matrix.running.workers import WorkerHome
    from matrix.settings.config import Configuration
    from matrix.storage.runs import Home

    Record = TypeVar("Record", CellRecord, KernelRecord)

GOOD, BAD = "good", "bad"
_NOTHING_SEEN = "(nothing was compiled)"


class Standing(enum.StrEnum):
    """How a row fared. Recall is the flagged ones over all that were reproduced on both sides."""

    FLAGGED = "flagged"
    MISSED = "reproduced, not flagged"
    NOT_REPRODUCED = "not reproduced"
    ONE_SIDE = "one side only"  # no release of ours has the other
    NEEDS_GPU = "needs a GPU"
    NOT_RUN = "not run"  # no environment


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """What one row showed. ``seen`` holds the figures of the good and the bad side that were measured."""

    row: Row
    standing: Standing
    seen: Mapping[str, tuple[Any, Any]]
    flag: str = ""
    change: str = ""

    @property
    def as_stated(self) -> bool:
        """Whether figures and flag are what the row's data say; of what was run alone."""
        match self.standing:
            case Standing.NEEDS_GPU | Standing.ONE_SIDE:
                return True
            case Standing.NOT_REPRODUCED | Standing.NOT_RUN:
                return False
            case Standing.FLAGGED | Standing.MISSED:
                return self.flag == self.row.flag


def run_catalogue(
    configuration: Configuration, home: Home, board: Board, *, globs: Sequence[str], jobs: int
) -> tuple[Catalogue, list[RowResult]]:
    """The rows whose file names match ``globs`` (all without one), in environments built where need be.

    Raises :class:`UsageError` where no row matches.
    """
    catalogue = read_catalogue(catalogue_folder())
    rows = [row for row in catalogue.rows if not globs or any(fnmatchcase(row.name, glob) for glob in globs)]
    if not rows:
        raise UsageError(f"no row of the catalogue matches {', '.join(globs)}", hint="rows go by their files' names")
    versions = sorted({arm.version for row in rows if not row.on_a_gpu for arm in row.arms if arm.shown})
    with home.scratch() as scratch, board.live():
        bench = bench_for(configuration, home, scratch, jobs=jobs, board=board)
        provisions = provide(versions, configuration, home.root, board)
        homes = homes_of(provisions, (), scratch, memory_share(this_host(), jobs))
        locks = {name: each.built.digest for name, each in provisions.items() if each.built}
        return catalogue, run_rows(rows, bench, homes, locks, configuration.thresholds, board)


def run_rows(
    rows: Sequence[Row],
    bench: Bench,
    homes: Mapping[str, WorkerHome],
    locks: Mapping[str, str],
    thresholds: Thresholds,
    board: Board,
) -> list[RowResult]:
    """Every row, in order. ``homes`` and ``locks`` go by release."""
    bed = _measure(rows, bench, homes, locks, board)
    return [_result(row, bed, homes, thresholds) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bed:
    """Everything that the rows need, measured in one go."""

    collected: Mapping[tuple[str, Path], Collected]
    measured: Mapping[tuple[str, Path, str, str], Measured]
    facts: Mapping[str, tuple[KernelFacts, str]]

    def cell(self, row: Row, arm: Arm) -> Measured | None:
        return self.measured.get((arm.version, row.path, arm.target, format_params(arm.params)))

    def figure(self, row: Row, arm: Arm, name: str) -> Any:
        """A figure of the row by its name: an outcome, its reason, an option of the launch or a fact of the code."""
        if row.stage is Stage.IMPORT:
            return getattr(self.collected[arm.version, row.path], name)
        measured = self.cell(row, arm)
        part = measured.parts[0] if measured else {}
        if name in {"outcome", "reason"}:
            return part.get(name, _NOTHING_SEEN)
        kernels = part.get("kernels", ())
        if not kernels:
            return _NOTHING_SEEN
        if name in kernels[0] and name != "shared_bytes":
            return kernels[0][name]
        value = getattr(self.facts[fact_key(arm.target, kernels[0])][0], name)
        return sorted({hazard["kind"] for hazard in value}) if name == "hazards" else value


def _measure(
    rows: Sequence[Row],
    bench: Bench,
    homes: Mapping[str, WorkerHome],
    locks: Mapping[str, str],
    board: Board,
) -> _Bed:
    wanted = [(row, arm) for row in rows for arm in row.arms if _runs(row, arm, homes)]
    files = list(dict.fromkeys(row.path for row, _ in wanted))
    tick = board.task("import", len(homes) * len(files))
    collected = {(item.environment, item.path): item for item in collect(bench, homes, locks, files, tick)}
    planned: dict[float | None, dict[tuple[Stage, str], PlannedCell]] = defaultdict(dict)
    for row, arm in wanted:
        for cell in _cells(row, arm, collected[arm.version, row.path]):
            planned[row.limit_s][cell.stage, cell.cell.id] = cell
    tick = board.task("compile and interpret", sum(map(len, planned.values())))
    measured = [
        item
        for limit_s, cells in planned.items()
        for item in measure(_limited(bench, limit_s), homes, locks, cells.values(), tick)
    ]
    kernels = sum(len(part["kernels"]) for item in measured for part in item.parts)
    return _Bed(
        collected=collected,
        measured={
            (m.planned.cell.environment, m.planned.case.path, m.planned.cell.target, format_params(m.planned.params)): m
            for m in measured
        },
        facts=facts_of(bench, measured, board.task("read the code", kernels)),
    )


def _limited(bench: Bench, limit_s: float | None) -> Bench:
    return replace(bench, timeouts=replace(bench.timeouts, compile=limit_s)) if limit_s else bench


def _runs(row: Row, arm: Arm, homes: Mapping[str, WorkerHome]) -> bool:
    return arm.shown and not row.on_a_gpu and arm.version in homes


def _cells(row: Row, arm: Arm, item: Collected) -> Iterator[PlannedCell]:
    """The one cell of a side; none for a row of the import stage."""
    if row.stage is Stage.IMPORT:
        return
    request = Request(
        baseline=arm.version, candidates=(), targets=(arm.target,), case_files=(row.path,), stages=(row.stage,)
    )
    for cell in cells_of(arm.version, arm.version, [item], request):
        if format_params(cell.params) == format_params(arm.params):
            yield cell


def _result(row: Row, bed: _Bed, homes: Mapping[str, WorkerHome], thresholds: Thresholds) -> RowResult:
    if row.on_a_gpu:
        return RowResult(row=row, standing=Standing.NEEDS_GPU, seen={})
    if any(arm.shown and arm.version not in homes for arm in row.arms):
        return RowResult(row=row, standing=Standing.NOT_RUN, seen={})
    good, bad = row.arms
    seen = {
        name: (
            bed.figure(row, good, name) if good.shown else None,
            bed.figure(row, bad, name) if bad.shown else None,
        )
        for name in row.figure
    }
    if not all(_is_seen(name, row, seen[name]) for name in seen):
        return RowResult(row=row, standing=Standing.NOT_REPRODUCED, seen=seen)
    if not row.comparable:
        return RowResult(row=row, standing=Standing.ONE_SIDE, seen=seen)
    verdict = _verdict(row, bed, thresholds)
    flagged = verdict is not None and verdict.verdict in REGRESSIONS
    return RowResult(
        row=row,
        standing=Standing.FLAGGED if flagged else Standing.MISSED,
        seen=seen,
        flag=verdict.reason_code if verdict and flagged else "",
        change=verdict.change if verdict else "",
    )


def _is_seen(name: str, row: Row, seen: tuple[Any, ...]) -> bool:
    """A side that cannot be had needs no figure; a reason is given by a part of it."""
    pairs = zip(row.arms, row.figure[name], seen, strict=True)
    return all(
        not arm.shown or (wanted in found if name == "reason" else found == wanted) for arm, wanted, found in pairs
    )


def _verdict(row: Row, bed: _Bed, thresholds: Thresholds) -> VerdictRecord | None:
    """The ordinary rules on the bad side against the good one, whatever release, target or point they differ in.

    No expectation takes part: those of the case are there to make the verdict a known one.
    """
    collected = [bed.collected[version, row.path] for version in dict.fromkeys(arm.version for arm in row.arms)]
    names = {row.name, *(case.name for item in collected for case in item.cases)}
    clerk = Clerk(run_id="", host="", arms=_environments(row), expectations={})
    cells: list[CellRecord] = []
    kernels: list[KernelRecord] = []
    for side, arm in zip((GOOD, BAD), row.arms, strict=True):
        measured = [each for each in (bed.cell(row, arm),) if each is not None]
        own = (cell for cell in clerk.cells(collected, measured, names) if cell.environment == arm.version)
        cells += [_moved(cell, side, row) for cell in own if cell.stage == row.stage]
        kernels += [_moved(kernel, side, row) for kernel in clerk.kernels(measured, bed.facts)]
    verdicts = judge(cells, kernels, run_id="", baseline=GOOD, candidates=[BAD], expectations={}, thresholds=thresholds)
    return next((verdict for verdict in verdicts if verdict.stage == row.stage), None)


def _moved(record: Record, side: str, row: Row) -> Record:
    """The record as if both sides differed in their environment alone."""
    if row.stage is Stage.IMPORT:
        return replace(record, environment=side)
    return replace(record, environment=side, target=row.good.target, params=format_params(row.good.params))


def _environments(row: Row) -> dict[str, Environment]:
    return {
        arm.version: Environment(environment=arm.version, triton_version=arm.version, torch_version="")
        for arm in row.arms
    }
