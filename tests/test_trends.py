"""Change points over nights, with a known truth: found where they are, and none where there is none."""

from __future__ import annotations

import datetime as dt
import math

import numpy as np
import pyarrow as pa
import pytest

from matrix.nights import trends as following
from matrix.nights.change_points import FEWEST_NIGHTS, change_points, change_points_of, flips, may_move
from matrix.nights.history import SCHEMA
from matrix.nights.trend_chart import said_of, trend_text

NOISE = 0.005


def trends(history, **given):
    return following.trends(history, **given).series


def nights(count, levels, *, seed, noise=NOISE):
    """Log-normal noise around levels that begin at given nights."""
    made = np.random.Generator(np.random.Philox(seed)).normal(0, noise, count)
    level = np.ones(count)
    for start, value in levels.items():
        level[start:] = value
    return (level * np.exp(made)).tolist()


def test_false_alarms_over_a_thousand_quiet_series_are_few():
    alarms = sum(bool(change_points(nights(60, {}, seed=seed))) for seed in range(1000))
    assert alarms <= 10


@pytest.mark.parametrize("noise", [0.002, 0.005, 0.01])
def test_a_step_of_five_percent_is_found_at_its_night(noise):
    found = [change_points(nights(60, {40: 1.05}, seed=seed, noise=noise)) for seed in range(200)]
    right = sum(len(each) == 1 and abs(each[0] - 40) <= 1 for each in found)
    assert right >= 190


def test_two_steps_and_their_repair_are_three_changes():
    values = nights(90, {20: 1.04, 40: 1.5, 70: 1.0}, seed=3)
    assert change_points(values) == [20, 40, 70]


def test_one_bad_night_or_two_are_no_change():
    values = nights(60, {}, seed=5)
    for bad in ([30], [30, 31], [10, 40]):
        spiked = [value * (3.0 if place in bad else 1.0) for place, value in enumerate(values)]
        assert change_points(spiked) == []


def test_a_change_under_a_percent_is_not_told_and_exact_figures_are_no_trouble():
    assert change_points(nights(200, {100: 1.006}, seed=1, noise=0.001)) == []
    assert change_points([33.7] * 30) == []
    assert change_points([33.7] * 15 + [51.1] * 15) == [15]


def moving(count, series, seed):
    """Noise around levels, slopes, bumps and spikes, from far under the noise to far above it."""
    random = np.random.Generator(np.random.Philox(seed))
    noise = random.choice([0.0, 0.0003, 0.002, 0.01], (series, 1))
    rows = random.normal(0, 1, (series, count)) * noise
    for row, reach in zip(rows, random.choice([0.0, 0.001, 0.005, 0.02, 0.3], series), strict=True):
        for start, end in random.integers(0, count + 1, (random.integers(0, 5), 2)):
            row[start:end] += reach * random.normal()
        row[:] += random.choice([0.0, reach / count]) * np.arange(count)
    return 100 * np.exp(rows)


@pytest.mark.parametrize("count", [6, 7, 9, 20, 52, 91])
def test_no_series_is_passed_over_that_pelt_would_change(count, monkeypatch):
    import ruptures

    rows = moving(count, 1500, seed=count)
    logs = np.log(rows)
    passed_over = 0
    for share in (0.02, 0.5, 1.0, 4.0):  # of what a change costs in the noise of each
        costs = share * 3 * math.log(count) * np.maximum(0.001, np.abs(np.diff(logs)).mean(axis=1)) ** 2
        quiet = np.flatnonzero(~may_move(logs, costs))
        passed_over += len(quiet)
        search = ruptures.KernelCPD(kernel="linear", min_size=FEWEST_NIGHTS)
        for number in quiet:
            assert search.fit(logs[number]).predict(pen=float(costs[number])) == [count]
    assert 600 < passed_over < 5400

    found = change_points_of(rows)
    monkeypatch.setattr("matrix.nights.change_points.may_move", lambda signals, _: np.ones(len(signals), dtype=bool))
    assert change_points_of(rows) == found


@pytest.mark.parametrize("count", [0, 1, 5])
def test_few_nights_say_nothing(count):
    assert change_points([1.0, 2.0, 1.0, 2.0, 1.0][:count]) == []


