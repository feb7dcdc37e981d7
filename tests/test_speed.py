"""Verdicts on time: thresholds, the floor, tuning, launches, who was timed with whom, negative controls."""

from __future__ import annotations

import math

import pytest
import timed
from judged import BASELINE, CANDIDATE, cell, expect, facts, kernel, other

from matrix.arm_pairs import ArmPairs, noise_floors
from matrix.changes import decode
from matrix.decision import exit_code, summarise
from matrix.distrust import distrust
from matrix.errors import ExitCode
from matrix.findings import findings
from matrix.judge import judge
from matrix.records import Role, Tuning, Verdict
from matrix.thresholds import Thresholds


def judged(arms, cells=None, *, baseline=BASELINE, candidate=CANDIDATE, kernels=(), expectations=(), thresholds=None):
    """Verdict rows of these arms; a passed cell for every environment and params unless ``cells`` are given."""
    if cells is None:
        places = dict.fromkeys((arm.environment, arm.case, arm.params) for arm in arms)
        cells = [cell(env, stage="timing", case=case, params=params) for env, case, params in places]
    return judge(
        cells,
        kernels,
        run_id="r",
        baseline=baseline,
        candidates=[candidate],
        expectations={"softmax": expectations},
        thresholds=thresholds or Thresholds(),
        timings=arms,
    )


def one(candidate, **options):
    (row,) = judged(timed.arms(candidate), **options)
    return row


@pytest.mark.parametrize(
    ("ratio", "decision", "verdict", "reason"),
    [
        (3.13, "slower", "regressed", "slower"),
        (1.05, "slower", "regressed", "slower"),
        (1.029, "slower", "changed", "slower_within_threshold"),
        (1.0, "same", "equal", "equivalent"),
        (1.002, "undecided", "equal", "equivalent"),
        (1.029, "undecided", "incomplete", "undecided"),
        (0.975, "faster", "changed", "faster_within_threshold"),
        (0.6, "faster", "improved", "faster"),
    ],
)
def test_a_decision_and_a_ratio_make_a_verdict(ratio, decision, verdict, reason):
    row = one(timed.ratio(ratio, decision))
    assert (row.verdict, row.reason_code) == (verdict, reason)
    assert (row.baseline_value, row.candidate_value) == (100.0, 100.0 * ratio)


def test_the_text_says_the_ratio_its_interval_and_both_times():
    row = one({**timed.ratio(3.13, "slower", spread=0.006), "median_us": 195.9})
    times = "\N{MULTIPLICATION SIGN}"
    assert row.change == f"time of a call {times}3.13 ({times}3.11 to {times}3.15): 100.0 us → 195.9 us"
    assert row.severity == 59
    assert one(timed.ratio(0.2, "faster")).severity == -59
    assert 0 < one(timed.ratio(1.05, "slower")).severity < 57


def test_what_could_not_have_been_seen_is_said():
    assert (
        "a slow-down under 4.2 % would not have shown"
        in one({**timed.ratio(1.02, "undecided", spread=0.03), "smallest_detectable": 0.042}).change
    )


def test_an_interval_without_end_decides_nothing():
    row = one({**timed.ratio(1.0, "undecided"), "ratio_low": 0.0, "ratio_high": math.inf})
    assert (row.verdict, row.reason_code) == ("incomplete", "undecided")


def test_the_users_threshold_counts():
    slower = timed.ratio(1.05, "slower")
    assert one(slower, thresholds=Thresholds(slower_ratio=1.10)).verdict is Verdict.CHANGED
    assert one(timed.ratio(1.02, "slower"), thresholds=Thresholds(slower_ratio=1.01)).verdict is Verdict.REGRESSED


