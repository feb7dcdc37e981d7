"""What the correctness stage says about the candidate, dimension by dimension and against its outputs. Pure.

A dimension that passed and now fails is the reason, by name. Where nothing failed on either side, outputs
are compared across environments too: their bits by digest, their accuracy by the largest error against
float64 and by its share of what is allowed.

| seen | verdict | reason code |
| --- | --- | --- |
| a dimension passed, and fails now | regressed | that dimension's outcome: ``wrong`` |
| a dimension failed, and passes now | improved | ``wrong_gone`` |
| the reference itself differs in bits | changed | ``reference_drift``: the two were not judged by the same truth |
| a dimension passed, and was not judged now | changed | ``dimension_lost`` |
| error grew by the threshold, and takes a share worth a word | changed | ``less_accurate`` |
| the same the other way round | changed | ``more_accurate`` |
| other bits within budget | changed | ``values_changed`` |
| the same bits | equal | ``bit_identical`` |
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.judging.changes import Change, Direction
from matrix.judging.outcomes import meaning
from matrix.model import NO_FAILURE, Outcome, Stage
from matrix.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.judging.thresholds import Thresholds
    from matrix.records import DimensionRecord

    Dimensions = Mapping[str, DimensionRecord]

VALUES = "values"


class AccuracyReason(enum.StrEnum):
    """Reason codes of the correctness stage beside the outcomes'."""

    REFERENCE_DRIFT = "reference_drift"
    DIMENSION_LOST = "dimension_lost"
    LESS_ACCURATE = "less_accurate"
    MORE_ACCURATE = "more_accurate"
    VALUES_CHANGED = "values_changed"
    BIT_IDENTICAL = "bit_identical"


_TITLES = {
    AccuracyReason.REFERENCE_DRIFT: "the reference itself gives other values",
    AccuracyReason.DIMENSION_LOST: "is no longer judged in every dimension",
    AccuracyReason.LESS_ACCURATE: "less accurate, within budget",
    AccuracyReason.MORE_ACCURATE: "more accurate",
    AccuracyReason.VALUES_CHANGED: "other values, within budget",
    AccuracyReason.BIT_IDENTICAL: "the same values",
}


