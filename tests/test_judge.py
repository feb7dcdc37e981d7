"""Judging: rows from records, gaps, imports, code, expectations, and the mirror."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from judged import BASELINE, CANDIDATE, cell, expect, facts, kernel, other

from matrix.judging.changes import PAIRS
from matrix.judging.judge_tables import judge
from matrix.judging.thresholds import Thresholds
from matrix.model import Outcome
from matrix.records import CellRecord, KernelFacts, KernelRecord, Verdict, VerdictRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.case import Expect


def judged(
    cells: Sequence[CellRecord],
    kernels: Sequence[KernelRecord] = (),
    expectations: Sequence[Expect] = (),
    *,
    baseline: str = BASELINE,
    candidates: Sequence[str] = (CANDIDATE,),
    all_configurations: bool = True,
) -> list[VerdictRecord]:
    return judge(
        cells,
        kernels,
        run_id="r",
        baseline=baseline,
        candidates=candidates,
        expectations={"softmax": expectations},
        thresholds=Thresholds(),
        all_configurations=all_configurations,
    )


def outcome_row(before: str, after: str, expectations: Sequence[Expect] = (), **given: object) -> VerdictRecord:
    (row,) = judged([cell(BASELINE, before, **given), cell(CANDIDATE, after, **given)], (), expectations)
    return row


def code_row(before: KernelFacts, after: KernelFacts, expectations: Sequence[Expect] = ()) -> VerdictRecord:
    kernels = [kernel(BASELINE, before), kernel(CANDIDATE, after)]
    (row,) = judged([cell(BASELINE), cell(CANDIDATE)], kernels, expectations)
    return row


@pytest.mark.parametrize(
    ("before", "after", "verdict", "reason"),
    [
        (facts(), facts(), "identical", "code_identical"),
        (facts(), other(), "changed", "code_changed"),
        (facts(), other(stack_bytes=8), "code_risk", "spills_appeared"),
        (other(stack_bytes=8), facts(), "improved", "spills_gone"),
        (facts(stack_bytes=8, shared_bytes=9000, async_copies=1), other(stack_bytes=80), "mixed", "spills_grew"),
    ],
)
def test_code(before: KernelFacts, after: KernelFacts, verdict: str, reason: str) -> None:
    row = code_row(before, after)
    assert (row.verdict, row.reason_code) == (verdict, reason)


def test_f6_is_one_reason_with_its_counts() -> None:
    before = facts(barriers=5, shuffles=0, shared_stores=14)
    row = code_row(before, other(barriers=10, shuffles=16, shared_stores=26))
    assert row.reason_code == "exchange_multiplied"
    assert row.change == "barriers 5 to 10, shuffles 0 to 16, shared stores 14 to 26"
    assert len(json.loads(row.detail)) == 1


def test_the_worst_names_the_row_and_all_are_in_the_detail() -> None:
    row = code_row(facts(), other(stack_bytes=8, occupancy_share=0.25, occupancy_blocks=4))
    assert (row.reason_code, row.kernel, row.severity) == ("spills_appeared", "softmax_kernel", 45)
    assert (row.baseline_value, row.candidate_value) == (0.0, 8.0)
    changes = json.loads(row.detail)
    assert [change["reason_code"] for change in changes] == ["spills_appeared", "occupancy_lost"]
    assert changes[1]["text"] == "blocks per SM 16 to 4, limited by warps (registers 32 to 32)"


@pytest.mark.parametrize("lacking", [BASELINE, CANDIDATE])
def test_compiled_without_evidence_is_incomplete(lacking: str) -> None:
    kernels = [kernel(name) for name in (BASELINE, CANDIDATE) if name != lacking]
    (row,) = judged([cell(BASELINE), cell(CANDIDATE)], kernels)
    assert (row.verdict, row.reason_code) == (Verdict.INCOMPLETE, "evidence_missing")


@pytest.mark.parametrize("lacking", [BASELINE, CANDIDATE])
def test_a_cell_missing_on_one_side_is_incomplete(lacking: str) -> None:
    (row,) = judged([cell(name) for name in (BASELINE, CANDIDATE) if name != lacking])
    assert (row.verdict, row.reason_code, row.severity) == (Verdict.INCOMPLETE, "missing", 7)


POINT = "rows=8,dtype=fp16"


def of_one_call(environment: str, configs: Sequence[str], ended: str = "") -> list[CellRecord]:
    """A call that compiled these configurations, and then failed where ``ended`` says how."""
    cells = [cell(environment, params=f"{POINT},config={config}") for config in configs]
    return cells + ([cell(environment, ended, params=POINT, reason="RuntimeError: needs Triton 3.7")] if ended else [])


@pytest.mark.parametrize("ended", ["refused", "compile_error", "timeout"])
def test_a_call_that_fails_fails_in_every_configuration_that_it_never_came_to(ended: str) -> None:
    cells = of_one_call(BASELINE, "a", ended) + of_one_call(CANDIDATE, "abc")
    kernels = [kernel(c.environment, params=c.params, cell_id=c.cell_id) for c in cells if c.outcome == "passed"]
    rows = {row.params.removeprefix(POINT): row for row in judged(cells, kernels)}
    verdicts = {label: (str(row.verdict), row.reason_code) for label, row in rows.items()}
    gone = ("improved", f"{ended}_gone")
    assert verdicts == {"": gone, ",config=a": ("identical", "code_identical"), ",config=b": gone, ",config=c": gone}
    assert all("needs Triton 3.7" in row.change for row in rows.values() if row.verdict == "improved")
    back = judged(cells, kernels, baseline=CANDIDATE, candidates=[BASELINE])
    assert sorted(row.reason_code for row in back) == ["code_identical", ended, ended, ended]


@pytest.mark.parametrize("ended", ["passed", ""])
def test_a_configuration_that_a_tuner_no_longer_has_is_a_risk_and_a_new_one_a_gain(ended: str) -> None:
    cells = of_one_call(BASELINE, "a", ended) + of_one_call(CANDIDATE, "ab", ended)
    kernels = [kernel(c.environment, params=c.params, cell_id=c.cell_id) for c in cells]
    row = judged(cells, kernels)[-1]
    assert (row.verdict, row.reason_code, row.kernel) == (Verdict.IMPROVED, "configuration_gained", "softmax_kernel")
    row = judged(cells, kernels, baseline=CANDIDATE, candidates=[BASELINE])[-1]
    assert (row.verdict, row.reason_code) == (Verdict.CODE_RISK, "configuration_lost")
    assert row.change == "1 autotuner configuration gone: b"
    broken = [replace(each, outcome="compile_error") if each.params.endswith("b") else each for each in cells]
    assert judged(broken, kernels)[-1].verdict is Verdict.CHANGED


def test_of_the_first_configurations_alone_nothing_is_known_of_others() -> None:
    cells = of_one_call(BASELINE, "a") + of_one_call(CANDIDATE, "b")
    kernels = [kernel(c.environment, params=c.params, cell_id=c.cell_id) for c in cells]
    rows = judged(cells, kernels, all_configurations=False)
    assert [(row.verdict, row.reason_code) for row in rows] == [(Verdict.INCOMPLETE, "missing")] * 2
    assert "candidate's tuner begins with another configuration than a" in rows[0].change


def test_a_candidate_that_nobody_ran_still_has_a_row() -> None:
    (row,) = judged([])
    assert (row.verdict, row.reason_code, row.candidate) == (Verdict.INCOMPLETE, "nothing_run", CANDIDATE)


@pytest.mark.parametrize("outcome", ["import_error", "timeout", "crash"])
def test_a_case_that_imports_in_neither_environment_was_never_put_to_the_test(outcome: str) -> None:
    (row,) = judged([cell(BASELINE, outcome, stage="import"), cell(CANDIDATE, outcome, stage="import")])
    assert row.verdict is Verdict.INCOMPLETE


def test_of_two_records_the_last_one_counts() -> None:
    row = judged([cell(BASELINE), cell(CANDIDATE, "interrupted"), cell(BASELINE, "wrong"), cell(CANDIDATE, "wrong")])
    assert [r.reason_code for r in row] == ["failing_in_both"]


def test_what_a_failure_said_is_in_the_change() -> None:
    row = outcome_row("passed", "compile_error", reason="ValueError: no such op", detail="Traceback ...")
    assert row.change == "passed before, does not compile now: ValueError: no such op"
    fixed = outcome_row("compile_error", "passed", reason="ValueError: no such op")
    assert fixed.change == "did not compile before, passes now (before: ValueError: no such op)"
    assert outcome_row("passed", "crash", detail="\n Segmentation fault\n").change.endswith(": Segmentation fault")


@pytest.mark.parametrize("later", [None, "not_run", "import_error"])
def test_a_failed_import_is_one_finding(later: str | None) -> None:
    cells = [cell(BASELINE, target="cpu", params="", stage="import")]
    cells += [cell(CANDIDATE, "import_error", target="cpu", params="", stage="import", reason="ImportError: tl.x")]
    for target in ("sm_80", "sm_90", "sm_100"):
        cells.append(cell(BASELINE, target=target))
        cells += [cell(CANDIDATE, later, target=target)] if later else []
    rows = judged(cells)
    assert [row.verdict for row in rows] == [Verdict.REGRESSED] * 4
    assert {row.reason_code for row in rows} == {"import_error"}
    assert len({row.finding_id for row in rows}) == 1
    assert all(row.change.endswith("ImportError: tl.x") for row in rows)


def test_an_environment_that_was_not_built_is_one_incomplete_finding() -> None:
    cells = [cell(BASELINE, case=case, stage=stage) for case in "ab" for stage in ("compile", "interpret")]
    cells += [cell(CANDIDATE, "environment_error", case=c, stage=s) for c in "ab" for s in ("compile", "interpret")]
    rows = judged(cells)
    assert {row.verdict for row in rows} == {Verdict.INCOMPLETE}
    assert len({row.finding_id for row in rows}) == 1


@pytest.mark.parametrize(
    ("before", "after", "expected", "verdict"),
    [
        ("passed", "wrong", {"outcome": "wrong"}, "known"),
        ("passed", "wrong", {"outcome": "wrong", "triton": "<3.6"}, "regressed"),
        ("passed", "wrong", {"outcome": "unwritten"}, "regressed"),
        ("wrong", "wrong", {"outcome": "wrong"}, "known"),
        ("wrong", "wrong", {"outcome": "wrong", "triton": "<3.6"}, "equal"),
        ("compile_error", "compiler_abort", {"outcome": "compiler_abort"}, "known"),
        ("compile_error", "compiler_abort", {"outcome": "compile_error"}, "regressed"),
        ("wrong", "passed", {"outcome": "wrong", "triton": "<3.6"}, "known"),
        ("wrong", "passed", {"outcome": "wrong"}, "unexpected_pass"),
        ("passed", "passed", {"outcome": "wrong"}, "unexpected_pass"),
        ("unsupported", "unsupported", {"outcome": "unsupported"}, "unsupported"),
        ("case_error", "case_error", {"outcome": "case_error"}, "known"),
        ("passed", "not_run", {"outcome": "not_run"}, "incomplete"),
        ("not_run", "wrong", {"outcome": "wrong"}, "incomplete"),
        ("passed", "wrong", {"outcome": "wrong", "targets": ["sm_80"]}, "regressed"),
    ],
)
def test_expected_outcomes(before: str, after: str, expected: dict[str, object], verdict: str) -> None:
    foreseen = expect(stage="interpret", **expected)
    row = outcome_row(before, after, [foreseen], stage="interpret")
    assert row.verdict == verdict
    shown = verdict in ("known", "unexpected_pass", "unsupported")
    assert (row.known, row.link) == ((foreseen.reason, foreseen.link) if shown else ("", ""))


def test_an_expected_import_failure_explains_the_later_stages() -> None:
    cells = [cell(BASELINE, target="cpu", params="", stage="import"), cell(BASELINE)]
    cells.append(cell(CANDIDATE, "import_error", target="cpu", params="", stage="import"))
    rows = judged(cells, (), [expect(stage="import", outcome="import_error", triton=">=3.6")])
    assert [row.verdict for row in rows] == [Verdict.KNOWN, Verdict.KNOWN]


SPILLS_AND_SHARED = other(stack_bytes=8, shared_bytes=9000, async_copies=1)


@pytest.mark.parametrize(
    ("after", "covered", "verdict", "reason"),
    [
        (other(shared_bytes=9000, async_copies=1), ["shared_memory"], "known", "shared_memory"),
        (SPILLS_AND_SHARED, ["shared_memory"], "code_risk", "spills_appeared"),
        (SPILLS_AND_SHARED, ["spills_appeared"], "code_risk", "shared_memory"),
        (SPILLS_AND_SHARED, ["spills_appeared", "shared_memory"], "known", "spills_appeared"),
        (other(shared_bytes=9000, async_copies=1), ["spills_appeared"], "code_risk", "shared_memory"),
    ],
)
def test_expected_changes(after: KernelFacts, covered: list[str], verdict: str, reason: str) -> None:
    row = code_row(facts(), after, [expect(change=code) for code in covered])
    assert (row.verdict, row.reason_code) == (verdict, reason)


def test_an_unexpected_pass_does_not_hide_a_risk() -> None:
    assert code_row(facts(), other(stack_bytes=8), [expect(outcome="wrong")]).verdict is Verdict.CODE_RISK


def test_kernels_match_by_name_configuration_and_order() -> None:
    """One more launch in front shifts every index, and no pair."""
    kernels = [kernel(BASELINE), kernel(BASELINE, facts(shared_bytes=64), index=1)]
    kernels += [kernel(CANDIDATE, index=0, kernel="fill"), kernel(CANDIDATE, index=1)]
    kernels += [kernel(CANDIDATE, facts(shared_bytes=64), index=2)]
    (row,) = judged([cell(BASELINE), cell(CANDIDATE)], kernels)
    assert (row.verdict, row.reason_code, row.kernel) == (Verdict.CHANGED, "kernels_changed", "fill")


def test_a_lost_configuration_is_a_risk_and_a_new_one_a_gain() -> None:
    configs = ["a", "b", "c", "d", "e"]
    kernels = [kernel(BASELINE, config=config) for config in configs] + [kernel(CANDIDATE, config="a")]
    cells = [cell(BASELINE), cell(CANDIDATE)]
    (row,) = judged(cells, kernels)
    assert (row.verdict, row.reason_code) == (Verdict.CODE_RISK, "configuration_lost")
    assert row.change == "4 autotuner configurations gone: b, c, d ..."
    (row,) = judged(cells, kernels, baseline=CANDIDATE, candidates=[BASELINE])
    assert (row.verdict, row.reason_code) == (Verdict.IMPROVED, "configuration_gained")


def test_configurations_of_a_kernel_fold_into_the_worst() -> None:
    stacks = {"a": 40, "b": 64, "c": 0}
    kernels = [kernel(BASELINE, facts(stack_bytes=4), config=config) for config in stacks]
    kernels += [kernel(CANDIDATE, other(stack_bytes=size or 4), config=config) for config, size in stacks.items()]
    (row,) = judged([cell(BASELINE), cell(CANDIDATE)], kernels)
    assert row.change == "stack 4 to 64 bytes a thread (the most of 2 of its 3 builds)"


def test_compile_time_counts_over_the_cell_even_for_identical_code() -> None:
    kernels = [kernel(BASELINE, seconds={"ptx": 0.5, "total": 0.5})]
    kernels += [kernel(CANDIDATE, seconds={"ptx": 9.0, "total": 9.0})]
    (row,) = judged([cell(BASELINE), cell(CANDIDATE)], kernels)
    assert (row.reason_code, row.change) == ("compile_time_multiplied", "compile time 0.5 to 9.0 s")


def test_rows_come_in_reading_order_and_every_candidate_has_its_own() -> None:
    names = (BASELINE, CANDIDATE, "triton3.9.0")
    cells = [cell(name, case=case, target=target) for name in names for case in "ba" for target in ("sm_100", "sm_90")]
    rows = judged(cells, candidates=names[1:])
    assert [(r.candidate, r.case, r.target) for r in rows] == [
        (name, case, target) for name in names[1:] for case in "ab" for target in ("sm_90", "sm_100")
    ]


MIRROR = {Verdict.REGRESSED: {Verdict.IMPROVED}, Verdict.CODE_RISK: {Verdict.IMPROVED}}
MIRROR[Verdict.IMPROVED] = {Verdict.REGRESSED, Verdict.CODE_RISK}


def _swapped(
    cells: Sequence[CellRecord], kernels: Sequence[KernelRecord] = ()
) -> list[tuple[VerdictRecord, VerdictRecord]]:
    """Every case's verdict from baseline to candidate, and from candidate to baseline."""
    there, back = judged(cells, kernels), judged(cells, kernels, baseline=CANDIDATE, candidates=[BASELINE])
    assert [row.case for row in there] == [row.case for row in back] == sorted({row.case for row in cells})
    return list(zip(there, back, strict=True))


