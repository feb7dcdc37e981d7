"""A series over nights as the report draws it: places in a small SVG, and what to say beside it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.nights.followed import Figure
from matrix.nights.levels import BIMODAL
from matrix.nights.trends import trends
from matrix.records import Verdict
from matrix.wording import LOOKS, microseconds, plural, times

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from matrix.nights.trends import ChangePoint, Point, Series, Shift

WIDTH, HEIGHT = 1000, 100
DRAWN = 60
_FIGURES = {
    Figure.RATIO: "time over the baseline's",
    Figure.MEDIAN: "time of a call",
    Figure.ESTIMATE: "estimate from the code",
}
_MARGIN = 0.12
_LEAST_REACH = math.log(1.02)  # noise alone must not look like something


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One night. ``tone`` is its verdict's, ``title`` what it says when asked."""

    x: float
    y: float
    tone: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A night at which the level changed (worse, better) or something else moved (beside)."""

    x: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One series. ``levels`` are lines of segments, ``path`` joins the nights."""

    case: str
    params: str
    where: str
    pair: str
    figure: str
    path: str
    levels: Sequence[str]
    dots: Sequence[Dot]
    marks: Sequence[Mark]
    highest: str
    lowest: str
    first: str
    last: str
    latest: str
    said: Sequence[str]
    tone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """All series; ``charts`` are those that are drawn, changed ones first."""

    charts: Sequence[Chart]
    shifts: Sequence[str]
    series: int
    changed: int
    skipped: int
    nights: int


def trend(history: pa.Table, *, limit: int = DRAWN) -> Trend | None:
    """None where there is no series of two nights."""
    found = trends(history, limit=limit)
    if not found.count:
        return None
    return Trend(
        charts=[_chart(series) for series in found.series if series.changes or series.figure is not Figure.MEDIAN],
        shifts=[shift_text(shift) for shift in found.shifts],
        series=found.count,
        changed=found.changed,
        skipped=found.bimodal,
        nights=found.nights,
    )


def shift_text(shift: Shift) -> str:
    """A night that moved the times of many calls, in a sentence."""
    where = " ".join(filter(None, (shift.target, shift.gpu)))
    also = f"that night also: {', '.join(shift.moved)}" if shift.moved else "nothing else is known to have moved"
    return (
        f"since {shift.started_at:%Y-%m-%d} on {where}: the time of a call changed by {times(shift.ratio)} in "
        f"{shift.series} of {shift.of} series, whatever it is compared with; {also}"
    )


def said_of(series: Series) -> list[str]:
    """The series in sentences: each change with what moved beside it, other nights on which something moved."""
    said = [_change(series, change) for change in series.changes]
    told = {change.place for change in series.changes}
    beside = [
        f"{_day(point)}: {', '.join(point.moved)}"
        for place, point in enumerate(series.points)
        if point.moved and place not in told
    ]
    return [*said, *filter(None, (series.skipped, series.began)), *beside]


def value_text(series: Series, value: float) -> str:
    return times(value) if series.figure is Figure.RATIO else microseconds(value)


def _change(series: Series, change: ChangePoint) -> str:
    before, after = (value_text(series, level) for level in (change.before, change.after))
    with_it = (
        f"; that night also: {', '.join(change.moved)}" if change.moved else "; nothing else is known to have moved"
    )
    day = _day(series.points[change.place])
    return f"since {day}: {before} → {after}, a change of {times(change.ratio)}{with_it}"