def test_a_noisy_run_widens_the_threshold_to_twice_its_own_floor():
    noise = [timed.arm(Role.CONTROL, params=f"rows={n}", ratio=math.exp(0.04)) for n in range(20)]
    arms = timed.arms(timed.ratio(1.07, "slower"))
    assert judged(arms)[0].verdict is Verdict.REGRESSED
    quiet = [arm for arm in arms if arm.role is not Role.CONTROL]
    (row,) = judged([*quiet, *noise], cells=[cell(BASELINE, stage="timing"), cell(CANDIDATE, stage="timing")])
    assert (row.verdict, row.reason_code) == ("changed", "slower_within_threshold")
    # another GPU's noise is no excuse
    elsewhere = [timed.arm(Role.CONTROL, params=arm.params, ratio=arm.ratio, gpu_uuid="other") for arm in noise]
    (row,) = judged([*quiet, *elsewhere], cells=[cell(BASELINE, stage="timing"), cell(CANDIDATE, stage="timing")])
    assert row.verdict is Verdict.REGRESSED


def test_the_floor_is_that_of_the_control_arms_whose_figures_stand():
    arms = [timed.arm(Role.CONTROL, params=f"n={n}", ratio=math.exp((-1) ** n * n / 1000)) for n in range(1, 21)]
    arms += [timed.arm(Role.CONTROL, params="bad", ratio=9.0, problems=["throttled"]), timed.arm(ratio=5.0)]
    (floor,) = noise_floors(arms).values()
    assert floor.cells == 20
    assert floor.median == pytest.approx(0.0105)
    assert floor.p95 == pytest.approx(0.01905)
    assert floor.largest == pytest.approx(0.020)


@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_a_problem_in_either_arm_is_no_verdict(side):
    given = {"problems": ["hw_thermal_slowdown in one arm and not in the other"]}
    slower = timed.ratio(2.0, "slower")
    arms = timed.arms({**slower, **(given if side == "candidate" else {})}, given if side == "baseline" else {})
    (row,) = judged(arms)
    assert (row.verdict, row.reason_code) == ("incomplete", "invalid")
    assert f"{side}: hw_thermal_slowdown" in row.change


@pytest.mark.parametrize(
    ("before", "after", "verdict", "reason"),
    [
        ("passed", "out_of_memory", "regressed", "out_of_memory"),
        ("passed", "not_run", "incomplete", "not_run"),
        ("too_short", "too_short", "incomplete", "too_short"),
        ("invalid", "passed", "incomplete", "invalid"),
    ],
)
def test_an_outcome_comes_before_any_time(before, after, verdict, reason):
    cells = [cell(BASELINE, before, stage="timing"), cell(CANDIDATE, after, stage="timing")]
    (row,) = judged(timed.arms(), cells)
    assert (row.verdict, row.reason_code) == (verdict, reason)


def test_passed_without_arms_is_not_paired():
    (row,) = judged([], [cell(BASELINE, stage="timing"), cell(CANDIDATE, stage="timing")])
    assert (row.verdict, row.reason_code) == ("incomplete", "not_paired")


def test_environments_that_never_ran_together_are_not_compared():
    third = "triton3.7.0"
    arms = [*timed.arms(), timed.arm(environment=third)]
    assert judged(arms, baseline=BASELINE, candidate=third)[0].verdict is Verdict.EQUAL
    cells = [cell(CANDIDATE, stage="timing"), cell(third, stage="timing")]
    (row,) = judged(arms, cells, baseline=CANDIDATE, candidate=third)
    assert row.reason_code == "not_paired"


@pytest.mark.parametrize(("ratio", "decision"), [(3.0, "slower"), (0.5, "faster"), (1.0, "same"), (1.02, "undecided")])
def test_the_mirror(ratio, decision):
    arms = timed.arms(timed.ratio(ratio, decision))
    (straight,), (turned,) = judged(arms), judged(arms, baseline=CANDIDATE, candidate=BASELINE)
    swapped = {"slower": "faster", "faster": "slower"}
    assert turned.reason_code == swapped.get(straight.reason_code, straight.reason_code)
    assert turned.severity == (straight.severity if decision == "undecided" else -straight.severity)
    assert (turned.baseline_value, turned.candidate_value) == (straight.candidate_value, straight.baseline_value)


