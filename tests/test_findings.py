"""Findings and the decision: grouping by cause, stable ids, order, words and exit codes."""

from __future__ import annotations

import dataclasses
import json
import random

import pytest
from judged import BASELINE, CANDIDATE

from matrix.errors import ExitCode
from matrix.judging.changes import Change, Direction, decode, encode
from matrix.judging.decision import by_candidate, exit_code, summarise
from matrix.judging.findings import Finding, findings, normalised, number
from matrix.judging.kinds import kind_of
from matrix.records import Verdict, VerdictRecord


def change(reason_code: str, severity: int = 40, **given: object) -> Change:
    values = {"direction": Direction.WORSE, "text": reason_code, "kernel": "k", "stage": "compile", **given}
    return Change(reason_code=reason_code, severity=severity, **values)  # type: ignore[arg-type]


def row(verdict: str = "code_risk", *changes: Change, **given: object) -> VerdictRecord:
    first = changes[0] if changes else change("code_changed", 0, direction=Direction.NEUTRAL)
    values: dict[str, object] = {
        "run_id": "r",
        "baseline": BASELINE,
        "candidate": CANDIDATE,
        "target": "sm_90",
        "case": "softmax",
        "params": "rows=8",
        "stage": "compile",
        "verdict": Verdict(verdict),
        "change": first.text,
        "reason_code": first.reason_code,
        "severity": first.signed_severity or first.severity,
        "kernel": first.kernel,
        "detail": encode(changes or [first]),
        **given,
    }
    return VerdictRecord(**values)  # type: ignore[arg-type]


def found(*rows: VerdictRecord) -> list[Finding]:
    return findings(number(rows))


def test_targets_and_params_of_one_cause_are_one_finding() -> None:
    spilled = change("spills_appeared", 45, text="stack 0 to 8 bytes")
    rows = [row("code_risk", spilled, target=t, params=p) for t in ("sm_100", "sm_90") for p in ("a=1", "a=2")]
    rows += [
        row("changed", target="sm_120"),
        row("improved", change("x", direction=Direction.BETTER), target="sm_80"),
    ]
    first, second = found(*rows)
    assert first.targets == ("sm_90", "sm_100")
    assert first.params == ("a=1", "a=2")
    assert first.quiet == (("sm_80", "improved"), ("sm_120", "flat"))
    assert first.title == "softmax: registers spill"
    assert first.text == (
        "k: stack 0 to 8 bytes on sm_90 and sm_100 (4 cells); not on sm_80 (improved), sm_120 (flat)."
    )
    assert (first.regressed, second.regressed) == (True, False)


def test_what_other_cells_of_the_same_targets_did_is_said_and_makes_it_mixed() -> None:
    def timed(code: str, direction: Direction, params: str, verdict: str) -> VerdictRecord:
        moved = change(code, 57, direction=direction, stage="timing", kernel="", text=f"{code} by 5 %")
        return row(verdict, moved, stage="timing", params=params)

    slower = [timed("slower", Direction.WORSE, f"n={n}", "regressed") for n in range(3)]
    rows = [
        *slower,
        timed("faster", Direction.BETTER, "n=3", "improved"),
        timed("equivalent", Direction.NEUTRAL, "n=4", "equal"),
    ]
    first, second = found(*rows)
    assert (first.word, first.verdict, first.kind, second.word) == ("mixed", "regressed", "speed", "mixed")
    assert first.text == "slower by 5 % on sm_90 (3 of 5 cells; the others: 1 improved, 1 flat)."
    (alone,) = found(*slower)
    assert (alone.word, alone.text) == ("regressed", "slower by 5 % on sm_90 (3 cells).")


def test_a_gain_of_another_kind_makes_nothing_mixed() -> None:
    slower = row("regressed", change("slower", 57, stage="timing"), stage="timing", params="n=1")
    launches = change("launch_faster", 33, stage="timing", direction=Direction.BETTER)
    first, second = found(slower, row("improved", launches, stage="timing", params="n=2"))
    assert (first.word, first.kind) == ("regressed", "speed")
    assert (second.word, second.kind) == ("improved", "launch cost")


def test_what_else_got_worse_in_the_same_cells_is_said_by_its_kind() -> None:
    slower, launch = change("slower", 57, stage="timing"), change("launch_slower", 33, stage="timing")
    rows = [row("regressed", slower, launch, stage="timing", params="n=1"), row("regressed", slower, stage="timing")]
    (finding,) = found(*rows)
    assert finding.text.endswith("worse too: launch cost in 1 of them.")


@pytest.mark.parametrize(
    ("reason", "stage", "kind"),
    [
        ("import_error", "import", "import"),
        ("compile_error", "compile", "compile"),
        ("spills_appeared", "compile", "code risk"),
        ("compile_time_multiplied", "compile", "compile time"),
        ("wrong", "interpret", "correctness"),
        ("less_accurate", "correctness", "correctness"),
        ("slower", "timing", "speed"),
        ("launch_slower", "timing", "launch cost"),
        ("out_of_memory", "timing", "correctness"),
        ("not_run", "timing", "speed"),
    ],
)
def test_every_kind_of_change_has_its_word(reason: str, stage: str, kind: str) -> None:
    assert kind_of(reason, stage) == kind


