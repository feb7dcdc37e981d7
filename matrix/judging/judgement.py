"""The verdict at one spot: two sides, what their outcomes and their code say, and what was expected."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from matrix.judging import outcomes
from matrix.judging.accuracy import compare_dimensions
from matrix.judging.changes import Change, Direction
from matrix.judging.expectations import covering, holds, met, unmet
from matrix.judging.kernel_pairs import compare_kernels, configuration_change
from matrix.model import Outcome, Stage, Target
from matrix.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matrix.case import Expect
    from matrix.judging.kernel_pairs import KernelComparison
    from matrix.judging.speed import SpeedComparison
    from matrix.judging.thresholds import Thresholds
    from matrix.records import CellRecord, DimensionRecord, KernelRecord

CODE_CHANGED = "code_changed"
CODE_IDENTICAL = "code_identical"
EVIDENCE_MISSING = "evidence_missing"
CODE_UNREAD = "code_unread"
_GAP_SEVERITY = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One environment at one spot. ``cell`` is the import's where ``stage`` says so."""

    outcome: Outcome | None
    stage: str
    cell: CellRecord | None
    kernels: Sequence[KernelRecord]
    dimensions: Sequence[DimensionRecord] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with the changes it rests on, worst first; the first gives the row its reason code."""

    verdict: Verdict
    changes: tuple[Change, ...]
    known: Expect | None = None


def judge_spot(
    baseline: Side,
    candidate: Side,
    stage: str,
    expectations: Sequence[Expect],
    thresholds: Thresholds,
    *,
    speed: SpeedComparison | None = None,
) -> Judgement:
    """The verdict at one spot: outcomes first, then what the stage compares, then what was expected.

    ``speed`` is the verdict on time, which counts where both sides were timed.
    """
    passed = baseline.outcome is candidate.outcome is Outcome.PASSED
    if passed and stage == Stage.COMPILE and _is_unread(candidate):
        judgement = _single(Verdict.EQUAL, CODE_UNREAD, "both compile; code for AMD is not read")
    elif passed and stage == Stage.COMPILE:
        judgement = _judge_code(baseline.kernels, candidate.kernels, thresholds)
    elif passed and speed is not None:
        judgement = Judgement(verdict=speed.verdict, changes=speed.changes)
    else:
        judgement = _by_outcomes(baseline, candidate)
        if stage == Stage.CORRECTNESS and not _undecided(judgement):
            judgement = _judge_values(judgement, baseline, candidate, thresholds)
    told = [each for each in expectations if each.stage in (stage, baseline.stage, candidate.stage)]
    if told and passed and candidate.cell is not None:
        told = [each for each in told if holds(each, candidate.cell)]  # what is said of a baseline are failures
    return _expected(judgement, baseline, candidate, told) if told else judgement


def _is_unread(side: Side) -> bool:
    return side.cell is not None and Target(side.cell.target).is_amd


def _by_outcomes(baseline: Side, candidate: Side) -> Judgement:
    stage = _stage_of(baseline, candidate)
    better = outcomes.compare(baseline.outcome, candidate.outcome).change.direction is Direction.BETTER
    cause = _cause(baseline, candidate) if better else _cause(candidate, baseline)
    judgement = _compared(baseline.outcome, candidate.outcome, stage, cause)
    if (
        stage == Stage.IMPORT
        and judgement.verdict is not Verdict.REGRESSED
        and outcomes.fails_in_both(judgement.changes[0].reason_code)
    ):
        # However a case failed to import (a time-out, a crash), it was never put to the test.
        return replace(judgement, verdict=Verdict.INCOMPLETE)
    return judgement


@functools.lru_cache(maxsize=1024)  # of most cells it is that both pass
def _compared(baseline: Outcome | None, candidate: Outcome | None, stage: str, cause: str) -> Judgement:
    comparison = outcomes.compare(baseline, candidate)
    return Judgement(verdict=comparison.verdict, changes=(replace(comparison.change, stage=stage, cause=cause),))


def _judge_values(judgement: Judgement, baseline: Side, candidate: Side, thresholds: Thresholds) -> Judgement:
    """By dimensions, where they say more than that both sides passed or failed."""
    found = compare_dimensions(baseline.dimensions, candidate.dimensions, thresholds)
    return Judgement(verdict=found.verdict, changes=found.changes) if found else judgement


def _judge_code(
    baseline: Sequence[KernelRecord], candidate: Sequence[KernelRecord], thresholds: Thresholds
) -> Judgement:
    if not (baseline and candidate):
        lacking = " and ".join(s for s, found in (("baseline", baseline), ("candidate", candidate)) if not found)
        return _single(
            Verdict.INCOMPLETE,
            EVIDENCE_MISSING,
            f"passed, but no kernel is recorded for the {lacking}",
            _GAP_SEVERITY,
        )
    return judge_comparison(compare_kernels(baseline, candidate, thresholds))


def judge_comparison(comparison: KernelComparison) -> Judgement:
    """What a comparison of all kernels of a cell means."""
    if comparison.changes:
        found = tuple(replace(change, stage=Stage.COMPILE) for change in comparison.changes)
        return Judgement(verdict=_direction_verdict(found), changes=found)
    if comparison.identical:
        return _single(Verdict.IDENTICAL, CODE_IDENTICAL, "the same code")
    return _single(Verdict.CHANGED, CODE_CHANGED, "other code, no risk seen")


def judge_configuration(side: Side, direction: Direction, *, all_configurations: bool) -> Judgement:
    """A configuration that one ``side`` alone compiled, which the other's tuner does not have: gone, or new.

    Where not all were compiled, the other's tuner begins with others, and nothing is known of this one there.
    """
    assert side.cell is not None
    label = side.cell.params.rpartition("config=")[2]
    kernel = side.kernels[0].kernel if side.kernels else ""
    gone = direction is Direction.WORSE
    if not all_configurations:
        where = "candidate" if gone else "baseline"
        text = f"the {where}'s tuner begins with another configuration than {label}: `--configs all` compares them"
        return _single(Verdict.INCOMPLETE, outcomes.MISSING, text, _GAP_SEVERITY)
    change = configuration_change(direction, kernel, [label])
    if side.outcome is not Outcome.PASSED:
        return Judgement(verdict=Verdict.CHANGED, changes=(replace(change, direction=Direction.NEUTRAL),))
    return Judgement(verdict=Verdict.CODE_RISK if gone else Verdict.IMPROVED, changes=(change,))


def _direction_verdict(changes: Iterable[Change]) -> Verdict:
    directions = {change.direction for change in changes}
    if {Direction.WORSE, Direction.BETTER} <= directions:
        return Verdict.MIXED
    if Direction.WORSE in directions:
        return Verdict.CODE_RISK
    return Verdict.IMPROVED if Direction.BETTER in directions else Verdict.CHANGED


@functools.cache
def _single(verdict: Verdict, reason_code: str, text: str, severity: int = 0) -> Judgement:
    change = Change(
        reason_code=reason_code,
        direction=Direction.NEUTRAL,
        severity=severity,
        text=text,
        stage=Stage.COMPILE,
    )
    return Judgement(verdict=verdict, changes=(change,))


def _expected(judgement: Judgement, baseline: Side, candidate: Side, expectations: Sequence[Expect]) -> Judgement:
    """The judgement in the light of what the case expects.

    | candidate | baseline | verdict |
    | --- | --- | --- |
    | fails as expected | judged | known (unsupported in both stays so, with its reason) |
    | passes, a failure was expected | judged | unexpected pass, unless it is slower or its code is a risk |
    | passes | failed as expected | known |
    | code changed as expected | | known, if no other change is left to decide |
    """
    if candidate.cell is None or baseline.cell is None or _undecided(judgement):
        return judgement
    foreseen = _met(expectations, candidate)
    if foreseen is not None:
        kept = judgement.verdict is Verdict.UNSUPPORTED
        return replace(judgement, verdict=judgement.verdict if kept else Verdict.KNOWN, known=foreseen)
    if candidate.outcome is not Outcome.PASSED:
        return judgement
    foreseen = unmet(expectations, candidate.cell)
    if foreseen is not None and judgement.verdict not in (Verdict.REGRESSED, Verdict.CODE_RISK, Verdict.MIXED):
        return _unexpected_pass(judgement, foreseen)
    foreseen = _met(expectations, baseline)
    if foreseen is not None and judgement.verdict is Verdict.IMPROVED:
        return replace(judgement, verdict=Verdict.KNOWN, known=foreseen)
    return _covered(judgement, candidate.cell, expectations)


def _undecided(judgement: Judgement) -> bool:
    """Incomplete for want of a record. A case that fails in its own code has one, and may be expected to."""
    told = (Outcome.CASE_ERROR, Outcome.IMPORT_ERROR)
    return judgement.verdict is Verdict.INCOMPLETE and judgement.changes[0].reason_code not in told


def _met(expectations: Sequence[Expect], side: Side) -> Expect | None:
    if side.cell is None or side.outcome is None:
        return None
    return met(expectations, side.cell, stage=side.stage, outcome=side.outcome)


def _unexpected_pass(judgement: Judgement, expect: Expect) -> Judgement:
    change = Change(
        reason_code=str(Verdict.UNEXPECTED_PASS),
        direction=Direction.NEUTRAL,
        severity=5,
        text=f"passes, but {expect.outcome} was expected: {expect.reason}",
        stage=expect.stage,
    )
    changes = (change, *judgement.changes)
    return Judgement(verdict=Verdict.UNEXPECTED_PASS, changes=changes, known=expect)


def _covered(judgement: Judgement, candidate: CellRecord, expectations: Sequence[Expect]) -> Judgement:
    pointed = [change for change in judgement.changes if change.direction is not Direction.NEUTRAL]
    foreseen = {c.reason_code: covering(expectations, candidate, c.reason_code) for c in pointed}
    known = next((expect for expect in foreseen.values() if expect is not None), None)
    if known is None:
        return judgement
    left = [change for change in judgement.changes if foreseen.get(change.reason_code) is None]
    rest = [change for change in judgement.changes if foreseen.get(change.reason_code) is not None]
    if all(change.direction is Direction.NEUTRAL for change in left):
        return replace(judgement, verdict=Verdict.KNOWN, known=known)
    return Judgement(verdict=_left_verdict(judgement, left), changes=(*left, *rest), known=known)


def _left_verdict(judgement: Judgement, left: Sequence[Change]) -> Verdict:
    """What is left is judged by the words of its stage: only code is a mere risk."""
    if judgement.verdict is Verdict.CHANGED:
        return Verdict.CHANGED
    found = _direction_verdict(left)
    return Verdict.REGRESSED if found is Verdict.CODE_RISK and left[0].stage != Stage.COMPILE else found


def _stage_of(baseline: Side, candidate: Side) -> str:
    """``import`` where an import decided; the stage itself otherwise."""
    return Stage.IMPORT if Stage.IMPORT in (baseline.stage, candidate.stage) else candidate.stage


def _cause(*sides: Side) -> str:
    """What the first of the sides that failed said."""
    said = [side.cell for side in sides if side.cell and side.outcome is not Outcome.PASSED]
    return next((line for cell in said if (line := _first_line(cell))), "")


def _first_line(cell: CellRecord) -> str:
    lines = (line.strip() for line in (cell.reason or cell.detail).splitlines())
    return next((line for line in lines if line), "")[:300]
