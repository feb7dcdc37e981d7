"""Whose change each finding is, into the verdict rows: the first link of its chain that changed, and the owner."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matrix.explaining.chains import CHAINED, Chains
from matrix.judging.cellnames import plain_params
from matrix.model import CPU
from matrix.records import Tuning
from matrix.storage.rows import Rows
from matrix.storage.store import verdict_rows, verdict_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from matrix.records import VerdictRecord
    from matrix.storage.runfolder import RunFolder


def with_owners(run: RunFolder) -> Rows[VerdictRecord]:
    """The run's verdicts, with ``first_change`` and ``whose_change`` where a row belongs to a finding with a chain."""
    verdicts = run.verdicts if isinstance(run.verdicts, Rows) else verdict_rows(run.verdicts)
    places = _in_findings(verdicts.table)
    rows = verdicts.taken(places)
    chains = Chains(_about(replace(run, verdicts=verdicts), rows), whole=run)
    table = verdicts.table
    found = [chains.of(row, row.kernel) for row in rows]
    for name, told in (
        ("first_change", [str(chain.first.step) if chain.first else None for chain in found]),
        ("whose_change", [str(chain.owner) if chain.is_known else None for chain in found]),
    ):
        column: NDArray[np.object_] = np.full(len(table), None, dtype=object)
        column[places] = told
        field = table.schema.field(name)
        table = table.set_column(table.schema.get_field_index(name), field, pa.array(column, field.type))
    return verdict_table(table)


def _in_findings(table: pa.Table) -> list[int]:
    found = pc.and_(pc.not_equal(table["finding_id"], ""), pc.not_equal(table["target"], CPU))
    chained = pc.is_in(table["stage"], pa.array(map(str, CHAINED)))
    return _places(pc.and_(found, chained))


def _places(wanted: pa.ChunkedArray) -> list[int]:
    places: list[int] = np.flatnonzero(wanted.to_numpy()).tolist()
    return places


def _about(run: RunFolder, rows: Iterable[VerdictRecord]) -> RunFolder:
    """The run with no more than the records that chains of these rows are made of."""
    cells = {cell_id for row in rows for cell_id in _cells(row)}
    wanted = pa.array(sorted(cells), pa.string())

    kernels, timings, verdicts = run.kernels, run.timings, run.verdicts
    if isinstance(kernels, Rows):
        own = pc.is_in(kernels.table["cell_id"], wanted)
        if pc.any(pc.not_equal(kernels.table["config"], "")).as_py():
            # A kernel that tunes itself was compiled in cells of its own, one for each configuration.
            plain = [_plain(cell_id) in cells for cell_id in kernels.table["cell_id"].to_pylist()]
            own = pc.or_(own, pa.array(plain, pa.bool_()))
        kernels = kernels.taken(_places(own))
    if isinstance(timings, Rows):
        timings = timings.taken(_places(pc.is_in(timings.table["cell_id"], wanted)))
    if isinstance(verdicts, Rows):
        verdicts = verdicts.taken(_places(pc.is_in(verdicts.table["candidate_cell_id"], wanted)))
    return replace(run, kernels=kernels, timings=timings, verdicts=verdicts)


def _cells(row: VerdictRecord) -> Iterator[str]:
    """Both sides' cells at the row's point, however kernels were tuned there."""
    for cell_id in filter(None, (row.baseline_cell_id, row.candidate_cell_id)):
        plain = _plain(cell_id)
        yield from (cell_id, plain, f"{plain}{',' if ':' in plain else ':'}tuning={Tuning.PINNED}")


def _plain(cell_id: str) -> str:
    name, _, params = cell_id.partition(":")
    return f"{name}:{plain_params(params)}".rstrip(":")