def test_to_and_fro_is_bimodal_and_a_step_is_not():
    back_and_forth = [1.0 + 0.2 * (night % 3 == 0) + 0.001 * (night % 7) for night in range(60)]
    assert flips(back_and_forth)
    assert not flips(nights(60, {30: 1.2}, seed=0))
    assert not flips(nights(60, {30: 1.2, 45: 1.0}, seed=0))
    assert not flips(nights(60, {}, seed=0))


def table(values, *, stage="timing", drivers=None, bimodal=(), flawed=(), figure="ratio"):
    start = dt.datetime(2026, 9, 1, 2, tzinfo=dt.UTC)
    rows = []
    for night, value in enumerate(values):
        row = dict.fromkeys(SCHEMA.names)
        row |= {name: "" for name in SCHEMA.names if pa.types.is_string(SCHEMA.field(name).type)}
        row |= {
            "run_id": f"r{night}",
            "started_at": start + dt.timedelta(days=night),
            "stage": stage,
            "case": "softmax",
        }
        row |= {"verdict": "equal", "target": "sm_90", "params": "rows=1", "candidate": "c", "baseline": "b"}
        row |= {"waived": False, "bimodal": night in bimodal, "flawed": night in flawed, figure: value}
        row["driver"] = (drivers or {}).get(night, "580.1") if not drivers else drivers[min(night, len(drivers) - 1)]
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_a_change_says_what_else_moved_that_night():
    drivers = ["580.1"] * 20 + ["590.2"] * 20
    (series,) = trends(table(nights(40, {20: 1.1}, seed=2), drivers=drivers))
    (change,) = series.changes
    assert (change.place, round(change.ratio, 2)) == (20, 1.1)
    assert change.moved == ("driver 580.1 → 590.2",)
    assert [place for place, point in enumerate(series.points) if point.moved] == [20]


def test_a_night_with_another_driver_says_so_without_a_change_too():
    drivers = ["580.1"] * 10 + ["590.2"] + ["580.1"] * 10
    (series,) = trends(table(nights(21, {}, seed=2), drivers=drivers))
    assert series.changes == ()
    assert series.points[10].moved == ("driver 580.1 → 590.2",)
    assert series.points[11].moved == ("driver 590.2 → 580.1",)


def test_what_is_bimodal_is_left_alone():
    values = nights(40, {20: 1.1}, seed=2)
    (series,) = trends(table(values, bimodal=range(0, 40, 3)))
    assert series.changes == ()
    assert "samples fell into two groups" in series.skipped
    for noise in (0.0, 0.002):
        levels = nights(40, {}, seed=4, noise=noise)
        (series,) = trends(table([level * (1.2 if night % 2 else 1.0) for night, level in enumerate(levels)]))
        assert "to and fro" in series.skipped


def test_flawed_nights_do_not_count_and_are_kept_as_gaps():
    values = nights(40, {20: 1.1}, seed=2)
    values[25] = 9.0
    (series,) = trends(table(values, flawed=[25]))
    assert series.points[25].value is None
    assert sum(point.value is not None for point in series.points) == 39
    assert [change.place for change in series.changes] == [20]


def test_estimates_are_followed_where_nothing_was_timed():
    (series,) = trends(table([40.0] * 10 + [60.0] * 10, stage="compile", figure="estimate_us"))
    assert series.figure == "estimate_us"
    assert [change.place for change in series.changes] == [10]
    assert trends(table([1.0] * 10, stage="interpret")) == []


def test_the_latest_change_comes_first():
    early = table(nights(60, {20: 1.5}, seed=1))
    late = table(nights(60, {40: 1.02}, seed=1, noise=0.001))
    renamed = late.set_column(late.schema.get_field_index("case"), SCHEMA.field("case"), pa.array(["late"] * 60))
    both = pa.concat_tables([early, renamed])
    assert [series.case for series in trends(both)] == ["late", "softmax"]
    found = following.trends(both, limit=1)
    assert ([series.case for series in found.series], found.count, found.changed, found.nights) == (["late"], 2, 2, 60)


