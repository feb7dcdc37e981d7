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
import enum
import itertools
import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from matrix.judging.columns import coded, together
from matrix.model import Stage
from matrix.nights.change_points import FEWEST_NIGHTS, change_points_of, flips_of
from matrix.wording import listing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from matrix.judging.columns import Ints


class Figure(enum.StrEnum):
    """What a series follows; also the column of the history that holds it."""

    RATIO = "ratio"
    ESTIMATE = "estimate_us"
    MEDIAN = "median_us"


BIMODAL = "bimodal"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_BIMODAL_SHARE = 0.25
_FEWEST_IN_A_SHIFT = 3
_KEY = ("target", "gpu", "case", "params", "stage", "candidate", "baseline", "figure")
_SAID = ("started_at", "run_id", "value", "ratio_low", "ratio_high", "median_us", "verdict", "reason_code", "flawed",
         "bimodal")  # fmt: skip
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """What is followed. ``order`` puts the rows of the ``table`` by series, each in the order of its nights; ``edges``
    are places in it, where another series begins, and the end. The table itself stays as it is, of millions of rows.
    """

    table: pa.Table
    started: Ints  # in microseconds, by row
    order: Ints
    edges: Sequence[int]

    @classmethod
    def of(cls, followed: pa.Table) -> _Rows:
        table = followed.filter(pc.is_valid(followed["value"])).combine_chunks()  # for each take would do it anew
        series, started = _by_series(table), table["started_at"].cast(pa.int64()).to_numpy()
        order: Ints = np.lexsort((started, series))
        edges = [0, *(np.flatnonzero(np.diff(series[order])) + 1).tolist(), len(table)] if len(table) else []
        return cls(table=table, started=started, order=order, edges=edges)

    def at(self, places: Sequence[int], names: Sequence[str]) -> list[dict[str, Any]]:
        """These columns of the rows at these places of the order."""
        rows = self.order[np.asarray(places, dtype=np.int64)]
        found: list[dict[str, Any]] = self.table.select(list(names)).take(pa.array(rows)).to_pylist()
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Places ``first`` to ``last`` of the order of rows, and what the figures say. ``cuts`` are places in them."""

    key: Mapping[str, str]
    latest: int  # the last change, in microseconds
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


def trends(history: pa.Table, *, limit: int | None = None) -> Trends:
    """Every series of two nights and more: those with the latest and largest changes first, then the bimodal ones.

    Of more than ``limit`` the others are only counted.
    """
    rows = _Rows.of(_followed(history))
    found = _found(rows)
    gpus, shifts = _gpus(found), _shifts(rows, found)
    told = {(shift.started_at, shift.target, shift.gpu) for shift in shifts}
    order = sorted((one for one in found if not _is_told(one, told)), key=_newest_change_first)
    left_out = len(found) - len(order)
    return Trends(
        series=[_series(rows, one, began=_began(one, gpus)) for one in order[:limit]],
        shifts=shifts,
        told=left_out,
        count=len(found),
        changed=sum(bool(one.cuts) for one in found),
        bimodal=sum(one.skipped.startswith(BIMODAL) for one in found),
        nights=len(rows.table["run_id"].unique()),
    )


def _followed(history: pa.Table) -> pa.Table:
    """A row for each figure of each night: of timed cells the ratio and both arms' medians, of others the estimate."""
    timed = history.filter(pc.equal(history["stage"], str(Stage.TIMING)))
    compiled = history.filter(pc.equal(history["stage"], str(Stage.COMPILE)))
    alone = {"baseline": "", "baseline_triton": "", "verdict": "", "reason_code": ""}
    own: dict[str, Any] = {**alone, "ratio_low": None, "ratio_high": None}
    # Several candidates of a night share the baseline's arm.
    arms = timed.group_by(["run_id", *_KEY[:5], "baseline"], use_threads=False)
    names = [name for name in timed.column_names if name not in ("run_id", *_KEY[:5], "baseline")]
    base = arms.aggregate([(name, "first") for name in names]).rename_columns(["run_id", *_KEY[:5], "baseline", *names])
    base = _with(
        base,
        **{**own, "candidate": base["baseline"], "triton_version": base["baseline_triton"], "torch_version": ""},
        median_us=base["baseline_median_us"],
    )
    parts = [
        (Figure.RATIO, timed),
        (Figure.ESTIMATE, compiled),
        (Figure.MEDIAN, _with(timed, **own)),
        (Figure.MEDIAN, base),
    ]
    tables = [_with(part, figure=str(figure), value=part[str(figure)]) for figure, part in parts]
    wanted = [*_KEY, *_BESIDE, *_SAID]
    return pa.concat_tables([_plain(table.select(wanted)) for table in tables])


