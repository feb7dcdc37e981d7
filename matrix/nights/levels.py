"""Every series over nights by columns: where its level changed, and why no change was looked for.

A history has millions of rows, and few of them are ever looked at one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from matrix.nights.change_points import FEWEST_NIGHTS, change_points_of, flips_of
from matrix.nights.followed import KEY, Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from matrix.judging.columns import Bools, Ints
    from matrix.nights.followed import Followed

BIMODAL = "bimodal"
_BIMODAL_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Levels:
    """Every series of two nights and more, by number: places ``first`` to ``last`` of the order of rows, and whether
    it is a median. ``values`` are of all rows in that order, NaN where there is no figure that counts. ``cuts`` are
    places in a series, of those alone that changed; ``skipped`` is the reason of those that no change was looked for.
    """

    rows: Followed
    values: NDArray[np.float64]
    first: Ints
    last: Ints
    is_median: Bools
    cuts: Mapping[int, tuple[int, ...]]
    skipped: Sequence[str]

    def __len__(self) -> int:
        return len(self.first)

    @property
    def bimodal(self) -> Bools:
        return np.array([each.startswith(BIMODAL) for each in self.skipped], dtype=bool)

    def taken(self, numbers: Ints, names: Sequence[str]) -> pa.Table:
        """These columns of the series' first rows."""
        return self.rows.taken(self.first[numbers], names)

    def some(self, numbers: Sequence[int]) -> list[Level]:
        """These series, one by one."""
        keys = self.taken(np.array(numbers, dtype=np.int64), KEY).to_pylist()
        return [self._one(*each) for each in zip(numbers, keys, strict=True)]

    def _one(self, number: int, key: Mapping[str, str]) -> Level:
        first, last = int(self.first[number]), int(self.last[number])
        return Level(
            number=number,
            key=key,
            first=first,
            last=last,
            starts=self.rows.started[self.rows.order[first:last]],
            values=self.values[first:last],
            cuts=self.cuts.get(number, ()),
            skipped=self.skipped[number],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Places ``first`` to ``last`` of the order of rows, and what the figures say. ``cuts`` are places in them."""

    number: int
    key: Mapping[str, str]
    first: int
    last: int
    starts: NDArray[np.int64]  # of the nights, in microseconds
    values: NDArray[np.float64]
    cuts: tuple[int, ...]
    skipped: str

    @property
    def is_median(self) -> bool:
        return self.key["figure"] == Figure.MEDIAN

    def step(self, number: int) -> float:
        """What the change of that number multiplies the level by."""
        edges = [0, *self.cuts, len(self.values)]
        before, after = (np.nanmedian(self.values[slice(*edges[at : at + 2])]) for at in (number, number + 1))
        return float(after / before)


def levels(rows: Followed) -> Levels:
    """By columns: a history has millions of rows, and few of them are ever looked at."""
    flawed, bimodal = (rows.table[name].to_numpy()[rows.order] for name in ("flawed", "bimodal"))
    values = np.where(flawed, np.nan, _numbers(rows.table["value"])[rows.order])
    known, within = (_counts(each, rows.edges) for each in (np.isfinite(values), bimodal))
    followed = np.flatnonzero((np.diff(rows.edges) > 1) & (known > 0))
    first, last, known = rows.edges[followed], rows.edges[followed + 1], known[followed]
    share = within[followed] / (last - first)
    flipping, cuts = _told(values, first, known, share <= _BIMODAL_SHARE)
    reasons = zip(share.tolist(), known.tolist(), flipping.tolist(), strict=True)
    medians = pc.equal(rows.taken(first, ("figure",))["figure"], str(Figure.MEDIAN)).to_numpy()
    skipped = [_skipped(*each) for each in reasons]
    return Levels(rows=rows, values=values, first=first, last=last, is_median=medians, cuts=cuts, skipped=skipped)


def _counts(told: Bools, edges: Ints) -> Ints:
    """How many there are from each edge to the next."""
    counts: Ints = np.diff(np.concatenate([[0], np.cumsum(told)])[edges])
    return counts


def _told(
    values: NDArray[np.float64], first: Ints, known: Ints, looked_at: Bools
) -> tuple[Bools, dict[int, tuple[int, ...]]]:
    """Of each series that is looked at whether it jumps to and fro, and of the others among them the change points;
    series of as many known nights together.
    """
    places: Ints = np.flatnonzero(np.isfinite(values))
    begins = np.searchsorted(places, first)
    flipping: Bools = np.zeros(len(first), dtype=bool)
    cuts: dict[int, tuple[int, ...]] = {}
    for count in np.unique(known[looked_at]).tolist():
        numbers = np.flatnonzero(looked_at & (known == count))
        nights: Ints = places[np.asarray(begins)[numbers][:, None] + np.arange(count)]
        flipping[numbers] = flips_of(values[nights])
        steady = ~flipping[numbers]
        numbers, nights = numbers[steady], nights[steady]
        for row, found in enumerate(change_points_of(values[nights])):
            if found:
                number = int(numbers[row])
                cuts[number] = tuple((nights[row, found] - first[number]).tolist())
    return flipping, cuts


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """NaN for what is unknown or no figure."""
    values = column.to_numpy().astype(float)
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def _skipped(within: float, nights: int, flipping: bool) -> str:
    if within > _BIMODAL_SHARE:
        return f"{BIMODAL}: in {within:.0%} of the nights its samples fell into two groups".replace("%", " %")
    if flipping:
        return f"{BIMODAL}: it goes to and fro between two levels"
    return "" if nights >= 2 * FEWEST_NIGHTS else f"too few nights: a change needs {FEWEST_NIGHTS} on both sides"
