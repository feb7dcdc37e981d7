"""A case over nights: its series, where its level changed for good, and what else changed that night.

Three figures are followed. The *ratio*, candidate over baseline of the same night: clocks, drivers and hosts move both
arms of a night alike. The *median* of a call, of each environment on each GPU: there a driver, a clock or another GPU
shows, and what is slow in both arms. And the *estimate* of the compile stage, where nothing was timed.

Changes of level come from :mod:`matrix.nights.change_points`. A series that jumps to and fro between two levels is left
alone and said to be bimodal, as is one whose samples within single nights fell into two groups more often than in a
quarter of them.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from matrix.judging.columns import coded, together
from matrix.nights.followed import BESIDE, KEY, SAID, Figure, Followed
from matrix.nights.levels import levels
from matrix.wording import listing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow as pa

    from matrix.judging.columns import Bools, Ints
    from matrix.nights.levels import Level, Levels


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FEWEST_IN_A_SHIFT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One night of one series. ``value`` is None where there is no figure that counts."""

    started_at: dt.datetime
    run_id: str
    value: float | None
    low: float | None
    high: float | None
    median_us: float | None
    verdict: str
    reason_code: str
    moved: tuple[str, ...]  # what else changed against the night before: "driver 580 -> 590"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """From ``place`` (an index into the points) on, the level is another. Levels are medians."""

    place: int
    before: float
    after: float
    moved: tuple[str, ...]  # between the last night before and this one

    @property
    def ratio(self) -> float:
        return self.after / self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One case at one point over nights, oldest first. ``skipped`` says why no change was looked for; ``began``, where
    the same was followed on another GPU before, since when it is this one. Medians are of one environment, the
    ``candidate``, and have no ``baseline``.
    """

    target: str
    gpu: str
    case: str
    params: str
    stage: str
    candidate: str
    baseline: str
    figure: Figure
    points: tuple[Point, ...]
    changes: tuple[ChangePoint, ...]
    skipped: str
    began: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A night from which on the times of many calls on one GPU are others, whatever the kernel: so many ``series`` of
    ``of``, by ``ratio`` in the median.
    """

    started_at: dt.datetime
    target: str
    gpu: str
    series: int
    of: int
    ratio: float
    moved: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """``series`` are those that were asked for, but for the ``told`` medians of ``shifts``; the counts are of all."""

    series: Sequence[Series]
    shifts: Sequence[Shift]
    told: int
    count: int
    changed: int
    bimodal: int
    nights: int


def trends(history: pa.Table, *, limit: int | None = None) -> Trends:
    """Every series of two nights and more: those with the latest and largest changes first, then the bimodal ones.

    Of more than ``limit`` the others are only counted.
    """
    every = levels(Followed.of(history))
    changed = every.some(sorted(every.cuts))
    shifts = _shifts(every, changed)
    told = {(shift.started_at, shift.target, shift.gpu) for shift in shifts}
    left_out = {one.number for one in changed if _is_told(one, told)}
    order = [number for number in _newest_change_first(every, changed) if number not in left_out]
    gpus = _Gpus.of(every)
    return Trends(
        series=[_series(every.rows, one, began=gpus.began(one)) for one in every.some(order[:limit])],
        shifts=shifts,
        told=len(left_out),
        count=len(every),
        changed=len(changed),
        bimodal=int(every.bimodal.sum()),
        nights=len(every.rows.table["run_id"].unique()),
    )


def _series(rows: Followed, found: Level, *, began: str) -> Series:
    names = [name for name in (*BESIDE, *SAID) if name != "started_at"]  # times would make a detour through pandas
    own = rows.at(range(found.first, found.last), names)
    nights = [{**row, "started_at": _time(when)} for row, when in zip(own, found.starts.tolist(), strict=True)]
    return Series(
        **{**found.key, "figure": Figure(found.key["figure"])},  # type: ignore[arg-type]  # texts, but for this
        points=tuple(_points(nights, found)),
        changes=tuple(_changes(nights, found)),
        skipped=found.skipped,
        began=began,
    )


def _points(rows: Sequence[dict[str, Any]], found: Level) -> Iterator[Point]:
    for place, (row, value) in enumerate(zip(rows, found.values.tolist(), strict=True)):
        yield Point(
            started_at=row["started_at"],
            run_id=row["run_id"],
            value=value if math.isfinite(value) else None,
            low=row["ratio_low"],
            high=row["ratio_high"],
            median_us=row["median_us"],
            verdict=row["verdict"],
            reason_code=row["reason_code"],
            moved=_moved(rows[place - 1], row) if place else (),
        )


