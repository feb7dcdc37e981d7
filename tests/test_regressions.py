"""Every documented regression under kernels/regressions shows its figure, on its good and on its bad release.

A row whose ``STAGE`` is correctness or timing needs a GPU. Its ``FIGURE`` is what was reported and not what we saw, of
an outcome or of the verdict's reason code; here such a row is skipped.
"""

from __future__ import annotations

import pytest
from conftest import Workshop

from matrix.catalogue.recall import RowResult, Standing, run_rows
from matrix.catalogue.rows import Row, read_catalogue
from matrix.judging.thresholds import Thresholds
from matrix.resources import catalogue_folder
from matrix.running.execute import Bench
from matrix.running.progress import Board
from matrix.running.workers import WorkerHome
from matrix.settings.environments import child_environment

ROWS = read_catalogue(catalogue_folder()).rows


@pytest.fixture(scope="module")
def results(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RowResult]:
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
    return {result.row.name: result for result in done}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_row_s_figures_are_seen_and_flagged_as_stated(results: dict[str, RowResult], row: Row) -> None:
    result = results[row.name]
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