def test_of_several_measurements_the_last_counts():
    arms = [*timed.arms(timed.ratio(2.0, "slower")), *timed.arms(run_id="later")]
    pair = ArmPairs(arms).find(BASELINE, CANDIDATE, case="softmax", target="sm_90", params="rows=8,dtype=fp16")
    assert pair is not None
    assert {arm.run_id for arm in (pair.baseline, pair.candidate, pair.control)} == {"later"}


@pytest.mark.parametrize(
    ("launch", "control", "time", "verdict", "reason"),
    [
        (34.0, 20.0, (1.0, "same"), "regressed", "launch_slower"),
        (29.0, 20.0, (1.0, "same"), "equal", "equivalent"),  # less than half as much again
        (34.0, 33.0, (1.0, "same"), "equal", "equivalent"),  # the control is as slow
        (12.0, 20.0, (1.0, "same"), "improved", "launch_faster"),
        (34.0, 20.0, (0.5, "faster"), "mixed", "faster"),
        (34.0, 20.0, (1.02, "undecided"), "regressed", "launch_slower"),
        (12.0, 20.0, (1.02, "undecided"), "incomplete", "launch_faster"),
        (12.0, 20.0, (1.5, "slower"), "mixed", "slower"),
    ],
)
def test_launches_are_judged_coarsely(launch, control, time, verdict, reason):
    spread = 0.05 if time[1] == "undecided" else 0.002
    arms = timed.arms({**timed.ratio(*time, spread=spread), "launch_us": launch})
    arms[-1] = timed.arm(Role.CONTROL, launch_us=control)
    (row,) = judged(arms)
    assert (row.verdict, row.reason_code) == (verdict, reason)


def test_launches_are_judged_beyond_what_the_controls_of_the_run_differ_by():
    quiet = timed.arms({"launch_us": 36.0}, params="n=1")
    assert judged(quiet)[0].reason_code == "launch_slower"
    noisy = timed.arms(params="n=2")
    noisy[-1] = timed.arm(Role.CONTROL, launch_us=32.0, params="n=2")
    assert {row.verdict for row in judged([*quiet, *noisy])} == {Verdict.EQUAL}


def test_a_short_launch_may_double():
    arms = timed.arms({"launch_us": 8.0}, {"launch_us": 4.0})
    arms[-1] = timed.arm(Role.CONTROL, launch_us=4.0)
    assert judged(arms)[0].verdict is Verdict.EQUAL


def tuned(pinned, retuned, *, after=64):
    """Both rows of an autotuned cell; the candidate's tuner chose ``BLOCK_M = after``, the baseline's 128."""
    arms = []
    for tuning, given in ((Tuning.PINNED, pinned), (Tuning.RETUNED, retuned)):
        chosen = {"matmul_kernel": {"BLOCK_M": 128 if tuning is Tuning.PINNED else after, "num_warps": 8}}
        before = {"configurations": {"matmul_kernel": {"BLOCK_M": 128, "num_warps": 8}}}
        both = {"tuning": tuning, "params": f"n=4096,tuning={tuning}"}
        arms += timed.arms({**given, "configurations": chosen}, before, **both)
    return arms


@pytest.mark.parametrize(
    ("pinned", "reason"),
    [
        (timed.ratio(1.4, "slower"), "slower"),
        (timed.ratio(1.0, "same"), "tuner_slower"),
        (timed.ratio(0.8, "faster"), "tuner_slower"),
        ({"problems": ["the queue ran empty"]}, "slower"),  # nothing is known about the compiler's share
    ],
)
def test_slower_is_split_between_compiler_and_tuner(pinned, reason):
    rows = {row.params: row for row in judged(tuned(pinned, timed.ratio(1.4, "slower")))}
    row = rows["n=4096,tuning=retuned"]
    assert (row.verdict, row.reason_code) == ("regressed", reason)
    texts = [change.text for change in decode(row.detail)]
    assert "configuration: matmul_kernel: BLOCK_M 128 → 64" in texts
    assert ("the tuner chose differently" in row.change) is (reason == "tuner_slower")


