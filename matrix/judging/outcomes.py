"""What the outcomes of two cells at one stage say about the candidate.

With every failure ranked by how much it hides (:class:`Kind`), the decision is:

| baseline | candidate | verdict | reason code |
| --- | --- | --- | --- |
| passed | passed | equal | ``passed`` |
| passed | fails or declines | regressed | the candidate's outcome: ``compile_error`` |
| fails or declines | passed | improved | ``compile_error_gone`` |
| fails | fails alike | equal | ``failing_in_both``: no regression, and still shown |
| case_error | case_error | incomplete | ``case_error``: the case itself was never put to the test |
| case_error | fails or declines otherwise, or the reverse | incomplete | ``case_error_to_wrong``: likewise |
| import_error | import_error | incomplete | ``import_error``: likewise |
| declines | declines | unsupported | ``unsupported``; ``unsupported_to_does_not_fit`` |
| fails or declines | a worse kind | regressed | ``compile_error_to_compiler_abort`` |
| fails or declines | a better kind | improved | ``compiler_abort_to_compile_error`` |
| fails or declines | a kind as bad | changed | ``unsupported_to_compile_error`` |
| unjudged or missing | anything | incomplete | ``missing``, ``not_run``, ``environment_error`` ... |
| anything | unjudged or missing | incomplete | likewise |

A time-out, a crash or no memory on both sides is ``failing_in_both`` too: it repeats, so the candidate adds
nothing to it. What is not known on one side alone is incomplete, never a pass.
"""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from matrix.judging.changes import Change, Direction
from matrix.model import Outcome
from matrix.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(enum.IntEnum):
    """Outcomes by how much trouble they make; a higher number is a worse failure."""

    UNJUDGED = -1  # nothing is known about the kernel
    PASSED = 0
    DECLINED = 1  # a clear no
    BROKEN = 2  # the case itself, as bad as an error
    ERROR = 3  # raised, with a message
    STARVED = 4  # never came to an end
    DIED = 5  # took its process down
    SILENT = 6  # went through, with wrong effects

    @property
    def rank(self) -> int:
        """How bad for somebody who upgrades: one clear message that it does not work is as good as another.

        Telling "unsupported" from "compile error" rests on the wording of messages: it must not decide.
        """
        return Kind.ERROR if self in (Kind.DECLINED, Kind.BROKEN) else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """An outcome's kind, its severity where it is new, and how a sentence says it, now and of before."""

    kind: Kind
    severity: int
    phrase: str
    past: str


def _meaning(kind: Kind, severity: int, phrase: str, past: str) -> Meaning:
    return Meaning(kind=kind, severity=severity, phrase=phrase, past=past)


MEANINGS: Mapping[Outcome, Meaning] = {
    Outcome.PASSED: _meaning(Kind.PASSED, 0, "passes", "passed"),
    Outcome.UNSUPPORTED: _meaning(Kind.DECLINED, 60, "is not supported", "was not supported"),
    Outcome.DOES_NOT_FIT: _meaning(Kind.DECLINED, 61, "does not fit the target", "did not fit the target"),
    Outcome.REFUSED: _meaning(Kind.DECLINED, 62, "is refused by its library", "was refused by its library"),
    Outcome.ENVIRONMENT_ERROR: _meaning(Kind.UNJUDGED, 9, "has no environment", "had no environment"),
    Outcome.IMPORT_ERROR: _meaning(Kind.ERROR, 76, "does not import", "did not import"),
    Outcome.CASE_ERROR: _meaning(Kind.BROKEN, 66, "fails in the case's own code", "failed in the case's own code"),
    Outcome.COMPILE_ERROR: _meaning(Kind.ERROR, 72, "does not compile", "did not compile"),
    Outcome.COMPILER_ABORT: _meaning(Kind.DIED, 86, "aborts the compiler", "aborted the compiler"),
    Outcome.CRASH: _meaning(Kind.DIED, 88, "crashes", "crashed"),
    Outcome.TIMEOUT: _meaning(Kind.STARVED, 80, "runs into the time limit", "ran into the time limit"),
    Outcome.OUT_OF_MEMORY: _meaning(Kind.STARVED, 78, "runs out of memory", "ran out of memory"),
    Outcome.NOT_LAUNCHED: _meaning(Kind.ERROR, 70, "launches no kernel", "launched no kernel"),
    Outcome.RUN_ERROR: _meaning(Kind.ERROR, 74, "raises while it runs", "raised while it ran"),
    Outcome.WRONG: _meaning(Kind.SILENT, 100, "gives wrong values", "gave wrong values"),
    Outcome.UNWRITTEN: _meaning(Kind.SILENT, 98, "leaves outputs unwritten", "left outputs unwritten"),
    Outcome.OUT_OF_BOUNDS: _meaning(Kind.SILENT, 99, "writes out of bounds", "wrote out of bounds"),
    Outcome.INPUT_MODIFIED: _meaning(Kind.SILENT, 96, "modifies an input", "modified an input"),
    Outcome.NONDETERMINISTIC: _meaning(Kind.SILENT, 94, "is not deterministic", "was not deterministic"),
    Outcome.TOO_SHORT: _meaning(Kind.UNJUDGED, 4, "is too short to time", "was too short to time"),
    Outcome.INVALID: _meaning(Kind.UNJUDGED, 5, "has no valid measurement", "had no valid measurement"),
    Outcome.INTERRUPTED: _meaning(Kind.UNJUDGED, 8, "was interrupted", "was interrupted"),
    Outcome.NOT_RUN: _meaning(Kind.UNJUDGED, 6, "was not run", "was not run"),
}
MISSING = "missing"
_ABSENT = Meaning(kind=Kind.UNJUDGED, severity=7, phrase="is missing", past="was missing")
FAILING_IN_BOTH = "failing_in_both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The verdict on two outcomes, and the change that it rests on."""

    verdict: Verdict
    change: Change