def _with(table: pa.Table, **columns: Any) -> pa.Table:
    """With these columns in place of its own; a single value stands in every row."""
    for name, given in columns.items():
        known = name in table.column_names
        kind = table.schema.field(name).type if known else pa.string()
        values = given if isinstance(given, pa.ChunkedArray) else pa.array([given] * len(table), kind)
        table = (
            table.set_column(table.schema.get_field_index(name), name, values)
            if known
            else table.append_column(name, values)
        )
    return table


def _plain(table: pa.Table) -> pa.Table:
    """Every column nullable: the parts come from several places."""
    return table.cast(pa.schema([pa.field(field.name, field.type) for field in table.schema])).replace_schema_metadata()


def _by_series(table: pa.Table) -> Ints:
    """A number for each row's series; they are in the order of the series' names."""
    columns, sizes = [], []
    for name in _KEY:
        places, values = coded(table[name])
        rank: Ints = np.empty(len(values), dtype=np.int64)
        rank[sorted(range(len(values)), key=values.__getitem__)] = np.arange(len(values))
        columns.append(rank[places])
        sizes.append(len(values))
    if math.prod(sizes) < np.iinfo(np.int64).max:
        return np.ravel_multi_index(columns, sizes) if len(table) else np.empty(0, dtype=np.int64)
    return together(columns)


def _found(rows: _Rows) -> list[_Found]:
    """By columns: a history has millions of rows, and few of them are ever looked at."""
    table = rows.table
    figures = _numbers(table["value"])[rows.order]
    flawed, bimodal = (table[name].to_numpy()[rows.order] for name in ("flawed", "bimodal"))
    started = rows.started[rows.order]
    series = []
    for first, last in itertools.pairwise(rows.edges):
        values = np.where(flawed[first:last], np.nan, figures[first:last])
        if last - first > 1 and np.isfinite(values).any():
            series.append((first, last, values))
    told = _told([values[np.isfinite(values)] for _, _, values in series])
    keys = rows.at([first for first, _, _ in series], _KEY)
    found = []
    for key, (first, last, values), (flipping, places) in zip(keys, series, told, strict=True):
        known = np.flatnonzero(np.isfinite(values))
        skipped = _skipped(float(bimodal[first:last].mean()), len(known), flipping=flipping)
        cuts = () if skipped else tuple(known[places].tolist())
        latest = int(started[first + cuts[-1]]) if cuts else 0
        bounds = {"first": first, "last": last, "starts": started[first:last], "latest": latest}
        found.append(_Found(key=key, values=values, cuts=cuts, skipped=skipped, **bounds))
    return found


