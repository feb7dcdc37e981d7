"""Running the catalogue: is each row's figure seen on both sides, and do the ordinary rules flag it?"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar

from matrix.catalogue.on_gpus import GpuBench, run_on_gpus
from matrix.catalogue.results import RowResult, Standing, is_seen
from matrix.catalogue.rows import Arm, Catalogue, Row, read_catalogue
from matrix.catalogue.sides import cells_at, environments
from matrix.errors import UsageError
from matrix.judging.findings import REGRESSIONS
from matrix.judging.judge_tables import judge
from matrix.model import Stage, format_params
from matrix.provisioning.provision import provide
from matrix.resources import catalogue_folder
from matrix.running.execute import bench_for, collect, measure
from matrix.running.facts import facts_of
from matrix.running.host import this_host
from matrix.running.plan import PlannedCell, near_names
from matrix.running.recording import Clerk, fact_key
from matrix.running.workers import homes_of, memory_share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from matrix.gpus.stages import GpuHost
    from matrix.judging.thresholds import Thresholds
    from matrix.provisioning.provision import Provision
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which rows are to be run, by globs of their files' names and by stage, and in which environments.

    Without a glob or stage: all. Without environments: the stock pair of every release that a row names.
    """

    globs: Sequence[str] = ()
    stages: Sequence[Stage] = ()
    environments: Sequence[str] = ()

    def rows(self, catalogue: Catalogue) -> list[Row]:
        """Raises :class:`UsageError` for globs that match no row, and where the rest need none of the stages."""
        names = {row.name for row in catalogue.rows}
        if idle := [glob for glob in self.globs if not any(fnmatchcase(name, glob) for name in names)]:
            near = near_names(idle, names)
            hint = f"did you mean {', '.join(near)}?" if near else "rows go by their files' names: docs/catalogue.md"
            raise UsageError(f"no row of the catalogue matches {', '.join(map(repr, idle))}", hint=hint)
        named = [row for row in catalogue.rows if not self.globs or any(fnmatchcase(row.name, g) for g in self.globs)]
        found = [row for row in named if not self.stages or row.stage in self.stages]
        if not found:
            needed = ", ".join(dict.fromkeys(str(row.stage) for row in named))
            raise UsageError("no such row shows at these stages", hint=f"what was chosen shows at {needed}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """The catalogue as it was run here: ``gpus`` are those that took part, ``environments`` go by release."""

    catalogue: Catalogue
    results: tuple[RowResult, ...]
    gpus: tuple[Mapping[str, Any], ...] = ()
    environments: Mapping[str, str] = field(default_factory=dict)


def run_catalogue(
    configuration: Configuration,
    home: Home,
    board: Board,
    wanted: Wanted,
    *,
    jobs: int,
    host: GpuHost | None = None,
    fresh: bool = False,
) -> Recalled:
    """The rows that are wanted, in environments built where need be, and on the GPUs of ``host``.

    Raises :class:`UsageError` where no row matches.
    """
    catalogue = read_catalogue(catalogue_folder())
    rows = wanted.rows(catalogue)
    on_gpus = [row for row in rows if host and row.on_a_gpu and row.good.target in host.targets]
    names = wanted.environments or sorted(
        {arm.version for row in rows if not row.on_a_gpu or row in on_gpus for arm in row.arms if arm.shown}
    )
    with home.scratch() as scratch, board.live():
        bench = bench_for(configuration, home, scratch, jobs=jobs, board=board, fresh=fresh)
        provisions = _by_release(provide(names, configuration, home.root, board))
        homes = homes_of(provisions, (), scratch, memory_share(this_host(), jobs))
        locks = {release: each.built.digest for release, each in provisions.items() if each.built}
        results = run_rows(rows, bench, homes, locks, configuration.thresholds, board)
        gpus: tuple[Mapping[str, Any], ...] = ()
        if on_gpus and host:
            limit_s = configuration.timeouts_s[Stage.INTERPRET]
            desk = GpuBench(bench=bench, homes=homes, locks=locks, host=host, board=board, jobs=jobs, timeout_s=limit_s)
            tried = run_on_gpus(on_gpus, desk, configuration.thresholds)
            gpus = tried.gpus
            results = [tried.results.get(each.row.key, each) for each in results]
    chosen = bool(wanted.environments)
    return Recalled(
        catalogue=catalogue,
        results=tuple(_placed(each, provisions, chosen=chosen) for each in results),
        gpus=gpus,
        environments={release: each.environment.id for release, each in provisions.items()},
    )


def _by_release(provisions: Mapping[str, Provision]) -> dict[str, Provision]:
    """Environments by their Triton. Raises :class:`UsageError` where two have the same."""
    found: dict[str, Provision] = {}
    for name, provision in provisions.items():
        release = provision.triton_version or name
        if release in found:
            both = f"{found[release].environment.id} and {provision.environment.id}"
            raise UsageError(f"{both} both have Triton {release}", hint="a row goes by its release: choose one of them")
        found[release] = provision
    return found


def _placed(result: RowResult, provisions: Mapping[str, Provision], *, chosen: bool) -> RowResult:
    """A row that had no environment, though some were chosen: its release is not among them, or is none."""
    if result.standing is Standing.NEEDS_GPU and not all(arm.shown for arm in result.row.arms):
        return replace(result, standing=Standing.ONE_SIDE, change="no release has the other side")
    lacking = [arm.version for arm in result.row.arms if arm.shown and arm.version not in provisions]
    if chosen and lacking and result.standing in {Standing.NOT_RUN, Standing.NEEDS_GPU}:
        text = f"no environment of Triton {' or '.join(dict.fromkeys(lacking))} takes part"
        return replace(result, standing=Standing.NOT_HERE, change=text)
    return result


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
    measured: Mapping[tuple[str, Path, str, frozenset[tuple[str, Any]]], Measured]
    facts: Mapping[str, tuple[KernelFacts, str]]

    def cell(self, row: Row, arm: Arm) -> Measured | None:
        return self.measured.get((arm.version, row.path, arm.target, _point(arm.params)))

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
    pairs = dict.fromkeys((arm.version, row.path) for row, arm in wanted)
    files = list(dict.fromkeys(path for _, path in pairs))
    found = collect(bench, homes, locks, files, board.task("import", len(pairs)), only=pairs.keys())
    collected = {(item.environment, item.path): item for item in found}
    cells = [cell for row, arm in wanted for cell in _cells(row, arm, collected[arm.version, row.path])]
    planned = {(cell.stage, cell.cell.id): cell for cell in cells}
    tick = board.task("compile and interpret", len(planned))
    measured = measure(bench, homes, locks, planned.values(), tick)
    kernels = sum(len(part["kernels"]) for item in measured for part in item.parts)
    return _Bed(
        collected=collected,
        measured={
            (m.planned.cell.environment, m.planned.case.path, m.planned.cell.target, _point(m.planned.params)): m
            for m in measured
        },
        facts=facts_of(bench, measured, board.task("read the code", kernels)),
    )


def _point(params: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    """A point, in whatever order its params were written."""
    return frozenset(params.items())


def _runs(row: Row, arm: Arm, homes: Mapping[str, WorkerHome]) -> bool:
    return arm.shown and not row.on_a_gpu and arm.version in homes


def _cells(row: Row, arm: Arm, item: Collected) -> Iterator[PlannedCell]:
    """The one cell of a side; none for a row of the import stage."""
    if row.stage is not Stage.IMPORT:
        yield from (replace(cell, limit_s=row.limit_s) for cell in cells_at(row, arm, item))


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
    if not all(is_seen(name, row, seen[name]) for name in seen):
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


def _verdict(row: Row, bed: _Bed, thresholds: Thresholds) -> VerdictRecord | None:
    """The ordinary rules on the bad side against the good one, whatever release, target or point they differ in.

    No expectation takes part: those of the case are there to make the verdict a known one.
    """
    collected = [bed.collected[version, row.path] for version in dict.fromkeys(arm.version for arm in row.arms)]
    names = {row.name, *(case.name for item in collected for case in item.cases)}
    arms = environments({arm.version: arm.version for arm in row.arms})
    clerk = Clerk(run_id="", host="", arms=arms, expectations={})
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