@functools.cache  # of few words, asked for every cell
def compare(baseline: Outcome | None, candidate: Outcome | None) -> Comparison:
    """The candidate's outcome against the baseline's at the same stage; None where there is no record."""
    before, after = meaning(baseline), meaning(candidate)
    if baseline is None or candidate is None or Kind.UNJUDGED in (before.kind, after.kind):
        return _unjudged(baseline, candidate)
    if baseline is candidate:
        return _alike(candidate)
    if before.kind is after.kind is Kind.DECLINED:
        return _comparison(Verdict.UNSUPPORTED, f"{baseline}_to_{candidate}", before, after)
    return _different(baseline, candidate)


def meaning(outcome: Outcome | None) -> Meaning:
    return _ABSENT if outcome is None else MEANINGS[outcome]


def failed(outcome: Outcome | None) -> bool:
    """Whether the outcome says something, and not that all is well."""
    return meaning(outcome).kind not in (Kind.PASSED, Kind.UNJUDGED)


@functools.cache
def fails_in_both(reason_code: str) -> bool:
    """Whether the reason code is of a kernel that works on neither side, alike or not, declined on one at most."""
    return reason_code == FAILING_IN_BOTH or reason_code in _failing_pairs()


@functools.cache
def _failing_pairs() -> frozenset[str]:
    bad = [outcome for outcome in MEANINGS if failed(outcome)]
    declined = {outcome for outcome in bad if MEANINGS[outcome].kind is Kind.DECLINED}
    return frozenset(f"{one}_to_{other}" for one in bad for other in bad if not {one, other} <= declined)


def outcome_titles() -> dict[str, str]:
    """Reason code to headline, for every reason code that :func:`compare` can give."""
    titles = {FAILING_IN_BOTH: "fails in both", MISSING: "is missing"}
    for outcome, said in MEANINGS.items():
        titles[str(outcome)] = said.phrase
        titles[f"{outcome}_gone"] = f"works now, {said.past} before"
        for other, told in MEANINGS.items():
            titles[f"{other}_to_{outcome}"] = f"{said.phrase}, {told.past} before"
    return titles


def _unjudged(baseline: Outcome | None, candidate: Outcome | None) -> Comparison:
    """Fail closed. The reason is the graver gap of the two, whichever side it is on."""
    sides = [(baseline, "baseline"), (candidate, "candidate")]
    gaps = [(meaning(o).severity, o, side) for o, side in sides if meaning(o).kind is Kind.UNJUDGED]
    worst = max(gap[0] for gap in gaps)
    outcome = next(o for severity, o, _ in gaps if severity == worst)
    text = "; ".join(f"{side} {meaning(o).phrase}" for _, o, side in gaps)
    change = Change(
        reason_code=MISSING if outcome is None else str(outcome),
        direction=Direction.NEUTRAL,
        severity=worst,
        text=text,
    )
    return Comparison(verdict=Verdict.INCOMPLETE, change=change)


def _alike(outcome: Outcome) -> Comparison:
    said = MEANINGS[outcome]
    if outcome is Outcome.IMPORT_ERROR:  # imported nowhere, the case was never put to the test either
        return _comparison(Verdict.INCOMPLETE, str(outcome), said, said)
    match said.kind:
        case Kind.PASSED:
            return _comparison(Verdict.EQUAL, str(outcome), said, said)
        case Kind.DECLINED:
            return _comparison(Verdict.UNSUPPORTED, str(outcome), said, said)
        case Kind.BROKEN | Kind.UNJUDGED:
            return _comparison(Verdict.INCOMPLETE, str(outcome), said, said)
        case Kind.ERROR | Kind.STARVED | Kind.DIED | Kind.SILENT:
            return _comparison(Verdict.EQUAL, FAILING_IN_BOTH, said, said)
        case _ as unreachable:
            assert_never(unreachable)


def _different(baseline: Outcome, candidate: Outcome) -> Comparison:
    before, after = MEANINGS[baseline], MEANINGS[candidate]
    if before.kind is Kind.PASSED:
        return _comparison(Verdict.REGRESSED, str(candidate), before, after)
    if after.kind is Kind.PASSED:
        return _comparison(Verdict.IMPROVED, f"{baseline}_gone", before, after)
    reason = f"{baseline}_to_{candidate}"
    if Kind.BROKEN in (before.kind, after.kind):
        return _comparison(Verdict.INCOMPLETE, reason, before, after)
    if before.kind.rank == after.kind.rank:
        return _comparison(Verdict.CHANGED, reason, before, after)
    worse = before.kind.rank < after.kind.rank
    return _comparison(Verdict.REGRESSED if worse else Verdict.IMPROVED, reason, before, after)


_DIRECTIONS = {Verdict.REGRESSED: Direction.WORSE, Verdict.IMPROVED: Direction.BETTER}


def _comparison(verdict: Verdict, reason_code: str, before: Meaning, after: Meaning) -> Comparison:
    change = Change(
        reason_code=reason_code,
        direction=_DIRECTIONS.get(verdict, Direction.NEUTRAL),
        severity=max(before.severity, after.severity),
        text=f"{after.phrase} in both" if before is after else f"{before.past} before, {after.phrase} now",
    )
    return Comparison(verdict=verdict, change=change)
