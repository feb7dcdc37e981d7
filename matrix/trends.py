"""A case over nights: its series, where its level changed for good, and what else changed that night.

What is followed is the ratio, candidate over baseline of the same night: clocks, drivers and hosts move both arms of
a night alike. Where no cell was timed, the compile stage's estimate is followed instead.

Change points: exact segmentation by PELT (Killick, Fearnhead and Eckley 2012) with a cost of squared deviations of
the logarithm, as ruptures computes it in C (``KernelCPD``, linear kernel). The penalty of a change is ``3 s^2 ln n``,
with ``s`` the night-to-night noise of the series itself (1.4826 times the median absolute difference of neighbours,
over the root of two; at least 0.1 %). Single nights are clipped to 2 ``s`` around the running median of five before:
one bad night is no change. Both sides must hold for three nights, and a change under 1 % is not told.

A series that jumps to and fro between two levels has no change point to find: it is said to be bimodal and left
alone, as is one whose samples within single nights fell into two groups more often than in a quarter of them.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from matrix.model import Stage
from matrix.statistics import is_bimodal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

FEWEST_NIGHTS = 3  # on each side of a change
LEAST_CHANGE = 0.01
_LEAST_NOISE = 0.001
_PENALTY = 3.0
_CLIP = 2.0
_BIMODAL_SHARE = 0.25
_MOST_CROSSINGS = 2
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

    @property
    def known(self) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.value is not None)


def trends(history: pa.Table) -> list[Series]:
    """Every series of a history, those with the latest and largest changes first."""
    found = [_series(key, rows) for key, rows in _grouped(history)]
    return sorted(filter(None, found), key=_newest_change_first)


def change_points(values: Sequence[float]) -> list[int]:
    """The places at which a new level begins. Values are positive, one a night, oldest first."""
    if len(values) < 2 * FEWEST_NIGHTS:
        return []
    import ruptures  # noqa: PLC0415 - takes a second to import, and most runs have no history

    logs = np.log(np.asarray(values, dtype=float))
    noise = _noise(logs)
    signal = _clipped(logs, _CLIP * noise)
    penalty = _PENALTY * noise**2 * math.log(len(signal))
    found = ruptures.KernelCPD(kernel="linear", min_size=FEWEST_NIGHTS).fit(signal).predict(pen=penalty)
    return _apart(signal, [int(place) for place in found[:-1]])


def flips(values: Sequence[float]) -> bool:
    """Whether a series jumps to and fro between two levels, more often than a change and its repair would."""
    if not is_bimodal(values) and len(set(values)) != 2:  # two exact values are no two groups of samples
        return False
    data = np.asarray(values, dtype=float)
    above = data > (data.min() + data.max()) / 2
    return int(np.count_nonzero(above[1:] != above[:-1])) > _MOST_CROSSINGS


def _series(key: tuple[str, ...], rows: Sequence[dict[str, Any]]) -> Series | None:
    named = dict(zip(_KEY, key, strict=True))
    figure = "ratio" if named["stage"] == Stage.TIMING else "estimate_us"
    points = tuple(_points(rows, figure))
    places = [place for place, point in enumerate(points) if point.value is not None]
    if not places:
        return None
    values = [points[place].value or 0.0 for place in places]
    skipped = _skipped(rows, values)
    changes = () if skipped else tuple(_changes(rows, places, values))
    return Series(**named, figure=figure, points=points, changes=changes, skipped=skipped)


def _points(rows: Sequence[dict[str, Any]], figure: str) -> Iterator[Point]:
    before: dict[str, Any] | None = None
    for row in rows:
        value = None if row["flawed"] else row[figure]
        ratio = figure == "ratio"
        yield Point(
            started_at=row["started_at"],
            run_id=row["run_id"],
            value=value if value and math.isfinite(value) else None,
            low=row["ratio_low"] if ratio else None,
            high=row["ratio_high"] if ratio else None,
            median_us=row["median_us"],
            verdict=row["verdict"],
            reason_code=row["reason_code"],
            moved=_moved(before, row) if before else (),
        )
        before = row


def _moved(before: dict[str, Any], row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(
        f"{label} {before[name]} → {row[name]}"
        for name, label in _BESIDE.items()
        if before[name] and row[name] and before[name] != row[name]
    )


def _skipped(rows: Sequence[dict[str, Any]], values: Sequence[float]) -> str:
    within = sum(bool(row["bimodal"]) for row in rows) / len(rows)
    if within > _BIMODAL_SHARE:
        return f"bimodal: in {within:.0%} of the nights its samples fell into two groups".replace("%", " %")
    if flips(values):
        return "bimodal: it goes to and fro between two levels"
    return "" if len(values) >= 2 * FEWEST_NIGHTS else f"too few nights: a change needs {FEWEST_NIGHTS} on both sides"


def _changes(rows: Sequence[dict[str, Any]], places: Sequence[int], values: Sequence[float]) -> Iterator[ChangePoint]:
    found = change_points(values)
    edges = [0, *found, len(values)]
    for first, cut, last in zip(edges, found, edges[2:], strict=False):
        yield ChangePoint(
            place=places[cut],
            before=float(np.median(values[first:cut])),
            after=float(np.median(values[cut:last])),
            moved=_moved(rows[places[cut - 1]], rows[places[cut]]),
        )


def _noise(logs: NDArray[np.float64]) -> float:
    """Of one night against the next, changes of level left out by the median."""
    steps = np.abs(np.diff(logs))
    return max(_LEAST_NOISE, 1.4826 * float(np.median(steps)) / math.sqrt(2))


def _clipped(logs: NDArray[np.float64], reach: float) -> NDArray[np.float64]:
    """Single nights drawn towards the running median of five; a level that lasts three nights stays."""
    from scipy.ndimage import median_filter  # noqa: PLC0415 - as for ruptures

    middle: NDArray[np.float64] = median_filter(logs, size=5, mode="nearest")
    clipped: NDArray[np.float64] = np.clip(logs, middle - reach, middle + reach)
    return clipped


def _apart(signal: NDArray[np.float64], places: Sequence[int]) -> list[int]:
    """Without the changes that are too small to tell, the smallest first: its neighbours then have more to stand on."""
    kept = list(places)
    while kept:
        edges = [0, *kept, len(signal)]
        levels = [float(np.median(signal[a:b])) for a, b in itertools.pairwise(edges)]
        steps = [abs(b - a) for a, b in itertools.pairwise(levels)]
        least = int(np.argmin(steps))
        if steps[least] >= math.log1p(LEAST_CHANGE):
            break
        del kept[least]
    return kept


def _grouped(history: pa.Table) -> Iterator[tuple[tuple[str, ...], list[dict[str, Any]]]]:
    """Rows by series, each in the order of its nights; only stages that have a figure."""
    import pyarrow.compute as pc  # noqa: PLC0415 - beside what the caller read the table with

    timed = pc.and_(pc.equal(history["stage"], str(Stage.TIMING)), pc.is_valid(history["ratio"]))
    estimated = pc.and_(pc.equal(history["stage"], str(Stage.COMPILE)), pc.is_valid(history["estimate_us"]))
    needed = (*_KEY, *_BESIDE, *_FIGURES)
    table = history.select(needed).filter(pc.or_(timed, estimated)).sort_by([*((name, "ascending") for name in _KEY),
                                                              ("started_at", "ascending")])  # fmt: skip
    started = _times(table)
    rows = table.drop_columns(["started_at"]).to_pylist()
    first = 0
    keys = [tuple(row[name] for name in _KEY) for row in rows]
    for place in range(1, len(rows) + 1):
        if place == len(rows) or keys[place] != keys[first]:
            yield (
                keys[first],
                [
                    {**row, "started_at": when}
                    for row, when in zip(rows[first:place], started[first:place], strict=True)
                ],
            )
            first = place


def _times(table: pa.Table) -> list[dt.datetime]:
    """Without Arrow's detour through pandas."""
    import pyarrow as pa  # noqa: PLC0415

    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return [epoch + dt.timedelta(microseconds=each) for each in table["started_at"].cast(pa.int64()).to_pylist()]


def _newest_change_first(series: Series) -> tuple[float, float, str, str]:
    if not series.changes:
        return (0.0, 0.0, series.case, series.params)
    last = series.changes[-1]
    return (-series.points[last.place].started_at.timestamp(), -abs(math.log(last.ratio)), series.case, series.params)
