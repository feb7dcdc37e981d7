"""Every documented regression under kernels/regressions shows its figure, on its good and on its bad release.

A row of the correctness or timing stage needs a GPU: its figure is what was reported, and here it is skipped.
``test_catalogue_on_gpus`` has how such rows are run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Workshop

from matrix.catalogue.recall import run_rows
from matrix.catalogue.results import RowResult, Standing
from matrix.catalogue.rows import Row, read_catalogue
from matrix.judging.thresholds import Thresholds
from matrix.model import Stage
from matrix.resources import catalogue_folder
from matrix.running.declared import declared_names
from matrix.running.execute import Bench, collect
from matrix.running.progress import Board
from matrix.running.workers import WorkerHome
from matrix.settings.environments import child_environment

ROWS = read_catalogue(catalogue_folder()).rows


@pytest.fixture(scope="module")
def results(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, Stage], RowResult]:
    scratch = tmp_path_factory.mktemp("bed")
    bench = Bench.make(scratch, store=scratch, slots=2)
    versions = {arm.version for row in ROWS if not row.on_a_gpu for arm in row.arms if arm.shown}
    built = {version: workshop.environment(version) for version in sorted(versions)}
    homes = {
        version: WorkerHome(
            environment=version,
            interpreter=each.interpreter,
            variables=child_environment(each.environment),
            pythonpath=(),
            scratch=scratch,
            memory_bytes=16 << 30,
        )
        for version, each in built.items()
    }
    locks = {version: each.digest for version, each in built.items()}
    done = run_rows(ROWS, bench, homes, locks, Thresholds(), Board(quiet=True))
    return {result.row.key: result for result in done}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row.key))
def test_the_row_s_figures_are_seen_and_flagged_as_stated(
    results: dict[tuple[str, Stage], RowResult], row: Row
) -> None:
    result = results[row.key]
    if result.standing is Standing.NEEDS_GPU:
        pytest.skip("only a GPU shows it")
    assert result.seen
    for name, seen in result.seen.items():
        for arm, wanted, found in zip(row.arms, row.figure[name], seen, strict=True):
            if not arm.shown:
                continue
            if name == "reason":
                assert wanted in found
            else:
                assert found == wanted, f"{name} in {arm}"
    if result.standing in {Standing.FLAGGED, Standing.MISSED}:
        assert result.flag == row.flag, result.change


def test_what_a_gpu_is_to_run_is_a_point_of_its_case(workshop: Workshop, tmp_path: Path) -> None:
    rows = [row for row in ROWS if row.on_a_gpu]
    environment = workshop.environment("3.8.0")
    home = WorkerHome(
        environment="3.8.0",
        interpreter=environment.interpreter,
        variables=child_environment(environment.environment),
        pythonpath=(),
        scratch=tmp_path,
        memory_bytes=16 << 30,
    )
    files = list(dict.fromkeys(row.path for row in rows))
    bench = Bench.make(tmp_path, store=tmp_path, slots=2)
    found = collect(bench, {"3.8.0": home}, {"3.8.0": environment.digest}, files, lambda: None)
    points = {item.path: [case.points for case in item.cases] for item in found}
    for item in found:
        assert declared_names(item.path) in (None, {case.name for case in item.cases})
    for row in rows:
        (own,) = points[row.path]
        for arm in row.arms:
            assert dict(arm.params) in [dict(point) for point in own[row.stage]], f"{row.name} at {arm}"