def _told(series: Sequence[NDArray[np.float64]]) -> list[tuple[bool, list[int]]]:
    """Of each series whether it jumps to and fro, and its change points; series of as many nights together."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for number, values in enumerate(series):
        by_length[len(values)].append(number)
    found: dict[int, tuple[bool, list[int]]] = {}
    for numbers in by_length.values():
        rows = np.stack([series[number] for number in numbers])
        found |= dict(zip(numbers, zip(flips_of(rows).tolist(), change_points_of(rows), strict=True), strict=True))
    return [found[number] for number in range(len(series))]


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """NaN for what is unknown or no figure."""
    values = column.to_numpy().astype(float)
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def _skipped(within: float, nights: int, *, flipping: bool) -> str:
    if within > _BIMODAL_SHARE:
        return f"{BIMODAL}: in {within:.0%} of the nights its samples fell into two groups".replace("%", " %")
    if flipping:
        return f"{BIMODAL}: it goes to and fro between two levels"
    return "" if nights >= 2 * FEWEST_NIGHTS else f"too few nights: a change needs {FEWEST_NIGHTS} on both sides"


def _series(rows: _Rows, found: _Found, *, began: str) -> Series:
    names = [name for name in (*_BESIDE, *_SAID) if name != "started_at"]  # times would make a detour through pandas
    own = rows.at(range(found.first, found.last), names)
    nights = [{**row, "started_at": _time(when)} for row, when in zip(own, found.starts.tolist(), strict=True)]
    return Series(
        **{**found.key, "figure": Figure(found.key["figure"])},  # type: ignore[arg-type]  # texts, but for this
        points=tuple(_points(nights, found)),
        changes=tuple(_changes(nights, found)),
        skipped=found.skipped,
        began=began,
    )


def _points(rows: Sequence[dict[str, Any]], found: _Found) -> Iterator[Point]:
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


def _newest_change_first(found: _Found) -> tuple[bool, bool, int, float, bool]:
    """What did not change comes last, medians after what is of candidate and baseline together."""
    step = math.log(found.step(len(found.cuts) - 1)) if found.cuts else 0.0
    bimodal = found.skipped.startswith(BIMODAL)
    return (not found.cuts, found.is_median, -found.latest, -abs(step), not bimodal)


def _shifts(rows: _Rows, found: Sequence[_Found]) -> list[Shift]:
    """Nights at which three medians or more on one GPU changed, the newest first."""
    medians = [one for one in found if one.is_median]
    of = Counter((one.key["target"], one.key["gpu"]) for one in medians)
    nights: dict[tuple[int, str, str], list[tuple[_Found, int]]] = defaultdict(list)
    for one in medians:
        for number, cut in enumerate(one.cuts):
            nights[int(one.starts[cut]), one.key["target"], one.key["gpu"]].append((one, number))
    return [
        Shift(
            started_at=_time(when),
            target=target,
            gpu=gpu,
            series=len(changed),
            of=of[target, gpu],
            ratio=float(np.median([one.step(number) for one, number in changed])),
            moved=tuple(dict.fromkeys(text for one, number in changed for text in _moved_at(rows, one, number))),
        )
        for (when, target, gpu), changed in sorted(nights.items(), reverse=True)
        if len(changed) >= _FEWEST_IN_A_SHIFT
    ]


def _moved_at(rows: _Rows, found: _Found, number: int) -> tuple[str, ...]:
    """What else moved on the night of that change."""
    cut = found.cuts[number]
    known = np.flatnonzero(np.isfinite(found.values[:cut]))
    return _moved(*rows.at([found.first + int(known[-1]), found.first + cut], list(_BESIDE)))


def _is_told(found: _Found, shifts: Collection[tuple[dt.datetime, str, str]]) -> bool:
    """Whether every change of a median is one of many on that GPU."""
    places = {(_time(int(found.starts[cut])), found.key["target"], found.key["gpu"]) for cut in found.cuts}
    return found.is_median and bool(places) and places <= set(shifts)


def _time(microseconds: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=microseconds)


def _gpus(found: Iterable[_Found]) -> dict[tuple[str, ...], dict[str, int]]:
    """Since when each GPU has been measured, by what is followed on it."""
    since: dict[tuple[str, ...], dict[str, int]] = defaultdict(dict)
    for one in found:
        since[_but_for_the_gpu(one)][one.key["gpu"]] = int(one.starts[0])
    return since


def _began(found: _Found, gpus: Mapping[tuple[str, ...], Mapping[str, int]]) -> str:
    """Since when it is this GPU, where the same was followed on another one before."""
    gpu = found.key["gpu"]
    before = sorted(
        name for name, since in gpus[_but_for_the_gpu(found)].items() if name != gpu and since < found.starts[0]
    )
    return (
        f"on {gpu} since {_time(int(found.starts[0])):%Y-%m-%d}; from earlier nights on {listing(before)}"
        if before and gpu
        else ""
    )


def _but_for_the_gpu(found: _Found) -> tuple[str, ...]:
    return tuple(value for name, value in found.key.items() if name != "gpu")
