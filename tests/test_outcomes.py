"""Outcome against outcome: the whole table, and the rows that matter by name."""

from __future__ import annotations

import itertools

import pytest

from matrix.judging.changes import Direction
from matrix.judging.outcomes import MEANINGS, Kind, compare, failed, meaning, outcome_titles
from matrix.model import Outcome
from matrix.records import Verdict

ALL: list[Outcome | None] = [None, *Outcome]
EVERY_PAIR = list(itertools.product(ALL, ALL))
SWAPPED = {Verdict.REGRESSED: Verdict.IMPROVED, Verdict.IMPROVED: Verdict.REGRESSED}


def test_every_outcome_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Outcome)


def test_a_worse_kind_is_always_the_graver_one() -> None:
    """What the mirror rests on: between two failures the severer outcome is the one of the worse kind."""
    judged = [said for said in MEANINGS.values() if said.kind is not Kind.UNJUDGED]
    for one, other in itertools.permutations(judged, 2):
        if one.kind.rank < other.kind.rank:
            assert one.severity < other.severity


@pytest.mark.parametrize(
    ("baseline", "candidate", "verdict", "reason"),
    [
        ("passed", "passed", "equal", "passed"),
        ("passed", "import_error", "regressed", "import_error"),
        ("passed", "compile_error", "regressed", "compile_error"),
        ("passed", "compiler_abort", "regressed", "compiler_abort"),
        ("passed", "crash", "regressed", "crash"),
        ("passed", "timeout", "regressed", "timeout"),
        ("passed", "out_of_memory", "regressed", "out_of_memory"),
        ("passed", "wrong", "regressed", "wrong"),
        ("passed", "unwritten", "regressed", "unwritten"),
        ("passed", "unsupported", "regressed", "unsupported"),
        ("passed", "does_not_fit", "regressed", "does_not_fit"),
        ("passed", "refused", "regressed", "refused"),
        ("passed", "not_launched", "regressed", "not_launched"),
        ("passed", "case_error", "regressed", "case_error"),
        ("compile_error", "passed", "improved", "compile_error_gone"),
        ("wrong", "passed", "improved", "wrong_gone"),
        ("unsupported", "passed", "improved", "unsupported_gone"),
        ("compile_error", "compiler_abort", "regressed", "compile_error_to_compiler_abort"),
        ("compiler_abort", "compile_error", "improved", "compiler_abort_to_compile_error"),
        ("compile_error", "wrong", "regressed", "compile_error_to_wrong"),
        ("compiler_abort", "unsupported", "improved", "compiler_abort_to_unsupported"),
        ("unsupported", "compile_error", "changed", "unsupported_to_compile_error"),
        ("compile_error", "does_not_fit", "changed", "compile_error_to_does_not_fit"),
        ("unsupported", "compiler_abort", "regressed", "unsupported_to_compiler_abort"),
        ("timeout", "out_of_memory", "changed", "timeout_to_out_of_memory"),
        ("wrong", "unwritten", "changed", "wrong_to_unwritten"),
        ("compile_error", "compile_error", "equal", "failing_in_both"),
        ("timeout", "timeout", "equal", "failing_in_both"),
        ("crash", "crash", "equal", "failing_in_both"),
        ("import_error", "import_error", "incomplete", "import_error"),
        ("case_error", "case_error", "incomplete", "case_error"),
        ("compile_error", "case_error", "incomplete", "compile_error_to_case_error"),
        ("case_error", "wrong", "incomplete", "case_error_to_wrong"),
        ("unsupported", "unsupported", "unsupported", "unsupported"),
        ("does_not_fit", "does_not_fit", "unsupported", "does_not_fit"),
        ("refused", "refused", "unsupported", "refused"),
        ("unsupported", "does_not_fit", "unsupported", "unsupported_to_does_not_fit"),
        ("passed", "not_run", "incomplete", "not_run"),
        ("passed", "interrupted", "incomplete", "interrupted"),
        ("environment_error", "passed", "incomplete", "environment_error"),
        ("wrong", "environment_error", "incomplete", "environment_error"),
        ("not_run", "environment_error", "incomplete", "environment_error"),
        (None, "passed", "incomplete", "missing"),
        ("passed", None, "incomplete", "missing"),
        (None, None, "incomplete", "missing"),
        ("invalid", "passed", "incomplete", "invalid"),
        ("too_short", "too_short", "incomplete", "too_short"),
    ],
)
def test_by_name(baseline: str | None, candidate: str | None, verdict: str, reason: str) -> None:
    comparison = compare(
        Outcome(baseline) if baseline else None,
        Outcome(candidate) if candidate else None,
    )
    assert (comparison.verdict, comparison.change.reason_code) == (verdict, reason)


def test_swapping_the_sides_mirrors_the_verdict() -> None:
    for baseline, candidate in EVERY_PAIR:
        there, back = compare(baseline, candidate), compare(candidate, baseline)
        assert back.verdict is SWAPPED.get(there.verdict, there.verdict)
        assert back.change.signed_severity == -there.change.signed_severity


def test_a_pass_is_never_made_of_ignorance() -> None:
    for baseline, candidate in EVERY_PAIR:
        verdict = compare(baseline, candidate).verdict
        unjudged = any(meaning(side).kind is Kind.UNJUDGED for side in (baseline, candidate))
        broken = Outcome.CASE_ERROR in (baseline, candidate) and Outcome.PASSED not in (baseline, candidate)
        untested = broken or baseline is candidate is Outcome.IMPORT_ERROR
        assert (verdict is Verdict.INCOMPLETE) == (unjudged or untested)


@pytest.mark.parametrize("candidate", [o for o in Outcome if failed(o)])
def test_no_new_failure_goes_unnoticed(candidate: Outcome) -> None:
    change = compare(Outcome.PASSED, candidate).change
    assert change.direction is Direction.WORSE
    assert change.severity >= 60


def test_every_reason_code_has_a_title() -> None:
    titles = outcome_titles()
    assert all(titles[compare(*pair).change.reason_code] for pair in EVERY_PAIR)


def test_the_text_says_both_sides() -> None:
    assert compare(Outcome.COMPILE_ERROR, Outcome.COMPILER_ABORT).change.text == (
        "did not compile before, aborts the compiler now"
    )
    assert compare(Outcome.WRONG, Outcome.WRONG).change.text == "gives wrong values in both"
    assert compare(None, Outcome.NOT_RUN).change.text == "baseline is missing; candidate was not run"
