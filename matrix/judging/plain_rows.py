"""The verdict rows of cells that tell nothing, as a table: of each group that the row judge says the same of one row is
made, and what differs from cell to cell is put beside it in columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from matrix.judging.judge import Spot, verdict_row
from matrix.storage.store import VERDICTS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from matrix.judging.columns import Bools, Ints
    from matrix.judging.grid import Grid
    from matrix.judging.judge import Place
    from matrix.judging.screen import Group, Plain

    Comparison = tuple[int, Place, Plain]  # with the candidate's number in the grid
    Told = tuple[int, Place, Bools, Group]

_OF_THE_SPOT = ("case", "target", "params", "stage")


def plain_table(comparisons: Sequence[Comparison], grid: Grid, cell_ids: pa.Array) -> tuple[pa.Table, Ints]:
    """The rows, and where each belongs: the candidate's number and the spot."""
    told = [(number, place, plain.unchanged, group) for number, place, plain in comparisons for group in plain.groups]
    parts = [
        _table([each for each in told if (each[3].timed is None) is untimed], grid, cell_ids)
        for untimed in (False, True)
    ]
    return pa.concat_tables([table for table, _ in parts]), np.concatenate([places for _, places in parts])


def _table(told: Sequence[Told], grid: Grid, cell_ids: pa.Array) -> tuple[pa.Table, Ints]:
    if not told:
        return VERDICTS.empty_table(), np.empty((0, 2), dtype=np.int64)
    counts = [len(group.spots) for *_, group in told]
    spots = np.concatenate([group.spots for *_, group in told])
    owners: Ints = np.repeat([number for number, *_ in told], counts)
    columns = {name: pa.array(values, VERDICTS.field(name).type) for name, values in _own(told).items()}
    for name in _OF_THE_SPOT:
        columns[name] = pa.array([getattr(spot, name) for spot in grid.spots], pa.string()).take(pa.array(spots))
    columns["baseline_cell_id"] = cell_ids.take(pa.array(grid.cells[0, spots]))
    columns["candidate_cell_id"] = cell_ids.take(pa.array(grid.cells[owners, spots]))
    columns |= _repeated(told, counts, grid, without=columns)
    table = pa.Table.from_arrays([columns[name] for name in VERDICTS.names], schema=VERDICTS)
    return table, np.stack([owners, spots], axis=1)


def _repeated(told: Sequence[Told], counts: Sequence[int], grid: Grid, without: Collection[str]) -> dict[str, pa.Array]:
    """Each group's row, as often as it has spots, but for the columns that its spots have of their own."""
    rows = [
        verdict_row(
            place,
            Spot(case="", target="", params="", stage=grid.spots[group.spots[0]].stage),
            group.judgement,
            None,
            None,
            group.timed.model if group.timed else None,
        )
        for _, place, _, group in told
    ]
    places = pa.array(np.repeat(np.arange(len(rows)), counts))
    return {field.name: pa.array([getattr(row, field.name) for row in rows], field.type).take(places)
            for field in VERDICTS if field.name not in without}  # fmt: skip


def _own(told: Sequence[Told]) -> dict[str, list[Any]]:
    """What each timed cell has of its own, by column."""
    found: dict[str, list[Any]] = {}
    for _, _, unchanged, group in told:
        if group.timed:
            own = {**group.timed.columns(), "negative_control": unchanged[group.spots].tolist()}
            for name, values in own.items():
                found.setdefault(name, []).extend(values)
    return found
