"""Verdicts of the correctness stage: dimensions by name, outputs across environments, drifting references."""

from __future__ import annotations

import pytest
import timed
from judged import BASELINE, CANDIDATE, cell, expect

from matrix.judging.changes import decode
from matrix.judging.findings import findings
from matrix.judging.judge_tables import judge
from matrix.judging.thresholds import Thresholds
from matrix.records import Verdict


def judged(before, after, *, outcomes=("passed", "passed"), expectations=(), **given):
    """``before`` and ``after``: dimensions by name, as outcomes or as fields."""
    rows = [
        _dimension(env, name, said)
        for env, side in ((BASELINE, before), (CANDIDATE, after))
        for name, said in side.items()
    ]
    cells = [cell(env, outcome, stage="correctness", **given) for env, outcome in zip((BASELINE, CANDIDATE), outcomes)]
    (row,) = judge(
        cells,
        (),
        run_id="r",
        baseline=BASELINE,
        candidates=[CANDIDATE],
        expectations={"softmax": expectations},
        thresholds=Thresholds(),
        dimensions=rows,
    )
    return row


def _dimension(environment, name, said):
    given = {"outcome": said} if isinstance(said, str) else said
    return timed.dimension(environment, name, **given)


def test_the_same_bits_are_equal():
    row = judged({"values": "passed"}, {"values": "passed"})
    assert (row.verdict, row.reason_code) == ("equal", "bit_identical")


@pytest.mark.parametrize(
    ("error", "worst", "before", "reason"),
    [
        (1.1e-4, 0.22, 1e-4, "values_changed"),
        (3e-4, 0.60, 1e-4, "less_accurate"),
        (3e-4, 0.20, 1e-4, "values_changed"),  # three times next to nothing
        (1e-4, 0.20, 3e-4, "more_accurate"),
        (0.0, 0.0, 0.0, "values_changed"),  # zeros with other signs
    ],
)
def test_other_bits_are_compared_by_their_error(error, worst, before, reason):
    one = {"largest_error": before, "worst": worst if before == error else 0.6 if before > error else 0.2}
    other = {"largest_error": error, "worst": worst, "output_digest": "other"}
    row = judged({"values": one}, {"values": other})
    assert (row.verdict, row.reason_code) == ("changed", reason)
    assert (row.baseline_value, row.candidate_value) == (before, error)
    told = findings([row]) if row.finding_id else []
    assert bool(told) is (reason != "values_changed")


def test_a_drifting_reference_is_a_finding_of_its_own():
    row = judged({"values": "passed"}, {"values": {"reference_digest": "elsewhere"}})
    assert (row.verdict, row.reason_code) == ("changed", "reference_drift")
    assert findings([row])[0].title == "softmax: the reference itself gives other values"


def test_every_dimension_that_passed_and_fails_is_named():
    row = judged(
        {"values": "passed", "strided": "passed", "special_values": "passed", "repeat": "nondeterministic"},
        {
            "values": "passed",
            "strided": {"outcome": "out_of_bounds", "reason": "input 0: 4 bytes after it"},
            "special_values": {"outcome": "wrong", "reason": "NaN at [3] did not propagate"},
            "repeat": "nondeterministic",
        },
        outcomes=("nondeterministic", "wrong"),
    )
    assert (row.verdict, row.reason_code) == ("regressed", "wrong")
    assert row.change == "passed before, gives wrong values now: special_values: NaN at [3] did not propagate"
    causes = [change.cause for change in decode(row.detail)]
    assert causes == ["special_values: NaN at [3] did not propagate", "strided: input 0: 4 bytes after it"]


def test_one_more_failing_dimension_is_a_regression_though_the_outcome_is_the_same():
    row = judged(
        {"values": "passed", "strided": "wrong"}, {"values": "wrong", "strided": "not_run"}, outcomes=("wrong", "wrong")
    )
    assert (row.verdict, row.reason_code) == ("regressed", "wrong")
    assert row.change.endswith("values")


def test_failing_alike_is_nothing_new():
    row = judged({"values": "wrong"}, {"values": "wrong"}, outcomes=("wrong", "wrong"))
    assert (row.verdict, row.reason_code) == ("equal", "failing_in_both")


def test_a_dimension_that_works_again_is_an_improvement():
    row = judged({"strided": "wrong"}, {"strided": "passed"}, outcomes=("wrong", "passed"))
    assert (row.verdict, row.reason_code) == ("improved", "wrong_gone")
    assert "strided" in row.change


def test_a_dimension_that_is_not_judged_any_more_is_said():
    refused = {"outcome": "refused", "reason": "ValueError: strides"}
    row = judged({"values": "passed", "strided": "passed"}, {"values": "passed", "strided": refused})
    assert (row.verdict, row.reason_code) == ("changed", "dimension_lost")
    assert "strided (ValueError: strides)" in row.change
    assert judged({"strided": "refused"}, {"strided": "refused"}).verdict is Verdict.EQUAL


def test_what_was_never_judged_stays_incomplete():
    row = judged({"values": "passed"}, {"values": "invalid"}, outcomes=("passed", "invalid"))
    assert (row.verdict, row.reason_code) == ("incomplete", "invalid")


def test_a_crash_without_dimensions_is_judged_by_its_outcome():
    row = judged({"values": "passed"}, {}, outcomes=("passed", "crash"))
    assert (row.verdict, row.reason_code) == ("regressed", "crash")


def test_an_expected_loss_of_accuracy_is_known():
    known = expect(change="less_accurate", stage="correctness")
    other = {"largest_error": 3e-4, "worst": 0.6, "output_digest": "other"}
    assert judged({"values": "passed"}, {"values": other}, expectations=[known]).verdict is Verdict.KNOWN