def _chart(series: Series) -> Chart:
    known = [point for point in series.points if point.value is not None]
    logs = [math.log(point.value or 1.0) for point in known]
    middle, reach = (max(logs) + min(logs)) / 2, max(_LEAST_REACH, max(logs) - min(logs)) / 2 * (1 + 2 * _MARGIN)
    xs = _across(series.points)

    def y(value: float) -> float:
        return round(HEIGHT / 2 - (math.log(value) - middle) / reach * HEIGHT / 2, 1)

    places = [(x, point) for x, point in zip(xs, series.points, strict=True) if point.value is not None]
    return Chart(
        case=series.case,
        params=series.params,
        where=" ".join(filter(None, (series.target, series.gpu))),
        pair=" → ".join(filter(None, (series.baseline, series.candidate))),
        figure=_FIGURES[series.figure],
        path="M" + "L".join(f"{x:g} {y(point.value or 1.0):g}" for x, point in places),
        levels=_levels(series, xs, y),
        dots=[_dot(series, x, y(point.value or 1.0), point) for x, point in places],
        marks=_marks(series, xs),
        highest=value_text(series, math.exp(middle + reach)),
        lowest=value_text(series, math.exp(middle - reach)),
        first=_day(series.points[0]),
        last=_day(series.points[-1]),
        latest=value_text(series, known[-1].value or 1.0),
        said=said_of(series),
        tone=_tone(series),
    )


def _across(points: Sequence[Point]) -> list[float]:
    """By date, not by number: a gap of nights is a gap."""
    first, last = points[0].started_at, points[-1].started_at
    span = (last - first).total_seconds() or 1.0
    return [round((point.started_at - first).total_seconds() / span * (WIDTH - 20) + 10, 1) for point in points]


def _levels(series: Series, xs: Sequence[float], y: Callable[[float], float]) -> list[str]:
    if not series.changes:
        return []
    edges = [0, *(change.place for change in series.changes), len(xs) - 1]
    heights = [series.changes[0].before, *(change.after for change in series.changes)]
    return [
        f"M{xs[start]:g} {y(height):g}H{xs[end]:g}"
        for (start, end), height in zip(itertools.pairwise(edges), heights, strict=True)
    ]


def _dot(series: Series, x: float, y: float, point: Point) -> Dot:
    said = f"{_day(point)}: {value_text(series, point.value or 1.0)}"
    if series.figure is Figure.MEDIAN:  # of one environment: no verdict is about it
        return Dot(x=x, y=y, tone="same", title=said)
    look = LOOKS[Verdict(point.verdict)]
    return Dot(x=x, y=y, tone=look.tone, title=f"{said}, {look.word}")


def _marks(series: Series, xs: Sequence[float]) -> list[Mark]:
    changes = {change.place: change for change in series.changes}
    marks = [Mark(x=xs[place], kind=_kind(change), text=_change(series, change)) for place, change in changes.items()]
    return marks + [
        Mark(x=xs[place], kind="beside", text=f"{_day(point)}: {', '.join(point.moved)}")
        for place, point in enumerate(series.points)
        if point.moved and place not in changes
    ]


def _kind(change: ChangePoint) -> str:
    return "worse" if change.ratio > 1 else "better"


def _tone(series: Series) -> str:
    if series.skipped.startswith(BIMODAL):
        return "missing"
    return {"worse": "bad", "better": "good"}[_kind(series.changes[-1])] if series.changes else "same"


def _day(point: Point) -> str:
    return f"{point.started_at:%Y-%m-%d}"


def trend_text(history: pa.Table, *, limit: int) -> str:
    """For a terminal: series with a change, and what was left alone."""
    found = trends(history, limit=limit)
    lines: list[str] = []
    for series in found.series:
        if series.changes or series.skipped.startswith(BIMODAL):
            where = " ".join(filter(None, (series.target, series.gpu)))
            lines.append(f"{series.case}:{series.params} on {where} ({series.candidate})")
            lines += [f"  {text}" for text in said_of(series)]
    left = found.changed + found.bimodal - sum(not line.startswith("  ") for line in lines)
    left -= found.told
    lines = [*map(shift_text, found.shifts), *lines]
    lines += [f"and {left} more"] if left > 0 else []
    lines.append(f"{plural(found.count, 'series', 'series')} over nights, {found.changed} with a change of level")
    return "\n".join(lines) + "\n"
