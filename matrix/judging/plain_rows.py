"""The verdict rows of cells that tell nothing, as a table: of each judgement one row is made, and what differs from
cell to cell is put beside it in columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from matrix.judging.changes import encode
from matrix.judging.judge import Spot, verdict_row
from matrix.storage.store import VERDICTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.judging.columns import Ints
    from matrix.judging.grid import Grid
    from matrix.judging.judge import Place
    from matrix.judging.screen import Plain
    from matrix.records import VerdictRecord

    Comparison = tuple[int, Place, Plain]  # with the candidate's number in the grid

_OF_THE_SPOT = ("case", "target", "params", "stage")


def plain_table(comparisons: Sequence[Comparison], grid: Grid, cell_ids: pa.Array) -> tuple[pa.Table, Ints]:
    """The rows, and where each belongs: the candidate's number and the spot."""
    timed, others = (_table(comparisons, grid, cell_ids, timed=timed) for timed in (True, False))
    return pa.concat_tables([timed[0], others[0]]), np.concatenate([timed[1], others[1]])


def _table(comparisons: Sequence[Comparison], grid: Grid, cell_ids: pa.Array, *, timed: bool) -> tuple[pa.Table, Ints]:
    models = _Models()
    at = np.array(
        [
            (number, spot, models.of(number, place, plain, spot, grid.spots[spot].stage))
            for number, place, plain in comparisons
            for spot in plain.judged
            if (spot in plain.speeds) is timed
        ],
        dtype=np.int64,
    ).reshape(-1, 3)
    owners, spots, rows = at.T
    columns = models.columns(rows)
    for name in _OF_THE_SPOT:
        columns[name] = pa.array([getattr(spot, name) for spot in grid.spots], pa.string()).take(pa.array(spots))
    columns["baseline_cell_id"] = cell_ids.take(pa.array(grid.cells[0, spots]))
    columns["candidate_cell_id"] = cell_ids.take(pa.array(grid.cells[owners, spots]))
    if timed:
        columns |= {name: pa.array(values, VERDICTS.field(name).type) for name, values in _own(comparisons).items()}
    return pa.Table.from_arrays([columns[name] for name in VERDICTS.names], schema=VERDICTS), at[:, :2]


class _Models:
    """Rows that stand for all with the same comparison, stage and reason."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str, str], int] = {}
        self._rows: list[VerdictRecord] = []

    def of(self, number: int, place: Place, plain: Plain, spot: int, stage: str) -> int:
        judgement = plain.judged[spot]
        key = number, stage, judgement.changes[0].reason_code
        if key not in self._known:
            self._known[key] = len(self._rows)
            at = Spot(case="", target="", params="", stage=stage)
            self._rows.append(verdict_row(place, at, judgement, None, None, plain.speeds.get(spot)))
        return self._known[key]

    def columns(self, rows: Ints) -> dict[str, pa.Array]:
        places = pa.array(rows)
        return {
            field.name: pa.array([getattr(row, field.name) for row in self._rows], field.type).take(places)
            for field in VERDICTS
        }


def _own(comparisons: Sequence[Comparison]) -> dict[str, list[Any]]:
    """What each timed cell has of its own."""
    speeds = [speed for _, _, plain in comparisons for speed in plain.speeds.values()]
    changes = [speed.changes[0] for speed in speeds]
    said = [speed.columns() for speed in speeds]
    return {
        "change": [change.said for change in changes],
        "detail": [encode([change]) for change in changes],
        "baseline_value": [change.baseline_value for change in changes],
        "candidate_value": [change.candidate_value for change in changes],
        "negative_control": [
            same for _, _, plain in comparisons for same in plain.unchanged[list(plain.speeds)].tolist()
        ],
        **{name: [row[name] for row in said] for name in (said[0] if said else ())},
    }