def test_the_row_that_moved_most_is_shown() -> None:
    rows = [
        row(
            "code_risk",
            change("spills_grew", baseline_value=8.0, candidate_value=after, text=f"to {after}"),
            params=str(after),
        )
        for after in (16.0, 64.0, 32.0)
    ]
    (finding,) = found(*rows)
    assert "to 64.0" in finding.text


def test_rows_gather_around_their_gravest_common_change() -> None:
    """Spills on two targets, occupancy lost on one of them and on a third: two findings, not three."""
    spilled, crowded = change("spills_appeared", 45), change("occupancy_lost", 40)
    rows = [
        row("code_risk", spilled, target="sm_80"),
        row("mixed", spilled, crowded, change("code_size_cut", 15, direction=Direction.BETTER), target="sm_90"),
        row("code_risk", crowded, target="sm_100"),
    ]
    first, second = found(*rows)
    assert (first.reason_code, first.targets, first.verdict) == (
        "spills_appeared",
        ("sm_80", "sm_90"),
        "code_risk",
    )
    assert (second.reason_code, second.targets) == ("occupancy_lost", ("sm_100",))
    assert second.quiet == (("sm_80", "another finding"), ("sm_90", "another finding"))


@pytest.mark.parametrize(
    "given",
    [{"candidate": "triton3.9.0"}, {"case": "rope"}, {"verdict": Verdict.KNOWN, "known": "why"}],
)
def test_what_keeps_rows_apart(given: dict[str, object]) -> None:
    spilled = row("code_risk", change("spills_appeared"))
    assert len(found(spilled, dataclasses.replace(spilled, target="sm_80", **given))) == 2  # type: ignore[arg-type]


def test_other_kernels_of_a_case_are_apart() -> None:
    assert len(found(*(row("code_risk", change("spills_appeared", kernel=kernel)) for kernel in "ab"))) == 2


def test_an_error_that_differs_by_numbers_is_the_same_error() -> None:
    said = [
        "out of resource: shared memory, Required: 106496, Hardware limit: 101376 on sm_120",
        "out of resource: shared memory, Required: 98304, Hardware limit: 65536 on sm_90a",
    ]
    assert normalised(said[0]) == normalised(said[1])
    rows = [
        row("regressed", change("does_not_fit", 61, cause=text), target=t)
        for text, t in zip(said, ("sm_120", "sm_90"), strict=True)
    ]
    assert len(found(*rows)) == 1
    rows.append(row("regressed", change("does_not_fit", 61, cause="tensor memory"), target="sm_100"))
    assert len(found(*rows)) == 2


def test_a_failed_import_spans_cases() -> None:
    lost = change("import_error", 76, stage="import", kernel="", cause="ModuleNotFoundError: triton.ops")
    rows = [
        row("regressed", lost, case=case, target=t, stage=s)
        for case in "ab"
        for t, s in (("cpu", "import"), ("sm_90", "compile"))
    ]
    (finding,) = found(*rows)
    assert (finding.cases, finding.targets, finding.stage) == (("a", "b"), ("sm_90",), "import")
    assert finding.title == "2 cases: does not import"


@pytest.mark.parametrize("verdict", ["identical", "unsupported"])
def test_silence_makes_no_finding(verdict: str) -> None:
    assert found(row(verdict), row("changed"), row("equal", change("passed", 0))) == []


def test_failing_in_both_is_shown_and_regresses_nothing() -> None:
    both = row("equal", change("failing_in_both", 72, direction=Direction.NEUTRAL, text="does not compile in both"))
    (finding,) = found(both)
    assert (finding.title, finding.regressed) == ("softmax: fails in both", False)
    assert exit_code([both]) is ExitCode.CLEAN
    assert "1 failing in both" in summarise(number([both])).text


def test_a_finding_keeps_its_id_whatever_else_the_run_holds() -> None:
    spilled = row("code_risk", change("spills_appeared"))
    (alone,) = found(spilled)
    more = [
        dataclasses.replace(spilled, run_id="s", target="sm_80", params="z=1"),
        row("changed", case="rope"),
    ]
    (together,) = found(dataclasses.replace(spilled, run_id="s"), *more)
    assert alone.finding_id == together.finding_id
    assert len(alone.finding_id) == 10