def test_swapping_the_environments_mirrors_every_outcome() -> None:
    pairs = {f"{before} to {after}": (before, after) for before in Outcome for after in Outcome}
    cells = [
        cell(environment, outcome, case=name)
        for name, outcomes in pairs.items()
        for environment, outcome in zip((BASELINE, CANDIDATE), outcomes, strict=True)
    ]
    swapped = _swapped(cells)
    assert len(swapped) == len(Outcome) ** 2
    for there, back in swapped:
        assert back.verdict in MIRROR.get(there.verdict, {there.verdict}), there.case
        if there.verdict in MIRROR:
            assert back.severity == -there.severity != 0, there.case


@pytest.mark.parametrize(
    "after",
    [
        other(stack_bytes=64),
        other(shared_bytes=9000, async_copies=1),
        other(stack_bytes=64, code_bytes=100_000),
        other(global_load_bits={"32": 16}),
        other(occupancy_limit="does_not_fit"),
        other(),
        facts(),
    ],
)
def test_swapping_the_environments_mirrors_the_code(after: KernelFacts) -> None:
    kernels = [kernel(BASELINE), kernel(CANDIDATE, after)]
    ((there, back),) = _swapped([cell(BASELINE), cell(CANDIDATE)], kernels)
    pairs = {str(pair.worse): str(pair.better) for pair in PAIRS}
    assert back.verdict in MIRROR.get(there.verdict, {there.verdict})
    assert back.reason_code == pairs.get(there.reason_code, there.reason_code)
    assert back.severity == -there.severity
