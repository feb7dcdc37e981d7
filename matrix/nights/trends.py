"""A case over nights: its series, where its level changed for good, and what else changed that night.

What is followed is the ratio, candidate over baseline of the same night: clocks, drivers and hosts move both arms of
a night alike. Where no cell was timed, the compile stage's estimate is followed instead.

Changes of level come from :mod:`matrix.nights.change_points`. A series that jumps to and fro between two levels is left
alone and said to be bimodal, as is one whose samples within single nights fell into two groups more often than in a
quarter of them.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matrix.model import Stage
from matrix.nights.change_points import FEWEST_NIGHTS, change_points, flips

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

BIMODAL = "bimodal"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_BIMODAL_SHARE = 0.25
_KEY = ("target", "gpu", "case", "params", "stage", "candidate", "baseline")
_FIGURES = ("started_at", "run_id", "ratio", "ratio_low", "ratio_high", "median_us", "estimate_us", "verdict",
            "reason_code", "flawed", "bimodal")  # fmt: skip
_BESIDE = {"driver": "driver", "gpu_uuid": "GPU", "host": "host", "triton_version": "Triton", "torch_version": "torch",
           "baseline_triton": "the baseline's Triton"}  # fmt: skip


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
    """One case at one point over nights, oldest first. ``skipped`` says why no change was looked for."""

    target: str
    gpu: str
    case: str
    params: str
    stage: str
    candidate: str
    baseline: str
    figure: str  # what a value is: "ratio" or "estimate_us"
    points: tuple[Point, ...]
    changes: tuple[ChangePoint, ...]
    skipped: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """``series`` are those that were asked for; the counts are of all."""

    series: Sequence[Series]
    count: int
    changed: int
    bimodal: int
    nights: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Rows ``first`` to ``last`` of the sorted table, and what the figures say. ``cuts`` are places in them."""

    first: int
    last: int
    figure: str
    values: NDArray[np.float64]
    cuts: tuple[int, ...]
    skipped: str
    latest: int


def trends(history: pa.Table, *, limit: int | None = None) -> Trends:
    """Every series of two nights and more: those with the latest and largest changes first, then the bimodal ones.

    Of more than ``limit`` the others are only counted.
    """
    table = _sorted(history)
    found = sorted(_found(table), key=_newest_change_first)
    return Trends(
        series=[_series(table, one) for one in found[:limit]],
        count=len(found),
        changed=sum(bool(one.cuts) for one in found),
        bimodal=sum(one.skipped.startswith(BIMODAL) for one in found),
        nights=len(table["run_id"].unique()),
    )


def _sorted(history: pa.Table) -> pa.Table:
    """Rows by series, each in the order of its nights; only stages that have a figure."""
    timed = pc.and_(pc.equal(history["stage"], str(Stage.TIMING)), pc.is_valid(history["ratio"]))
    estimated = pc.and_(pc.equal(history["stage"], str(Stage.COMPILE)), pc.is_valid(history["estimate_us"]))
    table = history.select([*_KEY, *_BESIDE, *_FIGURES]).filter(pc.or_(timed, estimated))
    return table.sort_by([*((name, "ascending") for name in _KEY), ("started_at", "ascending")])


def _found(table: pa.Table) -> Iterator[_Found]:
    """By columns: a history has hundreds of thousands of rows, and few of them are ever looked at."""
    figures = {name: _numbers(table[name]) for name in ("ratio", "estimate_us")}
    flawed, bimodal = (table[name].to_numpy() for name in ("flawed", "bimodal"))
    started = table["started_at"].cast(pa.int64()).to_numpy()
    stages = table["stage"]
    for first, last in itertools.pairwise(_edges(table)):
        figure = "ratio" if stages[first].as_py() == Stage.TIMING else "estimate_us"
        values = np.where(flawed[first:last], np.nan, figures[figure][first:last])
        known = values[np.isfinite(values)]
        if last - first > 1 and len(known):
            skipped = _skipped(float(bimodal[first:last].mean()), known)
            cuts = () if skipped else tuple(np.flatnonzero(np.isfinite(values))[change_points(known)].tolist())
            yield _Found(
                first=first,
                last=last,
                figure=figure,
                values=values,
                cuts=cuts,
                skipped=skipped,
                latest=int(started[first + cuts[-1]]) if cuts else 0,
            )


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """NaN for what is unknown or no figure."""
    values = column.to_numpy().astype(float)
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def _edges(table: pa.Table) -> list[int]:
    """Where another series begins, and the end."""
    count = len(table)
    moved: NDArray[np.bool_] = np.zeros(max(count - 1, 0), dtype=bool)
    for name in _KEY:
        codes = table[name].combine_chunks().dictionary_encode().indices.to_numpy()
        moved |= codes[1:] != codes[:-1]
    return [0, *(np.flatnonzero(moved) + 1).tolist(), count] if count else []


def _skipped(within: float, values: NDArray[np.float64]) -> str:
    if within > _BIMODAL_SHARE:
        return f"{BIMODAL}: in {within:.0%} of the nights its samples fell into two groups".replace("%", " %")
    if flips(values):
        return f"{BIMODAL}: it goes to and fro between two levels"
    return "" if len(values) >= 2 * FEWEST_NIGHTS else f"too few nights: a change needs {FEWEST_NIGHTS} on both sides"


def _series(table: pa.Table, found: _Found) -> Series:
    part = table.slice(found.first, found.last - found.first)
    started = part["started_at"].cast(pa.int64()).to_pylist()  # times would make a detour through pandas
    rows = [
        {**row, "started_at": _EPOCH + dt.timedelta(microseconds=when)}
        for row, when in zip(part.drop_columns(["started_at"]).to_pylist(), started, strict=True)
    ]
    return Series(
        **{name: rows[0][name] for name in _KEY},
        figure=found.figure,
        points=tuple(_points(rows, found)),
        changes=tuple(_changes(rows, found)),
        skipped=found.skipped,
    )


def _points(rows: Sequence[dict[str, Any]], found: _Found) -> Iterator[Point]:
    ratio = found.figure == "ratio"
    for place, (row, value) in enumerate(zip(rows, found.values.tolist(), strict=True)):
        yield Point(
            started_at=row["started_at"],
            run_id=row["run_id"],
            value=value if math.isfinite(value) else None,
            low=row["ratio_low"] if ratio else None,
            high=row["ratio_high"] if ratio else None,
            median_us=row["median_us"],
            verdict=row["verdict"],
            reason_code=row["reason_code"],
            moved=_moved(rows[place - 1], row) if place else (),
        )


def _moved(before: dict[str, Any], row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(
        f"{label} {before[name]} → {row[name]}"
        for name, label in _BESIDE.items()
        if before[name] and row[name] and before[name] != row[name]
    )


def _changes(rows: Sequence[dict[str, Any]], found: _Found) -> Iterator[ChangePoint]:
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


def _newest_change_first(found: _Found) -> tuple[int, float, bool]:
    if not found.cuts:
        return (0, 0.0, not found.skipped.startswith(BIMODAL))
    cut = found.cuts[-1]
    before = found.cuts[-2] if len(found.cuts) > 1 else 0
    step = math.log(np.nanmedian(found.values[cut:]) / np.nanmedian(found.values[before:cut]))
    return (-found.latest, -abs(step), True)