def test_numbering_keeps_the_order_of_the_rows_and_is_repeatable() -> None:
    dice = random.Random(5)
    reasons = ["spills_appeared", "occupancy_lost", "shared_memory"]
    rows = [
        row(
            "code_risk",
            *(change(r, 45 - reasons.index(r)) for r in sorted(dice.sample(reasons, 2))),
            target=t,
            case=c,
            params=str(n),
        )
        for n in range(4)
        for t in ("sm_80", "sm_90")
        for c in "ab"
    ]
    numbered = number(rows)
    assert [dataclasses.replace(r, finding_id="") for r in numbered] == rows
    assert number(numbered) == numbered
    assert sorted(len(f.rows) for f in findings(numbered)) == sorted(len(f.rows) for f in found(*reversed(rows)))
    assert sum(len(f.rows) for f in findings(numbered)) == len(rows)


ORDERED = [
    row("regressed", change("wrong", 100), case="z"),
    row("regressed", change("compiler_abort", 86), case="y"),
    row("regressed", change("compile_error", 72), case="x"),
    row("regressed", change("unsupported", 60), case="w"),
    row("mixed", change("spills_appeared", 45), case="v"),
    row("code_risk", change("shared_memory", 25), case="u"),
    row("incomplete", change("missing", 7, direction=Direction.NEUTRAL), case="t"),
    row("unexpected_pass", change("unexpected_pass", 5, direction=Direction.NEUTRAL), case="s"),
    row("known", change("wrong", 100), case="q", known="why"),
    row("improved", change("wrong_gone", 100, direction=Direction.BETTER), case="p"),
    row("improved", change("shared_memory_saved", 25, direction=Direction.BETTER), case="o"),
]


def test_worst_first() -> None:
    assert [finding.cases[0] for finding in found(*reversed(ORDERED))] == list("zyxwvutsqpo")


CLEAN = [
    row("identical"),
    row("improved", change("spills_gone", direction=Direction.BETTER)),
    row("known", change("wrong"), known="x"),
]
GAP = row("incomplete", change("not_run", 6, direction=Direction.NEUTRAL), target="sm_80")
SURPRISE = row("unexpected_pass", change("unexpected_pass", 5, direction=Direction.NEUTRAL), target="sm_100")
RISK = row("code_risk", change("spills_appeared", 45), target="sm_120")


@pytest.mark.parametrize(
    ("rows", "code", "sentence"),
    [
        (CLEAN, 0, "Nothing regressed."),
        ([*CLEAN, GAP], 3, "Incomplete: 1 of 4 cells could not be judged."),
        ([*CLEAN, SURPRISE], 3, "Incomplete: 1 expected failure did not happen."),
        (
            [GAP, SURPRISE],
            3,
            "Incomplete: 1 of 2 cells could not be judged; 1 expected failure did not happen.",
        ),
        ([*CLEAN, GAP, SURPRISE, RISK], 1, "Measure before upgrading."),
        ([dataclasses.replace(RISK, verdict=Verdict.MIXED)], 1, "Measure before upgrading."),
        ([dataclasses.replace(RISK, verdict=Verdict.REGRESSED)], 1, "Do not upgrade."),
        ([], 3, "Incomplete: nothing was judged."),
    ],
)
def test_the_decision(rows: list[VerdictRecord], code: int, sentence: str) -> None:
    summary = summarise(number(rows))
    assert (summary.exit_code, summary.sentence) == (code, sentence)


def test_the_text_names_the_worst() -> None:
    summary = summarise(number(ORDERED))
    assert summary.text == (
        "6 findings: z: gives wrong values, y: aborts the compiler, x: does not compile and 3 more;"
        " 10 of 11 cells judged; 2 improved; 1 as expected."
    )
    assert summary.findings == 6
    assert summary.counts[Verdict.REGRESSED] == 4


def test_each_candidate_has_its_own_decision() -> None:
    rows = number([RISK, row("identical", candidate="triton3.9.0")])
    codes = {name: summary.exit_code for name, summary in by_candidate(rows).items()}
    assert codes == {CANDIDATE: ExitCode.REGRESSED, "triton3.9.0": ExitCode.CLEAN}


def test_a_row_without_changes_still_makes_a_finding() -> None:
    bare = dataclasses.replace(RISK, detail="")
    (finding,) = found(bare)
    assert finding.reason_code == "spills_appeared"


@pytest.mark.parametrize("value", [None, 0.0, 62.4, float("inf")])
def test_changes_are_written_as_json_writes_them(value: float | None) -> None:
    said = change("slower", text='62.4 us \u2192 "194.8" us\n', cause="\\x", baseline_value=value, candidate_value=1.5)
    assert encode([said, said]) == json.dumps([dataclasses.asdict(said)] * 2, ensure_ascii=False)
    assert decode(encode([said])) == [said]


def test_what_a_release_does_not_take_is_one_finding_over_all_stages() -> None:
    refused = change("unsupported", 60, text="passed before, is not supported now")
    rows = [row("regressed", refused, stage=stage) for stage in ("compile", "correctness", "timing")]
    (finding,) = found(*rows)
    assert len(finding.rows) == 3
    wrong = change("wrong", 90, text="gives wrong values now")
    assert len(found(*rows, row("regressed", wrong, stage="correctness"))) == 2