def timed_nights(ratios, baselines, *, gpu="NVIDIA H200", drivers=None, start=0, candidates=("c",), bimodal=()):
    """Nights with times: the candidates' median is the ratio times the baseline's."""
    parts = []
    for candidate in candidates:
        made = table(ratios, drivers=drivers, bimodal=bimodal).to_pylist()
        for night, (row, base) in enumerate(zip(made, baselines, strict=True)):
            row |= {"candidate": candidate, "gpu": gpu, "gpu_uuid": f"GPU-{gpu}", "run_id": f"r{start + night}"}
            row |= {"baseline_median_us": base, "median_us": base * row["ratio"], "baseline_triton": "3.5.1"}
            row["started_at"] += dt.timedelta(days=start)
            parts.append(row)
    return pa.Table.from_pylist(parts, schema=SCHEMA)


def by_figure(found):
    return {(series.figure, series.candidate): series for series in found}


def test_a_driver_that_slows_both_arms_shows_in_the_medians_alone():
    drivers = ["580.1"] * 20 + ["590.2"] * 20
    base = [100 * value for value in nights(40, {20: 1.05}, seed=11, noise=0.002)]
    found = by_figure(trends(timed_nights(nights(40, {}, seed=12, noise=0.002), base, drivers=drivers)))
    assert set(found) == {("median_us", "b"), ("median_us", "c"), ("ratio", "c")}
    assert found["ratio", "c"].changes == ()
    for environment in ("b", "c"):
        series = found["median_us", environment]
        (change,) = series.changes
        assert (change.place, round(change.ratio, 2), change.moved) == (20, 1.05, ("driver 580.1 → 590.2",))
        assert (series.baseline, series.gpu) == ("", "NVIDIA H200")
        assert round(change.before) == 100
        assert "since 2026-09-21: 100" in said_of(series)[0]


def test_candidates_of_one_night_share_the_baseline_s_median():
    found = trends(timed_nights([1.0] * 10, [100.0] * 10, candidates=("c", "d")))
    (base,) = (series for series in found if (series.figure, series.candidate) == ("median_us", "b"))
    assert [point.value for point in base.points] == [100.0] * 10
    assert len(found) == 5


def test_another_gpu_is_a_series_of_its_own_and_says_since_when():
    first = timed_nights(nights(20, {}, seed=1), [100.0] * 20, gpu="NVIDIA H100")
    then = timed_nights(nights(20, {}, seed=2), [80.0] * 20, start=20)
    found = [series for series in trends(pa.concat_tables([first, then])) if series.figure == "median_us"]
    assert all(series.changes == () for series in found)
    told = {series.gpu: series.began for series in found}
    assert told["NVIDIA H100"] == ""
    assert told["NVIDIA H200"] == "on NVIDIA H200 since 2026-09-21; from earlier nights on NVIDIA H100"


def test_medians_of_bimodal_nights_are_left_alone():
    base = [100 * value for value in nights(40, {20: 1.1}, seed=2)]
    found = trends(timed_nights([1.0] * 40, base, bimodal=range(0, 40, 3)))
    assert all("two groups" in series.skipped and not series.changes for series in found)


def test_a_night_that_moves_many_calls_is_one_sentence_and_no_series():
    drivers = ["580.1"] * 20 + ["590.2"] * 20
    base = [100 * value for value in nights(40, {20: 1.05}, seed=11, noise=0.002)]
    quiet = nights(40, {}, seed=12, noise=0.002)
    history = timed_nights(quiet, base, drivers=drivers, candidates=("c", "d", "e"))
    found = following.trends(history)
    (shift,) = found.shifts
    assert (shift.series, shift.of, round(shift.ratio, 2)) == (4, 4, 1.05)
    assert shift.moved == ("driver 580.1 → 590.2",)
    assert {series.figure for series in found.series} == {"ratio"}
    assert (found.count, found.changed, found.told) == (7, 4, 4)
    text = trend_text(history, limit=40)
    assert "in 4 of 4 series, whatever it is compared with; that night also: driver 580.1 → 590.2" in text
    assert "more" not in text
