"""The correctness section: how each dimension went in each environment, and how outputs compare."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.judging.accuracy import VALUES, accuracy_titles
from matrix.model import DIMENSIONS, NO_FAILURE, Outcome, Stage
from matrix.reporting.evidence_table import FactRow
from matrix.wording import NOTHING, change, number, phrase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.records import DimensionRecord, VerdictRecord
    from matrix.storage.runfolder import RunFolder

_TIGHTEST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionLine:
    """One dimension: what its cells showed on each side, as counts in words."""

    name: str
    baseline: str
    candidate: str
    moved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tight:
    """A cell close to its budget."""

    case: str
    params: str
    environment: str
    share: str
    error: str
    budget: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedComparison:
    """The correctness stage of one comparison; ``outputs`` counts cells by how their outputs compare."""

    baseline: str
    candidate: str
    cells: int
    lines: Sequence[DimensionLine]
    outputs: Mapping[str, int]
    tight: Sequence[Tight]


def checked_comparisons(runs: Sequence[RunFolder]) -> list[CheckedComparison]:
    found: dict[tuple[str, str], list[VerdictRecord]] = {}
    for run in runs:
        for row in run.verdicts:
            if row.stage == Stage.CORRECTNESS and run.dimensions:
                found.setdefault((row.baseline, row.candidate), []).append(row)
    dimensions = [row for run in runs for row in run.dimensions]
    return [_comparison(pair, rows, dimensions) for pair, rows in found.items()]


def _comparison(
    pair: tuple[str, str], rows: Sequence[VerdictRecord], dimensions: Sequence[DimensionRecord]
) -> CheckedComparison:
    sides = [[row for row in dimensions if row.environment == name] for name in pair]
    titles = accuracy_titles()
    outputs = collections.Counter(titles[row.reason_code] for row in rows if row.reason_code in titles)
    failing = sum(row.reason_code not in titles for row in rows)
    return CheckedComparison(
        baseline=pair[0],
        candidate=pair[1],
        cells=len(rows),
        lines=_lines(*sides),
        outputs=dict(outputs.most_common()) | ({"failing or not judged": failing} if failing else {}),
        tight=_tight(sides[1]),
    )


def _lines(baseline: Sequence[DimensionRecord], candidate: Sequence[DimensionRecord]) -> list[DimensionLine]:
    counts = [collections.Counter((row.dimension, row.outcome) for row in side) for side in (baseline, candidate)]
    names = sorted({name for count in counts for name, _ in count}, key=_place)
    return [
        DimensionLine(
            name=phrase(name),
            baseline=_counted(name, counts[0]),
            candidate=_counted(name, counts[1]),
            moved=_failing(name, counts[0]) != _failing(name, counts[1]),
        )
        for name in names
    ]


def _place(name: str) -> tuple[int, str]:
    return (DIMENSIONS.index(name) if name in DIMENSIONS else len(DIMENSIONS)), name


def _counted(name: str, counts: Mapping[tuple[str, str], int]) -> str:
    """``42 passed, 2 wrong``; what passed first."""
    own = {outcome: count for (dimension, outcome), count in counts.items() if dimension == name}
    ordered = sorted(own, key=lambda outcome: (outcome != Outcome.PASSED, outcome in NO_FAILURE, outcome))
    return ", ".join(f"{own[outcome]:,} {phrase(outcome)}" for outcome in ordered) or NOTHING


def _failing(name: str, counts: Mapping[tuple[str, str], int]) -> int:
    return sum(n for (dimension, outcome), n in counts.items() if dimension == name and outcome not in NO_FAILURE)


def _tight(rows: Sequence[DimensionRecord]) -> list[Tight]:
    judged = [row for row in rows if row.worst is not None and row.outcome == Outcome.PASSED]
    judged.sort(key=lambda row: -(row.worst or 0))
    return [
        Tight(
            case=row.case,
            params=row.params,
            environment=row.environment,
            share=f"{number(row.worst, '%')} ({phrase(row.dimension)})",
            error=number(row.largest_error),
            budget=row.budget,
        )
        for row in judged[:_TIGHTEST]
    ]


def dimension_rows(baseline: Sequence[DimensionRecord], candidate: Sequence[DimensionRecord]) -> list[FactRow]:
    """The evidence of one cell: dimensions that moved, and always the values."""
    before, after = ({row.dimension: row for row in side} for side in (baseline, candidate))
    names = sorted({*before, *after}, key=_place)
    rows = [row for name in names for row in _cell_rows(name, before.get(name), after.get(name))]
    return sorted(rows, key=lambda row: not row.reason)


def dimensions_equal(baseline: Sequence[DimensionRecord], candidate: Sequence[DimensionRecord]) -> list[str]:
    """What went alike on both sides, in words."""
    before, after = ({row.dimension: row.outcome for row in side} for side in (baseline, candidate))
    same = [name for name in sorted(before, key=_place) if before[name] == after.get(name)]
    return [f"{phrase(name)} {phrase(before[name])}" for name in same]


def _cell_rows(name: str, one: DimensionRecord | None, other: DimensionRecord | None) -> Iterator[FactRow]:
    told = [phrase(row.outcome) if row else NOTHING for row in (one, other)]
    if told[0] != told[1]:
        reasons = [row.reason if row else "" for row in (one, other)]
        texts = [f"{said}: {reason}" if reason else said for said, reason in zip(told, reasons, strict=True)]
        yield FactRow(
            label=phrase(name).capitalize(),
            baseline=texts[0],
            candidate=texts[1],
            change="changed",
            direction=_direction(one, other),
        )
    if name == VALUES and one and other and (one.largest_error, one.worst) != (other.largest_error, other.worst):
        yield _figures("Largest error against float64", one.largest_error, other.largest_error)
        yield _figures("Share of what is allowed", one.worst, other.worst, "%")
    if name == VALUES and other and other.budget:
        yield FactRow(label="Budget", baseline=one.budget if one else NOTHING, candidate=other.budget, change="")
    if name == VALUES and one and other:
        yield from _digest_rows(one, other)


def _digest_rows(one: DimensionRecord, other: DimensionRecord) -> Iterator[FactRow]:
    for label, key in (("Bits of the outputs", "output_digest"), ("Bits of the reference", "reference_digest")):
        digests = [getattr(row, key)[:12] for row in (one, other)]
        if digests[0] != digests[1]:
            yield FactRow(
                label=label, baseline=digests[0] or NOTHING, candidate=digests[1] or NOTHING, change="changed"
            )


def _figures(label: str, one: float | None, other: float | None, unit: str = "") -> FactRow:
    return FactRow(label=label, baseline=number(one, unit), candidate=number(other, unit), change=change(one, other))


def _direction(one: DimensionRecord | None, other: DimensionRecord | None) -> str:
    if one is None or other is None:
        return ""
    was, now = one.outcome not in NO_FAILURE, other.outcome not in NO_FAILURE
    return "" if was == now else "worse" if now else "better"
