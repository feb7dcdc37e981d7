"""The candidate against the baseline: what tells nothing by columns, everything else row by row, with the same rules.

A night has a hundred thousand verdicts, and records of a few hundred of its cells are ever made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from matrix.judging.arm_pairs import ArmPairs
from matrix.judging.columns import ABSENT
from matrix.judging.findings import number
from matrix.judging.grid import Grid
from matrix.judging.judge import Place, Rules, Spot, arms_of, judge_spots, one_object, timed_pairs
from matrix.judging.plain_rows import plain_table
from matrix.judging.screen import Compared, Screen
from matrix.judging.speed import TimedPair
from matrix.judging.timed_columns import TimedColumns
from matrix.model import Stage
from matrix.storage import store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.case import Expect
    from matrix.judging.columns import Ints
    from matrix.judging.judge import Arm
    from matrix.judging.screen import Plain
    from matrix.judging.thresholds import Thresholds
    from matrix.judging.timed_columns import Timed
    from matrix.records import ArmRecord, CellRecord, DimensionRecord, KernelRecord, VerdictRecord
    from matrix.storage.rows import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """What a run recorded, or several."""

    cells: Rows[CellRecord]
    kernels: Rows[KernelRecord]
    timings: Rows[ArmRecord]
    dimensions: Rows[DimensionRecord]


def judge_tables(
    tables: Tables,
    *,
    run_id: str,
    baseline: str,
    candidates: Sequence[str],
    expectations: Mapping[str, Sequence[Expect]],
    thresholds: Thresholds,
    all_configurations: bool = True,
) -> Rows[VerdictRecord]:
    """Every candidate against the baseline, with findings numbered. Environments go by their id.

    Of several records of one cell and stage the last one counts. A candidate that nobody ran, with nothing on the
    baseline's side either, still gets one incomplete row.
    """
    names = (baseline, *candidates)
    rules = Rules(expectations=expectations, thresholds=one_object(thresholds), all_configurations=all_configurations)
    return _Night(tables, names, run_id, rules).verdicts()


def judge(  # noqa: PLR0913 - everything that a run knows
    cells: Sequence[CellRecord],
    kernels: Sequence[KernelRecord],
    *,
    run_id: str,
    baseline: str,
    candidates: Sequence[str],
    expectations: Mapping[str, Sequence[Expect]],
    thresholds: Thresholds,
    timings: Sequence[ArmRecord] = (),
    dimensions: Sequence[DimensionRecord] = (),
    all_configurations: bool = True,
) -> Rows[VerdictRecord]:
    """As :func:`judge_tables`, of records that are in no table yet."""
    tables = Tables(
        cells=store.as_cell_rows(cells),
        kernels=store.as_kernel_rows(kernels),
        timings=store.as_arm_rows(timings),
        dimensions=store.as_dimension_rows(dimensions),
    )
    return judge_tables(
        tables,
        run_id=run_id,
        baseline=baseline,
        candidates=candidates,
        expectations=expectations,
        thresholds=thresholds,
        all_configurations=all_configurations,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """One candidate: all of its spots, those that tell nothing, and its timed cells; None where they are turned."""

    number: int
    place: Place
    spots: Ints
    plain: Plain
    timed: Timed | None

    @property
    def left(self) -> list[int]:
        found: list[int] = self.plain.left.tolist()
        return found

    @classmethod
    def of(cls, compared: Compared, plain: Plain, place: Place) -> _Comparison:
        return cls(number=compared.number, place=place, spots=compared.spots, plain=plain, timed=compared.timed)


class _Night:
    def __init__(self, tables: Tables, names: Sequence[str], run_id: str, rules: Rules) -> None:
        self._tables, self._names, self._rules = tables, names, rules
        self._grid = Grid.of(names, tables.cells.table, tables.kernels.table, tables.timings.table)
        self._cell_ids = tables.cells.table["cell_id"].combine_chunks()
        self._arms = TimedColumns(tables.timings, self._grid, names)
        checked = np.array(sorted(self._checked()), dtype=np.int64)
        about = {"checked": checked, "expectations": rules.expectations}
        screen = Screen(self._grid, tables.cells, tables.kernels, self._arms, **about)
        compared = [self._compared(number) for number in range(1, len(names))]
        self._comparisons = [
            _Comparison.of(each, plain, Place(run_id=run_id, baseline=names[0], candidate=names[each.number]))
            for each, plain in zip(compared, screen.plain(compared, rules.thresholds), strict=True)
        ]

    def _checked(self) -> Iterator[int]:
        """Spots of the correctness stage with dimensions of their own."""
        table = self._tables.dimensions.table.select(["case", "target", "params"]).group_by(
            ["case", "target", "params"]
        )
        for row in table.aggregate([]).to_pylist():
            place = self._grid.places.get(Spot(**row, stage=str(Stage.CORRECTNESS)))
            if place is not None:
                yield place

    def _compared(self, number: int) -> Compared:
        cells = self._grid.cells
        spots = np.flatnonzero((cells[0] != ABSENT) | (cells[number] != ABSENT))
        return Compared(number=number, spots=spots, timed=self._arms.against(number, spots, self._rules.thresholds))

    def verdicts(self) -> Rows[VerdictRecord]:
        """Every comparison's rows in the order of its spots."""
        left = store.verdict_rows(number([row for rows in self._judged() for row in rows])).table
        told = [(each.number, each.place, each.plain) for each in self._comparisons]
        plain, places = plain_table(told, self._grid, self._cell_ids)
        untold = [(each.number, spot) for each in self._comparisons for spot in each.left]
        untold += [(each.number, ABSENT) for each in self._comparisons if not len(each.spots)]
        untold.sort()
        order = np.lexsort(np.concatenate([places, np.array(untold, dtype=np.int64).reshape(-1, 2)]).T[::-1])
        return store.verdict_table(pa.concat_tables([plain, left]).take(pa.array(order)))

    def _judged(self) -> Iterator[list[VerdictRecord]]:
        """The rows of what is left, by comparison."""
        arms, timed = self._records(), self._timed()
        for each, pairs in zip(self._comparisons, timed, strict=True):
            left = [self._grid.spots[spot] for spot in each.left]
            if left or not len(each.spots):
                sides = arms[each.place.baseline], arms[each.place.candidate]
                yield judge_spots(each.place, sides, left, replace(self._rules, timed=pairs))

    def _records(self) -> dict[str, Arm]:
        """Both sides of what is left, with the imports of its cases, the code of its timed cells, and what the same
        calls came to where one side has no record.
        """
        grid, tables = self._grid, self._tables
        spots = {each.number: each.plain.left for each in self._comparisons}
        spots[0] = np.unique(np.concatenate([[*()], *spots.values()])).astype(np.int64)
        cases = {grid.spots[spot].case for spot in spots[0]}
        imports = [place for place, spot in enumerate(grid.spots) if spot.stage == Stage.IMPORT and spot.case in cases]
        wanted = np.zeros(grid.cells.shape, dtype=bool)
        for owner, own in spots.items():
            wanted[owner, own] = True
            code = grid.code[own]
            wanted[owner, code[code != ABSENT]] = True
            wanted[owner, self._same_calls(own[grid.cells[owner, own] == ABSENT])] = True
        wanted[:, imports] = True
        cells = np.sort(grid.cells[wanted & (grid.cells != ABSENT)])
        known = grid.kernel_environments != ABSENT
        kernels = np.flatnonzero(known)
        kernels = kernels[wanted[grid.kernel_environments[kernels], grid.kernel_spots[kernels]]]
        arms = arms_of(self._names, tables.cells.taken(cells), tables.kernels.taken(kernels), tables.dimensions)
        for name, versions in self._versions().items():
            arms[name].versions.update(versions)
        return arms

    def _same_calls(self, spots: Ints) -> list[int]:
        """All spots of the calls that these belong to."""
        calls = {self._grid.spots[spot].call for spot in spots}
        return [place for place, spot in enumerate(self._grid.spots) if spot.call in calls] if calls else []

    def _versions(self) -> dict[str, set[str]]:
        """Of Triton, by environment: over all cells, whichever are looked at."""
        pairs = self._tables.cells.table.select(["environment", "triton_version"])
        found: dict[str, set[str]] = {name: set() for name in self._names}
        for row in pairs.group_by(pairs.column_names).aggregate([]).to_pylist():
            if row["environment"] in found:
                found[row["environment"]].add(row["triton_version"])
        return found

    def _timed(self) -> list[dict[Spot, TimedPair]]:
        """By comparison, what was timed of what is left."""
        wanted = [self._arms.wanted(each.timed, each.left) if each.timed else {} for each in self._comparisons]
        rows = [
            int(each.timed.candidate[place])
            for each, own in zip(self._comparisons, wanted, strict=True)
            if each.timed
            for place in own.values()
        ]
        turned = any(each.timed is None for each in self._comparisons)
        pairs = ArmPairs(self._tables.timings) if turned else self._arms.pairs(rows)
        return [self._pairs(each, own, pairs) for each, own in zip(self._comparisons, wanted, strict=True)]

    def _pairs(self, comparison: _Comparison, wanted: Mapping[Spot, int], pairs: ArmPairs) -> dict[Spot, TimedPair]:
        place, timed = comparison.place, comparison.timed
        if timed is None:
            spots = [self._grid.spots[spot] for spot in comparison.spots]
            return timed_pairs(place, spots, pairs, self._rules.thresholds)
        found = {}
        for spot, number_of in wanted.items():
            where = {"case": spot.case, "target": spot.target, "params": spot.params}
            pair = pairs.find(place.baseline, place.candidate, **where)
            assert pair is not None
            found[spot] = TimedPair(pair=pair, test=timed.test(number_of))
        return found