def accuracy_titles() -> dict[str, str]:
    """Reason code to headline."""
    return {str(reason): title for reason, title in _TITLES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyComparison:
    """The verdict over all dimensions and the changes that it rests on, worst first; None: nothing to say."""

    verdict: Verdict
    changes: tuple[Change, ...]


def compare_dimensions(
    baseline: Sequence[DimensionRecord], candidate: Sequence[DimensionRecord], thresholds: Thresholds
) -> AccuracyComparison | None:
    """None where a side has no dimensions, or where both fail alike: then the outcomes say all there is."""
    before, after = _by_name(baseline), _by_name(candidate)
    if not before or not after:
        return None
    shared = [(before[name], after[name]) for name in before if name in after]
    failing = [_now_fails(one, other) for one, other in shared if _failed(other) and not _failed(one)]
    working = [_now_passes(one, other) for one, other in shared if _failed(one) and other.outcome == Outcome.PASSED]
    if failing:
        return _all(Verdict.REGRESSED, [*failing, *working])
    if any(_failed(other) for other in after.values()):
        return None
    if working:
        return _all(Verdict.IMPROVED, working)
    if any(_failed(one) for one in before.values()):
        return None
    found = [*_drifted(before, after), *_lost(before, after), *_outputs(before, after, thresholds)]
    return _all(_verdict(found), found) if found else None


def _by_name(records: Iterable[DimensionRecord]) -> Dimensions:
    return {record.dimension: record for record in records}


def _failed(record: DimensionRecord) -> bool:
    return record.outcome not in NO_FAILURE


def _now_fails(one: DimensionRecord, other: DimensionRecord) -> Change:
    said = meaning(Outcome(other.outcome))
    before = "passed" if one.outcome == Outcome.PASSED else meaning(Outcome(one.outcome)).past
    return Change(
        reason_code=other.outcome,
        direction=Direction.WORSE,
        severity=said.severity,
        text=f"{before} before, {said.phrase} now",
        stage=Stage.CORRECTNESS,
        baseline_value=one.worst,
        candidate_value=other.worst,
        cause=f"{other.dimension}: {other.reason}" if other.reason else other.dimension,
    )


def _now_passes(one: DimensionRecord, other: DimensionRecord) -> Change:
    said = meaning(Outcome(one.outcome))
    return Change(
        reason_code=f"{one.outcome}_gone",
        direction=Direction.BETTER,
        severity=said.severity,
        text=f"{said.past} before, passes now",
        stage=Stage.CORRECTNESS,
        baseline_value=one.worst,
        candidate_value=other.worst,
        cause=f"{one.dimension}: {one.reason}" if one.reason else one.dimension,
    )


def _drifted(before: Dimensions, after: Dimensions) -> list[Change]:
    one, other = _digests(before, after, "reference_digest")
    if one == other:
        return []
    text = "the float64 reference differs in bits: the two environments were not judged by the same truth"
    return [_change(AccuracyReason.REFERENCE_DRIFT, Direction.NEUTRAL, 20, text)]


def _lost(before: Dimensions, after: Dimensions) -> list[Change]:
    lost = [
        name
        for name, one in before.items()
        if one.outcome == Outcome.PASSED and (name not in after or after[name].outcome != Outcome.PASSED)
    ]
    told = [f"{name} ({after[name].reason or after[name].outcome})" if name in after else name for name in lost]
    text = f"passed before, not judged now: {', '.join(told)}"
    return [_change(AccuracyReason.DIMENSION_LOST, Direction.NEUTRAL, 14, text)] if lost else []


def _outputs(before: Dimensions, after: Dimensions, thresholds: Thresholds) -> list[Change]:
    one, other = _digests(before, after, "output_digest")
    if not one or not other:
        return []
    if one == other:
        return [_change(AccuracyReason.BIT_IDENTICAL, Direction.NEUTRAL, 0, "outputs have the same bits")]
    return [_within_budget(before[VALUES], after[VALUES], thresholds)]


def _digests(before: Dimensions, after: Dimensions, name: str) -> tuple[str, str]:
    """Of both sides, empty where one has none."""
    if VALUES not in before or VALUES not in after:
        return "", ""
    one, other = getattr(before[VALUES], name), getattr(after[VALUES], name)
    return (one, other) if one and other else ("", "")


def _within_budget(one: DimensionRecord, other: DimensionRecord, thresholds: Thresholds) -> Change:
    text = (
        f"outputs have other bits; largest error {_figure(one.largest_error)} → {_figure(other.largest_error)}, "
        f"{_share(one.worst)} → {_share(other.worst)} of what is allowed"
    )
    figures = {"before": one.largest_error, "after": other.largest_error}
    if _grew(one, other, thresholds):
        return _change(AccuracyReason.LESS_ACCURATE, Direction.WORSE, 18, text, **figures)
    if _grew(other, one, thresholds):
        return _change(AccuracyReason.MORE_ACCURATE, Direction.BETTER, 18, text, **figures)
    return _change(AccuracyReason.VALUES_CHANGED, Direction.NEUTRAL, 1, text, **figures)


def _grew(one: DimensionRecord, other: DimensionRecord, thresholds: Thresholds) -> bool:
    if one.largest_error is None or other.largest_error is None or other.worst is None:
        return False
    enough = other.worst >= thresholds.accuracy_share
    return enough and other.largest_error > thresholds.accuracy_ratio * one.largest_error


def _figure(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "?" if value is None else f"{value:.0%}".replace("%", " %")


def _change(
    reason: AccuracyReason,
    direction: Direction,
    severity: int,
    text: str,
    *,
    before: float | None = None,
    after: float | None = None,
) -> Change:
    return Change(
        reason_code=reason,
        direction=direction,
        severity=severity,
        text=text,
        stage=Stage.CORRECTNESS,
        baseline_value=before,
        candidate_value=after,
    )


def _verdict(found: Sequence[Change]) -> Verdict:
    same = all(change.reason_code == AccuracyReason.BIT_IDENTICAL for change in found)
    return Verdict.EQUAL if same else Verdict.CHANGED


def _all(verdict: Verdict, changes: Iterable[Change]) -> AccuracyComparison:
    ordered = sorted(changes, key=lambda change: -change.severity)
    return AccuracyComparison(verdict=verdict, changes=tuple(ordered))