def test_drift_without_a_difference_in_time_is_listed_and_no_finding():
    rows = judged(tuned({}, {}))
    assert {row.verdict for row in rows} == {Verdict.EQUAL}
    assert any("BLOCK_M 128 → 64" in row.detail for row in rows)
    assert findings(rows) == []
    assert "configuration" not in judged(tuned({}, {}, after=128))[-1].detail


def test_an_expected_slow_down_is_known_and_another_beside_it_decides():
    known = expect(change="slower", stage="timing")
    slower = timed.ratio(2.0, "slower")
    assert one(slower, expectations=[known]).verdict is Verdict.KNOWN
    row = one({**slower, "launch_us": 99.0}, expectations=[known])
    assert (row.verdict, row.reason_code) == ("regressed", "launch_slower")
    failing = expect(outcome="out_of_memory", stage="timing")
    assert one(slower, expectations=[failing]).verdict is Verdict.REGRESSED


def test_the_same_slow_down_over_params_is_one_finding():
    rows = judged([arm for n in range(4) for arm in timed.arms(timed.ratio(1.5 + n, "slower"), params=f"n={n}")])
    (finding,) = findings(rows)
    assert (finding.title, len(finding.rows)) == ("softmax: slower", 4)
    assert "\N{MULTIPLICATION SIGN}4.5" in finding.text


def controls(before, after, ratio):
    """A timed cell with its code."""
    cells = [cell(env, stage=stage) for env in (BASELINE, CANDIDATE) for stage in ("compile", "timing")]
    kernels = [kernel(BASELINE, before), kernel(CANDIDATE, after)]
    return judged(timed.arms(ratio), cells, kernels=kernels)


def test_identical_code_that_became_slower_speaks_against_the_run():
    rows = controls(facts(), facts(), timed.ratio(1.2, "slower"))
    assert distrust(rows).startswith("softmax (slower): identical machine code")
    said = summarise(rows)
    assert said.sentence == "The timings cannot be trusted."
    assert "identical machine code" in said.text
    assert exit_code(rows) is ExitCode.INCOMPLETE


@pytest.mark.parametrize(
    ("code", "ratio"),
    [
        (other(), timed.ratio(1.2, "slower")),  # other code may be slower
        (facts(), timed.ratio(1.0, "same")),
        (facts(), timed.ratio(1.02, "slower")),  # within the threshold nothing is claimed
    ],
)
def test_nothing_speaks_against_the_run(code, ratio):
    assert distrust(controls(facts(), code, ratio)) == ""


def test_what_failed_still_decides_where_timings_cannot_be_trusted():
    rows = controls(facts(), facts(), timed.ratio(1.2, "slower"))
    broken = judged([], [cell(BASELINE, case="add"), cell(CANDIDATE, "wrong", case="add", stage="compile")])
    assert exit_code([*rows, *broken]) is ExitCode.REGRESSED
    assert summarise([*rows, *broken]).sentence == "Do not upgrade."
    assert "cannot be trusted" in summarise([*rows, *broken]).text


def test_what_an_h200_measured_comes_out_as_a_person_would_judge_it():
    arms, _ = timed.recorded(BASELINE, CANDIDATE)
    rows = {(row.case, row.params): row for row in judged(arms)}
    tma = [row.reason_code for (case, _), row in rows.items() if case == "column_max_tma"]
    assert tma == ["slower"] * 3
    others = {row.reason_code for (case, _), row in rows.items() if case != "column_max_tma"}
    # One pointer shape is undecided between -0.2 % and +1.8 %: within 3 %, and so as fast as before.
    assert others == {"equivalent", "slower_within_threshold"}
    (finding,) = findings(list(rows.values()))
    assert finding.title == "column_max_tma: slower"
    assert "\N{MULTIPLICATION SIGN}3.14" in finding.text
