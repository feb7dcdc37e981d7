"""Verdicts on time: thresholds, the floor, tuning, launches, who was timed with whom, negative controls."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import timed
from judged import BASELINE, CANDIDATE, cell, expect, facts, kernel, other

from matrix.errors import ExitCode
from matrix.judging.arm_pairs import ArmPairs, noise_floors
from matrix.judging.changes import decode
from matrix.judging.decision import exit_code, summarise
from matrix.judging.distrust import believed, contradictions, distrust, share_interval
from matrix.judging.family import METHOD, METHOD_VERSION
from matrix.judging.findings import findings
from matrix.judging.judge_tables import judge
from matrix.judging.thresholds import Thresholds
from matrix.records import Role, Tuning, Verdict


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
    ("ratio", "spread", "speed", "verdict", "reason"),
    [
        (3.13, 0.002, "slower", "regressed", "slower"),
        (1.05, 0.002, "slower", "regressed", "slower"),
        (1.015, 0.002, "equivalent", "changed", "slower_within_threshold"),
        (1.0, 0.002, "equivalent", "equal", "equivalent"),
        (1.029, 0.002, "undecided", "incomplete", "at_threshold"),
        (1.032, 0.002, "undecided", "incomplete", "at_threshold"),
        (1.05, 0.04, "undecided", "incomplete", "at_threshold"),
        (1.02, 0.04, "undecided", "incomplete", "too_noisy"),
        (0.971, 0.002, "undecided", "changed", "not_slower"),
        (0.96, 0.04, "undecided", "changed", "not_slower"),
        (0.985, 0.002, "equivalent", "changed", "faster_within_threshold"),
        (0.6, 0.002, "faster", "improved", "faster"),
    ],
)
def test_a_ratio_and_its_interval_make_a_verdict(ratio, spread, speed, verdict, reason):
    row = one(timed.ratio(ratio, "slower", spread=spread))
    assert (row.speed, row.verdict, row.reason_code) == (speed, verdict, reason)
    assert (row.baseline_value, row.candidate_value) == (100.0, 100.0 * ratio)
    assert row.ratio == pytest.approx(ratio)
    assert row.ratio_low < ratio < row.ratio_high
    assert row.smallest_detectable > 0.03


def test_the_text_says_the_ratio_its_interval_and_both_times():
    row = one({**timed.ratio(3.13, "slower", spread=0.006), "median_us": 195.9})
    times = "\N{MULTIPLICATION SIGN}"
    assert row.change == f"time of a call {times}3.13 ({times}3.10 to {times}3.16): 100.0 us → 195.9 us"
    assert row.severity == 59
    assert one(timed.ratio(0.2, "faster")).severity == -59
    assert 0 < one(timed.ratio(1.05, "slower")).severity < 57


def test_every_timing_row_says_how_it_was_judged():
    row = one(timed.ratio(1.05, "slower"))
    assert (row.method, row.method_version) == (METHOD, METHOD_VERSION)
    said = json.loads(row.parameters)
    assert said["false_discovery_rate"] == 0.05
    assert (said["cells"], said["looks"], said["threshold_ratio"]) == (1, timed.LOOKS, 1.03)
    assert row.allowed == pytest.approx(1.03)
    assert 0 < row.p_value == row.q_value < 0.005  # of one cell nothing is to be corrected
    (failed,) = judged([], [cell(BASELINE, stage="timing"), cell(CANDIDATE, "out_of_memory", stage="timing")])
    assert (failed.speed, failed.method, failed.p_value) == ("not_run", METHOD, None)


def test_a_difference_must_hold_in_cycles():
    slower = timed.ratio(1.08, "slower")
    row = one({**slower, "cycles_ratio": 1.0})
    assert (row.verdict, row.reason_code) == ("incomplete", "cycles_disagree")
    assert one({**slower, "cycles_ratio": None, "cycles_error": None}).verdict is Verdict.REGRESSED  # no clock was read
    assert one({**slower, "cycles_error": None}).reason_code == "cycles_disagree"


def test_what_could_not_have_been_seen_is_said():
    row = one(timed.ratio(1.02, "undecided", spread=0.03))
    assert f"a slow-down under {100 * row.smallest_detectable:.2g} % would not have shown" in row.change
    assert 0.03 < row.smallest_detectable < 0.1


def test_an_interval_without_end_decides_nothing():
    row = one({**timed.ratio(1.0, "undecided"), "standard_error": None, "blocks": 1})
    assert (row.verdict, row.reason_code, row.p_value) == ("incomplete", "too_noisy", 1.0)


def test_the_users_threshold_counts():
    slower = timed.ratio(1.05, "slower")
    assert one(slower, thresholds=Thresholds(slower_ratio=1.10)).verdict is Verdict.CHANGED
    assert one(timed.ratio(1.025, "slower"), thresholds=Thresholds(slower_ratio=1.01)).verdict is Verdict.REGRESSED


def test_a_noisy_run_widens_the_threshold_to_twice_its_own_floor():
    noise = [timed.arm(Role.CONTROL, params=f"rows={n}", ratio=math.exp(0.04)) for n in range(20)]
    arms = timed.arms(timed.ratio(1.07, "slower"))
    assert judged(arms)[0].verdict is Verdict.REGRESSED
    quiet = [arm for arm in arms if arm.role is not Role.CONTROL]
    (row,) = judged([*quiet, *noise], cells=[cell(BASELINE, stage="timing"), cell(CANDIDATE, stage="timing")])
    assert (row.verdict, row.reason_code) == ("incomplete", "too_noisy")
    assert row.allowed == pytest.approx(math.exp(0.08))
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


@pytest.mark.parametrize(("ratio", "decision"), [(3.0, "slower"), (0.5, "faster"), (1.0, "same"), (1.015, "slower")])
def test_the_mirror(ratio, decision):
    arms = timed.arms(timed.ratio(ratio, decision))
    (straight,), (turned,) = judged(arms), judged(arms, baseline=CANDIDATE, candidate=BASELINE)
    assert turned.reason_code.replace("faster", "slower") == straight.reason_code.replace("faster", "slower")
    assert (turned.reason_code == straight.reason_code) is (decision == "same")
    assert turned.severity == -straight.severity
    assert turned.p_value == pytest.approx(straight.p_value)
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


def controls(before, after, ratio, **given):
    """A timed cell with its code."""
    cells = [cell(env, stage=stage) for env in (BASELINE, CANDIDATE) for stage in ("compile", "timing")]
    kernels = [kernel(BASELINE, before), kernel(CANDIDATE, after, **given)]
    return judged(timed.arms(ratio), cells, kernels=kernels)


def test_identical_code_that_became_slower_speaks_against_the_run():
    rows = controls(facts(), facts(), timed.ratio(1.2, "slower"))
    assert distrust(rows).startswith("softmax (slower): identical machine code, and still another time, in 1 of 1")
    said = summarise(rows)
    assert said.sentence == "The timings cannot be trusted."
    assert "identical machine code" in said.text
    assert exit_code(rows) is ExitCode.INCOMPLETE


@pytest.mark.parametrize(
    ("code", "ratio", "given"),
    [
        (other(), timed.ratio(1.2, "slower"), {}),  # other code may be slower
        (facts(), timed.ratio(1.2, "slower"), {"grid": [2, 1, 1]}),  # launched otherwise
        (facts(), timed.ratio(1.2, "slower"), {"options": {"launch_pdl": True}}),
        (facts(), timed.ratio(1.0, "same"), {}),
        (facts(), timed.ratio(1.015, "slower"), {}),  # within the threshold nothing is claimed
    ],
)
def test_nothing_speaks_against_the_run(code, ratio, given):
    assert distrust(controls(facts(), code, ratio, **given)) == ""


def test_a_default_that_one_release_does_not_name_is_the_same_launch():
    named = {"options": {"cluster_dims": [1, 1, 1], "launch_pdl": False}}
    assert distrust(controls(facts(), facts(), timed.ratio(1.2, "slower"), **named))


def family(moved_controls, sound_controls, called, flat):
    """A comparison of so many cells; ``called`` are slower with other code."""
    rows = controls(facts(), facts(), timed.ratio(1.2, "slower"))
    moved = next(row for row in rows if row.stage == "timing")
    sound = dataclasses.replace(moved, speed="equivalent", verdict=Verdict.EQUAL, reason_code="equivalent")
    real = dataclasses.replace(moved, negative_control=False)
    quiet = dataclasses.replace(sound, negative_control=False)
    counts = ((moved, moved_controls), (sound, sound_controls), (real, called), (quiet, flat))
    return [dataclasses.replace(row, params=f"n={n}") for row, count in counts for n in range(count)]


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        ((0, 1000, 60, 1940), False),
        ((1, 999, 60, 1940), False),  # some two of sixty calls are false: fewer than one in twenty
        ((1, 999, 10, 1990), True),  # two of ten are more
        ((1, 19, 3, 40), True),
        ((1, 30, 0, 10), True),  # the only call is false
    ],
)
def test_how_many_controls_moved_decides_what_the_others_are_worth(rows, broken):
    rows = family(*rows)
    assert bool(distrust(rows)) is broken
    assert len(believed(rows)) == (
        0 if broken else sum(not (row.negative_control and row.speed == "slower") for row in rows)
    )


def test_a_contradicted_row_never_decides_and_is_told():
    rows = family(1, 999, 60, 1940)
    assert "no more than promised" in contradictions(rows)
    alone = [dataclasses.replace(row, verdict=Verdict.EQUAL) if not row.negative_control else row for row in rows]
    assert exit_code(alone) is ExitCode.INCOMPLETE
    assert "no more than promised" in summarise(alone).text


def test_the_interval_of_a_share_is_clopper_and_pearson_s():
    assert share_interval(0, 20) == pytest.approx((0.0, 0.168433), abs=1e-5)
    assert share_interval(2, 20) == pytest.approx((0.012349, 0.316983), abs=1e-5)
    assert share_interval(5, 5) == pytest.approx((0.478176, 1.0), abs=1e-5)


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
    assert others == {"equivalent"}
    (finding,) = findings(list(rows.values()))
    assert finding.title == "column_max_tma: slower"
    assert "\N{MULTIPLICATION SIGN}3.14" in finding.text