def _moved(before: dict[str, Any], row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(
        f"{label} {before[name]} → {row[name]}"
        for name, label in BESIDE.items()
        if before[name] and row[name] and before[name] != row[name]
    )


def _changes(rows: Sequence[dict[str, Any]], found: Level) -> Iterator[ChangePoint]:
    known = np.flatnonzero(np.isfinite(found.values))
    edges = [0, *found.cuts, len(rows)]
    for first, cut, last in zip(edges, found.cuts, edges[2:], strict=False):
        night_before = int(known[known < cut][-1])
        yield ChangePoint(
            place=cut,
            before=float(np.nanmedian(found.values[first:cut])),
            after=float(np.nanmedian(found.values[cut:last])),
            moved=_moved(rows[night_before], rows[cut]),
        )


def _newest_change_first(every: Levels, changed: Sequence[Level]) -> list[int]:
    """The series' numbers. What did not change comes last, medians after what is of candidate and baseline together."""
    latest: Ints = np.zeros(len(every), dtype=np.int64)
    steps = np.zeros(len(every))
    for one in changed:
        latest[one.number] = one.starts[one.cuts[-1]]
        steps[one.number] = abs(math.log(one.step(len(one.cuts) - 1)))
    is_changed: Bools = np.zeros(len(every), dtype=bool)
    is_changed[[one.number for one in changed]] = True
    order: list[int] = np.lexsort((~every.bimodal, -steps, -latest, every.is_median, ~is_changed)).tolist()
    return order


def _shifts(every: Levels, changed: Sequence[Level]) -> list[Shift]:
    """Nights at which three medians or more on one GPU changed, the newest first."""
    nights: dict[tuple[int, str, str], list[tuple[Level, int]]] = defaultdict(list)
    for one in changed:
        for number, cut in enumerate(one.cuts if one.is_median else ()):
            nights[int(one.starts[cut]), one.key["target"], one.key["gpu"]].append((one, number))
    medians = every.taken(np.flatnonzero(every.is_median), ("target", "gpu")).group_by(["target", "gpu"])
    of = {(row["target"], row["gpu"]): row["count_all"] for row in medians.aggregate([([], "count_all")]).to_pylist()}
    return [
        Shift(
            started_at=_time(when),
            target=target,
            gpu=gpu,
            series=len(moved),
            of=of[target, gpu],
            ratio=float(np.median([one.step(number) for one, number in moved])),
            moved=tuple(dict.fromkeys(text for one, number in moved for text in _moved_at(every.rows, one, number))),
        )
        for (when, target, gpu), moved in sorted(nights.items(), reverse=True)
        if len(moved) >= _FEWEST_IN_A_SHIFT
    ]


def _moved_at(rows: Followed, found: Level, number: int) -> tuple[str, ...]:
    """What else moved on the night of that change."""
    cut = found.cuts[number]
    known = np.flatnonzero(np.isfinite(found.values[:cut]))
    return _moved(*rows.at([found.first + int(known[-1]), found.first + cut], list(BESIDE)))


def _is_told(found: Level, shifts: Collection[tuple[dt.datetime, str, str]]) -> bool:
    """Whether every change of a median is one of many on that GPU."""
    places = {(_time(int(found.starts[cut])), found.key["target"], found.key["gpu"]) for cut in found.cuts}
    return found.is_median and bool(places) and places <= set(shifts)


def _time(microseconds: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=microseconds)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Gpus:
    """By series: what is followed, on whichever GPU, as a number; that GPU; and since when it is followed there."""

    followed: Ints
    names: Sequence[str]
    since: Ints

    @classmethod
    def of(cls, every: Levels) -> _Gpus:
        table = every.rows.taken(every.first, KEY)
        return cls(
            followed=together([coded(table[name])[0] for name in KEY if name != "gpu"]),
            names=table["gpu"].to_pylist(),
            since=every.rows.started[every.rows.order[every.first]],
        )

    def began(self, found: Level) -> str:
        """Since when it is this GPU, where the same was followed on another one before."""
        own = np.flatnonzero((self.followed == self.followed[found.number]) & (self.since < found.starts[0]))
        gpu = found.key["gpu"]
        before = sorted({self.names[number] for number in own.tolist()} - {gpu})
        return (
            f"on {gpu} since {_time(int(found.starts[0])):%Y-%m-%d}; from earlier nights on {listing(before)}"
            if before and gpu
            else ""
        )
