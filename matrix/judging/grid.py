"""Who stands where: rows of the tables by environment and spot, as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from matrix.judging.columns import ABSENT, coded, together
from matrix.judging.judge import Spot, in_order
from matrix.model import Stage
from matrix.records import Tuning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.judging.columns import Ints

_PLACE = ("case", "target", "params")
_STAGE = pa.field("stage", pa.string(), nullable=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """``spots`` of all tables in the order of verdicts. ``cells`` and ``kernels`` are rows of their tables by
    environment and spot, the last one where there are several, :data:`ABSENT` where there is none; of kernels, at the
    compile stage, ``counts`` says how many. ``arms`` and ``kernel_spots`` are the spots of each row of their table.
    """

    spots: Sequence[Spot]
    places: Mapping[Spot, int]
    cells: Ints
    kernels: Ints
    counts: Ints
    kernel_environments: Ints
    kernel_spots: Ints
    arms: Ints
    code: Ints  # by spot of a timed cell: the spot where its code was compiled

    @classmethod
    def of(cls, names: Sequence[str], cells: pa.Table, evidence: pa.Table, timings: pa.Table) -> Grid:
        """Environments in the order of ``names``."""
        at, spots = _spots(cells.select([*_PLACE, "stage"]), _at(evidence, Stage.COMPILE), _at(timings, Stage.TIMING))
        in_cells, in_evidence, in_timings = at
        owners, makers = (_environments(table, names) for table in (cells, evidence))
        shape = len(names), len(spots)
        counts: Ints = np.zeros(shape, dtype=np.int64)
        known = makers != ABSENT
        np.add.at(counts, (makers[known], in_evidence[known]), 1)
        return cls(
            spots=spots,
            places={spot: number for number, spot in enumerate(spots)},
            cells=last_rows(shape, owners, in_cells),
            kernels=last_rows(shape, makers, in_evidence),
            counts=counts,
            kernel_environments=makers,
            kernel_spots=in_evidence,
            arms=in_timings,
            code=_code(spots),
        )


def last_rows(shape: tuple[int, int], rows: Ints, columns: Ints) -> Ints:
    """Where each row of a table stands; of several at one place the last, and nowhere what has no row here."""
    found: Ints = np.full(shape, ABSENT, dtype=np.int64)
    known = np.flatnonzero(rows != ABSENT)
    found[rows[known], columns[known]] = known
    return found


def _at(table: pa.Table, stage: Stage) -> pa.Table:
    return table.select(list(_PLACE)).append_column(_STAGE, pa.array([str(stage)] * len(table), pa.string()))


def _spots(*tables: pa.Table) -> tuple[list[Ints], list[Spot]]:
    """The spot of each row of each table, and the distinct spots in the order of verdicts."""
    rows = pa.concat_tables(tables)
    codes = together([coded(rows[name])[0] for name in (*_PLACE, "stage")])
    _, first, place = np.unique(codes, return_index=True, return_inverse=True)
    spots = [Spot(**row) for row in rows.take(pa.array(first)).to_pylist()]
    order = sorted(range(len(spots)), key=lambda number: in_order(spots[number]))
    rank: Ints = np.empty(len(spots), dtype=np.int64)
    rank[order] = np.arange(len(spots))
    edges = np.cumsum([len(table) for table in tables])[:-1]
    return np.split(rank[place.reshape(-1)], edges), [spots[number] for number in order]


def _environments(table: pa.Table, names: Sequence[str]) -> Ints:
    places, values = coded(table["environment"])
    known = {name: number for number, name in enumerate(names)}
    return np.array([*(known.get(value, ABSENT) for value in values), ABSENT])[places]


def _code(spots: Sequence[Spot]) -> Ints:
    known = {spot: number for number, spot in enumerate(spots)}
    pinned = f",tuning={Tuning.PINNED}"
    found = [
        known.get(spot._replace(params=spot.params.removesuffix(pinned), stage=str(Stage.COMPILE)), ABSENT)
        if spot.stage == Stage.TIMING
        else ABSENT
        for spot in spots
    ]
    return np.array(found, dtype=np.int64)
